// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
)

func temporary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serve runs an agent with a data plane. It returns a client and the function that ends it.
func serve(t *testing.T, change ...func(*Config)) (api.AgentClient, *dataplanetest.Fake, func()) {
	t.Helper()
	fake := dataplanetest.New(t)
	client, end := serveFor(t, fake, change...)
	return client, fake, end
}

// serveFor is serve for a data plane that is there.
func serveFor(t *testing.T, fake *dataplanetest.Fake, change ...func(*Config)) (api.AgentClient, func()) {
	t.Helper()
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := dataplane.ParseEndpoint("unix://"+fake.Path, dataplane.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	path := temporary(t) + "/agent.sock"
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan struct{})
	config := Config{Listen: path, Dataplanes: []Dataplane{{Endpoint: endpoint}}, Registry: registry, Release: "1.0",
		Patience: 300 * time.Millisecond, Log: slog.New(slog.DiscardHandler), MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}
	for _, f := range change {
		f(&config)
	}
	go func() {
		defer close(ended)
		if err := Run(ctx, config, func() { close(ready) }); err != nil {
			t.Error(err)
		}
	}()
	var once sync.Once
	end := func() {
		once.Do(func() {
			cancel()
			<-ended
		})
	}
	t.Cleanup(end)
	select {
	case <-ready:
	case <-ended:
		t.FailNow()
	}
	connection, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	client := api.NewAgentClient(connection)
	for {
		v, err := client.GetVersion(t.Context(), &api.VersionQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if v.GetDataplane().GetConnected() {
			return client, end
		}
		time.Sleep(time.Millisecond)
	}
}

func vrfs(count int) []*api.Intent {
	var all []*api.Intent
	for i := range count {
		all = append(all, &api.Intent{Kind: "Vrf", Name: fmt.Sprintf("v%03d", i), Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)}})
	}
	return all
}

func TestPagesTogetherHoldEveryObjectOnce(t *testing.T) {
	client, _, _ := serve(t)
	if _, err := client.Apply(t.Context(), &api.Changes{Put: vrfs(100)}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		query *api.ObjectsQuery
		want  int
	}{
		{&api.ObjectsQuery{Limit: 7}, 100},
		{&api.ObjectsQuery{Limit: 50}, 100},
		{&api.ObjectsQuery{Limit: 7, Selector: "odd=true"}, 50},
		{&api.ObjectsQuery{Kinds: []string{"Port"}}, 0},
		{&api.ObjectsQuery{Names: []string{"v003", "v098", "none"}, Limit: 1}, 2},
	} {
		var names []string
		for {
			page, err := client.Get(t.Context(), test.query)
			if err != nil {
				t.Fatal(err)
			}
			if test.query.Limit > 0 && len(page.GetObjects()) > int(test.query.Limit) {
				t.Errorf("%v: a page of %d", test.query, len(page.GetObjects()))
			}
			for _, o := range page.GetObjects() {
				names = append(names, o.GetIntent().GetName())
			}
			if page.GetNextPage() == "" {
				break
			}
			test.query.Page = page.GetNextPage()
		}
		if len(names) != test.want || !slices.IsSorted(names) || len(slices.Compact(names)) != test.want {
			t.Errorf("%v: %v", test.query, names)
		}
	}
}

func TestRequestsThatMakeNoSenseAreRefused(t *testing.T) {
	client, fake, _ := serve(t)
	for name, ask := range map[string]func() error{
		"an unknown kind": func() error {
			_, err := client.Get(t.Context(), &api.ObjectsQuery{Kinds: []string{"Prot"}})
			return err
		},
		"a selector that is none": func() error {
			_, err := client.Get(t.Context(), &api.ObjectsQuery{Selector: "a,,b"})
			return err
		},
		"a page from nowhere": func() error {
			_, err := client.Get(t.Context(), &api.ObjectsQuery{Page: "x"})
			return err
		},
		"an object of an unknown kind": func() error {
			_, err := client.Apply(t.Context(), &api.Changes{Put: []*api.Intent{{Kind: "Prot", Name: "x"}}})
			return err
		},
		"a spec that cannot be read": func() error {
			_, err := client.Plan(t.Context(), &api.Changes{Put: []*api.Intent{{Kind: "Vrf", Name: "x", Spec: []byte{0xff}}}})
			return err
		},
		"a spec that is not acceptable": func() error {
			_, err := client.Apply(t.Context(), &api.Changes{Put: []*api.Intent{{Kind: "Port", Name: "x"}}})
			return err
		},
		"a deletion of an unknown kind": func() error {
			_, err := client.Apply(t.Context(), &api.Changes{Delete: []*api.ObjectName{{Kind: "Prot", Name: "x"}}})
			return err
		},
		"a reason that paints on terminals": func() error {
			_, err := client.Apply(t.Context(), &api.Changes{Why: "well\x1b[2J\n7  api  nothing"})
			return err
		},
		"a reason that is a book": func() error {
			_, err := client.Rollback(t.Context(), &api.RollbackRequest{Revision: 1, Why: strings.Repeat("x", 1001)})
			return err
		},
		"an owner with a line end": func() error {
			_, err := client.Plan(t.Context(), &api.Changes{Owner: "a\nb"})
			return err
		},
		"a filter that is none": func() error {
			stream, err := client.FollowPackets(t.Context(), &api.Trace{Filter: "nonsense"})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		if err := ask(); status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := fake.Objects(); len(got) != 0 {
		t.Errorf("the data plane has %v", got)
	}
	if _, err := client.Describe(t.Context(), &api.ObjectName{Kind: "Vrf", Name: "default"}); status.Code(err) != codes.NotFound {
		t.Errorf("an object without configuration is described: %v", err)
	}
}

func TestReadingAStuckDataPlaneFailsSoon(t *testing.T) {
	client, fake, _ := serve(t)
	fake.Deafen(true)
	for name, ask := range map[string]func() error{
		"drops": func() error {
			_, err := read[*api.DropCountersList](t.Context(), client, &api.DropCountersQuery{})
			return err
		},
		"paths": func() error { _, err := read[*api.GtpuPaths](t.Context(), client, &api.GtpuPathsQuery{}); return err },
	} {
		err := ask()
		if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(status.Convert(err).Message(), "has not answered for 300ms") {
			t.Errorf("%s: %v", name, err)
		}
	}
	fake.Deafen(false)
	if _, err := read[*api.DropCountersList](t.Context(), client, &api.DropCountersQuery{}); err != nil {
		t.Errorf("when it answers again: %v", err)
	}
}

func TestStreamsEndWithTheAgent(t *testing.T) {
	client, fake, end := serve(t)
	watch, err := client.Watch(t.Context(), &api.ObjectsQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := watch.Recv(); err != nil || c.GetChange() != api.ObjectChange_COMPLETE {
		t.Fatalf("%v, %v", c, err)
	}
	capture, err := client.CapturePackets(t.Context(), &api.Capture{})
	if err != nil {
		t.Fatal(err)
	}
	// Besides the agent's own stream of events.
	captures := func(r *api.Request) bool { return r.GetCapture() != nil }
	if _, err := capture.Header(); err != nil || !slices.ContainsFunc(fake.Streams(), captures) {
		t.Fatalf("%v; the data plane's streams: %v", err, fake.Streams())
	}
	end()
	for err == nil {
		// Changes of the data plane's connection may come first.
		var c *api.ObjectChange
		if c, err = watch.Recv(); err == nil && c.GetChange() != api.ObjectChange_DATAPLANE {
			t.Errorf("told %v", c)
		}
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the watch: %v", err)
	}
	if _, err := capture.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the capture: %v", err)
	}
}

func TestAWatchForLabelsFollowsObjectsThatGetAndLoseThem(t *testing.T) {
	client, _, _ := serve(t)
	watch, err := client.Watch(t.Context(), &api.ObjectsQuery{Selector: "tier=gold"})
	if err != nil {
		t.Fatal(err)
	}
	// The last change of the object.
	state := func(want string) {
		t.Helper()
		for {
			c, err := watch.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if got := c.GetChange().String() + " " + c.GetObject().GetIntent().GetLabels()["tier"]; got == want {
				return
			}
		}
	}
	put := func(labels map[string]string) {
		t.Helper()
		if _, err := client.Apply(t.Context(), &api.Changes{Put: []*api.Intent{{Kind: "Vrf", Name: "red", Labels: labels}}}); err != nil {
			t.Fatal(err)
		}
	}
	state("COMPLETE ")
	put(map[string]string{"tier": "silver"})
	put(map[string]string{"tier": "gold"})
	state("CHANGED gold")
	put(nil)
	state("ENDED ")
	put(map[string]string{"tier": "gold"})
	state("CHANGED gold")
	if _, err := client.Apply(t.Context(), &api.Changes{Delete: []*api.ObjectName{{Kind: "Vrf", Name: "red"}}}); err != nil {
		t.Fatal(err)
	}
	state("ENDED ")
}

func TestAClientAppliesAPartOfAnObjectAndGetsTheOtherOwners(t *testing.T) {
	client, _, _ := serve(t)
	apply := func(owner string, force bool, acl *api.Acl, empty ...string) error {
		spec, err := proto.Marshal(acl)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Apply(t.Context(), &api.Changes{Owner: owner, Force: force, NoWait: true, Put: []*api.Intent{{Kind: "Acl", Name: "web", Spec: spec, Empty: empty}}})
		return err
	}
	if err := apply("", false, &api.Acl{Rules: []*api.AclRule{{Protocol: "tcp"}}, Otherwise: api.AclAction_PERMIT}); err != nil {
		t.Fatal(err)
	}
	if err := apply("lab", false, &api.Acl{}, "nowhere"); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "nowhere: there is no such field") {
		t.Error(err)
	}
	err := apply("lab", false, &api.Acl{}, "otherwise")
	details := status.Convert(err).Details()
	if status.Code(err) != codes.FailedPrecondition || len(details) != 1 {
		t.Fatal(err)
	}
	if p := details[0].(*api.Problems).GetProblems(); len(p) != 1 || p[0].GetField() != "otherwise" || p[0].GetHolder() != "api" || p[0].GetFound() != "deny" {
		t.Errorf("%v", p)
	}
	if err := apply("lab", true, &api.Acl{}, "otherwise"); err != nil {
		t.Fatal(err)
	}
	page, err := client.Get(t.Context(), &api.ObjectsQuery{Owner: "api", OwnedFields: true})
	if err != nil || len(page.GetObjects()) != 1 {
		t.Fatal(page, err)
	}
	found := page.GetObjects()[0]
	var fields []string
	for _, o := range found.GetOwners() {
		for _, f := range o.GetFields() {
			fields = append(fields, fmt.Sprintf("%s %s %s %v", o.GetOwner(), f.GetField(), f.GetValue(), f.GetOverridden()))
		}
	}
	if got, want := strings.Join(fields, "; "), "lab otherwise deny false; api rules [{action: deny, protocol: tcp}] false; api otherwise permit true"; got != want {
		t.Errorf("got %s, not %s", got, want)
	}
	counts := &api.Acl{}
	if err := proto.Unmarshal(found.GetIntent().GetSpec(), counts); err != nil || counts.GetOtherwise() != api.AclAction_DENY || len(counts.GetRules()) != 1 {
		t.Error(counts, err)
	}
}

func TestTheSocketIsForItsOwnerAlone(t *testing.T) {
	l, err := listen(temporary(t) + "/deeper/agent.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	is, err := os.Stat(l.Addr().String())
	if err != nil || is.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", is.Mode(), err)
	}
}

func TestOnlyASocketWithoutAListenerIsReplaced(t *testing.T) {
	path := temporary(t) + "/agent.sock"
	first, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "another agent listens there") {
		t.Errorf("while somebody listens: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	first.Close()
	again, err := listen(path)
	if err != nil {
		t.Fatalf("without an owner: %v", err)
	}
	again.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("where a file is: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "precious" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// read asks a question about operational state.
func read[R proto.Message](ctx context.Context, client api.AgentClient, query proto.Message) (R, error) {
	var none R
	question, err := anypb.New(query)
	if err != nil {
		return none, err
	}
	answer, err := client.ReadState(ctx, question)
	if err != nil {
		return none, err
	}
	reply := none.ProtoReflect().New().Interface()
	return reply.(R), answer.UnmarshalTo(reply)
}
