// SPDX-License-Identifier: Apache-2.0

package port

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// bed is an agent's intent with the port "access", and the links of the data plane "east".
type bed struct {
	*testing.T
	registry *object.Registry
	desired  *intent.Desired
	events   *intent.Events
	links    *Links
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
	o := &object.Object{Kind: "Port", Name: "access", Spec: &api.Port{Device: "net_null0"}}
	if _, err := desired.Apply(t.Context(), intent.Source{Owner: "api"}, []object.Change{object.Put(o)}, intent.Options{Mode: intent.NoWait}); err != nil {
		t.Fatal(err)
	}
	events, err := desired.Events(intent.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	return &bed{t, registry, desired, events, NewLinks()}
}

func (b *bed) followed() service.Followed {
	return service.Followed{Name: "east", Intent: b.desired, Log: slog.New(slog.DiscardHandler)}
}

// wantEvent waits for an event of the port.
func (b *bed) wantEvent() {
	b.Helper()
	e, err := b.events.Next(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if e.Status.Key != (object.Key{Kind: "Port", Name: "access"}) {
		b.Errorf("an event of %v", e.Status.Key)
	}
}

func (b *bed) wantNoEvent() {
	b.Helper()
	over, cancel := context.WithCancel(b.Context())
	cancel()
	if e, err := b.events.Next(over); err == nil {
		b.Errorf("an event of %v", e.Status.Key)
	}
}

func (b *bed) notReady(dataplane, kind, name string) string {
	b.Helper()
	stored, err := b.registry.NewStored(object.Key{Kind: kind, Name: name}, nil, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	why := b.links.NotReady(dataplane, stored)
	if why.Reason != "" && why.Since.IsZero() {
		b.Errorf("%s since when?", why.Reason)
	}
	return strings.TrimSpace(why.Reason + " " + why.Message)
}

func (b *bed) wantNotReady(want string) {
	b.Helper()
	if got := b.notReady("east", "Port", "access"); got != want {
		b.Errorf("%q, not %q", got, want)
	}
}

var then = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const down = "LinkDown the link is down since 2026-03-01T12:00:00Z"

func TestOnlyAPortWithoutALinkIsHindered(t *testing.T) {
	b := newBed(t)
	b.links.update(b.followed(), "access", false, "the Linux interface eth1 is gone", then)
	b.wantNotReady(down + ": the Linux interface eth1 is gone")
	for _, other := range [][3]string{{"west", "Port", "access"}, {"east", "Port", "core"}, {"east", "Vrf", "access"}} {
		if got := b.notReady(other[0], other[1], other[2]); got != "" {
			t.Errorf("%v: %s", other, got)
		}
	}
	b.links.update(b.followed(), "access", true, "", then)
	b.wantNotReady("")
}

func TestAChangeOfALinkIsOneEventOfItsPort(t *testing.T) {
	b := newBed(t)
	b.links.update(b.followed(), "access", true, "", then)
	b.wantNoEvent()
	b.links.update(b.followed(), "access", false, "", then)
	b.wantEvent()
	b.links.update(b.followed(), "access", false, "", then.Add(time.Hour))
	b.wantNoEvent()
	// Why it is down is news; since when it is down stays.
	b.links.update(b.followed(), "access", false, "no carrier", then.Add(time.Hour))
	b.wantEvent()
	b.wantNotReady(down + ": no carrier")
	b.links.update(b.followed(), "access", true, "", then.Add(2*time.Hour))
	b.wantEvent()
	b.wantNoEvent()
}

func TestALinkOfAPortWithoutAnObjectIsNoEvent(t *testing.T) {
	b := newBed(t)
	b.links.update(b.followed(), "other", false, "", then)
	b.wantNoEvent()
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// connected returns a data plane, and it as one that is followed.
func (b *bed) connected() (*dataplanetest.Fake, service.Followed) {
	b.Helper()
	fake := dataplanetest.New(b)
	endpoint, err := dataplane.ParseEndpoint("unix://"+fake.Path, dataplane.Credentials{})
	if err != nil {
		b.Fatal(err)
	}
	up := make(chan struct{}, 100)
	f := b.followed()
	f.Client = dataplane.New(dataplane.Config{Endpoint: endpoint, Log: f.Log, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
		Connected: func(context.Context, *dataplane.Client, *api.Greeting) { up <- struct{}{} }, Disconnected: func(error) {}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.Client.Run(ctx)
	}()
	b.Cleanup(func() {
		cancel()
		<-ended
	})
	<-up
	return fake, f
}

func links(up bool, names ...string) *api.PortCountersList {
	all := &api.PortCountersList{}
	for _, name := range names {
		all.Ports = append(all.Ports, &api.PortCounters{Port: name, LinkUp: up})
	}
	return all
}

func TestADataPlaneIsFollowedUntilTheConnectionEnds(t *testing.T) {
	b := newBed(t)
	fake, f := b.connected()
	fake.Count(links(false, "access", "core"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.links.Follow(ctx, f)
	}()
	isDown := func(name string) func() bool {
		return func() bool { return b.notReady("east", "Port", name) != "" }
	}
	isUp := func(name string) func() bool { return func() bool { return !isDown(name)() } }
	eventually(t, "what was down before is known", isDown("core"))
	fake.Emit(&api.Event{Event: &api.Event_PortLink{PortLink: &api.PortLink{Port: "access", Up: true}}}, false)
	eventually(t, "what comes up is heard", isUp("access"))
	fake.Emit(&api.Event{Event: &api.Event_PortLink{PortLink: &api.PortLink{Port: "access", Why: "no carrier"}}}, false)
	eventually(t, "what goes down is heard", isDown("access"))
	// The other port was deleted.
	fake.Count(links(true, "access"))
	fake.Emit(&api.Event{Event: &api.Event_Lost{Lost: 3}}, false)
	eventually(t, "what was lost is looked for", isUp("access"))
	eventually(t, "a port that is not there has no link that is down", isUp("core"))

	fake.Emit(&api.Event{Event: &api.Event_PortLink{PortLink: &api.PortLink{Port: "access"}}}, false)
	eventually(t, "it is down", isDown("access"))
	cancel()
	<-ended
	b.wantNotReady("")
}
