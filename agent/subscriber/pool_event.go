// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"time"

	"sluice.dev/sluice/agent/intent"
)

// A pool that was exhausted is available again after so long without a refusal: at its limit, addresses come and go.
const poolQuiet = time.Minute

// poolEvents are the events of pools that were exhausted, are available again, or had an address declined, since the last call.
func (m *manager) poolEvents(now time.Time) (events []*intent.ServiceEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endQuarantine(now)
	events, m.quarantine.unspoken = m.quarantine.unspoken, nil
	for name, p := range m.pools {
		grew := p.exhausted != p.seen
		if grew {
			p.seen, p.grew = p.exhausted, now
		}
		switch {
		case grew && !p.announced:
			p.announced = true
			events = append(events, poolEvent(name, p.vrf, "exhausted", "AddressPool/"+name+" has no address left"))
		case p.announced && uint64(max(p.used, 0)) < p.size && now.Sub(p.grew) >= poolQuiet:
			p.announced = false
			events = append(events, poolEvent(name, p.vrf, "available", "AddressPool/"+name+" has addresses again"))
		}
	}
	return events
}

func poolEvent(name, vrf, state, text string) *intent.ServiceEvent {
	return &intent.ServiceEvent{Type: "pool", Kind: "AddressPoolUse", Name: name, State: state, Fields: []intent.EventField{{Name: "vrf", Value: vrf}}, Text: text}
}
