package object

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

const (
	// TS 24.501 section 6.2.5.1.4: of rules that reflective QoS derives.
	precedenceDerived = 80
	// Of a direction in all profiles together, and different flow labels in one (dataplane/flow, dataplane/acl).
	filtersMost = 1 << 18
	labelsMost  = 255
)

func checkFlowProfile(spec proto.Message, add report) {
	p, ok := spec.(*api.FlowProfile)
	if !ok {
		return
	}
	if size := proto.Size(p); size > specMost {
		add("rules", "too much for one profile", strconv.Itoa(size)+" bytes", fmt.Sprintf("at most %d bytes: fewer filters", specMost))
	}
	precedences, flows, labels := map[uint32]int{}, map[uint32]bool{}, map[uint32]bool{}
	var filters [2]int
	for i, r := range p.Rules {
		at := "rules[" + strconv.Itoa(i) + "]."
		if first, taken := precedences[r.Precedence]; taken {
			add(at+"precedence", fmt.Sprintf("rules[%d] has it already", first), strconv.Itoa(int(r.Precedence)), "another for each rule")
		} else if r.Precedence == precedenceDerived {
			add(at+"precedence", "what rules that reflective QoS derives have", strconv.Itoa(precedenceDerived), "less or more")
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
		if filters[i] > filtersMost {
			add("rules", "too many filters", fmt.Sprintf("%d %s", filters[i], direction), fmt.Sprintf("at most %d of a direction", filtersMost))
		}
	}
	if len(labels) > labelsMost {
		add("rules", "too many different flow labels", strconv.Itoa(len(labels)), fmt.Sprintf("at most %d", labelsMost))
	}
	for i, f := range p.Flows {
		if flows[f.Qfi] {
			add("flows["+strconv.Itoa(i)+"].qfi", "there twice", strconv.Itoa(int(f.Qfi)), "each QFI once")
		}
		flows[f.Qfi] = true
	}
}

// checkFilter refuses what could never match.
func checkFilter(f *api.PacketFilter, at string, add report) {
	if f.Local != "" && f.Remote != "" && family(f.Local) != family(f.Remote) {
		add(at+"remote", "not of the family of local", quote(f.Remote), "an "+family(f.Local)+" network")
	}
	protocol := strings.ToLower(f.Protocol)
	if n, known := protocols[protocol]; known {
		protocol = strconv.Itoa(n)
	}
	for field, ports := range map[string]string{"localPorts": f.LocalPorts, "remotePorts": f.RemotePorts} {
		if ports != "" && protocol != "6" && protocol != "17" && protocol != "132" {
			add(at+field, "ports of a protocol without ports", quote(ports), "protocol tcp, udp or 132 (SCTP) beside it")
		}
	}
	if f.FlowLabel != 0 && (f.Local != "" && family(f.Local) == "IPv4" || f.Remote != "" && family(f.Remote) == "IPv4") {
		add(at+"flowLabel", "IPv4 has none", strconv.Itoa(int(f.FlowLabel)), "IPv6 networks beside it, or none")
	}
	if f.Spi != 0 && protocol != "" && protocol != "50" {
		add(at+"spi", "a security parameter index of a protocol that is not ESP", strconv.FormatUint(uint64(f.Spi), 10), "no protocol beside it, or 50")
	}
}
