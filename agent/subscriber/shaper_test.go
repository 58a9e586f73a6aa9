// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/object"
)

// shapedWorld has sessions with the QosProfile "home", a Meter and a rate of the SubscriberProfile.
func shapedWorld(t *testing.T) *world {
	w := newWorld(t)
	p := profile()
	p.Policy.QosProfile, p.Policy.QosGroup, p.RateDown = "home", "olt", 12e6
	w.setProfile("home", p)
	w.setQosProfile("home", homeQueues())
	return w
}

func homeQueues() *api.QosProfile {
	return &api.QosProfile{CommittedRate: 20e6, PeakRate: 30e6, Weight: 7, Classes: []*api.QosClass{{Name: "data"}, {Name: "voice", PeakRate: 1e6}}}
}

func (w *world) shaped(name string) *api.QosProfile {
	w.plane.mu.Lock()
	defer w.plane.mu.Unlock()
	o := w.plane.has[object.Key{Kind: "QosProfile", Name: name}]
	if o == nil {
		w.t.Fatalf("there is no QosProfile %s", name)
	}
	return o.Spec.(*api.QosProfile)
}

// queues are the QosProfile and the Meter to the subscriber.
func (w *world) queues(session string) [2]string {
	p := w.plane.session(session).Policy
	return [2]string{p.QosProfile, p.MeterDown}
}

func (w *world) change(id string, g Grant) {
	w.t.Helper()
	changed := make(chan error, 1)
	w.Change([]Match{{ID: id}}, g, func(_ int, err error) { changed <- err })
	if err := get(w.t, changed); err != nil {
		w.t.Fatal(err)
	}
}

func TestAGrantedRateIsTheShapersWhereASessionHasOneAndElseAMeters(t *testing.T) {
	w := shapedWorld(t)
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	rate := func(bits uint64) Rate { return Rate{BitsPerSecond: bits} }
	// A core gives some of its sessions.
	of := proto.CloneOf(w.profiles["home"])
	of.Authentication = append(of.Authentication, "core")
	w.setProfile("home", of)
	for name, c := range map[string]struct {
		grant Grant
		want  [2]string
		peak  uint64
	}{
		"no grant":      {Grant{}, [2]string{"home", "rate-12000000-150000"}, 0},
		"rate":          {Grant{RateDown: rate(50e6)}, [2]string{"home-rate-50000000", ""}, 50e6},
		"less":          {Grant{RateDown: rate(10e6)}, [2]string{"home-rate-10000000", ""}, 10e6},
		"peak rate":     {Grant{RateDown: Rate{BitsPerSecond: 50e6, PeakBitsPerSecond: 60e6, BurstBytes: 1e6}}, [2]string{"home-rate-60000000", ""}, 60e6},
		"up alone":      {Grant{RateUp: rate(5e6)}, [2]string{"home", "rate-12000000-150000"}, 0},
		"meter":         {Grant{RateDown: rate(50e6), MeterDown: "gold"}, [2]string{"home", "gold"}, 0},
		"no limit":      {Grant{MeterDown: Clear}, [2]string{"home", ""}, 0},
		"no QosProfile": {Grant{RateDown: rate(50e6), QosProfile: Clear}, [2]string{"", "rate-50000000-625000"}, 0},
		"a core's":      {Grant{RateDown: rate(50e6), Core: &api.Gtpu{LocalTeid: 1}}, [2]string{"home", "rate-50000000-625000"}, 0},
	} {
		conn := w.connection("1", name, 1)
		conn.Grant = c.grant
		got := w.connect(conn)
		if q := w.queues(got.Session); got.err != nil || q != c.want {
			t.Errorf("%s: %v, %v", name, q, got.err)
		}
		if c.peak != 0 {
			q := w.shaped(c.want[0])
			if q.PeakRate != c.peak || q.CommittedRate != min(20e6, c.peak) || q.Weight != 7 || len(q.Classes) != 2 || q.Classes[1].PeakRate != 1e6 {
				t.Errorf("%s: %v", name, q)
			}
			if errs := registry.Check(&object.Object{Kind: "QosProfile", Name: c.want[0], Spec: q}); len(errs) > 0 {
				t.Errorf("%s: %v", name, errs)
			}
		}
		w.stop("1")
		if left := w.plane.names("QosProfile"); len(left) != 0 || len(w.shapers) != 0 {
			t.Errorf("%s: left %v", name, left)
		}
	}
}

func TestACoAChangesTheShaperAndSessionsOfOneRateShareIt(t *testing.T) {
	w := shapedWorld(t)
	w.setQosProfile("gold", &api.QosProfile{PeakRate: 100e6})
	for i, id := range []string{"1", "2"} {
		c := w.connection(id, id, byte(i+1))
		c.Grant.RateDown = Rate{BitsPerSecond: 50e6}
		if q := w.queues(w.connect(c).Session); q[0] != "home-rate-50000000" {
			t.Fatal(q)
		}
	}
	w.change("1", Grant{RateDown: Rate{BitsPerSecond: 70e6}})
	if all := w.plane.names("QosProfile"); w.queues("pppoe-1")[0] != "home-rate-70000000" || strings.Join(all, " ") != "home-rate-50000000 home-rate-70000000" {
		t.Error(w.queues("pppoe-1"), all)
	}
	// The rate stays with another profile, until a rate of 0 gives the profile's back.
	w.change("1", Grant{QosProfile: "gold"})
	if q := w.queues("pppoe-1"); q != [2]string{"gold-rate-70000000", ""} {
		t.Error(q)
	}
	w.change("1", Grant{MeterDown: Clear})
	if q := w.queues("pppoe-1"); q != [2]string{"gold", ""} {
		t.Error(q)
	}
	w.change("2", Grant{QosProfile: Clear})
	if q := w.queues("pppoe-2"); q != [2]string{"", "rate-50000000-625000"} {
		t.Error(q)
	}
	if all := w.plane.names("QosProfile"); len(all) != 0 {
		t.Error(all)
	}
}

func TestTheStateOfASubscriberHasItsRatesAndTimeouts(t *testing.T) {
	w := shapedWorld(t)
	p := profile()
	p.Policy.QosProfile, p.Policy.QosGroup, p.RateUp, p.IdleTimeout, p.InterimInterval = "home", "olt", 5e6, 600e9, 300e9
	w.setProfile("home", p)
	c := w.connection("1", "alice", 1)
	c.Grant.RateDown, c.Grant.SessionTimeout = Rate{BitsPerSecond: 50e6, PeakBitsPerSecond: 60e6}, time.Hour
	w.connect(c)
	found, err := queryServer{manager: w.manager}.list(t.Context(), &api.SubscribersQuery{})
	if err != nil || len(found.Subscribers) != 1 {
		t.Fatal(found, err)
	}
	s := found.Subscribers[0]
	if s.RateUp != 5e6 || s.RateDown != 50e6 || s.PeakRateDown != 60e6 || s.MeterUp != "rate-5000000-62500" || s.MeterDown != "" || s.QosProfile != "home-rate-60000000" {
		t.Error(s)
	}
	if s.SessionTimeout != "1h0m0s" || s.IdleTimeout != "10m0s" || s.InterimInterval != "5m0s" || len(s.Accounting) != 1 {
		t.Error(s)
	}
}

func TestAShaperFollowsItsQosProfileAndComesBackWithARestart(t *testing.T) {
	w := shapedWorld(t)
	c := w.connection("1", "alice", 1)
	c.Grant.RateDown = Rate{BitsPerSecond: 50e6}
	session := w.connect(c).Session
	changed := homeQueues()
	changed.Classes = changed.Classes[:1]
	w.setQosProfile("home", changed)
	if q := w.shaped("home-rate-50000000"); len(q.Classes) != 1 || q.PeakRate != 50e6 {
		t.Error(q)
	}
	// The data plane names what is missing.
	w.setQosProfile("home", nil)
	if q := w.queues(session); q != [2]string{"home", ""} {
		t.Error(q)
	}
	w.setQosProfile("home", homeQueues())
	if q := w.queues(session); q != [2]string{"home-rate-50000000", ""} {
		t.Error(q)
	}
	w.manager.close()
	w.start()
	p := profile()
	p.Policy.QosProfile, p.Policy.QosGroup = "home", "olt"
	w.setProfile("home", p)
	w.setQosProfile("home", homeQueues())
	if q := w.queues(session); q != [2]string{"home-rate-50000000", ""} {
		t.Error(q)
	}
}

func TestAShaperHasANameWhateverItsBaseIs(t *testing.T) {
	for _, base := range []string{"home", strings.Repeat("x", 253)} {
		name := shaper{base, 8000}.name()
		if err := object.CheckName(object.Key{Kind: "QosProfile", Name: name}); err != nil {
			t.Error(err)
		}
	}
}
