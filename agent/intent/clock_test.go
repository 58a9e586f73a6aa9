// SPDX-License-Identifier: Apache-2.0

package intent_test

import (
	"path/filepath"
	"testing"
	"time"

	"sluice.dev/sluice/agent/intent"
)

func TestAnUnconfirmedRevisionKeepsItsRemainingTimeWhenTheTimeOfDayChanges(t *testing.T) {
	const within = time.Hour
	for _, c := range []struct {
		sentence string
		// How far the time of day was set while the agent was away.
		step time.Duration
		// Which start of the machine it is then, and the time since that.
		boot string
		now  time.Duration
		// The remaining time; 0: it is undone.
		remains time.Duration
	}{
		{"the clock was set far ahead", 48 * time.Hour, "one", 1020 * time.Second, within - 20*time.Second},
		{"the clock was set far back", -48 * time.Hour, "one", 1020 * time.Second, within - 20*time.Second},
		{"the time is over, and the clock was set back", -48 * time.Hour, "one", 1000*time.Second + within, 0},
		{"the machine was started again, and the clock was set ahead", 48 * time.Hour, "two", 5 * time.Second, within},
		{"the machine was started again, and runs longer than before", 0, "two", 100 * time.Hour, within},
		{"which start of the machine it is is not known", 48 * time.Hour, "", 0, within},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "intent.db")
			l := startAt(t, path, func() (string, time.Duration) { return "one", 1000 * time.Second })
			l.put(intent.Options{}, vrf("red", "one"))
			r := l.put(intent.Options{ConfirmWithin: within}, vrf("red", "two"))
			by := l.Unconfirmed()[0].By
			// As if the clock had another time when the agent starts again.
			must(t, l.store.Settle(r, &intent.Open{Revision: r, ConfirmBy: by.Add(-c.step), Within: within, Boot: "one", Begun: 1000 * time.Second}, nil))
			l.end()
			l = startAt(t, path, func() (string, time.Duration) { return c.boot, c.now })
			if c.remains == 0 {
				l.eventually("undone", func() bool { return l.text("red") == "one" && len(l.Unconfirmed()) == 0 })
				return
			}
			waits := l.Unconfirmed()
			if len(waits) != 1 || waits[0].Overdue || l.text("red") != "two" {
				t.Fatalf("waits %+v, it is %q", waits, l.text("red"))
			}
			// The test itself takes some time.
			if remains := time.Until(waits[0].By); remains > c.remains || remains < c.remains-within/2 {
				t.Errorf("%v remain, not %v", remains, c.remains)
			}
			if history, err := l.History(0, 1); err != nil || !history[0].ConfirmBy.Equal(waits[0].By) {
				t.Errorf("history says %+v, error %v", history, err)
			}
			// From then on it counts again.
			l.end()
			l = startAt(t, path, func() (string, time.Duration) { return c.boot, c.now + within })
			if c.boot == "" {
				return
			}
			l.eventually("undone", func() bool { return l.text("red") == "one" && len(l.Unconfirmed()) == 0 })
		})
	}
}
