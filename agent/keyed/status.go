// SPDX-License-Identifier: Apache-2.0

// The status of documents, written beside them.
package keyed

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// Status is the status of a document and its objects.
type Status struct {
	// "Invalid": some objects are not accepted. Otherwise "Failed", "Pending", "Unknown" (applied to a data plane
	// that is away), or "Applied": all objects are applied.
	State string `json:"state"`
	// Of the text that this is about, in hexadecimal digits.
	SHA256 string    `json:"sha256"`
	Time   time.Time `json:"time"`
	// How many objects there are and, of these, how many are applied.
	Objects int `json:"objects"`
	Applied int `json:"applied"`
	// Of each object; at most 100, unapplied ones first.
	Details []Detail `json:"details,omitempty"`
	// At most 100.
	Mistakes []Mistake `json:"mistakes,omitempty"`
}

// Detail is the status of one object.
type Detail struct {
	Object  string `json:"object"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// The number of changes of the object, and the change that the data plane has, 0: none.
	Generation uint64 `json:"generation,omitempty"`
	Observed   uint64 `json:"observed,omitempty"`
}

// Mistake is why something is not accepted. All but the problem may be empty.
type Mistake struct {
	Line     int    `json:"line,omitempty"`
	Object   string `json:"object,omitempty"`
	Field    string `json:"field,omitempty"`
	Problem  string `json:"problem"`
	Found    string `json:"found,omitempty"`
	Accepted string `json:"accepted,omitempty"`
}

// Most details and mistakes of one status, and most statuses at once.
const (
	maxReported = 100
	maxBatch    = 1000
)

// JSON is the status as it is written.
func (s *Status) JSON() []byte {
	// Strings and numbers can always be written.
	text, _ := json.Marshal(s)
	return text
}

func mistakeOf(e *object.Error) Mistake {
	m := Mistake{Line: e.Line, Field: e.Field, Problem: e.Problem, Found: e.Found, Accepted: e.Accepted}
	if e.Object.Kind != "" && e.Object.Name != "" {
		m.Object = e.Object.String()
	} else {
		m.Object = e.Object.Kind
	}
	return m
}

// status of a document; nil if it has none. s.mu is held.
func (s *set) status(key string) *Status {
	if key == heldKey {
		return s.heldStatus()
	}
	d := s.documents[key]
	if d == nil {
		return nil
	}
	st := &Status{State: intent.Applied.String(), SHA256: hex.EncodeToString(d.sum[:]), Objects: len(d.objects)}
	mistakes := slices.Clone(d.mistakes)
	failed, unknown := false, 0
	for k, w := range d.objects {
		if first := s.holder[k]; first != d {
			mistakes = append(mistakes, &object.Error{Line: w.line, Object: k, Problem: "is in " + keyText(first.key) + " already",
				Accepted: "an object that is in one document"})
			st.Details = append(st.Details, Detail{Object: k.String(), State: "Refused", Reason: "InTwoDocuments"})
			continue
		}
		detail := s.detail(k, w.object)
		if e := s.refused[k]; e != nil {
			mistakes = append(mistakes, e)
		}
		switch detail.State {
		case intent.Applied.String():
			st.Applied++
		case intent.Failed.String():
			failed = true
		case intent.Unknown.String():
			unknown++
		}
		st.Details = append(st.Details, detail)
	}
	slices.SortFunc(st.Details, func(a, b Detail) int {
		applied := func(d Detail) int {
			if d.State == intent.Applied.String() {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(applied(a), applied(b)), cmp.Compare(a.Object, b.Object))
	})
	st.Details = st.Details[:min(len(st.Details), maxReported)]
	slices.SortStableFunc(mistakes, byLine)
	for _, e := range mistakes[:min(len(mistakes), maxReported)] {
		st.Mistakes = append(st.Mistakes, mistakeOf(e))
	}
	switch {
	case len(mistakes) > 0:
		st.State = "Invalid"
	case failed:
		st.State = intent.Failed.String()
	case unknown > 0 && st.Applied+unknown == st.Objects:
		st.State = intent.Unknown.String()
	case st.Applied < st.Objects:
		st.State = intent.Pending.String()
	}
	return st
}

// detail of an object that is taken from its document. s.mu is held.
func (s *set) detail(k object.Key, o *object.Object) Detail {
	detail := Detail{Object: k.String(), State: intent.Pending.String(), Reason: "WaitsForTurn"}
	_, pending := s.pending[k]
	switch {
	case s.refused[k] != nil:
		detail.State, detail.Reason, detail.Message = "Refused", "NotAcceptable", s.refused[k].Sentence()
		return detail
	case pending:
		return detail
	}
	now, _ := s.Intent.Get(k)
	detail.State, detail.Reason, detail.Message = now.State.String(), now.Reason, now.Message
	detail.Generation, detail.Observed = now.Generation, now.Observed
	if now.Object == nil {
		detail.State, detail.Reason, detail.Message = intent.Pending.String(), "TakenAway", "it was removed from the configuration"
	} else if why := s.overridden(k, o, now); why != "" {
		detail.State, detail.Reason, detail.Message = intent.Pending.String(), "Overridden", why
	}
	return detail
}

// overridden names the fields whose values another owner overrides, and that owner. Empty: none.
func (s *set) overridden(k object.Key, o *object.Object, now intent.Status) string {
	if !now.Of(s.Name) {
		if now.Object.Equal(o) {
			return ""
		}
		return "the value of " + now.Owner + " counts"
	}
	if len(now.Owners) < 2 {
		return ""
	}
	var why []string
	holder := map[string]string{}
	for _, owner := range s.Intent.Owners(k) {
		for _, f := range owner.Fields {
			switch {
			case holder[f.Field] == "":
				holder[f.Field] = owner.Owner
			case owner.Owner == s.Name && f.Overridden:
				why = append(why, f.Field+" has the value of "+holder[f.Field])
			}
		}
	}
	return strings.Join(why, "; ")
}

// lookAtAll writes all statuses that differ from the written ones.
func (n *engine) lookAtAll() {
	n.mu.Lock()
	n.touchAll()
	n.mu.Unlock()
	n.statusWriter.wake()
}

// follow processes events of objects until ctx ends.
func (n *engine) follow(ctx context.Context) {
	defer n.statusWriter.forgetAway()
	for ctx.Err() == nil {
		events, err := n.Intent.Events(intent.Cursor{})
		if err != nil {
			n.Log.Warn("what happens to objects cannot be followed", "error", err)
			pause(ctx, n.pace.most)
			continue
		}
		// Events before these are lost.
		n.statusWriter.forgetAway()
		n.lookAtAll()
		for {
			e, err := events.Next(ctx)
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, intent.ErrTooLate) {
					n.Log.Warn("what happens to objects cannot be followed", "error", err)
					pause(ctx, n.pace.least)
				}
				break
			}
			switch {
			case e.Dataplane != nil && e.Dataplane.Connected:
				n.statusWriter.back(e.Dataplane.Name)
				n.lookAtAll()
			case e.Dataplane != nil:
				n.statusWriter.gone(e.Dataplane.Name)
				n.lookAtAll()
			case e.Service == nil:
				n.noteStatus(e.Status.Key)
			}
		}
	}
}

func (n *engine) noteStatus(k object.Key) {
	n.mu.Lock()
	d, refused := n.holder[k], n.refused[k] != nil
	if d != nil {
		n.dirty[d.key] = struct{}{}
	}
	n.mu.Unlock()
	if d != nil {
		n.statusWriter.wake()
	}
	if refused {
		select {
		case n.again <- struct{}{}:
		default:
		}
	}
}

// statusWriter writes statuses.
type statusWriter struct {
	northbound.Environment
	driver Driver
	set    *set
	pace   pace
	woken  chan struct{}

	mu sync.Mutex
	// Everything was listed once, and again since it was looked for statuses of documents that are gone.
	ready, look bool
	// Of the last written status, without the time.
	last map[string][sha256.Size]byte
	// The data planes that are away. A short absence writes no status: applied objects become Unknown after the timer
	// fires.
	away  map[string]bool
	timer *time.Timer
	long  bool
}

func newStatusWriter(e northbound.Environment, d Driver, s *set, p pace) *statusWriter {
	return &statusWriter{Environment: e, driver: d, set: s, pace: p, woken: make(chan struct{}, 1), last: map[string][sha256.Size]byte{}, away: map[string]bool{}}
}

func (t *statusWriter) wake() {
	select {
	case t.woken <- struct{}{}:
	default:
	}
}

// listed is called after a listing of documents, because the driver may have lost written statuses.
func (t *statusWriter) listed([]Document) {
	t.set.mu.Lock()
	t.set.touchAll()
	t.set.mu.Unlock()
	t.mu.Lock()
	t.ready, t.look = true, true
	clear(t.last)
	t.mu.Unlock()
	t.wake()
}

func (t *statusWriter) run(ctx context.Context) {
	wait, lost := t.pace.least, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.woken:
		}
		more, err := t.write(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !lost {
				t.Log.Warn("statuses cannot be written; trying again", "error", err)
			}
			lost = true
			pause(ctx, wait)
			wait = min(2*wait, t.pace.most)
			t.wake()
		default:
			wait, lost = t.pace.least, false
			if more {
				t.wake()
			} else {
				pause(ctx, t.pace.statuses)
			}
		}
	}
}

// write writes a batch of statuses, and returns whether there are more.
func (t *statusWriter) write(ctx context.Context) (bool, error) {
	t.mu.Lock()
	ready, look := t.ready, t.look
	t.look = false
	t.mu.Unlock()
	if !ready {
		return false, nil
	}
	if look {
		if err := t.lookForOld(ctx); err != nil {
			t.mu.Lock()
			t.look = true
			t.mu.Unlock()
			return false, err
		}
	}
	updates, sums, more := t.next()
	if len(updates) == 0 {
		return more, nil
	}
	if err := t.driver.WriteStatuses(ctx, updates); err != nil {
		t.set.mu.Lock()
		for _, one := range updates {
			t.set.dirty[one.Key] = struct{}{}
		}
		t.set.mu.Unlock()
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, one := range updates {
		if one.Status == nil {
			delete(t.last, one.Key)
		} else {
			t.last[one.Key] = sums[i]
		}
	}
	return more, nil
}

// startTimer starts it if it does not run. t.mu is held.
func (t *statusWriter) startTimer() {
	if t.timer != nil {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(t.pace.unknown, func() {
		t.mu.Lock()
		t.long = t.long || t.timer == timer
		t.mu.Unlock()
		t.set.mu.Lock()
		t.set.touchAll()
		t.set.mu.Unlock()
		t.wake()
	})
	t.timer = timer
}

// gone is called when a data plane is away.
func (t *statusWriter) gone(dataplane string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.away[dataplane] = true
	t.startTimer()
}

// back is called when a data plane is there again.
func (t *statusWriter) back(dataplane string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if delete(t.away, dataplane); len(t.away) == 0 {
		t.stopTimer()
	}
}

// forgetAway clears the set of data planes that are away. It is called when events were lost or following ends.
func (t *statusWriter) forgetAway() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.away)
	t.stopTimer()
}

func (t *statusWriter) stopTimer() {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer, t.long = nil, false
}

// lookForOld finds statuses of documents that were deleted while the agent was away.
func (t *statusWriter) lookForOld(ctx context.Context) error {
	keys, err := t.driver.Statuses(ctx)
	if err != nil {
		return err
	}
	t.set.mu.Lock()
	defer t.set.mu.Unlock()
	for _, key := range keys {
		if t.set.documents[key] == nil && key != MarkKey {
			t.set.dirty[key] = struct{}{}
		}
	}
	return nil
}

// next returns statuses that differ from the written ones.
func (t *statusWriter) next() (updates []StatusUpdate, sums [][sha256.Size]byte, more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set.mu.Lock()
	defer t.set.mu.Unlock()
	now := time.Now().UTC().Truncate(time.Millisecond)
	looked := 0
	for key := range t.set.dirty {
		if looked == maxBatch {
			return updates, sums, true
		}
		looked++
		delete(t.set.dirty, key)
		st := t.set.status(key)
		if st == nil {
			updates, sums = append(updates, StatusUpdate{Key: key}), append(sums, [sha256.Size]byte{})
			continue
		}
		sum := sha256.Sum256(st.JSON())
		old, there := t.last[key]
		if there && old == sum {
			continue
		}
		if there && st.State == intent.Unknown.String() && !t.long {
			// The data plane may be away before its event arrives.
			t.startTimer()
			continue
		}
		st.Time = now
		updates, sums = append(updates, StatusUpdate{key, st}), append(sums, sum)
	}
	return updates, sums, false
}
