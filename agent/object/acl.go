package object

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// The data plane takes no larger spec (api/dataplane.proto).
const specMost = 8 << 20

// A rule that could never match is a mistake of whoever wrote it.
func checkAcl(spec proto.Message, add report) {
	a, ok := spec.(*api.Acl)
	if !ok {
		return
	}
	if size := proto.Size(a); size > specMost {
		add("rules", "too much for one list", fmt.Sprintf("%d rules of %d bytes together", len(a.Rules), size),
			fmt.Sprintf("at most %d bytes: fewer rules", specMost))
	}
	for i, r := range a.Rules {
		at := func(field string) string { return "rules[" + strconv.Itoa(i) + "]." + field }
		if r.Source != "" && r.Destination != "" && family(r.Source) != family(r.Destination) {
			add(at("destination"), "not of the family of source", quote(r.Destination), "an "+family(r.Source)+" network")
		}
		protocol := strings.ToLower(r.Protocol)
		if n, known := protocols[protocol]; known {
			protocol = strconv.Itoa(n)
		}
		hasPorts := protocol == "6" || protocol == "17" || protocol == "132"
		if ports := r.SourcePorts; ports != "" && !hasPorts {
			add(at("sourcePorts"), "ports of a protocol without ports", quote(ports), "protocol tcp, udp or 132 (SCTP) beside it")
		}
		if ports := r.DestinationPorts; ports != "" && !hasPorts {
			add(at("destinationPorts"), "ports of a protocol without ports", quote(ports), "protocol tcp, udp or 132 (SCTP) beside it")
		}
		if r.TcpFlags != "" && protocol != "6" {
			add(at("tcpFlags"), "TCP flags of another protocol", quote(r.TcpFlags), "protocol tcp beside it")
		}
		if r.IcmpType != "" && protocol != "1" && protocol != "58" {
			add(at("icmpType"), "an ICMP type of another protocol", quote(r.IcmpType), "protocol icmp or icmp6 beside it")
		}
	}
}
