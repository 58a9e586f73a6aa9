// SPDX-License-Identifier: Apache-2.0

package intent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func registry(t testing.TB) *object.Registry {
	t.Helper()
	r, err := concepts.NewRegistry()
	must(t, err)
	return r
}

// running is a Desired with a data plane, which runs until the test ends.
func running(t testing.TB, c intent.Config) (*intent.Desired, *reconciletest.Plane, context.CancelFunc) {
	t.Helper()
	if c.Registry == nil {
		c.Registry = registry(t)
	}
	c.Reconciler.MinBackoff, c.Reconciler.MaxBackoff = time.Millisecond, 5*time.Millisecond
	d, err := intent.New(c)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { d.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	plane := reconciletest.NewPlane(c.Registry)
	link, unlink := context.WithCancel(context.Background())
	t.Cleanup(unlink)
	d.Attach(link, plane)
	return d, plane, unlink
}

func made(kind, name string, spec proto.Message) *object.Object {
	return &object.Object{Kind: kind, Name: name, Spec: spec}
}

func port(name string) *object.Object {
	return made("Port", name, &api.Port{Device: "net_null_" + name})
}

func acl(name string) *object.Object { return made("Acl", name, &api.Acl{}) }

func session(name, port string, vlan uint32, acl string) *object.Object {
	return made("Session", name, &api.Session{Access: &api.Access{Port: port, OuterVlan: vlan}, Policy: &api.Policy{AclUp: acl}})
}

func puts(objects ...*object.Object) []object.Change {
	var changes []object.Change
	for _, o := range objects {
		changes = append(changes, object.Put(o))
	}
	return changes
}

func removes(objects ...*object.Object) []object.Change {
	var changes []object.Change
	for _, o := range objects {
		changes = append(changes, object.Remove(o.Key()))
	}
	return changes
}

func as(owner string) intent.Source { return intent.Source{Owner: owner} }

func apply(t testing.TB, d *intent.Desired, owner string, changes []object.Change, options intent.Options) *intent.Outcome {
	t.Helper()
	out, err := d.Apply(t.Context(), as(owner), changes, options)
	must(t, err)
	return out
}

func TestAPlanShowsTheImpactOfEachOperation(t *testing.T) {
	otherMTU := made("Port", "p", &api.Port{Device: "net_null_p", Mtu: 1400})
	otherDevice := made("Port", "p", &api.Port{Device: "net_null_q"})
	promiscuous := made("Port", "p", &api.Port{Device: "net_null_p", Promiscuous: true})
	for _, c := range []struct {
		sentence string
		changes  []object.Change
		want     []string
		worst    intent.Impact
	}{
		{"what is new costs nothing", puts(session("s2", "p", 2, "")), []string{"create Session/s2: none"}, reconcile.NoImpact},
		{"what changes in place costs nothing", puts(promiscuous), []string{"update Port/p: none"}, reconcile.NoImpact},
		{"unless the device has to stop for it", puts(otherMTU), []string{"update Port/p: brief interruption"}, reconcile.BriefInterruption},
		{"nor does what a session is known by", puts(session("s", "p", 3, "a")), []string{"update Session/s: none"}, reconcile.NoImpact},
		{"a replacement interrupts", puts(otherDevice), []string{"delete Session/s: brief interruption", "delete Port/p: brief interruption",
			"create Port/p: none", "create Session/s: none"}, reconcile.BriefInterruption},
		{"and so do two that exchange what they are known by, one of them", puts(session("s", "p", 9, "a"), session("t", "p", 1, "a")),
			[]string{"delete Session/t: brief interruption", "update Session/s: none", "create Session/t: none"}, reconcile.BriefInterruption},
		{"what is taken out and has to wait is out", removes(acl("a")), []string{"delete Session/s: outage", "delete Acl/a: none"}, reconcile.Outage},
		{"what is deleted is gone", removes(session("s", "p", 1, "a")), []string{"delete Session/s: outage"}, reconcile.Outage},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			d, _, _ := running(t, intent.Config{})
			apply(t, d, "test", puts(port("p"), acl("a"), session("s", "p", 1, "a")), intent.Options{})
			if c.worst == reconcile.BriefInterruption && len(c.changes) == 2 {
				apply(t, d, "test", puts(session("t", "p", 9, "a")), intent.Options{})
			}
			plan, err := d.Plan(as("test"), c.changes, intent.Options{})
			must(t, err)
			var got []string
			for _, o := range plan.Operations {
				got = append(got, o.Action.String()+" "+o.Key.String()+": "+o.Impact.String())
			}
			if !slices.Equal(got, c.want) || plan.Impact != c.worst {
				t.Errorf("planned %q, at worst %s", got, plan.Impact)
			}
		})
	}
}

func TestAPlanShowsThatSessionsOfSubscribersEnd(t *testing.T) {
	profile := func(authentication ...string) *object.Object {
		return made("SubscriberProfile", "home", &api.SubscriberProfile{Authentication: authentication})
	}
	lines := func(outer ...string) *object.Object {
		return made("PppoeServer", "lines", &api.PppoeServer{Port: "p", OuterVlans: outer, Profile: "home"})
	}
	for _, c := range []struct {
		sentence string
		change   *object.Object
		want     intent.Impact
	}{
		{"lines move from RADIUS to the core", profile("core"), reconcile.BriefInterruption},
		{"another back end is asked first", profile("local", "radius"), reconcile.NoImpact},
		{"a server has more circuits", lines("100-110", "7"), reconcile.NoImpact},
		{"a server has a circuit less", lines("100-108"), reconcile.BriefInterruption},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			d, _, _ := running(t, intent.Config{})
			apply(t, d, "test", puts(port("p"), profile("radius"), lines("100-109")), intent.Options{})
			plan, err := d.Plan(as("test"), puts(c.change), intent.Options{})
			must(t, err)
			if len(plan.Steps) != 1 || plan.Steps[0].Impact != c.want || plan.Impact != c.want {
				t.Errorf("%+v", plan.Steps)
			}
			// It is applied as planned.
			apply(t, d, "test", puts(c.change), intent.Options{Plan: plan})
		})
	}
}

func TestAPlanNamesObjectsThatOnlyTheAgentFollows(t *testing.T) {
	d, _, _ := running(t, intent.Config{})
	user := func(name, password string) *object.Object {
		return made("LocalUser", name, &api.LocalUser{Username: name, Password: password, Ipv4Address: "100.64.7." + name})
	}
	pool := func(ranges ...string) *object.Object {
		return made("AddressPool", "home", &api.AddressPool{Ranges: ranges})
	}
	apply(t, d, "test", puts(user("1", "a"), user("2", "a"), pool("100.64.0.0/24")), intent.Options{})
	moved := user("1", "a")
	moved.Spec.(*api.LocalUser).Ipv4Address = "100.64.7.9"
	labelled := pool("100.64.0.0/25")
	labelled.Labels = map[string]string{"city": "bonn"}
	changes := append(puts(moved, labelled, user("3", "c"), acl("a")), removes(user("2", ""))...)
	plan, err := d.Plan(as("test"), changes, intent.Options{})
	must(t, err)
	var got []string
	for _, s := range plan.Steps {
		fields := ""
		for _, f := range s.Fields {
			fields += " " + f.Field
		}
		got = append(got, s.Step.String()+" "+s.Key.String()+fields)
	}
	slices.Sort(got)
	want := []string{"create Acl/a", "create LocalUser/3", "delete LocalUser/2", "update AddressPool/home ranges metadata.labels.city", "update LocalUser/1 ipv4Address"}
	if !slices.Equal(got, want) || len(plan.Operations) != 1 {
		t.Errorf("%q, %d operations", got, len(plan.Operations))
	}
	// The plan is carried out, and nothing remains to be done.
	apply(t, d, "test", changes, intent.Options{Plan: plan})
	if plan, err = d.Plan(as("test"), changes[:4], intent.Options{}); err != nil || len(plan.Steps) != 0 {
		t.Errorf("%v, error %v", plan.Steps, err)
	}
}

func TestAPlanIsCarriedOutExactlyOrNotAtAll(t *testing.T) {
	other := made("Port", "p", &api.Port{Device: "net_null_other"})
	for _, c := range []struct {
		sentence  string
		meanwhile []object.Change
		holds     bool
	}{
		{"nothing happened", nil, true},
		{"something else changed", puts(acl("b"), port("q")), true},
		{"what it changes was changed", puts(made("Port", "p", &api.Port{Device: "net_null_p", Promiscuous: true})), false},
		{"something would be replaced that was not there", puts(session("new", "p", 7, "")), false},
		{"what it creates is there", puts(session("late", "p", 9, "a")), false},
		{"what it needs has changed", puts(made("Acl", "a", &api.Acl{Otherwise: api.AclAction_PERMIT})), false},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			d, _, _ := running(t, intent.Config{})
			apply(t, d, "test", puts(port("p"), acl("a"), session("s", "p", 1, "a")), intent.Options{})
			changes := puts(other, session("late", "p", 9, "a"))
			plan, err := d.Plan(as("test"), changes, intent.Options{})
			must(t, err)
			// Only its result is kept.
			plan = &intent.Plan{Operations: plan.Operations, Steps: plan.Steps, Impact: plan.Impact, Basis: plan.Basis}
			apply(t, d, "test", c.meanwhile, intent.Options{})
			before := d.Revision()
			_, err = d.Apply(t.Context(), as("test"), changes, intent.Options{Plan: plan})
			var moved *intent.Moved
			switch {
			case c.holds && err != nil:
				t.Error(err)
			case !c.holds && (!errors.As(err, &moved) || len(moved.Objects) == 0):
				t.Errorf("error %v", err)
			case !c.holds && d.Revision() != before:
				t.Error("something was changed")
			}
		})
	}
}

func TestAnObjectIsReadyWhenAllThatItNeedsIsAndTheDataPlaneAnswers(t *testing.T) {
	d, plane, unlink := running(t, intent.Config{})
	s := session("s", "p", 1, "a")
	apply(t, d, "test", puts(port("p"), acl("a"), s), intent.Options{})
	conditions := func() string {
		st, _ := d.Get(s.Key())
		text := ""
		for _, c := range st.Conditions() {
			switch c.Status() {
			case "True":
				text += c.Type + " "
			case "False":
				text += "not " + c.Type + " (" + c.Reason + ": " + c.Message + ") "
			default:
				text += "unknown " + c.Type + " (" + c.Reason + ": " + c.Message + ") "
			}
		}
		return text
	}
	if got := conditions(); got != "Accepted Applied Ready " {
		t.Error(got)
	}
	plane.Lock()
	plane.Never[acl("a").Key()] = true
	plane.Unlock()
	apply(t, d, "test", puts(made("Acl", "a", &api.Acl{Otherwise: api.AclAction_PERMIT})), intent.Options{})
	if got := conditions(); got != "Accepted Applied not Ready (WaitsForObject: Acl/a is failed: Acl/a: no room) " {
		t.Error(got)
	}
	unlink()
	for !strings.HasPrefix(conditions(), "Accepted unknown Applied (NoDataplane: was applied; the data plane is away since ") {
		time.Sleep(time.Millisecond)
	}
	if got := conditions(); !strings.Contains(got, ") unknown Ready (NoDataplane: was applied; ") {
		t.Error(got)
	}
}

func TestAPlanOfOtherChangesOrWithAnotherResultIsRefused(t *testing.T) {
	other := made("Port", "p", &api.Port{Device: "net_null_other"})
	planned := puts(other, session("late", "p", 9, "a"), acl("a"), session("waits", "later", 1, ""))
	for _, c := range []struct {
		sentence string
		changes  []object.Change
		edit     func(p *intent.Plan)
	}{
		{"another value", append(puts(made("Port", "p", &api.Port{Device: "net_null_evil"})), planned[1:]...), nil},
		{"a value where nothing was to change", append(puts(other, session("late", "p", 9, "a"), in(acl("a"), "new", "label")), planned[3:]...), nil},
		{"a value that is there already", append(puts(port("p")), planned[1:]...), nil},
		{"one object more", append(puts(acl("more")), planned...), nil},
		{"one less", planned[1:], nil},
		{"said to cost less", planned, func(p *intent.Plan) { p.Operations[0].Impact = reconcile.NoImpact }},
		{"said to cost less as a whole", planned, func(p *intent.Plan) { p.Impact = reconcile.NoImpact }},
		{"said to wait for nothing", planned, func(p *intent.Plan) { p.Steps[len(p.Steps)-1].WaitsFor = "" }},
		{"said to change something else", planned, func(p *intent.Plan) { p.Steps[0].Fields = nil }},
		{"without a step", planned, func(p *intent.Plan) { p.Steps = p.Steps[1:] }},
		{"without digests", planned, func(p *intent.Plan) {
			for i := range p.Basis {
				p.Basis[i].Digest = ""
			}
		}},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			d, _, _ := running(t, intent.Config{})
			apply(t, d, "test", puts(port("p"), acl("a"), session("s", "p", 1, "a")), intent.Options{})
			plan, err := d.Plan(as("test"), planned, intent.Options{})
			must(t, err)
			if plan.Impact == reconcile.NoImpact || plan.Steps[len(plan.Steps)-1].WaitsFor == "" {
				t.Fatalf("planned %+v", plan.Steps)
			}
			before := d.Revision()
			if c.edit != nil {
				c.edit(plan)
			}
			_, err = d.Apply(t.Context(), as("test"), c.changes, intent.Options{Plan: plan})
			var moved *intent.Moved
			if !errors.As(err, &moved) || !moved.Unplanned || d.Revision() != before {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAnObjectIsNotReadyWithoutAnObjectThatNeverExisted(t *testing.T) {
	d, _, _ := running(t, intent.Config{})
	server := made("PppoeServer", "lines", &api.PppoeServer{Port: "acces", Profile: "home"})
	apply(t, d, "test", puts(server), intent.Options{})
	st, _ := d.Get(server.Key())
	c := st.Conditions()
	if ready := c[len(c)-1]; ready.Status() != "False" || ready.Message != "Port/acces does not exist" {
		t.Errorf("%s: %s", ready.Status(), ready.Message)
	}
}
