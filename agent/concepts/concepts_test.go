// SPDX-License-Identifier: Apache-2.0

package concepts

import (
	"fmt"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/object/objecttest"
)

func registry(t testing.TB) *object.Registry {
	t.Helper()
	r, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// objects reads "Kind name {spec}" lines.
func objects(t testing.TB, lines ...string) []object.Change {
	t.Helper()
	r := registry(t)
	var changes []object.Change
	for _, line := range lines {
		part := strings.SplitN(line, " ", 3)
		if part[0] == "delete" {
			kind, name, _ := strings.Cut(part[1], "/")
			changes = append(changes, object.Remove(object.Key{Kind: kind, Name: name}))
			continue
		}
		changes = append(changes, object.Put(objecttest.Object(t, r, part[0], part[1], part[2])))
	}
	return changes
}

func TestChecksOfObjectsTogether(t *testing.T) {
	gtpu := func(name string, vlan int, more string) string {
		return fmt.Sprintf("Session %s {access: {port: p, outerVlan: %d}, gtpu: {localAddress: '2001:db8::1', localTeid: 7, remoteAddress: '2001:db8::2', remoteTeid: %d%s}}", name, vlan, vlan, more)
	}
	const tunnel = "{localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, remoteTeid: 1"
	for _, c := range []struct {
		sentence      string
		there, change []string
		problem       string
	}{
		{"references to what is not there are fine", nil, []string{"Session s {access: {port: nowhere}}"}, ""},
		{"two sessions on one VLAN", []string{"Session a {access: {port: p, outerVlan: 1, innerVlan: 2}}"},
			[]string{"Session b {access: {port: p, outerVlan: 1, innerVlan: 2}}"}, "Session/b: access: Session/a already has port p, VLAN 1.2"},
		{"two PDU sessions on one VLAN", []string{"Session a {access: {port: p, outerVlan: 1, pduSessionId: 1}}"},
			[]string{"Session b {access: {port: p, outerVlan: 1, pduSessionId: 2}}"}, ""},
		{"one PDU session twice", []string{"Session a {access: {port: p, outerVlan: 1, pduSessionId: 1}}"},
			[]string{"Session b {access: {port: p, outerVlan: 1, pduSessionId: 1}}"}, "Session/b: access: Session/a already has port p, VLAN 1, PDU session 1"},
		{"a PDU session beside one that is the only one", []string{"Session a {access: {port: p, outerVlan: 1}}"},
			[]string{"Session b {access: {port: p, outerVlan: 1, pduSessionId: 1}}"}, "Session/b: access: Session/a already has port p, VLAN 1"},
		{"two PDU sessions with the same address", []string{"Session a {access: {port: p, outerVlan: 1, pduSessionId: 1}, addresses: [10.0.0.1/32], gtpu: " + tunnel + ", localTeid: 1}}"},
			[]string{"Session b {access: {port: p, outerVlan: 1, pduSessionId: 2}, addresses: [10.1.0.0/16, 10.0.0.0/8], gtpu: " + tunnel + ", localTeid: 2}}"},
			"Session/b: addresses[1]: Session/a has 10.0.0.1/32 on the same access, and packets are distinguished by it: found \"10.0.0.0/8\"; accepted: addresses that no other PDU session of the subscriber has"},
		{"of one MAC, too", []string{"Session a {access: {port: p, outerVlan: 1, mac: '02:00:00:00:00:0a', pduSessionId: 1}, addresses: ['2001:db8::/56'], gtpu: " + tunnel + ", localTeid: 1}}"},
			[]string{"Session b {access: {port: p, outerVlan: 1, mac: '02:00:00:00:00:0A', pduSessionId: 2}, addresses: ['2001:db8:0:1::/64'], gtpu: " + tunnel + ", localTeid: 2}}"},
			"Session/b: addresses[0]: Session/a has 2001:db8::/56 on the same access, and packets are distinguished by it: found \"2001:db8:0:1::/64\"; accepted: addresses that no other PDU session of the subscriber has"},
		{"PDU sessions of two subscribers with the same address", []string{"Session a {access: {port: p, outerVlan: 1, mac: '02:00:00:00:00:0a', pduSessionId: 1}, addresses: [10.0.0.1/32], gtpu: " + tunnel + ", localTeid: 1}}"},
			[]string{"Session b {access: {port: p, outerVlan: 1, mac: '02:00:00:00:00:0b', pduSessionId: 2}, addresses: [10.0.0.1/32], gtpu: " + tunnel + ", localTeid: 2}}"}, ""},
		{"PDU sessions that change what they have", []string{"Session a {access: {port: p, outerVlan: 1, pduSessionId: 1}, addresses: [10.0.0.1/32], gtpu: " + tunnel + ", localTeid: 1}}",
			"Session b {access: {port: p, outerVlan: 1, pduSessionId: 2}, addresses: [10.0.0.2/32], gtpu: " + tunnel + ", localTeid: 2}}"},
			[]string{"Session a {access: {port: p, outerVlan: 1, pduSessionId: 1}, addresses: [10.0.0.2/32], gtpu: " + tunnel + ", localTeid: 1}}",
				"Session b {access: {port: p, outerVlan: 1, pduSessionId: 2}, addresses: [10.0.0.1/32], gtpu: " + tunnel + ", localTeid: 2}}"}, ""},
		{"one PDU session of one MAC twice", []string{"Session a {access: {port: p, outerVlan: 1, mac: '02:00:00:00:00:0a', pduSessionId: 1}}"},
			[]string{"Session b {access: {port: p, outerVlan: 1, mac: '02:00:00:00:00:0a', pduSessionId: 1}}"},
			"Session/b: access.pduSessionId: Session/a already has port p, VLAN 1, MAC 02:00:00:00:00:0a, PDU session 1"},
		{"two PDU sessions in one of PPPoE", []string{"Session a {access: {port: p, pppoeSessionId: 5, pduSessionId: 1}}"},
			[]string{"Session b {access: {port: p, pppoeSessionId: 5, pduSessionId: 2}}"}, ""},
		{"a single tag and two tags are different", []string{"Session a {access: {port: p, outerVlan: 1, innerVlan: 2}}"},
			[]string{"Session b {access: {port: p, outerVlan: 1}}"}, ""},
		{"two MACs on one VLAN", []string{"Session a {access: {port: p, mac: '02:00:00:00:00:01'}}"},
			[]string{"Session b {access: {port: p, mac: '02:00:00:00:00:02'}}"}, ""},
		{"one MAC twice, written in two ways", []string{"Session a {access: {port: p, mac: '02:00:00:00:00:0a'}}"},
			[]string{"Session b {access: {port: p, mac: '02:00:00:00:00:0A'}}"}, "Session/b: access.mac: Session/a already has port p, untagged, MAC 02:00:00:00:00:0a"},
		{"a session without MAC beside one with", []string{"Session a {access: {port: p, mac: '02:00:00:00:00:0a'}}"},
			[]string{"Session b {access: {port: p}}"}, "Session/b: access: Session/a already has port p, untagged"},
		{"a session with MAC beside one without", []string{"Session b {access: {port: p}}"},
			[]string{"Session a {access: {port: p, mac: '02:00:00:00:00:0a'}}"}, "Session/a: access.mac: Session/b already has"},
		{"an interface and a session", []string{"Interface i {port: p, outerVlan: 5}"},
			[]string{"Session b {access: {port: p, outerVlan: 5}}"}, "Session/b: access: Interface/i already has port p, VLAN 5"},
		{"an interface beside PPPoE sessions and one with a MAC", []string{"Interface i {port: p, outerVlan: 5}"},
			[]string{"Session b {access: {port: p, outerVlan: 5, pppoeSessionId: 1}}", "Session c {access: {port: p, outerVlan: 5, pppoeSessionId: 2}}",
				"Session d {access: {port: p, outerVlan: 5, mac: '02:00:00:00:00:0a'}}"}, ""},
		{"5WE sessions beside PPPoE sessions", []string{"Interface i {port: p, outerVlan: 5}", "Session a {access: {port: p, outerVlan: 5, pppoeSessionId: 1}}"},
			[]string{"Session b {access: {port: p, outerVlan: 5, fiveWeSessionId: 1}}", "Session c {access: {port: p, outerVlan: 5, fiveWeSessionId: 2}}"}, ""},
		{"a 5WE session id twice", []string{"Session b {access: {port: p, outerVlan: 5, fiveWeSessionId: 1}}"},
			[]string{"Session c {access: {port: p, outerVlan: 5, fiveWeSessionId: 1, mac: '02:00:00:00:00:0a'}}"}, "Session/c: access.fiveWeSessionId: Session/b already has"},
		{"a PPPoE session id twice", []string{"Session b {access: {port: p, outerVlan: 5, pppoeSessionId: 1}}"},
			[]string{"Session c {access: {port: p, outerVlan: 5, pppoeSessionId: 1, mac: '02:00:00:00:00:0a'}}"}, "Session/c: access.pppoeSessionId: Session/b already has"},
		{"many loopbacks", []string{"Interface a {addresses: [192.0.2.1/32]}"}, []string{"Interface b {addresses: [192.0.2.2/32]}"}, ""},
		{"one address on two interfaces", []string{"Interface a {addresses: [192.0.2.1/32]}"},
			[]string{"Interface b {addresses: [192.0.2.1/24], vrf: default}"}, "Interface/b: addresses[0]: Interface/a already has VRF default, 192.0.2.1/32, as our own address"},
		{"one inbound SPI twice", []string{"SecurityAssociation a {spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}"}, []string{"SecurityAssociation b {spi: 4097, vrf: default, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}"}, "SecurityAssociation/b: spi: SecurityAssociation/a already has inbound SPI in VRF default: 4097"},
		{"one SPI each way", []string{"SecurityAssociation a {spi: 4097, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}"}, []string{"SecurityAssociation b {spi: 4097, direction: outbound, localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, tunnel: t, encryptionKey: 000102030405060708090a0b0c0d0e0f10111213}"}, ""},
		{"a session and an interface that are one tunnel", []string{"Session a {access: {ipsecTunnel: t}}"}, []string{"Interface b {ipsecTunnel: t}"}, "Interface/b: ipsecTunnel: Session/a already has IpsecTunnel/t"},
		{"two sessions that are one tunnel", []string{"Session a {access: {ipsecTunnel: t}}"}, []string{"Session b {access: {port: p}, ipsec: {tunnel: t}}"}, "Session/b: ipsec.tunnel: Session/a already has IpsecTunnel/t"},
		{"two interfaces that are one tunnel", []string{"Interface a {ipsecTunnel: t}"}, []string{"Interface b {ipsecTunnel: t}"}, "Interface/b: ipsecTunnel: Interface/a already has IpsecTunnel/t"},
		{"one tunnel of two GRE tunnels", []string{"GreTunnel a {localAddress: 10.0.0.1, remoteAddress: 10.0.0.2, children: [{tunnel: t}]}"},
			[]string{"GreTunnel b {localAddress: 10.0.0.1, remoteAddress: 10.0.0.3, children: [{tunnel: t}]}"}, "GreTunnel/b: children[0]: GreTunnel/a already has IpsecTunnel/t"},
		{"one GRE tunnel of two sessions", []string{"Session a {access: {greTunnel: g}}"}, []string{"Session b {access: {greTunnel: g}}"},
			"Session/b: access.greTunnel: Session/a already has GreTunnel/g"},
		{"one address in two VRFs", []string{"Interface a {addresses: [192.0.2.1/32]}"}, []string{"Interface b {addresses: [192.0.2.1/24], vrf: red}"}, ""},
		{"a local TEID twice", []string{gtpu("a", 1, "")}, []string{gtpu("b", 2, ", vrf: default")},
			"Session/b: gtpu.localTeid: Session/a already has VRF default, GTP-U at 2001:db8::1, TEID 7"},
		{"a local TEID in two VRFs", []string{gtpu("a", 1, "")}, []string{gtpu("b", 2, ", vrf: red")}, ""},
		{"a prefix of two sessions", []string{"Session a {access: {port: p}, addresses: [100.64.0.0/30]}"},
			[]string{"Session b {access: {port: q}, addresses: [100.64.0.0/30]}"}, "Session/b: addresses[0]: Session/a already has VRF default, 100.64.0.0/30"},
		{"a prefix of two sessions that are not routed by it", []string{gtpu("a", 1, "") + " "},
			[]string{"Session b {access: {port: q}, addresses: [100.64.0.0/30], gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1}}",
				"Session c {access: {port: r}, addresses: [100.64.0.0/30]}"}, ""},
		{"a route twice, written in two ways", []string{"Route a {prefix: '2001:db8::/32', action: blackhole}"},
			[]string{"Route b {prefix: '2001:DB8::/32', action: prohibit, vrf: default}"}, "Route/b: prefix: Route/a already has VRF default, 2001:db8::/32, as a route"},
		{"a subscriber's prefix that is a route's", []string{"Route a {prefix: 100.64.0.0/24, action: blackhole}"},
			[]string{"Session b {access: {port: q}, addresses: [100.64.0.0/24]}"}, "Session/b: addresses[0]: Route/a already has VRF default, 100.64.0.0/24, as a route"},
		{"a route's prefix that is a subscriber's", []string{"Session b {access: {port: q}, addresses: [100.64.0.0/24]}"},
			[]string{"Route a {prefix: 100.64.0.0/24, action: blackhole}"}, "Route/a: prefix: Session/b already has VRF default, 100.64.0.0/24"},
		{"a subscriber's prefix in a route's", []string{"Route a {prefix: 100.64.0.0/10, action: blackhole}"},
			[]string{"Session b {access: {port: q}, addresses: [100.64.0.0/24]}"}, ""},
		{"a subscriber's address that is ours", []string{"Interface i {addresses: [100.64.0.1/32]}"},
			[]string{"Session b {access: {port: q}, addresses: [100.64.0.1/32]}"}, "Session/b: addresses[0]: Interface/i already has VRF default, 100.64.0.1/32, as our own address"},
		{"an address of ours that is a subscriber's", []string{"Session b {access: {port: q}, addresses: ['2001:db8::1/128']}"},
			[]string{"Interface i {addresses: ['2001:db8::1/64']}"}, "Interface/i: addresses[0]: Session/b already has VRF default, 2001:db8::1/128"},
		{"a subscriber's address that is ours in another VRF", []string{"Interface i {addresses: [100.64.0.1/32], vrf: red}"},
			[]string{"Session b {access: {port: q}, addresses: [100.64.0.1/32]}"}, ""},
		{"a network of two interfaces", []string{"Interface i {port: p, addresses: [192.0.2.1/24]}"},
			[]string{"Interface j {port: q, addresses: [192.0.2.2/24]}"}, "Interface/j: addresses[0]: Interface/i already has VRF default, 192.0.2.0/24, as a network of an interface"},
		{"a network of two interfaces in two VRFs", []string{"Interface i {port: p, addresses: [192.0.2.1/24]}"},
			[]string{"Interface j {port: q, vrf: red, addresses: [192.0.2.2/24]}"}, ""},
		{"a network within another interface's", []string{"Interface i {port: p, addresses: [192.0.2.1/24]}"},
			[]string{"Interface j {port: q, addresses: [192.0.2.129/25]}"}, ""},
		{"two addresses of an interface in one network", nil, []string{"Interface i {port: p, addresses: [192.0.2.1/24, 192.0.2.2/24]}"}, ""},
		{"an address of a loopback in an interface's network", []string{"Interface i {port: p, addresses: [192.0.2.1/24]}"},
			[]string{"Interface j {addresses: [192.0.2.2/24]}"}, ""},
		{"a network that one interface gives up and another takes", []string{"Interface i {port: p, addresses: [192.0.2.1/24]}"},
			[]string{"Interface i {port: p, addresses: [198.51.100.1/24]}", "Interface j {port: q, addresses: [192.0.2.1/24]}"}, ""},
		{"a route to an interface's network", []string{"Interface i {port: p, addresses: [192.0.2.1/24]}"}, []string{"Route a {prefix: 192.0.2.0/24, action: blackhole}"}, ""},
		{"a subscriber's address in the network of an interface", []string{"Interface i {addresses: [100.64.0.1/24]}"},
			[]string{"Session b {access: {port: q}, addresses: [100.64.0.2/32]}"}, ""},
		{"a subscriber's prefix in which our address is", []string{"Interface h {addresses: [100.63.255.255/32]}", "Interface i {addresses: [100.64.0.1/24]}"},
			[]string{"Session b {access: {port: q}, addresses: [100.64.0.0/29]}"}, "Session/b: addresses[0]: Interface/i has 100.64.0.1, which is in it, as our own address in VRF default"},
		{"an address of ours in a subscriber's prefix", []string{"Session b {access: {port: q}, addresses: ['2001:db8::/56']}"},
			[]string{"Interface i {addresses: ['2001:db8:0:7::1/64']}"}, "Interface/i: addresses[0]: Session/b already has VRF default, 2001:db8::/56, which it is in"},
		{"an address that we give up and a subscriber gets", []string{"Interface i {addresses: [100.64.0.1/24, 192.0.2.1/32]}"},
			[]string{"Session b {access: {port: q}, addresses: [100.64.0.0/24]}", "Interface i {addresses: [192.0.2.1/32]}"}, ""},
		{"our address in the prefix of a subscriber who is not routed by it", []string{"Interface i {addresses: [100.64.0.1/32]}"},
			[]string{"Session b {access: {port: q}, addresses: [100.64.0.0/24], gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1}}"}, ""},
		{"a route to an address of ours", []string{"Interface i {addresses: [100.64.0.1/32]}"}, []string{"Route a {prefix: 100.64.0.1/32, action: blackhole}"}, ""},
		{"a device twice, with other arguments", []string{"Port a {device: 'net_tap0,iface=x'}"}, []string{"Port b {device: 'net_tap0,iface=y'}"},
			"Port/b: device: Port/a already has the DPDK device net_tap0"},
		{"two PPPoE servers of one inner VLAN", []string{"PppoeServer street {port: p, outerVlans: ['100'], innerVlans: ['1-100'], profile: a}"},
			[]string{"PppoeServer alley {port: p, outerVlans: ['99-101'], innerVlans: ['200', '50'], profile: a}"},
			"PppoeServer/alley: innerVlans[1]: PppoeServer/street has innerVlans[0] 1-100 of port p, VLAN 100, PPPoE: found \"50\"; accepted: VLANs that no other server of this protocol has"},
		{"two PPPoE servers of the same VLANs", []string{"PppoeServer street {port: p, outerVlans: ['100'], innerVlans: ['1-100'], profile: a}"},
			[]string{"PppoeServer alley {port: p, outerVlans: ['100'], innerVlans: ['1-100'], profile: a}"},
			"PppoeServer/alley: outerVlans: PppoeServer/street already has port p, VLAN 100, PPPoE, inner VLANs 1-100"},
		{"two PPPoE servers of one outer VLAN", []string{"PppoeServer street {port: p, outerVlans: ['100-200'], profile: a}"},
			[]string{"PppoeServer alley {port: p, outerVlans: ['200-300'], profile: a}"},
			"PppoeServer/alley: outerVlans: PppoeServer/street already has port p, VLAN 200, PPPoE, a single tag"},
		{"two PPPoE servers without VLANs", []string{"PppoeServer street {port: p, profile: a}"}, []string{"PppoeServer alley {port: p, profile: a}"},
			"PppoeServer/alley: port: PppoeServer/street already has port p, untagged, PPPoE"},
		{"PPPoE servers that are apart", []string{"PppoeServer a {port: p, outerVlans: ['100'], innerVlans: ['1-100'], profile: a}", "PppoeServer b {port: p, profile: a}"},
			[]string{"PppoeServer c {port: p, outerVlans: ['100'], innerVlans: ['101-200'], profile: a}", "PppoeServer d {port: p, outerVlans: ['100'], profile: a}",
				"PppoeServer e {port: q, outerVlans: ['100'], innerVlans: ['1-100'], profile: a}", "PppoeServer f {port: p, outerVlans: ['101'], innerVlans: ['1-100'], profile: a}",
				"IpoeServer g {port: p, outerVlans: ['100'], innerVlans: ['1-100'], profile: a}"}, ""},
		{"an IPoE server and a DHCP relay of one circuit", []string{"IpoeServer a {port: p, outerVlans: ['100'], innerVlans: ['7'], profile: a}"},
			[]string{"DhcpRelay b {port: p, outerVlans: ['100'], innerVlans: ['1-100'], servers: [192.0.2.1], interface: i}"},
			"DhcpRelay/b: innerVlans[0]: IpoeServer/a has innerVlans[0] 7 of port p, VLAN 100, DHCPv4"},
		{"IPoE servers with different protocols", []string{"IpoeServer a {port: p, outerVlans: ['100'], methods: [ipoe_dhcp4], profile: a}"},
			[]string{"IpoeServer b {port: p, outerVlans: ['100'], methods: [ipoe_dhcp6], profile: a}"}, ""},
		{"two IPoE servers for one protocol", []string{"IpoeServer a {port: p, outerVlans: ['100'], methods: [ipoe_dhcp6], profile: a}"},
			[]string{"IpoeServer b {port: p, outerVlans: ['100'], methods: [ipoe_first_packet], profile: a}"},
			"IpoeServer/b: outerVlans: IpoeServer/a already has port p, VLAN 100, neighbour discovery, a single tag"},
		{"circuits that one server gives up", []string{"PppoeServer a {port: p, outerVlans: ['1-4094'], innerVlans: ['1-4094'], profile: a}"},
			[]string{"PppoeServer a {port: p, outerVlans: ['1-4094'], innerVlans: ['1-7'], profile: a}", "PppoeServer b {port: p, outerVlans: ['4094'], innerVlans: ['8'], profile: a}"}, ""},
		{"two pools of one network", []string{"AddressPool street {ranges: [100.64.0.0/24], gateway: 100.64.0.1}"},
			[]string{"AddressPool alley {ranges: [100.64.9.0/24, 100.64.0.128/25]}"},
			"AddressPool/alley: ranges[1]: overlaps ranges[0] 100.64.0.0/24 of AddressPool/street in the same VRF: found \"100.64.0.128/25\"; accepted: addresses that no other pool of the VRF has, or that one of the two excludes"},
		{"two pools that begin alike", []string{"AddressPool street {ranges: [100.64.0.0/24]}"}, []string{"AddressPool alley {ranges: [100.64.0.0-100.64.0.9]}"},
			"AddressPool/alley: ranges[0]: AddressPool/street already has VRF default, IPv4 addresses of pools, from 100.64.0.0"},
		{"a pool of prefixes and one of addresses in them", []string{"AddressPool street {ranges: ['2001:db8::/40'], prefixLength: 56}"},
			[]string{"AddressPool alley {ranges: ['2001:db8:1::/64']}"}, "AddressPool/alley: ranges[0]: overlaps ranges[0] 2001:db8::/40 of AddressPool/street"},
		{"pools that are apart", []string{"AddressPool street {ranges: [100.64.0.0/24], excluded: [100.64.0.10-100.64.0.19, 100.64.0.30]}"},
			[]string{"AddressPool alley {ranges: [100.64.0.10-100.64.0.19, 100.64.0.30, 100.64.1.0/24]}", "AddressPool red {ranges: [100.64.0.0/24], vrf: red}",
				"AddressPool six {ranges: ['2001:db8::/40'], prefixLength: 56}", "AddressPool none {ranges: [100.64.0.7], excluded: [100.64.0.7]}"}, ""},
		{"pools of which one excludes too little", []string{"AddressPool street {ranges: [100.64.0.0/24], excluded: [100.64.0.10-100.64.0.19]}"},
			[]string{"AddressPool alley {ranges: [100.64.0.10-100.64.0.20]}"}, "AddressPool/alley: ranges[0]: overlaps ranges[0] 100.64.0.0/24 of AddressPool/street"},
		{"a pool that gives up addresses to another one", []string{"AddressPool a {ranges: [100.64.0.0/24]}"},
			[]string{"AddressPool a {ranges: [100.64.0.0/25]}", "AddressPool b {ranges: [100.64.0.128/25]}"}, ""},
		{"interfaces that need one another", []string{"Interface a {unnumbered: b}", "Interface b {unnumbered: c}"}, []string{"Interface c {unnumbered: a}"},
			"Interface/b: unnumbered: objects need one another in a circle: Interface/c, Interface/a, Interface/b, Interface/c"},
		{"what needs itself", nil, []string{"Interface c {unnumbered: c}"}, "Interface/c: unnumbered: objects need one another in a circle: Interface/c, Interface/c"},
		{"what one gives up another may take", []string{"Session a {access: {port: p}}", "Session b {access: {port: q}}", "Session c {access: {port: r}}"},
			[]string{"Session a {access: {port: q}}", "Session b {access: {port: p}}", "delete Session/c", "Session d {access: {port: r}}"}, ""},
		{"one object twice", nil, []string{"Acl a {}", "Acl a {otherwise: permit}"}, "Acl/a: duplicate object; accepted: each object once"},
		{"one object deleted and put", []string{"Acl a {}"}, []string{"delete Acl/a", "Acl a {}"}, "Acl/a: duplicate object; accepted: each object once"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			s := object.NewSet(registry(t))
			there := objects(t, c.there...)
			if _, err := s.Apply(there); err != nil {
				t.Fatal(err)
			}
			changes := objects(t, c.change...)
			undo, err := s.Apply(changes)
			if got := fmt.Sprint(err); c.problem == "" && err != nil || c.problem != "" && !strings.HasPrefix(got, c.problem) {
				t.Fatalf("error %v\nnot   %s", err, c.problem)
			}
			if err == nil {
				undo()
			}
			// Either way it is as before: the same is accepted or refused again.
			if s.Len() != len(there) {
				t.Errorf("%d objects", s.Len())
			}
			if _, again := s.Apply(changes); fmt.Sprint(again) != fmt.Sprint(err) {
				t.Errorf("the second time: %v", again)
			}
		})
	}
}

func TestOnlyTheCauseIsReportedInItsOriginalSpelling(t *testing.T) {
	r := registry(t)
	for _, c := range []struct{ sentence, kind, spec, want string }{
		{"a VLAN without the one outside it, which is mistyped", "Session", "{access: {port: p, outerVlan: many, innerVlan: 5}}",
			`access.outerVlan: not a number: found "many"; accepted: 0 to 4094; 0: untagged`},
		{"the same, whose name is mistyped", "Session", "{access: {port: p, outerVlam: 5, innerVlan: 5}}",
			"access.outerVlam: there is no such field; did you mean outerVlan? Accepted: port, outerVlan, innerVlan, mac, pppoeSessionId, proxyArp, pduSessionId, lcpMagic, lcpEchoInterval, lcpEchoFailures, fiveWeSessionId, ipsecTunnel, greTunnel"},
		{"a needed field whose name is mistyped", "Session", "{access: {prot: p}}",
			"access.prot: there is no such field; did you mean port? Accepted: port, outerVlan, innerVlan, mac, pppoeSessionId, proxyArp, pduSessionId, lcpMagic, lcpEchoInterval, lcpEchoFailures, fiveWeSessionId, ipsecTunnel, greTunnel"},
		{"a needed number that is 0", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, localTeid: 0, remoteAddress: 192.0.2.2, remoteTeid: 1}}",
			"gtpu.localTeid: out of range: found 0; accepted: 1 to 4294967295"},
		{"accepted sources of another family than the tunnel's", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, acceptedSources: [192.0.2.16/28, '2001:db8::/32']}}",
			`gtpu.acceptedSources[1]: not of the family of gtpu.localAddress: found "2001:db8::/32"; accepted: a prefix of IPv4 addresses`},
		{"a needed string that is empty", "Session", `{access: {port: ""}}`, `access.port: empty: found ""; accepted: the name of a Port; a remote user has access.ipsecTunnel or access.greTunnel instead`},
		{"an access on a port and in a tunnel", "Session", "{access: {port: p, ipsecTunnel: t}}",
			"access.port: an access by access.ipsecTunnel has none; accepted: one of the two without the other"},
		{"a size with a unit", "Session", "{access: {port: p}, policy: {mss: 10KB}}",
			`policy.mss: out of range: found "10KB"; accepted: 536 to 9216 bytes, or with a suffix KB, MB, GB (powers of 1000), KiB, MiB or GiB (powers of 1024); or 0: unchanged`},
		{"bytes instead of bits", "Meter", "{committedRate: 100MB, committedBurst: 10KB}",
			`committedRate: bytes, where bits a second are meant: found "100MB"; accepted: 8000 to 4000000000000 bit/s, or with a suffix K, M, G or T (powers of 1000); or 0: nothing is green (RFC 4115 alone), such as 100M`},
		{"a rate that the algorithm has no use for", "Meter", "{committedRate: 1M, committedBurst: 10KB, peakRate: 1.5 Gbit/s}",
			`peakRate: not used by this algorithm: found "1.5 Gbit/s"; accepted: no value`},
		{"a mistake of one rule does not hide that of another", "Acl", "{rules: [{action: no}, {action: permit, sourcePorts: 1}]}",
			"rules[0].action: there is no such value: found \"no\"; accepted: deny, permit\n" +
				"rules[1].sourcePorts: ports of a protocol without ports: found 1; accepted: protocol tcp, udp or 132 (SCTP)"},
	} {
		written, err := r.Decode(strings.NewReader("apiVersion: sluice.dev/v1\nkind: "+c.kind+"\nmetadata: {name: a}\nspec: "+c.spec+"\n"), "a.yaml")
		if err == nil {
			err = r.Whole(written).Or()
		}
		if got := strings.ReplaceAll(fmt.Sprint(err), "a.yaml:4: "+c.kind+"/a: ", ""); got != c.want {
			t.Errorf("%s:\n%s\nnot\n%s", c.sentence, got, c.want)
		}
	}
}

func BenchmarkCheckOneSession(b *testing.B) {
	r := registry(b)
	o := objects(b, "Session s {access: {port: p, outerVlan: 1, innerVlan: 2}, addresses: [100.64.0.1/32], policy: {aclUp: a}}")[0].Object
	for b.Loop() {
		r.Check(o)
	}
}

func BenchmarkChangeOneOf200kSessions(b *testing.B) {
	s := object.NewSet(registry(b))
	session := func(i, mss int) object.Change {
		return object.Put(&object.Object{Kind: "Session", Name: fmt.Sprint("s", i), Spec: &api.Session{
			Access: &api.Access{Port: "p", OuterVlan: uint32(1 + i/4000), InnerVlan: uint32(1 + i%4000)}, Policy: &api.Policy{Mss: uint32(mss)},
		}})
	}
	var all []object.Change
	for i := range 200_000 {
		all = append(all, session(i, 0))
	}
	if _, err := s.Apply(all); err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		i++
		if _, err := s.Apply([]object.Change{session(i%200_000, 1400)}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	r := registry(b)
	text := strings.Repeat("apiVersion: sluice.dev/v1\nkind: Session\nmetadata: {name: s}\nspec:\n  access: {port: p, outerVlan: 1, innerVlan: 2}\n  addresses: [100.64.0.1/32]\n---\n", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := r.Decode(strings.NewReader(text), ""); err != nil {
			b.Fatal(err)
		}
	}
}
