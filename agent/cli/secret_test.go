// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/config"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
	"sluice.dev/sluice/agent/object/objecttest"
)

// guarded is written to by several.
type guarded struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (g *guarded) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Write(p)
}

func (g *guarded) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.String()
}

const first, second, third = "correct-horse", "battery-staple", "tr0ub4dor"

func peer(password string) string {
	return "{apiVersion: sluice.dev/v1, kind: Peer, metadata: {name: p}, spec: {address: 192.0.2.1, password: " + password +
		", login: {user: me, key: " + third + "}, old: [" + third + "]}}"
}

func TestNoCommandAnswerLogFileOrAuditTellsASecret(t *testing.T) {
	registry, plane, output, dir := objecttest.Secretive(t), dataplanetest.New(t), &guarded{}, t.TempDir()
	given := make(chan struct{}, 100)
	plane.Refuse(func(_, kind, _ string) *api.Result {
		if kind == "Peer" {
			given <- struct{}{}
			return &api.Result{}
		}
		return nil
	})
	sockets, err := os.MkdirTemp("", "sl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	address := "unix://" + sockets + "/s"
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		p := &program{err: &printable{to: output}, registry: registry}
		ended <- p.runAgent(ctx, config.Config{Listen: address, Store: filepath.Join(dir, "intent.db"), Log: config.Log{Level: "debug", Format: "json"},
			Audit: config.Audit{File: filepath.Join(dir, "audit")}, Dataplanes: []config.Dataplane{{Name: "default", Endpoint: "unix://" + plane.Path}}}, false, true)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	defer stop()
	run := func(input string, arguments ...string) (string, int) {
		var out bytes.Buffer
		p := &program{in: strings.NewReader(input), out: &printable{to: &out}, err: &printable{to: &out}, now: time.Now, registry: registry}
		code := p.run(ctx, append([]string{"--agent", address}, arguments...))
		output.Write(out.Bytes())
		return out.String(), code
	}
	eventually(t, "the agent serves", func() bool { _, code := run("", "version"); return code == 0 })

	want := func(code int, input string, arguments ...string) string {
		t.Helper()
		text, got := run(input, arguments...)
		if (got == 0) != (code == 0) {
			t.Fatalf("sluice %s: exit code %d\n%s", strings.Join(arguments, " "), got, text)
		}
		return text
	}
	want(0, peer(first), "apply", "-f", "-")
	<-given
	if text := want(0, peer(second), "plan", "-f", "-"); !strings.Contains(text, "password: (secret) -> (secret)") {
		t.Errorf("%s", text)
	}
	plan := filepath.Join(dir, "plan")
	want(0, peer(second), "plan", "-f", "-", "-o", "json", "--out", plan)
	if is, err := os.Stat(plan); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("a plan that others can read: %v, %v", is, err)
	}
	want(0, "", "apply", "--plan", plan)
	for _, arguments := range []string{"get peers", "get peers -o wide", "get peers -o json", "get all -o yaml", "get peers -o yaml --owners", "get peers -o json --owners",
		"describe peer p", "describe peer p -o json", "describe peer p -o yaml", "diff 0", "diff 1", "diff 1 -o json", "diff 1 2", "history", "history -o json",
		"graph", "graph -o dot", "graph -o svg"} {
		want(0, "", strings.Fields(arguments)...)
	}
	want(1, peer(first), "apply", "-f", "-", "--owner", "lab")
	want(1, peer(first)+"\n---\n"+peer(second), "apply", "-f", "-")
	for _, wrong := range []string{"[" + first + "]", "{a: " + first + "}", "*" + first, "\"" + first + `\a"`} {
		want(1, peer(wrong), "apply", "-f", "-")
		want(1, peer(wrong), "plan", "-f", "-")
	}
	want(0, peer(first), "apply", "-f", "-", "--owner", "lab", "--force")
	want(0, "", "describe", "peer", "p")
	want(0, "", "rollback", "1")

	// The answers themselves, of which a command may show a part.
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("sluice"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	client := api.NewAgentClient(connection)
	answer := func(m proto.Message, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(output, prototext.Format(m))
	}
	written := &api.Intent{Kind: "Peer", Name: "p"}
	written.Spec, err = proto.Marshal(objecttest.Object(t, registry, "Peer", "p", "{address: 192.0.2.3, password: "+second+"}").Spec)
	if err != nil {
		t.Fatal(err)
	}
	page, err := client.Get(ctx, &api.ObjectsQuery{OwnedFields: true})
	answer(page, err)
	described, err := client.Describe(ctx, &api.ObjectName{Kind: "Peer", Name: "p"})
	answer(described, err)
	planned, err := client.Plan(ctx, &api.Changes{Put: []*api.Intent{written}})
	answer(planned, err)
	applied, err := client.Apply(ctx, &api.Changes{Put: []*api.Intent{written}})
	answer(applied, err)
	history, err := client.GetHistory(ctx, &api.HistoryQuery{})
	answer(history, err)
	differences, err := client.Compare(ctx, &api.Comparison{From: 1})
	answer(differences, err)
	watch, err := client.Watch(ctx, &api.ObjectsQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for complete := false; !complete; {
		change, err := watch.Recv()
		answer(change, err)
		complete = change.GetChange() == api.ObjectChange_COMPLETE
	}
	written.Spec, err = proto.Marshal(objecttest.Object(t, registry, "Peer", "p", "{address: 192.0.2.4, password: "+first+"}").Spec)
	if err != nil {
		t.Fatal(err)
	}
	applied, err = client.Apply(ctx, &api.Changes{Put: []*api.Intent{written}})
	answer(applied, err)
	for there := false; !there; {
		change, err := watch.Recv()
		answer(change, err)
		there = strings.Contains(prototext.Format(change), "192.0.2.4")
	}

	// The last audit lines are logged when everything has ended.
	stop()
	for _, want := range []string{"192.0.2.1", "192.0.2.4", `"outcome":"refused"`, `"level":"INFO"`} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("%s is not told at all", want)
		}
	}
	secrets := []string{first, second, third}
	for _, file := range []string{"audit", "intent.db"} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || len(text) == 0 {
			t.Errorf("%s: %d bytes, %v", file, len(text), err)
		}
		for _, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s is in the file %s", secret, file)
			}
		}
	}
	for _, secret := range secrets {
		if i := strings.Index(output.String(), secret); i >= 0 {
			t.Errorf("%s was told: %s", secret, output.String()[max(0, i-300):i+100])
		}
	}
}
