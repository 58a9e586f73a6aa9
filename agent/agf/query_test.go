// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"errors"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
)

func TestPagesOfLinesHaveEachLineOnce(t *testing.T) {
	s := &agf{lines: map[string]*registration{}, holds: map[string]hold{}}
	until := time.Unix(1_800_000_000, 0)
	for _, name := range []string{"c", "a", "e"} {
		s.lines[name] = &registration{Line: NewLine(Settings{}, nil), agf: "agf", key: name}
	}
	s.lines["e"].state = registered
	// A refused line that registers again is no longer refused.
	for name, of := range map[string]string{"b": "agf", "d": "other", "a": "agf"} {
		s.holds[name] = hold{until: until, why: errors.New("illegal UE"), agf: of}
	}
	ask := func(q *api.AgfLinesQuery) (names []string) {
		for {
			answer, err := s.list(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range answer.Lines {
				names = append(names, l.Name+" "+l.State)
				if (l.State == refused) != (l.Reason == "illegal UE" && l.Again == until.UnixNano()) {
					t.Errorf("%v", l)
				}
			}
			if q.Page = answer.NextPage; q.Page == "" {
				return names
			}
		}
	}
	for _, c := range []struct {
		query *api.AgfLinesQuery
		want  []string
	}{
		{&api.AgfLinesQuery{}, []string{"a registering", "b refused", "c registering", "d refused", "e idle"}},
		{&api.AgfLinesQuery{Limit: 2}, []string{"a registering", "b refused", "c registering", "d refused", "e idle"}},
		{&api.AgfLinesQuery{Limit: 1, Agf: "agf"}, []string{"a registering", "b refused", "c registering", "e idle"}},
		{&api.AgfLinesQuery{State: "refused"}, []string{"b refused", "d refused"}},
		{&api.AgfLinesQuery{Name: "e"}, []string{"e idle"}},
		{&api.AgfLinesQuery{Name: "f"}, nil},
	} {
		if got := ask(c.query); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q", c.query, got)
		}
	}
}
