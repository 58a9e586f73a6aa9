// SPDX-License-Identifier: Apache-2.0

package ipoe

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dhcp"
)

func TestLeasesAreShown(t *testing.T) {
	spec := server4()
	spec.ClientsPerCircuit = 9
	l := newLine(t, spec)
	query := func(q *api.IpoeLeasesQuery) []*api.IpoeLease {
		w := leasesQuery{IpoeLeasesQuery: q}
		if q.Address != "" {
			w.address = netip.MustParseAddr(q.Address)
		}
		return l.leases(&w, l.now).GetLeases()
	}
	l.binds(1)
	l.asks(2, dhcpv4.MessageTypeDiscover, information("1/2"))
	l.reject = errors.New("no")
	l.asks(3, dhcpv4.MessageTypeDiscover)
	l.reject, l.silent = nil, true
	l.asks(4, dhcpv4.MessageTypeDiscover)
	l.now = l.now.Add(10 * time.Second)
	all := query(&api.IpoeLeasesQuery{})
	if len(all) != 4 {
		t.Fatalf("%v", all)
	}
	for i, state := range []string{"leased", "offered", "refused", "waiting"} {
		if all[i].State != state || all[i].Server != "homes" || all[i].Circuit != "access:100.7" || all[i].Mac != (dhcp.MAC{2, 1, 0, 0, 0, byte(1 + i)}).String() {
			t.Errorf("%v, not %s", all[i], state)
		}
	}
	if a := all[0]; a.Ipv4Address != offered.String() || a.Ipv4Left != "9m50s" || a.Ipv4Ends != began.Add(600*time.Second).UnixNano() || a.Session != "session-1" || a.Ipv6Left != "" {
		t.Errorf("%v", a)
	}
	if a := all[1]; a.CircuitId != "1/2" || a.Ipv4Left != "20s" {
		t.Errorf("%v", a)
	}
	if a := all[2]; a.Ipv4Address != "" || a.Session != "" {
		t.Errorf("%v", a)
	}
	for _, q := range []*api.IpoeLeasesQuery{{State: "offered"}, {Limit: 1}} {
		if got := query(q); len(got) != 1 {
			t.Errorf("%v: %v", q, got)
		}
	}
	for _, q := range []*api.IpoeLeasesQuery{{Circuit: "access"}, {Circuit: "access:100"}, {Circuit: "access:100.7"}} {
		if got := query(q); len(got) != 4 {
			t.Errorf("%v: %d", q, len(got))
		}
	}
	for _, q := range []*api.IpoeLeasesQuery{{Circuit: "access:10"}, {Server: "other"}, {Circuit: "access:100.8"}, {Address: host.String()}} {
		if got := query(q); len(got) != 0 {
			t.Errorf("%v: %v", q, got)
		}
	}
	if w := (leasesQuery{IpoeLeasesQuery: &api.IpoeLeasesQuery{Limit: 4}}); l.leases(&w, l.now).NextPage != "" {
		t.Error("a page behind the last one")
	}
	// Page by page.
	seen, page := 0, ""
	for {
		w := leasesQuery{IpoeLeasesQuery: &api.IpoeLeasesQuery{Limit: 1, Page: page}}
		answer := l.leases(&w, l.now)
		seen += len(answer.Leases)
		if page = answer.NextPage; page == "" {
			break
		}
	}
	if seen != 4 {
		t.Errorf("%d leases by pages", seen)
	}
	l.silent = false
	l.ask6(message6Of(t, dhcpv6.MessageTypeRequest, both, toUs), client6)
	if got := query(&api.IpoeLeasesQuery{Address: "2001:db8:700::9"}); len(got) != 1 || got[0].DelegatedPrefix != home.String() || got[0].Ipv6Address != host.String() || got[0].Ipv6Left != "10m0s" {
		t.Errorf("%v", got)
	}
}
