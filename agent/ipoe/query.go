// SPDX-License-Identifier: Apache-2.0
// Operational state: leases of clients.

package ipoe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/subscriber"
)

const (
	usualPage, longestPage = 1000, 10_000
)

// list answers IpoeLeasesQuery.
func (s *serving) list(_ context.Context, q *api.IpoeLeasesQuery) (*api.IpoeLeases, error) {
	w := leasesQuery{IpoeLeasesQuery: q}
	if q.GetMac() != "" {
		mac, err := net.ParseMAC(q.GetMac())
		if err != nil || len(mac) != len(w.mac) {
			return nil, status.Errorf(codes.InvalidArgument, "mac: found %q; accepted: a MAC such as 02:00:00:00:00:01", q.GetMac())
		}
		w.mac = dhcp.MAC(mac)
	}
	if q.GetState() != "" && !slices.Contains(words, q.GetState()) {
		return nil, status.Errorf(codes.InvalidArgument, "state: found %q; accepted: %s", q.GetState(), strings.Join(words, ", "))
	}
	if q.GetAddress() != "" {
		var err error
		if w.address, err = netip.ParseAddr(q.GetAddress()); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "address: found %q; accepted: an address such as 100.64.0.7", q.GetAddress())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine.leases(&w, time.Now()), nil
}

// leasesQuery is a parsed query.
type leasesQuery struct {
	*api.IpoeLeasesQuery
	mac     dhcp.MAC
	address netip.Addr
}

func (w *leasesQuery) takes(c *client) bool {
	l := &c.lease
	return (w.GetServer() == "" || w.GetServer() == c.server) && (w.mac == dhcp.MAC{} || w.mac == c.key.mac) &&
		(w.GetCircuit() == "" || w.GetCircuit() == c.key.port || within(c.key.circuit.String(), w.GetCircuit())) &&
		(!w.address.IsValid() || w.address == l.IPv4 && c.has4 || c.has6 && (w.address == l.IPv6 || l.IPv6Prefix.Contains(w.address) || l.Delegated.Contains(w.address))) &&
		(w.GetState() == "" || w.GetState() == c.word())
}

// within reports whether a circuit matches a query: it is the circuit of the query, or has its outer VLAN.
func within(circuit, asked string) bool {
	return circuit == asked || strings.Contains(asked, ":") && strings.HasPrefix(circuit, asked+".")
}

// String returns "access:100.7", with as many VLANs as there are.
func (c circuit) String() string {
	return subscriber.Circuit{Dataplane: c.dataplane, Port: c.port, OuterVLAN: c.outer, InnerVLAN: c.inner}.String()
}

// order is the key of pages.
func (k clientKey) order() string {
	return fmt.Sprintf("%s/%s/%04d.%04d/%s", k.dataplane, k.port, k.outer, k.inner, k.mac)
}

// words are all states.
var words = []string{"waiting", "offered", "leased", "static", "refused"}

// word is the client's state for people.
func (c *client) word() string {
	switch {
	case c.phase == refused:
		return "refused"
	case c.phase == authenticating || c.phase == connecting:
		return "waiting"
	case c.static:
		return "static"
	case c.bound4 || c.bound6:
		return "leased"
	}
	return "offered"
}

// leases is a page of the clients that a query is about.
func (m *Machine) leases(w *leasesQuery, now time.Time) *api.IpoeLeases {
	limit := usualPage
	if w.GetLimit() > 0 {
		limit = min(int(w.GetLimit()), longestPage)
	}
	answer := &api.IpoeLeases{}
	last := ""
	m.ordered.AscendGreaterOrEqual(&client{order: w.GetPage()}, func(c *client) bool {
		switch {
		case c.order == w.GetPage() || !w.takes(c):
		case len(answer.Leases) == limit:
			answer.NextPage = last
			return false
		default:
			answer.Leases = append(answer.Leases, c.shown(now))
			last = c.order
		}
		return true
	})
	return answer
}

// shown is a client as people see it.
func (c *client) shown(now time.Time) *api.IpoeLease {
	to := &api.IpoeLease{Server: c.server, Dataplane: c.key.dataplane, Circuit: c.key.circuit.String(), Mac: c.key.mac.String(), State: c.word(), Session: c.lease.Session,
		CircuitId: strings.ToValidUTF8(string(c.circuitID), "?"), RemoteId: strings.ToValidUTF8(string(c.remoteID), "?")}
	ends := func(at time.Time) (int64, string) {
		if at.IsZero() {
			return 0, ""
		}
		return at.UnixNano(), max(at.Sub(now), 0).Round(time.Second).String()
	}
	if c.has4 {
		to.Ipv4Address = c.lease.IPv4.String()
		to.Ipv4Ends, to.Ipv4Left = ends(c.ends4)
	}
	if c.has6 {
		if c.lease.IPv6.IsValid() {
			to.Ipv6Address = c.lease.IPv6.String()
		}
		for _, of := range []struct {
			to     *string
			prefix netip.Prefix
		}{{&to.Ipv6Prefix, c.lease.IPv6Prefix}, {&to.DelegatedPrefix, c.lease.Delegated}} {
			if of.prefix.IsValid() {
				*of.to = of.prefix.String()
			}
		}
		to.Ipv6Ends, to.Ipv6Left = ends(c.ends6)
	}
	if c.phase == refused {
		to.Session, to.Reason = "", c.reason
	}
	return to
}
