// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/object"
)

// AppendCircuit appends the key of packets without PPPoE.
func AppendCircuit(b []byte, port string, outer, inner uint32) []byte {
	b = append(append(b, "port "...), port...)
	if outer == 0 {
		return append(b, ", untagged"...)
	}
	b = strconv.AppendUint(append(b, ", VLAN "...), uint64(outer), 10)
	if inner != 0 {
		b = strconv.AppendUint(append(b, '.'), uint64(inner), 10)
	}
	return b
}

// CheckVLANs reports an inner VLAN without an outer one. The path is that of the fields, with a dot behind it, or empty.
func CheckVLANs(outer, inner uint32, path string, add object.Report) {
	if inner != 0 && outer == 0 {
		add(path+"innerVlan", "an inner VLAN without an outer one", strconv.Itoa(int(inner)), path+"outerVlan, too; or "+path+"outerVlan instead")
	}
}

// CheckVLANRanges reports innerVlans without outerVlans, and VLANs that a list has twice.
func CheckVLANRanges(outer, inner []string, add object.Report) {
	checkApart("outerVlans", outer, add)
	checkApart("innerVlans", inner, add)
	if len(inner) > 0 && len(outer) == 0 {
		add("innerVlans", "inner VLANs without outer ones", object.Quote(inner[0]), "outerVlans, too; or outerVlans instead")
	}
}

func checkApart(field string, ranges []string, add object.Report) {
	for i, written := range ranges {
		first, last := vlanRange(written)
		for _, other := range ranges[:i] {
			if from, to := vlanRange(other); first <= to && from <= last && from <= to {
				add(field+"["+strconv.Itoa(i)+"]", "has VLANs of "+object.Quote(other), object.Quote(written), "each VLAN once")
				break
			}
		}
	}
}

// Circuits are those of a server: of a port, or of VLANs of a port (VLAN_RANGE). No other server has the same protocol there.
type Circuits struct {
	Port         string
	Outer, Inner []string
	// As words for messages: "PPPoE".
	Protocols []string
}

const singleTag = "a single tag"

// Claim takes the circuits.
func (s Circuits) Claim(c *object.Claimer) {
	c.Apart = true
	part, field := singleTag, "outerVlans"
	if len(s.Outer) == 0 {
		part, field = "", "port"
	} else if len(s.Inner) > 0 {
		part = "inner VLANs " + strings.Join(s.Inner, " and ")
	}
	s.each(func(circuit, protocol string) {
		c.Take(append(append(c.Words(circuit), ", "...), protocol...), part, field, -1)
	})
}

// Shared returns the inner VLANs, which other servers of the outer VLANs must not have; nil: none.
func (s Circuits) Shared() *object.Shared {
	if len(s.Inner) == 0 {
		return nil
	}
	shared := &object.Shared{Accepted: "VLANs that no other server of this protocol has"}
	s.each(func(circuit, protocol string) { shared.Of = append(shared.Of, circuit+", "+protocol) })
	for i, written := range s.Inner {
		first, last := vlanRange(written)
		shared.Ranges = append(shared.Ranges, object.HeldRange{First: first, Last: last, Text: written, Field: "innerVlans[" + strconv.Itoa(i) + "]"})
	}
	return shared
}

// Within reports whether all circuits are also those of another server.
func (s Circuits) Within(other Circuits) bool {
	return s.Port == other.Port && within(s.Outer, other.Outer) && within(s.Inner, other.Inner)
}

func within(some, all []string) bool {
	if len(some) == 0 || len(all) == 0 {
		return len(some) == len(all)
	}
	var has [4095]bool
	for _, written := range all {
		for first, last := vlanRange(written); first <= last; first++ {
			has[first] = true
		}
	}
	for _, written := range some {
		for first, last := vlanRange(written); first <= last; first++ {
			if !has[first] {
				return false
			}
		}
	}
	return true
}

// each calls f for each outer VLAN, or for the port without VLANs, with each protocol.
func (s Circuits) each(f func(circuit, protocol string)) {
	var seen [4095]bool
	one := func(vlan int) {
		if !seen[vlan] {
			seen[vlan] = true
			circuit := string(AppendCircuit(nil, s.Port, uint32(vlan), 0))
			for _, protocol := range s.Protocols {
				f(circuit, protocol)
			}
		}
	}
	if len(s.Outer) == 0 {
		one(0)
	}
	for _, written := range s.Outer {
		first, last := vlanRange(written)
		for vlan := first; vlan <= last; vlan++ {
			one(vlan)
		}
	}
}

// vlanRange reads an acceptable VLAN_RANGE; of another one, no VLAN is in it.
func vlanRange(written string) (first, last int) {
	from, to, is := strings.Cut(written, "-")
	if !is {
		to = from
	}
	first, err := strconv.Atoi(from)
	last, wrong := strconv.Atoi(to)
	if err != nil || wrong != nil || first < 1 || last > 4094 {
		return 1, 0
	}
	return first, last
}
