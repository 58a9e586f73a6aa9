// SPDX-License-Identifier: Apache-2.0

// Routes find their interfaces by an address: the interface whose network holds the next hop. They do not name it, so
// the references do not show this need.
package reconcile

import (
	"maps"
	"net/netip"
	"slices"

	"sluice.dev/sluice/agent/object"
)

// anInterface is the key for which routes wait whose next hops are in no interface's network. No object has this key.
var anInterface = object.Key{Name: "an interface"}

// networks are those of the data plane's interfaces.
type networks struct {
	// How many interfaces have each.
	count map[object.Network]int
	// Those that went since routes were last looked through.
	lost []lostNetwork
	// Routes that go, or stay out of the data plane, until an interface has a network that holds their next hops.
	stranded map[*entry]struct{}
}

// lostNetwork is a network that no interface has any more, and the transaction of its loss, which is not over until
// the routes were checked.
type lostNetwork struct {
	object.Network
	cause *transaction
}

func newNetworks() networks {
	return networks{count: map[object.Network]int{}, stranded: map[*entry]struct{}{}}
}

// hold reports whether an interface in a VRF has a network that holds the address.
func (n networks) hold(vrf string, a netip.Addr) bool {
	for bits := range a.BitLen() {
		if p, err := a.Prefix(bits); err == nil && n.count[object.Network{VRF: vrf, Prefix: p}] > 0 {
			return true
		}
	}
	return false
}

func (v *Version) networks() []object.Network {
	if v == nil || v.StoredObject == nil {
		return nil
	}
	return v.Networks()
}

func (v *Version) nextHops() (vrf string, floating []object.NextHop, others bool) {
	if v == nil || v.StoredObject == nil {
		return "", nil, true
	}
	return v.NextHops()
}

// moveNetworks takes note of the networks of an interface of which the data plane has another version now.
func (g *graph) moveNetworks(e *entry, old, now *Version) {
	if !e.kind.HasNetworks() {
		return
	}
	n := &g.networks
	change := func(of object.Network, more int) {
		if g.asks != nil {
			g.asks.moves(of)
		}
		if n.count[of] += more; n.count[of] == 0 {
			delete(n.count, of)
		}
	}
	gained := now.networks()
	for _, of := range gained {
		change(of, 1)
	}
	for _, of := range old.networks() {
		change(of, -1)
		if n.count[of] == 0 {
			n.lost = append(n.lost, lostNetwork{of, e.cause})
			if !g.simulating {
				e.cause.enter()
			}
		}
	}
	if len(gained) == 0 {
		return
	}
	for _, r := range inOrder(slices.Collect(maps.Keys(n.stranded))) {
		if g.entries.Get(r.key) != r || r.desired == nil {
			delete(n.stranded, r)
		} else if g.outOfReach(r.desired) == nil {
			g.enqueue(r, e.cause)
		}
	}
}

// strand looks for routes whose next hops were all in networks that went.
func (g *graph) strand() {
	n := &g.networks
	if len(n.lost) == 0 {
		return
	}
	lost := n.lost
	n.lost = nil
	for _, e := range inOrder(g.leftBy(lost)) {
		n.stranded[e] = struct{}{}
		g.enqueue(e, lost[len(lost)-1].cause)
	}
	for _, of := range lost {
		if !g.simulating {
			of.cause.leave()
		}
	}
}

// leftBy returns the routes that the data plane has and that lead nowhere since networks went.
func (g *graph) leftBy(lost []lostNetwork) (found []*entry) {
	lost = slices.DeleteFunc(slices.Clone(lost), func(of lostNetwork) bool { return g.networks.count[of.Network] > 0 })
	if len(lost) == 0 {
		return nil
	}
	for e := range g.entries.All() {
		if e.have == nil || !e.kind.HasNextHops() {
			continue
		}
		vrf, floating, others := e.have.nextHops()
		went := func(h object.NextHop) bool {
			return slices.ContainsFunc(lost, func(of lostNetwork) bool { return of.VRF == vrf && of.Prefix.Contains(h.Address) })
		}
		if !others && slices.ContainsFunc(floating, went) && g.allOutOfReach(e.have) {
			found = append(found, e)
		}
	}
	return found
}

// allOutOfReach reports whether no network holds any next hop of a route.
func (g *graph) allOutOfReach(v *Version) bool {
	vrf, floating, others := v.nextHops()
	return !others && len(floating) > 0 &&
		!slices.ContainsFunc(floating, func(h object.NextHop) bool { return g.networks.hold(vrf, h.Address) })
}

// outOfReach returns a next hop that no network holds, or nil: so the data plane accepts the route.
func (g *graph) outOfReach(v *Version) *object.NextHop {
	vrf, floating, _ := v.nextHops()
	for _, h := range floating {
		if !g.networks.hold(vrf, h.Address) {
			return &h
		}
	}
	return nil
}

// isStranded reports whether the data plane has a route without a reachable next hop.
func (g *graph) isStranded(e *entry) bool {
	_, there := g.networks.stranded[e]
	return there && e.have != nil && g.allOutOfReach(e.have)
}

// waitsForNetwork reports whether a route waits for an interface, and lets it wait.
func (g *graph) waitsForNetwork(e *entry) bool {
	if _, there := g.networks.stranded[e]; !there || e.have != nil {
		return false
	}
	h := g.outOfReach(e.desired)
	if h == nil {
		delete(g.networks.stranded, e)
		return false
	}
	g.wait(e, anInterface, false, WaitsForObject,
		"an interface whose network holds "+h.Address.String()+" ("+h.Field+"), which is not there")
	return true
}
