// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of Acl that annotations cannot express.
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
	object.Rules[*api.Acl]{Check: checkAcl},
}

// A rule that can never match is a mistake.
func checkAcl(a *api.Acl, add object.Report) {
	if size := proto.Size(a); size > object.MaxSpec {
		add("rules", "too much for one list", fmt.Sprintf("%d rules of %d bytes together", len(a.Rules), size),
			fmt.Sprintf("at most %d bytes: fewer rules", object.MaxSpec))
	}
	for i, r := range a.Rules {
		at := func(field string) string { return "rules[" + strconv.Itoa(i) + "]." + field }
		object.CheckSameFamily(at("destination"), r.Destination, "source", r.Source, "network", add)
		protocol := object.IPProtocol(r.Protocol)
		hasPorts := protocol == "6" || protocol == "17" || protocol == "132"
		if ports := r.SourcePorts; ports != "" && !hasPorts {
			add(at("sourcePorts"), "ports of a protocol without ports", object.Quote(ports), "protocol tcp, udp or 132 (SCTP)")
		}
		if ports := r.DestinationPorts; ports != "" && !hasPorts {
			add(at("destinationPorts"), "ports of a protocol without ports", object.Quote(ports), "protocol tcp, udp or 132 (SCTP)")
		}
		if r.TcpFlags != "" && protocol != "6" {
			add(at("tcpFlags"), "TCP flags of another protocol", object.Quote(r.TcpFlags), "protocol tcp")
		}
		if r.IcmpType != "" && protocol != "1" && protocol != "58" {
			add(at("icmpType"), "an ICMP type of another protocol", object.Quote(r.IcmpType), "protocol icmp or icmp6")
		}
	}
}
