package object

import (
	"strconv"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// checkQosPeak: nobody's peak rate is less than what he is promised.
func checkQosPeak(path string, committed, peak uint64, add report) {
	if peak != 0 && peak < committed {
		add(path+"peakRate", "less than committedRate", FormatNumber(api.Unit_BITS_PER_SECOND, peak),
			"at least "+FormatNumber(api.Unit_BITS_PER_SECOND, committed))
	}
}

func checkQosGroup(spec proto.Message, add report) {
	if g, ok := spec.(*api.QosGroup); ok {
		checkQosPeak("", g.CommittedRate, g.PeakRate, add)
	}
}

// checkQosProfile: that names are of one class each, that a packet is of one class, and that what a drop policy needs is there and
// nothing else.
func checkQosProfile(spec proto.Message, add report) {
	p, ok := spec.(*api.QosProfile)
	if !ok {
		return
	}
	checkQosPeak("", p.CommittedRate, p.PeakRate, add)
	names, taken := map[string]bool{}, map[string]string{}
	for i, c := range p.Classes {
		path := "classes[" + strconv.Itoa(i) + "]."
		switch {
		case len(c.Name) > 31:
			add(path+"name", "too long", quote(c.Name), "1 to 31 characters")
		case names[c.Name]:
			add(path+"name", "there twice", quote(c.Name), "each class with a name of its own")
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
			value, _ := canonical(api.Format_DSCP, written)
			claim("dscp", at, "DSCP "+value, quote(written))
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

func checkQosDrops(path string, c *api.QosClass, add report) {
	const queueLength, seconds = 64, "5ms within 100ms"
	if w := c.Wred; w != nil && c.DropPolicy != api.QosDropPolicy_WRED {
		add(path+"wred", "not used by this drop policy", "", "to leave it out, or dropPolicy wred")
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
		add(path+"codel", "not used by this drop policy", "", "to leave it out, or dropPolicy codel")
	} else if d != nil {
		target, interval := d.Target, d.Interval
		if target == 0 {
			target = 5e6
		}
		if interval == 0 {
			interval = 100e6
		}
		if interval < target {
			add(path+"codel.interval", "less than codel.target", FormatNumber(api.Unit_NANOSECONDS, interval),
				"at least the target, such as "+seconds)
		}
	}
}

// checkQosPair: queues need a profile and a group.
func checkQosPair(profile, group, up string, add report) {
	switch {
	case profile != "" && group == "":
		add("policy.qosGroup"+up, missing, "", "the name of a QosGroup beside policy.qosProfile"+up)
	case profile == "" && group != "":
		add("policy.qosProfile"+up, missing, "", "the name of a QosProfile beside policy.qosGroup"+up)
	}
}
