// What is acceptable, and yet does not work before something else is wanted, too.
package server

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Details travel in an answer that people read.
const warningLimit = 500

// owner is an address in a VRF.
type owner struct {
	vrf     string
	address netip.Addr
}

func ownerOf(vrf string, address netip.Addr) owner {
	if vrf == "" {
		vrf = "default"
	}
	return owner{vrf, address}
}

// tunnelsIn are changes of sessions with tunnels, and with them those of interfaces; none if there is no such session.
func tunnelsIn(changes []object.Change) []object.Change {
	var some []object.Change
	tunnel := false
	for _, c := range changes {
		if c.Key.Kind == "Interface" {
			some = append(some, c)
		} else if c.Object != nil {
			if session, ok := c.Object.Spec.(*api.Session); ok && session.GetGtpu() != nil {
				some, tunnel = append(some, c), true
			}
		}
	}
	if !tunnel {
		return nil
	}
	return some
}

// warnings tells of sessions whose tunnel ends at an address that no interface has. Packets to it are not ours.
func (s *server) warnings(changes []object.Change) ([]*api.Problem, error) {
	var all []*api.Problem
	var owned map[owner]bool
	for _, c := range changes {
		if c.Object == nil {
			continue
		}
		session, ok := c.Object.Spec.(*api.Session)
		if !ok || session.GetGtpu() == nil {
			continue
		}
		g := session.GetGtpu()
		address, err := netip.ParseAddr(g.GetLocalAddress())
		if err != nil {
			continue // not acceptable, which is told elsewhere
		}
		if owned == nil {
			if owned, err = s.ours(changes); err != nil {
				return nil, err
			}
		}
		if at := ownerOf(g.GetVrf(), address); !owned[at] && len(all) < warningLimit {
			all = append(all, &api.Problem{Kind: c.Key.Kind, Name: c.Key.Name, Field: "gtpu.localAddress",
				Problem: "no interface has it in VRF " + at.vrf + ", so nothing comes from the tunnel until one does", Found: strconv.Quote(g.GetLocalAddress())})
		}
	}
	return all, nil
}

// narrow tells of meters that never let a packet pass that is as long as links take.
func narrow(changes []object.Change) []*api.Problem {
	var all []*api.Problem
	for _, c := range changes {
		if c.Object == nil || len(all) == warningLimit {
			continue
		}
		meter, ok := c.Object.Spec.(*api.Meter)
		if !ok {
			continue
		}
		if longest, of := object.MeterPasses(meter); of != nil && longest < object.UsualPacket {
			all = append(all, &api.Problem{Kind: c.Key.Kind, Name: c.Key.Name, Field: of.Field, Found: of.Found, Accepted: of.Accepted,
				Problem: fmt.Sprintf("no packet of more than %d bytes ever passes, and most links take %d", longest, object.UsualPacket)})
		}
	}
	return all
}

// overridden tells of fields that an owner has just said and that another's value counts for.
func (s *server) overridden(owner string, outcome *intent.Outcome) []*api.Problem {
	var all []*api.Problem
	for _, o := range outcome.Objects {
		if len(o.Status.Owners) < 2 || outcome.Undone {
			continue
		}
		counts := map[string]intent.Ownership{}
		values := map[string]string{}
		for _, other := range s.desired.Owners(o.Status.Key) {
			for _, f := range other.Fields {
				switch {
				case !f.Overridden:
					counts[f.Field], values[f.Field] = other, f.Value
				case other.Owner == owner && len(all) < warningLimit:
					problem := "it does not count: another owner says something that excludes it"
					if first, there := counts[f.Field]; there {
						problem = fmt.Sprintf("what %s says (%s) counts, with priority %d", first.Owner, values[f.Field], first.Priority)
					}
					all = append(all, &api.Problem{Kind: o.Status.Key.Kind, Name: o.Status.Key.Name, Field: f.Field, Found: f.Value, Problem: problem})
				}
			}
		}
	}
	return all
}

// ours are the addresses of all interfaces, as they are after the changes.
func (s *server) ours(changes []object.Change) (map[owner]bool, error) {
	owned, changed := map[owner]bool{}, map[object.Key]bool{}
	add := func(o *object.Object) {
		i, ok := o.Spec.(*api.Interface)
		if !ok {
			return
		}
		for _, written := range i.GetAddresses() {
			// The length does not matter.
			text, _, _ := strings.Cut(written, "/")
			if address, err := netip.ParseAddr(text); err == nil {
				owned[ownerOf(i.GetVrf(), address)] = true
			}
		}
	}
	for _, c := range changes {
		if changed[c.Key] = true; c.Object != nil {
			add(c.Object)
		}
	}
	query := intent.Query{Kinds: []string{"Interface"}, Limit: intent.LargestPage}
	for {
		page, err := s.desired.List(query)
		if err != nil {
			return nil, err
		}
		for _, st := range page.Objects {
			if st.Object != nil && !changed[st.Key] {
				add(st.Object)
			}
		}
		if page.Next == "" {
			return owned, nil
		}
		query.After = page.Next
	}
}
