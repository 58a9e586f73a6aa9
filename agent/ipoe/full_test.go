// SPDX-License-Identifier: Apache-2.0

package ipoe

import (
	"net"
	"net/netip"
	"slices"
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
		t.Error("nobody was listened to")
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
	// For a while, nobody is listened to again.
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
	if len(l.clients)+len(l.ofCircuit)+len(l.contests)+l.contestTimers.Len()+l.timers.Len() != 0 {
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
