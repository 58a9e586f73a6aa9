// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"errors"
	"net/netip"
	"testing"

	"sluice.dev/sluice/agent/api"
)

// ofCore is the profile of lines whose sessions a 5G core gives.
func ofCore() *api.SubscriberProfile {
	return &api.SubscriberProfile{Authentication: []string{"core"}, Accounting: []string{"radius"}, Gateway: "100.64.0.1"}
}

// leasing is an Access of subscribers that renew their lease.
type leasing struct{ *fakeAccess }

func (leasing) Renews(protocol string) bool { return protocol == "dhcp4" }

func (w *world) tunnelled(id, user string, mac byte) Connection {
	c := w.connection(id, user, mac)
	c.Grant = Grant{Core: &api.Gtpu{LocalAddress: "192.0.2.1", LocalTeid: 1, RemoteAddress: "192.0.2.2", RemoteTeid: 2}}
	return c
}

func TestALineThatItsProfileMovesToTheCoreEndsAndIsAccountedFor(t *testing.T) {
	w := newWorld(t)
	w.setProfile("other", profile())
	w.Attach("pppoe", w.ppp)
	get(t, w.ppp.said) // restored
	got := w.connect(w.connection("1", "alice", 1))
	neighbour := w.connection("2", "bob", 2)
	neighbour.Profile = "other"
	w.connect(neighbour)
	w.plane.count(got.Session, &api.SessionCounters{UpPackets: 7, UpBytes: 700})
	// Another back end of the BNG's moves nothing.
	more := profile()
	more.Authentication = []string{"radius"}
	if n := w.ends("home", more); n != 0 {
		t.Errorf("%d sessions would end", n)
	}
	w.setProfile("home", more)
	if n := w.ends("home", ofCore()); n != 1 {
		t.Errorf("%d sessions would end", n)
	}
	w.setProfile("home", ofCore())
	if said := get(t, w.ppp.said); said != "terminate 1 "+AdminReset.String() {
		t.Error(said)
	}
	for range 2 {
		get(t, w.aaa.records) // the starts
	}
	if r := get(t, w.aaa.records); r.Kind != Stop || r.ID != "1" || r.UpPackets != 7 || r.Cause != AdminReset {
		t.Errorf("%+v", r)
	}
	w.nothing()
	if ids := w.matching(Match{Port: "access"}); len(ids) != 1 || ids[0] != "2" {
		t.Errorf("%q are up", ids)
	}
	// Back.
	if got := w.connect(w.tunnelled("3", "alice", 1)); got.err != nil {
		t.Fatal(got.err)
	}
	w.setProfile("home", profile())
	if said := get(t, w.ppp.said); said != "terminate 3 "+AdminReset.String() {
		t.Error(said)
	}
}

func TestTheProfileOfAGrantMovesNoLine(t *testing.T) {
	w := newWorld(t)
	w.setProfile("granted", ofCore())
	c := w.connection("1", "alice", 1)
	c.Grant.Profile, c.Grant.IPv4 = "granted", netip.MustParseAddr("100.64.7.7")
	if got := w.connect(c); got.err != nil {
		t.Fatal(got.err)
	}
	w.setProfile("granted", profile())
	w.setProfile("granted", ofCore())
	if ids := w.matching(Match{ID: "1"}); len(ids) != 1 {
		t.Error("it moved")
	}
}

func TestALineMovesByTheProfileThatItsServerNamesNow(t *testing.T) {
	w := newWorld(t)
	w.Attach("pppoe", w.ppp)
	get(t, w.ppp.said) // restored
	w.connect(w.connection("1", "alice", 1))
	// The profile comes after the server that names it.
	w.Serve("1", "core")
	if n := w.ends("core", ofCore()); n != 0 {
		t.Errorf("%d sessions end by a new profile", n)
	}
	w.setProfile("core", ofCore())
	if said := get(t, w.ppp.said); said != "terminate 1 "+AdminReset.String() {
		t.Error(said)
	}
	// And before it; the server's profile of before has no say any more.
	w.connect(w.connection("2", "bob", 2))
	w.setProfile("office", profile())
	w.Serve("2", "office")
	w.setProfile("home", ofCore())
	if ids := w.matching(Match{ID: "2"}); len(ids) != 1 {
		t.Error("it moved")
	}
	w.Serve("2", "home")
	if said := get(t, w.ppp.said); said != "terminate 2 "+AdminReset.String() {
		t.Error(said)
	}
	w.Serve("none", "home")
}

func TestASubscriberThatWasAuthenticatedBeforeItsLineMovedGetsNoSession(t *testing.T) {
	w := newWorld(t)
	c := w.tunnelled("1", "alice", 1)
	if got := w.connect(c); !errors.Is(got.err, ErrMoved) {
		t.Errorf("%+v", got)
	}
	w.setProfile("home", ofCore())
	if got := w.connect(w.connection("2", "alice", 1)); !errors.Is(got.err, ErrMoved) {
		t.Errorf("%+v", got)
	}
	if n := w.left(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestASessionWithALeaseGoesOnUntilItsSubscriberRenewsIt(t *testing.T) {
	w := newWorld(t)
	w.Attach("dhcp4", leasing{w.ppp})
	w.Attach("first-packet", leasing{w.ppp})
	for range 2 {
		get(t, w.ppp.said) // restored
	}
	leased, static := w.connection("1", "alice", 1), w.connection("2", "bob", 2)
	leased.Protocol, static.Protocol = "dhcp4", "first-packet"
	got := w.connect(leased)
	w.connect(static)
	if w.Moves("1", "home") {
		t.Error("it moves by the profile of before")
	}
	w.setProfile("other", ofCore())
	if !w.Moves("1", "other") {
		t.Error("it does not move by the profile of another server")
	}
	w.setProfile("home", ofCore())
	if said := get(t, w.ppp.said); said != "terminate 2 "+AdminReset.String() {
		t.Error(said)
	}
	if !w.Moves("1", "home") || w.plane.session(got.Session) == nil {
		t.Error("it does not move, or was ended at once")
	}
	w.setProfile("home", profile())
	if w.Moves("1", "home") {
		t.Error("it moves although its profile is as before")
	}
}

func TestALineWhoseProfileChangedWhileTheAgentWasAwayMovesWhenItIsBack(t *testing.T) {
	w := newWorld(t)
	w.connect(w.tunnelledBy("core"))
	w.manager.close()
	w.start()
	w.Attach("pppoe", w.ppp)
	if said := get(t, w.ppp.said); said != "restore 1 100.64.0.2 of 1" {
		t.Error(said)
	}
	get(t, w.ppp.said) // restored
	if said := get(t, w.ppp.said); said != "terminate 1 "+AdminReset.String() {
		t.Error(said)
	}
}

// tunnelledBy is a connection by a profile of before the agent's restart.
func (w *world) tunnelledBy(backEnd string) Connection {
	before := profile()
	before.Authentication = []string{backEnd}
	w.setProfile("home", before)
	return w.tunnelled("1", "alice", 1)
}
