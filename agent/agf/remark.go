// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/qosflow"
)

// Other markings of an Agf are of the sessions that are up, too.

// remarksPerTick bounds the changes of sessions that a change of an Agf makes at once.
const remarksPerTick = 200

// remark is a line whose Agf has other markings.
type remark struct {
	line     *registration
	markings []*api.FiveQiMark
	marks    map[uint32]qosflow.Mark
}

// remark takes the markings of Agfs that changed to their lines.
func (s *agf) remark() {
	s.mu.Lock()
	var changed map[string]*api.Agf
	if len(s.changed) > 0 {
		changed = make(map[string]*api.Agf, len(s.changed))
		for name := range s.changed {
			if of := s.agfs[name]; of != nil {
				changed[name] = of
			}
		}
		clear(s.changed)
	}
	s.mu.Unlock()
	if len(changed) > 0 {
		s.remarkAll(changed)
	}
	now := s.remarks[:min(len(s.remarks), remarksPerTick)]
	s.remarks = s.remarks[len(now):]
	for _, one := range now {
		if s.of[one.line.Line] == one.line && !sameMarkings(one.line.settings.Markings, one.markings) {
			one.line.Mark(one.markings, one.marks)
		}
	}
}

// remarkAll puts the lines of these Agfs in the queue, and changes their 5G residential gateways.
func (s *agf) remarkAll(changed map[string]*api.Agf) {
	marks := map[string]map[uint32]qosflow.Mark{}
	for name, of := range changed {
		marks[name] = qosflow.Marks(of.Markings)
	}
	for _, one := range s.lines {
		if of := changed[one.agf]; of != nil && !sameMarkings(one.settings.Markings, of.Markings) {
			s.remarks = append(s.remarks, remark{one, of.Markings, marks[one.agf]})
		}
	}
	for g := range s.gateways.all {
		name, _, _ := s.agfOf(g.peer.Profile)
		for _, r := range g.sessions {
			if its := marks[name]; its != nil && !r.removed && !maps.Equal(its, r.marks) {
				r.marks = its
				if r.applied > 0 {
					r.apply(r.complain)
				}
			}
		}
	}
}

func sameMarkings(a, b []*api.FiveQiMark) bool {
	return slices.EqualFunc(a, b, func(x, y *api.FiveQiMark) bool { return proto.Equal(x, y) })
}
