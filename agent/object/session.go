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
	on := circuit(a.GetPort(), a.GetOuterVlan(), a.GetInnerVlan())
	claims := make([]Claim, 0, 3+len(s.Addresses))
	switch {
	case a.GetPppoeSessionId() != 0:
		// The id alone is the key: a data plane does not ask for the MAC before it knows the session.
		claims = append(claims, Claim{What: on + ", PPPoE session " + strconv.Itoa(int(a.PppoeSessionId)), Field: "access.pppoeSessionId"})
	case a.GetMac() != "":
		mac, _ := canonical(api.Format_MAC, a.Mac)
		claims = append(claims, Claim{What: on + ", IPoE subscribers", Part: "MAC " + mac, Field: "access.mac"})
	default:
		claims = append(claims, Claim{What: on + ", IPoE subscribers", Field: "access"}, Claim{What: on, Field: "access"})
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
	for i, p := range s.Addresses {
		p, _ = canonical(api.Format_PREFIX, p)
		claims = append(claims, Claim{
			What: "VRF " + vrfName(s.Vrf) + ", subscriber's prefix " + p, Field: "addresses[" + strconv.Itoa(i) + "]",
		})
	}
	return claims
}

func circuit(port string, outer, inner uint32) string {
	switch {
	case outer == 0:
		return "port " + port + ", untagged"
	case inner == 0:
		return "port " + port + ", VLAN " + strconv.Itoa(int(outer))
	}
	return "port " + port + ", VLAN " + strconv.Itoa(int(outer)) + "." + strconv.Itoa(int(inner))
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

// checkHost refuses addresses that no single host can have.
func checkHost(field, written string, add report) {
	a, err := netip.ParseAddr(written)
	if err == nil && (a.IsUnspecified() || a.IsMulticast()) {
		add(field, "not an address of a host", quote(written), "a unicast address")
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
