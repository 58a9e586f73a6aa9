// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

var _ intent.Store = (*Store)(nil)

func registry(t testing.TB) *object.Registry {
	t.Helper()
	return kinds()
}

func opened(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, registry(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func key(name string) object.Key { return object.Key{Kind: "Acl", Name: name} }

// kinds are all there are.
var kinds = sync.OnceValue(func() *object.Registry {
	r, err := concepts.NewRegistry()
	if err != nil {
		panic(err)
	}
	return r
})

// record holds the layers of an ACL's owners.
func record(name string, revision uint64, owners ...string) *intent.Record {
	r := &intent.Record{Revision: revision, Generation: revision + 7, Accepted: -5}
	for i, owner := range owners {
		spec, err := object.Pack(&api.Acl{Otherwise: api.AclAction_PERMIT})
		if err != nil {
			panic(err)
		}
		kept, err := kinds().NewStored(key(name), map[string]string{"city": "bonn", "owner": owner}, nil, spec)
		if err != nil {
			panic(err)
		}
		r.Layers = append(r.Layers, intent.Layer{Owner: owner, Revision: revision, Taken: uint64(i), StoredObject: kept})
	}
	return r
}

func same(a, b *intent.Record) bool {
	if a == nil || b == nil || a.Revision != b.Revision || a.Generation != b.Generation || a.Accepted != b.Accepted {
		return a == b
	}
	return slices.EqualFunc(a.Layers, b.Layers, func(a, b intent.Layer) bool {
		return a.Owner == b.Owner && a.Revision == b.Revision && a.Taken == b.Taken && a.Equal(b.StoredObject)
	})
}

// commit is a revision of history with edits.
func commit(number uint64, edits ...intent.Edit) *intent.Commit {
	return &intent.Commit{Revision: intent.Revision{Number: number, Source: intent.Source{Owner: "test", Who: "me", Why: "because"}}, Edits: edits, Recorded: true}
}

func edit(name string, before, after *intent.Record) intent.Edit {
	return intent.Edit{Key: key(name), Before: before, After: after}
}

func loaded(t testing.TB, s *Store) (map[string]*intent.Record, uint64, []intent.Open) {
	t.Helper()
	all := map[string]*intent.Record{}
	latest, open, err := s.Load(func(k object.Key, r *intent.Record) error {
		all[k.Name] = r
		return nil
	})
	must(t, err)
	return all, latest, open
}

func befores(t testing.TB, s *Store, revision uint64) map[string]*intent.Record {
	t.Helper()
	all := map[string]*intent.Record{}
	must(t, s.Before(revision, func(k object.Key, r *intent.Record) error {
		all[k.Name] = r
		return nil
	}))
	return all
}

func TestStoredObjectsAreThereAfterReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "intent.db")
	s := opened(t, path)
	a1, b1, b2 := record("a", 1, "test"), record("b", 1, "test", "another"), record("b", 2, "another")
	first := commit(1, edit("b", nil, b1), edit("a", nil, a1))
	first.Open = &intent.Open{Revision: 1, Unfinished: true, ConfirmBy: time.Unix(17, 0)}
	must(t, s.Commit(first))
	must(t, s.Commit(commit(2, edit("b", b1, b2), edit("a", a1, nil))))
	must(t, s.Close())
	s = opened(t, path)
	defer s.Close()
	all, latest, open := loaded(t, s)
	if len(all) != 1 || !same(all["b"], b2) || latest != 2 {
		t.Errorf("at revision %d: %v", latest, all)
	}
	if len(open) != 1 || open[0].Revision != 1 || !open[0].Unfinished || !open[0].ConfirmBy.Equal(time.Unix(17, 0)) {
		t.Errorf("open: %+v", open)
	}
	if got := befores(t, s, 2); len(got) != 2 || !same(got["a"], a1) || !same(got["b"], b1) {
		t.Errorf("before revision 2: %v", got)
	}
	if got := befores(t, s, 1); len(got) != 2 || got["a"] != nil || got["b"] != nil {
		t.Errorf("before revision 1: %v", got)
	}
	history, err := s.History(0, 10)
	must(t, err)
	if len(history) != 2 || history[0].Number != 2 || history[1].Source != first.Revision.Source {
		t.Errorf("history %+v", history)
	}
	if history, err = s.History(2, 10); err != nil || len(history) != 1 || history[0].Number != 1 {
		t.Errorf("history before revision 2: %+v, %v", history, err)
	}
	if mode, _ := os.Stat(path); mode.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", mode.Mode())
	}
}

func TestARevisionThatWasSettledIsNoLongerOpen(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "intent.db"))
	defer s.Close()
	for number := range uint64(3) {
		c := commit(number+1, edit("a", nil, record("a", number+1, "test")))
		c.Open = &intent.Open{Revision: number + 1, Unfinished: true}
		must(t, s.Commit(c))
	}
	must(t, s.Settle(1, nil, nil))
	must(t, s.Settle(2, &intent.Open{Revision: 2}, nil))
	c := commit(4)
	c.Closes = 3
	must(t, s.Commit(c))
	if _, _, open := loaded(t, s); len(open) != 1 || open[0].Revision != 2 || open[0].Unfinished {
		t.Errorf("open: %+v", open)
	}
}

func TestOldRevisionsAreDeletedExceptOpenOnes(t *testing.T) {
	s := opened(t, filepath.Join(t.TempDir(), "intent.db"))
	defer s.Close()
	for number := range uint64(20) {
		c := commit(number+1, edit("a", nil, record("a", number+1, "test")))
		c.Oldest = max(number+1, 5) - 4
		if number+1 == 3 {
			c.Open = &intent.Open{Revision: 3, ConfirmBy: time.Unix(17, 0)}
		}
		must(t, s.Commit(c))
	}
	var kept []uint64
	history, err := s.History(0, 100)
	must(t, err)
	for _, r := range history {
		if kept = append(kept, r.Number); len(befores(t, s, r.Number)) != 1 {
			t.Errorf("what revision %d changed is gone", r.Number)
		}
	}
	if !slices.Equal(kept, []uint64{20, 19, 18, 17, 16, 3}) || len(befores(t, s, 15)) != 0 {
		t.Errorf("kept %v", kept)
	}
}

func TestALockedFileIsReportedAsInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intent.db")
	s := opened(t, path)
	defer s.Close()
	_, err := Open(path, registry(t))
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
}

func TestADamagedFileIsReported(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "intent.db")
	s := opened(t, whole)
	for _, name := range []string{"a", "b", "c"} {
		must(t, s.Commit(commit(1, edit(name, nil, record(name, 1, "test", strings.Repeat("words ", 100))))))
	}
	must(t, s.Close())
	content, err := os.ReadFile(whole)
	must(t, err)
	for _, c := range []struct {
		sentence string
		damage   func([]byte) []byte
	}{
		{"another file", func([]byte) []byte { return bytes.Repeat([]byte("not a database "), 5000) }},
		{"cut off after the first pages", func(b []byte) []byte { return b[:2*os.Getpagesize()] }},
		{"cut off before its objects", func(b []byte) []byte { return b[:bytes.LastIndex(b, []byte(`words words`))&^(os.Getpagesize()-1)] }},
		{"a changed letter", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("bonn"), []byte("bohn")) }},
		{"pages full of zeros", func(b []byte) []byte { clear(b[2*os.Getpagesize():]); return b }},
		{"pages full of ones", func(b []byte) []byte {
			for i := 2 * os.Getpagesize(); i < len(b); i++ {
				b[i] = 0xff
			}
			return b
		}},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "intent.db")
			must(t, os.WriteFile(path, c.damage(bytes.Clone(content)), 0o600))
			s, err := Open(path, registry(t))
			if err == nil {
				_, _, err = s.Load(func(object.Key, *intent.Record) error { return nil })
				s.Close()
			}
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v", err)
			}
		})
	}
}
