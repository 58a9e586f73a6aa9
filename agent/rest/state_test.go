// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	headers "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice.dev/sluice/agent/api"
	agent "sluice.dev/sluice/agent/server"
)

// counting is an agent whose data plane answers.
type countingAgent struct {
	api.UnimplementedAgentServer
	asked []any
	// Every answer.
	fails  error
	places []string
}

func (c *countingAgent) note(ctx context.Context, q any) {
	c.asked = append(c.asked, q)
	c.places = append(c.places, headers.ValueFromIncomingContext(ctx, agent.DataplaneHeader)...)
}

// ReadState implements api.AgentServer.
func (c *countingAgent) ReadState(ctx context.Context, question *anypb.Any) (*anypb.Any, error) {
	m, err := question.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	c.note(ctx, m)
	if c.fails != nil {
		return nil, c.fails
	}
	switch q := m.(type) {
	case *api.DropCountersQuery:
		if q.GetSession() == "nobody" {
			return nil, status.Error(codes.NotFound, "session: there is no Session nobody")
		}
		return anypb.New(&api.DropCountersList{Drops: []*api.DropCounters{{Reason: "ttl-expired", Packets: 1 << 60}}})
	case *api.SessionSearch:
		return anypb.New(&api.SessionNames{Sessions: []string{"alice"}})
	case *api.IkeSasQuery:
		s, err := status.New(codes.Unavailable, "no service answers").WithDetails(&errdetails.ErrorInfo{Domain: agent.Domain, Reason: agent.NoService})
		if err != nil {
			return nil, err
		}
		return nil, s.Err()
	case *api.RouteLookUpQuery:
		return nil, status.Error(codes.InvalidArgument, "address: \"1.2\" is not an IP address")
	}
	return nil, status.Error(codes.Unavailable, "the agent has no data plane: it is away")
}

func TestCountersAndLookUpsAreReadFromTheDataplane(t *testing.T) {
	s := newSite(t)
	// Without one nothing can be read.
	s.want(503, s.ask("GET", "/v1/drops", ""))
	c := &countingAgent{}
	s.server.environment.Agent.Service = c
	if a := s.want(200, s.ask("GET", "/v1/drops?session=alice&dataplane=ulm", "")); a.text != `{"consumed":[],"drops":[{"description":"","packets":1152921504606846976,"reason":"ttl-expired"}]}`+"\n" {
		t.Error(a.text)
	}
	if q, _ := c.asked[0].(*api.DropCountersQuery); q.GetSession() != "alice" || !reflect.DeepEqual(c.places, []string{"ulm"}) {
		t.Error(c.asked, c.places)
	}
	s.want(404, s.ask("GET", "/v1/drops?session=nobody", ""))
	s.want(503, s.ask("GET", "/v1/counters/sessions?sessions=alice,bob&limit=5", ""))
	if q, _ := c.asked[2].(*api.SessionCountersQuery); len(q.GetSessions()) != 2 || q.GetLimit() != 5 {
		t.Error(c.asked)
	}
	s.want(400, s.ask("GET", "/v1/counters/sessions?page=x", ""))
	if a := s.want(200, s.ask("GET", "/v1/lookup/sessions?port=access&outerVlan=100&innerVlan=7", "")); a.text != `{"sessions":["alice"]}`+"\n" {
		t.Error(a.text)
	}
	if q, _ := c.asked[3].(*api.SessionSearch); q.GetPort() != "access" || q.GetOuterVlan() != 100 || q.GetInnerVlan() != 7 {
		t.Error(c.asked)
	}
	s.want(422, s.ask("GET", "/v1/lookup/route?address=1.2", ""))
	if s.desired.Revision() != 0 {
		t.Error("something changed")
	}
	s.want(503, s.ask("GET", "/v1/counters/nodes?graph=true", ""))
	if q, _ := c.asked[len(c.asked)-1].(*api.NodeCountersQuery); !q.GetGraph() {
		t.Error(c.asked)
	}
	s.want(400, s.ask("GET", "/v1/counters/nodes?graph=0", ""))
	for code, answer := range map[codes.Code]int{codes.Internal: 502, codes.ResourceExhausted: 429} {
		c.fails = status.Error(code, "module dns: 10 elements")
		if a := s.want(answer, s.ask("GET", "/v1/counters/nodes", "")); !strings.Contains(a.text, `"module dns: 10 elements"`) {
			t.Error(a.text)
		}
	}
	c.fails = nil
	if a := s.want(503, s.ask("GET", "/v1/ike-sas", "")); !strings.Contains(a.text, "no-service") {
		t.Error(a.text)
	}
}

func TestObjectsAreSelectedByTheirFields(t *testing.T) {
	s := newSite(t)
	s.want(201, s.ask("PUT", "/v1/vrfs/red", `{"spec":{"description":"a"}}`))
	s.want(201, s.ask("PUT", "/v1/vrfs/blue", `{"spec":{"description":"b"}}`))
	for selector, want := range map[string]string{"description%3Da": "red", "description!%3Da": "blue", "metadata.name%3Dred": "red"} {
		a := s.want(200, s.ask("GET", "/v1/vrfs?fields=metadata.name&fieldSelector="+selector, ""))
		items, _ := a.body["items"].([]any)
		if len(items) != 1 || items[0].(map[string]any)["metadata"].(map[string]any)["name"] != want {
			t.Errorf("%s: %s", selector, a.text)
		}
	}
	s.want(400, s.ask("GET", "/v1/vrfs?fieldSelector=description", ""))
	if a := s.want(422, s.ask("GET", "/v1/vrfs?fieldSelector=descripton%3Da", "")); a.body["detail"] != `field selector: Vrf has no field "descripton"; did you mean description?` {
		t.Error(a.text)
	}
}
