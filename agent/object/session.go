package object

import (
	"net/netip"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

func checkSession(spec proto.Message, add report) {
	s, ok := spec.(*api.Session)
	if !ok {
		return
	}
	checkVLANs(s.Access.GetOuterVlan(), s.Access.GetInnerVlan(), "access.", add)
	if g := s.GetGtpu(); g != nil {
		local, remote := g.LocalAddress, g.RemoteAddress
		checkHost("gtpu.localAddress", local, add)
		checkHost("gtpu.remoteAddress", remote, add)
		if family(local) != family(remote) {
			add("gtpu.remoteAddress", "not of the family of gtpu.localAddress", quote(remote), "an "+family(local)+" address")
		} else if local == remote {
			add("gtpu.remoteAddress", "the same as gtpu.localAddress", quote(remote), "the address of the UPF")
		}
	}
	checkQosPair(s.Policy.GetQosProfile(), s.Policy.GetQosGroup(), "", add)
	checkQosPair(s.Policy.GetQosProfileUp(), s.Policy.GetQosGroupUp(), "Up", add)
	if s.GetGtpu().GetEthernet() {
		checkFrames(s, add)
	}
	if s.Access.GetPduSessionId() != 0 && s.Policy.GetAnySource() {
		add("policy.anySource", "sessions with an access.pduSessionId are told apart by their source", "true", "one of the two without the other")
	}
	var room [8]netip.Prefix
	before := room[:0]
	for i, a := range s.Addresses {
		p, err := network(a)
		if err != nil {
			continue
		}
		if p.Bits() == 0 {
			add("addresses["+strconv.Itoa(i)+"]", "everybody's addresses", quote(a), "the subscriber's own; policy.anySource lets other sources through")
		}
		if slices.Contains(before, p) {
			add("addresses["+strconv.Itoa(i)+"]", "there twice", quote(a), "each prefix once")
		}
		before = append(before, p)
	}
}

// checkFrames: what is about IP has no place in a session of type Ethernet.
func checkFrames(s *api.Session, add report) {
	for _, of := range []struct {
		field string
		there bool
	}{
		{"addresses", len(s.Addresses) > 0}, {"access.pppoeSessionId", s.Access.GetPppoeSessionId() != 0},
		{"access.pduSessionId", s.Access.GetPduSessionId() != 0}, {"access.proxyArp", s.Access.GetProxyArp()},
		{"policy.aclUp", s.Policy.GetAclUp() != ""}, {"policy.aclDown", s.Policy.GetAclDown() != ""},
		{"policy.mss", s.Policy.GetMss() != 0},
		{"policy.anySource", s.Policy.GetAnySource()},
	} {
		if of.there {
			add(of.field, "a session of type Ethernet has none", "", "to leave it or gtpu.ethernet out")
		}
	}
}

func claimSession(spec proto.Message, c *claimer) {
	s, ok := spec.(*api.Session)
	if !ok {
		return
	}
	a := s.Access
	pdu := ""
	if n := a.GetPduSessionId(); n != 0 {
		pdu = "PDU session " + strconv.FormatUint(uint64(n), 10)
		c.apart = true
	}
	if a.GetMac() == "" || a.GetPppoeSessionId() != 0 || pdu != "" {
		field := "access"
		switch {
		case a.GetPppoeSessionId() != 0:
			field = "access.pppoeSessionId"
		case a.GetMac() != "":
			field = "access.pduSessionId"
		}
		c.take(appendAccess(c.the(""), a), pdu, field, -1)
	}
	if a.GetMac() != "" && a.GetPppoeSessionId() == 0 {
		mac, _ := canonical(api.Format_MAC, a.Mac)
		part := "MAC " + mac
		if pdu != "" {
			part += ", " + pdu
		}
		c.take(appendCircuit(c.the(""), a.Port, a.OuterVlan, a.InnerVlan), part, "access.mac", -1)
	}
	if g := s.GetGtpu(); g != nil {
		local, _ := canonical(api.Format_IP, g.LocalAddress)
		end := append(append(append(c.the("VRF "), vrfName(g.Vrf)...), ", GTP-U at "...), local...)
		c.take(strconv.AppendUint(append(end, ", TEID "...), uint64(g.LocalTeid), 10), "", "gtpu.localTeid", -1)
	}
	if s.Core != nil {
		return // nothing is routed by the addresses: users of different data networks may have the same
	}
	for i, written := range s.Addresses {
		p, _ := network(written)
		c.take(appendDestination(c.the(""), s.Vrf, p), "", "addresses", i)
		c.wide = c.wide || !p.IsSingleIP()
	}
}

// appendAccess says where packets of one subscriber come from. Of it there may be several sessions that differ in their PDU session id.
func appendAccess(b []byte, a *api.Access) []byte {
	b = appendCircuit(b, a.GetPort(), a.GetOuterVlan(), a.GetInnerVlan())
	if a.GetPppoeSessionId() != 0 {
		// The id alone is the key: a data plane does not ask for the MAC before it knows the session.
		return strconv.AppendUint(append(b, ", PPPoE session "...), uint64(a.PppoeSessionId), 10)
	}
	if a.GetMac() != "" {
		mac, _ := canonical(api.Format_MAC, a.Mac)
		b = append(append(b, ", MAC "...), mac...)
	}
	return b
}

// apartSession returns the access and the networks of one of a subscriber's PDU sessions.
func apartSession(spec proto.Message) (of string, networks []held) {
	s, ok := spec.(*api.Session)
	if !ok || s.Access.GetPduSessionId() == 0 {
		return "", nil
	}
	for i, written := range s.Addresses {
		if p, err := network(written); err == nil {
			networks = append(networks, held{"", p, "addresses", i})
		}
	}
	return string(appendAccess(nil, s.Access)), networks
}

// holdSession returns the networks that are the session's.
func holdSession(spec proto.Message) []held {
	s, ok := spec.(*api.Session)
	if !ok || s.Core != nil {
		return nil
	}
	var all []held
	for i, written := range s.Addresses {
		if p, err := network(written); err == nil && !p.IsSingleIP() {
			all = append(all, held{vrfName(s.Vrf), p, "addresses", i})
		}
	}
	return all
}

// appendDestination says which packets are meant by those for a prefix. Several may be for the same: a route and an address of ours
// may, but a subscriber's may not.
func appendDestination(b []byte, vrf string, p netip.Prefix) []byte {
	b = append(append(append(b, "VRF "...), vrfName(vrf)...), ", "...)
	return p.AppendTo(b)
}

func destination(vrf string, p netip.Prefix) string { return string(appendDestination(nil, vrf, p)) }

// appendCircuit says where packets without PPPoE come from.
func appendCircuit(b []byte, port string, outer, inner uint32) []byte {
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

func vrfName(name string) string {
	if name == "" {
		return "default"
	}
	return name
}

func checkVLANs(outer, inner uint32, path string, add report) {
	if inner != 0 && outer == 0 {
		add(path+"innerVlan", "an inner VLAN without an outer one", strconv.Itoa(int(inner)), path+"outerVlan beside it, or "+path+"outerVlan instead")
	}
}

const (
	notHost      = "not an address of a host"
	hostAccepted = "a unicast address"
)

// isHost refuses addresses that no single host can have.
func isHost(written string) bool {
	a, err := netip.ParseAddr(written)
	return err != nil || !a.IsUnspecified() && !a.IsMulticast()
}

func checkHost(field, written string, add report) {
	if !isHost(written) {
		add(field, notHost, quote(written), hostAccepted)
	}
}

// family of an address or a prefix.
func family(written string) string {
	for _, r := range written {
		if r == ':' {
			return "IPv6"
		}
	}
	return "IPv4"
}
