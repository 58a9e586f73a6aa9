// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// many is a store with the sessions of a BNG, and functions that change them one after the other.
type many struct {
	*Store
	t       testing.TB
	random  *rand.Rand
	records []*intent.Record
	latest  uint64
}

// kept by default: intent.Config.
const kept = 1000

func stored(t testing.TB, count int) *many {
	m := &many{Store: opened(t, filepath.Join(t.TempDir(), "intent.db")), t: t, random: rand.New(rand.NewPCG(1, 2)), records: make([]*intent.Record, count)}
	edits := make([]intent.Edit, count)
	for i := range edits {
		edits[i] = m.edit(i)
	}
	m.commit(edits...)
	return m
}

func (m *many) edit(i int) intent.Edit {
	spec, err := object.Pack(&api.Session{
		Access:    &api.Access{Port: "access", OuterVlan: uint32(1 + i/4000), InnerVlan: uint32(1 + i%4000)},
		Addresses: []string{fmt.Sprintf("100.%d.%d.%d/32", 64+i>>16, i>>8&255, i&255), fmt.Sprintf("2001:db8:%x:%x::/64", i>>16, i&65535)},
		Policy:    &api.Policy{AclUp: "web", MeterUp: "gold", MeterDown: "gold", Mss: uint32(1000 + m.latest)},
	})
	must(m.t, err)
	k := object.Key{Kind: "Session", Name: fmt.Sprintf("subscriber-%d", i)}
	layer, err := m.registry.NewStored(k, map[string]string{"city": "bonn"}, nil, spec)
	must(m.t, err)
	r := &intent.Record{Revision: m.latest + 1, Generation: 1, Accepted: time.Now().UnixNano(), Layers: []intent.Layer{{Owner: "api", Revision: m.latest + 1, StoredObject: layer}}}
	e := intent.Edit{Key: k, Before: m.records[i], After: r}
	m.records[i] = r
	return e
}

func (m *many) next(edits ...intent.Edit) *intent.Commit {
	m.latest++
	c := &intent.Commit{Revision: intent.Revision{Number: m.latest, Time: time.Now(), Source: intent.Source{Owner: "api", Who: "root"}, Changes: len(edits)},
		Edits: edits, Recorded: true}
	if m.latest > kept && m.latest%(kept/32) == 0 {
		c.Oldest = m.latest - kept + 1
	}
	return c
}

func (m *many) commit(edits ...intent.Edit) { must(m.t, m.Commit(m.next(edits...))) }

// one changes one at random.
func (m *many) one() *intent.Commit { return m.next(m.edit(m.random.IntN(len(m.records)))) }

// BenchmarkCommitOneOf200k: the cost of a change of one object among many, when history is full and the changes of
// the oldest revision are deleted.
func BenchmarkCommitOneOf200k(b *testing.B) {
	m := stored(b, 200_000)
	defer func() { must(b, m.Close()) }()
	for range 2500 {
		must(b, m.Commit(m.one()))
	}
	commits := make([]*intent.Commit, 0, b.N)
	for range b.N {
		commits = append(commits, m.one())
	}
	runtime.GC()
	tx := m.db.Stats().TxStats
	before := tx.GetWrite()
	b.ReportAllocs()
	b.ResetTimer()
	for _, c := range commits {
		must(b, m.Commit(c))
	}
	b.StopTimer()
	tx = m.db.Stats().TxStats
	b.ReportMetric(float64(tx.GetWrite()-before)/float64(b.N), "pages/op")
}
