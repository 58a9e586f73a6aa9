// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

func permitting(t *testing.T, name string) reconcile.Change {
	t.Helper()
	spec, err := object.Pack(&api.Acl{Otherwise: api.AclAction_PERMIT})
	if err != nil {
		t.Fatal(err)
	}
	return reconcile.Change{By: "somebody", Key: object.Key{Kind: "Acl", Name: name}, Spec: spec}
}

func gone(kind, name string) reconcile.Change {
	return reconcile.Change{By: "somebody", Key: object.Key{Kind: kind, Name: name}, Deleted: true}
}

func TestDriftIsRepairedAndReported(t *testing.T) {
	for _, c := range []struct {
		sentence string
		change   reconcile.Change
		log      []string
		message  string
	}{
		{"a change is changed back", permitting(t, "a"), []string{"update Acl/a"}, "somebody changed it in the data plane"},
		{"an object without owner is deleted", permitting(t, "stray"), []string{"delete Acl/stray"},
			"somebody created it in the data plane, and it has no owner"},
		{"what is gone comes back", gone("Acl", "b"), []string{"create Acl/b"}, "somebody deleted it from the data plane"},
		{"an object without owner may go", gone("Acl", "unknown"), nil, ""},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			var text bytes.Buffer
			s := newScene(t, reconcile.Options{Log: slog.New(slog.NewTextHandler(&text, nil))})
			all := []*object.Object{port("p"), acl("a"), acl("b"), session("s", "p", 1, "a")}
			s.apply(puts(all...))
			events, err := s.Events(intent.Cursor{})
			if err != nil {
				t.Fatal(err)
			}
			before := s.Measure()["default"]
			s.plane.TakeLog()
			s.plane.Meddle(c.change)
			s.apply(puts(acl("after")))
			s.eventually(append(all, acl("after"))...)
			log := slices.DeleteFunc(s.plane.TakeLog(), func(line string) bool {
				return line == "create Acl/after" || strings.HasPrefix(line, "update Acl/a") && c.message == "" ||
					c.change.Deleted == false && line == "create Acl/stray"
			})
			// The other client's operations are in the log, too.
			if n := len(log); n < len(c.log) || !slices.Equal(log[n-len(c.log):], c.log) {
				t.Errorf("did %q, not %q", log, c.log)
			}
			after := s.Measure()["default"]
			if after.Lists != before.Lists {
				t.Error("everything was listed for that")
			}
			drifted := uint64(0)
			if c.message != "" {
				drifted = 1
			}
			if after.Drifted-before.Drifted != drifted {
				t.Errorf("%d changes are counted", after.Drifted-before.Drifted)
			}
			if drifted == 0 {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			var found []string
			for len(found) == 0 || found[len(found)-1] != "InStep" && found[len(found)-1] != "NotDesired" {
				e, err := events.Next(ctx)
				if err != nil {
					t.Fatalf("told of %q: %v", found, err)
				}
				if e.Status.Key == c.change.Key {
					if len(found) == 0 && e.Status.Message != c.message {
						t.Errorf("told %q", e.Status.Message)
					}
					found = append(found, e.Status.Reason)
				}
			}
			if found[0] != "Drifted" {
				t.Errorf("told of %q", found)
			}
		})
	}
}

func TestEverythingIsListedWhenChangesWereMissed(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	s.apply(puts(acl("a")))
	s.plane.Lock()
	s.plane.Forget(acl("a").Key())
	s.plane.Unlock()
	s.plane.Meddle(reconcile.Change{Lost: true})
	s.eventually(acl("a"))
}

func TestAfterAnInterruptionOnlyWhatMayHaveChangedIsListed(t *testing.T) {
	lists := func(s *scene) uint64 { return s.Measure()["default"].Lists }
	for _, c := range []struct {
		sentence string
		away     func(s *scene)
		listed   bool
	}{
		{"the data plane is as it was", func(*scene) {}, false},
		{"somebody else changed something", func(s *scene) {
			s.plane.Lock()
			s.plane.Forget(acl("a").Key())
			s.plane.Unlock()
		}, true},
		{"the data plane was started again", func(s *scene) { s.plane.Restart() }, true},
		{"the desired state changes meanwhile", func(s *scene) { s.applyWithoutWaiting(puts(acl("a"), acl("b"))) }, false},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			s := newScene(t, reconcile.Options{})
			s.apply(puts(acl("a"), port("p")))
			before := lists(s)
			s.link()
			s.Detach()
			c.away(s)
			s.connect()
			s.apply(puts(acl("b")))
			s.eventually(acl("a"), acl("b"), port("p"))
			if got := lists(s) != before; got != c.listed {
				t.Errorf("listed: %v", got)
			}
		})
	}
}

func TestTwoWhoWantDifferentThingsDoNotKeepTheDataPlaneBusy(t *testing.T) {
	s := newScene(t, reconcile.Options{MinBackoff: time.Hour, MaxBackoff: time.Hour})
	s.apply(puts(acl("a")))
	meddle := func(time uint64) {
		s.plane.Meddle(permitting(t, "a"))
		for s.Measure()["default"].Drifted < time {
			runtime.Gosched()
		}
	}
	for i := range uint64(3) {
		meddle(i + 1)
		s.becomes(acl("a"), intent.Applied)
	}
	meddle(4)
	s.apply(puts(acl("c")))
	if got, _ := s.Get(acl("a").Key()); got.State != intent.Pending || got.Reason != "Drifted" {
		t.Errorf("it is %s, because %s", got.State, got.Reason)
	}
}
