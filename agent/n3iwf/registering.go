// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"container/list"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/ngap"
)

// UEs that register and are not authenticated: half-open UEs. Any host can make them, so they have a bound of their own beside maxUes, a time after which
// they end, and a pace at which their initial messages reach AMFs. Sources take turns: UEs of one source do not keep those of another one out.

const (
	// Half-open UEs of all N3iwfs, and those of a source. A further one ends the oldest.
	maxHalfOpen       = 4096
	maxHalfOpenSource = 32
	// How long a UE may take for its first answer, and for all.
	firstAnswerTime = 10 * time.Second
	halfOpenTime    = 30 * time.Second
)

var (
	// Initial messages a second, and at once, to all AMFs and of a source.
	paceOfAll    = pace{200, 400}
	paceOfSource = pace{20, 32}
)

var (
	errHalfOpen  = errors.New("UEs of its source that register are too many")
	errDisplaced = fmt.Errorf("newer UEs register, more than %d", maxHalfOpen)
	errLate      = errors.New("the UE does not finish its registration in time")
	errPace      = errors.New("UEs register faster than AMFs get them")
)

// pace is a rate a second and a burst.
type pace struct{ rate, burst float64 }

// bucket has the tokens of a pace.
type bucket struct {
	pace
	tokens float64
	at     time.Time
}

func (b *bucket) fill(now time.Time) {
	if !now.After(b.at) {
		return
	}
	b.tokens = min(b.burst, b.tokens+b.rate*now.Sub(b.at).Seconds())
	b.at = now
}

// source is an IPv4 address, or an IPv6 network of 64 bits.
type source struct {
	bucket
	key   netip.Prefix
	count int
	// Waits for its initial message to be sent, the first one first.
	queue []*ue
}

// registering are the half-open UEs.
type registering struct {
	// The oldest first: those whose initial message is not sent, and the others.
	fresh, asked list.List
	sources      map[netip.Prefix]*source
	// Sources with a queue: the first one is next.
	turns []*source
	all   bucket
	swept time.Time
}

func newRegistering(now time.Time) *registering {
	return &registering{sources: map[netip.Prefix]*source{}, all: bucket{paceOfAll, paceOfAll.burst, now}}
}

func sourceOf(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	p, _ := a.Prefix(min(a.BitLen(), 64))
	return p
}

func (r *registering) size() int { return r.fresh.Len() + r.asked.Len() }

// full reports whether a source has as many half-open UEs as it may.
func (r *registering) full(a netip.Addr) bool {
	s := r.sources[sourceOf(a)]
	return s != nil && s.count >= maxHalfOpenSource
}

// add takes a UE. It returns the UE that has to end for it; nil: none.
func (r *registering) add(u *ue, now time.Time) (displaced *ue) {
	if r.size() >= maxHalfOpen {
		oldest := r.fresh.Front()
		if oldest == nil {
			oldest = r.asked.Front()
		}
		displaced = oldest.Value.(*ue)
	}
	key := sourceOf(u.peer.Remote.Addr())
	s := r.sources[key]
	if s == nil {
		s = &source{bucket: bucket{paceOfSource, paceOfSource.burst, now}, key: key}
		r.sources[key] = s
	}
	s.count++
	u.source, u.begun, u.halfOpen = s, now, r.fresh.PushBack(u)
	return displaced
}

// leave forgets a UE that is authenticated, or gone.
func (r *registering) leave(u *ue) {
	if u.halfOpen == nil {
		return
	}
	r.listOf(u).Remove(u.halfOpen)
	u.halfOpen = nil
	u.source.count--
	u.source.queue = slices.DeleteFunc(u.source.queue, func(other *ue) bool { return other == u })
}

func (r *registering) listOf(u *ue) *list.List {
	if u.forwarded {
		return &r.asked
	}
	return &r.fresh
}

// wait queues a UE for its initial message.
func (r *registering) wait(u *ue) {
	if len(u.source.queue) == 0 && !slices.Contains(r.turns, u.source) {
		r.turns = append(r.turns, u.source)
	}
	u.source.queue = append(u.source.queue, u)
}

// next returns the UE whose turn it is; nil: none, or the pace does not allow it yet.
func (r *registering) next(now time.Time) *ue {
	if r.all.fill(now); r.all.tokens < 1 {
		return nil
	}
	for range len(r.turns) {
		s := r.turns[0]
		r.turns = r.turns[1:]
		if len(s.queue) == 0 {
			continue
		}
		r.turns = append(r.turns, s)
		if s.fill(now); s.tokens < 1 {
			continue
		}
		r.all.tokens--
		s.tokens--
		u := s.queue[0]
		s.queue = s.queue[1:]
		r.fresh.Remove(u.halfOpen)
		u.forwarded, u.halfOpen = true, r.asked.PushBack(u)
		return u
	}
	return nil
}

// late returns the UEs whose time is over.
func (r *registering) late(now time.Time) (over []*ue) {
	for _, one := range []*list.List{&r.fresh, &r.asked} {
		for e := one.Front(); e != nil; e = e.Next() {
			u := e.Value.(*ue)
			switch waits := now.Sub(u.begun); {
			case waits >= halfOpenTime, !u.asked && waits >= firstAnswerTime:
				over = append(over, u)
			}
		}
	}
	return over
}

// sweep forgets sources that have no UE and all their tokens.
func (r *registering) sweep(now time.Time) {
	if now.Sub(r.swept) < time.Second {
		return
	}
	r.swept = now
	for key, s := range r.sources {
		if s.fill(now); s.count == 0 && s.tokens >= s.burst {
			delete(r.sources, key)
		}
	}
}

// each calls f for each half-open UE.
func (r *registering) each(f func(*ue)) {
	for _, one := range []*list.List{&r.fresh, &r.asked} {
		for e := one.Front(); e != nil; {
			next := e.Next()
			f(e.Value.(*ue))
			e = next
		}
	}
}

// ---- Their use by the service

// beginUE takes a UE that begins to register; an error: it is refused.
func (s *serving) beginUE(in *instance, u *ue, now time.Time) error {
	switch {
	case len(in.ues) >= in.maxUEs():
		return in.tooMany()
	case s.registering.full(u.peer.Remote.Addr()):
		return errHalfOpen
	}
	if displaced := s.registering.add(u, now); displaced != nil {
		displaced.discard(errDisplaced)
	}
	return nil
}

// forward sends initial messages to AMFs as the pace allows.
func (s *serving) forward(now time.Time) {
	for u := s.registering.next(now); u != nil; u = s.registering.next(now) {
		if initial := u.initial; initial != nil {
			u.initial = nil
			initial()
		}
	}
}

// tickRegistering ends half-open UEs whose time is over, and sends initial messages.
func (s *serving) tickRegistering(now time.Time) {
	for _, u := range s.registering.late(now) {
		u.discard(errLate)
	}
	s.forward(now)
	s.registering.sweep(now)
}

// discard ends a UE that is not authenticated.
func (u *ue) discard(err error) {
	if u.answer != nil {
		u.refuse(err, backOffNotifies(u.in.backOff()))
		return
	}
	u.s.countRefusal(u.in.name, u.peer.Remote, err)
	u.note(err)
	u.release(ngap.CauseRadioNetworkFailureInRadioInterfaceProcedure)
}

// countRefusal counts a UE that is refused because of others, or that takes too long, and logs some.
func (s *serving) countRefusal(name string, remote netip.AddrPort, err error) {
	s.refused.WithLabelValues(reasonOf(err)).Inc()
	s.refusals.Warn(s.Log, time.Now(), "a UE is refused", slog.String("name", name), slog.String("remote", remote.String()), slog.Any("error", err))
}
