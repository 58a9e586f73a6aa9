package object

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// DPDK knows a device by its name alone, whatever the arguments behind it.
func claimPort(spec proto.Message, c *claimer) {
	p, ok := spec.(*api.Port)
	if !ok {
		return
	}
	name, _, _ := strings.Cut(p.Device, ",")
	c.take(c.the("the DPDK device "+name), "", "device", -1)
	if t := p.Twin; t != nil {
		where := "the data plane's network namespace"
		if t.Namespace != "" {
			where = "network namespace " + t.Namespace
		}
		c.take(c.the("the Linux interface "+t.Name+" in "+where), "", "twin.name", -1)
	}
}
