// SPDX-License-Identifier: Apache-2.0

package object

import (
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
)

func TestListedObjectsAreKeptAsThoseThatAreLookedAt(t *testing.T) {
	registry, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	objects := []*Object{
		{Kind: "Session", Name: "alice", Spec: &api.Session{Access: &api.Access{Port: "access", OuterVlan: 300}, Addresses: []string{"100.64.3.7/32"}}},
		{Kind: "Vrf", Name: strings.Repeat("v", 200), Spec: &api.Vrf{}},
		{Kind: "Vrf", Name: strings.Repeat("v", 127), Spec: &api.Vrf{Description: "red"}},
		{Kind: "Vrf", Name: strings.Repeat("v", 128), Spec: &api.Vrf{Description: "blue"}},
	}
	specs := make([][]byte, len(objects))
	for i, o := range objects {
		if specs[i], err = Pack(o.Spec); err != nil {
			t.Fatal(err)
		}
	}
	listed := NewListed(len(objects), func(i int) (*Kind, string, string) {
		return registry.Kind(objects[i].Kind), objects[i].Name, string(specs[i])
	})
	for i, o := range objects {
		explored, err := registry.Explore(o.Key(), specs[i])
		if err != nil {
			t.Fatal(err)
		}
		k := &listed[i]
		if k.Key() != o.Key() || !k.Equal(explored) || !k.SameLayer(explored) || len(k.Labels()) != 0 || len(k.Empty()) != 0 {
			t.Errorf("%s is kept as %s with %q", o.Key(), k.Key(), k.Spec())
		}
		if k.Examined() || k.Claims() != 0 || len(slices.Collect(k.Needs())) != 0 {
			t.Errorf("%s is not as an untouched one", o.Key())
		}
		if !explored.Examined() {
			t.Errorf("%s was looked at", o.Key())
		}
	}
	if len(NewListed(0, nil)) != 0 {
		t.Error("nothing is kept as something")
	}
}
