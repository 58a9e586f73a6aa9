// SPDX-License-Identifier: Apache-2.0

package subscriber

import (
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// filled is a record with a value in each field that the agent writes.
func filled() *api.Subscriber {
	counters := &api.SubscriberTraffic{UpPackets: 1, UpBytes: 2, DownPackets: 3, DownBytes: 1 << 40}
	rate := &api.SubscriberRate{Rate: 1, PeakRate: 2, Burst: 3, PeakBurst: 4}
	return &api.Subscriber{Id: "1a2b", Protocol: "pppoe", Profile: "home", Session: "pppoe-1a2b", Username: "al\ufffdce", RawUsername: []byte("al\xffce"),
		Line: &api.SubscriberLine{Dataplane: "dp", Port: "access", OuterVlan: 100, InnerVlan: 7, Mac: []byte{2, 0, 0, 0, 0, 1}, CircuitId: []byte("c"),
			RemoteId: []byte{0xff}, Attributes: map[uint32][]byte{0x81: {1, 2}, 0x82: {3}}, Caller: "192.0.2.9"},
		Service: "gold\ufffd", RawService: []byte("gold\xfe"), PppoeSessionId: 9, Access: &api.Access{Port: "access", OuterVlan: 100, Mac: "02:00:00:00:00:01"},
		Grant: &api.SubscriberGrant{Username: "b\ufffd", RawUsername: []byte("b\xff"), Vrf: "red", Ipv4: "100.64.0.7", Ipv4Pools: []string{"a", "b"}, Ipv6Prefix: "2001:db8::/64",
			Delegated: "2001:db8:1::/56", Ipv6: "2001:db8::7", Ipv6Pools: []string{"c"}, DelegatedPools: []string{"d"}, InterfaceId: []byte{1, 2, 3, 4, 5, 6, 7, 8},
			Routes: []string{"192.0.2.0/24", "2001:db8:2::/48"}, Dns: []string{"192.0.2.53", "2001:db8::53"}, SessionTimeout: 1e9, IdleTimeout: 2e9, InterimInterval: 3e9,
			Policy: &api.Policy{AclUp: "1", MeterUp: "2", AclDown: "3", MeterDown: "4", Mss: 5, Mtu: 6, FlowProfile: "8", QosProfile: "9", QosGroup: "10",
				QosProfileUp: "11", QosGroupUp: "12"},
			RateUp: rate, RateDown: rate, Redirect: "garden", Class: [][]byte{{1}, {}}, State: []byte{7}, Profile: "other", Local: true, Proved: true, Announced: []string{"2001:db8:3::/48"},
			Core: &api.Gtpu{LocalAddress: "192.0.2.1", LocalTeid: 1, RemoteAddress: "192.0.2.2", RemoteTeid: 2}},
		Lease: &api.SubscriberLease{Vrf: "red", Ipv4: "100.64.0.7", Ipv6: "2001:db8::7", Ipv6Prefix: "2001:db8::/64", Delegated: "2001:db8:1::/56", Dns: []string{"192.0.2.53"},
			Gateway: "100.64.0.1", SessionTimeout: 1e9, Mtu: 1480, Portal: "garden"},
		Ipv4: true, Ipv6: true, State: []byte{1}, Since: 1_800_000_000_000_000_000, Cause: 2, Ended: 1_800_000_001_000_000_000, Before: counters, Counted: counters,
		Boot: 1 << 63, Accounting: []string{"radius"}, Mtu: 1400, AddressesDue: 1_800_000_002_000_000_000}
}

func TestARecordIsWhatTheProtobufLibraryReadsAndWrites(t *testing.T) {
	whole := filled()
	for i := range whole.ProtoReflect().Descriptor().Fields().Len() {
		if f := whole.ProtoReflect().Descriptor().Fields().Get(i); !whole.ProtoReflect().Has(f) {
			t.Errorf("the test has no %s", f.Name())
		}
	}
	for i := range whole.Grant.ProtoReflect().Descriptor().Fields().Len() {
		if f := whole.Grant.ProtoReflect().Descriptor().Fields().Get(i); !whole.Grant.ProtoReflect().Has(f) {
			t.Errorf("the test has no %s of a grant", f.Name())
		}
	}
	least := &api.Subscriber{Id: "1", Session: "s", Access: whole.Access, Line: &api.SubscriberLine{Mac: make([]byte, 6)}}
	p := newPacker()
	for _, m := range []*api.Subscriber{whole, least, whole} {
		packed, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.unpack(packed)
		if err != nil {
			t.Fatal(err)
		}
		value := slices.Clone(p.pack(s))
		var again api.Subscriber
		if err := proto.Unmarshal(value, &again); err != nil || !proto.Equal(&again, m) {
			t.Errorf("%v\n%v\n%v", err, &again, m)
		}
		if one, err := p.unpack(value); err != nil || !reflect.DeepEqual(one.lease, s.lease) || !reflect.DeepEqual(one.connection.Grant.Class, s.connection.Grant.Class) ||
			one.connection.Username != "al\xffce" && m == whole {
			t.Errorf("%v %v, not %v", err, one, s)
		}
		// Some cuts are a record with fewer fields; none is trouble.
		for length := range value {
			if _, err := p.unpack(value[:length]); err == nil && length < 20 {
				t.Error(length)
			}
		}
	}
}

func FuzzRecord(f *testing.F) {
	packed, err := proto.Marshal(filled())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(packed)
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newPacker()
		s, err := p.unpack(b)
		if err != nil {
			return
		}
		if again, err := p.unpack(p.pack(s)); err == nil && again.lease.Session != s.lease.Session {
			t.Fatal(again, s)
		}
	})
}
