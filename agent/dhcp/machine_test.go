// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"sluice.dev/sluice/agent/api"
)

const plane = "default"

var (
	client     = MAC{2, 0, 0, 0, 0, 9}
	accessMAC  = MAC{2, 0, 0, 0, 0, 1}
	giaddr     = netip.MustParseAddr("100.64.0.1")
	link       = netip.MustParseAddr("2001:db8:64::1")
	server4    = netip.MustParseAddr("192.0.2.53")
	second4    = netip.MustParseAddr("192.0.2.54")
	server6    = netip.MustParseAddr("2001:db8::53")
	address    = netip.MustParseAddr("100.64.1.7")
	everybody4 = netip.MustParseAddr("255.255.255.255")
	began      = time.Unix(1_800_000_000, 0)
)

const leased = "dhcp-home-100.7-020000000009"

func home() *api.DhcpRelay {
	return &api.DhcpRelay{Port: "access", OuterVlans: []string{"100-199"}, InnerVlans: []string{"1-4094"},
		Servers: []string{server4.String(), second4.String(), server6.String()}, Interface: "gateway", LeasesPerCircuit: 2,
		Policy: &api.Policy{MeterUp: "slow"}}
}

func machine(relay *api.DhcpRelay) *Machine {
	m := New()
	m.SetPort(plane, "access", accessMAC)
	m.SetInterface("gateway", &api.Interface{Addresses: []string{"100.64.0.1/32", "2001:db8:64::1/128"}})
	m.SetInterface("core", &api.Interface{Port: "core"})
	m.SetInterface("elsewhere", &api.Interface{Port: "core", Vrf: "other"})
	m.SetRelay("home", relay, began)
	return m
}

// tagged is a frame of the client's circuit around an IP packet.
func tagged(source MAC, outer, inner uint16, d datagram) []byte {
	b := append(append([]byte{}, accessMAC[:]...), source[:]...)
	b = append(b, 0x88, 0xa8, byte(outer>>8), byte(outer), 0x81, 0, byte(inner>>8), byte(inner))
	b = binary.BigEndian.AppendUint16(b, etherType(d.source.Addr()))
	return append(b, d.packet()...)
}

func from4(kind dhcpv4.MessageType, change ...dhcpv4.Modifier) []byte {
	change = append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(net.HardwareAddr(client[:])), dhcpv4.WithTransactionID(dhcpv4.TransactionID{1, 2, 3, 4}), dhcpv4.WithMessageType(kind)}, change...)
	d, err := dhcpv4.New(change...)
	if err != nil {
		panic(err)
	}
	return d.ToBytes()
}

func (m *Machine) client4(kind dhcpv4.MessageType, change ...dhcpv4.Modifier) []Action {
	d := datagram{netip.AddrPortFrom(netip.IPv4Unspecified(), client4), netip.AddrPortFrom(everybody4, port4), from4(kind, change...)}
	return m.Receive(Packet{Dataplane: plane, Port: "access", Frame: tagged(client, 100, 7, d)}, began)
}

// server is a packet of a server as it comes in at the core.
func server(from, to netip.Addr, port uint16, payload []byte) Packet {
	d := datagram{netip.AddrPortFrom(from, port), netip.AddrPortFrom(to, port), payload}
	b := binary.BigEndian.AppendUint16(append(append([]byte{}, accessMAC[:]...), 2, 0, 0, 0, 0, 8), etherType(from))
	return Packet{Dataplane: plane, Port: "core", Interface: "core", Frame: append(b, d.packet()...)}
}

// answer4 is a server's answer to a relayed packet.
func answer4(t *testing.T, sent ToServer, kind dhcpv4.MessageType, change ...dhcpv4.Modifier) Packet {
	t.Helper()
	request, at := decoded4(t, sent)
	change = append([]dhcpv4.Modifier{dhcpv4.WithMessageType(kind), dhcpv4.WithServerIP(at.AsSlice()), dhcpv4.WithYourIP(address.AsSlice()),
		dhcpv4.WithLeaseTime(600), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(at.AsSlice()))}, change...)
	reply, err := dhcpv4.NewReplyFromRequest(request, change...)
	if err != nil {
		t.Fatal(err)
	}
	return server(at, giaddr, port4, reply.ToBytes())
}

func decoded4(t *testing.T, sent ToServer) (*dhcpv4.DHCPv4, netip.Addr) {
	t.Helper()
	d, ok := parseDatagram(typeIPv4, sent.Packet)
	if !ok {
		t.Fatalf("not a datagram: %x", sent.Packet)
	}
	request, err := dhcpv4.FromBytes(d.payload)
	if err != nil {
		t.Fatal(err)
	}
	return request, d.destination.Addr()
}

func all[T any](actions []Action) []T {
	var found []T
	for _, a := range actions {
		if one, is := a.(T); is {
			found = append(found, one)
		}
		switch a := a.(type) {
		case PutSession:
			found = append(found, all[T](a.Then)...)
		case Save:
			found = append(found, all[T](a.Then)...)
		}
	}
	return found
}

func one[T any](t *testing.T, actions []Action) T {
	t.Helper()
	found := all[T](actions)
	if len(found) != 1 {
		t.Fatalf("%d of %T in %v", len(found), *new(T), actions)
	}
	return found[0]
}

func dropped(actions []Action) string {
	for _, c := range all[Count](actions) {
		if c.Drop != "" {
			return c.Drop
		}
	}
	return ""
}

// reply is the packet to the client.
func reply(t *testing.T, actions []Action) (*dhcpv4.DHCPv4, datagram, frame) {
	t.Helper()
	f, ok := parseFrame(one[ToClient](t, actions).Frame)
	if !ok {
		t.Fatal("not a frame")
	}
	d, ok := parseDatagram(f.etherType, f.payload)
	if !ok {
		t.Fatal("not a datagram")
	}
	m, err := dhcpv4.FromBytes(d.payload)
	if err != nil {
		t.Fatal(err)
	}
	return m, d, f
}

// lease4 takes a client through an exchange with the second server.
func lease4(t *testing.T, m *Machine) []Action {
	t.Helper()
	out := m.client4(dhcpv4.MessageTypeDiscover)
	sent := all[ToServer](out)
	if len(sent) != 2 {
		t.Fatalf("a DISCOVER goes to %d servers", len(sent))
	}
	offer, _, _ := reply(t, m.Receive(answer4(t, sent[1], dhcpv4.MessageTypeOffer), began))
	out = m.client4(dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)))
	return m.Receive(answer4(t, one[ToServer](t, out), dhcpv4.MessageTypeAck), began)
}

func TestADiscoverReachesEveryServerWithTheCircuitsInformation(t *testing.T) {
	m := machine(home())
	request, to := decoded4(t, all[ToServer](m.client4(dhcpv4.MessageTypeDiscover))[0])
	if to != server4 || request.HopCount != 1 || !request.GatewayIPAddr.Equal(giaddr.AsSlice()) {
		t.Errorf("to %v: %v", to, request)
	}
	information := request.RelayAgentInfo()
	if got := string(information.Get(dhcpv4.AgentCircuitIDSubOption)); got != "access:100.7" {
		t.Errorf("circuit-id %q", got)
	}
	if got := string(information.Get(dhcpv4.AgentRemoteIDSubOption)); got != client.String() {
		t.Errorf("remote-id %q", got)
	}
}

func TestALeaseIsASessionBeforeItsClientHearsOfIt(t *testing.T) {
	m := machine(home())
	out := lease4(t, m)
	put := one[PutSession](t, out)
	if put.Name != leased || put.Session.Access.Mac != client.String() || !slices.Equal(put.Session.Addresses, []string{"100.64.1.7/32"}) || put.Session.Policy.GetMeterUp() != "slow" {
		t.Errorf("%s: %v", put.Name, put.Session)
	}
	if one[Save](t, out).Key != leased || len(put.Then) != 1 {
		t.Errorf("%v", out)
	}
	ack, d, f := reply(t, out)
	if !ack.ServerIdentifier().Equal(giaddr.AsSlice()) || ack.RelayAgentInfo() != nil {
		t.Errorf("the client gets %v", ack.Summary())
	}
	if f.source != accessMAC || f.outer != 100 || f.inner != 7 || f.tags[0] != 0x88 || d.source.Addr() != giaddr || d.destination.Port() != client4 {
		t.Errorf("%+v %+v", f, d)
	}
}

func TestARequestGoesToTheServerWhoseOfferItTakes(t *testing.T) {
	m := machine(home())
	lease4(t, m)
	// Renewing: to us, as we are the server.
	d := datagram{netip.AddrPortFrom(address, client4), netip.AddrPortFrom(giaddr, port4), from4(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(address.AsSlice()))}
	p := Packet{Dataplane: plane, Port: "access", Session: leased, Frame: tagged(client, 100, 7, d)}
	out := m.Receive(p, began)
	if _, to := decoded4(t, one[ToServer](t, out)); to != second4 {
		t.Errorf("the renewal goes to %v", to)
	}
	out = m.Receive(answer4(t, one[ToServer](t, out), dhcpv4.MessageTypeAck), began.Add(time.Minute))
	if len(all[PutSession](out)) != 0 {
		t.Error("a renewal puts the session again")
	}
	reply(t, out)
	if got := m.Tick(began.Add(601 * time.Second)); len(all[DeleteSession](got)) != 0 {
		t.Error("a renewed lease ended when it would have without")
	}
	if got := m.Tick(began.Add(661 * time.Second)); one[DeleteSession](t, got).Name != leased {
		t.Error("the lease did not end")
	}
	if m.Leases() != 0 || m.ends.Len() != 0 || len(m.ofCircuit) != 0 {
		t.Errorf("%d leases, %d ends, circuits %v", m.Leases(), m.ends.Len(), m.ofCircuit)
	}
}

func TestAReleaseEndsTheSessionAndReachesTheServer(t *testing.T) {
	m := machine(home())
	lease4(t, m)
	out := m.client4(dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(address.AsSlice()), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(giaddr.AsSlice())))
	request, to := decoded4(t, one[ToServer](t, out))
	if to != second4 || !request.ServerIdentifier().Equal(second4.AsSlice()) {
		t.Errorf("to %v: %v", to, request.Summary())
	}
	if one[DeleteSession](t, out).Name != leased || one[Save](t, out).Value != nil {
		t.Errorf("%v", out)
	}
	if why := dropped(m.client4(dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(address.AsSlice()))); why != "no-lease" {
		t.Errorf("a second release: %q", why)
	}
}

func TestALeaseOutlivesTheMachine(t *testing.T) {
	m := machine(home())
	stored := one[Save](t, lease4(t, m))
	again := New()
	if err := again.Restore(stored.Value); err != nil {
		t.Fatal(err)
	}
	again.SetPort(plane, "access", accessMAC)
	again.SetInterface("gateway", &api.Interface{Addresses: []string{"100.64.0.1/32", "2001:db8:64::1/128"}})
	again.SetInterface("core", &api.Interface{Port: "core"})
	out := append(again.SetRelay("home", home(), began), again.Restored(began)...)
	if put := one[PutSession](t, out); put.Name != leased {
		t.Errorf("%v", put)
	}
	if got := again.Tick(began.Add(601 * time.Second)); one[DeleteSession](t, got).Name != leased {
		t.Error("the lease did not end")
	}
	// Of a relay that is gone.
	lost := New()
	if err := lost.Restore(stored.Value); err != nil {
		t.Fatal(err)
	}
	if out := lost.Restored(began); one[DeleteSession](t, out).Name != leased || one[Save](t, out).Value != nil {
		t.Errorf("%v", out)
	}
	for _, wrong := range []string{"", "{}", `{"mac":"0200"}`, `{"mac":"020000000009","bindings":[{"prefix":"x"}]}`, `{"mac":"020000000009","server":"x"}`} {
		if err := New().Restore([]byte(wrong)); err == nil {
			t.Errorf("%q is taken for a lease", wrong)
		}
	}
}

func TestARefusedSessionIsNoLease(t *testing.T) {
	m := machine(home())
	lease4(t, m)
	refused := errors.New("refused")
	if out := m.SessionPut(leased, 1, refused, false, began); one[DeleteSession](t, out).Name != leased || m.Leases() != 0 {
		t.Errorf("%v", out)
	}
	if out := m.SessionPut(leased, 1, refused, false, began); len(out) != 0 {
		t.Errorf("%v", out)
	}
}

func TestALeaseWhoseSessionTheDataPlaneNeverHadIsForgotten(t *testing.T) {
	m := machine(home())
	put := one[PutSession](t, lease4(t, m))
	// The result of an earlier form says nothing about the present one.
	if out := m.SessionPut(leased, put.Number-1, nil, false, began); len(out) != 0 || m.Leases() != 1 {
		t.Errorf("%v", out)
	}
	if out := m.SessionPut(leased, put.Number, nil, false, began); one[DeleteSession](t, out).Name != leased || m.Leases() != 0 {
		t.Errorf("%v", out)
	}
}

func TestAnACKWaitsUntilTheDataPlaneHasTheChangedSession(t *testing.T) {
	m := machine(home())
	put := one[PutSession](t, lease4(t, m))
	m.SessionPut(leased, put.Number, nil, true, began)
	spec := home()
	spec.Policy = &api.Policy{MeterUp: "missing"}
	put = one[PutSession](t, m.SetRelay("home", spec, began))
	if out := m.SessionPut(leased, put.Number, nil, false, began); len(out) != 0 || m.Leases() != 1 {
		t.Errorf("%v", out)
	}
	// The renewal puts the session again, and its ACK waits for the result.
	out := m.client4(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(address.AsSlice()))
	out = m.Receive(answer4(t, all[ToServer](out)[0], dhcpv4.MessageTypeAck), began)
	if put = one[PutSession](t, out); len(all[ToClient](put.Then)) != 1 || len(all[ToClient](out)) != 1 {
		t.Errorf("%v", out)
	}
}

func TestForbiddenMessagesOfAClientAreDropped(t *testing.T) {
	information := dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, []byte{1, 1, 'x'}))
	hidden := func(d *dhcpv4.DHCPv4) {
		d.ServerHostName = "\x52\x03\x01\x01x\xff"
		dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionOptionOverload, []byte{2}))(d)
	}
	for _, c := range []struct {
		why    string
		trust  api.RelayInformation
		kind   dhcpv4.MessageType
		change dhcpv4.Modifier
	}{
		{"malformed", 0, dhcpv4.MessageTypeDiscover, func(d *dhcpv4.DHCPv4) { d.OpCode = dhcpv4.OpcodeBootReply }},
		{"malformed", 0, dhcpv4.MessageTypeDiscover, func(d *dhcpv4.DHCPv4) { d.HWType = iana.HWTypeARCNET }},
		{"mac-mismatch", 0, dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 10})},
		{"relayed-before", 0, dhcpv4.MessageTypeDiscover, dhcpv4.WithGatewayIP(net.IP{100, 64, 0, 9})},
		{"too-many-hops", 0, dhcpv4.MessageTypeDiscover, func(d *dhcpv4.DHCPv4) { d.HopCount = 4 }},
		{"relay-information", 0, dhcpv4.MessageTypeDiscover, information},
		{"relay-information", api.RelayInformation_OVERWRITE_INFORMATION, dhcpv4.MessageTypeDiscover, hidden},
		{"", api.RelayInformation_OVERWRITE_INFORMATION, dhcpv4.MessageTypeDiscover, information},
		{"", api.RelayInformation_TRUST_INFORMATION, dhcpv4.MessageTypeDiscover, information},
		{"not-of-a-client", 0, dhcpv4.MessageTypeOffer, nil},
		{"not-of-a-client", 0, dhcpv4.MessageTypeNone, nil},
		{"unknown-server", 0, dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(giaddr.AsSlice()))},
		{"no-lease", 0, dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(address.AsSlice())},
		{"no-lease", 0, dhcpv4.MessageTypeDecline, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address.AsSlice()))},
	} {
		spec := home()
		spec.RelayInformation = c.trust
		var change []dhcpv4.Modifier
		if c.change != nil {
			change = append(change, c.change)
		}
		out := machine(spec).client4(c.kind, change...)
		if got := dropped(out); got != c.why {
			t.Errorf("%s: %q, not %q", c.kind, got, c.why)
		}
		sent := all[ToServer](out)
		if (len(sent) == 0) != (c.why != "") {
			t.Errorf("%s (%s): %d packets", c.kind, c.why, len(sent))
		}
		if len(sent) > 0 {
			request, _ := decoded4(t, sent[0])
			id := string(request.RelayAgentInfo().Get(dhcpv4.AgentCircuitIDSubOption))
			if stored := id == "x"; stored != (c.trust == api.RelayInformation_TRUST_INFORMATION) {
				t.Errorf("%v: circuit-id %q", c.trust, id)
			}
		}
	}
}

func TestTrustedInformationReachesTheAccessNodeAgain(t *testing.T) {
	information := dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, []byte{1, 1, 'x'}))
	for _, c := range []struct {
		trust api.RelayInformation
		sent  []dhcpv4.Modifier
		back  string
	}{
		{api.RelayInformation_TRUST_INFORMATION, []dhcpv4.Modifier{information}, "x"},
		{api.RelayInformation_TRUST_INFORMATION, nil, ""},
		{api.RelayInformation_OVERWRITE_INFORMATION, []dhcpv4.Modifier{information}, ""},
	} {
		spec := home()
		spec.RelayInformation = c.trust
		m := machine(spec)
		sent := all[ToServer](m.client4(dhcpv4.MessageTypeDiscover, c.sent...))[0]
		request, _ := decoded4(t, sent)
		echoed := dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, request.Options.Get(dhcpv4.OptionRelayAgentInformation)))
		offer, _, _ := reply(t, m.Receive(answer4(t, sent, dhcpv4.MessageTypeOffer, echoed), began))
		got := ""
		if i := offer.RelayAgentInfo(); i != nil {
			got = string(i.Get(dhcpv4.AgentCircuitIDSubOption))
		}
		if got != c.back {
			t.Errorf("%v: circuit-id %q towards the client, not %q", c.trust, got, c.back)
		}
	}
}

func TestOptionsAreDroppedReplacedAndSetInBothDirections(t *testing.T) {
	spec := home()
	spec.Options = []*api.DhcpOptionRule{
		{Code: 12},
		{Code: 60, Action: api.DhcpOptionAction_REPLACE_OPTION, Text: "{relay}@{port}:{outer}.{inner}"},
		{Code: 61, Action: api.DhcpOptionAction_SET_OPTION, Text: "{mac}"},
		{Code: 77, Action: api.DhcpOptionAction_REPLACE_OPTION, Text: "not there"},
		{Code: 121, Direction: api.DhcpDirection_TO_CLIENT, Action: api.DhcpOptionAction_SET_OPTION, Hex: "0064400001"},
		{Code: 6, Direction: api.DhcpDirection_TO_CLIENT},
		{Code: 15, Direction: api.DhcpDirection_TO_CLIENT, Action: api.DhcpOptionAction_REPLACE_OPTION, Text: "example.net"},
	}
	option := func(code uint8, value string) dhcpv4.Modifier {
		return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), []byte(value)))
	}
	get := func(d *dhcpv4.DHCPv4, code uint8) string {
		return string(d.Options.Get(dhcpv4.GenericOptionCode(code)))
	}
	for _, own := range []string{"", "\x01mine"} {
		m := machine(spec)
		// Longer than one option may be (RFC 3396): all parts are one value.
		change := []dhcpv4.Modifier{option(12, "my-host"), option(60, strings.Repeat("v", 300)), option(43, "as it was")}
		if own != "" {
			change = append(change, option(61, own))
		}
		sent := all[ToServer](m.client4(dhcpv4.MessageTypeDiscover, change...))[0]
		request, _ := decoded4(t, sent)
		for code, value := range map[uint8]string{12: "", 60: "home@access:100.7", 61: client.String(), 77: "", 43: "as it was"} {
			if got := get(request, code); got != value {
				t.Errorf("option %d to the server: %q, not %q", code, got, value)
			}
		}
		out := m.Receive(answer4(t, sent, dhcpv4.MessageTypeOffer, option(61, client.String()), option(6, "\xc0\x00\x02\x01"), option(15, "example.com")), began)
		offer, _, _ := reply(t, out)
		for code, value := range map[uint8]string{61: own, 121: "\x00\x64\x40\x00\x01", 6: "", 15: "example.net"} {
			if got := get(offer, code); got != value {
				t.Errorf("option %d to the client: %q, not %q", code, got, value)
			}
		}
		if offer.MessageType() != dhcpv4.MessageTypeOffer || offer.IPAddressLeaseTime(0) != 600*time.Second || !offer.ServerIdentifier().Equal(giaddr.AsSlice()) {
			t.Errorf("%v", offer.Summary())
		}
	}
	// A message that does not fit into a packet is not sent.
	m := machine(spec)
	if why := dropped(m.client4(dhcpv4.MessageTypeDiscover, option(43, strings.Repeat("x", 1230)))); why != "too-long" {
		t.Errorf("a message that is too long: %q", why)
	}
}

func TestForbiddenMessagesOfAServerAreDropped(t *testing.T) {
	for _, c := range []struct {
		why    string
		change func(p *Packet, d *datagram)
	}{
		{"not-a-server", func(_ *Packet, d *datagram) { d.source = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.99"), port4) }},
		{"not-a-server", func(p *Packet, _ *datagram) { p.Session = "subscriber-1" }},
		{"not-a-server", func(p *Packet, _ *datagram) { p.Interface = "" }},
		{"not-a-server", func(p *Packet, _ *datagram) { p.Interface = "elsewhere" }},
		{"unasked", func(_ *Packet, d *datagram) { d.payload[4]++ }},
		{"unasked", func(_ *Packet, d *datagram) { d.payload[33]++ }},
		{"unasked", func(_ *Packet, d *datagram) { d.payload[27]++ }},
		{"unasked", func(p *Packet, _ *datagram) { p.Dataplane = "another" }},
		{"malformed", func(_ *Packet, d *datagram) { d.payload[0] = 1 }},
		{"", func(*Packet, *datagram) {}},
	} {
		m := machine(home())
		p := answer4(t, all[ToServer](m.client4(dhcpv4.MessageTypeDiscover))[0], dhcpv4.MessageTypeOffer)
		d, _ := parseDatagram(typeIPv4, p.Frame[14:])
		d.payload = slices.Clone(d.payload)
		c.change(&p, &d)
		p.Frame = append(slices.Clone(p.Frame[:14]), d.packet()...)
		if got := dropped(m.Receive(p, began)); got != c.why {
			t.Errorf("%q, not %q", got, c.why)
		}
	}
}

func TestANakEndsTheLease(t *testing.T) {
	m := machine(home())
	lease4(t, m)
	out := m.client4(dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address.AsSlice())))
	sent := all[ToServer](out)
	out = m.Receive(answer4(t, sent[0], dhcpv4.MessageTypeNak), began)
	_, d, f := reply(t, out)
	if one[DeleteSession](t, out).Name != leased || d.destination.Addr() != everybody4 || f.destination != broadcast {
		t.Errorf("%v", out)
	}
}

func TestClientsAndExchangesAreBounded(t *testing.T) {
	m := machine(home())
	macs := 0
	discover := func(mac MAC, xid uint32) []Action {
		d := datagram{netip.AddrPortFrom(netip.IPv4Unspecified(), client4), netip.AddrPortFrom(everybody4, port4),
			from4(dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(net.HardwareAddr(mac[:])), dhcpv4.WithTransactionID(dhcpv4.TransactionID(binary.BigEndian.AppendUint32(nil, xid))))}
		return m.Receive(Packet{Dataplane: plane, Port: "access", Frame: tagged(mac, 100, 7, d)}, began)
	}
	quiet := MAC{2, 1}
	discover(quiet, 1)
	for xid := range uint32(1000) {
		discover(client, xid)
	}
	if got := m.transactions.all.Len(); got != transactionsOfMAC+1 {
		t.Errorf("a MAC has %d exchanges", got-1)
	}
	for ; macs < 1000; macs++ {
		discover(MAC{2, 2, 0, 0, byte(macs >> 8), byte(macs)}, 5)
	}
	if got := m.transactions.all.Len(); got != transactionsOfCircuit || len(m.transactions.by) != got {
		t.Errorf("a circuit has %d exchanges, %d by key", got, len(m.transactions.by))
	}
	m.Tick(began.Add(transactionTime))
	if len(m.transactions.by)+len(m.transactions.circuits)+len(m.transactions.macs)+m.transactions.all.Len() != 0 {
		t.Error("unanswered exchanges are kept")
	}
	// Two leases of the circuit are all.
	for i := range byte(2) {
		m.enter(&lease{client: clientKey{circuit{"home", "access", 100, 7}, MAC{2, 3, i}}, bindings: []binding{{prefix: netip.PrefixFrom(address, 32)}}})
	}
	if why := dropped(discover(quiet, 1)); why != "too-many-leases" {
		t.Errorf("a third client: %q", why)
	}
}

func TestClientsOfCircuitsThatAreNoRelaysAreNotCounted(t *testing.T) {
	m := machine(home())
	d := datagram{netip.AddrPortFrom(netip.IPv4Unspecified(), client4), netip.AddrPortFrom(everybody4, port4), from4(dhcpv4.MessageTypeDiscover)}
	if out := m.Receive(Packet{Dataplane: plane, Port: "access", Frame: tagged(client, 300, 7, d)}, began); len(out) != 0 {
		t.Errorf("%v", out)
	}
	d = datagram{netip.AddrPortFrom(linkLocal(client), client6), netip.AddrPortFrom(netip.MustParseAddr("ff02::1:2"), port6), from6(t, dhcpv6.MessageTypeSolicit).ToBytes()}
	if out := m.Receive(Packet{Dataplane: plane, Port: "access", Frame: tagged(client, 300, 7, d)}, began); len(out) != 0 {
		t.Errorf("%v", out)
	}
}

func TestARelayThatChangesOrGoesTakesItsSessionsAlong(t *testing.T) {
	m := machine(home())
	lease4(t, m)
	spec := home()
	spec.Policy = &api.Policy{MeterUp: "fast"}
	if put := one[PutSession](t, m.SetRelay("home", spec, began)); put.Session.Policy.GetMeterUp() != "fast" {
		t.Errorf("%v", put)
	}
	spec = home()
	spec.OuterVlans = []string{"200"}
	out := m.SetRelay("home", spec, began)
	if one[DeleteSession](t, out).Name != leased || one[PutPunt](t, out).Punt.GetOuterVlans()[0] != "200" {
		t.Errorf("%v", out)
	}
	if out := m.SetRelay("home", nil, began); one[DeletePunt](t, out).Name != "dhcp-home" {
		t.Errorf("%v", out)
	}
}

// ---- IPv6

func (m *Machine) client6(message []byte) []Action {
	d := datagram{netip.AddrPortFrom(linkLocal(client), client6), netip.AddrPortFrom(netip.MustParseAddr("ff02::1:2"), port6), message}
	return m.Receive(Packet{Dataplane: plane, Port: "access", Frame: tagged(client, 100, 7, d)}, began)
}

func from6(t *testing.T, kind dhcpv6.MessageType, change ...dhcpv6.Modifier) *dhcpv6.Message {
	t.Helper()
	d, err := dhcpv6.NewMessage(change...)
	if err != nil {
		t.Fatal(err)
	}
	d.MessageType, d.TransactionID = kind, dhcpv6.TransactionID{1, 2, 3}
	return d
}

func withLeases(lifetime time.Duration) []dhcpv6.Modifier {
	return []dhcpv6.Modifier{
		dhcpv6.WithIANA(dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP("2001:db8:64::7"), PreferredLifetime: lifetime, ValidLifetime: lifetime}),
		dhcpv6.WithIAPD([4]byte{1}, &dhcpv6.OptIAPrefix{PreferredLifetime: lifetime, ValidLifetime: lifetime,
			Prefix: &net.IPNet{IP: net.ParseIP("2001:db8:6400:100::"), Mask: net.CIDRMask(56, 128)}}),
	}
}

// answer6 is a server's answer to a relayed packet.
func answer6(t *testing.T, sent ToServer, kind dhcpv6.MessageType, change ...dhcpv6.Modifier) Packet {
	t.Helper()
	d, ok := parseDatagram(typeIPv6, sent.Packet)
	if !ok {
		t.Fatal("not a datagram")
	}
	forward, err := dhcpv6.RelayMessageFromBytes(d.payload)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := dhcpv6.NewRelayReplFromRelayForw(forward, from6(t, kind, change...))
	if err != nil {
		t.Fatal(err)
	}
	return server(server6, link, port6, reply.ToBytes())
}

func TestAReplyOfDhcp6IsASession(t *testing.T) {
	m := machine(home())
	sent := one[ToServer](t, m.client6(from6(t, dhcpv6.MessageTypeSolicit, withLeases(0)...).ToBytes()))
	d, _ := parseDatagram(typeIPv6, sent.Packet)
	forward, err := dhcpv6.RelayMessageFromBytes(d.payload)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(forward.Options.InterfaceID()); got != "access:100.7" {
		t.Errorf("Interface-Id %q", got)
	}
	if got := forward.Options.RemoteID(); got == nil || got.EnterpriseNumber != 3561 || string(got.RemoteID) != client.String() {
		t.Errorf("Remote-ID %v", got)
	}
	if !forward.LinkAddr.Equal(link.AsSlice()) || d.source.Addr() != link {
		t.Errorf("%v from %v", forward.LinkAddr, d.source)
	}
	out := m.Receive(answer6(t, sent, dhcpv6.MessageTypeAdvertise, withLeases(600*time.Second)...), began)
	if len(all[PutSession](out)) != 0 {
		t.Error("an Advertise is no lease")
	}
	one[ToClient](t, out)
	sent = one[ToServer](t, m.client6(from6(t, dhcpv6.MessageTypeRequest, withLeases(0)...).ToBytes()))
	out = m.Receive(answer6(t, sent, dhcpv6.MessageTypeReply, withLeases(600*time.Second)...), began)
	put := one[PutSession](t, out)
	if got := strings.Join(put.Session.Addresses, " "); got != "2001:db8:6400:100::/56 2001:db8:64::7/128" {
		t.Errorf("addresses %s", got)
	}
	f, _ := parseFrame(one[ToClient](t, out).Frame)
	back, ok := parseDatagram(f.etherType, f.payload)
	if !ok || back.source.Addr() != linkLocal(accessMAC) || back.destination != netip.AddrPortFrom(linkLocal(client), client6) || f.destination != client {
		t.Errorf("%+v %+v", f, back)
	}
	// IPv4 of the same client is the same session.
	if put := one[PutSession](t, lease4(t, m)); len(put.Session.Addresses) != 3 {
		t.Errorf("%v", put.Session)
	}
	out = m.client6(from6(t, dhcpv6.MessageTypeRelease, withLeases(0)...).ToBytes())
	if put := one[PutSession](t, out); !slices.Equal(put.Session.Addresses, []string{"100.64.1.7/32"}) {
		t.Errorf("%v", put.Session)
	}
}

func TestALightweightRelayAgentAsksAllServersOfItsUplink(t *testing.T) {
	coreMAC := MAC{2, 0, 0, 0, 0, 5}
	spec := home()
	spec.Servers, spec.Interface, spec.Uplink = nil, "", "core"
	m := New()
	m.SetPort(plane, "access", accessMAC)
	m.SetInterface("core", &api.Interface{Port: "core"})
	if punt := one[PutPunt](t, m.SetRelay("home", spec, began)).Punt; !slices.Equal(punt.Protocols, []api.PuntProtocol{api.PuntProtocol_DHCP6}) {
		t.Errorf("%v", punt)
	}
	solicit := from6(t, dhcpv6.MessageTypeSolicit, withLeases(0)...).ToBytes()
	if why := dropped(m.client6(solicit)); why != "port-without-mac" || !m.NeedsPort(plane) {
		t.Errorf("without the MAC of the uplink's port: %q", why)
	}
	m.SetPort(plane, "core", coreMAC)
	if m.NeedsPort(plane) {
		t.Error("a port whose MAC is known is needed")
	}

	m.client6(solicit)
	sent := one[ToLink](t, m.client6(from6(t, dhcpv6.MessageTypeRequest, withLeases(0)...).ToBytes()))
	f, ok := parseFrame(sent.Frame)
	d, whole := parseDatagram(f.etherType, f.payload)
	if !ok || !whole || sent.Interface != "core" || f.destination != (MAC{0x33, 0x33, 0, 1, 0, 2}) || f.source != coreMAC {
		t.Fatalf("%+v", sent)
	}
	if d.source != netip.AddrPortFrom(linkLocal(coreMAC), 547) || d.destination != netip.MustParseAddrPort("[ff02::1:2]:547") {
		t.Errorf("%+v", d)
	}
	forward, err := dhcpv6.RelayMessageFromBytes(d.payload)
	if err != nil {
		t.Fatal(err)
	}
	if !forward.LinkAddr.IsUnspecified() || forward.HopCount != 0 || !forward.PeerAddr.Equal(linkLocal(client).AsSlice()) {
		t.Errorf("%v", forward)
	}
	if id, remote := forward.Options.InterfaceID(), forward.Options.RemoteID(); string(id) != "access:100.7" || remote == nil || string(remote.RemoteID) != client.String() {
		t.Errorf("Interface-Id %q, Remote-ID %v", id, remote)
	}

	reply, err := dhcpv6.NewRelayReplFromRelayForw(forward, from6(t, dhcpv6.MessageTypeReply, withLeases(600*time.Second)...))
	if err != nil {
		t.Fatal(err)
	}
	answer := server(netip.MustParseAddr("fe80::99"), linkLocal(coreMAC), port6, reply.ToBytes())
	for _, c := range []struct {
		why    string
		change func(p *Packet)
	}{
		{"not-a-server", func(p *Packet) { p.Interface = "elsewhere" }},
		{"not-a-server", func(p *Packet) { p.Session = "subscriber-1" }},
		{"unasked", func(p *Packet) {
			p.Frame = server(netip.MustParseAddr("fe80::99"), link, port6, reply.ToBytes()).Frame
		}},
	} {
		p := answer
		c.change(&p)
		if got := dropped(m.Receive(p, began)); got != c.why {
			t.Errorf("%q, not %q", got, c.why)
		}
	}
	out := m.Receive(answer, began)
	put := one[PutSession](t, out)
	if got := strings.Join(put.Session.Addresses, " "); got != "2001:db8:6400:100::/56 2001:db8:64::7/128" {
		t.Errorf("addresses %s", got)
	}
	f, _ = parseFrame(one[ToClient](t, out).Frame)
	back, ok := parseDatagram(f.etherType, f.payload)
	if !ok || back.destination != netip.AddrPortFrom(linkLocal(client), client6) || back.payload[0] != byte(dhcpv6.MessageTypeReply) {
		t.Errorf("%+v", back)
	}
}

func TestRelayMessagesOfClientsAreTrustedOnlyIfConfigured(t *testing.T) {
	solicit := from6(t, dhcpv6.MessageTypeSolicit).ToBytes()
	around := func(hops uint8, message []byte) []byte {
		return forward6(hops, netip.IPv6Unspecified(), linkLocal(client), "port 7", "", 1, client, message)
	}
	for _, c := range []struct {
		why     string
		trust   api.RelayInformation
		message []byte
	}{
		{"relay-information", api.RelayInformation_REFUSE_INFORMATION, around(0, solicit)},
		{"relay-information", api.RelayInformation_OVERWRITE_INFORMATION, around(0, solicit)},
		{"", api.RelayInformation_TRUST_INFORMATION, around(0, solicit)},
		{"", api.RelayInformation_TRUST_INFORMATION, around(3, around(0, solicit))},
		{"too-many-hops", api.RelayInformation_TRUST_INFORMATION, around(4, solicit)},
		{"not-of-a-client", api.RelayInformation_TRUST_INFORMATION, append([]byte{relayReply}, around(0, solicit)[1:]...)},
		{"not-of-a-client", 0, from6(t, dhcpv6.MessageTypeReply).ToBytes()},
		{"malformed", 0, solicit[:3]},
	} {
		spec := home()
		spec.RelayInformation = c.trust
		m := machine(spec)
		out := m.client6(c.message)
		if got := dropped(out); got != c.why {
			t.Errorf("%q, not %q", got, c.why)
		}
		if c.why != "" {
			continue
		}
		// The answer is a relay's for the relay that asked.
		f, _ := parseFrame(one[ToClient](t, m.Receive(answer6(t, one[ToServer](t, out), dhcpv6.MessageTypeAdvertise), began)).Frame)
		back, ok := parseDatagram(f.etherType, f.payload)
		if !ok || back.destination.Port() != port6 || back.payload[0] != relayReply {
			t.Errorf("%+v", back)
		}
		// A server without configuration of that relay.
		m = machine(spec)
		sent := one[ToServer](t, m.client6(c.message))
		d, _ := parseDatagram(typeIPv6, sent.Packet)
		bare := forward6(0, link, linkLocal(client), "access:100.7", "", 1, client, from6(t, dhcpv6.MessageTypeAdvertise).ToBytes())
		bare[0] = relayReply
		if why := dropped(m.Receive(server(server6, d.source.Addr(), port6, bare), began)); why != "not-of-a-server" {
			t.Errorf("%q", why)
		}
	}
	deep := solicit
	for range deepest6 + 1 {
		deep = around(0, deep)
	}
	if _, err := parse6(deep); err == nil {
		t.Error("messages may be within any number of others")
	}
}
