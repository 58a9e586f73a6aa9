// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	// Addresses and prefixes that one client may hold.
	bindingsOfLease = 32
	// RFC 8415 section 7.7 and RFC 2131 section 3.3: this lifetime has no end.
	infinite = time.Duration(0xffffffff) * time.Second
	// The longest part of a relay's name in the name of a session.
	namePart = 150
)

// circuit is where clients are.
type circuit struct {
	relay, port  string
	outer, inner uint16
}

// clientKey is a client: a MAC on a circuit.
type clientKey struct {
	circuit
	mac MAC
}

// session is the name of the client's session, and the key of its record.
func (k clientKey) session() string {
	relay := k.relay
	if len(relay) > namePart {
		h := fnv.New64a()
		h.Write([]byte(relay))
		relay = relay[:namePart] + "-" + strconv.FormatUint(h.Sum64(), 16)
	}
	return fmt.Sprintf("dhcp-%s-%d.%d-%s", relay, k.outer, k.inner, hex.EncodeToString(k.mac[:]))
}

// binding is an address or prefix that a client holds. The zero time: for ever.
type binding struct {
	prefix  netip.Prefix
	expires time.Time
}

// lease is the addresses and prefixes of a client.
type lease struct {
	client    clientKey
	dataplane string
	bindings  []binding
	// IPv4: the server's address, and its server identifier.
	server, serverID netip.Addr
	// At the Manager of subscribers; nil: the relay has no profile.
	session *session
	// The last packed Session object; "": there is none, or it is put again.
	written string
	// Without a Manager: how often the session was put; and the data plane has had it, maybe in an earlier life.
	puts       uint32
	forwarding bool
	// When its first address ends.
	deadline.Timer
}

// record is a lease in the durable log.
type record struct {
	Relay     string          `json:"relay"`
	Dataplane string          `json:"dataplane"`
	Port      string          `json:"port"`
	Outer     uint16          `json:"outer,omitempty"`
	Inner     uint16          `json:"inner,omitempty"`
	MAC       string          `json:"mac"`
	Session   string          `json:"session,omitempty"` // Acct-Session-Id
	Server    string          `json:"server,omitempty"`
	ServerID  string          `json:"serverId,omitempty"`
	Bindings  []recordBinding `json:"bindings"`
}

type recordBinding struct {
	Prefix string `json:"prefix"`
	// Unix seconds; 0: for ever.
	Expires int64 `json:"expires"`
}

func (l *lease) record() []byte {
	r := record{Relay: l.client.relay, Dataplane: l.dataplane, Port: l.client.port, Outer: l.client.outer, Inner: l.client.inner,
		MAC: hex.EncodeToString(l.client.mac[:])}
	if l.session != nil {
		r.Session = l.session.request.ID
	}
	if l.server.IsValid() {
		r.Server, r.ServerID = l.server.String(), l.serverID.String()
	}
	for _, b := range l.bindings {
		expires := int64(0)
		if !b.expires.IsZero() {
			// No lease ends early: parts of a second count as a whole one.
			expires = b.expires.Add(time.Second - 1).Unix()
		}
		r.Bindings = append(r.Bindings, recordBinding{b.prefix.String(), expires})
	}
	packed, err := json.Marshal(r)
	if err != nil {
		return nil
	}
	return packed
}

// leaseOf reads a record.
func leaseOf(value []byte) (*lease, error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return nil, fmt.Errorf("a record of a lease: %w", err)
	}
	mac, err := hex.DecodeString(r.MAC)
	if err != nil || len(mac) != len(MAC{}) || len(r.Bindings) > bindingsOfLease {
		return nil, fmt.Errorf("a record of a lease is not whole: MAC %q, %d addresses", r.MAC, len(r.Bindings))
	}
	l := &lease{client: clientKey{circuit{r.Relay, r.Port, r.Outer, r.Inner}, MAC(mac)}, dataplane: r.Dataplane}
	if r.Session != "" {
		l.session = &session{request: subscriber.Request{ID: r.Session}}
	}
	for _, b := range r.Bindings {
		prefix, err := netip.ParsePrefix(b.Prefix)
		if err != nil {
			return nil, fmt.Errorf("a record of a lease: %w", err)
		}
		var expires time.Time
		if b.Expires != 0 {
			expires = time.Unix(b.Expires, 0)
		}
		l.bindings = append(l.bindings, binding{prefix, expires})
	}
	if r.Server != "" {
		if l.server, err = netip.ParseAddr(r.Server); err == nil {
			l.serverID, err = netip.ParseAddr(r.ServerID)
		}
		if err != nil {
			return nil, fmt.Errorf("a record of a lease: %w", err)
		}
	}
	return l, nil
}

// address4 is the client's IPv4 address; the zero Addr: it has none.
func (l *lease) address4() netip.Addr {
	for _, b := range l.bindings {
		if b.prefix.Addr().Is4() {
			return b.prefix.Addr()
		}
	}
	return netip.Addr{}
}

// hold adds a prefix or renews it. It returns false if the client holds too many.
func (l *lease) hold(prefix netip.Prefix, lifetime time.Duration, now time.Time) bool {
	var expires time.Time
	if lifetime < infinite {
		expires = now.Add(lifetime)
	}
	for i := range l.bindings {
		if l.bindings[i].prefix == prefix {
			l.bindings[i].expires = expires
			return true
		}
	}
	if len(l.bindings) >= bindingsOfLease {
		return false
	}
	l.bindings = append(l.bindings, binding{prefix, expires})
	return true
}

// drop removes the bindings that match. It returns whether there were any.
func (l *lease) drop(match func(b binding) bool) bool {
	before := len(l.bindings)
	l.bindings = slices.DeleteFunc(l.bindings, match)
	return len(l.bindings) < before
}

// next is when the first binding ends; false: none does.
func (l *lease) next() (at time.Time, ends bool) {
	for _, b := range l.bindings {
		if !b.expires.IsZero() && (!ends || b.expires.Before(at)) {
			at, ends = b.expires, true
		}
	}
	return at, ends
}

// object is the client's session.
func (l *lease) object(spec *api.DhcpRelay) *api.Session {
	s := &api.Session{
		Access: &api.Access{Port: l.client.port, OuterVlan: uint32(l.client.outer), InnerVlan: uint32(l.client.inner), Mac: l.client.mac.String()},
		Vrf:    spec.Vrf, Policy: spec.Policy,
	}
	for _, b := range l.bindings {
		s.Addresses = append(s.Addresses, b.prefix.String())
	}
	slices.Sort(s.Addresses)
	return s
}
