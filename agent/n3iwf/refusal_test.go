// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike"
)

// listed are the UEs that operators see, as "name state remote reason".
func listed(t *testing.T, s *serving, q *api.N3IwfUesQuery) (all []string) {
	t.Helper()
	done := make(chan *api.N3IwfUes)
	go func() {
		found, err := s.list(t.Context(), q)
		if err != nil {
			t.Error(err)
		}
		done <- found
	}()
	for {
		s.work()
		select {
		case found := <-done:
			for _, u := range found.GetUes() {
				all = append(all, strings.TrimRight(fmt.Sprintf("%s %s %s %s", u.Name, u.State, u.Remote, u.Reason), " "))
			}
			return all
		case <-time.After(time.Millisecond):
		}
	}
}

func TestOperatorsSeeUEsThatRegisterAndThoseThatAreRefused(t *testing.T) {
	s, _ := serve(t, nil)
	waiting, malformed := begin(s, "192.0.2.100"), begin(s, "192.0.2.101")
	malformed.next(s, "02010005fe")
	up := begin(s, "192.0.2.102")
	s.talks[up.step.Conversation].up = true
	s.registering.leave(s.talks[up.step.Conversation])
	want := []string{"n3iwf-wifi-1 registering 192.0.2.100:500", "n3iwf-wifi-2 refused 192.0.2.101:500 " + s.refusedUEs.order[0].why.Error(), "n3iwf-wifi-3 connected 192.0.2.102:500"}
	for _, c := range []struct {
		query *api.N3IwfUesQuery
		want  []string
	}{
		{&api.N3IwfUesQuery{}, want},
		{&api.N3IwfUesQuery{Limit: 1, Page: "n3iwf-wifi-1"}, want[1:2]},
		{&api.N3IwfUesQuery{State: "registering"}, want[:1]},
		{&api.N3IwfUesQuery{State: "refused"}, want[1:2]},
		{&api.N3IwfUesQuery{State: "connected"}, want[2:]},
		{&api.N3IwfUesQuery{Address: "192.0.2.101"}, want[1:2]},
		{&api.N3IwfUesQuery{Name: "n3iwf-wifi-2"}, want[1:2]},
		{&api.N3IwfUesQuery{N3Iwf: "other"}, nil},
	} {
		if got := listed(t, s, c.query); strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%v: %q instead of %q", c.query, got, c.want)
		}
	}
	// It ends, and is refused. The one of before is connected now, or it was long ago.
	s.tickRegistering(time.Now().Add(firstAnswerTime))
	if got := listed(t, s, &api.N3IwfUesQuery{State: "refused"}); len(got) != 2 || got[0] != "n3iwf-wifi-1 refused 192.0.2.100:500 "+errLate.Error() || waiting.refused(true) {
		t.Errorf("%q", got)
	}
	s.refusedUEs.connected(netip.MustParseAddrPort("192.0.2.101:500"))
	if got := listed(t, s, &api.N3IwfUesQuery{State: "refused"}); len(got) != 1 {
		t.Errorf("%q", got)
	}
	s.refusedUEs.sweep(time.Now().Add(refusalTime))
	if got := listed(t, s, &api.N3IwfUesQuery{State: "refused"}); len(got) != 0 || len(s.refusedUEs.order) != 0 {
		t.Errorf("%q", got)
	}
}

func TestManyRefusalsOfASourceDoNotHideThoseOfOthers(t *testing.T) {
	var r refusals
	core := &refusal{name: "one", remote: netip.MustParseAddrPort("192.0.2.1:500"), why: errors.New("the core refuses the UE")}
	r.add(core)
	for port := range uint16(5000) {
		r.add(&refusal{remote: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.2"), port), why: errHalfOpen})
	}
	if len(r.of) != 2 || r.of[core.remote] != core {
		t.Errorf("%d refusals", len(r.of))
	}
	for port := range uint16(3000) {
		r.add(&refusal{remote: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.3"), port), why: core.why})
	}
	if len(r.of) > maxRefusals || len(r.order) > 2*maxRefusals {
		t.Errorf("%d refusals, %d in order", len(r.of), len(r.order))
	}
}

func TestAReleaseNamesTheUEsThatAreNotConnected(t *testing.T) {
	s, _ := serve(t, nil)
	follow(s, "N3iwf", "wifi", anN3iwf(nil))
	begin(s, "192.0.2.100")
	u := &ue{s: s, in: s.instances["wifi"], name: "n3iwf-wifi-9", up: true, peer: ike.Peer{ID: 99}}
	s.names[u.name] = u
	done := make(chan *api.ReleasedUes)
	go func() {
		released, err := operated{s: s}.ReleaseUes(t.Context(), &api.UesRelease{Names: []string{"n3iwf-wifi-9", "nosuch", "n3iwf-wifi-1"}})
		if err != nil {
			t.Error(err)
		}
		done <- released
	}()
	for {
		s.work()
		select {
		case got := <-done:
			if got.GetCount() != 1 || strings.Join(got.GetUnknown(), " ") != "nosuch n3iwf-wifi-1" {
				t.Errorf("%v", got)
			}
			return
		case <-time.After(time.Millisecond):
		}
	}
}
