// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// discovers is the servers that get the DISCOVER of an exchange.
func discovers(t *testing.T, m *Machine, number byte, now time.Time) (sent []ToServer, to []netip.Addr, notices []ServerState) {
	t.Helper()
	d := datagram{netip.AddrPortFrom(netip.IPv4Unspecified(), client4), netip.AddrPortFrom(everybody4, port4),
		from4(dhcpv4.MessageTypeDiscover, dhcpv4.WithTransactionID(dhcpv4.TransactionID{9, 9, 9, number}))}
	out := m.Receive(Packet{Dataplane: plane, Port: "access", Frame: tagged(client, 100, 7, d)}, now)
	for _, one := range all[ToServer](out) {
		_, at := decoded4(t, one)
		sent, to = append(sent, one), append(to, at)
	}
	return sent, to, all[ServerState](out)
}

func TestTheRelaysOfAServerAreFound(t *testing.T) {
	m := machine(home())
	alone := home()
	alone.Servers, alone.OuterVlans = []string{second4.String()}, []string{"300"}
	m.SetRelay("alone", alone, began)
	if found := m.relaysOf(second4, "default"); len(found) != 2 || !found["home"] || found["alone"] {
		t.Errorf("%v", found)
	}
	if found := m.relaysOf(server6, "default"); len(found) != 1 || found["home"] || len(m.relaysOf(second4, "other"))+len(m.relaysOf(giaddr, "default")) != 0 {
		t.Errorf("%v", found)
	}
}

func TestAServerThatDoesNotAnswerIsSkippedUntilItIsBack(t *testing.T) {
	m := machine(home())
	now := began
	var sent []ToServer
	var notices []ServerState
	for number := range byte(silentMessages) {
		var to []netip.Addr
		if sent, to, notices = discovers(t, m, number, now); len(to) != 2 || len(notices) != 0 && number < silentMessages-1 {
			t.Fatalf("%d: %v, %v", number, to, notices)
		}
		m.Receive(answer4(t, sent[0], dhcpv4.MessageTypeOffer), now)
		now = now.Add(2 * time.Second)
	}
	if len(notices) != 1 || notices[0] != (ServerState{second4, "default", true}) {
		t.Fatalf("%v", notices)
	}
	if sent, to, _ := discovers(t, m, 100, now); len(to) != 1 || to[0] != server4 {
		t.Errorf("%v", to)
	} else if _, to, _ = discovers(t, m, 100, now); len(to) != 2 {
		// A client that repeats itself got no answer.
		t.Errorf("%v", to)
	} else {
		m.Receive(answer4(t, sent[0], dhcpv4.MessageTypeOffer), now)
	}
	// From time to time it gets a message. It answers, and is asked again.
	now = now.Add(probeTime)
	sent, to, _ := discovers(t, m, 101, now)
	if len(to) != 2 {
		t.Fatalf("%v", to)
	}
	m.Receive(answer4(t, sent[0], dhcpv4.MessageTypeOffer), now)
	if _, to, _ := discovers(t, m, 102, now); len(to) != 1 {
		t.Errorf("%v", to)
	}
	if back := one[ServerState](t, m.Receive(answer4(t, sent[1], dhcpv4.MessageTypeOffer), now)); back.Silent || back.Server != second4 {
		t.Errorf("%v", back)
	}
	if _, to, _ := discovers(t, m, 103, now); len(to) != 2 {
		t.Errorf("%v", to)
	}
}

func TestWithoutAnyServerThatAnswersAllAreAsked(t *testing.T) {
	m := machine(home())
	now := began
	for number := range byte(30) {
		if _, to, _ := discovers(t, m, number, now); len(to) != 2 {
			t.Fatalf("%v", to)
		}
		now = now.Add(time.Second)
	}
}

func TestARenewalAtAServerThatDoesNotAnswerReachesTheOthers(t *testing.T) {
	m := machine(home())
	sent, _, _ := discovers(t, m, 0, began)
	m.Receive(answer4(t, sent[1], dhcpv4.MessageTypeOffer), began)
	request := func(now time.Time, destination netip.Addr, change ...dhcpv4.Modifier) []Action {
		d := datagram{netip.AddrPortFrom(netip.IPv4Unspecified(), client4), netip.AddrPortFrom(destination, port4), from4(dhcpv4.MessageTypeRequest, change...)}
		return m.Receive(Packet{Dataplane: plane, Port: "access", Frame: tagged(client, 100, 7, d)}, now)
	}
	id := dhcpv4.WithTransactionID(dhcpv4.TransactionID{9, 9, 9, 0})
	out := request(began, everybody4, id, dhcpv4.WithOption(dhcpv4.OptServerIdentifier(giaddr.AsSlice())), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(address.AsSlice())))
	out = m.Receive(answer4(t, one[ToServer](t, out), dhcpv4.MessageTypeAck), began)
	one[PutSession](t, out)
	now := began
	for number := range byte(silentMessages) {
		sent, _, _ := discovers(t, m, 1+number, now)
		m.Receive(answer4(t, sent[0], dhcpv4.MessageTypeOffer), now)
		now = now.Add(2 * time.Second)
	}
	renewed := all[ToServer](request(now, giaddr, dhcpv4.WithClientIP(address.AsSlice())))
	if len(renewed) != 1 {
		t.Fatalf("%d servers", len(renewed))
	}
	if _, at := decoded4(t, renewed[0]); at != server4 {
		t.Errorf("the renewal goes to %s", at)
	}
}
