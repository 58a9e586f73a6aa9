// SPDX-License-Identifier: Apache-2.0

// Attributes that the agent cannot honour: unknown ones, malformed ones, and names of objects that do not exist.
package radius

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/subscriber"
)

// namedKinds are the kinds of objects that attributes name.
var namedKinds = []string{"Acl", "AddressPool", "FlowProfile", "Meter", "Portal", "QosGroup", "QosProfile", "SubscriberProfile", "Vrf"}

// defaultVRF is there without an object.
const defaultVRF = "default"

// unusable is an attribute that cannot be honoured. broken: it is malformed and of the standard, or names an object that does not exist.
type unusable struct {
	name   string
	err    error
	broken bool
}

// whom is the subscriber that an attribute is for. Empty fields are not known; address is of a CoA-Request that names no more.
type whom struct{ username, circuit, address string }

func (w whom) String() string {
	text := cmp.Or(w.username, w.address)
	if w.circuit != "" {
		text = strings.TrimSpace(text + " on " + w.circuit)
	}
	return text
}

var errUnknown = errors.New("the agent does not know it")

// reference is a field of a grant that names an object.
type reference struct {
	kind string
	name *string
}

func referencesOf(g *subscriber.Grant) [12]reference {
	return [...]reference{{"Vrf", &g.VRF}, {"Acl", &g.ACLUp}, {"Acl", &g.ACLDown}, {"Meter", &g.MeterUp}, {"Meter", &g.MeterDown},
		{"QosProfile", &g.QosProfile}, {"QosProfile", &g.QosProfileUp}, {"QosGroup", &g.QosGroup}, {"QosGroup", &g.QosGroupUp},
		{"FlowProfile", &g.FlowProfile}, {"SubscriberProfile", &g.Profile}, {"Portal", &g.Redirect}}
}

func poolsOf(g *subscriber.Grant) [3]*[]string {
	return [...]*[]string{&g.IPv4Pools, &g.IPv6Pools, &g.DelegatedPools}
}

// key is the object that a reference names. ok is false of none, of the VRF that is always there, and of a URL of a Portal.
func (r reference) key() (k object.Key, ok bool) {
	if r.name == nil || *r.name == "" || *r.name == subscriber.Clear || r.kind == "Vrf" && *r.name == defaultVRF || r.kind == "Portal" && strings.Contains(*r.name, "/") {
		return k, false
	}
	return object.Key{Kind: r.kind, Name: *r.name}, true
}

// note remembers which attribute named the objects of a grant that no attribute before it named.
func (g *granted) note(a attribute) {
	add := func(k object.Key) {
		if _, there := g.origins[k]; !there {
			if g.origins == nil {
				g.origins = map[object.Key]string{}
			}
			g.origins[k] = a.name()
		}
	}
	for _, r := range referencesOf(&g.Grant) {
		if k, ok := r.key(); ok {
			add(k)
		}
	}
	for _, pools := range poolsOf(&g.Grant) {
		for _, name := range *pools {
			add(object.Key{Kind: "AddressPool", Name: name})
		}
	}
}

// dropMissing removes names of objects that do not exist from the grant, and returns their attributes.
func (g *granted) dropMissing(exists func(object.Key) bool) (all []unusable) {
	missing := func(k object.Key) bool {
		if exists(k) {
			return false
		}
		u := unusable{g.origins[k], fmt.Errorf("%s does not exist", k), true}
		if !slices.ContainsFunc(all, func(other unusable) bool { return other.name == u.name && other.err.Error() == u.err.Error() }) {
			all = append(all, u)
		}
		return true
	}
	for _, r := range referencesOf(&g.Grant) {
		if k, ok := r.key(); ok && missing(k) {
			*r.name = ""
		}
	}
	for _, pools := range poolsOf(&g.Grant) {
		*pools = slices.DeleteFunc(*pools, func(name string) bool { return missing(object.Key{Kind: "AddressPool", Name: name}) })
	}
	return all
}

// exists reports whether an object is configured. s.mu is held.
func (s *radius) exists(k object.Key) bool { return s.named[k] }

// judge applies the policy's rule to the attributes of an Access-Accept. An error refuses the subscriber. s.mu is held.
func (s *radius) judge(p *policy, g *granted, malformed error, from string, who func() whom) error {
	all := append(g.unusable, g.dropMissing(s.exists)...)
	rule := p.spec.AttributeRule
	var refusal error
	for _, u := range all {
		if refusal == nil && (rule == api.AttributeRule_REFUSE_ANY || rule == api.AttributeRule_REFUSE_BROKEN && u.broken) {
			refusal = fmt.Errorf("%s: %w", u.name, u.err)
		}
	}
	// A service that there is not is a rejection by any rule (RFC 2865 section 5.6).
	if malformed != nil && (rule != api.AttributeRule_REFUSE_NONE || errors.Is(malformed, errService)) {
		refusal = malformed
	}
	s.reportUnusable(p.name, from, all, refusal != nil, who)
	return refusal
}

// reportUnusable makes an event of each attribute that cannot be honoured, at most one a minute for each attribute of a policy: it names the
// first subscriber. s.mu is held.
func (s *radius) reportUnusable(policy, from string, all []unusable, refused bool, who func() whom) {
	state := "ignored"
	if refused {
		state = "refused"
	}
	for _, u := range all {
		if s.Intent == nil || !s.seldom("event "+policy+" "+state+" "+u.name) {
			continue
		}
		of := who()
		text := fmt.Sprintf("%s from %s", u.name, from)
		if name := of.String(); name != "" {
			text += " for " + name
		}
		// Hosts and servers send any octets.
		readable := func(text string) string { return strings.ToValidUTF8(text, "\ufffd") }
		fields := []intent.EventField{{Name: "policy", Value: policy}, {Name: "from", Value: from}, {Name: "reason", Value: readable(u.err.Error())}}
		for _, f := range []intent.EventField{{Name: "username", Value: of.username}, {Name: "circuit", Value: of.circuit}, {Name: "address", Value: of.address}} {
			if f.Value != "" {
				fields = append(fields, intent.EventField{Name: f.Name, Value: readable(f.Value)})
			}
		}
		s.Intent.Report(&intent.ServiceEvent{Type: "attribute", Kind: "RadiusAttribute", Name: u.name, State: state, Fields: fields,
			Text: readable(fmt.Sprintf("%s is %s: %v", text, state, u.err))})
	}
}

// subscriberOf returns the subscriber of a CoA-Request: of the session that has its words, or as the request names him. s.mu is held.
func (s *radius) subscriberOf(r *demand) whom {
	of := whom{username: string(r.username), circuit: string(r.nasPortID)}
	found, _ := s.sessions.find(r)
	ids := map[string]bool{}
	for _, m := range found {
		if _, known := s.sessions.byID[m.ID]; known {
			ids[m.ID] = true
		}
	}
	if len(ids) == 1 {
		for id := range ids {
			w := s.sessions.byID[id]
			of = whom{username: w.username, circuit: w.nasPortID}
		}
	}
	if of.username != "" || of.circuit != "" {
		return of
	}
	m := &r.match
	for _, a := range []interface {
		IsValid() bool
		String() string
	}{m.IPv4, m.IPv6, m.Prefix, m.Delegated} {
		if a.IsValid() {
			of.address = a.String()
			break
		}
	}
	return of
}
