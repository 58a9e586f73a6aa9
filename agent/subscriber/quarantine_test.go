// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"errors"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
)

func TestADeclinedAddressIsGivenToNobodyForAWhile(t *testing.T) {
	w := newWorld(t)
	w.setPool("home", &api.AddressPool{Ranges: []string{"100.64.0.1-100.64.0.8"}})
	of := func(id string, mac byte) connected {
		c := w.connection(id, "", mac)
		c.Protocol = "dhcp4"
		return w.connect(c)
	}
	first := of("1", 1)
	ended := func(id string, cause Cause) {
		t.Helper()
		w.Disconnect(id, cause)
		for r := get(t, w.aaa.records); r.Kind != Stop; r = get(t, w.aaa.records) {
		}
		done := make(chan bool, 1)
		w.mu.Lock()
		w.later(func() { done <- true })
		w.mu.Unlock()
		get(t, done)
	}
	ended("1", UserError)
	events := w.poolEvents(w.now())
	if len(events) != 1 || events[0].State != "declined" || events[0].Name != "home" || !strings.Contains(events[0].Text, first.IPv4.String()) || len(w.poolEvents(w.now())) != 0 {
		t.Errorf("%+v", events)
	}
	// Seven of eight are left.
	for number := range byte(7) {
		if got := of(string('a'+number), 10+number); got.err != nil || got.IPv4 == first.IPv4 {
			t.Errorf("%d: %+v", number, got)
		}
	}
	w.setProfile("home", &api.SubscriberProfile{Authentication: []string{"local"}, Ipv4Pools: []string{"home"}})
	if got := of("x", 20); !errors.Is(got.err, ErrExhausted) {
		t.Errorf("%+v", got)
	}
	w.setClock(began.Add(quarantineTime))
	w.poolEvents(w.now())
	if got := of("y", 21); got.err != nil || got.IPv4 != first.IPv4 {
		t.Errorf("%+v", got)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.quarantine; len(q.queue)+len(q.has)+len(q.of)+len(q.ofPool) != 0 {
		t.Errorf("%+v", q)
	}
}

func TestAHostThatDeclinesAllDoesNotEmptyThePool(t *testing.T) {
	w := newWorld(t)
	w.setPool("home", &api.AddressPool{Ranges: []string{"100.64.0.1-100.64.0.40"}})
	c := w.connection("1", "", 1)
	c.Protocol = "dhcp4"
	w.connect(c)
	done := make(chan connected, 1)
	for range 100 {
		w.Extend("1", func(c *Connection) { c.Declined.IPv4 = true }, func(l Lease, err error) { done <- connected{l, err} })
		if got := get(t, done); got.err != nil || !got.IPv4.IsValid() {
			t.Fatalf("%+v", got)
		}
	}
	if len(w.quarantine.queue) != quarantineOfSubscriber || len(w.poolEvents(w.now())) != declinesReported {
		t.Errorf("%+v", w.quarantine)
	}
}

// Acct-Terminate-Cause of a Disconnect-Request is what the accounting says, and no more.
func TestACauseThatAServerNamesDeclinesNoAddress(t *testing.T) {
	w := newWorld(t)
	c := w.connection("1", "alice", 1)
	c.Protocol = "dhcp4"
	first := w.connect(c)
	ended := make(chan error, 1)
	w.Terminate([]Match{{ID: "1"}}, UserError, "", func(_ int, err error) { ended <- err })
	if err := get(t, ended); err != nil {
		t.Fatal(err)
	}
	// The access protocol follows, as it does for a DHCPDECLINE.
	w.Disconnect("1", UserError)
	r := get(t, w.aaa.records)
	for r.Kind != Stop {
		r = get(t, w.aaa.records)
	}
	c.ID = "2"
	got := w.connect(c)
	if events := w.poolEvents(w.now()); r.Cause != UserError || len(events) != 0 || got.IPv4 != first.IPv4 {
		t.Errorf("%v, %+v, %v", r.Cause, events, got)
	}
}
