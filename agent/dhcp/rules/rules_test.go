// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	punt "sluice.dev/sluice/agent/punt/rules"
)

func TestMistakesOfPuntsAndDhcpRelaysNameTheirField(t *testing.T) {
	registry, err := object.NewRegistry(Rules, punt.Rules)
	if err != nil {
		t.Fatal(err)
	}
	punt := func(change func(*api.Punt)) proto.Message {
		p := &api.Punt{Port: "access", Protocols: []api.PuntProtocol{api.PuntProtocol_DHCP4}}
		change(p)
		return p
	}
	relay := func(change func(*api.DhcpRelay)) proto.Message {
		r := &api.DhcpRelay{Port: "access", Servers: []string{"192.0.2.53"}, Giaddr: "100.64.0.1"}
		change(r)
		return r
	}
	option := func(o *api.DhcpOptionRule) {
		o.Code, o.Action, o.Text = 60, api.DhcpOptionAction_REPLACE_OPTION, "{port}"
	}
	rules := func(change func(*api.DhcpOptionRule)) []*api.DhcpOptionRule {
		o := &api.DhcpOptionRule{}
		change(o)
		return []*api.DhcpOptionRule{o}
	}
	for _, c := range []struct {
		field string
		spec  proto.Message
	}{
		{"", punt(func(*api.Punt) {})},
		{"", relay(func(*api.DhcpRelay) {})},
		{"", relay(func(r *api.DhcpRelay) { r.CircuitId = "{port}-{outer}.{inner} of {relay}, {mac}" })},
		{"", relay(func(r *api.DhcpRelay) { r.Servers, r.LinkAddress = append(r.Servers, "2001:db8::53"), "2001:db8::1" })},
		{"", relay(func(r *api.DhcpRelay) { r.Giaddr, r.Interface = "", "gateway" })},
		{"innerVlans", punt(func(p *api.Punt) { p.InnerVlans = []string{"7"} })},
		{"protocols[1]", punt(func(p *api.Punt) { p.Protocols = append(p.Protocols, p.Protocols[0]) })},
		{"protocols", punt(func(p *api.Punt) { p.Protocols = nil })},
		{"outerVlans[0]", punt(func(p *api.Punt) { p.OuterVlans = []string{"0-9"} })},
		{"innerVlans", relay(func(r *api.DhcpRelay) { r.InnerVlans = []string{"7"} })},
		{"servers", relay(func(r *api.DhcpRelay) { r.Servers = nil })},
		{"servers[1]", relay(func(r *api.DhcpRelay) { r.Servers = append(r.Servers, r.Servers[0]) })},
		{"servers[0]", relay(func(r *api.DhcpRelay) { r.Servers[0] = "224.0.0.1" })},
		{"servers[0]", relay(func(r *api.DhcpRelay) { r.Servers[0] = "fe80::1"; r.LinkAddress = "2001:db8::1" })},
		{"giaddr", relay(func(r *api.DhcpRelay) { r.Giaddr = "" })},
		{"giaddr", relay(func(r *api.DhcpRelay) { r.Giaddr = "2001:db8::1" })},
		{"linkAddress", relay(func(r *api.DhcpRelay) { r.Servers = append(r.Servers, "2001:db8::53") })},
		{"linkAddress", relay(func(r *api.DhcpRelay) { r.LinkAddress = "fe80::1" })},
		{"", relay(func(r *api.DhcpRelay) { r.Profile = "home" })},
		{"policy", relay(func(r *api.DhcpRelay) { r.Profile, r.Policy = "home", &api.Policy{} })},
		{"circuitId", relay(func(r *api.DhcpRelay) { r.CircuitId = "{line}" })},
		{"circuitId", relay(func(r *api.DhcpRelay) { r.CircuitId = "{port" })},
		{"circuitId", relay(func(r *api.DhcpRelay) { r.CircuitId = "port}" })},
		{"remoteId", relay(func(r *api.DhcpRelay) { r.RemoteId = strings.Repeat("x", 129) })},
		{"", relay(func(r *api.DhcpRelay) { r.Uplink, r.Options = "core", rules(option) })},
		{"", relay(func(r *api.DhcpRelay) { r.Servers, r.Giaddr, r.Uplink = nil, "", "core" })},
		{"uplink", relay(func(r *api.DhcpRelay) {
			r.Servers, r.LinkAddress, r.Uplink = append(r.Servers, "2001:db8::53"), "2001:db8::1", "core"
		})},
		{"linkAddress", relay(func(r *api.DhcpRelay) { r.LinkAddress, r.Uplink = "2001:db8::1", "core" })},
		{"options[0].code", relay(func(r *api.DhcpRelay) { r.Options = rules(func(o *api.DhcpOptionRule) { option(o); o.Code = 0 }) })},
		{"options[0].code", relay(func(r *api.DhcpRelay) { r.Options = rules(func(o *api.DhcpOptionRule) { option(o); o.Code = 255 }) })},
		{"options[0].code", relay(func(r *api.DhcpRelay) { r.Options = rules(func(o *api.DhcpOptionRule) { option(o); o.Code = 53 }) })},
		{"options[0].code", relay(func(r *api.DhcpRelay) { r.Options = rules(func(o *api.DhcpOptionRule) { option(o); o.Code = 82 }) })},
		{"options[0].code", relay(func(r *api.DhcpRelay) {
			r.Options = rules(func(o *api.DhcpOptionRule) { option(o); o.Code, o.Direction = 61, api.DhcpDirection_TO_CLIENT })
		})},
		{"options[1].code", relay(func(r *api.DhcpRelay) { r.Options = append(rules(option), rules(option)...) })},
		{"options[0].action", relay(func(r *api.DhcpRelay) { r.Options = rules(func(o *api.DhcpOptionRule) { option(o); o.Action = 0 }) })},
		{"options[0].text", relay(func(r *api.DhcpRelay) { r.Options = rules(func(o *api.DhcpOptionRule) { option(o); o.Text = "" }) })},
		{"options[0].text", relay(func(r *api.DhcpRelay) {
			r.Options = rules(func(o *api.DhcpOptionRule) { option(o); o.Text = "{line}" })
		})},
		{"options[0].hex", relay(func(r *api.DhcpRelay) { r.Options = rules(func(o *api.DhcpOptionRule) { option(o); o.Hex = "00" }) })},
		{"options[0].hex", relay(func(r *api.DhcpRelay) {
			r.Options = rules(func(o *api.DhcpOptionRule) { option(o); o.Text, o.Hex = "", "0" })
		})},
		{"options[2]", relay(func(r *api.DhcpRelay) {
			for code := range uint32(3) {
				r.Options = append(r.Options, rules(func(o *api.DhcpOptionRule) {
					option(o)
					o.Code, o.Text, o.Hex = 200+code, "", strings.Repeat("00", 255)
				})...)
			}
		})},
		{"policy.qosGroup", relay(func(r *api.DhcpRelay) { r.Policy = &api.Policy{QosProfile: "home"} })},
	} {
		errs := registry.Check(&object.Object{Kind: string(c.spec.ProtoReflect().Descriptor().Name()), Name: "it", Spec: c.spec})
		switch {
		case c.field == "" && len(errs) > 0:
			t.Errorf("%v: %v", c.spec, errs)
		case c.field != "" && (len(errs) != 1 || errs[0].Field != c.field):
			t.Errorf("%v: %v, and not %s alone", c.spec, errs, c.field)
		}
	}
}
