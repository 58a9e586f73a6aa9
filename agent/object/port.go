package object

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// DPDK knows a device by its name alone, whatever the arguments behind it.
func claimPort(spec proto.Message) []Claim {
	p, ok := spec.(*api.Port)
	if !ok {
		return nil
	}
	name, _, _ := strings.Cut(p.Device, ",")
	claims := []Claim{{What: "the DPDK device " + name, Field: "device"}}
	if t := p.Twin; t != nil {
		where := "the data plane's network namespace"
		if t.Namespace != "" {
			where = "network namespace " + t.Namespace
		}
		claims = append(claims, Claim{What: "the Linux interface " + t.Name + " in " + where, Field: "twin.name"})
	}
	return claims
}
