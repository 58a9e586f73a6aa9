package object

import (
	"net/netip"
	"strconv"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

func checkInterface(spec proto.Message, add report) {
	i, ok := spec.(*api.Interface)
	if !ok {
		return
	}
	checkVLANs(i.OuterVlan, i.InnerVlan, "", add)
	if i.Port == "" && i.OuterVlan != 0 {
		add("outerVlan", "a VLAN without a port", strconv.Itoa(int(i.OuterVlan)), "a port beside it, or no VLAN: a loopback")
	}
	if i.Unnumbered != "" && len(i.Addresses) > 0 {
		add("addresses", "an unnumbered interface has none of its own", strconv.Itoa(len(i.Addresses)), "addresses or unnumbered, not both")
	}
	seen := map[netip.Addr]bool{}
	for n, a := range i.Addresses {
		p, _ := netip.ParsePrefix(a)
		if seen[p.Addr()] {
			add("addresses["+strconv.Itoa(n)+"]", "there twice", quote(a), "each address once")
		}
		seen[p.Addr()] = true
	}
}

func claimInterface(spec proto.Message, c *claimer) {
	i, ok := spec.(*api.Interface)
	if !ok {
		return
	}
	if i.Port != "" {
		// PPPoE sessions, and IPoE sessions that are known by their MAC, may be on the same VLAN.
		c.take(appendCircuit(c.the(""), i.Port, i.OuterVlan, i.InnerVlan), "packets without a session", "port", -1)
	}
	for n, a := range i.Addresses {
		p, err := netip.ParsePrefix(a)
		if err != nil || p.Addr().IsLinkLocalUnicast() {
			continue
		}
		c.take(appendDestination(c.the(""), i.Vrf, netip.PrefixFrom(p.Addr(), p.Addr().BitLen())), "as our own address", "addresses", n)
	}
}

// ownInterface returns the interface's own addresses.
func ownInterface(spec proto.Message) []held {
	i, ok := spec.(*api.Interface)
	if !ok {
		return nil
	}
	var all []held
	for n, a := range i.Addresses {
		if p, err := netip.ParsePrefix(a); err == nil && !p.Addr().IsLinkLocalUnicast() {
			all = append(all, held{vrfName(i.Vrf), netip.PrefixFrom(p.Addr(), p.Addr().BitLen()), "addresses", n})
		}
	}
	return all
}
