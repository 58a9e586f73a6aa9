// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of QosGroup, QosProfile, and of Sessions with queues, that annotations cannot express.
package rules

import (
	"strconv"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.QosGroup]{Check: checkQosGroup},
	object.Rules[*api.QosProfile]{Check: checkQosProfile},
	object.Rules[*api.Session]{Check: checkStep},
}

func checkStep(s *api.Session, add object.Report) {
	CheckPair(s.Policy.GetQosProfile(), s.Policy.GetQosGroup(), "", add)
	CheckPair(s.Policy.GetQosProfileUp(), s.Policy.GetQosGroupUp(), "Up", add)
}

// checkQosPeak: no peak rate is below the guaranteed rate.
func checkQosPeak(path string, committed, peak uint64, add object.Report) {
	if peak != 0 && peak < committed {
		add(path+"peakRate", "less than committedRate", object.FormatNumber(api.Unit_BITS_PER_SECOND, peak),
			"at least "+object.FormatNumber(api.Unit_BITS_PER_SECOND, committed))
	}
}

func checkQosGroup(g *api.QosGroup, add object.Report) {
	checkQosPeak("", g.CommittedRate, g.PeakRate, add)
}

// checkQosProfile: each name belongs to one class, each packet matches one class, and a drop policy has exactly the
// fields that it needs.
func checkQosProfile(p *api.QosProfile, add object.Report) {
	checkQosPeak("", p.CommittedRate, p.PeakRate, add)
	names, taken := map[string]bool{}, map[string]string{}
	for i, c := range p.Classes {
		path := "classes[" + strconv.Itoa(i) + "]."
		switch {
		case len(c.Name) > 31:
			add(path+"name", "too long", object.Quote(c.Name), "1 to 31 characters")
		case names[c.Name]:
			add(path+"name", "duplicate name", object.Quote(c.Name), "each class with a name of its own")
		}
		names[c.Name] = true
		checkQosPeak(path, c.CommittedRate, c.PeakRate, add)
		checkQosDrops(path, c, add)
		claim := func(field string, at int, what, found string) {
			if other, there := taken[what]; there {
				add(path+"match."+field+"["+strconv.Itoa(at)+"]", "already class "+other+"'s", found, "each value in one class")
			}
			taken[what] = c.Name
		}
		for at, qfi := range c.GetMatch().GetQfis() {
			if qfi == 0 {
				add(path+"match.qfis["+strconv.Itoa(at)+"]", "no QFI", "0", "1 to 63")
				continue
			}
			claim("qfis", at, "QFI "+strconv.Itoa(int(qfi)), strconv.Itoa(int(qfi)))
		}
		for at, written := range c.GetMatch().GetDscp() {
			value, _ := object.Canonical(api.Format_DSCP, written)
			claim("dscp", at, "DSCP "+value, object.Quote(written))
		}
		for at, priority := range c.GetMatch().GetVlanPriorities() {
			if priority > 7 {
				add(path+"match.vlanPriorities["+strconv.Itoa(at)+"]", "out of range", strconv.Itoa(int(priority)), "0 to 7")
				continue
			}
			claim("vlanPriorities", at, "priority "+strconv.Itoa(int(priority)), strconv.Itoa(int(priority)))
		}
	}
}

func checkQosDrops(path string, c *api.QosClass, add object.Report) {
	const queueLength, seconds = 64, "5ms within 100ms"
	if w := c.Wred; w != nil && c.DropPolicy != api.QosDropPolicy_WRED {
		add(path+"wred", "not used by this drop policy", "", "no value, or dropPolicy wred")
	} else if w != nil {
		length := c.QueueLength
		if length == 0 {
			length = queueLength
		}
		least, most := w.Min, w.Max
		if least == 0 {
			least = max(length/4, 1)
		}
		if most == 0 {
			most = max(length*3/4, least+1)
		}
		if most <= least {
			add(path+"wred.max", "not more than wred.min", strconv.Itoa(int(most)), "at least "+strconv.Itoa(int(least)+1))
		}
	}
	if d := c.Codel; d != nil && c.DropPolicy != api.QosDropPolicy_CODEL {
		add(path+"codel", "not used by this drop policy", "", "no value, or dropPolicy codel")
	} else if d != nil {
		target, interval := d.Target, d.Interval
		if target == 0 {
			target = 5e6
		}
		if interval == 0 {
			interval = 100e6
		}
		if interval < target {
			add(path+"codel.interval", "less than codel.target", object.FormatNumber(api.Unit_NANOSECONDS, interval),
				"at least the target, such as "+seconds)
		}
	}
}

// CheckPair: queues need a profile and a group.
func CheckPair(profile, group, up string, add object.Report) {
	switch {
	case profile != "" && group == "":
		add("policy.qosGroup"+up, object.Missing, "", "the name of a QosGroup with policy.qosProfile"+up)
	case profile == "" && group != "":
		add("policy.qosProfile"+up, object.Missing, "", "the name of a QosProfile with policy.qosGroup"+up)
	}
}
