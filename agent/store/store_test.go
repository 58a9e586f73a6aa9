package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

var _ reconcile.Store = (*Store)(nil)

func registry(t testing.TB) *object.Registry {
	t.Helper()
	r, err := object.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func opened(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path, registry(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func intent(kind, name string, revision uint64, spec proto.Message) reconcile.Intent {
	k := object.Key{Kind: kind, Name: name}
	i := reconcile.Intent{Key: k, Owner: "test", Revision: revision}
	if spec != nil {
		i.Object = &object.Object{Kind: kind, Name: name, Labels: map[string]string{"city": "bonn"}, Spec: spec}
	}
	return i
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect(t testing.TB, s *Store, want ...reconcile.Intent) {
	t.Helper()
	got, err := s.Load()
	must(t, err)
	if len(got) != len(want) {
		t.Fatalf("%d objects, not %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Key != want[i].Key || got[i].Owner != want[i].Owner || got[i].Revision != want[i].Revision || !got[i].Object.Equal(want[i].Object) {
			t.Errorf("got %+v, not %+v", got[i], want[i])
		}
	}
}

func TestWhatIsKeptIsThereAfterReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "intent.db")
	s := opened(t, path)
	a, b := intent("Acl", "a", 1, &api.Acl{Otherwise: api.AclAction_PERMIT}), intent("Vrf", "red", 1, &api.Vrf{})
	must(t, s.Save([]reconcile.Intent{b, a}))
	must(t, s.Save([]reconcile.Intent{intent("Vrf", "red", 2, nil)}))
	must(t, s.Close())
	s = opened(t, path)
	defer s.Close()
	expect(t, s, a)
	if mode, _ := os.Stat(path); mode.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", mode.Mode())
	}
}

func TestATransactionThatWasNotEndedIsTakenBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intent.db")
	s := opened(t, path)
	a1, b1 := intent("Acl", "a", 1, &api.Acl{}), intent("Acl", "b", 1, &api.Acl{})
	must(t, s.Save([]reconcile.Intent{a1, b1}))
	a2 := intent("Acl", "a", 2, &api.Acl{Otherwise: api.AclAction_PERMIT})
	c2 := intent("Acl", "c", 2, &api.Acl{})
	must(t, s.Begin(2, []reconcile.Intent{a2, intent("Acl", "b", 2, nil), c2}, []reconcile.Intent{a1, b1, intent("Acl", "c", 0, nil)}))
	expect(t, s, a2, c2)
	c3 := intent("Acl", "c", 3, &api.Acl{Otherwise: api.AclAction_PERMIT})
	must(t, s.Save([]reconcile.Intent{c3}))
	must(t, s.Close())
	s = opened(t, path)
	defer s.Close()
	expect(t, s, a1, b1, c3)
}

func TestATransactionThatWasEndedStands(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intent.db")
	s := opened(t, path)
	a2 := intent("Acl", "a", 2, &api.Acl{})
	must(t, s.Begin(2, []reconcile.Intent{a2}, []reconcile.Intent{intent("Acl", "a", 0, nil)}))
	must(t, s.End(2, nil))
	must(t, s.Close())
	s = opened(t, path)
	defer s.Close()
	expect(t, s, a2)
}

func TestALockedFileIsSaidToBeInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intent.db")
	s := opened(t, path)
	defer s.Close()
	_, err := Open(path, registry(t))
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
}

func TestADamagedFileIsSaidToBeDamaged(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "intent.db")
	s := opened(t, whole)
	for _, name := range []string{"a", "b", "c"} {
		must(t, s.Save([]reconcile.Intent{intent("Vrf", name, 1, &api.Vrf{Description: strings.Repeat("words ", 100)})}))
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
		{"cut off before its objects", func(b []byte) []byte { return b[:bytes.LastIndex(b, []byte(`"owner"`))&^(os.Getpagesize()-1)] }},
		{"a changed letter", func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"owner":"test"`), []byte(`"owner":"tesd"`)) }},
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
				_, err = s.Load()
				s.Close()
			}
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestWhatTheReconcilerWantsIsWhatIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intent.db")
	s := opened(t, path)
	r := reconcile.New(s.registry, reconcile.Options{Store: s})
	put := func(spec proto.Message) []object.Change {
		return []object.Change{object.Put(&object.Object{Kind: "Acl", Name: "a", Spec: spec})}
	}
	_, err := r.Apply(context.Background(), "test", put(&api.Acl{}), reconcile.BestEffort)
	must(t, err)
	must(t, s.Close())
	if _, err := r.Apply(context.Background(), "test", put(&api.Acl{Otherwise: api.AclAction_PERMIT}), reconcile.BestEffort); err == nil {
		t.Error("a change that could not be kept was accepted")
	}
	if st, _ := r.Get(object.Key{Kind: "Acl", Name: "a"}); st.Object.Spec.(*api.Acl).Otherwise != api.AclAction_DENY {
		t.Error("a change that could not be kept is wanted")
	}
	s = opened(t, path)
	defer s.Close()
	again := reconcile.New(s.registry, reconcile.Options{Store: s})
	kept, err := s.Load()
	must(t, err)
	must(t, again.Load(kept))
	if st, there := again.Get(object.Key{Kind: "Acl", Name: "a"}); !there || st.Revision != 1 || st.Owner != "test" {
		t.Errorf("after opening again: %+v", st)
	}
}
