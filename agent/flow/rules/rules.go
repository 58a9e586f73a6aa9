// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of FlowProfile that annotations cannot express.
package rules

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.FlowProfile]{Check: checkFlowProfile},
}

const (
	// TS 24.501 section 6.2.5.1.4: of rules that reflective QoS derives.
	precedenceDerived = 80
	// Of a direction in all profiles together, and different flow labels in one (dataplane/flow, dataplane/acl).
	maxFilters    = 1 << 18
	maxFlowLabels = 255
)

func checkFlowProfile(p *api.FlowProfile, add object.Report) {
	if size := proto.Size(p); size > object.MaxSpec {
		add("rules", "too much for one profile", strconv.Itoa(size)+" bytes", fmt.Sprintf("at most %d bytes: fewer filters", object.MaxSpec))
	}
	precedences, flows, labels := map[uint32]int{}, map[uint32]bool{}, map[uint32]bool{}
	var filters [2]int
	for i, r := range p.Rules {
		at := "rules[" + strconv.Itoa(i) + "]."
		if first, taken := precedences[r.Precedence]; taken {
			add(at+"precedence", fmt.Sprintf("rules[%d] has it already", first), strconv.Itoa(int(r.Precedence)), "a different number for each rule")
		} else if r.Precedence == precedenceDerived {
			add(at+"precedence", "reserved for rules that reflective QoS derives", strconv.Itoa(precedenceDerived), "another number")
		}
		precedences[r.Precedence] = i
		for j, f := range r.Filters {
			checkFilter(f, at+"filters["+strconv.Itoa(j)+"].", add)
			if f.FlowLabel != 0 {
				labels[f.FlowLabel] = true
			}
			if f.Direction != api.FilterDirection_DOWNLINK {
				filters[0]++
			}
			if f.Direction != api.FilterDirection_UPLINK {
				filters[1]++
			}
		}
	}
	for i, direction := range []string{"uplink", "downlink"} {
		if filters[i] > maxFilters {
			add("rules", "too many filters", fmt.Sprintf("%d %s", filters[i], direction), fmt.Sprintf("at most %d of a direction", maxFilters))
		}
	}
	if len(labels) > maxFlowLabels {
		add("rules", "too many different flow labels", strconv.Itoa(len(labels)), fmt.Sprintf("at most %d", maxFlowLabels))
	}
	for i, f := range p.Flows {
		if flows[f.Qfi] {
			add("flows["+strconv.Itoa(i)+"].qfi", "duplicate QFI", strconv.Itoa(int(f.Qfi)), "each QFI once")
		}
		flows[f.Qfi] = true
	}
}

// checkFilter refuses filters that can never match.
func checkFilter(f *api.PacketFilter, at string, add object.Report) {
	object.CheckSameFamily(at+"remote", f.Remote, "local", f.Local, "network", add)
	protocol := object.IPProtocol(f.Protocol)
	for field, ports := range map[string]string{"localPorts": f.LocalPorts, "remotePorts": f.RemotePorts} {
		if ports != "" && protocol != "6" && protocol != "17" && protocol != "132" {
			add(at+field, "ports of a protocol without ports", object.Quote(ports), "protocol tcp, udp or 132 (SCTP)")
		}
	}
	if f.FlowLabel != 0 && (f.Local != "" && object.Family(f.Local) == "IPv4" || f.Remote != "" && object.Family(f.Remote) == "IPv4") {
		add(at+"flowLabel", "only IPv6 has flow labels", strconv.Itoa(int(f.FlowLabel)), "IPv6 networks, or no networks")
	}
	if f.Spi != 0 && protocol != "" && protocol != "50" {
		add(at+"spi", "a security parameter index of a protocol that is not ESP", strconv.FormatUint(uint64(f.Spi), 10), "protocol 50, or no protocol")
	}
}
