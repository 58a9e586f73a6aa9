// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

func u32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func std(kind uint8, value []byte) attribute           { return attribute{0, kind, value} }
func cisco(text string) attribute                      { return attribute{vendorCisco, ciscoAVPair, []byte(text)} }
func of(vendor uint32, kind uint8, v []byte) attribute { return attribute{vendor, kind, v} }

func TestEachAttributeBecomesAPartOfTheGrant(t *testing.T) {
	prefix := netip.MustParsePrefix
	six := netip.MustParseAddr("2001:db8::53").AsSlice()
	type grant = subscriber.Grant
	for name, c := range map[string]struct {
		all  []attribute
		want grant
	}{
		"address":           {[]attribute{std(typeFramedIPAddress, []byte{100, 64, 0, 7})}, grant{IPv4: netip.MustParseAddr("100.64.0.7")}},
		"the NAS chooses":   {[]attribute{std(typeFramedIPAddress, []byte{255, 255, 255, 254})}, grant{}},
		"the user chooses":  {[]attribute{std(typeFramedIPAddress, []byte{255, 255, 255, 255})}, grant{}},
		"pools":             {[]attribute{std(typeFramedPool, []byte("a")), std(typeFramedPool, []byte("b")), std(typeFramedIPv6Pool, []byte("c")), std(typeDelegatedIPv6PrefixPool, []byte("d")), std(typeStatefulIPv6AddressPool, []byte("e"))}, grant{IPv4Pools: []string{"a", "b"}, IPv6Pools: []string{"c", "e"}, DelegatedPools: []string{"d"}}},
		"routes":            {[]attribute{std(typeFramedRoute, []byte("198.51.100.0/24 0.0.0.0 1")), std(typeFramedRoute, []byte("10.0.0.0")), std(typeFramedRoute, []byte("192.0.2.7")), std(typeFramedIPv6Route, []byte("2001:db8:9::/48 :: 1"))}, grant{Routes: []netip.Prefix{prefix("198.51.100.0/24"), prefix("10.0.0.0/8"), prefix("192.0.2.7/32"), prefix("2001:db8:9::/48")}}},
		"IPv6":              {[]attribute{std(typeFramedIPv6Prefix, append([]byte{0, 64}, six[:8]...)), std(typeDelegatedIPv6Prefix, []byte{0, 40, 0x20, 1, 0xd, 0xb8, 5}), std(typeFramedIPv6Address, six), std(typeFramedInterfaceID, []byte("12345678"))}, grant{IPv6Prefix: prefix("2001:db8::/64"), Delegated: prefix("2001:db8:500::/40"), IPv6: netip.MustParseAddr("2001:db8::53"), InterfaceID: [8]byte([]byte("12345678"))}},
		"DNS":               {[]attribute{of(vendorMicrosoft, microsoftPrimaryDNS, []byte{192, 0, 2, 53}), std(typeDNSServerIPv6Address, six)}, grant{DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")}}},
		"timeouts":          {[]attribute{std(typeSessionTimeout, u32(86400)), std(typeIdleTimeout, u32(600)), std(typeAcctInterimInterval, u32(300))}, grant{SessionTimeout: 24 * time.Hour, IdleTimeout: 10 * time.Minute, InterimInterval: 5 * time.Minute}},
		"too often":         {[]attribute{std(typeAcctInterimInterval, u32(5))}, grant{InterimInterval: time.Minute}},
		"no timeouts":       {[]attribute{std(typeSessionTimeout, u32(0)), std(typeIdleTimeout, u32(0)), std(typeAcctInterimInterval, u32(0))}, grant{SessionTimeout: subscriber.Never, IdleTimeout: subscriber.Never, InterimInterval: subscriber.Never}},
		"class and state":   {[]attribute{std(typeClass, []byte{0, 1}), std(typeClass, []byte("b")), std(typeState, []byte("s"))}, grant{Class: [][]byte{{0, 1}, []byte("b")}, State: []byte("s")}},
		"filters":           {[]attribute{std(typeFilterID, []byte("up.in")), std(typeFilterID, []byte("down.out"))}, grant{ACLUp: "up", ACLDown: "down"}},
		"one filter":        {[]attribute{std(typeFilterID, []byte("home"))}, grant{ACLUp: "home", ACLDown: "home"}},
		"name and MTU":      {[]attribute{std(typeUserName, []byte("alice")), std(typeFramedMTU, u32(1492))}, grant{Username: "alice", MTU: 1492}},
		"Cisco ip":          {[]attribute{cisco("ip:vrf-id=red"), cisco("ip:addr-pool=home"), cisco("ip:inacl=i"), cisco("ip:outacl=o"), cisco("ip:sub-qos-policy-in=up"), cisco("subscriber:sub-qos-policy-out=down"), cisco("ip:route=10.1.0.0 255.255.0.0")}, grant{VRF: "red", IPv4Pools: []string{"home"}, ACLUp: "i", ACLDown: "o", MeterUp: "up", QosProfile: "down", Routes: []netip.Prefix{prefix("10.1.0.0/16")}}},
		"Cisco commands":    {[]attribute{cisco("lcp:interface-config#1=ip vrf forwarding red"), cisco("lcp:interface-config=rate-limit output 20000000 3750000 7500000 conform-action transmit exceed-action drop"), cisco("lcp:interface-config=ip tcp adjust-mss 1400"), cisco("lcp:interface-config=service-policy input up")}, grant{VRF: "red", RateDown: subscriber.Rate{BitsPerSecond: 20e6, BurstBytes: 3750000}, MSS: 1400, MeterUp: "up"}},
		"Cisco ACL rates":   {[]attribute{cisco("lcp:interface-config#1=rate-limit output access-group 101 10240000 1000000 1000000 conform-action transmit exceed-action drop"), cisco("lcp:interface-config#1=rate-limit input access-group rate-limit 5 2048000 300000 300000")}, grant{RateUp: subscriber.Rate{BitsPerSecond: 2048e3, BurstBytes: 300000}, RateDown: subscriber.Rate{BitsPerSecond: 10240e3, BurstBytes: 1e6}}},
		"Cisco DSCP":        {[]attribute{cisco("lcp:interface-config=rate-limit input dscp 46 1000000 200000 200000"), cisco("lcp:interface-config=rate-limit output qos-group 3 5000000")}, grant{RateUp: subscriber.Rate{BitsPerSecond: 1e6, BurstBytes: 200000}, RateDown: subscriber.Rate{BitsPerSecond: 5e6}}},
		"Mikrotik":          {[]attribute{of(vendorMikrotik, mikrotikRateLimit, []byte("10M/50M"))}, grant{RateUp: subscriber.Rate{BitsPerSecond: 10e6}, RateDown: subscriber.Rate{BitsPerSecond: 50e6}}},
		"Mikrotik one":      {[]attribute{of(vendorMikrotik, mikrotikRateLimit, []byte("512k"))}, grant{RateUp: subscriber.Rate{BitsPerSecond: 512e3}, RateDown: subscriber.Rate{BitsPerSecond: 512e3}}},
		"Mikrotik half":     {[]attribute{of(vendorMikrotik, mikrotikRateLimit, []byte("10M/0"))}, grant{RateUp: subscriber.Rate{BitsPerSecond: 10e6}, MeterDown: subscriber.Clear}},
		"Mikrotik bursts":   {[]attribute{of(vendorMikrotik, mikrotikRateLimit, []byte("10M/50M 20M/100M 8M/40M 10/10 8 1M/1M"))}, grant{RateUp: subscriber.Rate{BitsPerSecond: 10e6, PeakBitsPerSecond: 20e6, BurstBytes: 10e6}, RateDown: subscriber.Rate{BitsPerSecond: 50e6, PeakBitsPerSecond: 100e6, BurstBytes: 50e6}}},
		"Huawei":            {[]attribute{of(vendorHuawei, huaweiInputAverageRate, u32(10e6)), of(vendorHuawei, huaweiInputPeakRate, u32(12e6)), of(vendorHuawei, huaweiOutputAverageRate, u32(50e6)), of(vendorHuawei, huaweiOutputBurstSize, u32(1e6)), of(vendorHuawei, huaweiVPNInstance, []byte("red"))}, grant{RateUp: subscriber.Rate{BitsPerSecond: 10e6, PeakBitsPerSecond: 12e6}, RateDown: subscriber.Rate{BitsPerSecond: 50e6, BurstBytes: 1e6}, VRF: "red"}},
		"Huawei peaks":      {[]attribute{of(vendorHuawei, huaweiInputPeakRate, u32(12e6)), of(vendorHuawei, huaweiOutputBurstSize, u32(1e6)), of(vendorHuawei, huaweiOutputPeakRate, u32(60e6)), of(vendorHuawei, huaweiOutputAverageRate, u32(0))}, grant{RateUp: subscriber.Rate{BitsPerSecond: 12e6}, RateDown: subscriber.Rate{BitsPerSecond: 60e6, BurstBytes: 1e6}}},
		"Huawei unlimited":  {[]attribute{of(vendorHuawei, huaweiInputAverageRate, u32(0)), of(vendorHuawei, huaweiInputBurstSize, u32(1e6)), of(vendorHuawei, huaweiOutputAverageRate, u32(0)), of(vendorJuniperERX, erxEgressPolicyName, []byte("down"))}, grant{MeterUp: subscriber.Clear, MeterDown: "down"}},
		"Cisco unlimited":   {[]attribute{cisco("lcp:interface-config=rate-limit output 0 125000 250000")}, grant{MeterDown: subscriber.Clear}},
		"Juniper":           {[]attribute{of(vendorJuniperERX, erxVirtualRouterName, []byte("red")), of(vendorJuniperERX, erxIngressPolicyName, []byte("up")), of(vendorJuniperERX, erxEgressPolicyName, []byte("down")), of(vendorJuniperERX, erxPrimaryDNS, []byte{192, 0, 2, 53})}, grant{VRF: "red", MeterUp: "up", MeterDown: "down", DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}}},
		"not a real number": {[]attribute{of(vendorMikrotik, mikrotikRateLimit, []byte("fast")), cisco("ip:route=x"), std(typeSessionTimeout, u32(5))}, grant{SessionTimeout: 5 * time.Second}},
	} {
		g, err := grantOf(c.all, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(g.Grant, c.want) {
			t.Errorf("%s:\n%+v\nnot\n%+v", name, g.Grant, c.want)
		}
	}
}

func TestAnAttributeOfTheStandardThatHoldsSomethingElseIsAnErrorWithItsName(t *testing.T) {
	for _, a := range []attribute{
		std(typeFramedIPAddress, []byte{1, 2, 3}), std(typeFramedIPAddress, []byte{224, 0, 0, 1}), std(typeFramedIPAddress, []byte{0, 0, 0, 0}),
		std(typeSessionTimeout, []byte{1}), std(typeFramedIPv6Prefix, []byte{0, 129}), std(typeFramedIPv6Prefix, []byte{0, 64, 0x20}),
		std(typeFramedIPv6Address, []byte{1}), std(typeFramedInterfaceID, []byte{1}), std(typeFramedRoute, []byte("nowhere")),
		std(typeFramedRoute, []byte("2001:db8::/32")), std(typeFramedPool, []byte("a b")), std(typeFramedMTU, u32(1)), std(typeFilterID, []byte(".in")),
		std(typeRouteIPv6Information, []byte{0}), std(typeRouteIPv6Information, []byte{0, 64, 0x20}), std(typeRouteIPv6Information, []byte{0, 0, 1}),
		std(typeRouteIPv6Information, make([]byte, 19)),
		// Sessions cannot have these.
		std(typeFramedRoute, []byte("0.0.0.0/0")), std(typeFramedRoute, []byte("127.0.0.0/16")), std(typeFramedIPv6Route, []byte("::/0 :: 1")),
		std(typeFramedIPv6Route, []byte("fe80::/64")), std(typeFramedIPv6Prefix, []byte{0, 64, 0xfe, 0x80, 0, 0, 0, 0, 0, 0}),
		std(typeDelegatedIPv6Prefix, []byte{0, 64, 0xfe, 0x80, 0, 0, 0, 0, 0, 0}), std(typeFramedIPv6Address, netip.MustParseAddr("fe80::1").AsSlice()),
		std(typeFramedIPv6Address, netip.IPv6Loopback().AsSlice()),
		// NAS-Prompt, Administrative, and less than a number.
		std(typeServiceType, u32(7)), std(typeServiceType, u32(6)), std(typeServiceType, []byte{2}),
	} {
		_, err := grantOf([]attribute{a}, nil)
		if !errors.Is(err, errInvalid) {
			t.Errorf("%s %q: %v", a.name(), a.value, err)
		}
	}
}

func TestASizeThatNoSessionHasIsNamedAndNoPartOfTheGrant(t *testing.T) {
	for _, a := range []attribute{std(typeFramedMTU, u32(576)), std(typeFramedMTU, u32(9601)), cisco("lcp:interface-config=ip mtu 1279"),
		cisco("lcp:interface-config=ip tcp adjust-mss 535")} {
		g, err := grantOf([]attribute{a}, nil)
		if err != nil || g.MTU != 0 || g.MSS != 0 || len(g.unusable) != 1 || g.unusable[0].broken || g.unusable[0].name != a.name() {
			t.Errorf("%s %q: %+v %v", a.name(), a.value, g, err)
		}
	}
	for _, a := range []attribute{std(typeFramedMTU, u32(1280)), std(typeFramedMTU, u32(9600)), cisco("lcp:interface-config=ip tcp adjust-mss 536")} {
		if g, err := grantOf([]attribute{a}, nil); err != nil || g.MTU == 0 && g.MSS == 0 || len(g.unusable) > 0 {
			t.Errorf("%s %q: %+v %v", a.name(), a.value, g, err)
		}
	}
	if g, err := grantOf([]attribute{cisco("ip:route=0.0.0.0 0.0.0.0")}, nil); err != nil || len(g.Routes) > 0 || len(g.unusable) != 1 {
		t.Errorf("%+v %v", g, err)
	}
}

func TestEachClassOfAGrantIsInItsRecords(t *testing.T) {
	var all []attribute
	for i := range byte(16) {
		all = append(all, std(typeClass, bytes.Repeat([]byte{i}, maxValue)))
	}
	g, err := grantOf(all, nil)
	if err != nil || len(g.Class) != mostClass/(2+maxValue) || len(g.unusable) != 16-len(g.Class) || g.unusable[0].name != "Class" {
		t.Fatalf("%d of them, %v, %v", len(g.Class), g.unusable, err)
	}
	long := strings.Repeat("x", 300)
	p := newPolicy("home", &api.RadiusPolicy{NasIdentifier: long[:maxValue], NasIpAddress: "192.0.2.1", NasIpv6Address: "2001:db8::1", CalledStationId: "{service}", CallingStationId: "{service}", NasPortId: "{service}"}, "")
	address := netip.MustParseAddr("2001:db8::2")
	g.Username, g.InterfaceID = long, [8]byte{1}
	written := p.accountingAttributes(&subscriber.Record{Kind: subscriber.Stop, At: began, Since: began, Cause: subscriber.UserRequest, Grant: g.Grant,
		Request: subscriber.Request{Protocol: "pppoe", ID: long, Service: long, Line: subscriber.Line{CircuitID: []byte(long[:200])}}, UpPackets: 1 << 40, DownPackets: 1 << 40, UpBytes: 1 << 40,
		Lease: subscriber.Lease{IPv4: netip.MustParseAddr("192.0.2.7"), IPv6: address, IPv6Prefix: netip.PrefixFrom(address, 128), Delegated: netip.PrefixFrom(address, 128)}})
	request, err := parse(accountingRequest(1, []byte("testing123"), 0, written))
	if err != nil {
		t.Fatal(err)
	}
	var classes [][]byte
	for _, a := range request.attributes() {
		if a.vendor == 0 && a.kind == typeClass {
			classes = append(classes, a.value)
		}
	}
	if !reflect.DeepEqual(classes, g.Class) {
		t.Errorf("%d of %d", len(classes), len(g.Class))
	}
}

func TestASessionHasAllRoutesOfAGrant(t *testing.T) {
	routes := func(n int) (all []attribute) {
		for i := range n {
			all = append(all, std(typeFramedRoute, fmt.Appendf(nil, "10.%d.0.0/16", i)))
		}
		return all
	}
	// Together with four addresses and prefixes, a Session has them all.
	field := (&api.Session{}).ProtoReflect().Descriptor().Fields().ByName("addresses")
	most := proto.GetExtension(field.Options(), api.E_Field).(*api.Field).GetMax()
	if g, err := grantOf(routes(int(most)-4), nil); err != nil || len(g.Routes) != int(most)-4 {
		t.Errorf("%d routes, %v", len(g.Routes), err)
	}
	if _, err := grantOf(routes(int(most)-3), nil); !errors.Is(err, errInvalid) {
		t.Errorf("%v", err)
	}
}

func TestAGrantHasAFewRoutesForRouterAdvertisements(t *testing.T) {
	routes := func(n int) (all []attribute) {
		for i := range n {
			all = append(all, std(typeRouteIPv6Information, []byte{0, 48, 0x20, 1, 0x0d, 0xb8, 0, byte(i)}))
		}
		return all
	}
	g, err := grantOf(append(routes(mostAnnounced-1), std(typeRouteIPv6Information, []byte{0, 0})), nil)
	if err != nil || len(g.Announced) != mostAnnounced || g.Announced[1].String() != "2001:db8:1::/48" || g.Announced[mostAnnounced-1].String() != "::/0" || len(g.Routes) > 0 {
		t.Errorf("%v, %v", g.Announced, err)
	}
	if _, err := grantOf(routes(mostAnnounced+1), nil); !errors.Is(err, errInvalid) {
		t.Errorf("%v", err)
	}
}

func TestTheFirstAddressOfAFamilyCounts(t *testing.T) {
	for _, c := range []struct {
		kind  uint8
		value []byte
		get   func(*granted) any
		want  string
	}{
		{typeFramedIPAddress, []byte{100, 64, 0, 7}, func(g *granted) any { return g.IPv4 }, "100.64.0.7"},
		{typeFramedIPv6Prefix, []byte{0, 64, 0x20, 1, 0x0d, 0xb8, 0, 7, 0, 0}, func(g *granted) any { return g.IPv6Prefix }, "2001:db8:7::/64"},
		{typeDelegatedIPv6Prefix, []byte{0, 48, 0x20, 1, 0x0d, 0xb8, 0, 7}, func(g *granted) any { return g.Delegated }, "2001:db8:7::/48"},
		{typeFramedIPv6Address, netip.MustParseAddr("2001:db8::7").AsSlice(), func(g *granted) any { return g.IPv6 }, "2001:db8::7"},
	} {
		second := bytes.Clone(c.value)
		second[len(second)-1]++
		g, err := grantOf([]attribute{std(c.kind, c.value), std(c.kind, second)}, nil)
		if got := fmt.Sprint(c.get(&g)); err != nil || got != c.want || len(g.unsupported) != 1 || g.unsupported[0] != std(c.kind, nil).name() {
			t.Errorf("%s, %q, %v", got, g.unsupported, err)
		}
	}
}

func TestAttributesWithoutEffectAreCounted(t *testing.T) {
	count := func(all ...attribute) int {
		g, err := grantOf(all, nil)
		if err != nil || !reflect.DeepEqual(g.Grant, subscriber.Grant{}) {
			t.Errorf("%+v %v", g.Grant, err)
		}
		return len(g.unsupported)
	}
	for _, a := range []attribute{
		std(typeFramedIPNetmask, []byte{255, 255, 255, 248}), std(typeFramedIPNetmask, []byte{1}), std(typePortLimit, u32(1)), std(typeTerminationAction, u32(1)),
		std(typeChargeableUserIdentity, []byte("c")), std(typeFramedRouting, u32(3)), std(typeFramedCompression, u32(1)),
	} {
		if count(a) != 1 {
			t.Errorf("%s %x is not counted", a.name(), a.value)
		}
	}
	// Sessions are so anyway.
	for _, a := range []attribute{
		std(typeFramedIPNetmask, []byte{255, 255, 255, 255}), std(typeTerminationAction, u32(0)), std(typeFramedRouting, u32(0)), std(typeFramedCompression, u32(0)),
		std(typeServiceType, u32(2)), std(typeFramedProtocol, u32(1)), std(typeConnectInfo, []byte("c")), std(typeEAPMessage, []byte("e")),
	} {
		if count(a) != 0 {
			t.Errorf("%s %x is counted", a.name(), a.value)
		}
	}
}

func TestThePolicysTableGoesBeforeWhatAnAttributeMeansOtherwise(t *testing.T) {
	mapping := []*api.RadiusMapping{
		{Vendor: 32473, Type: 1, Grant: api.GrantField_RATE_DOWN, Scale: 1000},
		{Vendor: vendorCisco, Type: 1, Prefix: "qos-up=", Grant: api.GrantField_METER_UP},
		{Vendor: vendorCisco, Type: 1, Prefix: "speed=", Grant: api.GrantField_RATE_UP, Scale: 1000},
		{Type: typeFilterID, Grant: api.GrantField_QOS_PROFILE},
		{Vendor: vendorMikrotik, Type: mikrotikRateLimit, Grant: api.GrantField_IGNORED},
		{Vendor: 32473, Type: 2, Grant: api.GrantField_DNS_SERVER},
	}
	g, err := grantOf([]attribute{
		of(32473, 1, u32(50_000)), cisco("qos-up=gold"), cisco("speed=2M"), cisco("ip:vrf-id=red"), std(typeFilterID, []byte("silver")),
		of(vendorMikrotik, mikrotikRateLimit, []byte("1M")), of(32473, 2, []byte{192, 0, 2, 1}), of(32473, 9, nil), of(32473, 1, []byte("x")),
	}, mapping)
	if err != nil {
		t.Fatal(err)
	}
	want := subscriber.Grant{RateDown: subscriber.Rate{BitsPerSecond: 50e6}, RateUp: subscriber.Rate{BitsPerSecond: 2e9}, MeterUp: "gold", VRF: "red",
		QosProfile: "silver", DNS: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	if !reflect.DeepEqual(g.Grant, want) {
		t.Errorf("%+v", g.Grant)
	}
	if !reflect.DeepEqual(g.unsupported, []string{"attribute 9 of vendor 32473"}) || !reflect.DeepEqual(g.unreadable, []string{"attribute 1 of vendor 32473"}) {
		t.Error(g.unsupported, g.unreadable)
	}
}

func TestTheOctetsOfAnIntegerAreNoText(t *testing.T) {
	digits := []byte("1234")
	const octets = 0x31323334
	mapping := []*api.RadiusMapping{
		{Type: typeSessionTimeout, Grant: api.GrantField_SESSION_TIMEOUT}, {Vendor: vendorHuawei, Type: huaweiInputAverageRate, Grant: api.GrantField_RATE_UP, Scale: 1000},
		{Vendor: 32473, Type: 1, Grant: api.GrantField_RATE_DOWN},
	}
	g, err := grantOf([]attribute{std(typeSessionTimeout, digits), of(vendorHuawei, huaweiInputAverageRate, digits), of(32473, 1, digits)}, mapping)
	if err != nil || len(g.unreadable) > 0 {
		t.Fatal(err, g.firstUnreadable)
	}
	if g.SessionTimeout != octets*time.Second || g.RateUp.BitsPerSecond != octets*1000 || g.RateDown.BitsPerSecond != 1234 {
		t.Error(g.SessionTimeout, g.RateUp, g.RateDown)
	}
}

func TestABurstOrASizeThatMeansNothingIsNoPartOfTheGrant(t *testing.T) {
	mapping := []*api.RadiusMapping{{Vendor: 32473, Type: 1, Grant: api.GrantField_MTU}, {Vendor: 32473, Type: 2, Grant: api.GrantField_MSS}, {Vendor: 32473, Type: 3, Grant: api.GrantField_RATE_UP}}
	g, err := grantOf([]attribute{of(vendorHuawei, huaweiInputBurstSize, u32(1e6)), of(vendorHuawei, huaweiOutputBurstSize, u32(1e6)), of(32473, 1, u32(63)), of(32473, 2, u32(65536))}, mapping)
	if err != nil || !reflect.DeepEqual(g.Grant, subscriber.Grant{}) {
		t.Errorf("%+v %v", g.Grant, err)
	}
	if want := []string{"attribute 1 of vendor 32473", "attribute 2 of vendor 32473", "Huawei-Input-Burst-Size", "Huawei-Output-Burst-Size"}; !reflect.DeepEqual(g.unreadable, want) {
		t.Error(g.unreadable)
	}
	// The burst may come first, and the rate from the table.
	g, err = grantOf([]attribute{of(vendorHuawei, huaweiInputBurstSize, u32(1e6)), of(32473, 3, u32(5e6))}, mapping)
	if err != nil || len(g.unreadable) > 0 || g.RateUp != (subscriber.Rate{BitsPerSecond: 5e6, BurstBytes: 1e6}) {
		t.Errorf("%+v %v", g.RateUp, g.firstUnreadable)
	}
}

func TestTemplatesAreFilledIn(t *testing.T) {
	r := &subscriber.Request{Protocol: "dhcp4", Profile: "home", Line: subscriber.Line{Circuit: subscriber.Circuit{Dataplane: "dp", Port: "access", OuterVLAN: 100, InnerVLAN: 7},
		MAC: subscriber.MAC{2, 0, 0, 0, 0xab, 1}, CircuitID: []byte("olt 1/2"), RemoteID: []byte("r")}, Service: "gold", Credentials: subscriber.Credentials{Username: "u"}}
	template := "{username}|{mac}|{mac-hyphens}|{mac-plain}|{dataplane}|{port}:{outer}.{inner}|{circuit-id}|{remote-id}|{service}|{profile}|{protocol}|x"
	if got := expand(template, r); got != "u|02:00:00:00:ab:01|02-00-00-00-ab-01|02000000ab01|dp|access:100.7|olt 1/2|r|gold|home|dhcp4|x" {
		t.Error(got)
	}
}

func TestAnAccessRequestSaysWhatTheSubscriberSaid(t *testing.T) {
	p := newPolicy("home", &api.RadiusPolicy{NasIpAddress: "192.0.2.1"}, "bng-1")
	r := subscriber.Request{Protocol: "pppoe", ID: "id-1", PPPoESessionID: 9, Line: subscriber.Line{Circuit: subscriber.Circuit{Port: "access", OuterVLAN: 100, InnerVLAN: 7},
		CircuitID: []byte("line 7"), Attributes: map[uint8][]byte{0x81: u32(20_000), 0x8b: u32(8), 0x82: {}, broadbandIWFSession: {}}}, Credentials: subscriber.Credentials{Username: "alice"}}
	find := func(all []attribute, vendor uint32, kind uint8) string {
		for _, a := range all {
			if a.vendor == vendor && a.kind == kind {
				return string(a.value)
			}
		}
		return "none"
	}
	read := func(all attributes) []attribute { return packet(append(make([]byte, headLength), all...)).attributes() }

	r.Credentials.CHAP = &subscriber.CHAP{Identifier: 5, Challenge: make([]byte, 16), Response: [16]byte{1}}
	a, password, err := p.accessAttributes(&r)
	all := read(a)
	if err != nil || password != nil || find(all, 0, typeCHAPPassword) != "\x05\x01"+string(make([]byte, 15)) || find(all, 0, typeCHAPChallenge) != string(make([]byte, 16)) {
		t.Error("CHAP", all, err)
	}
	for kind, want := range map[uint8]string{
		typeUserName: "alice", typeNASIdentifier: "bng-1", typeNASIPAddress: "\xc0\x00\x02\x01", typeNASPort: string(u32(9)), typeServiceType: string(u32(2)),
		typeFramedProtocol: string(u32(1)), typeNASPortType: string(u32(34)), typeNASPortID: "access:100.7", typeCallingStationID: "00:00:00:00:00:00", typeAcctSessionID: "id-1",
	} {
		if got := find(all, 0, kind); got != want {
			t.Errorf("%d: %q", kind, got)
		}
	}
	if find(all, vendorBroadband, 1) != "line 7" || find(all, vendorBroadband, 0x81) != string(u32(20_000_000)) || find(all, vendorBroadband, 0x8b) != string(u32(8)) {
		t.Error("the line's attributes are not there")
	}
	if find(all, vendorBroadband, broadbandAgentRemoteID) != "none" {
		t.Error("an Agent-Remote-Id of a line without one")
	}
	if find(all, vendorBroadband, broadbandIWFSession) != "" || find(all, vendorBroadband, 0x82) != "none" {
		t.Error("IWF-Session is not there, or a rate without a value is")
	}
	r.CHAP, r.MSCHAPv2 = nil, &subscriber.MSCHAPv2{Identifier: 6, AuthenticatorChallenge: [16]byte{1}, PeerChallenge: [16]byte{2}, Response: [24]byte{3}}
	a, _, err = p.accessAttributes(&r)
	answer := find(read(a), vendorMicrosoft, microsoftCHAP2Response)
	if err != nil || len(answer) != 50 || answer[0] != 6 || answer[2] != 2 || answer[26] != 3 || find(read(a), vendorMicrosoft, microsoftCHAPChallenge)[0] != 1 {
		t.Errorf("MS-CHAPv2: %x %v", answer, err)
	}
	r.MSCHAPv2, r.Password = nil, make([]byte, 129)
	if _, _, err = p.accessAttributes(&r); err == nil {
		t.Error("a password that does not fit is cut off in silence")
	}
	r = subscriber.Request{Protocol: "dhcp4", Line: r.Line}
	a, _, _ = p.accessAttributes(&r)
	if all := read(a); find(all, 0, typeServiceType) != string(u32(10)) || find(all, 0, typeUserName) != "00:00:00:00:00:00" || find(all, 0, typeNASPort) != string(u32(100<<12|7)) {
		t.Error("a line without credentials", all)
	}
}

func TestAnAccountingRequestCountsBeyond32Bits(t *testing.T) {
	p := newPolicy("home", &api.RadiusPolicy{}, "bng-1")
	r := subscriber.Record{Kind: subscriber.Stop, At: began.Add(time.Hour), Since: began, Request: subscriber.Request{ID: "id-1"}, Cause: subscriber.IdleTimeout,
		Grant: subscriber.Grant{Class: [][]byte{[]byte("a"), []byte("b")}, Username: "alice@isp"}, UpBytes: 5<<32 | 7, DownBytes: 9, UpPackets: 1<<32 | 2, DownPackets: 3,
		Lease: subscriber.Lease{IPv4: netip.MustParseAddr("100.64.0.7"), IPv6Prefix: netip.MustParsePrefix("2001:db8::/64"), Delegated: netip.MustParsePrefix("2001:db8:1::/56")}}
	got := map[uint64][]string{}
	for _, a := range packet(append(make([]byte, headLength), p.accountingAttributes(&r)...)).attributes() {
		key := uint64(a.vendor)<<8 | uint64(a.kind)
		got[key] = append(got[key], string(a.value))
	}
	for key, want := range map[uint64][]string{
		typeAcctStatusType: {string(u32(2))}, typeAcctInputOctets: {string(u32(7))}, typeAcctInputGigawords: {string(u32(5))}, typeAcctOutputOctets: {string(u32(9))},
		typeAcctOutputGigawords: {string(u32(0))}, typeAcctInputPackets: {string(u32(2))}, vendorJuniperERX<<8 | erxInputGigapackets: {string(u32(1))},
		typeAcctOutputPackets: {string(u32(3))}, typeAcctSessionTime: {string(u32(3600))}, typeAcctTerminateCause: {string(u32(4))}, typeClass: {"a", "b"},
		typeEventTimestamp: {string(u32(uint32(began.Unix()) + 3600))}, typeUserName: {"alice@isp"}, typeFramedIPAddress: {"\x64\x40\x00\x07"},
		typeFramedIPv6Prefix: {"\x00\x40\x20\x01\x0d\xb8\x00\x00\x00\x00"}, typeDelegatedIPv6Prefix: {"\x00\x38\x20\x01\x0d\xb8\x00\x01\x00"},
	} {
		if !reflect.DeepEqual(got[key], want) {
			t.Errorf("%d: %q, not %q", key, got[key], want)
		}
	}
}

func TestANameServerBeyondTheFourthIsNamed(t *testing.T) {
	var all attributes
	for i := range byte(5) {
		all.vendor(vendorMicrosoft, microsoftPrimaryDNS, []byte{192, 0, 2, 50 + i})
	}
	p := packet(append(newPacket(AccessAccept, 1, authenticator{}), all...).withLength())
	g, err := grantOf(p.attributes(), nil)
	if err != nil || len(g.DNS) != mostDNS {
		t.Fatal(err, g.DNS)
	}
	if len(g.unusable) != 1 || g.unusable[0].name != "MS-Primary-DNS-Server" || !strings.Contains(g.unusable[0].err.Error(), "192.0.2.54 is one name server more than 4") {
		t.Error(g.unusable)
	}
}
