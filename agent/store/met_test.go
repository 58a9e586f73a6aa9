// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"sluice.dev/sluice/agent/intent"
)

func (p *program) knows(want bool, names ...string) {
	p.t.Helper()
	for _, name := range names {
		if is, err := p.store.IsKnown(name); err != nil || is != want {
			p.t.Errorf("data plane %q: known %v, error %v", name, is, err)
		}
	}
}

func TestADataPlaneIsKnownOnceItWasMet(t *testing.T) {
	p := started(t, place(t), nil)
	p.knows(false, "default", "west")
	must(t, p.store.AddKnown("west"))
	p = p.restart(nil)
	p.knows(true, "west")
	p.knows(false, "default", "wes", "")
}

// A store of a release that kept no names.
func TestAStoreOfBeforeKnowsAllDataPlanes(t *testing.T) {
	for _, used := range []bool{true, false} {
		p := started(t, place(t), nil)
		if used {
			p.apply("api", intent.Options{}, vrf("a", "one"))
		}
		path := copied(t, p.path)
		p.stop()
		db, err := bolt.Open(path, 0o600, nil)
		must(t, err)
		must(t, db.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket(knownBucket) }))
		must(t, db.Close())
		again := started(t, path, nil)
		again.knows(used, "default", "west")
	}
}

func TestAStoreThatIsMissingThoughItsKeyIsThereIsNotBegunAnew(t *testing.T) {
	lose := map[string]func(path string) error{
		"not there": os.Remove,
		"empty":     func(path string) error { return os.Truncate(path, 0) },
	}
	for how, lost := range lose {
		t.Run(how, func(t *testing.T) {
			path := place(t)
			p := started(t, path, nil)
			p.apply("api", intent.Options{}, vrf("a", "one"))
			p.stop()
			kept, err := os.ReadFile(path)
			must(t, err)
			must(t, lost(path))
			if s, err := Open(path, registry(t)); !errors.Is(err, ErrMissing) {
				t.Fatalf("opened %v, error %v", s, err)
			}
			must(t, os.WriteFile(path, kept, 0o600))
			started(t, path, nil).has("a: one (api)")
		})
	}
	path := place(t)
	must(t, os.WriteFile(path, nil, 0o600))
	_, err := started(t, path, nil).Apply(context.Background(), intent.Source{Owner: "api"}, nil, intent.Options{})
	must(t, err)
}

// newestMeta returns where the meta page of a Bolt file is that counts.
func newestMeta(t *testing.T, path string) int64 {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	txid := func(page int) uint64 {
		return binary.NativeEndian.Uint64(content[page*os.Getpagesize()+64:])
	}
	if txid(0) > txid(1) {
		return 0
	}
	return int64(os.Getpagesize())
}

func TestAStoreWithAZeroedMetaPageIsRefusedAndNotBegunAnew(t *testing.T) {
	damage := map[string]func(path string, at int64) error{
		"the newest":            func(path string, at int64) error { return writeAt(path, at, zeros[:os.Getpagesize()]) },
		"but for its beginning": func(path string, at int64) error { return writeAt(path, at+28, zeros[:os.Getpagesize()-28]) },
		"a bit of the newest":   func(path string, at int64) error { return writeAt(path, at+72, []byte{0x5a}) },
		"the older": func(path string, at int64) error {
			return writeAt(path, int64(os.Getpagesize())-at, zeros[:os.Getpagesize()])
		},
	}
	for how, damaged := range damage {
		t.Run(how, func(t *testing.T) {
			path := place(t)
			p := started(t, path, nil)
			p.apply("api", intent.Options{}, vrf("a", "one"))
			// It is in the trees, and the journal is empty.
			must(t, p.store.foldAll())
			p.kill()
			must(t, os.Truncate(journalPath(path), 0))
			whole := copied(t, path)
			must(t, damaged(path, newestMeta(t, path)))
			if s, err := Open(path, registry(t)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "meta page") {
				t.Fatalf("opened %v, error %v", s, err)
			}
			started(t, whole, nil).has("a: one (api)")
		})
	}
	t.Run("cut short by a crash", func(t *testing.T) {
		path := place(t)
		p := started(t, path, nil)
		p.apply("api", intent.Options{}, vrf("a", "one"))
		p.kill()
		// The journal has the change still, and the write before this one is as good.
		must(t, writeAt(path, newestMeta(t, path)+72, []byte{1}))
		if _, err := Open(path, registry(t)); errors.Is(err, ErrDamaged) {
			t.Error(err)
		}
	})
}

func writeAt(path string, at int64, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, at)
	return errors.Join(err, f.Close())
}
