// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/reconcile"
)

func TestOperationsAreCountedByTheirResult(t *testing.T) {
	s := newScene(t, reconcile.Options{MinBackoff: time.Hour, MaxBackoff: time.Hour})
	s.plane.Lock()
	s.plane.Never[acl("never").Key()] = true
	s.plane.Unlock()
	s.apply(puts(port("a"), port("b"), session("x", "a", 1, ""), acl("never"), session("y", "a", 2, "never")))
	s.apply(puts(made("Port", "a", &api.Port{Device: "net_null_a", Mtu: 1400})))
	s.apply(removes(port("b")))
	got := s.Measure()["default"]
	for what, is := range map[string]bool{
		"creations":       got.Operations[reconcile.Create] == reconcile.Results{Done: 3, Refused: 1},
		"updates":         got.Operations[reconcile.Update] == reconcile.Results{Done: 1},
		"deletions":       got.Operations[reconcile.Delete] == reconcile.Results{Done: 1},
		"ports":           got.Objects["Port"][intent.Applied] == 1,
		"sessions":        got.Objects["Session"][intent.Applied] == 1 && got.Objects["Session"][intent.Pending] == 1,
		"lists":           got.Objects["Acl"][intent.Failed] == 1,
		"times":           got.Delays.Count == 4 && got.Delays.Sum > 0 && got.Delays.AtMost[5*time.Minute] == 4,
		"being in step":   got.InSync && got.Lists == 1,
		"all, by a state": s.Count()[intent.Applied] == 2 && s.Count()[intent.Failed] == 1,
	} {
		if !is {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

// until waits for a moment at which it holds. At its end, it says what was seen last.
func (s *scene) until(holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not within 20 seconds; seen last: settled %t, %+v, %+v", s.Settled(), s.Measure(), s.Count())
		}
	}
}

func TestAnObjectThatIsReadBackIsNoChangeOfDesiredState(t *testing.T) {
	s := newScene(t, reconcile.Options{})
	s.apply(puts(port("a")))
	before := s.Measure()["default"]
	s.plane.Meddle(reconcile.Change{Lost: true})
	s.until(func() bool { return s.Measure()["default"].Lists > before.Lists && s.Settled() })
	if after := s.Measure()["default"]; after.Delays.Count != before.Delays.Count || after.Different != before.Different {
		t.Errorf("%+v after %+v", after, before)
	}
	s.link()
	s.plane.Restart()
	s.connect()
	s.until(func() bool { return s.Measure()["default"].Different == before.Different+1 && s.Settled() })
	if after := s.Measure()["default"]; after.Delays.Count != before.Delays.Count {
		t.Errorf("a restored object counts as a change of desired state: %+v", after)
	}
}
