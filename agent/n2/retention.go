// SPDX-License-Identifier: Apache-2.0

// TS 38.413 section 8.7.1: contexts that outlive their association, and the agent.

package n2

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"sluice.dev/sluice/agent/durable"
)

// record is the record of a context; its key is the RAN UE NGAP ID.
type record struct {
	AMF   string `json:"amf"`
	AMFID int64  `json:"id"`
}

// keep writes the record of a context.
func (s *Service) keep(c *Context) {
	if s.environment.Records == nil {
		return
	}
	value, err := json.Marshal(record{c.amfName, c.amfID})
	if err != nil {
		s.Log.Error("the record of a context cannot be written", "error", err)
		return
	}
	s.environment.Records.Put(durable.Record{Key: strconv.FormatInt(c.ranID, 10), Value: value})
	s.ids.settle(c.ranID)
}

func (s *Service) forget(ranID int64) {
	if s.environment.Records != nil {
		s.environment.Records.Put(durable.Record{Key: strconv.FormatInt(ranID, 10)})
	}
}

// loadRecords reads the contexts from before a restart. They are suspended until their AMF confirms that it has retained
// them.
func (s *Service) loadRecords(now time.Time) error {
	if s.environment.Records == nil {
		return nil
	}
	s.ids.records = s.environment.Records
	for _, r := range s.environment.Records.All() {
		if is, err := s.ids.load(r.Key); is {
			if err != nil {
				return err
			}
			continue
		}
		var k record
		ran, err := strconv.ParseInt(r.Key, 10, 64)
		if err == nil {
			err = json.Unmarshal(r.Value, &k)
		}
		if err != nil {
			return fmt.Errorf("record %s of a context: %w", r.Key, err)
		}
		s.orphans[ran] = &Context{service: s, amfName: k.AMF, ranID: ran, amfID: k.AMFID, known: true, settled: true, suspended: true}
	}
	s.ownersDue = now.Add(ownerTime)
	return nil
}

// suspend: the association is lost. UEs whose context another AMF may take over hear nothing; other contexts whose UE can wait do so; the rest is lost.
func (s *Service) suspend(a *amf, reason string) {
	for _, c := range slices.Collect(maps.Values(a.ues)) {
		switch {
		case c.suspended || c.unbound:
		case c.ue != nil && s.succeeded(c):
			c.unbound = true
		default:
			s.wait(c, reason)
		}
	}
	s.reassess()
}

// wait: the context waits for its AMF, or is lost.
func (s *Service) wait(c *Context, reason string) {
	retained, can := c.ue.(Retained)
	switch {
	case can && c.known:
		c.suspended = true
		retained.Suspended()
	case c.ue == nil && c.known:
		c.suspended = true
	default:
		s.lose(c, Loss{Kind: AssociationLost, Reason: reason})
	}
}

// resume: NG setup is done, and the AMF kept the contexts or did not.
func (s *Service) resume(a *amf, retained bool) {
	if !retained {
		s.loseAll(a, "the AMF did not keep the context")
		s.erased(a)
		return
	}
	// Before messages of the contexts that stay.
	s.sweepAll(a)
	for _, c := range a.ues {
		c.unbound = false
		if !c.suspended {
			continue
		}
		c.suspended = false
		if c.left || c.ue == nil && s.ownersDue.IsZero() {
			c.Release()
			continue
		}
		if ue, can := c.ue.(Retained); can {
			s.guarded(c, ue.Resumed)
		}
	}
}

// loseAll: the AMF has none of its contexts any more, or will have none after the next NG setup.
func (s *Service) loseAll(a *amf, reason string) {
	for _, c := range a.ues {
		s.ended(c, Loss{Kind: AssociationLost, Reason: reason})
	}
}

// Claim implements Pool.
func (s *Service) Claim(ranID int64, ue UE) *Context {
	c := s.orphans[ranID]
	for _, a := range s.amfs {
		if c == nil {
			c = a.ues[ranID]
		}
	}
	if c == nil || c.ue != nil || c.left {
		return nil
	}
	c.ue = ue
	if c.suspended {
		return c
	}
	// The AMF was faster than the owner, which gets it after this call.
	s.claimed = append(s.claimed, c)
	return c
}

// disown ends contexts from before a restart that no owner claims, and resumes those that were claimed late.
func (s *Service) disown(now time.Time) {
	late := s.claimed
	s.claimed = nil
	for _, c := range late {
		ue, can := c.ue.(Retained)
		if c.gone || c.suspended {
			continue
		}
		if can {
			s.guarded(c, ue.Resumed)
		}
		waiting := c.waiting
		c.waiting = nil
		for _, message := range waiting {
			if !c.gone {
				s.give(c, message)
			}
		}
	}
	if s.ownersDue.IsZero() || now.Before(s.ownersDue) {
		return
	}
	s.ownersDue = time.Time{}
	for _, a := range s.amfs {
		for _, c := range a.ues {
			if c.ue == nil {
				c.Send(releaseRequest(c.amfID, c.ranID))
			}
		}
	}
}
