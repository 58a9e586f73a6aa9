package store

import (
	"context"
	"errors"
	"os"
	"testing"

	bolt "go.etcd.io/bbolt"

	"sluice.dev/sluice/agent/intent"
)

func (p *program) knows(want bool, names ...string) {
	p.t.Helper()
	for _, name := range names {
		if is, err := p.store.Knows(name); err != nil || is != want {
			p.t.Errorf("data plane %q: known %v, error %v", name, is, err)
		}
	}
}

func TestADataPlaneIsKnownOnceItWasMet(t *testing.T) {
	p := started(t, place(t), nil)
	p.knows(false, "default", "west")
	must(t, p.store.Meet("west"))
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
		must(t, db.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket(metBucket) }))
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
			started(t, path, nil).wants("a: one (api)")
		})
	}
	path := place(t)
	must(t, os.WriteFile(path, nil, 0o600))
	_, err := started(t, path, nil).Apply(context.Background(), intent.Source{Owner: "api"}, nil, intent.Options{})
	must(t, err)
}
