package object

import (
	"fmt"
	"net/netip"
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
	for i, a := range s.Addresses {
		if p, err := network(a); err == nil && p.Bits() == 0 {
			add("addresses["+strconv.Itoa(i)+"]", "everybody's addresses", quote(a), "the subscriber's own; policy.anySource lets other sources through")
		}
	}
	if len(s.Addresses) < 2 {
		return
	}
	seen := map[string]bool{}
	for i, a := range s.Addresses {
		c, _ := canonical(api.Format_PREFIX, a)
		if seen[c] {
			add("addresses["+strconv.Itoa(i)+"]", "there twice", quote(a), "each prefix once")
		}
		seen[c] = true
	}
}

func claimSession(spec proto.Message) []Claim {
	s, ok := spec.(*api.Session)
	if !ok {
		return nil
	}
	a := s.Access
	var room [128]byte
	on := appendCircuit(room[:0], a.GetPort(), a.GetOuterVlan(), a.GetInnerVlan())
	claims := make([]Claim, 0, 2+len(s.Addresses))
	switch {
	case a.GetPppoeSessionId() != 0:
		// The id alone is the key: a data plane does not ask for the MAC before it knows the session.
		on = strconv.AppendUint(append(on, ", PPPoE session "...), uint64(a.PppoeSessionId), 10)
		claims = append(claims, Claim{What: string(on), Field: "access.pppoeSessionId"})
	case a.GetMac() != "":
		mac, _ := canonical(api.Format_MAC, a.Mac)
		claims = append(claims, Claim{What: string(on), Part: "MAC " + mac, Field: "access.mac"})
	default:
		claims = append(claims, Claim{What: string(on), Field: "access"})
	}
	if g := s.GetGtpu(); g != nil {
		local, _ := canonical(api.Format_IP, g.LocalAddress)
		claims = append(claims, Claim{
			What: fmt.Sprintf("VRF %s, GTP-U at %s, TEID %d", vrfName(g.Vrf), local, g.LocalTeid), Field: "gtpu.localTeid",
		})
	}
	if s.Core != nil {
		return claims // nothing is routed by the addresses: users of different data networks may have the same
	}
	for i, written := range s.Addresses {
		field := "addresses[0]"
		if i > 0 {
			field = "addresses[" + strconv.Itoa(i) + "]"
		}
		p, _ := network(written)
		claims = append(claims, Claim{What: string(appendDestination(room[:0], s.Vrf, p)), Field: field})
	}
	return claims
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
			all = append(all, held{vrfName(s.Vrf), p, "addresses[" + strconv.Itoa(i) + "]"})
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
