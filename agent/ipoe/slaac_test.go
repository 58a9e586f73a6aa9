// SPDX-License-Identifier: Apache-2.0

package ipoe

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

var ofLink = netip.MustParsePrefix("2001:db8:1:7::/64")

// links is a line whose sessions have a prefix for the link.
func links(t *testing.T, methods ...api.IpoeMethod) *line {
	spec := server4()
	spec.Methods = append(methods, api.IpoeMethod_IPOE_SLAAC)
	l := newLine(t, spec)
	l.packets = map[string]uint64{"session-1": 0}
	l.lease.IPv6, l.lease.IPv6Prefix = netip.Addr{}, ofLink
	return l
}

// solicits sends a router solicitation, and returns the options of the advertisement; nil: there is none.
func (l *line) solicits() []byte {
	l.t.Helper()
	from, to := dhcp.LinkLocal(cpe).As16(), netip.MustParseAddr("ff02::2").As16()
	packet := append([]byte{0x60, 0, 0, 0, 0, 8, protocolICMP6, 255}, from[:]...)
	l.receive("nd", frame(cpe, 100, 7, append(append(packet, to[:]...), solicitation, 0, 0, 0, 0, 0, 0, 0)))
	return l.advertised()
}

func (l *line) advertised() []byte {
	if len(l.sent) == 0 {
		return nil
	}
	_, _, _, _, _, ip, ok := dhcp.ParseEthernet(l.sent[len(l.sent)-1])
	if !ok || ip[header6] != advertisement {
		l.t.Fatalf("%x", l.sent)
	}
	return ip[header6+5:]
}

// from sends an IPv6 packet without a session.
func (l *line) from(source netip.Addr) {
	a, to := source.As16(), host.As16()
	packet := append([]byte{0x60, 0, 0, 0, 0, 0, 59, 64}, a[:]...)
	l.receive("first-packet", frame(cpe, 100, 7, append(packet, to[:]...)))
}

func TestARouterSolicitationBringsUpAHostWithoutDHCP(t *testing.T) {
	l := links(t)
	a := l.solicits()
	prefix := ofLink.Addr().As16()
	if a == nil || a[0] != 0 || !bytes.Contains(a, append([]byte{3, 4, 64, 0x40}, 0, 0)) || !bytes.Contains(a, prefix[:]) || !bytes.Contains(a, []byte{25, 3, 0, 0}) ||
		!l.sessions["1"] {
		t.Fatalf("%x: %v", a, l.actions)
	}
	// It is no client of DHCP, and no IPv4 packet begins a session.
	if l.ask4(dhcpv4.MessageTypeDiscover) != nil || len(l.sessions) != 1 {
		t.Errorf("%v", l.actions)
	}
	// While it sends, its session lasts; also without a lease.
	for n := range 5 {
		l.packets["session-1"] = uint64(1 + n)
		if l.passes(600 * time.Second); !l.sessions["1"] {
			t.Fatalf("it ends after %d times: %v", n, l.actions)
		}
	}
	// The data plane does not answer: nothing ends.
	before := l.packets
	l.packets = nil
	if l.passes(700 * time.Second); !l.sessions["1"] {
		t.Fatal("it ends without an answer")
	}
	l.packets = before
	if l.passes(patience); len(l.sessions)+len(l.clients)+len(l.byID)+l.timers.Len() != 0 {
		t.Errorf("it is silent, and stays: %v", l.actions)
	}
	// Its next packet brings it back, and it hears of the prefix.
	l.packets = map[string]uint64{"session-2": 0}
	if l.from(ofLink.Addr().Next()); !l.sessions["2"] || l.advertised() == nil {
		t.Errorf("%v", l.actions)
	}
	// A host that takes no address makes room like one that takes no offer.
	if l.passes(offerTime); len(l.sessions) != 0 {
		t.Errorf("%v", l.actions)
	}
}

func TestAHostWithoutDHCPNeedsAPrefix(t *testing.T) {
	l := links(t)
	l.lease.IPv6Prefix = netip.Prefix{}
	if l.solicits() != nil || !slices.Equal(l.drops(), []string{"no-prefix"}) || len(l.sessions) != 0 {
		t.Errorf("%v, %v", l.drops(), l.sessions)
	}
	if l.solicits() != nil || !slices.Equal(l.drops(), []string{"refused"}) {
		t.Errorf("%v", l.drops())
	}
}

func TestAHostWithAPrefixMayTakeALeaseToo(t *testing.T) {
	l := links(t, api.IpoeMethod_IPOE_DHCP4, api.IpoeMethod_IPOE_DHCP6)
	if a := l.solicits(); a == nil || a[0] != 0xc0 {
		t.Fatalf("%x", a)
	}
	if reply := l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toUs), client6); reply == nil || len(l.sessions) != 1 {
		t.Fatalf("%v", l.actions)
	}
	// Its lease counts now, and not what it sends.
	l.packets["session-1"] = 1
	l.passes(599 * time.Second)
	if !l.sessions["1"] {
		t.Error("it ends early")
	}
	if l.passes(time.Second); len(l.sessions) != 0 {
		t.Errorf("%v", l.actions)
	}
	// IPv4 first: the solicitation adds IPv6.
	l = links(t, api.IpoeMethod_IPOE_DHCP4, api.IpoeMethod_IPOE_DHCP6)
	l.ask4(dhcpv4.MessageTypeDiscover)
	l.ask4(dhcpv4.MessageTypeRequest, requested(offered), serverID(gateway))
	if l.solicits(); len(l.sessions) != 1 {
		t.Fatalf("%v", l.actions)
	}
	if a := l.solicits(); a == nil || !l.clients[clientKey{circuit{"default", "access", 100, 7}, cpe}].has6 {
		t.Errorf("%x", a)
	}
	// It sends nothing by IPv6: IPv4 stays.
	if l.passes(offerTime); !l.sessions["1"] {
		t.Errorf("%v", l.actions)
	}
}

func TestAHostWithoutDHCPIsKnownAfterARestart(t *testing.T) {
	l := links(t)
	l.solicits()
	l.packets["session-1"] = 7
	l.passes(offerTime)
	var state []byte
	for _, a := range l.actions {
		if save, is := a.(Save); is {
			state = save.State
		}
	}
	again := links(t)
	again.sessions["1"], again.packets["session-1"], again.now = true, 7, l.now
	request := subscriber.Request{ID: "1", Protocol: "first-packet", Line: subscriber.Line{Circuit: subscriber.Circuit{Dataplane: "default", Port: "access", OuterVLAN: 100, InnerVLAN: 7}, MAC: subscriber.MAC(cpe)}}
	lease := again.given(false, true)
	lease.Session = "session-1"
	again.carryOut(again.Restore(subscriber.Connection{Request: request, State: state}, lease, l.now))
	if again.passes(600 * time.Second); !again.sessions["1"] {
		t.Errorf("%v", again.actions)
	}
	if again.passes(600 * time.Second); len(again.sessions) != 0 {
		t.Errorf("%v", again.actions)
	}
}

func TestIPv6BesideIPv4ComesBackWithARouterSolicitation(t *testing.T) {
	l := links(t, api.IpoeMethod_IPOE_FIRST_PACKET)
	l.grant.IPv4 = offered
	l.receive("arp", arpOf(cpe, offered))
	l.solicits()
	has := func(six bool) {
		t.Helper()
		if c := l.byID["1"]; c == nil || !c.has4 || c.has6 != six || len(l.sessions) != 1 {
			t.Fatalf("%+v: %v", c, l.actions)
		}
	}
	has(true)
	l.passes(offerTime)
	has(false)
	// The data plane drops its IPv6 packets: they are not first ones.
	l.from(ofLink.Addr().Next())
	has(false)
	l.solicits()
	has(true)
	if l.solicits() == nil {
		t.Errorf("%v", l.actions)
	}
}
