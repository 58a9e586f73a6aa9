// SPDX-License-Identifier: Apache-2.0

// Accounting records that no server can get: their policy is gone, or all its servers are.
package radius

import (
	"fmt"
	"time"

	"sluice.dev/sluice/agent/intent"
)

// stuckLook is how often records are looked at.
const stuckLook = time.Second

// reportStuck makes an event when records of a policy have no server to go to, and when they have one again. s.mu is held.
func (s *radius) reportStuck(now time.Time) {
	if now.Before(s.stuckAt) {
		return
	}
	s.stuckAt = now.Add(stuckLook)
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
		if s.Intent != nil {
			s.Intent.Report(&intent.ServiceEvent{Type: "spool", Kind: "RadiusSpool", Name: name, State: state, Text: text})
		}
	}
}
