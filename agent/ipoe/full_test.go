// SPDX-License-Identifier: Apache-2.0

package ipoe

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

// asks sends a message of another MAC of the line, and returns the number of answers.
func (l *line) asks(number byte, kind dhcpv4.MessageType, change ...dhcpv4.Modifier) int {
	mac := dhcp.MAC{2, 1, 0, 0, 0, number}
	d := discover4(kind, append([]dhcpv4.Modifier{dhcpv4.WithHwAddr(net.HardwareAddr(mac[:]))}, change...)...)
	l.receive("dhcp4", frame(mac, 100, 7, dhcp.Datagram(netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67"), d)))
	return len(l.sent)
}

// binds gives a MAC a lease.
func (l *line) binds(number byte) {
	l.t.Helper()
	if l.asks(number, dhcpv4.MessageTypeDiscover) != 1 || l.asks(number, dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway)) != 1 {
		l.t.Fatalf("%d gets no lease: %v", number, l.drops())
	}
}

// passes lets time pass, and returns the number of frames that the machine sends.
func (l *line) passes(d time.Duration) int {
	l.now, l.sent, l.actions = l.now.Add(d), nil, nil
	l.carryOut(l.Tick(l.now))
	return len(l.sent)
}

func alone() *api.IpoeServer {
	spec := server4()
	spec.ClientsPerCircuit, spec.LeaseTime = 1, 3600e9
	return spec
}

func TestANewCPETakesThePlaceOfOneThatIsSilent(t *testing.T) {
	l := newLine(t, alone())
	l.packets = map[string]uint64{"session-1": 100}
	l.binds(1)
	l.passes(placeTime)
	if l.asks(2, dhcpv4.MessageTypeDiscover) != 0 || len(l.drops()) != 0 || len(l.sessions) != 1 {
		t.Errorf("%v, %v", l.drops(), l.sessions)
	}
	if l.asks(2, dhcpv4.MessageTypeDiscover) != 0 || l.passes(silenceTime-time.Second) != 0 {
		t.Error("the counters of no client were read")
	}
	if l.passes(time.Second) != 1 || !l.sessions["2"] || len(l.sessions) != 1 {
		t.Fatalf("%v, %v", l.actions, l.sessions)
	}
	if d, is := l.actions[slices.IndexFunc(l.actions, func(a Action) bool { _, is := a.(Disconnect); return is })].(Disconnect); !is || d.ID != "1" || d.Cause != subscriber.PortPreempted {
		t.Errorf("%v", l.actions)
	}
	if len(l.contests)+l.contestTimers.Len() != 0 {
		t.Errorf("%v", l.contests)
	}
	// The old one is back at once: the new one keeps its place for a while.
	l.packets["session-2"] = 0
	if l.asks(1, dhcpv4.MessageTypeDiscover); !slices.Equal(l.drops(), []string{"too-many-clients"}) || len(l.contests) != 0 {
		t.Errorf("%v", l.drops())
	}
}

func TestAClientThatSendsKeepsItsPlace(t *testing.T) {
	l := newLine(t, alone())
	l.packets = map[string]uint64{"session-1": 100}
	l.binds(1)
	l.passes(placeTime)
	l.asks(2, dhcpv4.MessageTypeDiscover)
	l.packets["session-1"]++
	if l.passes(silenceTime) != 0 || !l.sessions["1"] {
		t.Errorf("%v, %v", l.actions, l.sessions)
	}
	// For a while, the counters are not read again.
	if l.asks(2, dhcpv4.MessageTypeDiscover); !slices.Equal(l.drops(), []string{"too-many-clients"}) {
		t.Errorf("%v", l.actions)
	}
	if l.passes(refusalTime); len(l.contests)+l.contestTimers.Len() != 0 {
		t.Error("the line is left alone for ever")
	}
	// One that renews meanwhile keeps its place, too.
	l.asks(2, dhcpv4.MessageTypeDiscover)
	l.asks(1, dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(offered.AsSlice()))
	if l.passes(silenceTime) != 0 || !l.sessions["1"] {
		t.Errorf("%v, %v", l.actions, l.sessions)
	}
	// And all do while the data plane does not answer.
	l.passes(placeTime)
	l.packets = nil
	l.asks(2, dhcpv4.MessageTypeDiscover)
	if l.passes(silenceTime) != 0 || !l.sessions["1"] || len(l.contests)+l.contestTimers.Len() != 0 {
		t.Errorf("%v, %v", l.actions, l.sessions)
	}
}

func TestOfSeveralClientsTheSilentOneGivesWay(t *testing.T) {
	spec := alone()
	spec.ClientsPerCircuit = 3
	l := newLine(t, spec)
	l.packets = map[string]uint64{"session-1": 1, "session-2": 1, "session-3": 1}
	for number := range byte(3) {
		l.binds(1 + number)
		l.passes(time.Second)
	}
	l.passes(placeTime)
	l.asks(4, dhcpv4.MessageTypeDiscover)
	// Only one new client is waited with.
	if l.asks(5, dhcpv4.MessageTypeDiscover); !slices.Equal(l.drops(), []string{"too-many-clients"}) {
		t.Errorf("%v", l.drops())
	}
	l.packets["session-1"]++
	if l.passes(silenceTime) != 1 || l.sessions["2"] || !l.sessions["1"] || !l.sessions["3"] || !l.sessions["4"] {
		t.Errorf("%v, %v", l.actions, l.sessions)
	}
	// A place that is free is taken at once.
	l.asks(1, dhcpv4.MessageTypeRelease, dhcpv4.WithClientIP(offered.AsSlice()))
	if l.asks(5, dhcpv4.MessageTypeDiscover) != 1 {
		t.Errorf("%v", l.drops())
	}
	l.SetServer("homes", nil, l.now)
	if len(l.clients)+len(l.ofLine)+len(l.contests)+l.contestTimers.Len()+l.timers.Len() != 0 {
		t.Error("something is left")
	}
}

func TestAServerMayRefuseNewClientsOfAFullLine(t *testing.T) {
	spec := alone()
	spec.OnFullCircuit = api.FullCircuit_REFUSE_NEW_CLIENT
	l := newLine(t, spec)
	l.packets = map[string]uint64{"session-1": 1}
	l.binds(1)
	l.passes(10 * time.Minute)
	if l.asks(2, dhcpv4.MessageTypeDiscover); !slices.Equal(l.drops(), []string{"too-many-clients"}) || l.passes(silenceTime) != 0 || !l.sessions["1"] {
		t.Errorf("%v, %v", l.drops(), l.sessions)
	}
}

// information is option 82 of an access node's line.
func information(circuitID string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, append([]byte{1, byte(len(circuitID))}, circuitID...)))
}

func TestClientsAreCountedByTheLineOfATrustedAccessNode(t *testing.T) {
	spec := alone()
	spec.OffersPerCircuit = 1
	l := newLine(t, spec)
	l.packets = map[string]uint64{}
	for number, id := range []string{"1/1", "1/2", "1/3"} {
		if l.asks(byte(number), dhcpv4.MessageTypeDiscover, information(id)) != 1 {
			t.Errorf("%s gets no offer: %v", id, l.drops())
		}
	}
	// A second client of a line.
	if l.asks(9, dhcpv4.MessageTypeDiscover, information("1/2")); len(l.sessions) != 3 || !slices.Equal(l.drops(), []string{"too-many-clients"}) && !slices.Equal(l.drops(), []string{"too-many-offers"}) {
		t.Errorf("%v", l.drops())
	}
	l.SetServer("homes", nil, l.now)
	if len(l.clients)+len(l.ofLine)+len(l.pending)+len(l.refused)+l.timers.Len() != 0 {
		t.Error("something is left")
	}
}

func TestAMACOnAnotherLineDoesNotGetTheSessionOfItsLine(t *testing.T) {
	l := newLine(t, alone())
	l.packets = map[string]uint64{"session-1": 5}
	here, there, id := information("1/1"), information("1/2"), serverID(gateway)
	l.asks(1, dhcpv4.MessageTypeDiscover, here)
	if l.asks(1, dhcpv4.MessageTypeRequest, here, requested(offered), id) != 1 {
		t.Fatal(l.drops())
	}
	ip := dhcpv4.WithClientIP(offered.AsSlice())
	foreign := func() {
		t.Helper()
		for _, of := range []struct {
			kind   dhcpv4.MessageType
			change []dhcpv4.Modifier
			why    string
		}{
			{dhcpv4.MessageTypeDiscover, nil, "another-line"}, {dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{requested(offered)}, "another-line"},
			{dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{requested(offered), serverID(netip.MustParseAddr("192.0.2.9"))}, "another-line"},
			{dhcpv4.MessageTypeRelease, []dhcpv4.Modifier{ip}, "another-line"}, {dhcpv4.MessageTypeDecline, []dhcpv4.Modifier{requested(offered)}, "another-line"},
			{dhcpv4.MessageTypeInform, []dhcpv4.Modifier{ip}, "no-lease"},
		} {
			if l.asks(1, of.kind, append(of.change, there)...) != 0 || !slices.Equal(l.drops(), []string{of.why}) || !l.sessions["1"] {
				t.Errorf("%s: %v, %v", of.kind, l.drops(), l.sessions)
			}
		}
	}
	foreign()
	// A renewal by unicast may be without the information.
	if l.asks(1, dhcpv4.MessageTypeRequest, ip) != 1 {
		t.Error(l.drops())
	}
	// Also after a restart of the agent.
	var state []byte
	for _, a := range l.actions {
		if save, is := a.(Save); is {
			state = save.State
		}
	}
	request := subscriber.Request{ID: "1", Protocol: "dhcp4", Line: subscriber.Line{Circuit: subscriber.Circuit{Dataplane: "default", Port: "access", OuterVLAN: 100, InnerVLAN: 7},
		MAC: subscriber.MAC{2, 1, 0, 0, 0, 1}, CircuitID: []byte("1/1")}}
	again := newLine(t, alone())
	again.packets, again.sessions, again.now = l.packets, l.sessions, l.now
	n := 1
	again.newID = func() string { n++; return strconv.Itoa(n) }
	lease := again.given(true, false)
	lease.Session = "session-1"
	again.carryOut(again.Restore(subscriber.Connection{Request: request, State: state}, lease, l.now))
	l = again
	l.asks(1, dhcpv4.MessageTypeRequest, here, ip)
	foreign()
	// The client was moved: it is silent on its line.
	l.passes(placeTime)
	if l.asks(1, dhcpv4.MessageTypeDiscover, there) != 0 || l.passes(silenceTime) != 1 || l.sessions["1"] || len(l.sessions) != 1 {
		t.Errorf("%v, %v", l.drops(), l.sessions)
	}
	if len(l.ofLine) != 1 || len(l.contests) != 0 {
		t.Errorf("%v, %v", l.ofLine, l.contests)
	}
}
