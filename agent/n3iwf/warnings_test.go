// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func TestAChangeWarnsOfTheUEsThatItEnds(t *testing.T) {
	s, _ := newServer(t)
	// Another Interface has the address of NAS, too.
	follow(s, "Interface", "nas", &api.Interface{Addresses: []string{"10.200.0.1/32"}})
	follow(s, "AccessNode", "wifi", &api.AccessNode{N3IwfId: 9, LocalAddresses: []string{"192.0.2.2"}})
	follow(s, "N3iwf", "wifi", anN3iwf(nil))
	in := s.instances["wifi"]
	for i := range 3 {
		in.ues[&ue{s: s, in: in, up: true, gone: i == 2}] = true
	}
	for _, c := range []struct {
		kind, name string
		spec       proto.Message
		want       string
	}{
		{"N3iwf", "wifi", nil, "disconnects 2 UEs"},
		{"N3iwf", "wifi", anN3iwf(func(n *api.N3Iwf) { n.NasPort = 7 }), "disconnects 2 UEs"},
		{"N3iwf", "wifi", anN3iwf(func(n *api.N3Iwf) { n.MaxUes = 7 }), ""},
		{"N3iwf", "other", nil, ""},
		{"Interface", "all", nil, "cuts off 2 UEs of N3iwf/wifi, which has localAddress 192.0.2.1, coreAddress 198.51.100.1, N2 address 192.0.2.2"},
		{"Interface", "all", &api.Interface{Addresses: []string{"192.0.2.1/24", "192.0.2.2/24", "198.51.100.2/24"}}, "cuts off 2 UEs of N3iwf/wifi, which has coreAddress 198.51.100.1"},
		{"Interface", "all", &api.Interface{Addresses: []string{"192.0.2.1/25", "192.0.2.2/25", "198.51.100.1/25"}}, ""},
		{"Interface", "nas", nil, ""},
		{"Interface", "new", &api.Interface{Addresses: []string{"192.0.2.1/24"}}, ""},
	} {
		var o *object.Object
		if c.spec != nil {
			o = &object.Object{Kind: c.kind, Name: c.name, Spec: c.spec}
		}
		done := make(chan []string)
		go func() { done <- s.Warnings(object.Key{Kind: c.kind, Name: c.name}, o) }()
		for {
			s.work()
			select {
			case got := <-done:
				if strings.Join(got, "; ") != c.want {
					t.Errorf("%s/%s: %q instead of %q", c.kind, c.name, got, c.want)
				}
			case <-time.After(time.Millisecond):
				continue
			}
			break
		}
	}
	if len(s.interfaces) != 2 {
		t.Errorf("the interfaces changed: %v", s.interfaces)
	}
}
