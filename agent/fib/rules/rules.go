// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of Route, NextHopGroup that annotations cannot express.
package rules

import (
	"net/netip"
	"strconv"

	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.NextHopGroup]{Check: checkNextHopGroup},
	object.Rules[*api.Route]{Check: checkRoute, Claims: claimRoute, NextHops: floatingHops},
}

func claimRoute(r *api.Route, c *object.Claimer) {
	if p, err := object.ParseNetwork(r.Prefix); err == nil {
		c.Take(object.AppendDestination(c.Words(""), r.Vrf, p), "as a route", "prefix", -1)
	}
}

func checkRoute(r *api.Route, add object.Report) {
	if r.Action != api.RouteAction_FORWARD {
		if len(r.NextHops) > 0 {
			add("nextHops", "no effect: nothing is forwarded", strconv.Itoa(len(r.NextHops)), "no next hops, or action forward")
		}
		if r.NextHopGroup != "" {
			add("nextHopGroup", "no effect: nothing is forwarded", object.Quote(r.NextHopGroup), "no next hop group, or action forward")
		}
		return
	}
	if p, err := object.ParseNetwork(r.Prefix); err == nil {
		if what := object.NotForwarded(p); what != "" {
			add("prefix", "nothing is forwarded to it: it is "+what, object.Quote(r.Prefix), "another prefix; or action blackhole or prohibit")
		}
	}
	switch {
	case len(r.NextHops) > 0 && r.NextHopGroup != "":
		add("nextHopGroup", "the route has next hops of its own, too", object.Quote(r.NextHopGroup), "nextHops or nextHopGroup")
	case len(r.NextHops) == 0 && r.NextHopGroup == "":
		add("nextHops", "missing", "", "at least one next hop, or nextHopGroup; or action blackhole or prohibit")
	}
	checkNextHops(r.NextHops, object.Family(r.Prefix), "the prefix's", add)
}

func checkNextHopGroup(g *api.NextHopGroup, add object.Report) {
	of := ""
	for _, hop := range g.NextHops {
		if hop.Address != "" {
			of = object.Family(hop.Address)
			break
		}
	}
	checkNextHops(g.NextHops, of, "the others'", add)
}

// checkNextHops checks that all next hops are of one address family; `of` is the family and `whose` the object or field that sets it.
func checkNextHops(hops []*api.NextHop, of, whose string, add object.Report) {
	for i, hop := range hops {
		at := func(field string) string { return "nextHops[" + strconv.Itoa(i) + "]" + field }
		switch {
		case hop.Address == "" && hop.Interface == "" && !hasType(hop.ProtoReflect()):
			add(at(""), "leads nowhere", "", "an address, an interface, or both")
		case hop.Address != "" && object.Family(hop.Address) != of:
			add(at(".address"), "not of "+whose+" family", object.Quote(hop.Address), "an "+of+" address")
		case hop.Address != "" && !object.IsHost(hop.Address):
			object.CheckHost(at(".address"), hop.Address, add)
		}
	}
}

// hasType reports whether a next hop without address and interface has the field of its type, such as a stack of labels (api/ip.proto).
func hasType(hop protoreflect.Message) (has bool) {
	hop.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		has = f.Name() != "weight"
		return !has
	})
	return has
}

// floatingHops returns the next hops of a route whose interface is found by their addresses, and whether there are others, or it forwards
// nothing.
func floatingHops(r *api.Route) (vrf string, floating []object.NextHop, others bool) {
	if r.Action != api.RouteAction_FORWARD {
		return "", nil, true
	}
	for i, hop := range r.NextHops {
		a, err := netip.ParseAddr(hop.Address)
		if err != nil || hop.Interface != "" {
			others = true
			continue
		}
		floating = append(floating, object.NextHop{Address: a, Field: "nextHops[" + strconv.Itoa(i) + "].address"})
	}
	return object.VRFName(r.Vrf), floating, others
}
