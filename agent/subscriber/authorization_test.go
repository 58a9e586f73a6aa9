// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"errors"
	"net/netip"
	"testing"

	"sluice.dev/sluice/agent/api"
)

// noting is a back end that records the user names of requests.
type noting struct {
	answer Answer
	asked  []string
}

func (b *noting) Authenticate(r Request, done func(Answer)) {
	b.asked = append(b.asked, r.Username)
	done(b.answer)
}

func TestASubscriberNeedsTheBackEndsOfItsAuthorizationBesides(t *testing.T) {
	w := newWorld(t)
	w.setProfile("line", &api.SubscriberProfile{Authentication: []string{"radius"}, Authorization: []string{"core"}})
	ask := func() Answer {
		answers := make(chan Answer, 1)
		w.Authenticate(Request{Profile: "line", Credentials: Credentials{Username: "alice", Password: []byte("x")}}, func(a Answer) { answers <- a })
		return <-answers
	}
	address := netip.MustParseAddr("100.64.9.9")
	radius := &noting{answer: Answer{Message: "welcome", Grant: Grant{Username: "line-7", RateUp: Rate{BitsPerSecond: 1}, MSS: 1400}}}
	core := &noting{answer: Answer{Grant: Grant{IPv4: address, RateUp: Rate{BitsPerSecond: 2}}}}
	w.Use("radius", radius, nil)
	w.Use("core", core, nil)
	a := ask()
	if a.Reject != nil || a.Grant.IPv4 != address || a.Grant.RateUp.BitsPerSecond != 2 || a.Grant.MSS != 1400 || a.Message != "welcome" || a.Grant.Username != "line-7" {
		t.Errorf("%+v", a)
	}
	if len(core.asked) != 1 || core.asked[0] != "line-7" {
		t.Error(core.asked)
	}
	core.answer = Answer{Reject: ErrUnavailable}
	if a := ask(); !errors.Is(a.Reject, ErrRejected) {
		t.Errorf("%+v", a)
	}
	radius.answer = Answer{Reject: ErrRejected}
	if a := ask(); !errors.Is(a.Reject, ErrRejected) || len(core.asked) != 2 {
		t.Errorf("%+v %v", a, core.asked)
	}
}

func TestAGrantTellsWhoAcceptedTheSubscriber(t *testing.T) {
	w := newWorld(t)
	w.Use("radius", &noting{answer: Answer{Grant: Grant{MSS: 1400}}}, nil)
	w.Use("away", &noting{answer: Answer{Reject: ErrUnavailable}}, nil)
	w.setUser("alice", &api.LocalUser{Username: "alice", Password: "x"})
	for _, c := range []struct {
		authentication, authorization []string
		local                         bool
	}{
		{[]string{"radius"}, nil, false}, {[]string{"local"}, nil, true}, {[]string{"none"}, nil, true}, {[]string{"away", "none"}, nil, true},
		{[]string{"local"}, []string{"radius"}, true}, {[]string{"radius"}, []string{"local"}, false},
	} {
		w.setProfile("line", &api.SubscriberProfile{Authentication: c.authentication, Authorization: c.authorization})
		answers := make(chan Answer, 1)
		w.Authenticate(Request{Profile: "line", Credentials: Credentials{Username: "alice", Password: []byte("x")}}, func(a Answer) { answers <- a })
		if a := get(t, answers); a.Reject != nil || a.Grant.Local != c.local || !a.Grant.Proved {
			t.Errorf("%q and %q: %+v", c.authentication, c.authorization, a)
		}
	}
	for _, password := range []string{"", "of the line"} {
		w.setProfile("line", &api.SubscriberProfile{Authentication: []string{"radius"}, Password: password})
		answers := make(chan Answer, 1)
		w.Authenticate(Request{Profile: "line"}, func(a Answer) { answers <- a })
		if a := get(t, answers); a.Reject != nil || a.Grant.Proved != (password != "") {
			t.Errorf("the profile's password is %q: %+v", password, a)
		}
	}
}

// A host chooses its user name: the name of another line gives it nothing of that line at the core.
func TestTheCoreHearsTheLineUnlessAnotherBackEndKnowsTheName(t *testing.T) {
	w := newWorld(t)
	back := &noting{answer: Answer{}}
	w.Use("core", back, nil)
	w.setUser("alice", &api.LocalUser{Username: "alice", Password: "x"})
	for _, c := range []struct {
		authentication, authorization []string
		template, want                string
	}{
		{[]string{"core"}, nil, "{port}:{outer}", "access:100"}, {[]string{"none"}, []string{"core"}, "{port}:{outer}", "access:100"},
		{[]string{"local"}, []string{"core"}, "{port}:{outer}", "alice"}, {[]string{"core"}, nil, "", "alice"},
	} {
		w.setProfile("line", &api.SubscriberProfile{Authentication: c.authentication, Authorization: c.authorization, Username: c.template})
		answers := make(chan Answer, 1)
		back.asked = nil
		w.Authenticate(Request{Profile: "line", Line: Line{Circuit: Circuit{Port: "access", OuterVLAN: 100}}, Credentials: Credentials{Username: "alice", Password: []byte("x")}},
			func(a Answer) { answers <- a })
		a := get(t, answers)
		if len(back.asked) != 1 || back.asked[0] != c.want || a.Grant.Username != c.want {
			t.Errorf("%q and %q: %+v, %+v", c.authentication, c.authorization, back.asked, a)
		}
	}
}
