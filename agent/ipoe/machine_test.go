// SPDX-License-Identifier: Apache-2.0

package ipoe

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

var (
	cpe     = dhcp.MAC{2, 0, 0, 0, 0, 9}
	port    = dhcp.MAC{2, 0, 0, 0, 0, 1}
	began   = time.Unix(1_800_000_000, 0)
	gateway = netip.MustParseAddr("100.64.0.1")
	offered = netip.MustParseAddr("100.64.0.2")
	host    = netip.MustParseAddr("2001:db8::7")
	home    = netip.MustParsePrefix("2001:db8:700::/56")
)

// line is a machine with one client, and a Manager that grants its fields.
type line struct {
	*Machine
	t   *testing.T
	now time.Time
	// Errors that the Manager returns.
	reject, refuse error
	// For the client.
	message string
	grant   subscriber.Grant
	lease   subscriber.Lease
	// Recorded actions.
	sent     [][]byte
	actions  []Action
	sessions map[string]bool
	// The Manager does not answer.
	silent bool
	// Packets that Sessions have carried, as the data plane counts them.
	packets map[string]uint64
	// The Manager's answer to Extend; nil: it grants the request.
	away func(Extend) (subscriber.Lease, error)
}

func server4() *api.IpoeServer {
	return &api.IpoeServer{Port: "access", OuterVlans: []string{"100-199"}, InnerVlans: []string{"1-4094"}, Profile: "home", LeaseTime: 600e9,
		RelayInformation: api.RelayInformation_TRUST_INFORMATION, ClientsPerCircuit: 2}
}

func newLine(t *testing.T, spec *api.IpoeServer) *line {
	n := 0
	l := &line{Machine: New(func() string { n++; return strconv.Itoa(n) }, func() uint64 { return 1 << 40 }), t: t, now: began, sessions: map[string]bool{},
		lease: subscriber.Lease{IPv4: offered, Gateway: gateway, Network: netip.MustParsePrefix("100.64.0.0/22"), IPv6: host, Delegated: home,
			DNS:       []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")},
			Announced: []netip.Prefix{netip.MustParsePrefix("2001:db8:5::/48")}}}
	l.SetPort("default", "access", port)
	l.SetServer("homes", spec, began)
	return l
}

func (l *line) given(four, six bool) subscriber.Lease {
	lease := l.lease
	if !four {
		lease.IPv4, lease.Gateway = netip.Addr{}, netip.Addr{}
	}
	if !six {
		lease.IPv6, lease.IPv6Prefix, lease.Delegated = netip.Addr{}, netip.Prefix{}, netip.Prefix{}
	}
	return lease
}

// carryOut stands in for the service and the Manager.
func (l *line) carryOut(actions []Action) {
	l.actions = append(l.actions, actions...)
	for _, a := range actions {
		switch a := a.(type) {
		case Send:
			l.sent = append(l.sent, a.Frame)
		case Save:
			l.carryOut(a.Then)
		case Authenticate:
			if !l.silent {
				l.carryOut(l.Authenticated(a.Request.ID, subscriber.Answer{Reject: l.reject, Message: l.message, Grant: l.grant}, l.now))
			}
		case Connect:
			if l.refuse == nil {
				l.sessions[a.Connection.ID] = true
			}
			lease := l.given(a.Connection.IPv4, a.Connection.IPv6)
			lease.Session = "session-" + a.Connection.ID
			l.carryOut(l.Connected(a.Connection.ID, lease, l.refuse, l.now))
		case Extend:
			lease, err := l.given(a.IPv4, a.IPv6), l.refuse
			if err == nil {
				lease.Session = "session-" + a.ID
			}
			if l.away != nil {
				lease, err = l.away(a)
			}
			l.carryOut(l.Extended(a.ID, lease, err, l.now))
		case Disconnect:
			delete(l.sessions, a.ID)
		case Listen:
			l.carryOut(l.Listened(a, maps.Clone(l.packets), l.now))
		}
	}
}

func (l *line) drops() (why []string) {
	for _, a := range l.actions {
		if c, is := a.(Count); is && c.Drop != "" {
			why = append(why, c.Drop)
		}
	}
	return why
}

func frame(mac dhcp.MAC, outer, inner uint16, packet []byte) []byte {
	b := append(append([]byte{}, port[:]...), mac[:]...)
	b = append(b, 0x88, 0xa8, byte(outer>>8), byte(outer), 0x81, 0, byte(inner>>8), byte(inner))
	kind := uint16(typeIPv4)
	if packet[0]>>4 == 6 {
		kind = typeIPv6
	}
	return append(binary.BigEndian.AppendUint16(b, kind), packet...)
}

func (l *line) receive(reason string, b []byte) {
	l.sent, l.actions = nil, nil
	l.carryOut(l.Receive(Packet{"default", "access", reason, b}, l.now))
}

func discover4(kind dhcpv4.MessageType, change ...dhcpv4.Modifier) []byte {
	change = append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(net.HardwareAddr(cpe[:])), dhcpv4.WithTransactionID(dhcpv4.TransactionID{1, 2, 3, 4}), dhcpv4.WithMessageType(kind)}, change...)
	d, err := dhcpv4.New(change...)
	if err != nil {
		panic(err)
	}
	return d.ToBytes()
}

// ask4 is a message of the client, and the answer to it; nil: there is none.
func (l *line) ask4(kind dhcpv4.MessageType, change ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	l.t.Helper()
	l.receive("dhcp4", frame(cpe, 100, 7, dhcp.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), discover4(kind, change...))))
	if len(l.sent) == 0 {
		return nil
	}
	if len(l.sent) > 1 {
		l.t.Fatalf("%d answers", len(l.sent))
	}
	p, ok := dhcp.ParseClientPacket(l.sent[0])
	if !ok || p.OuterVLAN != 100 || p.InnerVLAN != 7 || p.MAC != port || p.Source != netip.AddrPortFrom(gateway, port4) {
		l.t.Fatalf("%x", l.sent[0])
	}
	d, err := dhcpv4.FromBytes(p.Payload)
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

func requested(a netip.Addr) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(a.AsSlice()))
}

func serverID(a netip.Addr) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(a.AsSlice()))
}

func TestAClientGetsTheAddressesOfItsSession(t *testing.T) {
	spec := server4()
	spec.Routes, spec.Domain = []string{"192.0.2.0/24"}, "example.net"
	l := newLine(t, spec)
	information := dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, []byte{1, 3, 'e', 't', 'h', 2, 2, 'h', 'i',
		// Of another vendor, and of the Broadband Forum: 20,000 kbit/s, and a length behind the end.
		9, 20, 0, 0, 0, 9, 1, 7, 0, 0, 0x0d, 0xe9, 9, 0x81, 4, 0, 0, 0x4e, 0x20, 0x82, 4, 0}))
	id := dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte{1, 2, 3}))
	class := dhcpv4.WithOption(dhcpv4.OptClassIdentifier("router"))
	options := dhcpv4.WithRequestedOptions(dhcpv4.OptionClasslessStaticRoute)
	offer := l.ask4(dhcpv4.MessageTypeDiscover, information, id, class, options)
	if offer == nil || offer.MessageType() != dhcpv4.MessageTypeOffer || !offer.YourIPAddr.Equal(offered.AsSlice()) || len(l.sessions) != 1 {
		t.Fatalf("%v; %v", offer, l.actions)
	}
	request := l.actions[1].(Authenticate).Request
	if string(request.Line.CircuitID) != "eth" || string(request.Line.RemoteID) != "hi" || request.Service != "router" || request.Protocol != "dhcp4" ||
		len(request.Line.Attributes) != 1 || string(request.Line.Attributes[0x81]) != "\x00\x00\x4e\x20" || request.Line.OuterVLAN != 100 || request.Line.MAC != subscriber.MAC(cpe) || request.Profile != "home" {
		t.Errorf("%+v", request)
	}
	ack := l.ask4(dhcpv4.MessageTypeRequest, information, id, options, requested(offered), serverID(gateway))
	if ack == nil || ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.Equal(offered.AsSlice()) || ack.IPAddressLeaseTime(0) != 600*time.Second ||
		ack.IPAddressRenewalTime(0) != 300*time.Second || ack.IPAddressRebindingTime(0) != 525*time.Second || ack.SubnetMask().String() != "fffffc00" ||
		!ack.Router()[0].Equal(gateway.AsSlice()) || !ack.DNS()[0].Equal(net.IP{192, 0, 2, 53}) || len(ack.DNS()) != 1 || ack.DomainName() != "example.net" ||
		!bytes.Equal(ack.GetOneOption(dhcpv4.OptionClientIdentifier), []byte{1, 2, 3}) || len(ack.GetOneOption(dhcpv4.OptionRelayAgentInformation)) != 31 {
		t.Errorf("%v", ack.Summary())
	}
	if routes := ack.ClasslessStaticRoute(); len(routes) != 2 || routes[0].Dest.String() != "192.0.2.0/24" || routes[1].Dest.String() != "0.0.0.0/0" {
		t.Errorf("%v", routes)
	}
	// Renewed: by unicast, with the address in the header.
	l.now = l.now.Add(300 * time.Second)
	if ack := l.ask4(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(offered.AsSlice())); ack == nil || ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("%v", ack)
	}
	l.now = l.now.Add(599 * time.Second)
	l.carryOut(l.Tick(l.now))
	if len(l.sessions) != 1 {
		t.Error("the session ended with a lease that was renewed")
	}
	// It loses power: it is back at once, with the same session and address.
	if offer := l.ask4(dhcpv4.MessageTypeDiscover); offer == nil || !offer.YourIPAddr.Equal(offered.AsSlice()) || !l.sessions["1"] {
		t.Errorf("%v", offer)
	}
	l.now = l.now.Add(time.Second)
	l.carryOut(l.Tick(l.now))
	if len(l.sessions)+len(l.clients)+len(l.byID)+len(l.ofLine)+l.timers.Len() != 0 {
		t.Error("a lease that is not renewed goes on")
	}
}

func TestOptionsOfTheServerReachClientsThatAskForThem(t *testing.T) {
	spec := server4()
	spec.Options = []*api.IpoeOption{{Code: 43, Hex: "0104C0000235"}, {Code: 66, Hex: "61", Always: true}}
	l := newLine(t, spec)
	offer := l.ask4(dhcpv4.MessageTypeDiscover, dhcpv4.WithRequestedOptions(dhcpv4.OptionVendorSpecificInformation))
	ack := l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
	nak := l.ask4(dhcpv4.MessageTypeRequest, requested(gateway))
	asked, always := dhcpv4.GenericOptionCode(43), dhcpv4.GenericOptionCode(66)
	if got := offer.GetOneOption(asked); !bytes.Equal(got, []byte{1, 4, 192, 0, 2, 53}) || string(offer.GetOneOption(always)) != "a" {
		t.Errorf("%v", offer.Summary())
	}
	if ack.GetOneOption(asked) != nil || string(ack.GetOneOption(always)) != "a" {
		t.Errorf("%v", ack.Summary())
	}
	if nak.MessageType() != dhcpv4.MessageTypeNak || nak.GetOneOption(always) != nil {
		t.Errorf("%v", nak.Summary())
	}
}

func TestAnswersFitIntoWhatTheClientTakes(t *testing.T) {
	spec := server4()
	for code := range 4 {
		spec.Options = append(spec.Options, &api.IpoeOption{Code: uint32(200 + code), Hex: strings.Repeat("ab", 120), Always: true})
	}
	l := newLine(t, spec)
	id := dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte{1, 2, 3}))
	for most, options := range map[uint16]int{0: 1, 100: 1, 576: 1, 1000: 4} {
		change := []dhcpv4.Modifier{id, dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, bytes.Repeat([]byte{1}, 40)))}
		if most != 0 {
			change = append(change, dhcpv4.WithOption(dhcpv4.OptMaxMessageSize(most)))
		}
		offer := l.ask4(dhcpv4.MessageTypeDiscover, change...)
		got := 0
		for code := range 4 {
			if offer.GetOneOption(dhcpv4.GenericOptionCode(200+code)) != nil {
				got++
			}
		}
		if size := len(l.sent[0]) - 22; got != options || size > int(max(most, 576)) || len(offer.GetOneOption(dhcpv4.OptionRelayAgentInformation)) != 40 ||
			offer.GetOneOption(dhcpv4.OptionClientIdentifier) == nil || offer.SubnetMask() == nil {
			t.Errorf("at most %d: %d options in %d bytes", most, got, size)
		}
		if left := slices.Contains(l.drops(), "option-left-out"); left != (options < 4) {
			t.Errorf("at most %d: %v", most, l.drops())
		}
	}
}

func TestOptionsInTheFieldsFileAndSnameCount(t *testing.T) {
	other := netip.MustParseAddr("100.64.0.99")
	for _, c := range []struct {
		sentence    string
		overload    []byte
		file, sname []byte
		answer      dhcpv4.MessageType // 0: none
	}{
		{"in file", []byte{1}, append([]byte{50, 4}, offered.AsSlice()...), append([]byte{50, 4}, other.AsSlice()...), dhcpv4.MessageTypeAck},
		{"in sname", []byte{2}, append([]byte{50, 4}, other.AsSlice()...), append([]byte{50, 4}, offered.AsSlice()...), dhcpv4.MessageTypeAck},
		{"split over both (RFC 3396)", []byte{3}, []byte{50, 2, 100, 64, 255}, append([]byte{50, 2}, offered.AsSlice()[2:]...), dhcpv4.MessageTypeAck},
		{"another address", []byte{1}, append([]byte{50, 4}, other.AsSlice()...), nil, dhcpv4.MessageTypeNak},
		{"no such value", []byte{4}, nil, nil, 0},
		{"two values", []byte{1, 1}, nil, nil, 0},
		{"an option that ends behind the field", []byte{1}, bytes.Repeat([]byte{99, 100}, 64), nil, 0},
	} {
		l := newLine(t, server4())
		b := discover4(dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionOptionOverload, c.overload)))
		copy(b[108:236], append(c.file, 255))
		copy(b[44:108], append(c.sname, 255))
		l.receive("dhcp4", frame(cpe, 100, 7, dhcp.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), b)))
		if c.answer == 0 {
			if len(l.sent) != 0 || !slices.Equal(l.drops(), []string{"malformed"}) {
				t.Errorf("%s: %v", c.sentence, l.actions)
			}
			continue
		}
		if len(l.sent) != 1 {
			t.Errorf("%s: %v", c.sentence, l.actions)
			continue
		}
		p, _ := dhcp.ParseClientPacket(l.sent[0])
		if d, err := dhcpv4.FromBytes(p.Payload); err != nil || d.MessageType() != c.answer {
			t.Errorf("%s: %v", c.sentence, d)
		}
	}
	// Information of an access node is none of an untrusted line, wherever it is.
	spec := server4()
	spec.RelayInformation = api.RelayInformation_REFUSE_INFORMATION
	l := newLine(t, spec)
	b := discover4(dhcpv4.MessageTypeDiscover, dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionOptionOverload, []byte{2})))
	copy(b[44:108], []byte{82, 3, 1, 1, 'x', 255})
	l.receive("dhcp4", frame(cpe, 100, 7, dhcp.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), b)))
	if !slices.Equal(l.drops(), []string{"relay-information"}) {
		t.Error(l.drops())
	}
}

func TestAnOfferOfOursThatIsOverIsRefused(t *testing.T) {
	spec := server4()
	spec.ServerAddress = "100.64.0.254"
	l := newLine(t, spec)
	elsewhere := netip.MustParseAddr("203.0.113.1")
	if l.binds(1); l.asks(2, dhcpv4.MessageTypeRequest, requested(offered), serverID(elsewhere)) != 0 || !slices.Equal(l.drops(), []string{"another-server"}) {
		t.Error(l.drops())
	}
	for _, ours := range []netip.Addr{gateway, netip.MustParseAddr("100.64.0.254")} {
		l.asks(2, dhcpv4.MessageTypeRequest, requested(offered), serverID(ours))
		if len(l.sent) != 1 {
			t.Fatalf("%s: %v", ours, l.actions)
		}
		p, _ := dhcp.ParseClientPacket(l.sent[0])
		if d, err := dhcpv4.FromBytes(p.Payload); err != nil || d.MessageType() != dhcpv4.MessageTypeNak || p.Source.Addr() != ours || len(l.clients) != 1 {
			t.Errorf("%s: %v", ours, d)
		}
	}
}

func TestAnswersSayWhatPoolsAndProfilesSayNow(t *testing.T) {
	l := newLine(t, server4())
	l.ask4(dhcpv4.MessageTypeDiscover)
	l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
	now := l.given(true, true)
	now.DNS, now.SessionTimeout = []netip.Addr{netip.MustParseAddr("192.0.2.99")}, 2*time.Minute
	l.present = func(string) (subscriber.Lease, bool) { return now, true }
	ack := l.ask4(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(offered.AsSlice()))
	if !ack.DNS()[0].Equal(net.IP{192, 0, 2, 99}) || ack.IPAddressLeaseTime(0) != 2*time.Minute || l.clients[clientKey{circuit{"default", "access", 100, 7}, cpe}].ends4 != l.now.Add(2*time.Minute) {
		t.Errorf("%v", ack.Summary())
	}
	// A prefix that the session got meanwhile.
	reply, _ := l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toUs), client6).(*dhcpv6.Message)
	if reply == nil || reply.Options.OneIAPD().Options.Prefixes()[0].Prefix.String() != home.String() {
		t.Errorf("%v", l.actions)
	}
}

func TestALineThatMovesToAnotherServiceDialsInAnewWhenItsClientRenewsTheLease(t *testing.T) {
	other := netip.MustParseAddr("100.64.9.9")
	for _, c := range []struct {
		sentence string
		gets     netip.Addr
		answer   dhcpv4.MessageType
	}{
		{"with another address, the client asks again", other, dhcpv4.MessageTypeNak},
		{"with the same address, it goes on", offered, dhcpv4.MessageTypeAck},
	} {
		l := newLine(t, server4())
		l.ask4(dhcpv4.MessageTypeDiscover)
		l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
		var before string
		for id := range l.sessions {
			before = id
		}
		l.moves = func(id, profile string) bool { return id == before && profile == "home" }
		l.lease.IPv4 = c.gets
		// It asks for no lease.
		if l.ask4(dhcpv4.MessageTypeInform, dhcpv4.WithClientIP(offered.AsSlice())); !l.sessions[before] {
			t.Errorf("%s: the session is gone", c.sentence)
		}
		answer := l.ask4(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(offered.AsSlice()))
		if answer == nil || answer.MessageType() != c.answer || l.sessions[before] || len(l.sessions) != 1 || !slices.Contains(l.actions, Action(Disconnect{before, subscriber.AdminReset})) {
			t.Errorf("%s: %v, %v", c.sentence, answer, l.sessions)
		}
		if offer := l.ask4(dhcpv4.MessageTypeDiscover); offer == nil || !offer.YourIPAddr.Equal(net.IP(c.gets.AsSlice())) {
			t.Errorf("%s: %v", c.sentence, offer)
		}
	}
	// DHCPv6: an address of before is not on the link.
	l := newLine(t, server4())
	l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6)
	l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toUs), client6)
	l.moves = func(id, _ string) bool { return id == "1" }
	l.lease.IPv6 = netip.MustParseAddr("2001:db8:9::7")
	if l.ask6(message6Of(t, dhcpv6.MessageTypeRenew, both, toUs), client6); l.sessions["1"] || len(l.sessions) != 1 {
		t.Errorf("%v", l.sessions)
	}
}

func TestRequestsAreAnsweredByTheRulesOfRFC2131(t *testing.T) {
	other := netip.MustParseAddr("100.64.0.99")
	bound := func(l *line) {
		l.ask4(dhcpv4.MessageTypeDiscover)
		l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
	}
	for _, c := range []struct {
		sentence string
		before   func(*line)
		kind     dhcpv4.MessageType
		change   []dhcpv4.Modifier
		answer   dhcpv4.MessageType // 0: none
		sessions int
	}{
		{"after a reboot the address is confirmed", nil, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{requested(offered)}, dhcpv4.MessageTypeAck, 1},
		{"after a reboot another address is refused", nil, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{requested(other)}, dhcpv4.MessageTypeNak, 1},
		{"a renewal that we do not know is taken up", nil, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{dhcpv4.WithClientIP(offered.AsSlice())}, dhcpv4.MessageTypeAck, 1},
		{"an offer of ours for another address is refused", bound, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{requested(other), serverID(gateway)}, dhcpv4.MessageTypeNak, 1},
		{"an offer that we do not remember is not ours", nil, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{requested(offered), serverID(gateway)}, 0, 0},
		{"another server's offer ends ours", func(l *line) { l.ask4(dhcpv4.MessageTypeDiscover) }, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{requested(other), serverID(other)}, 0, 0},
		{"another server's offer does not end a lease", bound, dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{requested(other), serverID(other)}, 0, 1},
		{"a release ends the session", bound, dhcpv4.MessageTypeRelease, []dhcpv4.Modifier{dhcpv4.WithClientIP(offered.AsSlice())}, 0, 0},
		{"a release of another address does not", bound, dhcpv4.MessageTypeRelease, []dhcpv4.Modifier{dhcpv4.WithClientIP(other.AsSlice())}, 0, 1},
		{"a decline ends the session", bound, dhcpv4.MessageTypeDecline, []dhcpv4.Modifier{requested(offered)}, 0, 0},
		{"an inform gets options", bound, dhcpv4.MessageTypeInform, []dhcpv4.Modifier{dhcpv4.WithClientIP(offered.AsSlice())}, dhcpv4.MessageTypeAck, 1},
		{"an inform of a stranger gets nothing", nil, dhcpv4.MessageTypeInform, []dhcpv4.Modifier{dhcpv4.WithClientIP(offered.AsSlice())}, 0, 0},
		{"a relay's message is the relay's", nil, dhcpv4.MessageTypeDiscover, []dhcpv4.Modifier{dhcpv4.WithGatewayIP(other.AsSlice())}, 0, 0},
		{"a message of a server is not answered", nil, dhcpv4.MessageTypeOffer, nil, 0, 0},
	} {
		l := newLine(t, server4())
		if c.before != nil {
			c.before(l)
		}
		answer := l.ask4(c.kind, c.change...)
		switch {
		case (answer == nil) != (c.answer == 0):
			t.Errorf("%s: %v; %v", c.sentence, answer, l.actions)
		case answer != nil && answer.MessageType() != c.answer:
			t.Errorf("%s: %v", c.sentence, answer.MessageType())
		case len(l.sessions) != c.sessions:
			t.Errorf("%s: %d sessions", c.sentence, len(l.sessions))
		}
		if answer != nil && c.kind == dhcpv4.MessageTypeInform && (answer.IPAddressLeaseTime(0) != 0 || !answer.YourIPAddr.IsUnspecified()) {
			t.Errorf("%s: %v", c.sentence, answer.Summary())
		}
	}
}

// A rejected client that asks for its address of before hears why it has it no more (RFC 2131 section 4.3.2), and keeps it while only the back ends are away.
func TestARejectedClientThatAsksForItsAddressHearsWhy(t *testing.T) {
	for _, c := range []struct {
		sentence string
		reject   error
		message  string
		address  string // of the IpoeServer
		change   []dhcpv4.Modifier
		text     string // "": no answer
	}{
		{"with the back end's message", errors.New("no"), "pay your bill", gateway.String(), nil, "pay your bill"},
		{"without one", errors.New("secret of the log"), "", gateway.String(), nil, "rejected"},
		{"a message of all that an option takes", errors.New("no"), strings.Repeat("x", 255), gateway.String(), nil, strings.Repeat("x", 255)},
		{"back ends that are away", fmt.Errorf("%w: no answer", subscriber.ErrUnavailable), "", gateway.String(), nil, ""},
		{"another server's offer", errors.New("no"), "", gateway.String(), []dhcpv4.Modifier{serverID(netip.MustParseAddr("100.64.0.99"))}, ""},
		{"a server without an address", errors.New("no"), "", "", nil, ""},
	} {
		spec := server4()
		spec.ServerAddress = c.address
		l := newLine(t, spec)
		l.reject, l.message = c.reject, c.message
		for range 2 {
			answer := l.ask4(dhcpv4.MessageTypeRequest, append([]dhcpv4.Modifier{requested(offered)}, c.change...)...)
			switch {
			case c.text == "" && answer != nil:
				t.Errorf("%s: %v", c.sentence, answer.Summary())
			case c.text == "":
			case answer == nil || answer.MessageType() != dhcpv4.MessageTypeNak || answer.Message() != c.text || !answer.YourIPAddr.IsUnspecified():
				t.Errorf("%s: %v", c.sentence, answer)
			}
		}
		if l.ask4(dhcpv4.MessageTypeDiscover) != nil {
			t.Errorf("%s: a discover is answered", c.sentence)
		}
	}
}

func TestAClientThatIsRefusedIsLeftAloneForAWhile(t *testing.T) {
	l := newLine(t, server4())
	for _, of := range []struct {
		reject, refuse error
		why            string
	}{{errors.New("no"), nil, "rejected"}, {nil, subscriber.ErrExhausted, "pool-exhausted"}, {nil, subscriber.ErrLimit, "too-many-sessions"}} {
		l.reject, l.refuse = of.reject, of.refuse
		l.ask4(dhcpv4.MessageTypeDiscover)
		if got := l.drops(); len(l.sent) != 0 || !slices.Equal(got, []string{of.why}) {
			t.Errorf("%v, not %s", got, of.why)
		}
		l.ask4(dhcpv4.MessageTypeDiscover)
		if got := l.drops(); !slices.Equal(got, []string{"refused"}) {
			t.Errorf("%v", got)
		}
		l.now = l.now.Add(refusalTime)
		l.carryOut(l.Tick(l.now))
		if len(l.clients) != 0 {
			t.Error("it is refused for ever")
		}
	}
	// A Manager that never answers.
	l.reject, l.refuse, l.silent = nil, nil, true
	l.ask4(dhcpv4.MessageTypeDiscover)
	l.now = l.now.Add(patience)
	l.carryOut(l.Tick(l.now))
	l.silent = false
	if offer := l.ask4(dhcpv4.MessageTypeDiscover); offer == nil {
		t.Error("it waits for ever")
	}
	// An answer that comes late.
	l.carryOut(l.Connected("77", l.lease, nil, l.now))
	if d, is := l.actions[len(l.actions)-1].(Disconnect); !is || d.ID != "77" {
		t.Errorf("%v", l.actions)
	}
}

func TestClientsOfACircuitAreBounded(t *testing.T) {
	l := newLine(t, server4())
	for i := range 4 {
		mac := dhcp.MAC{2, 1, 0, 0, 0, byte(i)}
		d := discover4(dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(net.HardwareAddr(mac[:])))
		l.receive("dhcp4", frame(mac, 100, 7, dhcp.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), d)))
	}
	if got := l.drops(); len(l.clients) != 2 || !slices.Equal(got, []string{"too-many-clients"}) {
		t.Errorf("%d clients, %v", len(l.clients), got)
	}
}

func TestRefusedClientsMakeRoomForOthersOfTheirCircuit(t *testing.T) {
	spec := server4()
	spec.ClientsPerCircuit = 3
	l := newLine(t, spec)
	ask := func(number byte) int {
		mac := dhcp.MAC{2, 1, 0, 0, 0, number}
		d := discover4(dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(net.HardwareAddr(mac[:])))
		l.receive("dhcp4", frame(mac, 100, 7, dhcp.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), d)))
		return len(l.sent)
	}
	if ask(1) != 1 {
		t.Fatal(l.drops())
	}
	l.reject = errors.New("no")
	for i := range byte(100) {
		ask(100 + i)
	}
	l.reject = nil
	// One that was refused is still left alone, and a neighbour gets an offer in the place of the oldest refusal.
	if ask(199); !slices.Equal(l.drops(), []string{"refused"}) || len(l.clients) != 3 {
		t.Errorf("%v, %d clients", l.drops(), len(l.clients))
	}
	if ask(2) != 1 || ask(199) != 0 || ask(3) != 1 || len(l.sessions) != 3 {
		t.Errorf("%v, %d sessions", l.drops(), len(l.sessions))
	}
	// Clients with a session or an offer keep their places.
	if ask(4) != 0 || !slices.Equal(l.drops(), []string{"too-many-clients"}) || ask(1) != 1 {
		t.Errorf("%v", l.drops())
	}
	l.SetServer("homes", nil, l.now)
	if len(l.clients)+len(l.refused)+len(l.ofLine)+l.timers.Len() != 0 {
		t.Errorf("something is left: %v, %v", l.refused, l.ofLine)
	}
}

func TestClientsOfACircuitThatTakeNoOfferLeaveAddressesToOtherCircuits(t *testing.T) {
	spec := server4()
	spec.ClientsPerCircuit = 256
	l := newLine(t, spec)
	ask := func(number byte, vlan uint16, kind dhcpv4.MessageType, change ...dhcpv4.Modifier) int {
		mac := dhcp.MAC{2, 1, 0, 0, 0, number}
		d := discover4(kind, append(change, dhcpv4.WithHwAddr(net.HardwareAddr(mac[:])))...)
		l.receive("dhcp4", frame(mac, 100, vlan, dhcp.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), d)))
		return len(l.sent)
	}
	offers := 0
	for i := range byte(200) {
		offers += ask(i, 7, dhcpv4.MessageTypeDiscover)
	}
	if got := l.drops(); offers != 32 || len(l.sessions) != 32 || !slices.Equal(got, []string{"too-many-offers"}) {
		t.Errorf("%d offers, %d sessions, %v", offers, len(l.sessions), got)
	}
	if ask(200, 8, dhcpv4.MessageTypeDiscover) != 1 {
		t.Errorf("another circuit gets no offer: %v", l.drops())
	}
	// A client that takes its offer makes room for another one. A client that has an offer may ask again.
	if ask(0, 7, dhcpv4.MessageTypeDiscover) != 1 || ask(0, 7, dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway)) != 1 ||
		ask(100, 7, dhcpv4.MessageTypeDiscover) != 1 || ask(101, 7, dhcpv4.MessageTypeDiscover) != 0 {
		t.Errorf("%v", l.drops())
	}
	l.now = l.now.Add(offerTime)
	l.carryOut(l.Tick(l.now))
	if len(l.sessions) != 1 || len(l.pending) != 0 || ask(101, 7, dhcpv4.MessageTypeDiscover) != 1 {
		t.Errorf("%d sessions, %v pending, %v", len(l.sessions), l.pending, l.drops())
	}
	// Back ends that reject clients leave none pending.
	l.reject = errors.New("no")
	for i := range byte(40) {
		ask(110+i, 8, dhcpv4.MessageTypeDiscover)
	}
	if l.pending[lineKey{circuit: circuit{"default", "access", 100, 8}}] != 0 {
		t.Errorf("%v", l.pending)
	}
	l.SetServer("homes", nil, l.now)
	if len(l.clients)+len(l.pending)+len(l.ofLine) != 0 {
		t.Errorf("something is left: %v, %v", l.pending, l.ofLine)
	}
}

func TestAMACThatIsNotTheClientsIsNotAnswered(t *testing.T) {
	l := newLine(t, server4())
	d := discover4(dhcpv4.MessageTypeDiscover)
	l.receive("dhcp4", frame(dhcp.MAC{2, 9}, 100, 7, dhcp.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), d)))
	if got := l.drops(); !slices.Equal(got, []string{"mac-mismatch"}) {
		t.Errorf("%v", got)
	}
	// A circuit of another server gets no answer.
	l.receive("dhcp4", frame(cpe, 200, 7, dhcp.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), d)))
	if len(l.actions) != 0 {
		t.Errorf("%v", l.actions)
	}
	spec := server4()
	spec.RelayInformation = api.RelayInformation_REFUSE_INFORMATION
	l = newLine(t, spec)
	l.ask4(dhcpv4.MessageTypeDiscover, dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, []byte{1, 1, 'x'})))
	if got := l.drops(); !slices.Equal(got, []string{"relay-information"}) {
		t.Errorf("%v", got)
	}
}

// ---- IPv6

func message6Of(t *testing.T, kind dhcpv6.MessageType, change ...dhcpv6.Modifier) []byte {
	t.Helper()
	d, err := dhcpv6.NewMessage(change...)
	if err != nil {
		t.Fatal(err)
	}
	d.MessageType, d.TransactionID = kind, dhcpv6.TransactionID{1, 2, 3}
	d.AddOption(dhcpv6.OptClientID(&dhcpv6.DUIDLL{HWType: 1, LinkLayerAddr: cpe[:]}))
	return d.ToBytes()
}

func both(d dhcpv6.DHCPv6) {
	dhcpv6.WithIANA(dhcpv6.OptIAAddress{IPv6Addr: host.AsSlice()})(d)
	dhcpv6.WithIAPD([4]byte{1}, &dhcpv6.OptIAPrefix{Prefix: &net.IPNet{IP: home.Addr().AsSlice(), Mask: net.CIDRMask(56, 128)}})(d)
}

func toUs(d dhcpv6.DHCPv6) {
	d.AddOption(dhcpv6.OptServerID(&dhcpv6.DUIDLL{HWType: 1, LinkLayerAddr: port[:]}))
}

func (l *line) ask6(b []byte, source uint16) dhcpv6.DHCPv6 {
	l.t.Helper()
	l.receive("dhcp6", frame(cpe, 100, 7, dhcp.Datagram(netip.AddrPortFrom(dhcp.LinkLocal(cpe), source), netip.MustParseAddrPort("[ff02::1:2]:547"), b)))
	if len(l.sent) == 0 {
		return nil
	}
	p, ok := dhcp.ParseClientPacket(l.sent[0])
	if !ok || len(l.sent) > 1 || p.MAC != port || p.Source.Addr() != dhcp.LinkLocal(port) || p.Destination != netip.AddrPortFrom(dhcp.LinkLocal(cpe), source) {
		l.t.Fatalf("%x", l.sent)
	}
	d, err := dhcpv6.FromBytes(p.Payload)
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

func TestAClientGetsBothFamiliesInOneSession(t *testing.T) {
	l := newLine(t, server4())
	l.ask4(dhcpv4.MessageTypeDiscover)
	l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
	advertised := l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6)
	if advertised == nil || advertised.Type() != dhcpv6.MessageTypeAdvertise || len(l.sessions) != 1 {
		t.Fatalf("%v: %v", advertised, l.actions)
	}
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew} {
		reply := l.ask6(message6Of(t, kind, both, toUs), client6).(*dhcpv6.Message)
		na, pd := reply.Options.OneIANA(), reply.Options.OneIAPD()
		if reply.Type() != dhcpv6.MessageTypeReply || !na.Options.OneAddress().IPv6Addr.Equal(host.AsSlice()) || na.Options.OneAddress().ValidLifetime != 600*time.Second ||
			pd.Options.Prefixes()[0].Prefix.String() != home.String() {
			t.Errorf("%v", reply.Summary())
		}
	}
	// IPv4 ends, IPv6 goes on.
	l.ask4(dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(offered.AsSlice()))
	if c := l.byID["1"]; c == nil || c.has4 || !c.has6 {
		t.Fatalf("%v", l.actions)
	}
	reply := l.ask6(message6Of(t, dhcpv6.MessageTypeRelease, both, toUs), client6)
	if reply == nil || len(l.sessions) != 0 {
		t.Errorf("%v, %d sessions", reply, len(l.sessions))
	}
}

func TestAMessageForAnotherServerTakesNoLease(t *testing.T) {
	toThem := func(d dhcpv6.DHCPv6) {
		d.AddOption(dhcpv6.OptServerID(&dhcpv6.DUIDLL{HWType: 1, LinkLayerAddr: []byte{2, 9, 9, 9, 9, 9}}))
	}
	l := newLine(t, server4())
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew} {
		if l.ask6(message6Of(t, kind, both, toThem), client6); len(l.sent)+len(l.clients) != 0 || !slices.Equal(l.drops(), []string{"another-server"}) {
			t.Errorf("%v: %v", kind, l.actions)
		}
	}
	if l.ask6(message6Of(t, dhcpv6.MessageTypeRebind, both, toUs), client6); len(l.clients) != 0 || !slices.Equal(l.drops(), []string{"server-identifier"}) {
		t.Error(l.actions)
	}
	// It took our offer, or it did not.
	l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6)
	if l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toThem), client6); len(l.sessions)+len(l.clients) != 0 {
		t.Errorf("%v", l.actions)
	}
	l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6)
	l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toUs), client6)
	if l.ask6(message6Of(t, dhcpv6.MessageTypeRenew, both, toThem), client6); len(l.sessions) != 1 {
		t.Errorf("%v", l.actions)
	}
}

func TestAConfirmOfAnAddressThatIsNotOursIsAnswered(t *testing.T) {
	l := newLine(t, server4())
	reply, _ := l.ask6(message6Of(t, dhcpv6.MessageTypeConfirm, both), client6).(*dhcpv6.Message)
	if reply == nil || reply.Options.Status() == nil || reply.Options.Status().StatusCode != 4 || len(l.clients) != 0 {
		t.Errorf("%v: %v", reply, l.actions)
	}
}

func TestALeaseEndsWithItsSession(t *testing.T) {
	l := newLine(t, server4())
	l.lease.SessionTimeout = 5 * time.Minute
	l.ask4(dhcpv4.MessageTypeDiscover)
	want := func(seconds time.Duration) {
		t.Helper()
		ack := l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
		if got := ack.IPAddressLeaseTime(0); got != seconds*time.Second || ack.IPAddressRenewalTime(0) != (got/2).Truncate(time.Second) {
			t.Errorf("%v, and not %d s", got, seconds)
		}
		reply := l.ask6(message6Of(t, dhcpv6.MessageTypeRenew, both, toUs), client6).(*dhcpv6.Message)
		if got := reply.Options.OneIANA().Options.OneAddress().ValidLifetime; got != seconds*time.Second {
			t.Errorf("%v of IPv6, and not %d s", got, seconds)
		}
	}
	want(300)
	l.now = l.now.Add(2 * time.Minute)
	want(180)
	l.now = l.now.Add(170 * time.Second)
	want(10)
	l.now = l.now.Add(9*time.Second + 500*time.Millisecond)
	want(1)
	l.actions, l.now = nil, l.now.Add(time.Second)
	if l.carryOut(l.Tick(l.now)); !slices.Contains(l.actions, Action(Disconnect{"1", subscriber.SessionTimeout})) {
		t.Errorf("%v", l.actions)
	}
}

func TestAnIdentifierOfAnotherClientGetsAndEndsNoLeaseOfIt(t *testing.T) {
	spec := server4()
	l := newLine(t, spec)
	own := dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte{1, 2, 3}))
	other := dhcpv4.WithOption(dhcpv4.OptClientIdentifier([]byte{0xff, 9}))
	l.ask4(dhcpv4.MessageTypeDiscover, own)
	l.ask4(dhcpv4.MessageTypeRequest, own, requested(offered), serverID(gateway))
	// Another host that claims the identifier has a session of its own.
	if l.asks(1, dhcpv4.MessageTypeDiscover, own) != 1 || len(l.sessions) != 2 {
		t.Errorf("%v", l.sessions)
	}
	ip := dhcpv4.WithClientIP(offered.AsSlice())
	gives := func(l *line) {
		t.Helper()
		for _, kind := range []dhcpv4.MessageType{dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeDecline} {
			if l.ask4(kind, other, ip, requested(offered)); !slices.Equal(l.drops(), []string{"another-client"}) || !l.sessions["1"] {
				t.Errorf("%s: %v, %v", kind, l.drops(), l.sessions)
			}
		}
	}
	gives(l)
	// Also after a restart of the agent.
	l.ask4(dhcpv4.MessageTypeRequest, own, ip)
	var state []byte
	for _, a := range l.actions {
		if save, is := a.(Save); is {
			state = save.State
		}
	}
	again := newLine(t, spec)
	again.sessions["1"] = true
	request := subscriber.Request{ID: "1", Protocol: "dhcp4", Line: subscriber.Line{Circuit: subscriber.Circuit{Dataplane: "default", Port: "access", OuterVLAN: 100, InnerVLAN: 7}, MAC: subscriber.MAC(cpe)}}
	again.carryOut(again.Restore(subscriber.Connection{Request: request, State: state}, again.given(true, false), l.now))
	gives(again)
	// With its own identifier, and without any, the client gives it back.
	if l.ask4(dhcpv4.MessageTypeRelease, ip, own); l.sessions["1"] {
		t.Errorf("%v", l.drops())
	}
	if again.ask4(dhcpv4.MessageTypeRelease, ip); again.sessions["1"] {
		t.Errorf("%v", again.drops())
	}
}

func TestARequestForAnotherServerIsNotRefused(t *testing.T) {
	l := newLine(t, server4())
	l.silent = true
	l.ask4(dhcpv4.MessageTypeDiscover)
	id := l.clients[clientKey{circuit{"default", "access", 100, 7}, cpe}].id
	l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(netip.MustParseAddr("192.0.2.66")))
	l.silent, l.sent, l.actions = false, nil, nil
	l.carryOut(l.Authenticated(id, subscriber.Answer{}, l.now))
	if len(l.sent) != 0 || len(l.sessions) != 0 || !slices.Contains(l.drops(), "another-server") {
		t.Errorf("%d frames, %d sessions: %v", len(l.sent), len(l.sessions), l.actions)
	}
}

func TestAReleaseWhileTheSessionIsExtendedCounts(t *testing.T) {
	l := newLine(t, server4())
	l.ask4(dhcpv4.MessageTypeDiscover)
	l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
	release := frame(cpe, 100, 7, dhcp.Datagram(netip.AddrPortFrom(offered, 68), netip.AddrPortFrom(gateway, 67),
		discover4(dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(offered.AsSlice()))))
	extensions := 0
	l.away = func(e Extend) (subscriber.Lease, error) {
		if extensions++; extensions == 1 {
			l.actions = append(l.actions, l.Receive(Packet{"default", "access", "dhcp4", release}, l.now)...)
		}
		return l.given(e.IPv4, e.IPv6), nil
	}
	l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6)
	if c := l.byID["1"]; c == nil || c.has4 || !c.has6 || extensions != 2 {
		t.Errorf("%+v, %d extensions: %v", c, extensions, l.actions)
	}
}

func TestASessionWithoutAnyAddressEnds(t *testing.T) {
	l := newLine(t, server4())
	l.lease.IPv4, l.lease.Gateway = netip.Addr{}, netip.Addr{}
	for range 2 {
		if l.ask4(dhcpv4.MessageTypeDiscover) != nil || len(l.sessions) != 0 || len(l.pending) != 0 {
			t.Fatalf("%d sessions, %v: %v", len(l.sessions), l.pending, l.actions)
		}
		l.now = l.now.Add(refusalTime)
	}
	l = newLine(t, server4())
	l.lease.IPv6, l.lease.Delegated = netip.Addr{}, netip.Prefix{}
	// The client hears that there is none.
	if reply := l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6); reply == nil || len(l.sessions) != 0 || len(l.pending) != 0 {
		t.Errorf("%v, %d sessions, %v: %v", reply, len(l.sessions), l.pending, l.actions)
	}
	// Nor does one of before a restart stay.
	var again *subscriber.Connection
	for _, a := range l.actions {
		if c, is := a.(Connect); is {
			again = &c.Connection
		}
	}
	l = newLine(t, server4())
	l.sessions[again.ID] = true
	l.carryOut(l.Restore(*again, subscriber.Lease{Session: "s"}, l.now))
	if len(l.sessions) != 0 || len(l.clients) != 0 {
		t.Error(l.actions)
	}
}

func TestADeclinedAddressIsNotGivenToItsClientAgain(t *testing.T) {
	l := newLine(t, server4())
	other := netip.MustParseAddr("2001:db8::8")
	address := func(d dhcpv6.DHCPv6) { dhcpv6.WithIANA(dhcpv6.OptIAAddress{IPv6Addr: host.AsSlice()})(d) }
	extends := func() (all []Extend) {
		for _, a := range l.actions {
			if e, is := a.(Extend); is {
				all = append(all, e)
			}
		}
		return all
	}
	l.ask4(dhcpv4.MessageTypeDiscover)
	l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
	l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6)
	l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toUs), client6)
	// The address of IA_NA, while the prefix of IA_PD and IPv4 stay.
	l.away = func(e Extend) (subscriber.Lease, error) {
		lease := l.given(e.IPv4, e.IPv6)
		if e.Declined.IPv6 {
			l.lease.IPv6, lease.IPv6 = other, other
		}
		return lease, nil
	}
	l.ask6(message6Of(t, dhcpv6.MessageTypeDecline, address, toUs), client6)
	if got := extends(); len(got) != 1 || !got[0].IPv4 || !got[0].IPv6 || got[0].Declined != (subscriber.Declined{IPv6: true}) {
		t.Errorf("%+v", got)
	}
	reply := l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toUs), client6).(*dhcpv6.Message)
	if na := reply.Options.OneIANA(); !na.Options.OneAddress().IPv6Addr.Equal(other.AsSlice()) {
		t.Errorf("%v", reply.Summary())
	}
	// A release of the address declines nothing.
	replaced := func(d dhcpv6.DHCPv6) { dhcpv6.WithIANA(dhcpv6.OptIAAddress{IPv6Addr: other.AsSlice()})(d) }
	l.ask6(message6Of(t, dhcpv6.MessageTypeRelease, replaced, toUs), client6)
	if got := extends(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	// The address of IPv4.
	l.ask4(dhcpv4.MessageTypeDecline, requested(offered))
	if got := extends(); len(got) != 1 || got[0].IPv4 || !got[0].IPv6 || got[0].Declined != (subscriber.Declined{IPv4: true}) || len(l.sessions) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestAFamilyThatCannotBeGivenBackEndsLater(t *testing.T) {
	// The data plane is away while IPv4 ends; the Manager has changed the session, or could not.
	for _, left := range []bool{false, true} {
		l := newLine(t, server4())
		l.ask4(dhcpv4.MessageTypeDiscover)
		l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
		l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6)
		l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toUs), client6)
		c := l.byID["1"]
		l.away = func(Extend) (subscriber.Lease, error) {
			lease := subscriber.Lease{}
			if left {
				lease = l.given(false, true)
				lease.Session = "dhcp4-1"
			}
			return lease, subscriber.ErrNotForwarding
		}
		l.ask4(dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(offered.AsSlice()))
		if c.has4 == left || !c.has6 {
			t.Errorf("left %v: %+v", left, c)
		}
		l.away = nil
		for range 20 {
			l.now = l.now.Add(time.Minute)
			l.carryOut(l.Tick(l.now))
		}
		if len(l.sessions)+len(l.clients) != 0 {
			t.Errorf("left %v: %d sessions, %d clients", left, len(l.sessions), len(l.clients))
		}
	}
}

func TestAClientBehindALightweightRelayAgentIsAnsweredThroughIt(t *testing.T) {
	solicit, err := dhcpv6.MessageFromBytes(message6Of(t, dhcpv6.MessageTypeSolicit, both, dhcpv6.WithRapidCommit))
	if err != nil {
		t.Fatal(err)
	}
	forward, err := dhcpv6.EncapsulateRelay(solicit, dhcpv6.MessageTypeRelayForward, net.IPv6zero, net.ParseIP("fe80::9"))
	if err != nil {
		t.Fatal(err)
	}
	forward.AddOption(dhcpv6.OptInterfaceID([]byte("eth 0/1")))
	forward.AddOption(&dhcpv6.OptRemoteID{EnterpriseNumber: 3561, RemoteID: []byte("home")})
	// The line as the access node knows it: 20,000 kbit/s, and a sub-option that is longer than the option. Another vendor's numbers say nothing.
	forward.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionVendorOpts, OptionData: []byte{0, 0, 0x0d, 0xe9, 0, 0x81, 0, 4, 0, 0, 0x4e, 0x20, 0, 0x82, 0, 5, 0}})
	forward.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionVendorOpts, OptionData: []byte{0, 0, 0, 9, 0, 0x83, 0, 1, 1}})
	l := newLine(t, server4())
	answer, is := l.ask6(forward.ToBytes(), port6).(*dhcpv6.RelayMessage)
	if !is || answer.Type() != dhcpv6.MessageTypeRelayReply || string(answer.Options.InterfaceID()) != "eth 0/1" || !answer.PeerAddr.Equal(net.ParseIP("fe80::9")) {
		t.Fatalf("%v: %v", answer, l.actions)
	}
	if inner, err := answer.GetInnerMessage(); err != nil || inner.Type() != dhcpv6.MessageTypeReply || inner.Options.OneIANA() == nil {
		t.Errorf("%v, %v", inner, err)
	}
	if line := l.actions[1].(Authenticate).Request.Line; string(line.CircuitID) != "eth 0/1" || string(line.RemoteID) != "home" ||
		len(line.Attributes) != 1 || string(line.Attributes[0x81]) != "\x00\x00\x4e\x20" {
		t.Errorf("%+v", line)
	}
	spec := server4()
	spec.RelayInformation = api.RelayInformation_REFUSE_INFORMATION
	l = newLine(t, spec)
	if answer := l.ask6(forward.ToBytes(), port6); answer != nil || l.drops()[0] != "relay-information" {
		t.Errorf("%v", answer)
	}
}

func TestARouterSolicitationIsAnswered(t *testing.T) {
	l := newLine(t, server4())
	b := make([]byte, header6+8)
	b[0], b[5], b[6], b[7], b[header6] = 0x60, 8, protocolICMP6, 255, solicitation
	source := dhcp.LinkLocal(cpe).As16()
	copy(b[8:], source[:])
	l.receive("nd", frame(cpe, 100, 7, b))
	if len(l.sent) != 1 {
		t.Fatal(l.actions)
	}
	packet := l.sent[0][22:]
	if packet[header6] != advertisement || packet[header6+5] != 0xc0 || netip.AddrFrom16([16]byte(packet[24:40])) != dhcp.LinkLocal(cpe) {
		t.Errorf("%x", packet)
	}
	if dhcp.Checksum6(dhcp.LinkLocal(port), dhcp.LinkLocal(cpe), packet[header6:]) != 0 {
		t.Error("the checksum is wrong")
	}
	// A host without an address: other hosts of the VLAN have other prefixes, and the frame is not for them.
	copy(b[8:24], make([]byte, 16))
	if l.receive("nd", frame(cpe, 100, 7, b)); len(l.sent) != 1 || dhcp.MAC(l.sent[0][:6]) != cpe || netip.AddrFrom16([16]byte(l.sent[0][22:][24:40])) != allNodes6 {
		t.Errorf("%x", l.sent)
	}
	copy(b[8:], source[:])
	b[7] = 64
	if l.receive("nd", frame(cpe, 100, 7, b)); len(l.sent) != 0 {
		t.Error("a solicitation that was routed is answered")
	}
}

// advertisements lets time pass, with DHCPv6 renewals, and checks that router advertisements for the client keep the router's lifetime.
func (l *line) advertisements(passes time.Duration) {
	l.t.Helper()
	last, route := l.now, []byte{24, 2, 48, 0, 0, 0, 7, 8, 0x20, 1, 0x0d, 0xb8, 0, 5, 0, 0}
	for end := l.now.Add(passes); l.now.Before(end); {
		l.now = l.now.Add(time.Second)
		l.sent, l.actions = nil, nil
		l.carryOut(l.Tick(l.now))
		for _, b := range l.sent {
			if mac := dhcp.MAC(b[:6]); mac != cpe || !bytes.Equal(b[12:20], []byte{0x88, 0xa8, 0, 100, 0x81, 0, 0, 7}) {
				l.t.Fatalf("%x", b)
			}
			if p := b[22:]; p[header6] != advertisement || netip.AddrFrom16([16]byte(p[24:40])) != allNodes6 || p[7] != 255 || binary.BigEndian.Uint16(p[header6+6:]) != routerLifetime ||
				dhcp.Checksum6(dhcp.LinkLocal(port), allNodes6, p[header6:]) != 0 || !bytes.HasSuffix(p, route) {
				l.t.Fatalf("%x", p)
			}
			last = l.now
		}
		if l.now.Sub(last) > advertiseTime {
			l.t.Fatalf("no router advertisement for %v", l.now.Sub(last))
		}
		if l.now.Unix()%300 == 0 {
			l.ask6(message6Of(l.t, dhcpv6.MessageTypeRenew, both, toUs), client6)
		}
	}
}

func TestTheRouterOfAClientWithIPv6DoesNotExpire(t *testing.T) {
	l := newLine(t, server4())
	l.ask4(dhcpv4.MessageTypeDiscover)
	l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
	// The session gets IPv6 later.
	l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6)
	l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toUs), client6)
	var state []byte
	for _, a := range l.actions {
		if s, is := a.(Save); is {
			state = s.State
		}
	}
	if l.advertisements(4 * routerLifetime * time.Second); len(l.sessions) != 1 {
		t.Fatal("the session ended")
	}
	// The agent starts again: the tags are the client's.
	after := newLine(t, server4())
	after.sessions["1"] = true
	request := subscriber.Request{Protocol: "dhcp6", ID: "1", Line: subscriber.Line{Circuit: subscriber.Circuit{Dataplane: "default", Port: "access", OuterVLAN: 100, InnerVLAN: 7},
		MAC: subscriber.MAC(cpe)}}
	after.carryOut(after.Restore(subscriber.Connection{Request: request, IPv6: true, State: state}, l.given(false, true), after.now))
	if after.advertisements(2 * routerLifetime * time.Second); len(after.sessions) != 1 {
		t.Fatal("the session ended")
	}
	// Without IPv6 there are none.
	after.ask6(message6Of(t, dhcpv6.MessageTypeRelease, both, toUs), client6)
	if after.timers.Len() != 0 {
		t.Error("a timer is left")
	}
}

// ---- First packets

func arpOf(mac dhcp.MAC, address netip.Addr) []byte {
	b := append(append([]byte{}, port[:]...), mac[:]...)
	b = append(b, 0x81, 0, 0, 100, 0x81, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	b = append(append(b, mac[:]...), address.AsSlice()...)
	return append(append(b, 0, 0, 0, 0, 0, 0), gateway.AsSlice()...)
}

func TestAFirstPacketBringsUpTheAddressOfTheLineAlone(t *testing.T) {
	spec := server4()
	spec.Methods = []api.IpoeMethod{api.IpoeMethod_IPOE_FIRST_PACKET}
	l := newLine(t, spec)
	l.grant.IPv4 = offered
	l.receive("arp", arpOf(cpe, netip.MustParseAddr("100.64.0.3")))
	if got := l.drops(); len(l.sessions) != 0 || !slices.Equal(got, []string{"not-the-address-of-the-line"}) {
		t.Errorf("%v", got)
	}
	l.now = l.now.Add(refusalTime)
	l.carryOut(l.Tick(l.now))
	l.receive("arp", arpOf(cpe, offered))
	if len(l.sessions) != 1 {
		t.Fatalf("%v", l.actions)
	}
	l.now = l.now.Add(1000 * time.Hour)
	l.carryOut(l.Tick(l.now))
	if len(l.sessions) != 1 {
		t.Error("a static address ends by itself")
	}
	if l.ask4(dhcpv4.MessageTypeDiscover) != nil {
		t.Error("DHCP is answered, and is no method of the server")
	}
	l.carryOut(l.Terminated("2", l.now))
	if len(l.clients) != 0 {
		t.Error("a session that was ended is kept")
	}
}

func TestAStrangeFirstPacketDoesNotKeepItsHostFromDHCP(t *testing.T) {
	spec := server4()
	spec.Methods = []api.IpoeMethod{api.IpoeMethod_IPOE_DHCP4, api.IpoeMethod_IPOE_FIRST_PACKET}
	strange := arpOf(cpe, netip.MustParseAddr("100.64.0.3"))
	l := newLine(t, spec)
	l.receive("arp", strange)
	if got := l.drops(); !slices.Equal(got, []string{"not-the-address-of-the-line"}) {
		t.Errorf("%v", got)
	}
	if l.receive("arp", strange); !slices.Equal(l.drops(), []string{"refused"}) {
		t.Error(l.drops())
	}
	if l.ask4(dhcpv4.MessageTypeDiscover) == nil || l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway)) == nil {
		t.Error(l.actions)
	}
	// Hosts that do both are as many as those that ask alone.
	spec.OffersPerCircuit, spec.ClientsPerCircuit = 1, 9
	l = newLine(t, spec)
	l.asks(1, dhcpv4.MessageTypeDiscover)
	l.receive("arp", strange)
	if l.ask4(dhcpv4.MessageTypeDiscover) != nil || !slices.Contains(l.drops(), "too-many-offers") {
		t.Error(l.drops())
	}
	spec.OffersPerCircuit, spec.ClientsPerCircuit = 0, 2
	// The two come one after the other.
	l = newLine(t, spec)
	l.silent = true
	l.receive("arp", strange)
	id := l.clients[clientKey{circuit{"default", "access", 100, 7}, cpe}].id
	l.ask4(dhcpv4.MessageTypeDiscover)
	l.silent, l.sent, l.actions = false, nil, nil
	l.carryOut(l.Authenticated(id, subscriber.Answer{}, l.now))
	if len(l.sent) != 1 || len(l.sessions) != 1 || l.byID[id].static || l.byID[id].protocol != "dhcp4" {
		t.Errorf("%d frames: %v", len(l.sent), l.actions)
	}
}

// ---- Restarts and configuration

// solicitation6 is a neighbour solicitation from `source`, or for duplicates of `target` if there is none.
func solicitation6(source, target netip.Addr) []byte {
	b := make([]byte, header6+solicitationLength)
	b[0], b[5], b[6], b[7], b[header6] = 0x60, solicitationLength, protocolICMP6, 255, neighborSolicitation
	from, of := source.As16(), target.As16()
	copy(b[8:], from[:])
	copy(b[header6+8:], of[:])
	return frame(cpe, 100, 7, b)
}

func TestAFirstPacketOfIPv6BringsUpTheAddressOfTheLineAlone(t *testing.T) {
	own, other, router := netip.MustParseAddr("2001:db8:7::1"), netip.MustParseAddr("2001:db8:8::1"), dhcp.LinkLocal(port)
	packet := func(source netip.Addr) []byte {
		b := make([]byte, header6)
		from := source.As16()
		b[0], b[6], b[7] = 0x60, 17, 64
		copy(b[8:], from[:])
		return frame(cpe, 100, 7, b)
	}
	for name, c := range map[string]struct {
		reason   string
		frame    []byte
		sessions int
		drop     string
	}{
		"its gateway":            {"nd", solicitation6(own, router), 1, ""},
		"a duplicate of its own": {"nd", solicitation6(netip.IPv6Unspecified(), own), 1, ""},
		"a packet":               {"first-packet", packet(own), 1, ""},
		"another address":        {"nd", solicitation6(other, router), 0, "not-the-address-of-the-line"},
		"another's packet":       {"first-packet", packet(other), 0, "not-the-address-of-the-line"},
		"a link-local address":   {"nd", solicitation6(dhcp.LinkLocal(cpe), router), 0, ""},
		"a multicast address":    {"first-packet", packet(netip.MustParseAddr("ff02::1")), 0, "source-not-unicast"},
		"cut short":              {"nd", solicitation6(own, router)[:22+header6+solicitationLength-1], 0, ""},
	} {
		spec := server4()
		spec.Methods = []api.IpoeMethod{api.IpoeMethod_IPOE_FIRST_PACKET, api.IpoeMethod_IPOE_DHCP6}
		l := newLine(t, spec)
		l.grant.IPv6Prefix = netip.MustParsePrefix("2001:db8:7::/64")
		l.receive(c.reason, c.frame)
		drops := l.drops()
		if len(l.sessions) != c.sessions || len(drops) > 1 || len(drops) == 1 && drops[0] != c.drop || len(drops) == 0 && c.drop != "" {
			t.Errorf("%s: %d sessions, %v", name, len(l.sessions), drops)
		}
		if c.sessions == 0 {
			continue
		}
		for _, a := range l.actions {
			if a, ok := a.(Connect); ok && (a.Connection.IPv4 || !a.Connection.IPv6) {
				t.Errorf("%s: %+v", name, a.Connection)
			}
		}
		// It may ask for more by DHCPv6; static addresses stay.
		l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6)
		l.now = l.now.Add(1000 * time.Hour)
		if l.carryOut(l.Tick(l.now)); len(l.sessions) != 1 {
			t.Errorf("%s: a static address ends by itself", name)
		}
	}
}

func TestLeasesOutliveTheAgent(t *testing.T) {
	l := newLine(t, server4())
	l.ask4(dhcpv4.MessageTypeDiscover)
	connection := l.actions[2].(Connect).Connection
	l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
	for _, a := range l.actions {
		if s, is := a.(Save); is {
			connection.State = s.State
		}
	}
	after := newLine(t, server4())
	after.sessions["1"] = true
	after.carryOut(after.Restore(connection, l.given(true, false), after.now))
	if ack := after.ask4(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(offered.AsSlice())); ack == nil || ack.MessageType() != dhcpv4.MessageTypeAck || len(after.sessions) != 1 {
		t.Errorf("%v", ack)
	}
	after.now = after.now.Add(600 * time.Second)
	after.carryOut(after.Tick(after.now))
	if len(after.sessions) != 0 {
		t.Error("the lease does not end")
	}
	// A circuit that is no server's any more.
	spec := server4()
	spec.OuterVlans = []string{"300"}
	moved := newLine(t, spec)
	moved.sessions["1"] = true
	moved.carryOut(moved.Restore(connection, l.given(true, false), moved.now))
	if len(moved.sessions)+len(moved.clients) != 0 {
		t.Error("a session that no server serves is kept")
	}
}

func TestAReleaseOfThePrefixAloneLeavesTheAddressAfterARestart(t *testing.T) {
	address := func(d dhcpv6.DHCPv6) { dhcpv6.WithIANA(dhcpv6.OptIAAddress{IPv6Addr: host.AsSlice()})(d) }
	prefix := func(d dhcpv6.DHCPv6) {
		dhcpv6.WithIAPD([4]byte{1}, &dhcpv6.OptIAPrefix{Prefix: &net.IPNet{IP: home.Addr().AsSlice(), Mask: net.CIDRMask(56, 128)}})(d)
	}
	at := subscriber.Line{Circuit: subscriber.Circuit{Dataplane: "default", Port: "access", OuterVLAN: 100, InnerVLAN: 7}, MAC: subscriber.MAC(cpe)}
	connection := subscriber.Connection{Request: subscriber.Request{Protocol: "dhcp6", ID: "1", Line: at}, IPv6: true}
	restart := func(before *line) *line {
		for _, a := range before.actions {
			if s, is := a.(Save); is {
				connection.State = s.State
			}
		}
		after := newLine(t, server4())
		after.sessions["1"] = true
		after.carryOut(after.Restore(connection, after.given(false, true), after.now))
		return after
	}
	l := newLine(t, server4())
	l.ask6(message6Of(t, dhcpv6.MessageTypeSolicit, both), client6)
	l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toUs), client6)
	l = restart(l)
	if l.ask6(message6Of(t, dhcpv6.MessageTypeRelease, prefix, toUs), client6); len(l.sessions) != 1 {
		t.Fatal("the address went with the prefix")
	}
	// The prefix is still released after another restart.
	l = restart(l)
	if l.ask6(message6Of(t, dhcpv6.MessageTypeRelease, address, toUs), client6); len(l.sessions) != 0 {
		t.Error("the session has neither address nor prefix, and goes on")
	}
	// A record of an earlier release.
	connection.State = []byte(fmt.Sprintf(`{"server":"homes","ends6":%d,"bound6":true}`, began.Unix()+600))
	l.actions = nil
	l = restart(l)
	if l.ask6(message6Of(t, dhcpv6.MessageTypeRelease, prefix, toUs), client6); len(l.sessions) != 1 {
		t.Error("the address went with the prefix")
	}
}

func TestALeaseOfAPartOfASecondDoesNotEndEarly(t *testing.T) {
	c := &client{ends4: began.Add(time.Millisecond), ends6: began, began: began.Add(time.Millisecond)}
	var k stored
	if err := json.Unmarshal(c.state(), &k); err != nil || k.Ends4 != began.Unix()+1 || k.Ends6 != began.Unix() || k.Began != began.Unix() {
		t.Errorf("%+v, %v", k, err)
	}
}

func TestAServerThatTakesACircuitTakesItsSessions(t *testing.T) {
	l := newLine(t, server4())
	l.binds(1)
	// The new server comes first, then the old one lets go.
	l.carryOut(l.SetServer("new", server4(), l.now))
	elsewhere := server4()
	elsewhere.OuterVlans = []string{"300"}
	l.carryOut(l.SetServer("homes", elsewhere, l.now))
	for _, c := range l.clients {
		if ends, _ := l.Ends("new", nil); c.server != "new" || ends != 1 {
			t.Error(c.server)
		}
	}
	// With another profile, the Manager knows whether the lines move.
	office := server4()
	office.Profile = "office"
	if ends, others := l.Ends("new", office); ends != 0 || len(others) != 1 {
		t.Error(ends, others)
	}
	l.actions = nil
	l.carryOut(l.SetServer("new", office, l.now))
	if !slices.ContainsFunc(l.actions, func(a Action) bool { s, is := a.(Serve); return is && s.Profile == "office" && l.sessions[s.ID] }) {
		t.Error(l.actions)
	}
	if l.carryOut(l.SetServer("new", nil, l.now)); len(l.sessions)+len(l.clients)+l.ordered.Len() != 0 {
		t.Error("its clients are kept")
	}
}

func TestAServerThatChangesOrGoesTakesItsSessionsAlong(t *testing.T) {
	for _, change := range []func() *api.IpoeServer{func() *api.IpoeServer { return nil }, func() *api.IpoeServer {
		s := server4()
		s.OuterVlans = []string{"300"}
		return s
	}} {
		l := newLine(t, server4())
		l.ask4(dhcpv4.MessageTypeDiscover)
		for _, c := range []struct {
			name string
			spec *api.IpoeServer
			ends int
		}{{"homes", change(), 1}, {"others", nil, 0}, {"homes", server4(), 0}} {
			if ends, others := l.Ends(c.name, c.spec); ends != c.ends || len(others) != 0 {
				t.Error(c, ends, others)
			}
		}
		l.carryOut(l.SetServer("homes", change(), l.now))
		if len(l.sessions)+len(l.clients)+l.timers.Len() != 0 {
			t.Error("its clients are kept")
		}
	}
}

func FuzzReceive(f *testing.F) {
	datagram := func(from, to string, b []byte) []byte {
		return frame(cpe, 100, 7, dhcp.Datagram(netip.MustParseAddrPort(from), netip.MustParseAddrPort(to), b))
	}
	f.Add(byte(0), datagram("0.0.0.0:68", "255.255.255.255:67", discover4(dhcpv4.MessageTypeDiscover)))
	f.Add(byte(0), datagram("0.0.0.0:68", "255.255.255.255:67", discover4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))))
	f.Add(byte(1), datagram("[fe80::1]:546", "[ff02::1:2]:547", []byte{1, 1, 2, 3, 0, 1, 0, 4, 0, 3, 0, 1, 0, 3, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}))
	f.Add(byte(2), arpOf(cpe, offered))
	f.Add(byte(3), frame(cpe, 100, 7, make([]byte, 20)))
	f.Add(byte(4), solicitation6(host, dhcp.LinkLocal(port)))
	f.Add(byte(4), solicitation6(netip.IPv6Unspecified(), host))
	reasons := []string{"dhcp4", "dhcp6", "arp", "first-packet", "nd"}
	f.Fuzz(func(t *testing.T, reason byte, b []byte) {
		spec := server4()
		spec.Methods = []api.IpoeMethod{api.IpoeMethod_IPOE_DHCP4, api.IpoeMethod_IPOE_DHCP6, api.IpoeMethod_IPOE_FIRST_PACKET}
		l := newLine(t, spec)
		l.grant.IPv4, l.grant.IPv6 = offered, host
		for range 2 {
			l.receive(reasons[int(reason)%len(reasons)], b)
			l.now = l.now.Add(time.Second)
			l.carryOut(l.Tick(l.now))
		}
		if len(l.byID) > len(l.clients) || len(l.clients) > 2 {
			t.Error(fmt.Sprint(l.clients))
		}
	})
}

// FuzzMessage puts the fuzzed message behind valid headers.
func FuzzMessage(f *testing.F) {
	f.Add(false, discover4(dhcpv4.MessageTypeDiscover))
	f.Add(false, discover4(dhcpv4.MessageTypeDiscover, dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation,
		[]byte{1, 1, 'c', 9, 11, 0, 0, 0x0d, 0xe9, 6, 0x81, 4, 0, 0, 0x4e, 0x20}))))
	f.Add(true, []byte{12, 0, 31: 0, 33: 1, 34: 0, 35: 9, 36: 0, 37: 4, 38: 1, 39: 1, 40: 2, 41: 3})
	f.Add(true, append([]byte{12, 33: 0}, 0, 17, 0, 12, 0, 0, 0x0d, 0xe9, 0, 0x81, 0, 4, 0, 0, 0x4e, 0x20))
	f.Fuzz(func(t *testing.T, six bool, b []byte) {
		l := newLine(t, server4())
		if len(b) > 1400 {
			return
		}
		if six {
			l.receive("dhcp6", frame(cpe, 100, 7, dhcp.Datagram(netip.AddrPortFrom(dhcp.LinkLocal(cpe), client6), netip.MustParseAddrPort("[ff02::1:2]:547"), b)))
		} else {
			l.receive("dhcp4", frame(cpe, 100, 7, dhcp.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), b)))
		}
	})
}
