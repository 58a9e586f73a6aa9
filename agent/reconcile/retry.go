// SPDX-License-Identifier: Apache-2.0

// Refusals of the data plane.
package reconcile

import (
	"fmt"
	"maps"
	"slices"
)

// Linux's numbers, which the contract uses (api/dataplane.proto).
const (
	enoent   = 2
	e2big    = 7
	ebusy    = 16
	eexist   = 17
	einval   = 22
	emsgsize = 90
)

// passing reports whether a refusal may pass after another operation: a needed object is not there yet, the object is
// still in use, or another has its claim. References show most of that before; but a route finds its interface by an
// address.
func passing(code int32) bool { return code == enoent || code == ebusy || code == eexist }

// final reports whether a refusal is permanent until the object, or one that it names, changes: a value is not
// acceptable, or a limit is exceeded.
func final(code int32) bool { return code == einval || code == e2big || code == emsgsize }

// refusal is a step that is done again as soon as any other succeeded.
type refusal struct {
	entry  *entry
	action Action
	result Result
	// How many steps had succeeded by then.
	succeeded uint64
}

// failure is something that the data plane refused for good, or for now.
type failure struct {
	entry  *entry
	action Action
	result Result
}

func (g *graph) refuse(e *entry, action Action, result Result) {
	e.refusal = &refusal{e, action, result, g.succeeded}
	g.refused = append(g.refused, e.refusal)
	switch {
	case e.failures > 0:
	case e.desired == nil:
		g.mark(e, Deleting, TriedAgain, "is tried again: "+messageOf(result))
	default:
		g.mark(e, Pending, TriedAgain, "is tried again: "+messageOf(result))
	}
}

// reconsider is called when nothing else can be done. Entries that were refused before another success are decided
// about again; if there was none, they fail. It returns false if there is nothing.
func (g *graph) reconsider() bool {
	refused := g.refused
	g.refused = nil
	progress := false
	for _, r := range refused {
		switch {
		case r.entry.refusal != r: // decided about since
		case g.simulating || r.succeeded != g.succeeded:
			progress = true
			g.enqueue(r.entry, nil)
		default:
			g.refused = append(g.refused, r)
		}
	}
	if progress {
		return true
	}
	refused, g.refused = g.refused, nil
	for _, r := range refused {
		r.entry.refusal = nil
		g.fail(r.entry, r.action, r.result)
		g.wake(r.entry)
		g.rest(r.entry)
	}
	return len(refused) > 0
}

// fail: there is nothing better to do than to wait and try again; or, if that would be no use, until something is another.
func (g *graph) fail(e *entry, action Action, result Result) {
	e.failures = min(e.failures+1, 100)
	message, reason := messageOf(result), Refused
	if result.Code == enoent && e.kind.HasNextHops() && e.desired != nil {
		g.networks.stranded[e] = struct{}{} // an interface that comes has it tried again
	}
	if final(result.Code) {
		reason = Unacceptable
		g.condemn(e)
	}
	if e.desired == nil {
		g.mark(e, Deleting, reason, message)
	} else {
		g.mark(e, Failed, reason, message)
	}
	if !g.simulating {
		e.cause.failed(Failure{e.key, message, reason})
		g.failures = append(g.failures, failure{e, action, result})
	}
}

// condemn queues an entry when the data plane has another version of an object that it names.
func (g *graph) condemn(e *entry) {
	if e.desired == nil || g.simulating {
		return
	}
	for k := range e.desired.needs() {
		if g.condemned[k] == nil {
			g.condemned[k] = map[*entry]struct{}{}
		}
		g.condemned[k][e] = struct{}{}
	}
}

// pardon is the end of that.
func (g *graph) pardon(e *entry) {
	if e.desired == nil || g.simulating || len(g.condemned) == 0 {
		return
	}
	for k := range e.desired.needs() {
		if delete(g.condemned[k], e); len(g.condemned[k]) == 0 {
			delete(g.condemned, k)
		}
	}
}

// appeal: the data plane has another version of an object that condemned entries name.
func (g *graph) appeal(e *entry) {
	for _, c := range inOrder(slices.Collect(maps.Keys(g.condemned[e.key]))) {
		g.enqueue(c, e.cause)
	}
}

func messageOf(r Result) string {
	if r.Message == "" {
		return fmt.Sprintf("the data plane refused it with error %d", r.Code)
	}
	return r.Message
}
