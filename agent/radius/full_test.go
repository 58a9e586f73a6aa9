// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

// A server that is silent for long costs new sessions their records. Those that are in the spool stay, and the sessions that they are of end at the
// server, too.
func TestAFullSpoolRefusesNewSessionsNamesThemAndKeepsTheOldestRecords(t *testing.T) {
	server := newAccountingServer(t)
	server.setDeaf(true)
	directory := t.TempDir()
	policy := &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "nas", SpoolLimit: 4}
	a := startAgent(t, directory, server.spec(), policy, nil)
	seen := a.watched()
	comes := func(event string) {
		t.Helper()
		until(t, event, func() bool { return slices.Contains(seen.take(), event) })
	}
	// With Accounting-On, three sessions fill the spool.
	for _, id := range []string{"s-1", "s-2", "s-3"} {
		a.accountFor(subscriber.Start, id)
	}
	for _, id := range []string{"s-4", "s-5"} {
		a.accountFor(subscriber.Start, id)
	}
	comes("RadiusSpool home full")
	// A session that comes and goes meanwhile has no records, and no Stop without a Start.
	a.accountFor(subscriber.Stop, "s-5")
	a.accountFor(subscriber.Stop, "s-1")
	a.mu.Lock()
	count, refused, known := a.spool.count, a.spool.refusals, len(a.sessions.byID)
	a.mu.Unlock()
	if count != 5 || refused != 3 || known != 2 {
		t.Fatal(count, refused, known)
	}
	// A restart brings no more.
	a.stop()
	a = startAgent(t, directory, server.spec(), policy, nil)
	seen = a.watched()
	since := time.Now()
	a.Resume(accounted(subscriber.Start, "s-4", since))
	comes("RadiusSpool home full")
	server.setDeaf(false)
	comes("RadiusSpool home room")
	got := server.got(t, a, 5)
	slices.Sort(got)
	if want := []string{"on nas -", "start nas s-1", "start nas s-2", "start nas s-3", "stop nas s-1"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	// The next record makes up for the Start.
	a.accountFor(subscriber.Stop, "s-4")
	if got := server.got(t, a, 2); len(got) != 2 || got[0] != "start nas s-4" || got[1] != "stop nas s-4" {
		t.Errorf("%q", got)
	}
}
