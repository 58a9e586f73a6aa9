// SPDX-License-Identifier: Apache-2.0
// Hosts that are not authenticated: sessions that are half open, by circuit, and hosts that were rejected.

package pppoe

import (
	"container/list"
	"time"

	"sluice.dev/sluice/agent/subscriber"
)

// halfOpen is the sessions of a server that are not authenticated yet, and which circuits have the most of them.
type halfOpen struct {
	count    int
	circuits map[circuitKey]*list.List // of *session, the oldest first
	// Circuits by their number of such sessions, and the largest number.
	byCount map[int]map[circuitKey]struct{}
	largest int
}

func newHalfOpen() halfOpen {
	return halfOpen{circuits: map[circuitKey]*list.List{}, byCount: map[int]map[circuitKey]struct{}{}}
}

// of returns how many a circuit has.
func (h *halfOpen) of(c circuitKey) int {
	if l := h.circuits[c]; l != nil {
		return l.Len()
	}
	return 0
}

func (h *halfOpen) add(s *session) {
	c := s.key.circuitKey
	l := h.circuits[c]
	if l == nil {
		l = list.New()
		h.circuits[c] = l
	}
	s.half = l.PushBack(s)
	h.count++
	h.move(c, l.Len()-1, l.Len())
}

func (h *halfOpen) remove(s *session) {
	c := s.key.circuitKey
	l := h.circuits[c]
	if l == nil || s.half == nil {
		return
	}
	l.Remove(s.half)
	s.half = nil
	h.count--
	h.move(c, l.Len()+1, l.Len())
	if l.Len() == 0 {
		delete(h.circuits, c)
	}
}

// move: a circuit has one session more, or one less.
func (h *halfOpen) move(c circuitKey, from, to int) {
	if delete(h.byCount[from], c); len(h.byCount[from]) == 0 {
		delete(h.byCount, from)
	}
	if to > 0 {
		if h.byCount[to] == nil {
			h.byCount[to] = map[circuitKey]struct{}{}
		}
		h.byCount[to][c] = struct{}{}
	}
	if h.largest = max(h.largest, to); h.byCount[h.largest] == nil {
		h.largest--
	}
}

// oldest is the oldest session of a circuit that has the most; nil: there is none.
func (h *halfOpen) oldest() *session {
	for c := range h.byCount[h.largest] {
		return h.circuits[c].Front().Value.(*session)
	}
	return nil
}

const (
	// The pause after the first rejection. It doubles with each further one.
	shortestPause = time.Second
	longestPause  = 32 * time.Second
	// A rejection that is older does not count.
	rejectionAge = 2 * time.Minute
	// Hosts whose rejections are known. A further one takes the place of the oldest.
	rejectedLimit = 65536
)

// rejection is of a host that was not authenticated.
type rejection struct {
	host  hostKey
	at    int64
	pause time.Duration
}

// rejections are of all hosts, the oldest first.
type rejections struct {
	by    map[hostKey]*list.Element
	order *list.List
}

func newRejections() rejections { return rejections{map[hostKey]*list.Element{}, list.New()} }

// add notes the rejection of a host.
func (r *rejections) add(host hostKey, now int64) {
	r.expire(now)
	one := &rejection{host: host, at: now, pause: shortestPause}
	if e := r.by[host]; e != nil {
		one.pause = min(2*e.Value.(*rejection).pause, longestPause)
		r.order.Remove(e)
	}
	r.by[host] = r.order.PushBack(one)
	if len(r.by) > rejectedLimit {
		r.forget(r.order.Front().Value.(*rejection).host)
	}
}

func (r *rejections) expire(now int64) {
	for e := r.order.Front(); e != nil; e = r.order.Front() {
		one := e.Value.(*rejection)
		if now-one.at < int64(rejectionAge) {
			return
		}
		r.forget(one.host)
	}
}

func (r *rejections) forget(host hostKey) {
	if e := r.by[host]; e != nil {
		r.order.Remove(e)
		delete(r.by, host)
	}
}

// pauses reports whether a host was rejected so lately that it gets no answer.
func (r *rejections) pauses(host hostKey, now int64) bool {
	e := r.by[host]
	return e != nil && now-e.Value.(*rejection).at < int64(e.Value.(*rejection).pause)
}

// makeRoom ends the oldest session that is half open of a circuit that has the most, if the server has no room for one more.
func (m *Machine) makeRoom(s *server) {
	half := &m.loads[s.name].half
	for half.count >= s.halfOpenLimit() {
		oldest := half.oldest()
		if oldest == nil {
			return
		}
		m.dropped("half-open-replaced")
		// Its host gets a PADT once it sends a packet.
		m.end(oldest, subscriber.UserError, "another circuit needs room", false)
	}
}
