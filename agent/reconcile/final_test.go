// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/reconcile"
)

func TestAFinalFailureIsRetriedWhenTheObjectOrItsReferenceChanges(t *testing.T) {
	for _, c := range []struct {
		code   int32
		reason string
		again  bool
	}{{7, "Unacceptable", false}, {22, "Unacceptable", false}, {90, "Unacceptable", false}, {28, "Refused", true}, {12, "Refused", true}} {
		t.Run(fmt.Sprint("code ", c.code), func(t *testing.T) {
			s := newScene(t, reconcile.Options{})
			a, p, bad := acl("a"), port("p"), session("s", "p", 1, "a")
			s.plane.Lock()
			s.plane.Code, s.plane.Never[bad.Key()] = c.code, true
			s.plane.Unlock()
			out := s.apply(puts(a, p, bad))
			if got := out.Objects[2].Status; got.State != intent.Failed || got.Reason != c.reason || len(out.Failures) != 1 {
				t.Fatalf("it is %s, because %s; failed: %v", got.State, got.Reason, out.Failures)
			}
			refused := func() int {
				s.plane.Lock()
				defer s.plane.Unlock()
				return s.plane.Refused
			}
			before := refused()
			if c.again {
				for end := time.Now().Add(20 * time.Second); refused() == before && time.Now().Before(end); time.Sleep(time.Millisecond) {
				}
				if refused() == before {
					t.Error("it was not tried again")
				}
				return
			}
			// Something else has nothing to do with it.
			s.apply(puts(acl("b")))
			time.Sleep(20 * time.Millisecond)
			if now := refused(); now != before {
				t.Errorf("it was tried %d times more", now-before)
			}
			s.apply(puts(made("Acl", "a", &api.Acl{Otherwise: api.AclAction_PERMIT})))
			if now := refused(); now != before+1 {
				t.Errorf("it was tried %d times when what it names changed", now-before)
			}
			s.plane.TakeLog()
			s.plane.Lock()
			delete(s.plane.Never, bad.Key())
			s.plane.Unlock()
			s.apply(puts(session("s", "p", 2, "a")))
			if log := s.plane.TakeLog(); !slices.Equal(log, []string{"create Session/s"}) {
				t.Errorf("did %q when it changed", log)
			}
		})
	}
}
