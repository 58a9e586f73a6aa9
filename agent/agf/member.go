// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

// member is a subscriber session with its PDU session.
type member struct {
	service *agf
	id      string
	of      *registration
	session *Session
	mac     subscriber.MAC
	circuit subscriber.Circuit
	request *subscriber.Request
	// Nil: it was called.
	done func(subscriber.Answer)
	// The subscriber session began.
	started bool
	teid    uint32
	// The UPF's end of the tunnel in the data plane, and of the one that the subscriber session begins with.
	end, first farEnd
	due        *time.Timer
	// Objects that the subscriber session names, and that it will name as soon as they are there.
	used profiles
	next *profiles
	// The core's last result.
	result Result
	gone   bool
}

// profiles are names of objects; "": none.
type profiles struct {
	flows, up, down string
	// Those that the flows name.
	meters []string
}

func (p *profiles) keys() (all []object.Key) {
	for _, of := range []struct {
		kind  string
		names []string
	}{{"FlowProfile", []string{p.flows}}, {"QosProfile", []string{p.up, p.down}}, {"Meter", p.meters}} {
		for _, name := range of.names {
			if name != "" {
				all = append(all, object.Key{Kind: of.kind, Name: name})
			}
		}
	}
	return all
}

const sharedPrefix = "core-"

// nameOf a shared object.
func nameOf(spec proto.Message, owner string) string {
	return service.SharedName(sharedPrefix, spec, owner)
}

func (s *agf) release(p profiles) {
	for _, key := range p.keys() {
		s.shared.Release(key)
	}
}

// do calls f under the lock of the Pool.
func (s *agf) do(f func()) {
	s.mu.Lock()
	pool := s.pool
	s.mu.Unlock()
	if pool != nil {
		pool.Do(f)
		return
	}
	f()
}

// prepare produces the objects of a result; then is called when the data plane has them.
func (m *member) prepare(r *Result, then func(profiles)) {
	var p profiles
	left := 1
	one := func() {
		if left--; left == 0 {
			then(p)
		}
	}
	for _, each := range r.Meters {
		left++
		p.meters = append(p.meters, m.service.shared.TakeAs("Meter", each.Name, each.Spec, one).Name)
	}
	if r.Flows != nil {
		left++
		p.flows = m.service.shared.Take("FlowProfile", r.Flows, one).Name
	}
	if r.QueuesUp != nil {
		left++
		p.up = m.service.shared.Take("QosProfile", r.QueuesUp, one).Name
	}
	if r.QueuesDown != nil {
		left++
		p.down = m.service.shared.Take("QosProfile", r.QueuesDown, one).Name
	}
	one()
}

// grant of a result. change: what is not there is cleared.
func grantOf(r *Result, p profiles, change bool) subscriber.Grant {
	g := subscriber.Grant{IPv4: r.IPv4, Core: r.Tunnel, FlowProfile: p.flows, QosProfile: p.down, QosProfileUp: p.up, DNS: r.DNS, MTU: uint32(r.MTU),
		InterfaceID: r.InterfaceID, IPv6Prefix: r.Prefix, Delegated: r.Delegated, IPv6: r.IPv6(), RateUp: subscriber.Rate{BitsPerSecond: r.Up}, RateDown: subscriber.Rate{BitsPerSecond: r.Down}}
	if g.MTU != 0 {
		g.MTU = max(g.MTU, 1280)
	}
	// The rates of flows take the place of the profile's, too.
	if r.Up == 0 && (change || len(r.Meters) > 0) {
		g.MeterUp = subscriber.Clear
	}
	if r.Down == 0 && (change || len(r.Meters) > 0) {
		g.MeterDown = subscriber.Clear
	}
	if !change {
		return g
	}
	for _, of := range []*string{&g.FlowProfile, &g.QosProfile, &g.QosProfileUp} {
		if *of == "" {
			*of = subscriber.Clear
		}
	}
	return g
}

// endOf is the UPF's end of the tunnel of a result.
func endOf(r *Result) farEnd {
	address, _ := netip.ParseAddr(r.Tunnel.RemoteAddress)
	return farEndOf(address, r.Tunnel.RemoteTeid)
}

// forwards: the data plane has the tunnel with this end. Until then, error indications are about the one before.
func (m *member) forwards(end farEnd) {
	if !m.gone {
		m.service.moveEnd(m, &m.end, end)
	}
}

// Up implements Events.
func (m *member) Up(r Result) {
	m.result = r
	m.prepare(&r, func(p profiles) {
		if m.gone {
			m.service.release(p)
			return
		}
		m.used, m.first = p, endOf(&r)
		m.answer(subscriber.Answer{Grant: grantOf(&r, p, false)})
		// Without a Start record there is no session.
		m.due = time.AfterFunc(sessionTime, func() { m.service.do(m.abandoned) })
	})
}

func (m *member) answer(a subscriber.Answer) {
	if done := m.done; done != nil {
		m.done = nil
		done(a)
	}
}

// abandoned: the subscriber session did not begin.
func (m *member) abandoned() {
	if !m.started && !m.gone {
		m.leave()
		m.session.Release()
	}
}

// began: the subscriber session is up.
func (m *member) began() {
	m.started = true
	m.forwards(m.first)
	if m.due != nil {
		m.due.Stop()
	}
	// Changes of the core meanwhile.
	if m.next != nil {
		m.change()
	}
	m.service.Save(m.of.Line)
}

// Changed implements Events.
func (m *member) Changed(r Result) {
	m.result = r
	m.prepare(&r, func(p profiles) {
		if m.gone {
			m.service.release(p)
			return
		}
		if m.next != nil {
			m.service.release(*m.next)
		}
		m.next = &p
		if m.started {
			m.change()
		}
	})
}

func (m *member) change() {
	before, now, end := m.used, *m.next, endOf(&m.result)
	m.used, m.next = now, nil
	s := m.service
	s.mu.Lock()
	manager := s.manager
	s.mu.Unlock()
	manager.Change([]subscriber.Match{{ID: m.id}}, grantOf(&m.result, now, true), func(_ int, err error) {
		if err != nil && !errors.Is(err, subscriber.ErrNoSession) {
			s.environment.Log.Warn("a session does not take what the core changed", "session", m.id, "error", err)
		}
		s.do(func() {
			if err == nil {
				m.forwards(end)
			}
			s.release(before)
		})
	})
}

// Ended implements Events.
func (m *member) Ended(err error) {
	if m.gone {
		return
	}
	m.leave()
	if m.done != nil {
		reject := fmt.Errorf("%w: %w", subscriber.ErrRejected, err)
		if errors.Is(err, n2.ErrNoAMF) {
			reject = fmt.Errorf("%w: %w", subscriber.ErrUnavailable, err)
		}
		m.answer(subscriber.Answer{Reject: reject, Message: m.request.Failure(textOf(err))})
		return
	}
	s := m.service
	s.environment.Log.Info("the core ends a subscriber", "session", m.id, "why", fmt.Sprint(err))
	s.mu.Lock()
	manager := s.manager
	s.mu.Unlock()
	manager.Terminate([]subscriber.Match{{ID: m.id}}, subscriber.LostService, textOf(err), nil)
}

// textOf an error is for the subscriber. Errors about AMFs have names that are for the operator.
func textOf(err error) string {
	if errors.Is(err, n2.ErrNoAMF) {
		return "no 5G core serves the line"
	}
	return err.Error()
}

// leave forgets the member.
func (m *member) leave() {
	if m.gone {
		return
	}
	m.gone = true
	s := m.service
	delete(s.members, m.id)
	delete(s.teids, m.teid)
	s.moveEnd(m, &m.end, farEnd{})
	if m.due != nil {
		m.due.Stop()
	}
	s.release(m.used)
	if m.next != nil {
		s.release(*m.next)
	}
	m.used, m.next = profiles{}, nil
}

// takeOver: the line dials in from another circuit while its session is still up. The PDU session stays, and the AMF
// is informed.
func (m *member) takeOver(before *member) {
	s := m.service
	m.session, m.teid, m.used, m.next = before.session, before.teid, before.used, before.next
	m.session.events = m
	before.used, before.next, before.teid = profiles{}, nil, 0
	s.teids[m.teid] = m
	before.leave()
	// The tunnel stays as it is.
	m.result, m.first = before.result, endOf(&before.result)
	m.forwards(m.first)
	s.mu.Lock()
	manager := s.manager
	s.mu.Unlock()
	manager.Terminate([]subscriber.Match{{ID: before.id}}, subscriber.LostCarrier, "the line dials in elsewhere", nil)
	m.answer(subscriber.Answer{Grant: grantOf(&m.result, m.used, false)})
	m.due = time.AfterFunc(sessionTime, func() { s.do(m.abandoned) })
	m.of.Moved()
	s.Save(m.of.Line)
}
