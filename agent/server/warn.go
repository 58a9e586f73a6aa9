// SPDX-License-Identifier: Apache-2.0

// Warnings: acceptable objects that do not work without further configuration.
package server

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

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

// aboutAddresses returns the changes of objects that packets are sent to, and with them those of objects that have addresses of the
// gateway; none if there are none of the first.
func (s *server) aboutAddresses(changes []object.Change) []object.Change {
	var some []object.Change
	local := false
	owners := s.registry.Owners()
	for _, c := range changes {
		if slices.Contains(owners, c.Key.Kind) {
			some = append(some, c)
		} else if c.Object != nil && len(s.registry.Local(c.Object)) > 0 {
			some, local = append(some, c), true
		}
	}
	if !local {
		return nil
	}
	return some
}

// unreachable reports objects to which packets are sent at an address that the gateway does not have.
func (s *server) unreachable(changes []object.Change) ([]*api.Problem, error) {
	var all []*api.Problem
	var owned map[owner]bool
	for _, c := range changes {
		if c.Object == nil {
			continue
		}
		for _, h := range s.registry.Local(c.Object) {
			if owned == nil {
				var err error
				if owned, err = s.ours(changes); err != nil {
					return nil, err
				}
			}
			if !owned[owner{h.VRF, h.Prefix.Addr()}] && len(all) < warningLimit {
				all = append(all, &api.Problem{Kind: c.Key.Kind, Name: c.Key.Name, Field: h.Path(), Found: strconv.Quote(h.Prefix.Addr().String()),
					Problem: "no interface has it in VRF " + h.VRF + ", so packets do not arrive until one does"})
			}
		}
	}
	return all, nil
}

// useless reports what the rules of kinds warn of.
func (s *server) useless(changes []object.Change) []*api.Problem {
	var all []*api.Problem
	for _, c := range changes {
		if c.Object == nil {
			continue
		}
		s.registry.Warn(c.Object, func(field, problem, found, accepted string) {
			if len(all) < warningLimit {
				all = append(all, &api.Problem{Kind: c.Key.Kind, Name: c.Key.Name, Field: field, Found: found, Accepted: accepted, Problem: problem})
			}
		})
	}
	return all
}

// sessionsEnd reports sessions and connections that an owner's changes end. It leaves out objects of several owners.
func (s *server) sessionsEnd(owner string, changes []object.Change) []*api.Problem {
	var all []*api.Problem
	for _, c := range changes {
		if owners := s.desired.Owners(c.Key); len(owners) != 1 || owners[0].Owner != owner {
			continue
		}
		if n := s.host.Ends(c); n > 0 && len(all) < warningLimit {
			problem := fmt.Sprintf("ends %d sessions", n)
			if n == 1 {
				problem = "ends 1 session"
			}
			all = append(all, &api.Problem{Kind: c.Key.Kind, Name: c.Key.Name, Problem: problem})
		}
		for _, problem := range s.host.Warnings(c) {
			if len(all) < warningLimit {
				all = append(all, &api.Problem{Kind: c.Key.Kind, Name: c.Key.Name, Problem: problem})
			}
		}
	}
	return all
}

// overridden reports fields that an owner has just set, and for which the value of another owner counts.
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
					problem := "no effect: a field of another owner excludes it"
					if first, there := counts[f.Field]; there {
						problem = fmt.Sprintf("the value of %s (%s) counts, with priority %d", first.Owner, values[f.Field], first.Priority)
					}
					all = append(all, &api.Problem{Kind: o.Status.Key.Kind, Name: o.Status.Key.Name, Field: f.Field, Found: f.Value, Problem: problem})
				}
			}
		}
	}
	return all
}

// ours are the addresses of the gateway, as they are after the changes.
func (s *server) ours(changes []object.Change) (map[owner]bool, error) {
	owned, changed := map[owner]bool{}, map[object.Key]bool{}
	add := func(o *object.Object) {
		for _, h := range s.registry.Owns(o) {
			owned[owner{h.VRF, h.Prefix.Addr()}] = true
		}
	}
	for _, c := range changes {
		if changed[c.Key] = true; c.Object != nil {
			add(c.Object)
		}
	}
	query := intent.Query{Kinds: s.registry.Owners(), Limit: intent.LargestPage}
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
