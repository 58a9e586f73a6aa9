// SPDX-License-Identifier: Apache-2.0

// Accounting records that no server can get: their policy is gone, all its servers are, or the spool has no room for them.
package radius

import (
	"fmt"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/subscriber"
)

// stuckLook is how often records are looked at.
const stuckLook = time.Second

// reportStuck makes an event when records of a policy have no server to go to, and when they have one again. s.mu is held.
func (s *radius) reportStuck(now time.Time) {
	if now.Before(s.stuckAt) {
		return
	}
	s.stuckAt = now.Add(stuckLook)
	s.reportRoom()
	for name, box := range s.spool.boxes {
		waiting := box.records()
		p := s.accounting(name)
		stuck := waiting > 0 && (p == nil || len(p.accounting) == 0)
		if stuck == s.stuck[name] {
			continue
		}
		state, text := "sent", fmt.Sprintf("RadiusPolicy/%s has a server for its accounting records again", name)
		if stuck {
			state, text = "stuck", fmt.Sprintf("%d accounting records of RadiusPolicy/%s have no RadiusServer to go to; they wait on the disk", waiting, name)
			s.stuck[name] = true
			s.Log.Error("accounting records have no RADIUS server to go to", "object", "RadiusPolicy "+name)
		} else {
			delete(s.stuck, name)
		}
		s.reportSpool(name, state, text)
	}
}

func (s *radius) reportSpool(policy, state, text string) {
	if s.Intent != nil {
		s.Intent.Report(&intent.ServiceEvent{Type: "spool", Kind: "RadiusSpool", Name: policy, State: state, Text: text})
	}
}

// refuse reports whether the spool has no room for a session whose Start it does not have. Records of other sessions go on: no server keeps a session
// whose Stop is lost. So the spool has at most its limit, and what is left of the sessions that are up. A later record makes up for the Start once
// there is room. s.mu is held.
func (s *radius) refuse(p *policy, r *subscriber.Record) bool {
	limit := s.limit(p)
	if s.spool.count < limit || s.spool.ends(r.ID) {
		return false
	}
	if r.Kind == subscriber.Stop {
		s.spool.keep(s.sessions.end(r.ID))
	}
	s.spool.refusals++
	tallyOf(s.policyCounters, p.name).refusedRecords++
	if s.full[p.name]++; s.full[p.name] == 1 {
		s.Log.Error("the spool of accounting records is full: sessions that come up are not accounted for", "object", "RadiusPolicy "+p.name)
		s.reportSpool(p.name, "full", fmt.Sprintf("%d accounting records wait, the spoolLimit of RadiusPolicy/%s: sessions that come up are not accounted for", s.spool.count, p.name))
	}
	return true
}

// reportRoom makes an event when the spool has taken records of a policy again: a tenth of it is free. s.mu is held.
func (s *radius) reportRoom() {
	for name, refused := range s.full {
		if p := s.accounting(name); p != nil && s.spool.count > s.limit(p)*9/10 {
			continue
		}
		delete(s.full, name)
		s.reportSpool(name, "room", fmt.Sprintf("the spool takes accounting records of RadiusPolicy/%s again; it refused %d", name, refused))
	}
}
