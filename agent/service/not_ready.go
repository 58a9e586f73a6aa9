// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// How often objects are checked that other objects depend on.
const dependencyInterval = time.Second

// Refused ends the reason of an object that does not serve because an object that its service makes is refused: "PuntRefused".
const Refused = "Refused"

// NotReadyReasons are the reasons why objects are not ready. A Service that embeds them is a ReadinessReporter. Each part of a service sets a reason of its own.
type NotReadyReasons struct {
	// The number of objects with a reason: usually there is none when one is asked for.
	count atomic.Int64
	mu    sync.Mutex
	of    map[object.Key]map[string]intent.NotReady
	needs map[object.Key]need
}

// need is an object that the service produces, and for which object it does.
type need struct {
	owner object.Key
	// Why it was not taken; nil: it was.
	refused error
}

// NotReady implements ReadinessReporter.
func (h *NotReadyReasons) NotReady(_ string, stored *object.StoredObject) intent.NotReady {
	if h.count.Load() == 0 {
		return intent.NotReady{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.of[stored.Key()]
	var found intent.NotReady
	for _, part := range slices.Sorted(maps.Keys(all)) {
		switch why := all[part]; {
		case found.Reason == "":
			found = why
		case found.Reason == why.Reason && len(found.Message) < longEnough:
			found.Message += "; " + why.Message
		}
	}
	return found
}

// longEnough is a message to which those of other parts are not added.
const longEnough = 256

// SetNotReady sets the reason why an object does not serve. An empty reason removes the part's reason. It reports whether
// the reason changed.
func (h *NotReadyReasons) SetNotReady(k object.Key, part, reason, message string) bool {
	return h.set(k, part, intent.NotReady{Reason: reason, Message: message, Since: time.Now()})
}

// SetUnanswered is SetNotReady for a reason outside of the configuration, such as a server that does not answer.
func (h *NotReadyReasons) SetUnanswered(k object.Key, part, reason, message string) bool {
	return h.set(k, part, intent.NotReady{Reason: reason, Message: message, Since: time.Now(), External: true})
}

func (h *NotReadyReasons) set(k object.Key, part string, now intent.NotReady) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, was := h.of[k][part]
	switch {
	case now.Reason == "" && !was, was && before.Reason == now.Reason && before.Message == now.Message:
		return false
	case now.Reason == "":
		if delete(h.of[k], part); len(h.of[k]) == 0 {
			delete(h.of, k)
		}
	default:
		if h.of == nil {
			h.of = map[object.Key]map[string]intent.NotReady{}
		}
		if h.of[k] == nil {
			h.of[k] = map[string]intent.NotReady{}
		}
		h.of[k][part] = now
	}
	h.count.Store(int64(len(h.of)))
	return true
}

// Needs links an object to a produced one: the object does not serve while the produced one is refused.
func (h *NotReadyReasons) Needs(owner, produced object.Key, refused error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.needs == nil {
		h.needs = map[object.Key]need{}
	}
	h.needs[produced] = need{owner, refused}
}

// NeedsNoLonger removes the link to a produced object that the service deletes.
func (h *NotReadyReasons) NeedsNoLonger(produced object.Key) {
	h.mu.Lock()
	n, was := h.needs[produced]
	delete(h.needs, produced)
	h.mu.Unlock()
	if was {
		h.SetNotReady(n.owner, produced.String(), "", "")
	}
}

// Watch checks the objects of Needs until the context ends: a refused one may be accepted later.
func (h *NotReadyReasons) Watch(ctx context.Context, of Intent) {
	clock := time.NewTicker(dependencyInterval)
	defer clock.Stop()
	for {
		h.look(of)
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
	}
}

func (h *NotReadyReasons) look(of Intent) {
	h.mu.Lock()
	all := make(map[object.Key]need, len(h.needs))
	for k, n := range h.needs {
		all[k] = n
	}
	h.mu.Unlock()
	for k, n := range all {
		reason, message := "", ""
		switch st, there := of.Get(k); {
		case there && st.State == intent.Failed:
			reason, message = k.Kind+Refused, k.String()+" is refused: "+withoutName(k, st.Message)
		case !there && n.refused != nil:
			reason, message = k.Kind+Refused, k.String()+" is refused: "+withoutName(k, n.refused.Error())
		}
		if h.SetNotReady(n.owner, k.String(), reason, message) {
			of.Touched(n.owner)
		}
	}
}

// withoutName is a reason of a data plane or of the agent without the object's name before it.
func withoutName(k object.Key, reason string) string {
	return strings.TrimPrefix(strings.TrimPrefix(reason, k.String()+": "), k.Kind+" "+k.Name+": ")
}
