// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
)

func TestGuestsAndSubscribersShareOneAllocator(t *testing.T) {
	w := newWorld(t)
	address := func(text string) netip.Addr { return netip.MustParseAddr(text) }
	var given []netip.Addr
	take := func(request GuestRequest) GuestAddress {
		t.Helper()
		got, err := w.Take(request)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(given, got.Address) {
			t.Errorf("%s is given twice", got.Address)
		}
		given = append(given, got.Address)
		return got
	}
	first := take(GuestRequest{Holder: "ike/1", User: "bob", Pools: []string{"home"}, IPv4: true, Asked: address("100.64.0.3")})
	if first.Address != address("100.64.0.3") || !slices.Equal(first.DNS, []netip.Addr{address("192.0.2.53")}) {
		t.Errorf("bob gets %+v", first)
	}
	if six := take(GuestRequest{Holder: "ike/1", User: "bob", Pools: []string{"home", "hosts"}}); six.Address != address("2001:db8:2::1") {
		t.Errorf("bob gets %+v", six)
	}
	for i, c := range []Connection{w.connection("1", "alice", 1), w.connection("2", "carol", 2)} {
		got := w.connect(c)
		if got.err != nil || slices.Contains(given, got.IPv4) {
			t.Fatalf("subscriber %d: %+v", i, got)
		}
		given = append(given, got.IPv4)
		get(t, w.aaa.records)
	}
	// A guest is not found as a session, and cannot be ended.
	if ids := w.matching(Match{IPv4: first.Address}); len(ids) != 0 {
		t.Errorf("the address of a guest is that of sessions %v", ids)
	}
	// 100.64.0.0/29 without its gateway has five addresses; "more" has two.
	for holder := range 4 {
		take(GuestRequest{Holder: string(rune('a' + holder)), Pools: []string{"home"}, IPv4: true})
	}
	if _, err := w.Take(GuestRequest{Holder: "late", Pools: []string{"home"}, IPv4: true}); !errors.Is(err, ErrExhausted) {
		t.Errorf("a guest too many: %v", err)
	}
	if _, err := w.Take(GuestRequest{Holder: "fixed", Pools: []string{"home"}, IPv4: true, Fixed: given[2]}); !errors.Is(err, ErrAddressInUse) {
		t.Errorf("an address of a subscriber: %v", err)
	}
	w.Release("ike/1")
	if got, err := w.Take(GuestRequest{Holder: "ike/2", User: "bob", Pools: []string{"home"}, IPv4: true}); err != nil || got.Address != first.Address {
		t.Errorf("bob comes back and gets %+v (%v)", got, err)
	}
	// A new agent restores guests after the subscribers of its log.
	w.start()
	lost := w.Retake("ike/2", "", []netip.Addr{first.Address})
	if other := w.Retake("ike/3", "", []netip.Addr{first.Address}); len(lost) != 0 || len(other) != 1 {
		t.Errorf("lost %v and %v", lost, other)
	}
	if _, err := w.Take(GuestRequest{Holder: "fixed", Pools: []string{"home"}, IPv4: true, Fixed: first.Address}); !errors.Is(err, ErrAddressInUse) {
		t.Errorf("an address of a guest: %v", err)
	}
	w.Release("ike/2")
	if len(w.guests) != 0 {
		t.Errorf("%d guests", len(w.guests))
	}
}
