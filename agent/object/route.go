package object

import (
	"strconv"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

func claimRoute(spec proto.Message, c *claimer) {
	r, ok := spec.(*api.Route)
	if !ok {
		return
	}
	if p, err := network(r.Prefix); err == nil {
		c.take(appendDestination(c.the(""), r.Vrf, p), "as a route", "prefix", -1)
	}
}

func checkRoute(spec proto.Message, add report) {
	r, ok := spec.(*api.Route)
	if !ok {
		return
	}
	if r.Action != api.RouteAction_FORWARD {
		if len(r.NextHops) > 0 {
			add("nextHops", "of no use: nothing is forwarded", strconv.Itoa(len(r.NextHops)), "no next hops, or action forward")
		}
		return
	}
	if len(r.NextHops) == 0 {
		add("nextHops", "missing", "", "at least one next hop; or action blackhole or prohibit")
	}
	for i, hop := range r.NextHops {
		at := func(field string) string { return "nextHops[" + strconv.Itoa(i) + "]" + field }
		switch {
		case hop.Address == "" && hop.Interface == "":
			add(at(""), "leads nowhere", "", "an address, an interface, or both")
		case hop.Address != "" && family(hop.Address) != family(r.Prefix):
			add(at(".address"), "not of the prefix's family", quote(hop.Address), "an "+family(r.Prefix)+" address")
		case hop.Address != "" && !isHost(hop.Address):
			add(at(".address"), notHost, quote(hop.Address), hostAccepted)
		}
	}
}
