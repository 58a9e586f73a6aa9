// SPDX-License-Identifier: Apache-2.0

package module_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/module"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
	"sluice.dev/sluice/agent/server"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/store"
)

const peerFile = `
name: "lab/peer.proto" package: "lab.v1" syntax: "proto3" dependency: "schema.proto"
message_type {
  name: "LabPeer"
  field { name: "address" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL options { [sluice.v1.field] { required: true format: IP } } }
  field { name: "password" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL options { [sluice.v1.field] { secret: true } } }
  options { [sluice.v1.kind] { plane: AGENT plural: "lab-peers" columns: "address" } }
}
`

func peerKinds(t *testing.T, change ...string) []byte {
	t.Helper()
	f := &descriptorpb.FileDescriptorProto{}
	if err := prototext.Unmarshal([]byte(strings.NewReplacer(change...).Replace(peerFile)), f); err != nil {
		t.Fatal(err)
	}
	packed, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{f}})
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

const token = "sluice_a-token-of-the-module-lab"

func hashed(token string) string {
	hash := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(hash[:])
}

func rights() module.Rights {
	return module.Rights{Token: hashed(token), Kinds: []string{"LabPeer"}, Follow: []string{"Vrf"}, Produce: []string{"Vrf", "Meter"}, Punts: []string{"local"}, Send: []string{"session"}}
}

func temporary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// agent is a running agent with a place for modules.
type agent struct {
	api.AgentClient
	connection *grpc.ClientConn
	modules    api.ModulesClient
	records    *durable.Log
	end        func()
}

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func start(t *testing.T, dir string, fake *dataplanetest.Fake, rights module.Rights) *agent {
	t.Helper()
	registry, err := concepts.NewRegistry()
	must(t, err)
	records, err := durable.Open(dir + "/records")
	must(t, err)
	section := &module.Section{Listen: "unix://" + dir + "/modules.sock", Rights: map[string]module.Rights{"lab": rights}}
	must(t, section.Check())
	modules, err := module.Open(section, registry, records, "1.0", slog.New(slog.DiscardHandler))
	must(t, err)
	stored, err := store.Open(dir+"/intent.db", registry)
	must(t, err)
	endpoint, err := dataplane.ParseEndpoint("unix://"+fake.Path, dataplane.Credentials{})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := modules.While(ctx, func(ctx context.Context) error {
			return server.Run(ctx, server.Config{Listen: dir + "/agent.sock", Dataplanes: []server.Dataplane{{Dataplane: intent.Dataplane{Name: "default"}, Endpoint: endpoint}}, Registry: registry,
				Store: stored, Release: "1.0", Log: slog.New(slog.DiscardHandler), MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
				Services: modules.Definitions(), Records: records, BeginAnew: true}, nil)
		})
		if err != nil {
			t.Error(err)
		}
	}()
	over := false
	end := func() {
		if over {
			return
		}
		over = true
		cancel()
		<-ended
		stored.Close()
		records.Close()
	}
	t.Cleanup(end)
	c := dial(t, dir+"/agent.sock")
	return &agent{AgentClient: api.NewAgentClient(c), connection: c, modules: api.NewModulesClient(dial(t, dir+"/modules.sock")), records: records, end: end}
}

// selfSigned writes a certificate for 127.0.0.1 and its key, and returns a pool that trusts it.
func selfSigned(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(dir+"/tls.crt", text, 0o600))
	must(t, os.WriteFile(dir+"/tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

func TestAModuleOnAnotherHostComesOverTLS(t *testing.T) {
	dir := temporary(t)
	pool := selfSigned(t, dir)
	registry, err := concepts.NewRegistry()
	must(t, err)
	records, err := durable.Open(dir + "/records")
	must(t, err)
	defer records.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := free.Addr().String()
	must(t, free.Close())
	section := &module.Section{Listen: address, TLS: access.TLS{Certificate: dir + "/tls.crt", Key: dir + "/tls.key"}, Rights: map[string]module.Rights{"lab": rights()}}
	must(t, section.Check())
	modules, err := module.Open(section, registry, records, "1.0", slog.New(slog.DiscardHandler))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- modules.While(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil }) }()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool})), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	must(t, err)
	defer c.Close()
	_, err = attach(t, api.NewModulesClient(c), token+"x", nil).Recv()
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("another token: %v", err)
	}
	plain, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	defer plain.Close()
	stream, err := api.NewModulesClient(plain).Attach(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token))
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("without TLS: %v", err)
	}
	cancel()
	must(t, <-ended)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, sentence string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + sentence)
		}
	}
}

// attached is a module's side of a call.
type attached struct {
	t *testing.T
	grpc.BidiStreamingClient[api.FromModule, api.ToModule]
	leave context.CancelFunc
}

func attach(t *testing.T, c api.ModulesClient, token string, hello *api.ModuleHello) *attached {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream, err := c.Attach(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token))
	must(t, err)
	a := &attached{t, stream, cancel}
	if hello != nil {
		must(t, a.Send(&api.FromModule{Message: &api.FromModule_Hello{Hello: hello}}))
	}
	return a
}

// next returns the next message that matches.
func (a *attached) next(match func(*api.ToModule) bool) *api.ToModule {
	a.t.Helper()
	for {
		one, err := a.Recv()
		must(a.t, err)
		if match(one) {
			return one
		}
	}
}

func (a *attached) follow(name string) *api.FollowedObject {
	a.t.Helper()
	for {
		one := a.next(func(m *api.ToModule) bool { return m.GetFollowed() != nil })
		for _, o := range one.GetFollowed().GetObjects() {
			if o.GetIntent().GetName() == name {
				return o
			}
		}
	}
}

func (a *attached) produce(p *api.Production) []*api.ProductionResult {
	a.t.Helper()
	must(a.t, a.Send(&api.FromModule{Message: &api.FromModule_Production{Production: p}}))
	return a.next(func(m *api.ToModule) bool { return m.GetResults().GetId() == p.GetId() && m.GetResults() != nil }).GetResults().GetResults()
}

func hello(t *testing.T) *api.ModuleHello {
	return &api.ModuleHello{Name: "lab", Version: "1", Kinds: peerKinds(t), Follow: []string{"Vrf", "LabPeer"}, Punts: []string{"local"}}
}

func describe(t *testing.T, c api.AgentClient, kind, name string) string {
	t.Helper()
	d, err := c.Describe(t.Context(), &api.ObjectName{Kind: kind, Name: name})
	if err != nil {
		return err.Error()
	}
	return prototext.MarshalOptions{Multiline: false}.Format(d)
}

// peer is the spec of a LabPeer.
func peer(t *testing.T, r *object.Registry, text string) []byte {
	t.Helper()
	m := r.Kind("LabPeer").Message.New().Interface()
	must(t, prototext.Unmarshal([]byte(text), m))
	packed, err := object.Pack(m)
	must(t, err)
	return packed
}

func TestAModuleAddsAKindFollowsProducesAndExchangesPackets(t *testing.T) {
	dir, fake := temporary(t), dataplanetest.New(t)
	a := start(t, dir, fake, rights())
	m := attach(t, a.modules, token, hello(t))
	welcome := m.next(func(m *api.ToModule) bool { return m.GetWelcome() != nil }).GetWelcome()
	if welcome.GetRelease() != "1.0" || !slices.Equal(welcome.GetDataplanes(), []string{"default"}) {
		t.Errorf("the welcome is %v", welcome)
	}
	m.next(func(m *api.ToModule) bool { return m.GetFollowed().GetSynced() })

	client, err := concepts.NewRegistry()
	must(t, err)
	client.AskFor(func() { must(t, module.FetchKinds(t.Context(), a.connection, client)) })
	_, err = a.Apply(t.Context(), &api.Changes{Put: []*api.Intent{{Kind: "LabPeer", Name: "one", Spec: peer(t, client, `address: "192.0.2.1" password: "hidden"`)}}})
	must(t, err)
	followed := m.follow("one")
	if spec := string(followed.GetIntent().GetSpec()); !strings.Contains(spec, "192.0.2.1") || strings.Contains(spec, "hidden") {
		t.Errorf("the module is told %q", spec)
	}
	if _, err := a.Apply(t.Context(), &api.Changes{Put: []*api.Intent{{Kind: "LabPeer", Name: "two"}}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an object without what is required: %v", err)
	}

	must(t, m.Send(&api.FromModule{Message: &api.FromModule_Conditions{Conditions: &api.ObjectConditions{Conditions: []*api.ObjectCondition{
		{Kind: "LabPeer", Name: "one", Reason: "NoAnswer", Message: "the peer does not answer"}}}}}))
	until(t, "the module's condition is the object's", func() bool {
		return strings.Contains(describe(t, a, "LabPeer", "one"), "the peer does not answer")
	})

	meter, err := proto.Marshal(&api.Meter{CommittedRate: 1000000, CommittedBurst: 100000})
	must(t, err)
	results := m.produce(&api.Production{Id: 7, Put: []*api.Intent{{Kind: "Meter", Name: "made", Spec: meter}, {Kind: "Session", Name: "s"}, {Kind: "Meter", Name: "-"}},
		Delete: []*api.ObjectName{{Kind: "LabPeer", Name: "one"}}})
	if results[0].GetProblem() != nil || !results[0].GetDone() {
		t.Errorf("Meter/made: %v", results[0])
	}
	for i, problem := range map[int]string{1: "may not produce", 2: "not a name", 3: "may not produce"} {
		if !strings.Contains(results[i].GetProblem().GetProblem(), problem) {
			t.Errorf("result %d: %v", i, results[i])
		}
	}
	if got := describe(t, a, "Meter", "made"); !strings.Contains(got, `"lab"`) {
		t.Errorf("Meter/made is %s", got)
	}
	must(t, m.Send(&api.FromModule{Message: &api.FromModule_Complete{Complete: &api.Complete{}}}))
	m.next(func(m *api.ToModule) bool { return m.GetCompleted() != nil })

	until(t, "the agent waits for packets", func() bool {
		return slices.ContainsFunc(fake.Streams(), func(r *api.Request) bool { return slices.Contains(r.GetWatch().GetPunts(), "local") })
	})
	fake.Emit(&api.Event{Event: &api.Event_PacketIn{PacketIn: &api.PacketIn{Reason: "local", Session: "alice", Frame: []byte("question")}}}, false)
	in := m.next(func(m *api.ToModule) bool { return m.GetPackets() != nil }).GetPackets()
	if in.GetDataplane() != "default" || in.GetPackets()[0].GetSession() != "alice" || string(in.GetPackets()[0].GetFrame()) != "question" {
		t.Errorf("the packets are %v", in)
	}
	must(t, m.Send(&api.FromModule{Message: &api.FromModule_Packets{Packets: &api.ModulePacketsOut{Dataplane: "default",
		Packets: []*api.PacketOut{service.ToSession("alice", []byte("answer"))}}}}))
	until(t, "the answer is sent", func() bool {
		return slices.ContainsFunc(fake.Log(), func(line string) bool { return strings.Contains(line, `"answer"`) })
	})

	m.leave()
	until(t, "the agent no longer takes packets that the module would get", func() bool {
		return !slices.ContainsFunc(fake.Streams(), func(r *api.Request) bool { return slices.Contains(r.GetWatch().GetPunts(), "local") })
	})
	until(t, "the object says that the module is away", func() bool { return strings.Contains(describe(t, a, "LabPeer", "one"), "ModuleAway") })
	if fake.Object("Meter", "made") == nil {
		t.Error("what the module made went with it")
	}

	// The agent reads the object before the module is back.
	a.end()
	a = start(t, dir, fake, rights())
	until(t, "the agent knows the object after its restart", func() bool { return strings.Contains(describe(t, a, "LabPeer", "one"), "ModuleAway") })
	if fake.Object("Meter", "made") == nil {
		t.Error("what the module made went with the agent")
	}
	m = attach(t, a.modules, token, hello(t))
	m.follow("one")
	until(t, "the object is ready", func() bool { return !strings.Contains(describe(t, a, "LabPeer", "one"), "ModuleAway") })
	must(t, m.Send(&api.FromModule{Message: &api.FromModule_Complete{Complete: &api.Complete{}}}))
	until(t, "what is not produced again is deleted", func() bool { return fake.Object("Meter", "made") == nil })
}

func TestAModuleIsLimitedToItsRights(t *testing.T) {
	dir, fake := temporary(t), dataplanetest.New(t)
	a := start(t, dir, fake, rights())
	refused := func(about string, code codes.Code, problem string, m *attached) {
		t.Helper()
		for {
			_, err := m.Recv()
			if err == nil {
				continue
			}
			if status.Code(err) != code || !strings.Contains(err.Error(), problem) {
				t.Errorf("%s: %v", about, err)
			}
			return
		}
	}
	changed := func(change func(*api.ModuleHello)) *api.ModuleHello {
		h := hello(t)
		change(h)
		return h
	}
	refused("no token", codes.Unauthenticated, "Bearer", attach(t, a.modules, "", nil))
	refused("another token", codes.Unauthenticated, "not known", attach(t, a.modules, token+"x", nil))
	refused("the hash", codes.Unauthenticated, "not known", attach(t, a.modules, hashed(token), nil))
	for about, c := range map[string]struct {
		code    codes.Code
		problem string
		hello   *api.ModuleHello
	}{
		"another name":        {codes.PermissionDenied, "whose token", changed(func(h *api.ModuleHello) { h.Name = "dns" })},
		"another kind":        {codes.PermissionDenied, "may not follow", changed(func(h *api.ModuleHello) { h.Follow = []string{"Session"} })},
		"another reason":      {codes.PermissionDenied, "may not have", changed(func(h *api.ModuleHello) { h.Punts = []string{"dhcp4"} })},
		"a kind twice":        {codes.InvalidArgument, "duplicate kind Vrf", changed(func(h *api.ModuleHello) { h.Follow = []string{"Vrf", "Vrf"} })},
		"a kind not its own":  {codes.PermissionDenied, "may not add", changed(func(h *api.ModuleHello) { h.Kinds = peerKinds(t, "LabPeer", "Other", "lab-peers", "others") })},
		"another's package":   {codes.InvalidArgument, "package", changed(func(h *api.ModuleHello) { h.Kinds = peerKinds(t, "lab.v1", "sluice.v1") })},
		"a word that is ours": {codes.InvalidArgument, "already means", changed(func(h *api.ModuleHello) { h.Kinds = peerKinds(t, "lab-peers", "sessions") })},
		"no kind yet":         {codes.FailedPrecondition, "no kind LabPeer", changed(func(h *api.ModuleHello) { h.Kinds = nil })},
	} {
		refused(about, c.code, c.problem, attach(t, a.modules, token, c.hello))
	}
	from := func(change func(*api.FromModule)) *api.FromModule {
		one := &api.FromModule{}
		change(one)
		return one
	}
	packet := func(p *api.PacketOut) *api.FromModule {
		return from(func(f *api.FromModule) {
			f.Message = &api.FromModule_Packets{Packets: &api.ModulePacketsOut{Dataplane: "default", Packets: []*api.PacketOut{p}}}
		})
	}
	condition := func(c *api.ObjectCondition) *api.FromModule {
		return from(func(f *api.FromModule) {
			f.Message = &api.FromModule_Conditions{Conditions: &api.ObjectConditions{Conditions: []*api.ObjectCondition{c}}}
		})
	}
	for about, c := range map[string]struct {
		code    codes.Code
		problem string
		one     *api.FromModule
	}{
		"a frame on a port":      {codes.PermissionDenied, "may not send by port", packet(service.Frame("core", nil))},
		"a packet without a way": {codes.InvalidArgument, "without a way", packet(&api.PacketOut{})},
		"no message":             {codes.InvalidArgument, "empty message", &api.FromModule{}},
		"no change":              {codes.InvalidArgument, "0 changes", from(func(f *api.FromModule) { f.Message = &api.FromModule_Production{Production: &api.Production{}} })},
		"another's condition":    {codes.PermissionDenied, "does not follow", condition(&api.ObjectCondition{Kind: "Session", Name: "a", Reason: "Bad", Message: "bad"})},
		"a reason in words":      {codes.InvalidArgument, "reason", condition(&api.ObjectCondition{Kind: "Vrf", Name: "a", Reason: "not good", Message: "bad"})},
		"a terminal's command":   {codes.InvalidArgument, "control characters", condition(&api.ObjectCondition{Kind: "Vrf", Name: "a", Reason: "Bad", Message: "\x1b[2J"})},
	} {
		var m *attached
		// The call before is over for us, and a moment later for the agent.
		until(t, "the module can attach again", func() bool {
			m = attach(t, a.modules, token, hello(t))
			_, err := m.Recv()
			return err == nil
		})
		must(t, m.Send(c.one))
		refused(about, c.code, c.problem, m)
	}
	var first *attached
	until(t, "the module can attach again", func() bool {
		first = attach(t, a.modules, token, hello(t))
		_, err := first.Recv()
		return err == nil
	})
	refused("a second call", codes.AlreadyExists, "attached already", attach(t, a.modules, token, hello(t)))
	// A wider shape takes effect at the next start of the agent; a narrower one never.
	first.leave()
	wider, narrower, taken := hello(t), hello(t), hello(t)
	taken.Kinds = peerKinds(t, "lab-peers", "sessions")
	refused("a shape with a word that is ours", codes.InvalidArgument, "already means", attach(t, a.modules, token, taken))
	wider.Kinds = peerKinds(t, "  options { [sluice.v1.kind]", `  field { name: "weight" number: 3 type: TYPE_UINT32 label: LABEL_OPTIONAL }  options { [sluice.v1.kind]`)
	narrower.Kinds = peerKinds(t, `name: "password" number: 2`, `name: "password" number: 4`)
	refused("a wider shape", codes.FailedPrecondition, "restart the agent", attach(t, a.modules, token, wider))
	refused("a narrower shape", codes.FailedPrecondition, "password", attach(t, a.modules, token, narrower))
	a.end()
	a = start(t, dir, fake, rights())
	attach(t, a.modules, token, wider).next(func(m *api.ToModule) bool { return m.GetWelcome() != nil })
}

func TestAShapeThatAnotherModuleNeedsStays(t *testing.T) {
	dir, fake := temporary(t), dataplanetest.New(t)
	const field = `  options { [sluice.v1.kind]`
	wider := peerKinds(t, field, `  field { name: "weight" number: 3 type: TYPE_UINT32 label: LABEL_OPTIONAL }`+field, `plural: "lab-peers"`, `plural: "lab-hosts"`)
	attached := func(about string, a *agent, kinds []byte, problem string) {
		t.Helper()
		h := hello(t)
		h.Kinds = kinds
		_, err := attach(t, a.modules, token, h).Recv()
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", about, err)
		}
	}
	a := start(t, dir, fake, rights())
	attached("the first shape", a, peerKinds(t), "")
	attached("a wider one", a, wider, "restart the agent")
	// Another module takes the plural that the wider shape gives up.
	table, err := a.records.Table("modules")
	must(t, err)
	must(t, table.Put(durable.Record{Key: "zed", Value: peerKinds(t, "lab/", "zed/", "lab.v1", "zed.v1", "LabPeer", "ZedPeer")}).Wait())
	attached("back to the first shape", a, peerKinds(t), `"lab-peers" already means ZedPeer`)
}

func TestCallsOfAModuleAreBounded(t *testing.T) {
	dir := temporary(t)
	a := start(t, dir, dataplanetest.New(t), rights())
	const calls = 4
	for range calls {
		attach(t, a.modules, token, nil)
	}
	another := api.NewModulesClient(dial(t, dir+"/modules.sock"))
	until(t, "one more is refused at once", func() bool {
		_, err := attach(t, another, token, hello(t)).Recv()
		return status.Code(err) == codes.ResourceExhausted
	})
}

func TestKindsOfModulesReferToEachOther(t *testing.T) {
	dir := t.TempDir()
	section := &module.Section{Listen: "unix://" + dir + "/modules.sock", Rights: map[string]module.Rights{}}
	write := func(name, kind, plural string, change ...string) {
		file := dir + "/" + name
		must(t, os.WriteFile(file, peerKinds(t, append([]string{"lab/", name + "/", "lab.v1", name + ".v1", "LabPeer", kind, "lab-peers", plural}, change...)...), 0o600))
		section.Rights[name] = module.Rights{Token: hashed(name), Kinds: []string{kind}, Descriptors: file}
	}
	open := func() (*object.Registry, error) {
		registry, err := concepts.NewRegistry()
		must(t, err)
		records, err := durable.Open(dir + "/records")
		must(t, err)
		defer records.Close()
		_, err = module.Open(section, registry, records, "1.0", slog.New(slog.DiscardHandler))
		return registry, err
	}
	known := func(about string) {
		t.Helper()
		r, err := open()
		must(t, err)
		if r.Kind("Alpha") == nil || r.Kind("Zeta") == nil {
			t.Errorf("%s: there are %d kinds of modules", about, len(r.Modules()))
		}
	}
	// The first module refers to the kind of the last.
	whole := func() {
		write("alpha", "Alpha", "alphas", `{ secret: true }`, `{ ref: "Zeta" }`)
		write("zeta", "Zeta", "zetas")
	}
	whole()
	known("in files")
	for _, c := range []struct{ plural, problem string }{
		{"alphas", `modules.rights.zeta.descriptors: kinds: with them, those of module alpha cannot be used: kind Alpha: name, plural or short: "alphas" already means Zeta`},
		{"sessions", `modules.rights.zeta.descriptors: kind Zeta: name, plural or short: "sessions" already means Session`},
	} {
		write("zeta", "Zeta", c.plural)
		if _, err := open(); err == nil || !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v", c.problem, err)
		}
		whole()
		known("after " + c.problem)
	}
}

func TestRightsNameKindsThatThereAre(t *testing.T) {
	registry, err := concepts.NewRegistry()
	must(t, err)
	for problem, change := range map[string]func(*module.Rights){
		"": func(*module.Rights) {},
		"rights.lab.kinds: Session is a kind of sluice.v1": func(r *module.Rights) { r.Kinds = []string{"Session"} },
		`rights.lab.follow: there is no kind "Sesion"`:     func(r *module.Rights) { r.Follow = []string{"Sesion"} },
		`rights.lab.produce: there is no kind "Rout"`:      func(r *module.Rights) { r.Produce = []string{"Rout"} },
	} {
		r := rights()
		change(&r)
		err := (&module.Section{Rights: map[string]module.Rights{"lab": r}}).CheckKinds(registry)
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v", problem, err)
		}
	}
}

func TestKindsInAFileAreKnownBeforeTheModuleAttaches(t *testing.T) {
	dir, fake, r := temporary(t), dataplanetest.New(t), rights()
	r.Descriptors = dir + "/lab.binpb"
	must(t, os.WriteFile(r.Descriptors, peerKinds(t), 0o600))
	a := start(t, dir, fake, r)
	client, err := concepts.NewRegistry()
	must(t, err)
	until(t, "the agent tells of the kind", func() bool { return module.FetchKinds(t.Context(), a.connection, client) == nil })
	_, err = a.Apply(t.Context(), &api.Changes{Put: []*api.Intent{{Kind: "LabPeer", Name: "one", Spec: peer(t, client, `address: "192.0.2.1"`)}}})
	must(t, err)
	a.end()

	// Without the records, the store has objects of an unknown kind, unless the descriptor file defines it.
	must(t, os.RemoveAll(dir+"/records"))
	registry, err := concepts.NewRegistry()
	must(t, err)
	stored, err := store.Open(dir+"/intent.db", registry)
	if err == nil {
		_, err = intent.New(intent.Config{Registry: registry, Store: stored})
		stored.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "LabPeer") {
		t.Errorf("an unknown kind in the store: %v", err)
	}
	must(t, os.WriteFile(r.Descriptors, peerKinds(t, "  options { [sluice.v1.kind]", `  field { name: "weight" number: 3 type: TYPE_UINT32 label: LABEL_OPTIONAL }  options { [sluice.v1.kind]`), 0o600))
	a = start(t, dir, fake, r)
	until(t, "the object is there", func() bool { return strings.Contains(describe(t, a, "LabPeer", "one"), "192.0.2.1") })
	a.end()
	must(t, os.WriteFile(r.Descriptors, peerKinds(t, `name: "password" number: 2`, `name: "password" number: 4`), 0o600))
	records, err := durable.Open(dir + "/records")
	must(t, err)
	defer records.Close()
	if _, err := module.Open(&module.Section{Rights: map[string]module.Rights{"lab": r}}, registry, records, "1.0", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("a narrower shape in the file: %v", err)
	}
}

func TestAModuleSeesSecretsOnlyIfItsRightsSaySo(t *testing.T) {
	r := rights()
	r.Secrets = true
	a := start(t, temporary(t), dataplanetest.New(t), r)
	m := attach(t, a.modules, token, hello(t))
	m.next(func(m *api.ToModule) bool { return m.GetFollowed().GetSynced() })
	client, err := concepts.NewRegistry()
	must(t, err)
	must(t, module.FetchKinds(t.Context(), a.connection, client))
	_, err = a.Apply(t.Context(), &api.Changes{Put: []*api.Intent{{Kind: "LabPeer", Name: "one", Spec: peer(t, client, `address: "192.0.2.1" password: "hidden"`)}}})
	must(t, err)
	if spec := string(m.follow("one").GetIntent().GetSpec()); !strings.Contains(spec, "hidden") {
		t.Errorf("the module is told %q", spec)
	}
}

func TestTheObjectsOfADeadModuleGoWhenItsGraceIsOver(t *testing.T) {
	dir := temporary(t)
	registry, err := concepts.NewRegistry()
	must(t, err)
	records, err := durable.Open(dir + "/records")
	must(t, err)
	defer records.Close()
	section := &module.Section{Listen: "unix://" + dir + "/modules.sock", Rights: map[string]module.Rights{"lab": rights()}}
	modules, err := module.Open(section, registry, records, "1.0", slog.New(slog.DiscardHandler))
	must(t, err)
	host := service.New(modules.Definitions())
	desired, err := intent.New(intent.Config{Registry: registry, Log: slog.New(slog.DiscardHandler), NotReady: host.NotReady})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = modules.While(ctx, func(ctx context.Context) error {
			go desired.Run(ctx)
			host.Run(ctx, service.Config{Registry: registry, Intent: desired, Log: slog.New(slog.DiscardHandler), Records: records, Grace: time.Millisecond})
			return nil
		})
	}()
	defer func() { cancel(); <-ended }()
	plane := reconciletest.NewPlane(registry)
	desired.Attach(ctx, plane)
	m := attach(t, api.NewModulesClient(dial(t, dir+"/modules.sock")), token, hello(t))
	m.produce(&api.Production{Id: 1, Put: []*api.Intent{{Kind: "Vrf", Name: "made"}}})
	made := object.Key{Kind: "Vrf", Name: "made"}
	if _, there := desired.Get(made); !there {
		t.Fatal("it is not there")
	}
	m.leave()
	until(t, "the object is deleted", func() bool {
		st, there := desired.Get(made)
		return !there || st.Object == nil
	})
}
