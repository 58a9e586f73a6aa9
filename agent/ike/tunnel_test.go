// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
	"sluice.dev/sluice/agent/service"
)

func TestATunnelNeedsAnSAOfEachDirectionThatHasNotEnded(t *testing.T) {
	const ended = " that has not ended: a hard lifetime is over, or the sequence numbers are used up"
	for _, c := range []struct {
		all, inbound, outbound, ended uint32
		reason                        string
	}{
		{2, 1, 1, 0, ""},
		{3, 1, 1, 1, ""},
		{0, 0, 0, 0, "no inbound and no outbound SecurityAssociation"},
		{1, 1, 0, 0, "no outbound SecurityAssociation"},
		{2, 0, 2, 0, "no inbound SecurityAssociation"},
		{2, 1, 0, 1, "no outbound SecurityAssociation" + ended},
		{2, 0, 0, 2, "no inbound and no outbound SecurityAssociation" + ended},
		// A data plane of an earlier release.
		{2, 0, 0, 0, ""},
	} {
		s := &api.IpsecTunnelState{SecurityAssociations: c.all, UsableInbound: c.inbound, UsableOutbound: c.outbound, Ended: c.ended}
		if reason := missing(s); reason != c.reason {
			t.Errorf("%+v: %q", c, reason)
		}
	}
}

// The tunnels of a data plane that does not answer are those that IKE knows, with the reason, and those of the others are as ever.
func TestTunnelsOfADataPlaneThatDoesNotAnswerAreUnknown(t *testing.T) {
	fake := dataplanetest.New(t)
	fake.Count(&api.IpsecTunnelStates{Tunnels: []*api.IpsecTunnelState{{Tunnel: "static", SecurityAssociations: 2, UsableInbound: 1, UsableOutbound: 1}}})
	endpoint, err := dataplane.ParseEndpoint("unix://"+fake.Path, dataplane.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan bool, 1)
	client := dataplane.New(dataplane.Config{Endpoint: endpoint, Connected: func(context.Context, *dataplane.Client, *api.Greeting) { up <- true }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() {
		defer close(ended)
		client.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-up
	made, err := newServing(service.Environment{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Dataplanes: []string{"east", "north", "west"}})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := made.(*serving)
	s.planes["east"] = client
	p := newPair(t)
	for _, name := range []string{"b", "a"} {
		c := p.connection(p.a, p.b, ikeSuite, espSuite)
		c.Name, c.Dataplane, c.Children[0].Serves.Tunnel = name, "west", "site-"+name
		s.machine.SetConnection(name, c, p.now)
	}
	ask := func(q *api.TunnelsQuery) (texts []string) {
		for {
			answer, err := query{serving: s}.tunnels(t.Context(), q)
			if err != nil {
				return append(texts, err.Error())
			}
			for _, one := range answer.GetTunnels() {
				texts = append(texts, strings.TrimSpace(strings.Join([]string{one.GetDataplane(), one.GetTunnel(), one.GetConnection(), one.GetState(), one.GetReason()}, " ")))
			}
			if q.Page = answer.GetNextPage(); q.Page == "" {
				return texts
			}
		}
	}
	gone := func(plane string) string { return "data plane " + plane + ": " + dataplane.ErrDisconnected.Error() }
	all := []string{"east static  up", "north   unknown " + gone("north"), "west site-a a unknown " + gone("west"), "west site-b b unknown " + gone("west")}
	for limit := range uint32(5) {
		if texts := ask(&api.TunnelsQuery{Limit: limit}); !slices.Equal(texts, all) {
			t.Errorf("limit %d: %q", limit, texts)
		}
	}
	fake.Count(&api.IpsecTunnelStates{})
	if texts := ask(&api.TunnelsQuery{Name: "site-b"}); !slices.Equal(texts, all[3:]) {
		t.Errorf("%q", texts)
	}
	if texts := ask(&api.TunnelsQuery{Name: "other"}); !slices.Equal(texts, []string{dataplane.ErrDisconnected.Error()}) {
		t.Errorf("%q", texts)
	}
}
