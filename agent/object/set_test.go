package object

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"sluice.dev/sluice/agent/api"
)

// objects reads "Kind name {spec}" lines.
func objects(t testing.TB, lines ...string) []Change {
	t.Helper()
	var changes []Change
	for _, line := range lines {
		part := strings.SplitN(line, " ", 3)
		if part[0] == "delete" {
			kind, name, _ := strings.Cut(part[1], "/")
			changes = append(changes, Remove(Key{kind, name}))
			continue
		}
		written, err := decode(t, fmt.Sprintf("{apiVersion: sluice.dev/v1, kind: %s, metadata: {name: %s}, spec: %s}", part[0], part[1], part[2]))
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, Put(written[0].Object))
	}
	return changes
}

func TestWhatObjectsMayBeTogether(t *testing.T) {
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
			"Session/b: addresses[1]: Session/a has 10.0.0.1/32 on the same access, and packets are told apart by it: found \"10.0.0.0/8\"; accepted: what no other PDU session of the subscriber has"},
		{"of one MAC, too", []string{"Session a {access: {port: p, outerVlan: 1, mac: '02:00:00:00:00:0a', pduSessionId: 1}, addresses: ['2001:db8::/56'], gtpu: " + tunnel + ", localTeid: 1}}"},
			[]string{"Session b {access: {port: p, outerVlan: 1, mac: '02:00:00:00:00:0A', pduSessionId: 2}, addresses: ['2001:db8:0:1::/64'], gtpu: " + tunnel + ", localTeid: 2}}"},
			"Session/b: addresses[0]: Session/a has 2001:db8::/56 on the same access, and packets are told apart by it: found \"2001:db8:0:1::/64\"; accepted: what no other PDU session of the subscriber has"},
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
		{"a PPPoE session id twice", []string{"Session b {access: {port: p, outerVlan: 5, pppoeSessionId: 1}}"},
			[]string{"Session c {access: {port: p, outerVlan: 5, pppoeSessionId: 1, mac: '02:00:00:00:00:0a'}}"}, "Session/c: access.pppoeSessionId: Session/b already has"},
		{"many loopbacks", []string{"Interface a {addresses: [192.0.2.1/32]}"}, []string{"Interface b {addresses: [192.0.2.2/32]}"}, ""},
		{"one address on two interfaces", []string{"Interface a {addresses: [192.0.2.1/32]}"},
			[]string{"Interface b {addresses: [192.0.2.1/24], vrf: default}"}, "Interface/b: addresses[0]: Interface/a already has VRF default, 192.0.2.1/32, as our own address"},
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
		{"interfaces that need one another", []string{"Interface a {unnumbered: b}", "Interface b {unnumbered: c}"}, []string{"Interface c {unnumbered: a}"},
			"Interface/b: unnumbered: objects need one another in a circle: Interface/c, Interface/a, Interface/b, Interface/c"},
		{"what needs itself", nil, []string{"Interface c {unnumbered: c}"}, "Interface/c: unnumbered: objects need one another in a circle: Interface/c, Interface/c"},
		{"what one gives up another may take", []string{"Session a {access: {port: p}}", "Session b {access: {port: q}}", "Session c {access: {port: r}}"},
			[]string{"Session a {access: {port: q}}", "Session b {access: {port: p}}", "delete Session/c", "Session d {access: {port: r}}"}, ""},
		{"one object twice", nil, []string{"Acl a {}", "Acl a {otherwise: permit}"}, "Acl/a: there twice; accepted: each object once"},
		{"one object deleted and put", []string{"Acl a {}"}, []string{"delete Acl/a", "Acl a {}"}, "Acl/a: there twice; accepted: each object once"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			s := NewSet(registry(t))
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

func TestWhatAnObjectMayBeByItself(t *testing.T) {
	for _, c := range []struct{ sentence, kind, spec, problem string }{
		{"an inner VLAN alone", "Session", "{access: {port: p, innerVlan: 1}}", "access.innerVlan: an inner VLAN without an outer one"},
		{"an interface's inner VLAN alone", "Interface", "{port: p, innerVlan: 1}", "innerVlan: an inner VLAN without an outer one"},
		{"a VLAN of no port", "Interface", "{outerVlan: 1}", "outerVlan: a VLAN without a port"},
		{"a session without access", "Session", "{}", "access: missing"},
		{"a GTP-U of two families", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: '2001:db8::1', remoteTeid: 1}}",
			"gtpu.remoteAddress: not of the family of gtpu.localAddress"},
		{"a session of frames", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, ethernet: true}}", ""},
		{"a session of frames with reflective QoS", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, ethernet: true, pduSessionContainer: true, reflectiveQos: true}}", ""},
		{"a session of frames with an address", "Session", "{access: {port: p}, addresses: [10.0.0.1/32], gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, ethernet: true}}", "addresses: a session of type Ethernet has none"},
		{"any source of a PDU session", "Session", "{access: {port: p, pduSessionId: 1}, policy: {anySource: true}}", "policy.anySource: sessions with an access.pduSessionId are told apart by their source"},
		{"a PDU session that there is not", "Session", "{access: {port: p, pduSessionId: 16}}", "access.pduSessionId: out of range"},
		{"a GTP-U without TEID", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, remoteAddress: 192.0.2.2, remoteTeid: 1}}", "gtpu.localTeid: missing"},
		{"QFI 0", "Session", "{access: {port: p}, gtpu: {localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1, qfi: 0}}", ""},
		{"a prefix twice", "Session", "{access: {port: p}, addresses: [100.64.0.1/32, 100.64.0.1/32]}", "addresses[1]: there twice"},
		{"everybody's addresses", "Session", "{access: {port: p}, addresses: ['::/0']}", "addresses[0]: everybody's addresses: found \"::/0\"; accepted: the subscriber's own"},
		{"a route to nowhere", "Route", "{prefix: 0.0.0.0/0}", "nextHops: missing"},
		{"a next hop that leads nowhere", "Route", "{prefix: 0.0.0.0/0, nextHops: [{weight: 1}]}", "nextHops[0]: leads nowhere"},
		{"a next hop of another family", "Route", "{prefix: 0.0.0.0/0, nextHops: [{interface: i}, {address: '2001:db8::1'}]}", "nextHops[1].address: not of the prefix's family"},
		{"a black hole with next hops", "Route", "{prefix: 0.0.0.0/0, action: blackhole, nextHops: [{interface: i}]}", "nextHops: of no use"},
		{"flows of their own", "FlowProfile", "{rules: [{precedence: 1, qfi: 5, filters: [{protocol: udp, remotePorts: 5060, remote: 198.51.100.0/24}]}, {precedence: 255, qfi: 9}], flows: [{qfi: 5, dscp: ef, class: 1, priority: 5}]}", ""},
		{"two rules of one precedence", "FlowProfile", "{rules: [{qfi: 1}, {qfi: 2}]}", "rules[1].precedence: rules[0] has it already"},
		{"a rule where derived ones are", "FlowProfile", "{rules: [{precedence: 80}]}", "rules[0].precedence: what rules that reflective QoS derives have"},
		{"a rule of a QFI that there is not", "FlowProfile", "{rules: [{qfi: 64}]}", "rules[0].qfi: out of range"},
		{"one flow twice", "FlowProfile", "{flows: [{qfi: 1}, {qfi: 1}]}", "flows[1].qfi: there twice"},
		{"ends of two families", "FlowProfile", "{rules: [{filters: [{local: 10.0.0.0/8, remote: '2001:db8::/32'}]}]}", "rules[0].filters[0].remote: not of the family of local"},
		{"a port of anything", "FlowProfile", "{rules: [{filters: [{localPorts: 5}]}]}", "rules[0].filters[0].localPorts: ports of a protocol without ports"},
		{"a flow label of IPv4", "FlowProfile", "{rules: [{filters: [{local: 10.0.0.0/8, flowLabel: 5}]}]}", "rules[0].filters[0].flowLabel: IPv4 has none"},
		{"a security parameter index of TCP", "FlowProfile", "{rules: [{filters: [{protocol: tcp, spi: 5}]}]}", "rules[0].filters[0].spi: a security parameter index of a protocol that is not ESP"},
		{"a peer", "GtpuPeer", "{address: 192.0.2.2, echoInterval: 60s, responseTime: 3s, requests: 5}", ""},
		{"a peer that is asked too often", "GtpuPeer", "{address: 192.0.2.2, echoInterval: 1ms}", "echoInterval: out of range"},
		{"a peer that is a group", "GtpuPeer", "{address: 224.0.0.1}", "address: not an address of a host"},
		{"a peer that is asked nothing every second", "GtpuPeer", "{address: 192.0.2.2, echoInterval: 1s, noEcho: true}", "noEcho: there is nothing to send that often"},
		{"a single rate meter", "Meter", "{committedRate: 1M, committedBurst: 10KB}", ""},
		{"a single rate meter without rate", "Meter", "{committedBurst: 10KB}", "committedRate: missing"},
		{"a single rate meter without burst", "Meter", "{committedRate: 1M, excessBurst: 1KB}", "committedBurst: missing"},
		{"a meter of flows", "Meter", "{committedRate: 1M, committedBurst: 10KB, scope: flow, flows: 4096}", ""},
		{"flows of a session's meter", "Meter", "{committedRate: 1M, committedBurst: 10KB, flows: 4096}", "flows: of no use without scope flow"},
		{"too few flows", "Meter", "{committedRate: 1M, committedBurst: 10KB, scope: flow, flows: 5}", "flows: out of range"},
		{"a burst in both ways", "Meter", "{committedRate: 1M, committedBurst: 10KB, committedBurstTime: 1ms}", "committedBurstTime: the burst is there twice"},
		{"a peak below the committed rate", "Meter", "{algorithm: trtcm, committedRate: 2M, committedBurst: 1KB, peakRate: 1M, excessBurst: 1KB}", "peakRate: less than committedRate"},
		{"a two rate meter without peak", "Meter", "{algorithm: trtcm, committedRate: 2M, committedBurst: 1KB, excessBurst: 1KB}", "peakRate: missing"},
		{"only an excess rate", "Meter", "{algorithm: rfc4115, excessRate: 2M, excessBurst: 1KB}", ""},
		{"no rate at all", "Meter", "{algorithm: rfc4115}", "committedRate: missing"},
		{"a rate below the least", "Meter", "{committedRate: 7999, committedBurst: 10KB}", "committedRate: out of range"},
		{"remarking to nothing", "Meter", "{committedRate: 1M, committedBurst: 10KB, red: {verdict: remark}}", "red.dscp: missing"},
		{"a bucket for no packet", "Meter", "{committedRate: 1M, committedBurst: 63B}", "committedBurst: no packet of 64 bytes ever passes: found \"63B\"; accepted: the longest packet or more, such as 1500B"},
		{"a bucket for small packets", "Meter", "{committedRate: 1M, committedBurst: 64B}", ""},
		{"a time for no packet", "Meter", "{committedRate: 8K, committedBurstTime: 63ms}", "committedBurstTime: no packet of 64 bytes ever passes: found \"63ms\"; accepted: the time of the longest packet or more, such as 1500ms for 1500 bytes"},
		{"a bucket for no packet, and red passes", "Meter", "{committedRate: 1M, committedBurst: 63B, red: {verdict: pass}}", ""},
		{"ports of a protocol without ports", "Acl", "{rules: [{protocol: icmp, destinationPorts: 1}]}", "rules[0].destinationPorts: ports of a protocol without ports"},
		{"two families in one rule", "Acl", "{rules: [{source: 10.0.0.0/8, destination: '::/0'}]}", "rules[0].destination: not of the family of source"},
		{"more prefixes than fit", "Session", "{access: {port: p}, addresses: [" + strings.Repeat("10.0.0.0/8,", 65) + "]}", "addresses: wrong number of elements"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			_, err := decode(t, "{apiVersion: sluice.dev/v1, kind: "+c.kind+", metadata: {name: x}, spec: "+c.spec+"}")
			if c.problem == "" {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			if errs := AllErrors(err); len(errs) == 0 || !strings.HasPrefix(errs[0].Sentence(), c.problem) {
				t.Errorf("error %v\nnot %s", err, c.problem)
			}
		})
	}
}

func TestTheLongestPacketThatAMeterLetsPass(t *testing.T) {
	pass, drop := &api.MeterAction{}, &api.MeterAction{Verdict: api.MeterVerdict_DROP}
	const two, one, other = api.MeterAlgorithm_TRTCM, api.MeterAlgorithm_SRTCM, api.MeterAlgorithm_RFC4115
	for _, c := range []struct {
		sentence string
		meter    *api.Meter
		field    string
		longest  uint64
	}{
		{"one bucket", &api.Meter{Algorithm: one, CommittedRate: 8000, CommittedBurst: 1000}, "committedBurst", 1000},
		{"yellow ones are longer", &api.Meter{Algorithm: one, CommittedRate: 8000, CommittedBurst: 1000, ExcessBurst: 1500}, "excessBurst", 1500},
		{"yellow is dropped", &api.Meter{Algorithm: one, CommittedRate: 8000, CommittedBurst: 1000, ExcessBurst: 1500, Yellow: drop}, "committedBurst", 1000},
		{"red passes", &api.Meter{Algorithm: one, CommittedRate: 8000, CommittedBurst: 1000, Red: pass}, "", 0},
		{"red is dropped", &api.Meter{Algorithm: one, CommittedRate: 8000, CommittedBurst: 1000, Red: drop}, "committedBurst", 1000},
		{"a peak burst bounds all", &api.Meter{Algorithm: two, CommittedRate: 8000, CommittedBurst: 9000, PeakRate: 8000, ExcessBurst: 700}, "excessBurst", 700},
		{"what exceeds a small committed burst is yellow", &api.Meter{Algorithm: two, CommittedRate: 8000, CommittedBurst: 100, PeakRate: 8000, ExcessBurst: 700}, "excessBurst", 700},
		{"and dropped", &api.Meter{Algorithm: two, CommittedRate: 8000, CommittedBurst: 100, PeakRate: 8000, ExcessBurst: 700, Yellow: drop}, "committedBurst", 100},
		{"only an excess rate", &api.Meter{Algorithm: other, ExcessRate: 8000, ExcessBurst: 700}, "excessBurst", 700},
		{"a bucket that nothing flows into", &api.Meter{Algorithm: other, ExcessRate: 8000, ExcessBurst: 700, CommittedBurst: 9000}, "excessBurst", 700},
		{"a burst as a time", &api.Meter{Algorithm: one, CommittedRate: 8e6, CommittedBurstTime: 1e6}, "committedBurstTime", 1000},
		{"of the peak rate", &api.Meter{Algorithm: two, CommittedRate: 8000, CommittedBurst: 9000, PeakRate: 8e6, ExcessBurstTime: 1e6}, "excessBurstTime", 1000},
		{"a long time of a high rate", &api.Meter{Algorithm: one, CommittedRate: 4e12, CommittedBurstTime: 1e10}, "committedBurstTime", 5e12},
		{"a burst without its rate, which another may say", &api.Meter{Algorithm: one, CommittedBurst: 10}, "", 0},
		{"a rate without its burst", &api.Meter{Algorithm: one, CommittedRate: 8000}, "", 0},
	} {
		field := ""
		longest, of := MeterPasses(c.meter)
		if of != nil {
			field = of.Field
		}
		if longest != c.longest || field != c.field {
			t.Errorf("%s: %d bytes, because of %q; want %d, %q", c.sentence, longest, field, c.longest, c.field)
		}
	}
}

func TestAListIsNoLargerThanTheDataPlaneTakes(t *testing.T) {
	rule := &api.AclRule{Source: "2001:db8:1111:2222:3333:4444:5555:6666/128", Destination: "2001:db8:1111:2222:3333:4444:5555:7777/128", Protocol: "tcp"}
	for _, c := range []struct {
		rules   int
		problem string
	}{{80000, ""}, {100000, "rules: too much for one list"}, {200001, "rules: wrong number of elements"}} {
		spec := &api.Acl{Rules: slices.Repeat([]*api.AclRule{rule}, c.rules)}
		_, err := registry(t).Examine([]Change{Put(&Object{Kind: "Acl", Name: "large", Spec: spec})})
		errs := AllErrors(err)
		if c.problem == "" && len(errs) > 0 || c.problem != "" && (len(errs) == 0 || !strings.HasPrefix(errs[0].Sentence(), c.problem)) {
			t.Errorf("%d rules: error %v\nnot %s", c.rules, err, c.problem)
		}
	}
}

func TestFormats(t *testing.T) {
	for _, c := range []struct {
		format       api.Format
		good, wrong  []string
		written, one string
	}{
		{api.Format_IP, []string{"0.0.0.0", "::"}, []string{"1.2.3", "1.2.3.4/32", "fe80::1%eth0", "::ffff:1.2.3.4", "01.2.3.4"}, "2001:DB8:0:0::1", "2001:db8::1"},
		{api.Format_PREFIX, []string{"0.0.0.0/0", "::/0"}, []string{"1.2.3.4", "1.2.3.4/33", "1.2.3.4/24", "1.2.3.0/024"}, "2001:DB8:0::/48", "2001:db8::/48"},
		{api.Format_IP_PREFIX, []string{"192.0.2.1/24", "2001:db8::1/64"}, []string{"0.0.0.0/0", "224.0.0.1/4", "192.0.2.1"}, "2001:DB8::1/64", "2001:db8::1/64"},
		{api.Format_MAC, []string{"02:00:00:00:00:01"}, []string{"02-00-00-00-00-01", "0200.0000.0001", "01:00:5e:00:00:01", "00:00:00:00:00:00", "02:00:00:00:00:01:02:03"}, "02:00:00:00:00:AB", "02:00:00:00:00:ab"},
		{api.Format_PORT_RANGE, []string{"0", "65535", "0-65535"}, []string{"65536", "2-1", "-1", "1-", "08", "+1", "a"}, "1-2", "1-2"},
		{api.Format_VLAN_RANGE, []string{"1", "4094", "1-4094", "7-7"}, []string{"0", "4095", "1-4095", "0-9", "2-1", "1-", "08", "a"}, "100-199", "100-199"},
		{api.Format_IP_PROTOCOL, []string{"0", "255"}, []string{"256", "ospf", ""}, "UDP", "17"},
		{api.Format_DSCP, []string{"63", "va", "cs0", "af43"}, []string{"64", "af14", "af51", "cs8", "cs", "-1"}, "EF", "46"},
		{api.Format_TCP_FLAGS, []string{"syn", "!fin,cwr"}, []string{"syn,", "syn,!syn", "xyz", "!"}, "!ACK, syn", "syn,!ack"},
		{api.Format_ICMP_TYPE, []string{"0", "255/255"}, []string{"256", "1/", "/1", "1/2/3"}, "3/4", "3/4"},
		{api.Format_NAMESPACE, []string{"routing", "site-1:routing-of-many-letters"}, []string{"a/b", "a b", "..", strings.Repeat("n", 201)}, "x", "x"},
		{api.Format_LINUX_NAME, []string{"wan0", "123456789012345"}, []string{"1234567890123456", "a/b", "a b", "..", "a:b"}, "x", "x"},
		{api.Format_DEVICE, []string{"03:00.0", "0000:03:00.0,x=1", "net_af_packet0,iface=eth1", "net_memif"}, []string{"eth0", "net tap", "net_tap0,iface=a b", "; rm",
			"net_failsafe0,exec(id)", "net_bonding0,mode=1,slave=net_null1", "net_ring0", "crypto_null0", "net_null0,", "net_null0,size",
			"net_af_xdp0,iface=x,xdp_prog=/tmp/x.o", "net_tap0,remote=eth0", "net_null0,size=1=2", "net_memif0,socket=/x/bus/y", "03:00.0,x=(y)", "03:00.0,x=/y"}, "net_null_a", "net_null_a"},
		{api.Format_TEXT, []string{"ünï"}, []string{"a\nb", "\x00", "\xff", strings.Repeat("x", 1025)}, "x", "x"},
	} {
		t.Run(c.format.String(), func(t *testing.T) {
			if got, err := canonical(c.format, c.written); err != nil || got != c.one {
				t.Errorf("%q is %q, error %v", c.written, got, err)
			}
			for _, s := range append(c.good, c.one) {
				if _, err := canonical(c.format, s); err != nil {
					t.Errorf("%q is refused: %v", s, err)
				}
			}
			for _, s := range c.wrong {
				if got, err := canonical(c.format, s); err == nil {
					t.Errorf("%q is accepted as %q", s, got)
				}
			}
		})
	}
}

func TestNumbersWithUnits(t *testing.T) {
	for _, c := range []struct {
		unit    api.Unit
		written string
		want    uint64
		again   string
	}{
		{api.Unit_BITS_PER_SECOND, "100M", 100_000_000, "100M"},
		{api.Unit_BITS_PER_SECOND, "1.5 Gbit/s", 1_500_000_000, "1500M"},
		{api.Unit_BITS_PER_SECOND, "8000", 8000, "8K"},
		{api.Unit_BITS_PER_SECOND, "9bps", 9, "9"},
		{api.Unit_BYTES, "64KB", 64_000, "64KB"},
		{api.Unit_BYTES, "64KiB", 65536, "64KiB"},
		{api.Unit_BYTES, "128KB", 128_000, "128KB"},
		{api.Unit_BYTES, "125 KiB", 128_000, "128KB"},
		{api.Unit_BYTES, "64MiB", 64 << 20, "64MiB"},
		{api.Unit_BYTES, "1500B", 1500, "1500"},
		{api.Unit_BYTES, "9K", 9000, "9000"},
		{api.Unit_NANOSECONDS, "1.5ms", 1_500_000, "1500us"},
		{api.Unit_NANOSECONDS, "10µs", 10_000, "10us"},
		{api.Unit_NANOSECONDS, "1h", 3600e9, "3600s"},
		{api.Unit_NANOSECONDS, "1000001", 1_000_001, "1000001"},
		{api.Unit_NONE, "18446744073709551615", 1<<64 - 1, "18446744073709551615"},
	} {
		n, err := parseNumber(c.unit, c.written)
		if err != nil || n != c.want {
			t.Errorf("%q is %d, error %v", c.written, n, err)
		}
		again := FormatNumber(c.unit, n)
		if back, err := parseNumber(c.unit, again); err != nil || back != n {
			t.Errorf("%d is written %q", n, again)
		}
		if again != c.again {
			t.Errorf("%d is written %q, not %q", n, again, c.again)
		}
	}
	for _, s := range []string{"", "M", "1.0001", "1e3", "010", "0x10", "1,5", "18446744073709551616", "99999999999T", "1.5", "..", "1.", ".5", "+1", "1 2", "64KB"} {
		if n, err := parseNumber(api.Unit_BITS_PER_SECOND, s); err == nil {
			t.Errorf("%q is accepted as %d", s, n)
		}
	}
}

func FuzzANumberWithItsUnitIsReadAgain(f *testing.F) {
	for _, n := range []uint64{0, 1, 999, 1000, 1024, 9999, 10_000, 10_240, 1_024_000, 1 << 40, 1e12, 1<<64 - 1} {
		f.Add(n, uint64(1))
		f.Add(n%1e6, uint64(1e6))
	}
	f.Fuzz(func(t *testing.T, n, times uint64) {
		n *= times
		for _, u := range []api.Unit{api.Unit_NONE, api.Unit_BITS_PER_SECOND, api.Unit_BYTES, api.Unit_NANOSECONDS} {
			for _, text := range []string{FormatNumber(u, n), formatUnit(u, n)} {
				if again, err := parseNumber(u, text); err != nil || again != n {
					t.Errorf("%d %s is written %q, read as %d, %v", n, u, text, again, err)
				}
			}
		}
	})
}

func TestNumbersWithUnitsForPeopleAreReadAgain(t *testing.T) {
	for _, c := range []struct {
		unit   api.Unit
		number uint64
		want   string
	}{
		{api.Unit_BITS_PER_SECOND, 100e6, "100 Mbit/s"}, {api.Unit_BITS_PER_SECOND, 64e3, "64 kbit/s"}, {api.Unit_BITS_PER_SECOND, 7, "7 bit/s"},
		{api.Unit_BYTES, 64 << 10, "64 KiB"}, {api.Unit_BYTES, 1501, "1501 B"}, {api.Unit_BYTES, 3e6, "3 MB"},
		{api.Unit_NANOSECONDS, 10e6, "10 ms"}, {api.Unit_NANOSECONDS, 1, "1 ns"}, {api.Unit_NANOSECONDS, 0, "0 ns"},
	} {
		text := formatUnit(c.unit, c.number)
		if n, err := parseNumber(c.unit, text); text != c.want || n != c.number || err != nil {
			t.Errorf("%d: %q, read as %d, %v; want %q", c.number, text, n, err, c.want)
		}
	}
}

func TestWhatADifferenceShowsIsReadAsTheSame(t *testing.T) {
	for _, c := range []struct{ kind, before, after, shown string }{
		{"Meter", "{committedRate: 8000, committedBurst: 1500}", "{committedRate: 100M, committedBurstTime: 1500us}",
			"committedRate: 8 kbit/s -> 100 Mbit/s; committedBurst: 1500 B -> ; committedBurstTime:  -> 1500 us"},
		{"QosProfile", "{classes: [{name: a}]}", "{classes: [{name: a, peakRate: 1M, codel: {target: 1ms}, dropPolicy: codel}]}",
			"classes[0].peakRate:  -> 1 Mbit/s; classes[0].dropPolicy: tail -> codel; classes[0].codel:  -> {target: 1 ms}"},
		{"Session", "{access: {port: p}}", "{access: {port: p}, policy: {mss: 1300}}", "policy:  -> {mss: 1300 B}"},
	} {
		k := registry(t).Kind(c.kind)
		spec := func(text string) proto.Message { return objects(t, c.kind+" x "+text)[0].Object.Spec }
		before, after := spec(c.before), spec(c.after)
		var shown []string
		for _, d := range k.Diff(before, after) {
			shown = append(shown, d.Field+": "+d.Before+" -> "+d.After)
		}
		if got := strings.Join(shown, "; "); got != c.shown {
			t.Errorf("got %s\nnot %s", got, c.shown)
		}
		// As the whole of it is shown.
		if again := spec(flow(k.Fields, after.ProtoReflect())); !proto.Equal(again, after) {
			t.Errorf("%s is read as %v", flow(k.Fields, after.ProtoReflect()), again)
		}
	}
}

func TestDifferences(t *testing.T) {
	spec := func(text string) proto.Message { return objects(t, "Session s "+text)[0].Object.Spec }
	k := registry(t).Kind("Session")
	const tunnel = "{localAddress: 192.0.2.1, localTeid: 1, remoteAddress: 192.0.2.2, remoteTeid: 1"
	for _, c := range []struct {
		sentence, before, after string
		want                    []FieldChange
	}{
		{"the same in other words", "{access: {port: p, mac: '02:00:00:00:00:0a'}, vrf: default}", "{access: {port: p, mac: '02:00:00:00:00:0A'}}", nil},
		{"what forces a replacement comes first", "{access: {port: p}, vrf: a, gtpu: " + tunnel + "}}", "{access: {port: q}, gtpu: " + tunnel + ", ethernet: true}}",
			[]FieldChange{{Field: "gtpu.ethernet", After: "true", Immutable: true}, {Field: "access.port", Before: "p", After: "q"}, {Field: "vrf", Before: "a"}}},
		{"what appears and vanishes", "{access: {port: p}, policy: {mss: 1400}}", "{access: {port: p}, addresses: [10.0.0.0/8]}",
			[]FieldChange{{Field: "addresses", After: "10.0.0.0/8"}, {Field: "policy", Before: "{mss: 1400 B}"}}},
	} {
		if got := k.Diff(spec(c.before), spec(c.after)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.sentence, got, c.want)
		}
	}
}

// A kind that nobody here knows, with what the contract's kinds do not have: a choice, signed numbers, secrets, lists of names.
func invented(t testing.TB) *Registry {
	t.Helper()
	field := func(name string, number int32, kind descriptorpb.FieldDescriptorProto_Type, notes *api.Field) *descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{
			Name: &name, Number: &number, Type: &kind, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), Options: &descriptorpb.FieldOptions{},
		}
		proto.SetExtension(f.Options, api.E_Field, notes)
		return f
	}
	str, i32 := descriptorpb.FieldDescriptorProto_TYPE_STRING, descriptorpb.FieldDescriptorProto_TYPE_SINT32
	friends := field("friends", 1, str, &api.Field{Ref: "Thing", Min: 1})
	friends.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	first, second := field("first_way", 2, str, &api.Field{Format: api.Format_IP}), field("second_way", 3, str, &api.Field{})
	first.OneofIndex, second.OneofIndex = proto.Int32(0), proto.Int32(0)
	message := &descriptorpb.DescriptorProto{
		Name: proto.String("Thing"), Options: &descriptorpb.MessageOptions{},
		Field: []*descriptorpb.FieldDescriptorProto{
			friends, first, second, field("level", 4, i32, &api.Field{Min: -5, Max: 5}), field("password", 5, str, &api.Field{Secret: true, Format: api.Format_MAC}),
		},
		OneofDecl: []*descriptorpb.OneofDescriptorProto{{Name: proto.String("way")}},
	}
	proto.SetExtension(message.Options, api.E_Kind, &api.Kind{Plural: "things", Unique: []string{"friends.*", "level"}})
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("thing.proto"), Package: proto.String("test"), Syntax: proto.String("proto3"), MessageType: []*descriptorpb.DescriptorProto{message},
		Dependency: []string{"schema.proto"},
	}, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	var types protoregistry.Types
	if err := types.RegisterMessage(dynamicpb.NewMessageType(file.Messages().ByName(protoreflect.Name("Thing")))); err != nil {
		t.Fatal(err)
	}
	r, err := Discover(&types)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAnyKindWorksByItsAnnotationsAlone(t *testing.T) {
	r := invented(t)
	read := func(spec string) ([]*Written, error) {
		return r.Decode(strings.NewReader("{apiVersion: sluice.dev/v1, kind: Thing, metadata: {name: x}, spec: "+spec+"}"), "")
	}
	_, err := read("{friends: [], firstWay: 1.2.3.4, secondWay: b, level: -6, password: hunter2}")
	want := []string{
		"line 1: Thing/x: secondWay: excludes firstWay, which is there, too; accepted: only one of firstWay, secondWay",
		"line 1: Thing/x: friends: wrong number of elements: found 0; accepted: at least 1",
		"line 1: Thing/x: level: out of range: found -6; accepted: -5 to 5",
		"line 1: Thing/x: password: not an Ethernet address; accepted: a unicast Ethernet address: six pairs of hexadecimal digits with colons between",
	}
	if got := strings.Split(fmt.Sprint(err), "\n"); !slices.Equal(got, want) {
		t.Errorf("errors\n%q\nnot\n%q", got, want)
	}
	written, err := read("{friends: [a, b], level: -5, password: 02:00:00:00:00:01}")
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, r, written)
	o := written[0].Object
	if refs := r.References(o); len(refs) != 2 || refs[1] != (Reference{"friends[1]", Key{"Thing", "b"}, false}) {
		t.Errorf("references %v", refs)
	}
	if claims := r.Claims(o); len(claims) != 2 || claims[0].What != "Thing friends.* a, level -5" {
		t.Errorf("claims %v", claims)
	}
	if text, _ := r.JSON(r.Redacted(o)); strings.Contains(string(text), "02:00") || !strings.Contains(string(text), "friends") {
		t.Errorf("redacted: %s", text)
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
	s := NewSet(registry(b))
	session := func(i, mss int) Change {
		return Put(&Object{Kind: "Session", Name: fmt.Sprint("s", i), Spec: &api.Session{
			Access: &api.Access{Port: "p", OuterVlan: uint32(1 + i/4000), InnerVlan: uint32(1 + i%4000)}, Policy: &api.Policy{Mss: uint32(mss)},
		}})
	}
	var all []Change
	for i := range 200_000 {
		all = append(all, session(i, 0))
	}
	if _, err := s.Apply(all); err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		i++
		if _, err := s.Apply([]Change{session(i%200_000, 1400)}); err != nil {
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

func TestWhoHasPartsOfSomethingIsFoundAgain(t *testing.T) {
	h := NewHoldings(strings.Compare)
	a, b, all := Mark{what: 1, part: 1}, Mark{what: 1, part: 2}, Mark{what: 1}
	holder := func(claimant string, m Mark, want string) {
		t.Helper()
		if got, taken := h.Holder(claimant, m); taken != (want != "") || taken && got != want {
			t.Errorf("%s finds %q %v, not %q", claimant, got, taken, want)
		}
	}
	holder("x", a, "")
	holder("x", all, "")
	h.Take("x", a)
	holder("x", a, "")
	holder("y", a, "x")
	holder("y", b, "")
	holder("y", all, "x")
	h.Take("y", b)
	holder("z", all, "x")
	holder("x", all, "y")
	holder("x", b, "y")
	h.Release("y", a) // which is not its own
	holder("y", a, "x")
	h.Release("x", a)
	holder("z", all, "y")
	holder("x", a, "")
	h.Release("y", b)
	holder("z", all, "")
	h.Take("z", all)
	holder("x", a, "z")
}

func TestAListOfOneIsShownWithItsWords(t *testing.T) {
	r := registry(t)
	for spec, want := range map[string]string{
		"{rules: [{source: 10.0.0.0/8}]}":                   "{action: deny, source: 10.0.0.0/8}",
		"{rules: [{action: permit, source: 10.0.0.0/8}]}":   "{action: permit, source: 10.0.0.0/8}",
		"{rules: [{action: permit}, {source: 10.0.0.0/8}]}": "2",
	} {
		if got := r.Kind("Acl").Columns[0].Column(objects(t, "Acl a "+spec)[0].Object.Spec); got != want {
			t.Errorf("%s is shown as %s", spec, got)
		}
	}
}
