// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"errors"
	"testing"

	"sluice.dev/sluice/agent/api"
)

func TestAGrantNamesAPortalOrAURLOfItsHost(t *testing.T) {
	w := newWorld(t)
	w.setPortal("welcome", &api.Portal{Url: "http://portal.example:8080/"})
	w.setPortal("late", &api.Portal{Url: "https://late.example/pay?m={mac}"})
	for i, c := range []struct {
		redirect, portal, url string
	}{
		{"", "", ""},
		{Clear, "", ""},
		{"welcome", "welcome", ""},
		{"http://LATE.example/other", "late", "http://LATE.example/other"},
		{"http://portal.example:8080/?x", "welcome", "http://portal.example:8080/?x"},
	} {
		connection := w.connection(string(rune('a'+i)), "alice", byte(i+1))
		connection.Grant.Redirect = c.redirect
		l := w.connect(connection)
		if got := w.plane.session(l.Session).Policy.Portal; got != c.portal || l.Portal != c.portal {
			t.Errorf("%q: Session %q, lease %q", c.redirect, got, l.Portal)
		}
		if g := w.Garden(l.Session); g.Portal != c.portal || g.URL != c.url || c.portal != "" && g.MAC == "" {
			t.Errorf("%q: %+v", c.redirect, g)
		}
	}
}

func TestARedirectionWithoutAPortalIsRefused(t *testing.T) {
	w := newWorld(t)
	w.setPortal("welcome", &api.Portal{Url: "http://portal.example/"})
	for _, redirect := range []string{"nothing", "http://other.example/", "http://portal.example:81/"} {
		c := w.connection("1", "alice", 1)
		c.Grant.Redirect = redirect
		failed := make(chan error, 1)
		w.Connect(c, func(_ Lease, err error) { failed <- err })
		if err := get(t, failed); !errors.Is(err, ErrNoPortal) {
			t.Errorf("%q: %v", redirect, err)
		}
	}
	l := w.connect(w.connection("1", "alice", 1))
	changed := make(chan error, 1)
	change := func(redirect string) error {
		w.Change([]Match{{Session: l.Session}}, Grant{Redirect: redirect}, func(_ int, err error) { changed <- err })
		return get(t, changed)
	}
	if err := change("http://other.example/"); !errors.Is(err, ErrNoPortal) {
		t.Error(err)
	}
	if err := change("http://portal.example/in"); err != nil || w.plane.session(l.Session).Policy.Portal != "welcome" {
		t.Error(err)
	}
	// Its Portal is another one now, and then a missing one: the Session waits.
	w.setPortal("another", &api.Portal{Url: "http://portal.example/"})
	if got := w.plane.session(l.Session).Policy.Portal; got != "another" {
		t.Error(got)
	}
	w.setPortal("another", nil)
	w.setPortal("welcome", nil)
	if got := w.plane.session(l.Session).Policy.Portal; got == "" {
		t.Error("the subscriber is let out of the garden")
	}
	if err := change(Clear); err != nil || w.plane.session(l.Session).Policy.Portal != "" {
		t.Error(err)
	}
}
