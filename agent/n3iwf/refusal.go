// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/api"
)

// UEs that were refused, for operators.

const (
	// How long a refusal is shown, and how many are.
	refusalTime = 15 * time.Minute
	maxRefusals = 1000
)

// refusal is a UE that was refused.
type refusal struct {
	name, n3iwf, amf string
	remote           netip.AddrPort
	at               time.Time
	why              error
}

// refusals are the newest refusal of each address and port. Those that a source causes at will are one.
type refusals struct {
	of map[any]*refusal
	// The oldest first; with those that newer ones replaced.
	order []noted
}

type noted struct {
	key any
	*refusal
}

func (r *refusals) add(one *refusal) {
	if r.of == nil {
		r.of = map[any]*refusal{}
	}
	var key any = one.remote
	if flooding(one.why) {
		key = sourceOf(one.remote.Addr())
	}
	r.of[key] = one
	r.order = append(r.order, noted{key, one})
	for len(r.of) > maxRefusals {
		r.pop()
	}
	if len(r.order) > 2*maxRefusals {
		r.order = slices.DeleteFunc(r.order, func(n noted) bool { return r.of[n.key] != n.refusal })
	}
}

// pop forgets the oldest.
func (r *refusals) pop() {
	oldest := r.order[0]
	if r.order = r.order[1:]; r.of[oldest.key] == oldest.refusal {
		delete(r.of, oldest.key)
	}
}

// sweep forgets what was long ago.
func (r *refusals) sweep(now time.Time) {
	for len(r.order) > 0 && now.Sub(r.order[0].at) >= refusalTime {
		r.pop()
	}
}

// connected: a UE that was refused is connected now.
func (r *refusals) connected(remote netip.AddrPort) { delete(r.of, remote) }

// flooding reports whether a refusal is because of many UEs that register.
func flooding(err error) bool {
	return slices.Contains([]string{"half-open", "displaced", "late", "pace"}, reasonOf(err))
}

// matches reports whether a query is about a refused UE.
func (r *refusal) matches(q *api.N3IwfUesQuery) bool {
	if q.GetN3Iwf() != "" && q.GetN3Iwf() != r.n3iwf || q.GetName() != "" && q.GetName() != r.name || q.GetState() != "" && q.GetState() != refused {
		return false
	}
	a, err := netip.ParseAddr(q.GetAddress())
	return q.GetAddress() == "" || err == nil && r.remote.Addr().Unmap() == a.Unmap()
}

// state is a refused UE as operators see it.
func (r *refusal) state() *api.N3IwfUe {
	return &api.N3IwfUe{N3Iwf: r.n3iwf, Name: r.name, Remote: r.remote.String(), Amf: r.amf, Since: r.at.UnixNano(), State: refused, Reason: r.why.Error()}
}
