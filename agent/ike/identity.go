// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"sluice.dev/sluice/agent/ike/message"
)

// Identity is the identity of an end. The zero Identity matches each identity.
type Identity struct {
	Kind message.IDType
	Data string
}

// Attribute types of distinguished names, as RFC 4514 writes them.
var attributeTypes = map[string]asn1.ObjectIdentifier{
	"CN": {2, 5, 4, 3}, "SERIALNUMBER": {2, 5, 4, 5}, "C": {2, 5, 4, 6}, "L": {2, 5, 4, 7}, "ST": {2, 5, 4, 8}, "STREET": {2, 5, 4, 9},
	"O": {2, 5, 4, 10}, "OU": {2, 5, 4, 11}, "DC": {0, 9, 2342, 19200300, 100, 1, 25}, "UID": {0, 9, 2342, 19200300, 100, 1, 1},
	"E": {1, 2, 840, 113549, 1, 9, 1},
}

// ParseIdentity reads an identity as people write it: an address, "user@example.org", "gw.example.org", "C=DE, O=Example, CN=gw", "keyid:0a0b".
// "*.example.org" and "*@example.org" stand for all names of the domain; "" for every identity.
func ParseIdentity(text string) (Identity, error) {
	if text == "" || text == "%any" {
		return Identity{}, nil
	}
	if rest, is := strings.CutPrefix(text, "keyid:"); is {
		b, err := hex.DecodeString(rest)
		if err != nil || len(b) == 0 {
			return Identity{}, fmt.Errorf("%q is not hexadecimal", rest)
		}
		return Identity{message.IDKey, string(b)}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		if a.Zone() != "" {
			return Identity{}, fmt.Errorf("the address %q has a zone", text)
		}
		if a.Is4() {
			return Identity{message.IDIPv4, string(a.AsSlice())}, nil
		}
		return Identity{message.IDIPv6, string(a.AsSlice())}, nil
	}
	if strings.Contains(text, "=") {
		return parseName(text)
	}
	if rest, is := strings.CutPrefix(text, "@"); is {
		return Identity{message.IDFQDN, rest}, nil
	}
	if strings.Contains(text, "@") {
		return Identity{message.IDEmail, text}, nil
	}
	return Identity{message.IDFQDN, text}, nil
}

// parseName reads a distinguished name, the first attribute first.
func parseName(text string) (Identity, error) {
	var name pkix.RDNSequence
	for _, part := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		oid := attributeTypes[strings.ToUpper(key)]
		if !ok || oid == nil || value == "" {
			return Identity{}, fmt.Errorf("%q is not an attribute of a name: write CN=gw", strings.TrimSpace(part))
		}
		name = append(name, pkix.RelativeDistinguishedNameSET{{Type: oid, Value: value}})
	}
	der, err := asn1.Marshal(name)
	if err != nil {
		return Identity{}, fmt.Errorf("name %q: %w", text, err)
	}
	return Identity{message.IDDN, string(der)}, nil
}

func identityOf(p *message.ID) Identity { return Identity{p.Kind, string(p.Data)} }

func (i Identity) payload(responder bool) *message.ID {
	return &message.ID{Responder: responder, Kind: i.Kind, Data: []byte(i.Data)}
}

// Any reports whether the identity matches every one.
func (i Identity) Any() bool { return i.Kind == 0 }

// Matches reports whether an end's identity is this one, or matches its wildcard.
func (i Identity) Matches(peer Identity) bool {
	switch {
	case i.Any():
		return true
	case i.Kind != peer.Kind:
		return false
	case i.Kind == message.IDDN:
		return sameName([]byte(i.Data), []byte(peer.Data))
	case i.Kind == message.IDFQDN || i.Kind == message.IDEmail:
		if rest, is := strings.CutPrefix(i.Data, "*"); is {
			return len(peer.Data) > len(rest) && strings.EqualFold(peer.Data[len(peer.Data)-len(rest):], rest)
		}
		return strings.EqualFold(i.Data, peer.Data)
	}
	return i.Data == peer.Data
}

// sameName compares names of any string types.
func sameName(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y pkix.RDNSequence
	if rest, err := asn1.Unmarshal(a, &x); err != nil || len(rest) > 0 {
		return false
	}
	if rest, err := asn1.Unmarshal(b, &y); err != nil || len(rest) > 0 || len(x) != len(y) {
		return false
	}
	for i := range x {
		if len(x[i]) != len(y[i]) {
			return false
		}
		for j := range x[i] {
			v, isText := x[i][j].Value.(string)
			w, also := y[i][j].Value.(string)
			if !x[i][j].Type.Equal(y[i][j].Type) || !isText || !also || !strings.EqualFold(v, w) {
				return false
			}
		}
	}
	return true
}

func (i Identity) String() string {
	switch i.Kind {
	case 0:
		return "%any"
	case message.IDIPv4, message.IDIPv6:
		if a, ok := netip.AddrFromSlice([]byte(i.Data)); ok {
			return a.String()
		}
	case message.IDDN:
		var name pkix.RDNSequence
		if rest, err := asn1.Unmarshal([]byte(i.Data), &name); err == nil && len(rest) == 0 {
			var parts []string
			for _, set := range name {
				for _, a := range set {
					word := a.Type.String()
					for w, oid := range attributeTypes {
						if oid.Equal(a.Type) {
							word = w
						}
					}
					parts = append(parts, fmt.Sprintf("%s=%v", word, a.Value))
				}
			}
			return printable(strings.Join(parts, ", "))
		}
	case message.IDFQDN, message.IDEmail:
		return printable(i.Data)
	}
	return "keyid:" + hex.EncodeToString([]byte(i.Data))
}

// printable replaces control characters in text of a peer, for terminals and logs.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return '?'
		}
		return r
	}, text[:min(len(text), 256)])
}
