// SPDX-License-Identifier: Apache-2.0

// Cisco-AVPair: "protocol:attribute=value", and commands of an interface in lcp:interface-config.
package radius

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// cisco reads one pair. `*` in place of `=` marks an optional attribute.
func (g *granted) cisco(text string) (known bool, err error) {
	text = strings.TrimSpace(strings.TrimRight(text, "\x00"))
	at := strings.IndexAny(text, "=*")
	if at < 0 {
		return true, fmt.Errorf("%q has no =", clipped(text))
	}
	attribute, value := strings.ToLower(strings.TrimSpace(text[:at])), strings.TrimSpace(text[at+1:])
	// Attributes of one purpose are numbered: "lcp:interface-config#1".
	attribute, _, _ = strings.Cut(attribute, "#")
	switch attribute {
	case "ip:vrf-id", "lcp:vrf-id", "ip:ip-vrf":
		return true, setName(&g.VRF, value)
	case "ip:addr-pool", "lcp:addr-pool":
		return true, appendName(&g.IPv4Pools, []byte(value))
	case "ipv6:ipv6-addr-pool", "ipv6:prefix-pool", "ipv6:stateful-ipv6-address-pool":
		return true, appendName(&g.IPv6Pools, []byte(value))
	case "ipv6:delegated-prefix-pool", "ipv6:delegated-ipv6-pool", "ipv6:dhcpv6-pool":
		return true, appendName(&g.DelegatedPools, []byte(value))
	case "ip:inacl", "ip:in-acl":
		return true, setName(&g.ACLUp, value)
	case "ip:outacl", "ip:out-acl":
		return true, setName(&g.ACLDown, value)
	case "ip:sub-qos-policy-in", "subscriber:sub-qos-policy-in":
		return true, setName(&g.MeterUp, value)
	case "ip:sub-qos-policy-out", "subscriber:sub-qos-policy-out":
		return true, setName(&g.QosProfile, value)
	case "ip:dns-servers":
		for _, word := range strings.Fields(value) {
			address, err := netip.ParseAddr(word)
			if err != nil || address.Zone() != "" {
				return true, fmt.Errorf("%q is not an address", clipped(word))
			}
			g.addDNS(address.Unmap())
		}
		return true, nil
	case "ip:route":
		return true, g.ciscoRoute(strings.Fields(value))
	case "url-redirect", "ip:url-redirect":
		return true, setName(&g.Redirect, value)
	case "lcp:interface-config":
		return g.interfaceConfig(strings.Fields(value))
	}
	return false, nil
}

// ciscoRoute reads "[vrf NAME] 192.0.2.0 255.255.255.0 ...".
func (g *granted) ciscoRoute(words []string) error {
	if len(words) > 2 && words[0] == "vrf" {
		words = words[2:]
	}
	if len(words) < 2 || len(g.Routes) == mostRoutes {
		return errors.New("not a route")
	}
	address, err := netip.ParseAddr(words[0])
	mask, maskErr := netip.ParseAddr(words[1])
	if err != nil || maskErr != nil || !address.Is4() || !mask.Is4() {
		return errors.New("not a route")
	}
	ones, bits := net.IPMask(mask.AsSlice()).Size()
	if bits == 0 || address.IsMulticast() {
		return errors.New("not a route")
	}
	route := netip.PrefixFrom(address, ones).Masked()
	if err := forwarded(route); err != nil {
		return err
	}
	g.Routes = append(g.Routes, route)
	return nil
}

// interfaceConfig reads a command as an interface has it.
func (g *granted) interfaceConfig(words []string) (known bool, err error) {
	has := func(first ...string) bool {
		if len(words) <= len(first) {
			return false
		}
		for i, word := range first {
			if !strings.EqualFold(words[i], word) {
				return false
			}
		}
		return true
	}
	switch {
	case has("ip", "vrf", "forwarding"):
		return true, setName(&g.VRF, words[3])
	case has("vrf", "forwarding"):
		return true, setName(&g.VRF, words[2])
	case has("service-policy", "input"):
		return true, setName(&g.MeterUp, words[2])
	case has("service-policy", "output"):
		return true, setName(&g.QosProfile, words[2])
	case has("ip", "access-group") && len(words) == 4 && words[3] == "in":
		return true, setName(&g.ACLUp, words[2])
	case has("ip", "access-group") && len(words) == 4 && words[3] == "out":
		return true, setName(&g.ACLDown, words[2])
	case has("ip", "mtu"):
		return true, sizeOf(&g.MTU, words[2], setMTU)
	case has("ip", "tcp", "adjust-mss"):
		return true, sizeOf(&g.MSS, words[3], setMSS)
	case has("rate-limit", "input"), has("rate-limit", "output"):
		to, rated := &g.RateUp, &g.ratedUp
		if strings.EqualFold(words[1], "output") {
			to, rated = &g.RateDown, &g.ratedDown
		}
		words := withoutMatch(words[2:])
		if len(words) == 0 {
			return true, errors.New("no rate")
		}
		// Bits a second, then bytes of the usual and of the longest burst.
		rate, err := suffixed(words[0])
		if err != nil {
			return true, err
		}
		to.BitsPerSecond, *rated = rate, true
		if len(words) > 1 {
			if burst, err := strconv.ParseUint(words[1], 10, 32); err == nil {
				to.BurstBytes = burst
			}
		}
		return true, nil
	}
	return false, nil
}

// withoutMatch drops the match of a rate-limit command: "access-group [rate-limit] N", "dscp N" or "qos-group N". The rate is that of the whole
// session.
func withoutMatch(words []string) []string {
	if len(words) == 0 {
		return words
	}
	switch strings.ToLower(words[0]) {
	case "access-group":
		if len(words) > 2 && strings.EqualFold(words[1], "rate-limit") {
			return words[3:]
		}
	case "dscp", "qos-group":
	default:
		return words
	}
	return words[min(len(words), 2):]
}

func sizeOf(to *uint32, word string, set func(*uint32, uint64) error) error {
	n, err := strconv.ParseUint(word, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not a size", clipped(word))
	}
	return set(to, n)
}

// Sizes of a session's policy (api/session.proto), and those of Framed-MTU (RFC 2865 section 5.12).
const (
	leastMTU, mostMTU             = 1280, 9600
	leastMSS, mostMSS             = 536, 9216
	leastFramedMTU, mostFramedMTU = 64, 65535
)

func setMTU(to *uint32, n uint64) error { return setSize(to, n, leastMTU, mostMTU) }
func setMSS(to *uint32, n uint64) error { return setSize(to, n, leastMSS, mostMSS) }

func setSize(to *uint32, n, least, most uint64) error {
	if n < least || n > most {
		return fmt.Errorf("%d is not from %d to %d, as sessions have it", n, least, most)
	}
	*to = uint32(n)
	return nil
}
