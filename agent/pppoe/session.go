// SPDX-License-Identifier: Apache-2.0

package pppoe

import (
	"container/list"
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/ppp"
	"sluice.dev/sluice/agent/subscriber"
)

// place is a port of a data plane.
type place struct{ dataplane, port string }

// circuitKey is a circuit: the number of a place, and VLANs.
type circuitKey struct {
	place        uint32
	outer, inner uint16
}

type sessionKey struct {
	circuitKey
	id uint16
}

type hostKey struct {
	circuitKey
	mac subscriber.MAC
}

// circuit is there while it has sessions.
type circuit struct {
	sessions int
	// The identifier that was assigned last. The next one differs, so that late packets of a session do not reach the next session.
	last uint16
}

type progress uint8

const (
	negotiating progress = iota // LCP, and the peer's credentials
	asking                      // Manager.Authenticate
	connecting                  // Manager.Connect
	up
)

// session is a PPPoE session.
type session struct {
	key   sessionKey
	mac   subscriber.MAC
	tags  vlanTags
	state progress
	// The Manager has ended it.
	disconnected bool
	// It is of a 5G residential gateway: the wcp.Server has it, and the Manager does not know it.
	delegated bool
	server    *server
	link      *ppp.Link
	// The same in all accounting records.
	id string
	// Name under which the subscriber is connected.
	username string
	// Of the PADR that made it: one that comes again gets the same answer.
	padr uint64
	pads []byte
	// Of its PADR; once it is connected, only if requestOf cannot make it.
	request *subscriber.Request
	// Number of the last Authenticate: answers to earlier ones do not count.
	attempt uint8
	// Credentials of a host that negotiated LCP again while the Manager connects it.
	pending *subscriber.Credentials
	// Its place among those that are half open.
	half *list.Element
	// Other sessions of the host, and when the link is looked at next.
	older *session
	deadline.Timer
}

const sessionStateVersion = 1

// stateOf is the state in the Manager's record: the frame's tags, the MAC of our port, and the link.
func (m *Machine) stateOf(s *session) []byte {
	mac := m.macs[s.key.place]
	b := append(make([]byte, 0, 64), sessionStateVersion, s.tags.length)
	b = append(append(b, s.tags.slice()...), mac[:]...)
	return append(b, s.link.State()...)
}

// restoreState reads it.
func restoreState(b []byte) (tags vlanTags, mac subscriber.MAC, link []byte, ok bool) {
	if len(b) < 2 || b[0] != sessionStateVersion || b[1] > 8 || b[1]%4 != 0 || len(b) < 2+int(b[1])+len(mac) {
		return tags, mac, nil, false
	}
	tags.length = b[1]
	copy(tags.bytes[:], b[2:2+int(b[1])])
	b = b[2+int(b[1]):]
	return tags, subscriber.MAC(b[:len(mac)]), b[len(mac):], true
}

// access is how the data plane recognises the session.
func (m *Machine) access(s *session) *api.Access {
	a := &api.Access{Port: m.places[s.key.place].port, OuterVlan: uint32(s.key.outer), InnerVlan: uint32(s.key.inner), Mac: macText(s.mac),
		PppoeSessionId: uint32(s.key.id), LcpMagic: s.link.Magic()}
	if a.LcpMagic != 0 {
		a.LcpEchoInterval, a.LcpEchoFailures = uint64(s.server.echoInterval()), uint32(s.server.echoFailures())
	}
	return a
}

func macText(m subscriber.MAC) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 17)
	for i, x := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, digits[x>>4], digits[x&15])
	}
	return string(b)
}

func networkOf(l subscriber.Lease, id [8]byte) ppp.Network {
	n := ppp.Network{Address: l.IPv4, Gateway: l.Gateway, DNS: l.DNS, Delegated: l.Delegated, Address6: l.IPv6, InterfaceID: id, Announced: l.Announced}
	if l.IPv6Prefix.IsValid() {
		n.Prefix = netip.PrefixFrom(l.IPv6Prefix.Addr(), l.IPv6Prefix.Bits())
	}
	return n
}

// eui64 is the interface identifier of a MAC (RFC 4291 appendix A): the data plane answers for the link-local address with it.
func eui64(m subscriber.MAC) [8]byte {
	return [8]byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
}

// duid of a MAC (RFC 8415 section 11.4).
func duid(m subscriber.MAC) []byte { return append([]byte{0, 3, 0, 1}, m[:]...) }

// offer is a PADO that waits.
type offer struct {
	deadline.Timer
	place place
	frame []byte
}

// hashOf distinguishes PADRs of a host: a host that was started anew has another Host-Uniq.
func (d *discovery) hash() uint64 {
	h := fnv.New64a()
	h.Write(d.cookie)
	h.Write(d.hostUniq)
	h.Write(d.relay)
	return h.Sum64()
}

func protocolOf(b []byte) (ppp.Protocol, []byte, bool) {
	if len(b) < 2 {
		return 0, nil, false
	}
	return ppp.Protocol(binary.BigEndian.Uint16(b)), b[2:], true
}
