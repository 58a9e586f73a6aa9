// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// formatted sets the format of a file; 0: the first format, without a number.
func formatted(t *testing.T, path string, format int) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error {
		if format <= singleValues {
			if err := unbundleAll(tx); err != nil {
				return err
			}
		}
		if format == 0 {
			return tx.DeleteBucket(formatBucket)
		}
		value, err := encode(format)
		must(t, err)
		return tx.Bucket(formatBucket).Put(formatKey, value)
	}))
	must(t, db.Close())
}

// unbundleAll writes the state before revisions as the first two formats have it.
func unbundleAll(tx *bolt.Tx) error {
	single := map[string][]byte{}
	before := tx.Bucket(beforeBucket)
	err := before.ForEach(func(key, value []byte) error {
		return unbundled(key, value, func(name, record []byte) error {
			single[string(key[:8])+string(name)] = sealed(append(make([]byte, 4), record...))
			return nil
		})
	})
	if err == nil {
		err = tx.DeleteBucket(beforeBucket)
	}
	if err != nil {
		return err
	}
	if before, err = tx.CreateBucket(beforeBucket); err != nil {
		return err
	}
	for key, value := range single {
		if err := before.Put([]byte(key), value); err != nil {
			return err
		}
	}
	return nil
}

func TestHistoryThatAnOlderReleaseWroteIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intent.db")
	p := started(t, path, nil)
	var many []object.Change
	for i := range 500 {
		many = append(many, vrf(fmt.Sprintf("v%03d", i), "one"))
	}
	first := p.apply("api", intent.Options{}, many[:200]...)
	second := p.apply("api", intent.Options{}, many...)
	p.apply("api", intent.Options{}, gone("v000"), vrf("v001", "two"))
	p.stop()
	formatted(t, path, singleValues)
	p = p.restart(nil)
	if at := p.Revision(); at != second+1 {
		t.Errorf("the latest revision is %d", at)
	}
	for _, back := range []struct {
		to      uint64
		objects int
	}{{second, 500}, {first, 200}} {
		if _, err := p.Rollback(context.Background(), intent.Source{Owner: "api"}, back.to, intent.Options{}); err != nil {
			t.Fatal(err)
		}
		if page, err := p.List(intent.Query{}); err != nil || len(page.Objects) != back.objects {
			t.Errorf("at %d there are %d objects, error %v", back.to, len(page.Objects), err)
		}
		p = p.restart(nil)
	}
}

func TestFilesOfAnOlderReleaseKeepTheirMeaning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intent.db")
	p := started(t, path, nil)
	p.apply("api", intent.Options{}, vrf("a", "one"))
	p.apply("files", intent.Options{}, vrf("b", "one"))
	p.apply("lab", intent.Options{Force: true}, vrf("a", "of lab"))
	p.apply("lab", intent.Options{}, gone("a"))
	last := p.apply("api", intent.Options{}, vrf("a", "two"))
	p.apply("api", intent.Options{}, vrf("a", "three"))
	p.stop()
	formatted(t, path, 0)
	p = p.restart(nil)
	p.has("a: three (api)", "b: one (files)")
	// Two had been owners of one object before that.
	history, err := p.History(0, 100)
	must(t, err)
	if len(history) != 2 || history[1].Number != last {
		t.Errorf("history is %+v", history)
	}
	if _, err := p.Rollback(context.Background(), intent.Source{Owner: "api"}, 2, intent.Options{}); !errors.Is(err, intent.ErrNoRevision) {
		t.Error(err)
	}
	if _, err := p.Rollback(context.Background(), intent.Source{Owner: "api"}, last, intent.Options{}); err != nil {
		t.Error(err)
	}
	p.has("a: two (api)", "b: one (files)")
	p = p.restart(nil)
	p.has("a: two (api)", "b: one (files)")
}

func TestAFileThatWouldBeMisreadIsRefusedAndNotChanged(t *testing.T) {
	for _, c := range []struct {
		sentence string
		format   int
		named    []string
	}{
		{"several owners of an object that counted as a whole", 0, []string{"Vrf/a has several: lab, api", "sluice delete Vrf a --owner OWNER", "move the file and its .key away"}},
		{"a newer release", latestFormat + 1, []string{"it has format 5, and this one knows formats 1 to 4", "start the newer release again"}},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "intent.db")
			p := started(t, path, nil)
			p.apply("api", intent.Options{}, vrf("a", "one"))
			p.apply("lab", intent.Options{Force: true}, vrf("a", "two"))
			p.stop()
			formatted(t, path, c.format)
			for range 2 {
				s, err := Open(path, registry(t))
				if !errors.Is(err, ErrFormat) {
					must(t, s.Close())
					t.Fatalf("error %v", err)
				}
				for _, part := range append(c.named, path) {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q is not told of in %q", part, err)
					}
				}
			}
		})
	}
}

func TestExplicitZerosAreStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "intent.db")
	owners := map[string]intent.Owner{"night": {Priority: 1}}
	p := started(t, path, owners)
	open := object.Put(&object.Object{Kind: "Acl", Name: "a", Spec: &api.Acl{Otherwise: api.AclAction_PERMIT}})
	closed := object.Put(&object.Object{Kind: "Acl", Name: "a", Spec: &api.Acl{}, Empty: []string{"otherwise"}, Labels: map[string]string{"why": "maintenance"}})
	isOpen := func() bool {
		t.Helper()
		s, _ := p.Get(object.Key{Kind: "Acl", Name: "a"})
		return s.Object.Spec.(*api.Acl).Otherwise == api.AclAction_PERMIT
	}
	p.apply("api", intent.Options{}, open)
	p.apply("night", intent.Options{}, closed)
	if isOpen() {
		t.Error("what night says does not count")
	}
	if p = p.restart(owners); isOpen() {
		t.Error("what night said was lost")
	}
	p.apply("night", intent.Options{Complete: true})
	if !isOpen() {
		t.Error("what api says did not come back")
	}
}
