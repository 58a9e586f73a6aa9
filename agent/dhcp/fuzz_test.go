// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"sluice.dev/sluice/agent/api"
)

// FuzzReceive passes frames from both sides to a relay during an exchange. Its output is well formed and its state
// bounded.
func FuzzReceive(f *testing.F) {
	t := &testing.T{}
	fresh := func() (*Machine, []byte, []byte) {
		m := machine(home())
		v4 := answer4(t, all[ToServer](m.client4(dhcpv4.MessageTypeDiscover))[0], dhcpv4.MessageTypeAck)
		v6 := answer6(t, one[ToServer](t, m.client6(from6(t, dhcpv6.MessageTypeRequest, withLeases(0)...).ToBytes())), dhcpv6.MessageTypeReply, withLeases(600*time.Second)...)
		return m, v4.Frame, v6.Frame
	}
	_, v4, v6 := fresh()
	d := datagram{netip.AddrPortFrom(netip.IPv4Unspecified(), client4), netip.AddrPortFrom(everybody4, port4), from4(dhcpv4.MessageTypeRequest)}
	f.Add(false, tagged(client, 100, 7, d))
	d = datagram{netip.AddrPortFrom(linkLocal(client), client6), netip.AddrPortFrom(netip.MustParseAddr("ff02::1:2"), port6), from6(t, dhcpv6.MessageTypeSolicit, withLeases(0)...).ToBytes()}
	f.Add(false, tagged(client, 100, 7, d))
	f.Add(true, v4)
	f.Add(true, v6)
	f.Fuzz(func(t *testing.T, core bool, bytes []byte) {
		m, _, _ := fresh()
		p := Packet{Dataplane: plane, Port: "access", Frame: bytes}
		if core {
			p.Port, p.Interface = "core", "core"
		}
		for range 2 {
			check(t, m.Receive(p, began))
		}
		check(t, m.Tick(began.Add(time.Hour)))
		for _, l := range m.leases {
			if len(l.bindings) > bindingsOfLease {
				t.Fatal("a lease of too many addresses")
			}
			if _, err := leaseOf(l.record()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func check(t *testing.T, actions []Action) {
	for _, sent := range all[ToServer](actions) {
		if _, ok := parseDatagram(etherTypeOf(sent.Packet), sent.Packet); !ok || len(sent.Packet) > mtu {
			t.Fatalf("%d bytes to a server: %x", len(sent.Packet), sent.Packet)
		}
	}
	for _, sent := range all[ToLink](actions) {
		f, ok := parseFrame(sent.Frame)
		if !ok {
			t.Fatalf("to a link: %x", sent.Frame)
		}
		if _, ok = parseDatagram(f.etherType, f.payload); !ok || len(f.payload) > mtu {
			t.Fatalf("to a link: %x", sent.Frame)
		}
	}
	for _, sent := range all[ToClient](actions) {
		f, ok := parseFrame(sent.Frame)
		if !ok {
			t.Fatalf("to a client: %x", sent.Frame)
		}
		if _, ok = parseDatagram(f.etherType, f.payload); !ok {
			t.Fatalf("to a client: %x", sent.Frame)
		}
	}
}

func etherTypeOf(packet []byte) uint16 {
	if packet[0]>>4 == 4 {
		return typeIPv4
	}
	return typeIPv6
}

// FuzzMessage is FuzzReceive for payloads of datagrams with valid checksums.
func FuzzMessage(f *testing.F) {
	t := &testing.T{}
	m := machine(home())
	ack := answer4(t, all[ToServer](m.client4(dhcpv4.MessageTypeDiscover))[0], dhcpv4.MessageTypeAck)
	reply := answer6(t, one[ToServer](t, m.client6(from6(t, dhcpv6.MessageTypeRequest, withLeases(0)...).ToBytes())), dhcpv6.MessageTypeReply, withLeases(600*time.Second)...)
	f.Add(false, false, false, from4(dhcpv4.MessageTypeRequest))
	f.Add(false, true, false, from6(t, dhcpv6.MessageTypeSolicit, withLeases(0)...).ToBytes())
	f.Add(false, true, false, forward6(1, netip.IPv6Unspecified(), linkLocal(client), "a", "b", 1, client, from6(t, dhcpv6.MessageTypeSolicit).ToBytes()))
	f.Add(true, false, false, ack.Frame[14+ip4Header+udpHeader:])
	f.Add(false, true, true, from6(t, dhcpv6.MessageTypeSolicit, withLeases(0)...).ToBytes())
	f.Add(true, true, false, reply.Frame[14+ip6Header+udpHeader:])
	f.Fuzz(func(t *testing.T, core, six, lightweight bool, payload []byte) {
		if len(payload) > mtu {
			return
		}
		spec := home()
		spec.RelayInformation = api.RelayInformation_TRUST_INFORMATION
		spec.Options = []*api.DhcpOptionRule{
			{Code: 12}, {Code: 60, Action: api.DhcpOptionAction_REPLACE_OPTION, Text: "{port}"}, {Code: 61, Action: api.DhcpOptionAction_SET_OPTION, Text: "{mac}"},
			{Code: 121, Direction: api.DhcpDirection_TO_CLIENT, Action: api.DhcpOptionAction_SET_OPTION, Hex: "0064400001"},
		}
		if lightweight {
			spec.Servers, spec.Uplink = spec.Servers[:2], "core"
		}
		if len(payload)%2 == 1 {
			spec.Profile, spec.Policy = "homes", nil
		}
		m := machine(spec)
		m.Managed(true, began)
		m.SetPort(plane, "core", accessMAC)
		m.answerAsManager(m.client4(dhcpv4.MessageTypeDiscover))
		m.answerAsManager(m.client6(from6(t, dhcpv6.MessageTypeRequest, withLeases(0)...).ToBytes()))
		var p Packet
		switch {
		case core && six && lightweight:
			p = server(server6, linkLocal(accessMAC), port6, payload)
		case core && six:
			p = server(server6, link, port6, payload)
		case core:
			p = server(server4, giaddr, port4, payload)
		case six:
			d := datagram{netip.AddrPortFrom(linkLocal(client), client6), netip.AddrPortFrom(netip.MustParseAddr("ff02::1:2"), port6), payload}
			p = Packet{Dataplane: plane, Port: "access", Frame: tagged(client, 100, 7, d)}
		default:
			d := datagram{netip.AddrPortFrom(netip.IPv4Unspecified(), client4), netip.AddrPortFrom(everybody4, port4), payload}
			p = Packet{Dataplane: plane, Port: "access", Frame: tagged(client, 100, 7, d)}
		}
		out := m.Receive(p, began)
		check(t, out)
		check(t, m.answerAsManager(out))
		check(t, m.Tick(began.Add(time.Hour)))
		if m.Leases()+len(m.bySession) != 0 && spec.Profile != "" {
			for _, l := range m.leases {
				if at, ends := l.next(); ends && !at.After(began.Add(time.Hour)) {
					t.Error("a lease is left")
				}
			}
		}
	})
}

// answerAsManager accepts the clients and the sessions of actions, and returns further actions.
func (m *Machine) answerAsManager(actions []Action) (all []Action) {
	for i := 0; i < len(actions) && i < 1000; i++ {
		var out []Action
		switch a := actions[i].(type) {
		case Authenticate:
			out = m.Authenticated(a.Request.ID, granted, began)
		case Connect:
			out = m.Connected(a.Connection.ID, nil, began)
		case Extend:
			out = m.Connected(a.ID, nil, began)
		}
		actions, all = append(actions, out...), append(all, out...)
	}
	return all
}

// FuzzLease reads records.
func FuzzLease(f *testing.F) {
	f.Add([]byte(`{"relay":"home","mac":"020000000009","bindings":[{"prefix":"100.64.1.7/32","expires":1}]}`))
	f.Add([]byte(`{"relay":"home","mac":"020000000009","session":"s","bindings":[{"prefix":"100.64.1.7/32"}]}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		m := machine(home())
		if m.Restore(value) == nil {
			m.Restored(began)
			m.Managed(true, began)
		}
	})
}
