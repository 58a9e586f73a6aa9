// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func TestMistakesOfSubscriberKindsNameTheirField(t *testing.T) {
	registry, err := object.NewRegistry(Rules)
	if err != nil {
		t.Fatal(err)
	}
	pool := func(change func(*api.AddressPool)) proto.Message {
		p := &api.AddressPool{Ranges: []string{"100.64.0.0/22"}}
		change(p)
		return p
	}
	six := func(length uint32, ranges ...string) proto.Message {
		return &api.AddressPool{Ranges: ranges, PrefixLength: length}
	}
	profile := func(change func(*api.SubscriberProfile)) proto.Message {
		p := &api.SubscriberProfile{Authentication: []string{"radius", "local", "none"}, Accounting: []string{"radius"}, Ipv4Pools: []string{"home"}}
		change(p)
		return p
	}
	user := func(change func(*api.LocalUser)) proto.Message {
		u := &api.LocalUser{Username: "alice"}
		change(u)
		return u
	}
	for _, c := range []struct {
		field string
		spec  proto.Message
	}{
		{"", pool(func(p *api.AddressPool) {
			p.Ranges = append(p.Ranges, "100.65.0.9", "100.65.0.10-100.65.0.20")
			p.Gateway, p.Excluded = "100.64.0.1", []string{"100.64.0.2-100.64.0.9"}
		})},
		{"ranges", pool(func(p *api.AddressPool) { p.Ranges = nil })},
		{"ranges[0]", pool(func(p *api.AddressPool) { p.Ranges[0] = "100.64.0.1/22" })},
		{"ranges[0]", pool(func(p *api.AddressPool) { p.Ranges[0] = "100.64.0.9-100.64.0.1" })},
		{"ranges[0]", pool(func(p *api.AddressPool) { p.Ranges[0] = "100.64.0.9-2001:db8::1" })},
		{"ranges[0]", pool(func(p *api.AddressPool) { p.Ranges[0] = "home" })},
		{"ranges[0]", pool(func(p *api.AddressPool) { p.Ranges[0] = "224.0.0.0/24" })},
		{"ranges[1]", pool(func(p *api.AddressPool) { p.Ranges = append(p.Ranges, "2001:db8::/64") })},
		{"ranges[1]", pool(func(p *api.AddressPool) { p.Ranges = append(p.Ranges, "100.64.3.255-100.64.4.7") })},
		{"prefixLength", pool(func(p *api.AddressPool) { p.PrefixLength = 28 })},
		{"excluded[0]", pool(func(p *api.AddressPool) { p.Excluded = []string{"2001:db8::1"} })},
		{"gateway", pool(func(p *api.AddressPool) { p.Gateway = "2001:db8::1" })},
		{"", six(0, "2001:db8::/64")},
		{"", six(56, "2001:db8::/40")},
		{"ranges[0]", six(56, "2001:db8::1-2001:db8::9")},
		{"ranges[0]", six(56, "2001:db8::/60")},
		{"ranges[0]", six(64, "fe80::/48")},
		{"", profile(func(p *api.SubscriberProfile) {
			p.Username = "{port}:{outer}.{inner}"
		})},
		{"authentication[1]", profile(func(p *api.SubscriberProfile) { p.Authentication = []string{"local", "tacacs"} })},
		{"authentication[1]", profile(func(p *api.SubscriberProfile) { p.Authentication = []string{"local", "local"} })},
		{"authentication[0]", profile(func(p *api.SubscriberProfile) { p.Authentication = []string{"none", "local"} })},
		{"accounting[0]", profile(func(p *api.SubscriberProfile) { p.Accounting = []string{"none"} })},
		{"ipv4Pools[1]", profile(func(p *api.SubscriberProfile) { p.Ipv4Pools = []string{"a", "a"} })},
		{"username", profile(func(p *api.SubscriberProfile) { p.Username = "{line}" })},
		{"gateway", profile(func(p *api.SubscriberProfile) { p.Gateway = "2001:db8::1" })},
		{"", user(func(u *api.LocalUser) { u.Password, u.Ipv4Address, u.Ipv6Prefix = "x", "100.64.7.7", "2001:db8::/64" })},
		{"username", user(func(u *api.LocalUser) { u.Username = "" })},
		{"password", user(func(u *api.LocalUser) { u.Password = strings.Repeat("x", 129) })},
		{"ipv4Address", user(func(u *api.LocalUser) { u.Ipv4Address = "2001:db8::1" })},
		{"ipv6Prefix", user(func(u *api.LocalUser) { u.Ipv6Prefix = "192.0.2.0/24" })},
		{"routes[0]", user(func(u *api.LocalUser) { u.Routes = []string{"0.0.0.0/0"} })},
		{"routes[1]", user(func(u *api.LocalUser) { u.Routes = []string{"192.0.2.0/24", "192.0.2.0/24"} })},
	} {
		errs := registry.Check(&object.Object{Kind: string(c.spec.ProtoReflect().Descriptor().Name()), Name: "it", Spec: c.spec})
		switch {
		case c.field == "" && len(errs) > 0:
			t.Errorf("%v: %v", c.spec, errs)
		case c.field != "" && (len(errs) == 0 || errs[0].Field != c.field):
			t.Errorf("%v: %v, not of %s", c.spec, errs, c.field)
		}
	}
}

func TestAQosProfileWithoutAGroupIsOfNoUseToMostSubscribers(t *testing.T) {
	registry, err := object.NewRegistry(Rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		policy *api.Policy
		want   []string
	}{
		{nil, nil},
		{&api.Policy{QosProfile: "basic"}, []string{"policy.qosGroup"}},
		{&api.Policy{QosProfileUp: "basic"}, []string{"policy.qosGroupUp"}},
		{&api.Policy{QosProfile: "basic", QosGroup: "street", QosProfileUp: "basic", QosGroupUp: "core"}, nil},
		// A core names the profile.
		{&api.Policy{QosGroup: "street"}, nil},
	} {
		o := &object.Object{Kind: "SubscriberProfile", Name: "home", Spec: &api.SubscriberProfile{Authentication: []string{"local"}, Policy: c.policy}}
		var got []string
		registry.Warn(o, func(field, _, _, _ string) { got = append(got, field) })
		if errs := registry.Check(o); len(errs) > 0 || !slices.Equal(got, c.want) {
			t.Errorf("%v: warnings about %v, errors %v", c.policy, got, errs)
		}
	}
}

func TestAProfileMovesLinesIfItsSessionsAreOfAnotherKindThanBefore(t *testing.T) {
	of := func(authentication, authorization string) *api.SubscriberProfile {
		return &api.SubscriberProfile{Authentication: strings.Fields(authentication), Authorization: strings.Fields(authorization)}
	}
	for _, c := range []struct {
		before, after *api.SubscriberProfile
		moves         bool
	}{
		{of("", ""), of("core", ""), true},
		{of("core", ""), of("", ""), true},
		{of("radius", ""), of("radius", "core"), true},
		{of("radius", "core"), of("radius", ""), true},
		{of("core", ""), of("radius", "core"), false},
		{of("radius", ""), of("local none", ""), false},
		// Either may give a session: those that are up stay.
		{of("radius", ""), of("radius core", ""), false},
		{of("core", ""), of("core local", ""), false},
		{of("core local", ""), of("core", ""), true},
	} {
		if moves := Moves(c.before, c.after); moves != c.moves {
			t.Errorf("%v to %v: %t", c.before, c.after, moves)
		}
	}
}
