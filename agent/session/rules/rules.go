// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of Session that annotations cannot express.
package rules

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
	ether "sluice.dev/sluice/agent/ether/rules"
	"sluice.dev/sluice/agent/object"
)

// Access is an access on a circuit (a port and its VLANs) whose sessions have an id there, as PPPoE sessions have. The id is the key of the session in
// place of the MAC.
type Access struct {
	// The field of message Access in api/session.proto that has the id: "pppoeSessionId".
	Field string
	// A word for messages: "PPPoE session".
	Noun string
	// ID returns the id, and 0 for a session with another access.
	ID func(*api.Access) uint32
}

// accesses are the accesses that have ids.
type accesses []Access

// Rules returns the rules of the concept's kinds. Accesses, steps and cores have rules of Session beside these.
func Rules(all ...Access) []object.KindRules {
	of := accesses(all)
	return []object.KindRules{
		object.Rules[*api.Session]{Check: checkSession, Claims: of.claimSession, Holds: holdSession, HoldsPacked: holdPackedSession, Apart: of.apartSession},
	}
}

func checkSession(s *api.Session, add object.Report) {
	checkAccess(s.Access, add)
	ether.CheckVLANs(s.Access.GetOuterVlan(), s.Access.GetInnerVlan(), "access.", add)
	if s.Access.GetPduSessionId() != 0 && s.Policy.GetAnySource() {
		add("policy.anySource", "sessions with an access.pduSessionId are distinguished by their source", "true", "one of the two without the other")
	}
	var room [8]netip.Prefix
	before := room[:0]
	for i, a := range s.Addresses {
		p, err := object.ParseNetwork(a)
		if err != nil {
			continue
		}
		if p.Bits() == 0 {
			add("addresses["+strconv.Itoa(i)+"]", "all addresses", object.Quote(a), "the subscriber's own; policy.anySource lets other sources through")
		}
		if what := object.NotForwarded(p); what != "" {
			add("addresses["+strconv.Itoa(i)+"]", "nothing is forwarded to it: it is "+what, object.Quote(a), "an address that is forwarded")
		}
		if slices.Contains(before, p) {
			add("addresses["+strconv.Itoa(i)+"]", "duplicate prefix", object.Quote(a), "each prefix once")
		}
		before = append(before, p)
	}
}

// tunnelFields are the fields of an access that is not on a port: each names an object that has the packets of the session.
var tunnelFields = func() (all []protoreflect.FieldDescriptor) {
	fields := (&api.Access{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); object.Notes(f).GetRef() != "" && f.Name() != "port" {
			all = append(all, f)
		}
	}
	return all
}()

// checkAccess: an access is on a port, or it is an object of another kind alone.
func checkAccess(a *api.Access, add object.Report) {
	m := a.ProtoReflect()
	at := slices.IndexFunc(tunnelFields, m.Has)
	if at < 0 {
		if a != nil && a.Port == "" {
			var names []string
			for _, f := range tunnelFields {
				names = append(names, "access."+f.JSONName())
			}
			add("access.port", object.Missing, "", "the name of a Port; a remote user has "+strings.Join(names, " or ")+" instead")
		}
		return
	}
	tunnel := tunnelFields[at]
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f != tunnel && m.Has(f) {
			add("access."+f.JSONName(), "an access by access."+tunnel.JSONName()+" has none", "", "one of the two without the other")
		}
	}
}

func (of accesses) claimSession(s *api.Session, c *object.Claimer) {
	a := s.Access
	pdu := ""
	if n := a.GetPduSessionId(); n != 0 {
		pdu = "PDU session " + strconv.FormatUint(uint64(n), 10)
		c.Apart = true
	}
	by, _ := of.by(a)
	if a.GetPort() != "" && (a.GetMac() == "" || by != nil || pdu != "") {
		field := "access"
		switch {
		case by != nil:
			field = "access." + by.Field
		case a.GetMac() != "":
			field = "access.pduSessionId"
		}
		c.Take(of.appendAccess(c.Words(""), a), pdu, field, -1)
	}
	if a.GetMac() != "" && by == nil {
		mac, _ := object.Canonical(api.Format_MAC, a.Mac)
		part := "MAC " + mac
		if pdu != "" {
			part += ", " + pdu
		}
		c.Take(ether.AppendCircuit(c.Words(""), a.Port, a.OuterVlan, a.InnerVlan), part, "access.mac", -1)
	}
	if s.Core != nil {
		return // nothing is routed by the addresses: users of different data networks may have the same
	}
	for i, written := range s.Addresses {
		p, _ := object.ParseNetwork(written)
		c.Take(object.AppendDestination(c.Words(""), s.Vrf, p), "", "addresses", i)
		c.Wide = c.Wide || !p.IsSingleIP()
	}
}

// by returns the access with an id that an access is, and the id; nil: it has none.
func (of accesses) by(a *api.Access) (*Access, uint32) {
	for i := range of {
		if id := of[i].ID(a); id != 0 {
			return &of[i], id
		}
	}
	return nil, 0
}

// appendAccess appends the key of a session's access. Several sessions with different PDU session ids may share one.
func (of accesses) appendAccess(b []byte, a *api.Access) []byte {
	b = ether.AppendCircuit(b, a.GetPort(), a.GetOuterVlan(), a.GetInnerVlan())
	if by, id := of.by(a); by != nil {
		// The id alone is the key: a data plane does not ask for the MAC before it knows the session.
		return strconv.AppendUint(append(append(append(b, ", "...), by.Noun...), ' '), uint64(id), 10)
	}
	if a.GetMac() != "" {
		mac, _ := object.Canonical(api.Format_MAC, a.Mac)
		b = append(append(b, ", MAC "...), mac...)
	}
	return b
}

// apartSession returns the access and the networks of one of a subscriber's PDU sessions.
func (of accesses) apartSession(s *api.Session) *object.Shared {
	if s.Access.GetPduSessionId() == 0 {
		return nil
	}
	shared := &object.Shared{Of: []string{string(of.appendAccess(nil, s.Access))}, Noun: "the same access", Reason: "packets are distinguished by it",
		Accepted: "addresses that no other PDU session of the subscriber has"}
	for i, written := range s.Addresses {
		if p, err := object.ParseNetwork(written); err == nil {
			shared.Networks = append(shared.Networks, object.Held{Prefix: p, Field: "addresses", Element: i})
		}
	}
	return shared
}

// holdSession returns the networks that are the session's.
func holdSession(s *api.Session) []object.Held {
	if s.Core != nil {
		return nil
	}
	var all []object.Held
	for i, written := range s.Addresses {
		if p, err := object.ParseNetwork(written); err == nil && !p.IsSingleIP() {
			all = append(all, object.Held{VRF: object.VRFName(s.Vrf), Prefix: p, Field: "addresses", Element: i})
		}
	}
	return all
}

// coreFields has a bit for the number of each field that has a session's core.
var coreFields = func() (all uint64) {
	fields := (&api.Session{}).ProtoReflect().Descriptor().Oneofs().ByName("core").Fields()
	for i := range fields.Len() {
		all |= 1 << fields.Get(i).Number()
	}
	return all
}()

// holdPackedSession is holdSession where the spec stands.
func holdPackedSession(spec string) []object.Held {
	const addresses, vrf = 2, 3 // of api/session.proto
	in := ""
	var all []object.Held
	element := 0
	for field, text := range object.Texts(spec) {
		switch {
		case coreFields>>field&1 != 0:
			return nil
		case field == vrf:
			in = text
		case field == addresses:
			if p, err := object.ParseNetwork(text); err == nil && !p.IsSingleIP() {
				all = append(all, object.Held{Prefix: p, Field: "addresses", Element: element})
			}
			element++
		}
	}
	for i := range all {
		all[i].VRF = object.VRFName(in)
	}
	return all
}
