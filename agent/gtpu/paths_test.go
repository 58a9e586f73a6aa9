// SPDX-License-Identifier: Apache-2.0

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
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// bed is an agent's intent, and the paths of two data planes.
type bed struct {
	*testing.T
	registry *object.Registry
	desired  *intent.Desired
	events   *intent.Events
	paths    *Paths
	reporter service.ReadinessReporter
}

func newBed(t *testing.T) *bed {
	t.Helper()
	registry, err := concepts.NewRegistry()
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
	paths := New()
	return &bed{t, registry, desired, events, paths, paths}
}

func (b *bed) link(name string) service.Followed {
	return service.Followed{Name: name, Intent: b.desired, Log: slog.New(slog.DiscardHandler)}
}

func (b *bed) put(name string, spec proto.Message) {
	b.Helper()
	kind := string(spec.ProtoReflect().Descriptor().Name())
	o := &object.Object{Kind: kind, Name: name, Spec: spec}
	if _, err := b.desired.Apply(b.Context(), intent.Source{Owner: "api"}, []object.Change{object.Put(o)}, intent.Options{Mode: intent.NoWait}); err != nil {
		b.Fatal(err)
	}
}

// eventTexts returns the published events of paths, in order: "east n3 192.0.2.2 down (upf)".
func (b *bed) eventTexts() string {
	b.Helper()
	over, cancel := context.WithCancel(b.Context())
	cancel()
	var all []string
	for {
		e, err := b.events.Next(over)
		if err != nil {
			return strings.Join(all, "; ")
		}
		if s := e.Service; s != nil {
			fields := map[string]string{}
			for _, f := range s.Fields {
				fields[f.Name] = f.Value
			}
			text := fields["dataplane"] + " " + fields["vrf"] + " " + s.Name + " " + s.State
			if peer := fields["peer"]; peer != "" {
				text += " (" + peer + ")"
			}
			all = append(all, text)
		}
	}
}

func (b *bed) wantEvents(want string) {
	b.Helper()
	if got := b.eventTexts(); got != want {
		b.Errorf("events %q, not %q", got, want)
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

func (b *bed) notReady(dataplane string, spec proto.Message) string {
	b.Helper()
	text, err := proto.Marshal(spec)
	if err != nil {
		b.Fatal(err)
	}
	kept, err := b.registry.NewStored(object.Key{Kind: string(spec.ProtoReflect().Descriptor().Name()), Name: "x"}, nil, nil, text)
	if err != nil {
		b.Fatal(err)
	}
	why := b.reporter.NotReady(dataplane, kept)
	reason, message := why.Reason, why.Message
	if (reason == "") != (message == "") {
		b.Errorf("reason %q, message %q", reason, message)
	}
	return strings.TrimSpace(reason + " " + message)
}

func (b *bed) wantNotReady(dataplane string, spec proto.Message, want string) {
	b.Helper()
	if got := b.notReady(dataplane, spec); got != want {
		b.Errorf("in %s: %q, not %q", dataplane, got, want)
	}
}

var then = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const since = " is down since 2026-03-01T12:00:00Z"

func TestOnlySessionsOnAPathThatIsDownAreHindered(t *testing.T) {
	b := newBed(t)
	east := b.link("east")
	b.wantNotReady("east", tunnel("", theirs), "")
	b.paths.update(east, pathOf("", ours, theirs), Down, then, nil)
	b.wantNotReady("east", tunnel("", theirs), "PathDown the path to "+theirs+since)
	b.wantNotReady("east", tunnel("default", theirs), "PathDown the path to "+theirs+since)
	b.wantNotReady("east", tunnel("", other), "")
	b.wantNotReady("east", tunnel("n3", theirs), "")
	b.wantNotReady("east", &api.Session{Access: &api.Access{Port: "p"}}, "")
	b.wantNotReady("east", &api.Vrf{}, "")
	b.paths.update(east, pathOf("", ours, theirs), "up", then, nil)
	b.wantNotReady("east", tunnel("", theirs), "")
	b.wantEvents("east default " + theirs + " down; east default " + theirs + " up")
}

func TestAPathIsDownOnlyInTheDataPlaneThatReportedIt(t *testing.T) {
	b := newBed(t)
	at := pathOf("n3", ours, theirs)
	b.paths.update(b.link("east"), at, Down, then, nil)
	b.wantNotReady("west", tunnel("n3", theirs), "")
	b.paths.update(b.link("west"), at, Down, then, nil)
	b.paths.update(b.link("east"), at, "up", then, nil)
	b.wantNotReady("east", tunnel("n3", theirs), "")
	b.wantNotReady("west", tunnel("n3", theirs), "PathDown the path to "+theirs+since)
	b.wantEvents("east n3 " + theirs + " down; west n3 " + theirs + " down; east n3 " + theirs + " up")
}

func TestARepeatedReportIsOneEventAndKeepsItsTime(t *testing.T) {
	b := newBed(t)
	east, at := b.link("east"), pathOf("", ours, theirs)
	for _, state := range []string{"unknown", "unanswered", "up"} {
		b.paths.update(east, at, state, then, nil)
	}
	b.wantEvents("")
	b.paths.update(east, at, Down, then, nil)
	b.paths.update(east, at, Down, then.Add(time.Hour), nil)
	b.wantNotReady("east", tunnel("", theirs), "PathDown the path to "+theirs+since)
	b.paths.update(east, at, "up", then, nil)
	b.paths.update(east, at, "up", then, nil)
	b.wantEvents("east default " + theirs + " down; east default " + theirs + " up")
}

func TestInvalidPathsAreIgnored(t *testing.T) {
	b := newBed(t)
	for _, at := range []path{pathOf("", "", theirs), pathOf("", ours, "upf.example"), {}} {
		b.paths.update(b.link("east"), at, Down, then, nil)
	}
	b.wantEvents("")
	b.wantNotReady("east", tunnel("", ""), "")
}

func TestAPathIsCalledAsItsGtpuPeerAlsoWhenThatComesLater(t *testing.T) {
	b := newBed(t)
	east, at := b.link("east"), pathOf("n3", ours, theirs)
	b.put("n3", &api.Vrf{})
	b.put("elsewhere", &api.GtpuPeer{Address: theirs})
	b.paths.update(east, at, Down, then, peersOf(b.desired))
	b.wantNotReady("east", tunnel("n3", theirs), "PathDown the path to "+theirs+since)
	b.put("upf", &api.GtpuPeer{Address: theirs, Vrf: "n3"})
	b.paths.update(east, at, Down, then.Add(time.Hour), peersOf(b.desired))
	b.wantNotReady("east", tunnel("n3", theirs), "PathDown the path to GtpuPeer/upf ("+theirs+")"+since)
	b.paths.update(east, at, "up", then, peersOf(b.desired))
	b.wantEvents("east n3 " + theirs + " down; east n3 " + theirs + " up (upf)")
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
func (b *bed) connected(name string) (*dataplanetest.Fake, service.Followed) {
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

func TestALookFindsPathsThatWentDownOrUp(t *testing.T) {
	b := newBed(t)
	fake, l := b.connected("east")
	look := func(there *api.GtpuPaths, events string) {
		t.Helper()
		fake.Count(there)
		if err := b.paths.look(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		b.wantEvents(events)
	}
	look(paths(Down, theirs, other), "east default "+theirs+" down; east default "+other+" down")
	b.wantNotReady("east", tunnel("", theirs), "PathDown the path to "+theirs+since)
	look(paths(Down, theirs, other), "")
	look(paths("up", theirs), "east default "+theirs+" up; east default "+other+" gone")
	b.wantNotReady("east", tunnel("", other), "")
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
		return func() bool { return b.notReady("east", tunnel("", remote)) != "" }
	}
	up := func(remote string) func() bool { return func() bool { return !down(remote)() } }
	eventually(t, "what was down before is known", down(theirs))
	// Reads in between return the same.
	fake.Count(paths(Down, theirs, other))
	fake.Emit(change(other, Down), false)
	eventually(t, "what goes down is heard", down(other))
	fake.Count(&api.GtpuPaths{Paths: append(paths("up", theirs).Paths, paths(Down, other).Paths...)})
	fake.Emit(change(theirs, "up"), false)
	eventually(t, "what comes up is heard", up(theirs))
	// A read finds changes whose events were lost.
	fake.Count(paths("up", theirs, other))
	fake.Emit(&api.Event{Event: &api.Event_Lost{Lost: 3}}, false)
	eventually(t, "what was lost is looked for", up(other))
	b.wantEvents(fmt.Sprintf("east default %s down; east default %s down; east default %s up; east default %s up", theirs, other, theirs, other))

	fake.Count(paths(Down, other))
	fake.Emit(change(other, Down), false)
	eventually(t, "it is down", down(other))
	cancel()
	<-ended
	b.wantNotReady("east", tunnel("", other), "")
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
		eventually(t, "it hears", func() bool { return b.notReady("east", tunnel("", other)) != "" })
		if is := b.notReady("east", tunnel("", theirs)) != ""; is != (state == Down) {
			t.Errorf("%s: hindered: %t", state, is)
		}
		cancel()
		<-ended
		eventually(t, "the stream is closed", func() bool { return len(fake.Streams()) == 0 })
		b.wantNotReady("east", tunnel("", theirs), "")
	}
}

func TestTheEventOfAPathIsForPeopleAndPrograms(t *testing.T) {
	at := pathOf("n3", ours, theirs)
	for _, c := range []struct{ peer, state, text, fields string }{
		{"upf-1", Down, "The path from " + ours + " in east to GtpuPeer/upf-1 (" + theirs + ") is down, and sessions on it are not ready,", `,"peer":"upf-1"`},
		{"", "up", "The path from " + ours + " in east to " + theirs + " is up", ""},
		{"", gone, "The path from " + ours + " in east to " + theirs + " is used by no session any more", ""},
	} {
		e := pathEvent("east", at, c.peer, c.state)
		text, err := e.JSON(then.UTC(), intent.Cursor{})
		want := `{"apiVersion":"sluice.dev/v1","kind":"GtpuPath","name":"` + theirs + `","state":"` + c.state + `","dataplane":"east","vrf":"n3","localAddress":"` + ours +
			`","remoteAddress":"` + theirs + `"` + c.fields + `,"time":"` + then.UTC().Format(time.RFC3339Nano) + `"}`
		if err != nil || string(text) != want || e.Text != c.text || e.Type != "path" {
			t.Errorf("%s: %s\nnot %s (%v)", e.Text, text, want, err)
		}
	}
}
