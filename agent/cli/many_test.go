// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/object"
)

// asked is an agent that has every object that a request names, and counts these names.
type recordingClient struct {
	api.AgentClient
	names   int
	planned *api.Planned
}

func (a *recordingClient) Get(_ context.Context, q *api.ObjectsQuery, _ ...grpc.CallOption) (*api.IntentPage, error) {
	a.names += len(q.GetNames())
	page := &api.IntentPage{}
	for _, name := range slices.Sorted(slices.Values(q.GetNames())) {
		if name > q.GetPage() && len(page.Objects) < int(q.GetLimit()/2) {
			page.Objects = append(page.Objects, &api.ObjectIntent{Intent: &api.Intent{Kind: q.GetKinds()[0], Name: name}})
		}
	}
	if last := len(page.Objects) - 1; last >= 0 {
		page.NextPage = page.Objects[last].GetIntent().GetName()
	}
	return page, nil
}

func (a *recordingClient) Plan(context.Context, *api.Changes, ...grpc.CallOption) (*api.Planned, error) {
	return a.planned, nil
}

func TestManyNamesAreNotSentAgainWithEachPage(t *testing.T) {
	p := &program{}
	if _, err := p.root(); err != nil {
		t.Fatal(err)
	}
	const count = 20 * pageSize
	query := &api.ObjectsQuery{Kinds: []string{"Session", "Acl"}}
	for i := range count {
		query.Names = append(query.Names, fmt.Sprintf("n%06d", count-i))
	}
	client := &recordingClient{}
	var found []object.Key
	err := p.pages(t.Context(), client, query, func(page []*api.ObjectIntent) error {
		for _, o := range page {
			found = append(found, keyOf(o))
		}
		return nil
	})
	if err != nil || len(found) != 2*count || !slices.IsSortedFunc(found, object.Key.Compare) {
		t.Errorf("%d objects, %v", len(found), err)
	}
	// Each request is for half a page, and one more finds no other.
	if most := 3 * 2 * count; client.names > most {
		t.Errorf("%d names were sent, want at most %d", client.names, most)
	}
}

func TestADeletionOfVeryManyObjectsIsCheckedAtOnce(t *testing.T) {
	const count = 300_000
	client := &recordingClient{planned: &api.Planned{}}
	changes := &api.Changes{}
	for i := range count {
		name := fmt.Sprintf("s%06d", i)
		changes.Delete = append(changes.Delete, &api.ObjectName{Kind: "Session", Name: name})
		client.planned.Steps = append(client.planned.Steps, &api.PlannedStep{Step: api.Step_DELETE, Kind: "Session", Name: name, WaitsFor: "Acl/web"})
	}
	client.planned.Steps = append(client.planned.Steps, &api.PlannedStep{Step: api.Step_DELETE, Kind: "Session", Name: "other", WaitsFor: "Acl/web"})
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{registry: registry}
	done := make(chan error, 1)
	go func() { done <- p.stranded(t.Context(), client, changes) }()
	eventually(t, "the deletion is checked", func() bool {
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	})
	if err == nil || !strings.Contains(err.Error(), "Session/other would wait for Acl/web") || strings.Contains(err.Error(), "Session/s") {
		t.Error(err)
	}
}

func TestNamesAreCompletedHoweverManyThereAre(t *testing.T) {
	s := newSite(t)
	var b strings.Builder
	for i := range pageSize + 200 {
		fmt.Fprintf(&b, "---\napiVersion: sluice.dev/v1\nkind: Vrf\nmetadata: {name: v%04d}\n", i)
	}
	s.feed(b.String(), "apply", "-f", "-")
	for typed, want := range map[string][]string{"v119": nil, "v1194": {"v1194"}, "v12": {}, "d": {}} {
		if want == nil {
			for i := 1190; i < 1200; i++ {
				want = append(want, fmt.Sprintf("v%d", i))
			}
		}
		out := strings.Fields(s.ok("__complete", "get", "vrf", typed))
		if got := out[:len(out)-1]; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", typed, got, want)
		}
	}
	if out := strings.Fields(s.ok("__complete", "describe", "vrf/v1198")); out[0] != "vrf/v1198" {
		t.Errorf("%v", out)
	}
	if out := strings.Fields(s.ok("__complete", "get", "vrf", "v0001", "v000")); slices.Contains(out, "v0001") || len(out) != 10 {
		t.Errorf("%v", out)
	}
}

func TestAFieldThatWaitsAmongVeryManyIsShownWithANameThatIsClose(t *testing.T) {
	s := newSite(t)
	var b strings.Builder
	for i := range 2 * maxListed {
		fmt.Fprintf(&b, "---\napiVersion: sluice.dev/v1\nkind: Neighbor\nmetadata: {name: n%d}\nspec: {interface: coer, address: 10.0.0.%d, mac: \"02:00:00:00:00:01\"}\n", i, i+1)
	}
	s.written()
	errs := s.fails(b.String(), "apply", "-f", "-")
	if !strings.Contains(errs, "40 unresolved references") || strings.Count(errs, "did you mean core?") != maxListed || !strings.Contains(errs, "... and 20 more") ||
		!strings.Contains(errs, "standard input:5: Neighbor/n0") {
		t.Error(errs)
	}
}
