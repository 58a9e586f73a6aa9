// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

func TestAnInterfaceWarnsOfTheLinesThatItCutsOff(t *testing.T) {
	s := newAGF(service.Environment{Metrics: prometheus.NewRegistry()})
	follow := func(kind, name string, spec proto.Message) {
		s.Follow(service.Change{Key: object.Key{Kind: kind, Name: name}, Object: &object.Object{Kind: kind, Name: name, Spec: spec}})
	}
	follow("Interface", "core", &api.Interface{Addresses: []string{"192.0.2.1/24", "192.0.2.2/24"}})
	follow("Interface", "red", &api.Interface{Vrf: "red", Addresses: []string{"192.0.2.1/24"}})
	follow("AccessNode", "bonn", &api.AccessNode{LocalAddresses: []string{"192.0.2.2"}})
	follow("Agf", "bonn", &api.Agf{Node: "bonn", CoreAddress: "192.0.2.1"})
	s.lines["line-7"] = &registration{agf: "bonn", key: "line-7"}
	for _, id := range []string{"a", "b"} {
		s.members[id] = &member{id: id, session: &Session{demand: Demand{Address: netip.MustParseAddr("192.0.2.1")}}}
	}
	for _, c := range []struct {
		name string
		spec *api.Interface
		want []string
	}{
		{"core", nil, []string{"cuts off 2 PDU sessions of lines, whose end of GTP-U is 192.0.2.1", "cuts off 1 line from the core: 192.0.2.2 is the N2 address"}},
		{"core", &api.Interface{Addresses: []string{"192.0.2.1/24"}}, []string{"cuts off 1 line from the core: 192.0.2.2 is the N2 address"}},
		{"core", &api.Interface{Addresses: []string{"192.0.2.2/24", "192.0.2.1/24"}}, nil},
		{"red", nil, nil},
	} {
		var o *object.Object
		if c.spec != nil {
			o = &object.Object{Kind: "Interface", Name: c.name, Spec: c.spec}
		}
		if got := s.Warnings(object.Key{Kind: "Interface", Name: c.name}, o); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q instead of %q", c.name, got, c.want)
		}
	}
}
