// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

// subscribers is the relay of subscribers, which a Manager knows.
func subscribers() *Machine {
	spec := home()
	spec.Profile, spec.Policy, spec.RelayInformation = "homes", nil, api.RelayInformation_TRUST_INFORMATION
	m := machine(spec)
	m.Managed(true, began)
	return m
}

var granted = subscriber.Answer{Grant: subscriber.Grant{Username: "alice", IPv4Pools: []string{"other"}, IPv4: netip.MustParseAddr("100.64.66.66"),
	RateUp: subscriber.Rate{BitsPerSecond: 1e6}, Routes: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/29")}}}

// admitted takes a client through authentication and an exchange with the second server, to the Manager's Connect.
func admitted(t *testing.T, m *Machine) Connect {
	t.Helper()
	information := dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, []byte{1, 3, 'o', 'l', 't', 2, 1, 'r'}))
	out := m.client4(dhcpv4.MessageTypeDiscover, information, dhcpv4.WithOption(dhcpv4.OptClassIdentifier("cpe")))
	r := one[Authenticate](t, out).Request
	if len(all[ToServer](out)) != 0 || r.Profile != "homes" || string(r.Line.CircuitID) != "olt" || string(r.Line.RemoteID) != "r" || r.Service != "cpe" ||
		r.Line.MAC != subscriber.MAC(client) || r.Line.OuterVLAN != 100 || r.Line.Port != "access" {
		t.Fatalf("%+v", out)
	}
	// It repeats itself, and waits.
	if out = m.client4(dhcpv4.MessageTypeDiscover, information); len(out) != 0 {
		t.Fatalf("%+v", out)
	}
	sent := all[ToServer](m.Authenticated(r.ID, granted, began))
	if len(sent) != 2 {
		t.Fatalf("the DISCOVER goes to %d servers", len(sent))
	}
	offer, _, _ := reply(t, m.Receive(answer4(t, sent[1], dhcpv4.MessageTypeOffer), began))
	out = m.client4(dhcpv4.MessageTypeRequest, information, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())),
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)))
	out = m.Receive(answer4(t, one[ToServer](t, out), dhcpv4.MessageTypeAck), began)
	if len(all[ToClient](out))+len(all[PutSession](out)) != 0 || len(one[Save](t, out).Value) == 0 {
		t.Fatalf("%+v", out)
	}
	return one[Connect](t, out)
}

func TestASubscriberOfARelayIsAuthenticatedBeforeAServerHearsOfIt(t *testing.T) {
	m := subscribers()
	c := admitted(t, m).Connection
	if g := c.Grant; g.IPv4 != address || !c.IPv4 || c.IPv6 || !c.AssignedElsewhere || g.Username != "alice" || g.RateUp.BitsPerSecond != 1e6 ||
		!slices.Equal(g.Routes, granted.Grant.Routes) || c.Access.Mac != client.String() || c.Protocol != "dhcp-relay" {
		t.Errorf("%+v", c)
	}
	// The data plane has the session: the client gets its ACK once the record of its lease is kept, too.
	out := m.Connected(c.ID, nil, began)
	if len(all[ToClient](out)) != 0 {
		t.Errorf("%+v", out)
	}
	if ack, _, _ := reply(t, one[AfterSaved](t, out).Then); ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("%v", ack)
	}
	if len(m.unbound)+len(m.byID)+len(m.unboundOf)+m.unboundEnds.Len() != 0 {
		t.Error("an unbound client is left")
	}
	// Its renewals go to the server at once, and change nothing.
	out = m.client4(dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(address.AsSlice()))
	out = m.Receive(answer4(t, all[ToServer](out)[1], dhcpv4.MessageTypeAck), began)
	if reply(t, out); len(all[Extend](out)) != 0 {
		t.Errorf("%+v", out)
	}
	// The ACK waits for the record of the new end.
	if kept := one[Save](t, out); len(kept.Value) == 0 || len(all[ToClient](kept.Then)) != 1 {
		t.Errorf("%+v", out)
	}
	// The lease ends.
	if d := one[Disconnect](t, m.Tick(began.Add(time.Hour))); d.ID != c.ID || d.Cause != subscriber.LostCarrier {
		t.Errorf("%+v", d)
	}
	if m.Leases()+len(m.bySession) != 0 {
		t.Error("a lease is left")
	}
}

func TestAddressesOfASubscriberOfARelayChangeOneAfterTheOther(t *testing.T) {
	m := subscribers()
	c := admitted(t, m).Connection
	l := m.bySession[c.ID]
	prefix, more := netip.MustParsePrefix("2001:db8:7::/56"), netip.MustParsePrefix("2001:db8:8::/56")
	// IPv6 comes while the Manager connects the session.
	l.hold(prefix, time.Hour, began)
	later := ToClient{Port: "later"}
	m.settle(l, later)
	if out := m.done(); len(all[Extend](out))+len(all[Connect](out))+len(all[ToClient](out)) != 0 {
		t.Fatalf("%+v", out)
	}
	out := m.Connected(c.ID, nil, began)
	if sent := all[ToClient](one[AfterSaved](t, out).Then); len(sent) != 1 || sent[0].Port == "later" {
		t.Fatalf("%+v", out)
	}
	one[Extend](t, out).Change(&c)
	if c.Grant.Delegated != prefix || c.Grant.IPv4 != address || !c.IPv6 {
		t.Errorf("%+v", c)
	}
	if sent := one[ToClient](t, one[AfterSaved](t, m.Connected(c.ID, nil, began)).Then); sent.Port != "later" {
		t.Errorf("%+v", sent)
	}
	l.hold(more, time.Hour, began)
	m.settle(l)
	one[Extend](t, m.done()).Change(&c)
	if !slices.Equal(c.Grant.Routes, []netip.Prefix{granted.Grant.Routes[0], more}) {
		t.Errorf("%+v", c.Grant)
	}
	m.Connected(c.ID, nil, began)
	// A restart: the lease and the session are as they were.
	again := New()
	if err := again.Restore(l.record()); err != nil {
		t.Fatal(err)
	}
	again.SetPort(plane, "access", accessMAC)
	spec := home()
	spec.Profile = "homes"
	out = append(again.SetRelay("home", spec, began), again.Restored(began)...)
	out = append(out, again.RestoreSession(c, began)...)
	out = append(out, again.Managed(true, began)...)
	if n := len(all[Connect](out)) + len(all[Extend](out)) + len(all[Disconnect](out)); n != 0 || again.Leases() != 1 {
		t.Errorf("%+v", out)
	}
	if again.bySession[c.ID].session.grant.Username != "alice" {
		t.Error("the grant is lost")
	}
	// A session without a lease, and a lease without a session.
	c.ID = "another"
	if d := one[Disconnect](t, again.RestoreSession(c, began)); d.ID != "another" {
		t.Errorf("%+v", d)
	}
	lost := New()
	if err := lost.Restore(l.record()); err != nil {
		t.Fatal(err)
	}
	lost.SetRelay("home", spec, began)
	lost.Restored(began)
	if out := lost.Managed(true, began); lost.Leases() != 0 || len(all[Connect](out)) != 0 {
		t.Errorf("%+v", out)
	}
}

func TestSubscribersOfARelayEnd(t *testing.T) {
	for name, end := range map[string]func(*Machine, string) []Action{
		"by their release": func(m *Machine, _ string) []Action {
			return m.client4(dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(address.AsSlice()))
		},
		"by the Manager":        func(m *Machine, id string) []Action { return m.Terminated(id, began) },
		"refused by it":         func(m *Machine, id string) []Action { return m.Connected(id, errors.New("no"), began) },
		"with their relay":      func(m *Machine, _ string) []Action { return m.SetRelay("home", nil, began) },
		"without their profile": func(m *Machine, _ string) []Action { return m.SetRelay("home", home(), began) },
	} {
		m := subscribers()
		id := admitted(t, m).Connection.ID
		if name != "refused by it" {
			m.Connected(id, nil, began)
		}
		out := end(m, id)
		if m.Leases()+len(m.bySession) != 0 || len(all[ToClient](out)) != 0 || len(all[DeleteSession](out)) != 0 {
			t.Errorf("%s: %+v", name, out)
		}
		if len(all[Disconnect](out)) != 1 || one[Save](t, out).Value != nil {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

func TestALightweightRelayAgentIdentifiesTheLineOfASubscriber(t *testing.T) {
	m := subscribers()
	solicit := forward6(0, netip.IPv6Unspecified(), linkLocal(client), "olt", "r", broadbandForum, client, from6(t, dhcpv6.MessageTypeSolicit).ToBytes())
	// 20,000 kbit/s upstream, and a sub-option that is longer than the option; then numbers of another vendor.
	solicit = option6(solicit, optionVendor, []byte{0, 0, 0x0d, 0xe9, 0, 0x81, 0, 4, 0, 0, 0x4e, 0x20, 0, 0x82, 0, 5, 0})
	solicit = option6(solicit, optionVendor, []byte{0, 0, 0, 9, 0, 0x83, 0, 1, 1})
	line := one[Authenticate](t, m.client6(solicit)).Request.Line
	if string(line.CircuitID) != "olt" || string(line.RemoteID) != "r" || len(line.Attributes) != 1 || string(line.Attributes[0x81]) != "\x00\x00\x4e\x20" {
		t.Errorf("%+v", line)
	}
}

func TestARefusedSessionPausesItsClient(t *testing.T) {
	m := subscribers()
	id := admitted(t, m).Connection.ID
	m.Connected(id, errors.New("no"), began)
	if out := m.client4(dhcpv4.MessageTypeDiscover); dropped(out) != "rejected" || len(all[Authenticate](out))+len(all[ToServer](out)) != 0 {
		t.Errorf("%+v", out)
	}
	if out := m.Tick(began.Add(refusalTime)); len(out) != 0 || len(m.unbound)+len(m.byID)+len(m.unboundOf)+len(m.refusedOf)+m.refused.Len() != 0 {
		t.Errorf("%+v", out)
	}
	one[Authenticate](t, m.client4(dhcpv4.MessageTypeDiscover))
}

func TestAChangeThatIsRefusedLeavesTheEarlierAddresses(t *testing.T) {
	m := subscribers()
	id := admitted(t, m).Connection.ID
	m.Connected(id, nil, began)
	l := m.bySession[id]
	refused, later := netip.MustParsePrefix("2001:db8:7::/56"), netip.MustParsePrefix("2001:db8:8::/56")
	l.hold(refused, time.Hour, began)
	m.settle(l, ToClient{Port: "refused"})
	one[Extend](t, m.done())
	// Another prefix comes meanwhile.
	l.hold(later, time.Hour, began)
	m.settle(l, ToClient{Port: "later"})
	m.done()
	out := m.Connected(id, errors.New("no"), began)
	if len(all[ToClient](out))+len(all[Disconnect](out)) != 0 || m.Leases() != 1 || len(l.bindings) != 2 || l.address4() != address {
		t.Fatalf("%+v: %v", out, l.bindings)
	}
	var c subscriber.Connection
	if one[Extend](t, out).Change(&c); c.Grant.IPv4 != address || c.Grant.Delegated != later {
		t.Errorf("%+v", c)
	}
	if sent := one[ToClient](t, one[AfterSaved](t, m.Connected(id, nil, began)).Then); sent.Port != "later" {
		t.Errorf("%+v", sent)
	}
	// Without any address that the data plane has, the lease ends.
	l.drop(func(binding) bool { return true })
	l.hold(refused, time.Hour, began)
	m.settle(l)
	m.done()
	if d := one[Disconnect](t, m.Connected(id, errors.New("no"), began)); d.Cause != subscriber.NASError || m.Leases() != 0 {
		t.Errorf("%+v", d)
	}
	// A session that the Manager does not have has no address.
	m = subscribers()
	id = admitted(t, m).Connection.ID
	m.Connected(id, nil, began)
	m.bySession[id].hold(refused, time.Hour, began)
	m.settle(m.bySession[id])
	if m.done(); len(m.Connected(id, subscriber.ErrNoSession, began)) == 0 || m.Leases() != 0 {
		t.Error("a lease without a session goes on")
	}
}

func TestUnboundClientsThatWereRefusedMakeRoom(t *testing.T) {
	m := subscribers() // with two leases of a circuit
	ask := func(number byte) []Action {
		mac := MAC{2, 1, 0, 0, 0, number}
		d := datagram{netip.AddrPortFrom(netip.IPv4Unspecified(), client4), netip.AddrPortFrom(everybody4, port4), from4(dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(mac[:]))}
		return m.Receive(Packet{Dataplane: plane, Port: "access", Frame: tagged(mac, 100, 7, d)}, began)
	}
	first := one[Authenticate](t, ask(1)).Request.ID
	m.Authenticated(one[Authenticate](t, ask(2)).Request.ID, subscriber.Answer{Reject: errors.New("no")}, began)
	for number := range byte(100) {
		m.Authenticated(one[Authenticate](t, ask(3+number)).Request.ID, subscriber.Answer{Reject: errors.New("no")}, began)
	}
	// One that waits keeps its place, and so does one that is accepted.
	one[Authenticate](t, ask(200))
	if out := ask(201); dropped(out) != "too-many-leases" || len(m.unbound) != 2 {
		t.Errorf("%+v", out)
	}
	if len(all[ToServer](m.Authenticated(first, granted, began))) != 2 {
		t.Error("the first one lost its place")
	}
	if out := ask(201); dropped(out) != "too-many-leases" || len(m.refusedOf)+m.refused.Len() != 0 {
		t.Errorf("%+v", out)
	}
}

func TestTheServiceSendsAnACKAfterTheRecordOfItsLease(t *testing.T) {
	log, err := durable.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	table, err := log.Table("dhcp")
	if err != nil {
		t.Fatal(err)
	}
	s := &relaying{Environment: service.Environment{Records: table}, stored: make(chan stored, 1)}
	s.carryOut([]Action{Save{Key: "a", Value: []byte("lease")}})
	record := s.last
	if packets := s.carryOut([]Action{AfterSaved{[]Action{ToClient{Port: "access"}}}}); len(packets) != 0 {
		t.Errorf("%+v", packets)
	}
	if waits := <-s.stored; waits.pending != record || record == (durable.Pending{}) || one[ToClient](t, waits.then).Port != "access" {
		t.Errorf("%+v", waits)
	}
}

func TestTheServiceSendsNoACKWhileTheDataPlaneDoesNotHaveTheSession(t *testing.T) {
	for name, c := range map[string]struct {
		result service.Result
		sent   int
		line   string
	}{
		"forwarding":        {service.Result{Done: true}, 1, ""},
		"an object missing": {service.Result{}, 0, "waits for Meter/missing"},
		"refused":           {service.Result{Err: errors.New("no room")}, 0, "no room"},
	} {
		var log bytes.Buffer
		s := &relaying{Environment: service.Environment{Log: slog.New(slog.NewTextHandler(&log, nil))}, machine: New(), stored: make(chan stored, 1),
			drops: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "drops"}, []string{"family", "reason"})}
		put := PutSession{Name: leased, Session: &api.Session{Policy: &api.Policy{MeterUp: "missing"}}, Then: []Action{ToClient{Port: "access"}}}
		s.sessionPut(put, durable.Pending{}, c.result, "waits for Meter/missing")
		if len(s.stored) != c.sent || c.line == "" && log.Len() > 0 || !strings.Contains(log.String(), c.line) {
			t.Errorf("%s: %d sent, log %s", name, len(s.stored), log.String())
		}
	}
}

func TestARejectedSubscriberReachesNoServer(t *testing.T) {
	m := subscribers()
	id := one[Authenticate](t, m.client4(dhcpv4.MessageTypeDiscover)).Request.ID
	if out := m.Authenticated(id, subscriber.Answer{Reject: errors.New("no")}, began); dropped(out) != "rejected" || len(all[ToServer](out)) != 0 {
		t.Errorf("%+v", out)
	}
	if out := m.client4(dhcpv4.MessageTypeDiscover); dropped(out) != "rejected" || len(all[Authenticate](out)) != 0 {
		t.Errorf("%+v", out)
	}
	// Nor does a server hear a message about addresses: the client has none.
	for _, kind := range []dhcpv6.MessageType{dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline} {
		if out := m.client6(from6(t, kind, withLeases(0)...).ToBytes()); dropped(out) != "no-lease" || len(all[ToServer](out)) != 0 {
			t.Errorf("%v: %+v", kind, out)
		}
	}
	m.Tick(began.Add(refusalTime))
	one[Authenticate](t, m.client4(dhcpv4.MessageTypeDiscover))
	// Clients of a circuit that wait for the back ends are limited.
	for i, want := range []string{"", "too-many-leases"} {
		d := datagram{netip.AddrPortFrom(netip.IPv4Unspecified(), client4), netip.AddrPortFrom(everybody4, port4), nil}
		mac := MAC{2, 0, 0, 0, 1, byte(i)}
		d.payload = from4(dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(mac[:]))
		if why := dropped(m.Receive(Packet{Dataplane: plane, Port: "access", Frame: tagged(mac, 100, 7, d)}, began)); why != want {
			t.Errorf("%d: %q", i, why)
		}
	}
	// Without a Manager no client is served.
	m.Managed(false, began)
	if why := dropped(m.client4(dhcpv4.MessageTypeDiscover)); why != "not-ready" {
		t.Errorf("%q", why)
	}
}
