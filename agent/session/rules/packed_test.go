// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
)

func TestNetworksOfAPackedSessionAreThoseOfTheSession(t *testing.T) {
	descriptor := (&api.Session{}).ProtoReflect().Descriptor().Fields()
	for field, number := range map[string]int32{"addresses": 2, "vrf": 3} {
		if got := descriptor.ByName(protoreflect.Name(field)).Number(); int32(got) != number {
			t.Errorf("%s is field %d", field, got)
		}
	}
	for _, s := range []*api.Session{
		{},
		{Access: &api.Access{Port: "p", OuterVlan: 5}, Policy: &api.Policy{Mss: 1400}},
		{Addresses: []string{"100.64.0.7/32", "2001:db8:1::/64", "not one", "10.0.0.0/8", "2001:db8::1/128"}},
		{Addresses: []string{"10.0.0.0/8"}, Vrf: "red"},
		{Addresses: []string{"10.0.0.0/8"}, Vrf: "red", Core: &api.Session_Gtpu{Gtpu: &api.Gtpu{LocalTeid: 7}}},
		{Addresses: []string{"10.0.0.0/8"}, Core: &api.Session_Gtpu{Gtpu: &api.Gtpu{}}},
		{Addresses: []string{"10.0.0.0/8"}, Core: &api.Session_Ipsec{Ipsec: &api.IpsecCore{}}},
	} {
		spec, err := proto.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := holdPackedSession(string(spec)), holdSession(s); !slices.Equal(got, want) {
			t.Errorf("%v: %v, not %v", s, got, want)
		}
	}
}
