// SPDX-License-Identifier: Apache-2.0

package object

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

func stateOf(t *testing.T, query proto.Message) *State {
	t.Helper()
	r, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	s := r.StateOf(query.ProtoReflect().Descriptor().FullName())
	if s == nil {
		t.Fatalf("%T asks for no state", query)
	}
	return s
}

func TestAStateIsAskedForOneObject(t *testing.T) {
	for _, one := range []struct {
		kind string
		want proto.Message
	}{
		{"Session", &api.SessionCountersQuery{Sessions: []string{"a"}}}, {"Session", &api.DropCountersQuery{Session: "a"}},
		{"Interface", &api.DropCountersQuery{Interface: "a"}}, {"Acl", &api.AclHitsQuery{Acl: "a"}}, {"Port", &api.PortCountersQuery{}},
		{"QosGroup", &api.SchedulerCountersQuery{Group: "a"}}, {"QosScheduler", &api.SchedulerCountersQuery{}},
	} {
		if q, ok := stateOf(t, one.want).Ask(Key{one.kind, "a"}); !ok || !proto.Equal(q, one.want) {
			t.Errorf("%s: %T %v, %t", one.kind, one.want, q, ok)
		}
	}
	if q, ok := stateOf(t, &api.RouteLookUpQuery{}).Ask(Key{"Vrf", "red"}); ok {
		t.Errorf("a look-up without an address: %v", q)
	}
	if q, ok := stateOf(t, &api.GtpuPathsQuery{}).Ask(Key{"GtpuPeer", "a"}); ok {
		t.Errorf("paths of one peer: %v", q)
	}
}

func TestAnAnswerHasAPartForOneObject(t *testing.T) {
	s := stateOf(t, &api.SchedulerCountersQuery{})
	reply := &api.SchedulerCountersList{Schedulers: []*api.SchedulerCounters{{Scheduler: "a", SentPackets: 1}, {Scheduler: "b", SentPackets: 2}},
		Group: &api.GroupCounters{SentPackets: 3}}
	for key, want := range map[Key]proto.Message{{"QosScheduler", "b"}: reply.Schedulers[1], {"QosGroup", "g"}: reply.Group} {
		if m, single := s.Part(reply.ProtoReflect(), key); m == nil || !single || !proto.Equal(m.Interface(), want) {
			t.Errorf("%s: %v, %t", key, m, single)
		}
	}
	if m, _ := s.Part(reply.ProtoReflect(), Key{"QosScheduler", "c"}); m != nil {
		t.Errorf("a scheduler that is not there: %v", m)
	}
	leases := &api.IpoeLeases{Leases: []*api.IpoeLease{{Server: "homes", Mac: "02:00:00:00:00:01"}, {Server: "homes", Mac: "02:00:00:00:00:02"}}}
	if m, single := stateOf(t, &api.IpoeLeasesQuery{}).Part(leases.ProtoReflect(), Key{"IpoeServer", "homes"}); single || !proto.Equal(m.Interface(), leases) {
		t.Errorf("a server of two leases: %v, %t", m, single)
	}
}

func TestAnAnswerIsFilteredIfItsSourceIgnoresTheFilter(t *testing.T) {
	query, reply := &api.NeighborStatesQuery{Interface: "core"}, &api.NeighborStates{Neighbors: []*api.NeighborState{
		{Interface: "core", Address: "192.0.2.1"}, {Interface: "other"}, {Interface: "core", Address: "192.0.2.2"}}}
	s := stateOf(t, query)
	s.Filter(query.ProtoReflect(), reply.ProtoReflect())
	if all := reply.GetNeighbors(); len(all) != 2 || all[0].GetAddress() != "192.0.2.1" || all[1].GetAddress() != "192.0.2.2" {
		t.Errorf("%v", all)
	}
	if about := s.About(query.ProtoReflect()); len(about) != 1 || about[0] != (Key{"Interface", "core"}) {
		t.Errorf("%v", about)
	}
}
