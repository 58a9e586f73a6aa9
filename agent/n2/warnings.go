// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"fmt"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/command"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// Warnings implements service.Warner: UEs and lines whose contexts end with an Amf or an AccessNode. Those that another AMF takes over do not.
func (s *Service) Warnings(k object.Key, o *object.Object) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ues, lines := 0, 0
	count := func(a *amf, all bool) {
		for _, c := range a.ues {
			switch {
			case c.left || !all && s.succeeded(c):
			case s.nodes[a.node].GetN3IwfId() != 0:
				ues++
			default:
				lines++
			}
		}
	}
	switch k.Kind {
	case "Amf":
		a := s.amfs[k.Name]
		spec := service.SpecOf[*api.Amf](o)
		if a == nil || spec.GetNode() == a.node {
			return nil
		}
		count(a, false)
	case "AccessNode":
		before := s.nodes[k.Name]
		spec := service.SpecOf[*api.AccessNode](o)
		// To AMFs, a node with another identity is another one.
		if before == nil || spec != nil && spec.Plmn == before.Plmn && spec.WagfId == before.WagfId && spec.N3IwfId == before.N3IwfId {
			return nil
		}
		for _, a := range s.amfs {
			if a.node == k.Name {
				count(a, true)
			}
		}
	}
	var all []string
	if ues > 0 {
		all = append(all, fmt.Sprintf("disconnects %s, whose contexts at the core end", command.Plural(ues, "UE", "UEs")))
	}
	if lines > 0 {
		all = append(all, fmt.Sprintf("ends the contexts of %s at the core", command.Plural(lines, "line", "lines")))
	}
	return all
}
