package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func TestThatThereIsNothingToShowIsSaid(t *testing.T) {
	s := newSite(t)
	for arguments, want := range map[string]string{
		"all":                      "No objects.\n",
		"all -o yaml":              "No objects.\n",
		"all --owner lab":          "No objects of which lab says something.\n",
		"sessions":                 "No sessions.\n",
		"sessions -o wide":         "No sessions.\n",
		"sessions -o yaml":         "No sessions.\n",
		"sessions -l city=bonn":    "No sessions with such labels.\n",
		"ports,interfaces":         "No ports, no interfaces.\n",
		"ports,interfaces -o yaml": "No ports, no interfaces.\n",
	} {
		out, errs, code := s.try("", append([]string{"get"}, strings.Fields(arguments)...)...)
		if out != "" || errs != want || code != 0 {
			t.Errorf("get %s: exit code %d\n%s%s", arguments, code, out, errs)
		}
	}
	for _, which := range []string{"all", "sessions"} {
		if out, errs, code := s.try("", "get", which, "-o", "json"); out != "[]\n" || errs != "" || code != 0 {
			t.Errorf("get %s -o json: exit code %d\n%s%s", which, code, out, errs)
		}
	}
}

// paged is an agent whose pages are counted, and whose messages hold only so many objects.
type paged struct {
	api.AgentClient
	pages, most int
}

func (p *paged) Get(ctx context.Context, q *api.ObjectsQuery, options ...grpc.CallOption) (*api.IntentPage, error) {
	if int(q.GetLimit()) > p.most {
		return nil, status.Error(codes.ResourceExhausted, "grpc: trying to send message larger than max")
	}
	p.pages++
	return p.AgentClient.Get(ctx, q, options...)
}

func TestVeryManyObjectsAreWrittenAsTheirPagesCome(t *testing.T) {
	s := newSite(t)
	p := &program{agent: s.address()}
	var err error
	if p.registry, err = object.NewRegistry(); err != nil {
		t.Fatal(err)
	}
	client, err := p.client()
	if err != nil {
		t.Fatal(err)
	}
	defer p.connection.Close()
	const many = 2500
	changes := &api.Changes{}
	for i := range many {
		changes.Put = append(changes.Put, &api.Intent{Kind: "Vrf", Name: fmt.Sprintf("v%05d", i)})
	}
	if _, err := client.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	var told []struct{ Metadata struct{ Name string } }
	if err := json.Unmarshal([]byte(s.ok("get", "all", "-o", "json")), &told); err != nil {
		t.Fatal(err)
	}
	if len(told) != many || told[0].Metadata.Name != "v00000" || told[many-1].Metadata.Name != fmt.Sprintf("v%05d", many-1) {
		t.Errorf("%d objects", len(told))
	}
	// No more than one page is held, also if a message holds few objects.
	for output, c := range map[string]struct{ most, page int }{"json": {many, 1000}, "yaml": {100, 62}} {
		agent := &paged{AgentClient: client, most: c.most}
		p.out = io.Discard
		l := &listing{program: p, output: output, query: &api.ObjectsQuery{Kinds: []string{"Vrf"}}}
		err := p.each(t.Context(), agent, l.query, func(o *api.ObjectIntent) error {
			if held := agent.pages*c.page - l.count; held > c.page+1 {
				return fmt.Errorf("%d objects are held", held)
			}
			return l.show(o)
		})
		if err != nil || l.count != many+1 || len(l.found) != 0 {
			t.Errorf("%s: %d objects, %v", output, l.count, err)
		}
	}
}
