// SPDX-License-Identifier: Apache-2.0

package dhcp6

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
)

var (
	serverID = []byte{0, 3, 0, 1, 2, 0, 0, 0, 0, 1}
	clientID = []byte{0, 3, 0, 1, 2, 0, 0, 0, 0, 9}
	lease    = Lease{Address: netip.MustParseAddr("2001:db8::7"), Delegated: netip.MustParsePrefix("2001:db8:700::/56"),
		DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")}, Preferred: time.Hour, Valid: 2 * time.Hour}
)

func message(kind uint8, options ...[]byte) []byte {
	return append([]byte{kind, 1, 2, 3}, bytes.Join(options, nil)...)
}

func client() []byte { return optionOf(nil, optionClientID, clientID) }
func server() []byte { return optionOf(nil, optionServerID, serverID) }

func ia(code uint16, id uint32, prefixes ...string) []byte {
	return option(nil, code, func(b []byte) []byte {
		b = append(binary.BigEndian.AppendUint32(b, id), make([]byte, 8)...)
		for _, p := range prefixes {
			b = appendPrefix(b, code == optionIAPD, netip.MustParsePrefix(p), 1, 2)
		}
		return b
	})
}

// answered is the answer as another implementation reads it.
func answered(t *testing.T, b []byte, l Lease) *dhcpv6.Message {
	t.Helper()
	m, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	answer, ignored := Answer(m, serverID, l)
	if ignored != "" {
		t.Fatal(ignored)
	}
	read, err := dhcpv6.MessageFromBytes(answer)
	if err != nil {
		t.Fatal(err)
	}
	if read.TransactionID != [3]byte{1, 2, 3} || !bytes.Equal(read.GetOneOption(dhcpv6.OptionServerID).ToBytes(), serverID) {
		t.Errorf("%v", read)
	}
	return read
}

func TestAClientGetsItsAddressItsPrefixAndDNS(t *testing.T) {
	for _, c := range []struct {
		kind   uint8
		answer dhcpv6.MessageType
		more   []byte
	}{
		{Solicit, dhcpv6.MessageTypeAdvertise, nil},
		{Solicit, dhcpv6.MessageTypeReply, optionOf(nil, optionRapidCommit, nil)},
		{Request, dhcpv6.MessageTypeReply, server()},
		{Renew, dhcpv6.MessageTypeReply, server()},
		{Rebind, dhcpv6.MessageTypeReply, nil},
	} {
		r := answered(t, message(c.kind, client(), c.more, ia(optionIANA, 5), ia(optionIAPD, 6)), lease)
		na, pd := r.Options.OneIANA(), r.Options.OneIAPD()
		if r.MessageType != c.answer || na == nil || pd == nil || na.IaId != [4]byte{0, 0, 0, 5} || pd.IaId != [4]byte{0, 0, 0, 6} {
			t.Fatalf("%v", r)
		}
		if a := na.Options.OneAddress(); a.IPv6Addr.String() != "2001:db8::7" || a.ValidLifetime != 2*time.Hour || na.T1 != 30*time.Minute || na.T2 != 48*time.Minute {
			t.Errorf("%v", na)
		}
		if p := pd.Options.Prefixes(); len(p) != 1 || p[0].Prefix.String() != "2001:db8:700::/56" || p[0].PreferredLifetime != time.Hour {
			t.Errorf("%v", pd)
		}
		if dns := r.Options.DNS(); len(dns) != 1 || dns[0].String() != "2001:db8::53" {
			t.Errorf("%v", dns)
		}
	}
}

func TestAClientGetsAStatusForMissingAddresses(t *testing.T) {
	r := answered(t, message(Solicit, client(), ia(optionIANA, 5), ia(optionIAPD, 6)), Lease{})
	if s := r.Options.OneIANA().Options.Status(); s == nil || s.StatusCode != 2 {
		t.Errorf("%v", r)
	}
	if s := r.Options.OneIAPD().Options.Status(); s == nil || s.StatusCode != 6 {
		t.Errorf("%v", r)
	}
	// The second association of a kind gets nothing, and an address that the client had before ends.
	r = answered(t, message(Renew, client(), server(), ia(optionIANA, 5, "2001:db8::6/128"), ia(optionIANA, 6)), lease)
	if all := r.Options.IANA(); len(all) != 2 || len(all[0].Options.Addresses()) != 2 || all[0].Options.Addresses()[1].ValidLifetime != 0 ||
		all[1].Options.Status().StatusCode != 2 {
		t.Errorf("%v", r)
	}
	for address, code := range map[string]int{"2001:db8::7/128": 0, "2001:db8::8/128": 4} {
		r = answered(t, message(Confirm, client(), ia(optionIANA, 5, address)), lease)
		if s := r.Options.Status(); s == nil || int(s.StatusCode) != code {
			t.Errorf("%s: %v", address, r)
		}
	}
	r = answered(t, message(Release, client(), server(), ia(optionIANA, 5, "2001:db8::7/128")), lease)
	if s := r.Options.Status(); s == nil || s.StatusCode != 0 {
		t.Errorf("%v", r)
	}
	r = answered(t, message(InformationRequest), lease)
	if len(r.Options.DNS()) != 1 || r.Options.ClientID() != nil {
		t.Errorf("%v", r)
	}
}

func TestMessagesThatAServerMustIgnoreAreIgnored(t *testing.T) {
	other := optionOf(nil, optionServerID, clientID)
	for why, b := range map[string][]byte{
		"server-identifier":    message(Solicit, client(), server()),
		"another-server":       message(Request, client(), other),
		"no-client-identifier": message(Solicit),
		"not-of-a-client":      message(Reply, client(), server()),
		"association":          message(InformationRequest, ia(optionIANA, 1)),
		"no-address":           message(Confirm, client(), ia(optionIANA, 1)),
	} {
		m, err := Parse(b)
		if err != nil {
			t.Fatal(why, err)
		}
		if answer, ignored := Answer(m, serverID, lease); answer != nil || ignored != why {
			t.Errorf("%s: %x, %s", why, answer, ignored)
		}
	}
}

func TestNoTruncationOfAMessageIsRead(t *testing.T) {
	whole := message(Request, client(), server(), ia(optionIANA, 5, "2001:db8::7/128"), ia(optionIAPD, 6, "2001:db8:700::/56"))
	ends := map[int]bool{4: true, len(whole): true}
	at := 4
	for at < len(whole) {
		at += 4 + int(binary.BigEndian.Uint16(whole[at+2:]))
		ends[at] = true
	}
	for cut := range len(whole) + 1 {
		if _, err := Parse(whole[:cut]); (err == nil) != ends[cut] {
			t.Errorf("%d bytes of %d: %v", cut, len(whole), err)
		}
	}
	many := message(Solicit, bytes.Repeat(ia(optionIANA, 1), maxAssociations+1))
	if _, err := Parse(many); err == nil {
		t.Error("too many associations are read")
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(message(Solicit, client(), ia(optionIANA, 5), ia(optionIAPD, 6)))
	f.Add(message(Renew, client(), server(), ia(optionIANA, 5, "2001:db8::6/128")))
	f.Add(message(InformationRequest, optionOf(nil, optionRequest, []byte{0, 23})))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		answer, _ := Answer(m, serverID, lease)
		if len(answer) > 8192 {
			t.Fatalf("%d bytes", len(answer))
		}
		if answer != nil {
			if _, err := Parse(answer); err != nil {
				t.Fatal(err)
			}
		}
	})
}
