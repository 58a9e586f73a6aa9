// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"net/netip"
	"testing"

	"sluice.dev/sluice/agent/api"
)

// user takes addresses of a pool as the manager does.
type user struct {
	t     *testing.T
	pool  *pool
	taken map[netip.Prefix]bool
}

func poolOf(t *testing.T, spec *api.AddressPool) *user {
	return &user{t, newPool("home", spec), map[netip.Prefix]bool{}}
}

func (u *user) take(subscriber uint64) string {
	a, ok := u.pool.take(subscriber, func(p netip.Prefix) bool { return u.taken[p] })
	if !ok {
		return ""
	}
	p := u.pool.prefix(a)
	if u.taken[p] {
		u.t.Fatalf("%s is given twice", p)
	}
	u.taken[p] = true
	return p.String()
}

func (u *user) free(subscriber uint64, written string) {
	p := netip.MustParsePrefix(written)
	delete(u.taken, p)
	u.pool.free(subscriber, p.Addr())
}

func TestAPoolGivesEachOfItsAddressesOnce(t *testing.T) {
	for _, c := range []struct {
		sentence string
		spec     *api.AddressPool
		want     []string
	}{
		{"of a network not the first and the last", &api.AddressPool{Ranges: []string{"192.0.2.0/29"}, Gateway: "192.0.2.1", Excluded: []string{"192.0.2.4"}},
			[]string{"192.0.2.2/32", "192.0.2.3/32", "192.0.2.5/32", "192.0.2.6/32"}},
		{"a range as a whole", &api.AddressPool{Ranges: []string{"192.0.2.254-192.0.3.0", "192.0.2.9"}},
			[]string{"192.0.2.9/32", "192.0.2.254/32", "192.0.2.255/32", "192.0.3.0/32"}},
		{"the last addresses there are", &api.AddressPool{Ranges: []string{"223.255.255.254/31"}}, []string{"223.255.255.254/32", "223.255.255.255/32"}},
		{"IPv6 without the routers' address", &api.AddressPool{Ranges: []string{"2001:db8::/126"}}, []string{"2001:db8::1/128", "2001:db8::2/128", "2001:db8::3/128"}},
		{"prefixes", &api.AddressPool{Ranges: []string{"2001:db8::/54"}, PrefixLength: 56, Excluded: []string{"2001:db8:0:100::/64"}},
			[]string{"2001:db8::/56", "2001:db8:0:200::/56", "2001:db8:0:300::/56"}},
	} {
		u := poolOf(t, c.spec)
		for i, want := range c.want {
			if got := u.take(uint64(i)); got != want {
				t.Errorf("%s: %q, not %q", c.sentence, got, want)
			}
		}
		if got := u.take(99); got != "" || u.pool.exhausted != 1 || u.pool.size != uint64(len(c.want)) {
			t.Errorf("%s: %q of %d, exhausted %d times", c.sentence, got, u.pool.size, u.pool.exhausted)
		}
	}
}

func TestASubscriberGetsTheSameAddressAgainWhileItIsFree(t *testing.T) {
	u := poolOf(t, &api.AddressPool{Ranges: []string{"192.0.2.1-192.0.2.3"}})
	first, second := u.take(1), u.take(2)
	u.free(1, first)
	if got := u.take(3); got == first {
		t.Errorf("another subscriber gets %s while a new address is there", got)
	}
	if got := u.take(1); got != first {
		t.Errorf("%s, not %s", got, first)
	}
	// Without new ones, the address that was free for the longest time goes first.
	u.free(2, second)
	u.free(1, first)
	if got := u.take(4); got != second {
		t.Errorf("%s, not %s", got, second)
	}
	if got := u.take(2); got != first {
		t.Errorf("%s, not %s", got, first)
	}
	if u.pool.used != 3 {
		t.Errorf("%d are used", u.pool.used)
	}
}

func TestAPoolThatChangesKeepsWhatIsTaken(t *testing.T) {
	u := poolOf(t, &api.AddressPool{Ranges: []string{"192.0.2.1-192.0.2.2"}})
	first, second := u.take(1), u.take(2)
	u.pool.configure(&api.AddressPool{Ranges: []string{"192.0.2.2-192.0.2.4"}})
	if third, fourth := u.take(3), u.take(4); third != "192.0.2.3/32" || fourth != "192.0.2.4/32" {
		t.Errorf("%s, %s", third, fourth)
	}
	if got := u.take(5); got != "" {
		t.Errorf("%s is given", got)
	}
	// An address that is not in the pool any more is free again.
	u.free(1, first)
	if got := u.take(1); got != "" {
		t.Errorf("%s is given", got)
	}
	u.free(2, second)
	if got := u.take(1); got != second {
		t.Errorf("%s, not %s", got, second)
	}
}

func TestALargePoolTakesNoMemoryForWhatItDoesNotGive(t *testing.T) {
	for _, spec := range []*api.AddressPool{{Ranges: []string{"10.0.0.0/8"}}, {Ranges: []string{"2001:db8::/32"}, PrefixLength: 127}} {
		u := poolOf(t, spec)
		for i := range uint64(1000) {
			for range 100 { // comes and goes
				u.free(i, u.take(i))
			}
		}
		if n := len(u.pool.queue); n > 4096 {
			t.Errorf("%d are remembered of 1000 subscribers", n)
		}
	}
}

func BenchmarkAnAddress(b *testing.B) {
	p := newPool("home", &api.AddressPool{Ranges: []string{"10.0.0.0/8"}})
	taken := map[netip.Prefix]bool{}
	is := func(p netip.Prefix) bool { return taken[p] }
	for i := range b.N {
		a, _ := p.take(uint64(i), is)
		if i%2 == 0 {
			p.free(uint64(i), a)
		} else {
			taken[p.prefix(a)] = true
		}
	}
}
