// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of Port that annotations cannot express.
package rules

import (
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.Port]{Check: checkPort, Claims: claimPort},
}

const deviceAccepted = "a PCI address, or one of DPDK's net_af_packet, net_af_xdp, net_tap, net_memif, net_vhost, net_virtio_user, net_pcap and net_null, " +
	"with arguments KEY=VALUE behind commas"

func checkPort(p *api.Port, add object.Report) {
	if p.Device == "" {
		return // another owner of the port may have it
	}
	if err := deviceError(p.Device); err != nil {
		add("device", err.Error(), object.Quote(p.Device), deviceAccepted)
	}
}

// DPDK identifies a device by its name alone, without the arguments behind it.
func claimPort(p *api.Port, c *object.Claimer) {
	name, _, _ := strings.Cut(p.Device, ",")
	c.Take(c.Words("the DPDK device "+name), "", "device", -1)
	if t := p.Twin; t != nil {
		where := "the data plane's network namespace"
		if t.Namespace != "" {
			where = "network namespace " + t.Namespace
		}
		c.Take(c.Words("the Linux interface "+t.Name+" in "+where), "", "twin.name", -1)
	}
}
