// SPDX-License-Identifier: Apache-2.0

// RFC 8415 section 18.3: the server's side of DHCPv6, also behind lightweight relay agents (RFC 6221), and router advertisements (RFC 4861).
package ipoe

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/dhcp6"
	"sluice.dev/sluice/agent/discovery"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	port6, client6 = 547, 546
	// Relay messages within one another.
	deepest6       = 8
	typeIPv6       = 0x86dd
	header6        = 40
	protocolICMP6  = 58
	solicitation   = 133
	advertisement  = 134
	routerLifetime = 1800
	// RFC 4861 section 6.2.4: soon after the session has got IPv6, then seldom.
	advertiseSoon = 16 * time.Second
	advertiseTime = 10 * time.Minute
)

var allNodes6 = netip.MustParseAddr("ff02::1")

// message6 is the message of a DHCPv6 client, and the way back to it.
type message6 struct {
	*dhcp6.Message
	source netip.AddrPort
	// Relay messages around it, the outermost first.
	layers []layer
}

// layer is a Relay-forward message (RFC 8415 section 9).
type layer struct {
	hops        byte
	addresses   [32]byte
	interfaceID []byte
	remoteID    []byte
	// Of the line, by their numbers in RFC 4679.
	attributes map[uint8][]byte
}

// unwrap takes the Relay-forward messages off.
func unwrap(b []byte) (layers []layer, inner []byte, ok bool) {
	for len(b) > 0 && b[0] == byte(dhcpv6.MessageTypeRelayForward) {
		if len(layers) == deepest6 || len(b) < 34 {
			return nil, nil, false
		}
		l := layer{hops: b[1], addresses: [32]byte(b[2:34])}
		var message []byte
		for b = b[34:]; len(b) > 0; {
			if len(b) < 4 || len(b) < 4+int(binary.BigEndian.Uint16(b[2:])) {
				return nil, nil, false
			}
			value := b[4 : 4+int(binary.BigEndian.Uint16(b[2:]))]
			switch dhcpv6.OptionCode(binary.BigEndian.Uint16(b)) {
			case dhcpv6.OptionRelayMsg:
				message = value
			case dhcpv6.OptionInterfaceID:
				l.interfaceID = value
			case dhcpv6.OptionRemoteID:
				l.remoteID = value
			case dhcpv6.OptionVendorOpts:
				l.attributes = dhcp.LineAttributes6(value, l.attributes)
			}
			b = b[4+len(value):]
		}
		layers, b = append(layers, l), message
	}
	return layers, b, len(b) > 0
}

// wrap puts Relay-reply messages around an answer.
func wrap(layers []layer, b []byte) []byte {
	for _, l := range slices.Backward(layers) {
		out := append([]byte{byte(dhcpv6.MessageTypeRelayReply), l.hops}, l.addresses[:]...)
		option := func(code dhcpv6.OptionCode, value []byte) {
			out = binary.BigEndian.AppendUint16(out, uint16(code))
			out = append(binary.BigEndian.AppendUint16(out, uint16(len(value))), value...)
		}
		if l.interfaceID != nil {
			option(dhcpv6.OptionInterfaceID, l.interfaceID)
		}
		option(dhcpv6.OptionRelayMsg, b)
		b = out
	}
	return b
}

var types6 = map[uint8]string{dhcp6.Solicit: "solicit", dhcp6.Request: "request", dhcp6.Confirm: "confirm", dhcp6.Renew: "renew", dhcp6.Rebind: "rebind",
	dhcp6.Release: "release", dhcp6.Decline: "decline", dhcp6.InformationRequest: "information-request"}

func (m *Machine) receive6(s *server, key clientKey, in *dhcp.ClientPacket) []Action {
	if !s.six {
		return nil
	}
	layers, inner, ok := unwrap(in.Payload)
	if !ok {
		return m.drop("dhcp6", "", "malformed")
	}
	parsed, err := dhcp6.Parse(inner)
	if err != nil {
		return m.drop("dhcp6", "", "malformed")
	}
	kind := types6[parsed.Type]
	msg := &message{back: in.Back(), six: &message6{parsed, in.Source, layers}}
	switch {
	case kind == "":
		return m.drop("dhcp6", strconv.Itoa(int(parsed.Type)), "not-of-a-client")
	case !in.Source.Addr().IsLinkLocalUnicast() && !(len(layers) > 0 && in.Source.Addr().IsUnspecified()):
		return m.drop("dhcp6", kind, "source-not-link-local")
	case len(layers) > 0 && s.spec.RelayInformation != api.RelayInformation_TRUST_INFORMATION:
		return m.drop("dhcp6", kind, "relay-information")
	case len(layers) > 0:
		// Of the lightweight relay agent next to the client.
		last := &layers[len(layers)-1]
		msg.circuitID, msg.remoteID, msg.attributes = last.interfaceID, last.remoteID, last.attributes
		if len(msg.remoteID) > 4 {
			msg.remoteID = msg.remoteID[4:] // behind the enterprise number, RFC 4649
		}
	}
	c := m.clients[key]
	elsewhere := c != nil && c.isElsewhere(kind6, msg)
	switch parsed.Type {
	case dhcp6.Release, dhcp6.Decline:
		if elsewhere {
			return m.drop("dhcp6", kind, "another-line")
		}
		m.do(Count{"dhcp6", kind, ""})
		if !m.reply6(s, key, msg, subscriber.Lease{}) {
			return m.done()
		}
		if c == nil || c.phase != up && c.phase != extending || !c.has6 {
			return m.done()
		}
		before, cause := c.uses, subscriber.UserRequest
		if parsed.Type == dhcp6.Decline {
			cause = subscriber.UserError
		}
		switch gone := c.gives(parsed); {
		case gone && c.phase == extending:
			c.gaveBack[kind6] = cause
		case gone:
			m.releaseLeases(c, false, cause)
		case c.phase == extending:
		case parsed.Type == dhcp6.Decline && before[0] && !c.uses[0]:
			// The client uses its prefix on. It gets another address.
			m.extendWithout(c, c.has4, true, subscriber.Declined{IPv6: true})
		case c.uses != before:
			m.do(Save{ID: c.id, State: c.state()})
		}
		return m.done()
	case dhcp6.InformationRequest, dhcp6.Confirm:
		m.do(Count{"dhcp6", kind, ""})
		var l subscriber.Lease
		// Addresses of a Confirm that we did not give are not on the link.
		if c != nil && c.has6 && !elsewhere {
			l = c.lease
		}
		m.reply6(s, key, msg, l)
		return m.done()
	}
	if port, known := m.macs[portKey{key.dataplane, key.port}]; known {
		if ignored := dhcp6.Ignored(parsed, serverID6(port)); ignored != "" {
			if ignored == "another-server" && c != nil && c.phase == up && c.has6 && !c.bound6 && !c.slaac && !c.static6() && !elsewhere {
				// It takes the offer of another server.
				m.releaseLeases(c, false, subscriber.UserRequest)
			}
			return m.drop("dhcp6", kind, ignored)
		}
	}
	c, limit := m.client(s, key, kind6, msg)
	if c == nil {
		return m.drop("dhcp6", kind, limit)
	}
	m.do(Count{"dhcp6", kind, ""})
	m.serve(s, c, kind6, msg)
	return m.done()
}

// gives notes the addresses and prefixes that a client releases, and reports whether the session has none left that it uses.
func (c *client) gives(q *dhcp6.Message) bool {
	any := false
	for _, a := range q.Associations {
		for _, p := range a.Prefixes {
			if own := c.lease.Delegated; p.IsValid() && (a.Delegated && p == own || !a.Delegated && p.Addr() == c.lease.IPv6) {
				any = true
				c.uses[kindOfAssociation(a)] = false
			}
		}
	}
	return any && !c.uses[0] && !c.uses[1]
}

func kindOfAssociation(a dhcp6.Association) int {
	if a.Delegated {
		return 1
	}
	return 0
}

// answer6 answers a client that has IPv6.
func (m *Machine) answer6(s *server, c *client, msg *message) {
	q := msg.six
	lasting := false
	switch q.Type {
	case dhcp6.Request, dhcp6.Renew, dhcp6.Rebind:
		lasting = true
	case dhcp6.Solicit:
		lasting = q.RapidCommit
	}
	if lasting {
		c.bound6, c.slaac = true, false
		for _, a := range q.Associations {
			c.uses[kindOfAssociation(a)] = true
		}
		c.ends6 = m.now.Add(m.leaseTime(s, c))
	} else if !c.bound6 {
		c.ends6 = m.now.Add(offerTime)
	}
	if c.static6() {
		c.ends6 = time.Time{}
	}
	m.schedule(c)
	out, ok := m.build6(s, c.key, msg, c.lease)
	switch {
	case !ok:
	case lasting:
		m.do(Save{c.id, c.state(), []Action{out}})
	default:
		m.do(out)
	}
}

// without6 answers a client for which there is no address.
func (m *Machine) without6(c *client, msg *message) {
	if s := m.serverOf(c.key.circuit); s != nil {
		m.reply6(s, c.key, msg, subscriber.Lease{})
	}
}

func (m *Machine) reply6(s *server, key clientKey, msg *message, l subscriber.Lease) bool {
	out, ok := m.build6(s, key, msg, l)
	if ok {
		m.do(out)
	}
	return ok
}

// serverID6 is a DUID-LL (RFC 8415 section 11.4).
func serverID6(port dhcp.MAC) []byte { return append([]byte{0, 3, 0, 1}, port[:]...) }

// build6 is the answer's frame.
func (m *Machine) build6(s *server, key clientKey, msg *message, l subscriber.Lease) (Action, bool) {
	q := msg.six
	port, known := m.macs[portKey{key.dataplane, key.port}]
	if !known {
		m.do(Count{"dhcp6", "", "port-without-mac"})
		return nil, false
	}
	valid := s.lease
	if c := m.clients[key]; c != nil {
		valid = m.leaseTime(s, c)
	}
	answer, ignored := dhcp6.Answer(q.Message, serverID6(port), dhcp6.Lease{Address: l.IPv6, Delegated: l.Delegated, DNS: l.DNS, Preferred: valid / 10 * 8, Valid: valid})
	if ignored != "" {
		m.do(Count{"dhcp6", types6[q.Type], ignored})
		return nil, false
	}
	to := uint16(client6)
	if len(q.layers) > 0 {
		to = port6
	}
	destination := q.source.Addr()
	if destination.IsUnspecified() {
		destination = netip.AddrFrom16([16]byte(q.layers[0].addresses[16:]))
	}
	packet := dhcp.Datagram(netip.AddrPortFrom(dhcp.LinkLocal(port), port6), netip.AddrPortFrom(destination, to), wrap(q.layers, answer))
	return m.send(key, &msg.back, key.mac, func(dhcp.MAC) []byte { return packet })
}

// receiveSolicitation answers a router solicitation (RFC 4861 section 6.2.6): addresses come by DHCPv6.
func (m *Machine) receiveSolicitation(p Packet) []Action {
	back, mac, outer, inner, etherType, ip, ok := dhcp.ParseEthernet(p.Frame)
	key := clientKey{circuit{p.Dataplane, p.Port, outer, inner}, mac}
	s := m.serverOf(key.circuit)
	if !ok || s == nil || !s.six && !s.slaac || etherType != typeIPv6 || len(ip) < header6+8 || ip[6] != protocolICMP6 || ip[7] != 255 || ip[header6] != solicitation {
		return nil
	}
	source := netip.AddrFrom16([16]byte(ip[8:24]))
	to := source
	if source.IsUnspecified() {
		// The frame is for the client alone, as in advertise.
		to = allNodes6
	} else if !source.IsLinkLocalUnicast() {
		return nil
	}
	var l subscriber.Lease
	c := m.clients[key]
	if s.slaac && (c == nil || !c.has6) {
		return m.beginSLAAC(s, key, back)
	}
	if c != nil && c.has6 {
		l = c.lease
		c.tags = back.Tags()
	}
	out, ok := m.send(key, &back, mac, func(port dhcp.MAC) []byte { return s.advertisement(port, to, &l) })
	if ok {
		m.do(Count{"nd", "router-solicitation", ""}, out)
	}
	return m.done()
}

// advertise sends an unsolicited router advertisement. The frame is for the client alone (RFC 6085): other clients of the VLAN have other prefixes.
func (m *Machine) advertise(c *client) {
	c.advertise = m.now.Add(advertiseTime - time.Duration(m.random()%uint64(advertiseTime/4)))
	s := m.serverOf(c.key.circuit)
	if s == nil || !s.six && !s.slaac {
		return
	}
	back := dhcp.CircuitWithTags(c.tags)
	if out, ok := m.send(c.key, &back, c.key.mac, func(port dhcp.MAC) []byte { return s.advertisement(port, allNodes6, &c.lease) }); ok {
		m.do(out)
	} else {
		c.advertise = m.now.Add(advertiseSoon)
	}
}

// advertisement is a router advertisement, with the M and O flags if the server has DHCPv6. Hosts without DHCPv6 get the name servers in it (RFC 8106).
func (s *server) advertisement(port dhcp.MAC, to netip.Addr, l *subscriber.Lease) []byte {
	b := []byte{advertisement, 0, 0, 0, 64, 0}
	if s.six {
		b[5] = 0xc0
	}
	b = binary.BigEndian.AppendUint16(b, routerLifetime)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0)
	b = append(append(b, 1, 1), port[:]...)
	if l.MTU >= 1280 {
		b = binary.BigEndian.AppendUint32(append(b, 5, 1, 0, 0), l.MTU)
	}
	if p := l.IPv6Prefix; p.IsValid() && p.Bits() == 64 {
		// The prefix is not shared with other hosts of the link: flag A without flag L.
		a := p.Addr().As16()
		b = append(b, 3, 4, 64, 0x40)
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 2*routerLifetime), routerLifetime)
		b = append(append(b, 0, 0, 0, 0), a[:]...)
	}
	if s.slaac {
		b = appendNameServers(b, l.DNS)
	}
	b = discovery.AppendRoutes(b, l.Announced, routerLifetime)
	source := dhcp.LinkLocal(port)
	binary.BigEndian.PutUint16(b[2:], dhcp.Checksum6(source, to, b))
	from, dst := source.As16(), to.As16()
	packet := make([]byte, header6, header6+len(b))
	packet[0] = 0x60
	binary.BigEndian.PutUint16(packet[4:], uint16(len(b)))
	packet[6], packet[7] = protocolICMP6, 255
	copy(packet[8:], from[:])
	copy(packet[24:], dst[:])
	return append(packet, b...)
}
