// SPDX-License-Identifier: Apache-2.0

package qosflow

import (
	"net/netip"
	"strconv"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
)

// Profile is the FlowProfile of flows with their marks and meters. Rules assign uplink packets to flows; nil: the subscriber's equipment does.
func Profile(rules *nas.QoS, flows map[uint8]Flow, marks map[uint32]Mark, l *Limits) *api.FlowProfile {
	profile := &api.FlowProfile{OtherMetersUp: l.otherUp, OtherMetersDown: l.otherDown}
	for _, f := range Sorted(flows) {
		mark := marks[f.FiveQI]
		one := &api.QosFlow{Qfi: uint32(f.QFI), Class: mark.Class, Priority: mark.Priority, Dscp: mark.DSCP}
		one.MetersUp, one.MetersDown = l.Of(f.QFI)
		profile.Flows = append(profile.Flows, one)
	}
	if rules == nil {
		return profile
	}
	for _, r := range rules.Sorted() {
		if _, exists := flows[r.QFI]; !exists {
			continue
		}
		rule := &api.QosRule{Precedence: uint32(r.Precedence), Qfi: uint32(r.QFI)}
		for i := range r.Filters {
			// Downlink, the UPF classifies (TS 23.501 section 5.7.1.5).
			if f := &r.Filters[i]; f.Direction != nas.Downlink {
				rule.Filters = append(rule.Filters, filterOf(f))
			}
		}
		if len(rule.Filters) > 0 || len(r.Filters) == 0 {
			profile.Rules = append(profile.Rules, rule)
		}
	}
	return profile
}

// Needed: a session with this profile is not as one without. One flow without marks and meters is the session itself.
func Needed(profile *api.FlowProfile, l *Limits) bool {
	if len(profile.Flows) != 1 || len(l.Meters) > 0 {
		return true
	}
	only := profile.Flows[0]
	return only.Class != 0 || only.Priority != 0 || only.Dscp != "" && only.Dscp != "cs0"
}

func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return ""
	}
	return p.String()
}

func portText(p *[2]uint16) string {
	switch {
	case p == nil:
		return ""
	case p[0] == p[1]:
		return strconv.Itoa(int(p[0]))
	}
	return strconv.Itoa(int(p[0])) + "-" + strconv.Itoa(int(p[1]))
}

// filterOf is a filter for uplink packets.
func filterOf(f *nas.PacketFilter) *api.PacketFilter {
	one := &api.PacketFilter{Remote: prefixText(f.Remote), Local: prefixText(f.Local), RemotePorts: portText(f.RemotePorts), LocalPorts: portText(f.LocalPorts),
		Direction: api.FilterDirection_UPLINK}
	if f.Protocol != nil {
		one.Protocol = strconv.Itoa(int(*f.Protocol))
	}
	// Of the traffic class, the filter has the code point.
	if f.Class != nil && f.Class[1]&0xfc == 0xfc {
		one.Dscp = strconv.Itoa(int(f.Class[0] >> 2))
	}
	if f.SPI != nil {
		one.Spi = *f.SPI
	}
	if f.FlowLabel != nil {
		one.FlowLabel = *f.FlowLabel
	}
	return one
}
