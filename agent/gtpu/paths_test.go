package gtpu

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// bed is an agent's intent, and what is known of the paths of two data planes.
type bed struct {
	*testing.T
	registry *object.Registry
	desired  *intent.Desired
	events   *intent.Events
	paths    *Paths
}

func newBed(t *testing.T) *bed {
	t.Helper()
	registry, err := object.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	events, err := desired.Events(intent.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	return &bed{t, registry, desired, events, New()}
}

func (b *bed) link(name string) Link {
	return Link{Name: name, Intent: b.desired, Log: slog.New(slog.DiscardHandler)}
}

func (b *bed) put(name string, spec proto.Message) {
	b.Helper()
	kind := string(spec.ProtoReflect().Descriptor().Name())
	o := &object.Object{Kind: kind, Name: name, Spec: spec}
	if _, err := b.desired.Apply(b.Context(), intent.Source{Owner: "api"}, []object.Change{object.Put(o)}, intent.Options{Mode: intent.NoWait}); err != nil {
		b.Fatal(err)
	}
}

// told returns the events of paths that there were, in order: "east n3 192.0.2.2 down (upf)".
func (b *bed) told() string {
	b.Helper()
	over, cancel := context.WithCancel(b.Context())
	cancel()
	var all []string
	for {
		e, err := b.events.Next(over)
		if err != nil {
			return strings.Join(all, "; ")
		}
		if p := e.Path; p != nil {
			text := p.Dataplane + " " + p.VRF + " " + p.Remote + " " + p.State
			if p.Peer != "" {
				text += " (" + p.Peer + ")"
			}
			all = append(all, text)
		}
	}
}

func (b *bed) wantTold(want string) {
	b.Helper()
	if got := b.told(); got != want {
		b.Errorf("told %q, not %q", got, want)
	}
}

const (
	ours   = "192.0.2.1"
	theirs = "192.0.2.2"
	other  = "192.0.2.3"
)

func tunnel(vrf, remote string) *api.Session {
	return &api.Session{Access: &api.Access{Port: "p"},
		Core: &api.Session_Gtpu{Gtpu: &api.Gtpu{Vrf: vrf, LocalAddress: ours, LocalTeid: 1, RemoteAddress: remote, RemoteTeid: 1}}}
}

func (b *bed) hindrance(dataplane string, spec proto.Message) string {
	b.Helper()
	text, err := proto.Marshal(spec)
	if err != nil {
		b.Fatal(err)
	}
	kept, err := b.registry.Keep(object.Key{Kind: string(spec.ProtoReflect().Descriptor().Name()), Name: "x"}, nil, nil, text)
	if err != nil {
		b.Fatal(err)
	}
	reason, message := b.paths.Hindrance(dataplane, kept)
	if (reason == "") != (message == "") {
		b.Errorf("reason %q, message %q", reason, message)
	}
	return strings.TrimSpace(reason + " " + message)
}

func (b *bed) wantHindrance(dataplane string, spec proto.Message, want string) {
	b.Helper()
	if got := b.hindrance(dataplane, spec); got != want {
		b.Errorf("in %s: %q, not %q", dataplane, got, want)
	}
}

var then = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const since = " is down since 2026-03-01T12:00:00Z"

func TestOnlySessionsOnAPathThatIsDownAreHindered(t *testing.T) {
	b := newBed(t)
	east := b.link("east")
	b.wantHindrance("east", tunnel("", theirs), "")
	b.paths.heard(east, pathOf("", ours, theirs), Down, then, nil)
	b.wantHindrance("east", tunnel("", theirs), "PathDown the path to "+theirs+since)
	b.wantHindrance("east", tunnel("default", theirs), "PathDown the path to "+theirs+since)
	b.wantHindrance("east", tunnel("", other), "")
	b.wantHindrance("east", tunnel("n3", theirs), "")
	b.wantHindrance("east", &api.Session{Access: &api.Access{Port: "p"}}, "")
	b.wantHindrance("east", &api.Vrf{}, "")
	b.paths.heard(east, pathOf("", ours, theirs), "up", then, nil)
	b.wantHindrance("east", tunnel("", theirs), "")
	b.wantTold("east default " + theirs + " down; east default " + theirs + " up")
}

func TestAPathIsDownOnlyInTheDataPlaneThatToldOfIt(t *testing.T) {
	b := newBed(t)
	at := pathOf("n3", ours, theirs)
	b.paths.heard(b.link("east"), at, Down, then, nil)
	b.wantHindrance("west", tunnel("n3", theirs), "")
	b.paths.heard(b.link("west"), at, Down, then, nil)
	b.paths.heard(b.link("east"), at, "up", then, nil)
	b.wantHindrance("east", tunnel("n3", theirs), "")
	b.wantHindrance("west", tunnel("n3", theirs), "PathDown the path to "+theirs+since)
	b.wantTold("east n3 " + theirs + " down; west n3 " + theirs + " down; east n3 " + theirs + " up")
}

func TestWhatIsHeardAgainIsOneEventAndKeepsItsTime(t *testing.T) {
	b := newBed(t)
	east, at := b.link("east"), pathOf("", ours, theirs)
	for _, state := range []string{"unknown", "unanswered", "up"} {
		b.paths.heard(east, at, state, then, nil)
	}
	b.wantTold("")
	b.paths.heard(east, at, Down, then, nil)
	b.paths.heard(east, at, Down, then.Add(time.Hour), nil)
	b.wantHindrance("east", tunnel("", theirs), "PathDown the path to "+theirs+since)
	b.paths.heard(east, at, "up", then, nil)
	b.paths.heard(east, at, "up", then, nil)
	b.wantTold("east default " + theirs + " down; east default " + theirs + " up")
}

func TestWhatIsNoPathIsNotHeard(t *testing.T) {
	b := newBed(t)
	for _, at := range []path{pathOf("", "", theirs), pathOf("", ours, "upf.example"), {}} {
		b.paths.heard(b.link("east"), at, Down, then, nil)
	}
	b.wantTold("")
	b.wantHindrance("east", tunnel("", ""), "")
}

func TestAPathIsCalledAsItsGtpuPeerAlsoWhenThatComesLater(t *testing.T) {
	b := newBed(t)
	east, at := b.link("east"), pathOf("n3", ours, theirs)
	b.put("n3", &api.Vrf{})
	b.put("elsewhere", &api.GtpuPeer{Address: theirs})
	b.paths.heard(east, at, Down, then, peersOf(b.desired))
	b.wantHindrance("east", tunnel("n3", theirs), "PathDown the path to "+theirs+since)
	b.put("upf", &api.GtpuPeer{Address: theirs, Vrf: "n3"})
	b.paths.heard(east, at, Down, then.Add(time.Hour), peersOf(b.desired))
	b.wantHindrance("east", tunnel("n3", theirs), "PathDown the path to GtpuPeer/upf ("+theirs+")"+since)
	b.paths.heard(east, at, "up", then, peersOf(b.desired))
	b.wantTold("east n3 " + theirs + " down; east n3 " + theirs + " up (upf)")
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// connected returns a data plane, and a link that is connected to it.
func (b *bed) connected(name string) (*dataplanetest.Fake, Link) {
	b.Helper()
	fake := dataplanetest.New(b)
	endpoint, err := dataplane.ParseEndpoint("unix://"+fake.Path, dataplane.Credentials{})
	if err != nil {
		b.Fatal(err)
	}
	up := make(chan struct{}, 100)
	l := b.link(name)
	l.Client = dataplane.New(dataplane.Config{Endpoint: endpoint, Log: l.Log, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Connected: func(context.Context, *dataplane.Client, *api.Greeting) { up <- struct{}{} }, Disconnected: func(error) {}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Client.Run(ctx)
	}()
	b.Cleanup(func() {
		cancel()
		<-ended
	})
	<-up
	return fake, l
}

func paths(state string, remotes ...string) *api.GtpuPaths {
	all := &api.GtpuPaths{}
	for _, r := range remotes {
		all.Paths = append(all.Paths, &api.GtpuPath{Vrf: "default", LocalAddress: ours, RemoteAddress: r, State: state, Changed: uint64(then.UnixNano())})
	}
	return all
}

func change(remote, state string) *api.Event {
	return &api.Event{Event: &api.Event_GtpuPath{GtpuPath: &api.GtpuPathChange{Vrf: "default", LocalAddress: ours, RemoteAddress: remote, State: state}}}
}

func TestToLookFindsWhatIsDownAndWhatIsNoLongerSo(t *testing.T) {
	b := newBed(t)
	fake, l := b.connected("east")
	look := func(there *api.GtpuPaths, told string) {
		t.Helper()
		fake.Count(there)
		if err := b.paths.look(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		b.wantTold(told)
	}
	look(paths(Down, theirs, other), "east default "+theirs+" down; east default "+other+" down")
	b.wantHindrance("east", tunnel("", theirs), "PathDown the path to "+theirs+since)
	look(paths(Down, theirs, other), "")
	look(paths("up", theirs), "east default "+theirs+" up; east default "+other+" gone")
	b.wantHindrance("east", tunnel("", other), "")
	look(&api.GtpuPaths{}, "")
}

func TestADataPlaneIsFollowedUntilTheConnectionEnds(t *testing.T) {
	b := newBed(t)
	fake, l := b.connected("east")
	fake.Count(paths(Down, theirs))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.paths.Follow(ctx, l)
	}()
	down := func(remote string) func() bool {
		return func() bool { return b.hindrance("east", tunnel("", remote)) != "" }
	}
	up := func(remote string) func() bool { return func() bool { return !down(remote)() } }
	eventually(t, "what was down before is known", down(theirs))
	// It answers the same to those who look meanwhile.
	fake.Count(paths(Down, theirs, other))
	fake.Emit(change(other, Down), false)
	eventually(t, "what goes down is heard", down(other))
	fake.Count(&api.GtpuPaths{Paths: append(paths("up", theirs).Paths, paths(Down, other).Paths...)})
	fake.Emit(change(theirs, "up"), false)
	eventually(t, "what comes up is heard", up(theirs))
	// Of what nobody heard it is learned by looking.
	fake.Count(paths("up", theirs, other))
	fake.Emit(&api.Event{Event: &api.Event_Lost{Lost: 3}}, false)
	eventually(t, "what was lost is looked for", up(other))
	b.wantTold(fmt.Sprintf("east default %s down; east default %s down; east default %s up; east default %s up", theirs, other, theirs, other))

	fake.Count(paths(Down, other))
	fake.Emit(change(other, Down), false)
	eventually(t, "it is down", down(other))
	cancel()
	<-ended
	b.wantHindrance("east", tunnel("", other), "")
}

func TestNewsOfAConnectionThatIsOverAreForgottenAndThoseOfTheNextCount(t *testing.T) {
	b := newBed(t)
	fake, l := b.connected("east")
	fake.Count(paths(Down, theirs))
	for _, state := range []string{Down, "up"} {
		fake.Count(paths(state, theirs, other))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			b.paths.Follow(ctx, l)
		}()
		eventually(t, "it follows", func() bool { return len(fake.Streams()) > 0 })
		fake.Emit(change(other, Down), false)
		eventually(t, "it hears", func() bool { return b.hindrance("east", tunnel("", other)) != "" })
		if is := b.hindrance("east", tunnel("", theirs)) != ""; is != (state == Down) {
			t.Errorf("%s: hindered: %t", state, is)
		}
		cancel()
		<-ended
		eventually(t, "the stream is closed", func() bool { return len(fake.Streams()) == 0 })
		b.wantHindrance("east", tunnel("", theirs), "")
	}
}
