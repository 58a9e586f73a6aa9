// SPDX-License-Identifier: Apache-2.0

// RFC 2131 section 4.3: the server's side of DHCPv4.
package ipoe

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	port4, client4 = 67, 68
	shortest4      = 300 // RFC 1542 section 2.1
	header4        = 236
	longest4       = 1472

	optionMask           = 1
	optionRouter         = 3
	optionDNS            = 6
	optionDomain         = 15
	optionMTU            = 26
	optionLeaseTime      = 51
	optionType           = 53
	optionServerID       = 54
	optionMessage        = 56
	optionT1             = 58
	optionT2             = 59
	optionClientID       = 61
	optionRelay          = 82
	optionRoutes         = 121
	optionEnd            = 255
	infinite             = 0xffffffff
	flagBroadcast   byte = 0x80
	overloadFile    byte = 1
	overloadSname   byte = 2
	// The shortest limit of a message with its IP and UDP headers (RFC 2132 section 9.10), and those headers.
	shortestMost4 = 576
	headers4      = 28
)

var (
	broadcast4   = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	broadcastMAC = dhcp.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	magicCookie  = []byte{99, 130, 83, 99}
)

// message4 is the message of a DHCPv4 client.
type message4 struct {
	kind                        dhcpv4.MessageType
	xid                         [4]byte
	secs                        [2]byte
	broadcast                   bool
	ciaddr, requested, serverID netip.Addr
	// Options that an answer repeats (RFC 6842, RFC 3046 section 2.2), nil without them.
	clientID, relay []byte
	parameters      []byte
	// The longest message that the client takes.
	longest int
}

// takeOverload adds the options in the fields file and sname that option 52 announces (RFC 2131 section 4.1), in this order.
func takeOverload(d *dhcpv4.DHCPv4, b []byte) bool {
	overload := d.Options.Get(dhcpv4.OptionOptionOverload)
	if overload == nil {
		return true
	}
	if len(overload) != 1 || overload[0] == 0 || overload[0] > overloadFile|overloadSname {
		return false
	}
	for _, field := range []struct {
		bit        byte
		begin, end int
	}{{overloadFile, 108, 236}, {overloadSname, 44, 108}} {
		if overload[0]&field.bit != 0 && d.Options.FromBytes(b[field.begin:field.end]) != nil {
			return false
		}
	}
	return true
}

func address4(b []byte) netip.Addr {
	if len(b) != 4 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(b))
}

func (m *Machine) receive4(s *server, key clientKey, in *dhcp.ClientPacket) []Action {
	d, err := dhcpv4.FromBytes(in.Payload)
	b := in.Payload
	switch {
	case !s.four:
		return nil
	case err != nil || len(b) < header4+4 || d.OpCode != dhcpv4.OpcodeBootRequest:
		return m.drop("dhcp4", "", "malformed")
	}
	kind := strings.ToLower(d.MessageType().String())
	switch {
	case b[1] != 1 || b[2] != 6:
		return m.drop("dhcp4", kind, "not-ethernet")
	case dhcp.MAC(b[28:34]) != key.mac:
		return m.drop("dhcp4", kind, "mac-mismatch")
	case !address4(b[24:28]).IsUnspecified():
		return m.drop("dhcp4", kind, "relayed-before")
	}
	if !takeOverload(d, b) {
		return m.drop("dhcp4", kind, "malformed")
	}
	msg := &message{back: in.Back(), service: d.ClassIdentifier()}
	q := &message4{kind: d.MessageType(), xid: [4]byte(b[4:8]), secs: [2]byte(b[8:10]), broadcast: b[10]&flagBroadcast != 0, ciaddr: address4(b[12:16]),
		requested: address4(d.Options.Get(dhcpv4.OptionRequestedIPAddress)), serverID: address4(d.Options.Get(dhcpv4.OptionServerIdentifier)),
		clientID: d.Options.Get(dhcpv4.OptionClientIdentifier), relay: d.Options.Get(dhcpv4.OptionRelayAgentInformation),
		parameters: d.Options.Get(dhcpv4.OptionParameterRequestList), longest: shortestMost4 - headers4}
	if most := d.Options.Get(dhcpv4.OptionMaximumDHCPMessageSize); len(most) == 2 {
		q.longest = min(max(int(binary.BigEndian.Uint16(most)), shortestMost4)-headers4, longest4)
	}
	msg.four = q
	if q.relay != nil {
		switch s.spec.RelayInformation {
		case api.RelayInformation_REFUSE_INFORMATION:
			return m.drop("dhcp4", kind, "relay-information")
		case api.RelayInformation_TRUST_INFORMATION:
			msg.circuitID, msg.remoteID, msg.attributes = dhcp.Information4(q.relay)
		}
	}
	c := m.clients[key]
	elsewhere := c != nil && c.isElsewhere(kind4, msg)
	switch q.kind {
	case dhcpv4.MessageTypeDiscover:
	case dhcpv4.MessageTypeRequest:
		if elsewhere {
			break
		}
		if c == nil && (m.gateways[q.serverID] || q.serverID == s.address && q.serverID.IsValid()) {
			// It takes an offer of ours that is over.
			m.do(Count{"dhcp4", kind, ""})
			m.reply4(s, &client{key: key, lease: subscriber.Lease{Gateway: q.serverID}}, msg, dhcpv4.MessageTypeNak, func(a Action) { m.do(a) })
			return m.done()
		}
		if q.serverID.IsValid() && (c == nil || c.phase == up && q.serverID != m.serverID(s, c)) {
			// The client takes the offer of another server, or one that we do not remember.
			if c != nil && c.has4 && !c.bound4 {
				m.releaseLeases(c, true, subscriber.UserRequest)
			}
			return m.drop("dhcp4", kind, "another-server")
		}
	case dhcpv4.MessageTypeDecline, dhcpv4.MessageTypeRelease:
		if elsewhere {
			return m.drop("dhcp4", kind, "another-line")
		}
		address, cause := q.ciaddr, subscriber.UserRequest
		if q.kind == dhcpv4.MessageTypeDecline {
			address, cause = q.requested, subscriber.UserError
		}
		if c == nil || c.phase != up && c.phase != extending || !c.has4 || c.lease.IPv4 != address {
			return m.drop("dhcp4", kind, "no-lease")
		}
		if c.bound4 && c.clientID != "" && q.clientID != nil && c.clientID != string(q.clientID) {
			// Of another client with the MAC (RFC 2131 section 4.2): a lease is given back by its client alone.
			return m.drop("dhcp4", kind, "another-client")
		}
		m.do(Count{"dhcp4", kind, ""})
		if c.phase == extending {
			c.gaveBack[kind4] = cause
			return m.done()
		}
		m.releaseLeases(c, true, cause)
		return m.done()
	case dhcpv4.MessageTypeInform:
		if c == nil || c.phase != up || !c.has4 || elsewhere {
			return m.drop("dhcp4", kind, "no-lease")
		}
	default:
		return m.drop("dhcp4", kind, "not-of-a-client")
	}
	c, limit := m.client(s, key, kind4, msg)
	if c == nil {
		return m.drop("dhcp4", kind, limit)
	}
	m.do(Count{"dhcp4", kind, ""})
	m.serve(s, c, kind4, msg)
	return m.done()
}

// serverID is the server identifier of our answers.
func (m *Machine) serverID(s *server, c *client) netip.Addr {
	if c.lease.Gateway.Is4() {
		return c.lease.Gateway
	}
	return s.address
}

// answer4 answers a client that has an address.
func (m *Machine) answer4(s *server, c *client, msg *message) {
	q, ours := msg.four, c.lease.IPv4
	if !m.serverID(s, c).Is4() {
		m.do(Count{"dhcp4", "", "no-server-address"})
		return
	}
	switch q.kind {
	case dhcpv4.MessageTypeDiscover:
		if !c.bound4 {
			c.ends4 = m.now.Add(offerTime)
			m.schedule(c)
		}
		m.reply4(s, c, msg, dhcpv4.MessageTypeOffer, func(a Action) { m.do(a) })
	case dhcpv4.MessageTypeInform:
		m.reply4(s, c, msg, dhcpv4.MessageTypeAck, func(a Action) { m.do(a) })
	case dhcpv4.MessageTypeRequest:
		named := q.requested
		if !named.IsValid() {
			named = q.ciaddr
		}
		if q.serverID.IsValid() && q.serverID != m.serverID(s, c) {
			// It takes the offer of another server, and is not disturbed (RFC 2131 section 4.3.2).
			m.do(Count{"dhcp4", "", "another-server"})
			if !c.bound4 {
				m.releaseLeases(c, true, subscriber.UserRequest)
			}
			return
		}
		if named != ours {
			m.reply4(s, c, msg, dhcpv4.MessageTypeNak, func(a Action) { m.do(a) })
			return
		}
		c.bound4, c.clientID = true, string(q.clientID)
		c.ends4 = m.now.Add(m.leaseTime(s, c))
		if c.static4() {
			c.ends4 = time.Time{}
		}
		m.schedule(c)
		m.reply4(s, c, msg, dhcpv4.MessageTypeAck, func(a Action) { m.do(Save{c.id, c.state(), []Action{a}}) })
	}
}

// deny refuses the address that a rejected client asks for, with the reason (RFC 2132 section 9.9). Other messages have no such answer.
func (m *Machine) deny(s *server, c *client, msg *message) {
	if c.denial == "" || msg == nil || msg.four == nil || msg.four.kind != dhcpv4.MessageTypeRequest {
		return
	}
	id := cmp.Or(m.serverID(s, c), s.gateway)
	// Another server's offer is its own affair.
	if asked := msg.four.serverID; id.Is4() && (!asked.IsValid() || asked == id) {
		denied := &client{key: c.key, lease: subscriber.Lease{Gateway: id}, denial: c.denial}
		m.reply4(s, denied, msg, dhcpv4.MessageTypeNak, func(a Action) { m.do(a) })
	}
}

// reply4 builds an answer.
func (m *Machine) reply4(s *server, c *client, msg *message, kind dhcpv4.MessageType, then func(Action)) {
	q, l := msg.four, &c.lease
	id := m.serverID(s, c)
	b := make([]byte, header4, shortest4+128)
	b[0], b[1], b[2] = 2, 1, 6
	copy(b[4:], q.xid[:])
	if q.broadcast {
		b[10] = flagBroadcast
	}
	copy(b[28:], c.key.mac[:])
	inform := q.kind == dhcpv4.MessageTypeInform
	if kind != dhcpv4.MessageTypeNak {
		if q.ciaddr.IsValid() && kind == dhcpv4.MessageTypeAck {
			copy(b[12:], q.ciaddr.AsSlice())
		}
		if !inform {
			copy(b[16:], l.IPv4.AsSlice())
		}
	}
	b = append(b, magicCookie...)
	// Options that the answer repeats always have room.
	var repeated []byte
	leftOut := false
	add := func(code byte, value []byte) {
		length := len(value) + 2*((len(value)+254)/255)
		if len(b)+length+len(repeated)+1 > q.longest {
			leftOut = true
			return
		}
		for part := range slices.Chunk(value, 255) { // RFC 3396
			b = append(append(b, code, byte(len(part))), part...)
		}
	}
	for _, o := range []struct {
		code  byte
		value []byte
	}{{optionClientID, q.clientID}, {optionRelay, q.relay}} {
		for part := range slices.Chunk(o.value, 255) {
			repeated = append(append(repeated, o.code, byte(len(part))), part...)
		}
	}
	seconds := func(d time.Duration) []byte {
		return binary.BigEndian.AppendUint32(nil, uint32(min(d/time.Second, infinite)))
	}
	add(optionType, []byte{byte(kind)})
	add(optionServerID, id.AsSlice())
	if kind == dhcpv4.MessageTypeNak && c.denial != "" {
		add(optionMessage, []byte(c.denial))
	}
	if kind != dhcpv4.MessageTypeNak {
		if !inform {
			lease := m.leaseTime(s, c)
			if c.static4() {
				lease = infinite * time.Second
			}
			add(optionLeaseTime, seconds(lease))
			if !c.static4() && lease >= 2*time.Second {
				add(optionT1, seconds(lease/2))
				add(optionT2, seconds(lease*7/8))
			}
		}
		length := s.maskLength(l)
		add(optionMask, mask(length))
		gateway := l.Gateway
		if !gateway.Is4() {
			gateway = id
		}
		add(optionRouter, gateway.AsSlice())
		var dns []byte
		for _, a := range l.DNS {
			if a.Is4() {
				dns = append(dns, a.AsSlice()...)
			}
		}
		if len(dns) > 0 {
			add(optionDNS, dns)
		}
		if s.spec.Domain != "" {
			add(optionDomain, []byte(s.spec.Domain))
		}
		if l.MTU >= 576 && slices.Contains(q.parameters, optionMTU) {
			add(optionMTU, binary.BigEndian.AppendUint16(nil, uint16(min(l.MTU, 0xffff))))
		}
		if routes := s.classless(gateway, length); len(routes) > 0 && slices.Contains(q.parameters, optionRoutes) {
			add(optionRoutes, routes)
		}
		for _, o := range s.options {
			if o.always || slices.Contains(q.parameters, o.code) {
				add(o.code, o.value)
			}
		}
	}
	b = append(append(b, repeated...), optionEnd)
	if leftOut {
		m.do(Count{"dhcp4", strings.ToLower(kind.String()), "option-left-out"})
	}
	for len(b) < shortest4 {
		b = append(b, 0)
	}
	to, mac := broadcast4, broadcastMAC
	switch {
	case kind == dhcpv4.MessageTypeNak:
	case q.ciaddr.IsGlobalUnicast():
		to, mac = q.ciaddr, c.key.mac
	case !q.broadcast:
		to, mac = l.IPv4, c.key.mac
	}
	packet := dhcp.Datagram(netip.AddrPortFrom(id, port4), netip.AddrPortFrom(to, client4), b)
	if out, ok := m.send(c.key, &msg.back, mac, func(dhcp.MAC) []byte { return packet }); ok {
		then(out)
	}
}

// maskLength is the prefix length of a client's network. The client reaches others in it through us: we answer ARP for them.
func (s *server) maskLength(l *subscriber.Lease) int {
	switch {
	case s.spec.PrefixLength != 0:
		return int(s.spec.PrefixLength)
	case l.Network.IsValid() && l.Network.Contains(l.Gateway):
		return l.Network.Bits()
	}
	return 32
}

func mask(length int) []byte {
	return binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-length))
}

// classless is the value of option 121: a client that takes it does not look at option 3 (RFC 3442).
func (s *server) classless(gateway netip.Addr, length int) (b []byte) {
	if len(s.routes) == 0 && length < 32 {
		return nil
	}
	add := func(p netip.Prefix, by []byte) {
		a := p.Addr().As4()
		b = append(b, byte(p.Bits()))
		b = append(append(b, a[:(p.Bits()+7)/8]...), by...)
	}
	if length == 32 {
		// The gateway is on the link, but outside of the network of the mask.
		add(netip.PrefixFrom(gateway, 32), []byte{0, 0, 0, 0})
	}
	for _, p := range s.routes {
		add(p, gateway.AsSlice())
	}
	add(netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway.AsSlice())
	return b
}
