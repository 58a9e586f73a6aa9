// SPDX-License-Identifier: Apache-2.0
// Back ends, and the order in which they are asked.

package subscriber

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// core is the back end that checks no credentials of a subscriber's: a 5G core knows the line.
const core = "core"

// Authenticate implements Manager.
func (m *manager) Authenticate(r Request, done func(Answer)) {
	m.mu.Lock()
	p := m.profiles[r.Profile]
	if s := m.sessions[r.ID]; s != nil && r.Line.MAC == s.connection.Line.MAC {
		// It authenticates again: what the access node said of the line still holds.
		line := &s.connection.Line
		r.Line.CircuitID, r.Line.RemoteID, r.Line.Attributes = line.CircuitID, line.RemoteID, line.Attributes
	}
	m.mu.Unlock()
	if p == nil {
		m.refuse("no-profile")
		missing := fmt.Errorf("%w: %s", ErrNoProfile, r.Profile)
		m.logRejected(&r, missing)
		m.later(func() { done(Answer{Reject: missing}) })
		return
	}
	if r.Username == "" && r.Password == nil && r.CHAP == nil && r.MSCHAPv2 == nil {
		r.Username = lineName(p.Username, &r)
		if p.Password != "" {
			r.Password = []byte(p.Password)
		}
	}
	names := p.Authentication
	if len(names) == 0 {
		names = []string{"local"}
	}
	if also := p.Authorization; len(also) > 0 {
		last := done
		done = func(a Answer) { m.authorize(r, also, a, last) }
	}
	m.ask(r, names, Answer{Reject: ErrUnknownUser}, done)
}

// logRejected names a subscriber who is rejected, and why.
func (m *manager) logRejected(r *Request, why error) {
	m.rejected.Warn(m.log, m.now(), "a subscriber is rejected", slog.String("username", r.Username), slog.String("protocol", r.Protocol),
		slog.String("circuit", r.Line.Circuit.String()), slog.String("mac", r.Line.MAC.String()), slog.Any("error", why))
}

// authorize asks the subscriber's further back ends. so is the grant until then.
func (m *manager) authorize(r Request, names []string, so Answer, done func(Answer)) {
	if so.Reject != nil || len(names) == 0 {
		done(so)
		return
	}
	if so.Grant.Username != "" {
		r.Username = so.Grant.Username
	}
	r.checked = so.checked
	m.ask(r, names[:1], Answer{Reject: ErrUnknownUser}, func(a Answer) {
		if a.Reject == nil {
			a.Grant = joined(so.Grant, a.Grant)
			a.Grant.Local, a.Grant.Proved = so.Grant.Local, so.Grant.Proved
			// MS-CHAPv2's success is that of the first.
			a.Message = or(so.Message, a.Message)
		}
		m.authorize(r, names[1:], a, done)
	})
}

// joined is a grant with another one before it, field by field.
func joined(g, before Grant) Grant {
	to, from := reflect.ValueOf(&g).Elem(), reflect.ValueOf(before)
	for i := range from.NumField() {
		if value := from.Field(i); !value.IsZero() {
			to.Field(i).Set(value)
		}
	}
	return g
}

// lineName fills in the template of a line without credentials.
func lineName(template string, r *Request) string {
	if template == "" {
		template = "{mac}"
	}
	l := &r.Line
	return strings.NewReplacer("{port}", l.Port, "{outer}", strconv.Itoa(int(l.OuterVLAN)), "{inner}", strconv.Itoa(int(l.InnerVLAN)),
		"{mac}", l.MAC.String(), "{circuit}", string(l.CircuitID), "{remote}", string(l.RemoteID), "{protocol}", r.Protocol).Replace(template)
}

// ask asks the back ends in turn. last is the answer of the one before.
func (m *manager) ask(r Request, names []string, last Answer, done func(Answer)) {
	if len(names) == 0 {
		m.refuse("rejected")
		m.logRejected(&r, last.Reject)
		rejected := last
		rejected.Reject = fmt.Errorf("%w: %w", ErrRejected, last.Reject)
		m.later(func() { done(rejected) })
		return
	}
	next := func(a Answer) {
		switch {
		case a.Reject == nil:
			if a.Grant.Username == "" {
				a.Grant.Username = r.Username
			}
			a.Grant.Local = names[0] == "local" || names[0] == "none"
			a.Grant.Proved = r.Password != nil || r.CHAP != nil || r.MSCHAPv2 != nil
			a.checked = r.checked || names[0] != "none" && names[0] != core
			m.later(func() { done(a) })
		case errors.Is(a.Reject, ErrUnknownUser), errors.Is(a.Reject, ErrUnavailable):
			m.ask(r, names[1:], a, done)
		default:
			m.ask(r, nil, a, done)
		}
	}
	if names[0] == core && !r.checked {
		// Nothing has checked the name that a host sends: the line is the subscriber.
		m.mu.Lock()
		template := m.profiles[r.Profile].GetUsername()
		m.mu.Unlock()
		if template != "" {
			r.Username = lineName(template, &r)
		}
	}
	switch name := names[0]; name {
	case "none":
		next(Answer{})
	case "local":
		m.mu.Lock()
		a := authenticateLocal(m.users, &r)
		m.mu.Unlock()
		if a.Message == "" && a.Reject != nil {
			a.Message = failureOf(&r)
		}
		next(a)
	default:
		m.mu.Lock()
		b := m.backEnds[name].authenticator
		m.mu.Unlock()
		if b == nil {
			next(Answer{Reject: fmt.Errorf("%w: %s does not run", ErrUnavailable, name), Message: failureOf(&r)})
			return
		}
		var once sync.Once
		b.Authenticate(r, func(a Answer) { once.Do(func() { next(a) }) })
	}
}

// Use implements Manager.
func (m *manager) Use(name string, a Authenticator, c Accountant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.backEnds[name] = backEnd{a, c, true}
	if c == nil {
		return
	}
	m.resume(name, c)
	waiting := m.undelivered[name]
	delete(m.undelivered, name)
	for _, d := range waiting {
		m.deliver(name, d)
	}
}
