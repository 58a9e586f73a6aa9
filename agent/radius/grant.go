// SPDX-License-Identifier: Apache-2.0

// The grant of a subscriber from the attributes of an Access-Accept or a CoA-Request.
package radius

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/subscriber"
)

// errInvalid: a standard attribute has an invalid value. An Access-Accept with one is treated as an Access-Reject
// (RFC 2865 section 5).
var errInvalid = errors.New("invalid attribute")

// errService: Service-Type is that of no subscriber.
var errService = errors.New("service")

// granted is the result of reading a packet's attributes.
type granted struct {
	subscriber.Grant
	// For the subscriber: Reply-Message, and the text of MS-CHAP2-Success or MS-CHAP-Error.
	message, chap string
	// Unknown attributes, and vendors' attributes whose text cannot be read; by name.
	unsupported, unreadable []string
	// The first error of unreadable, with the attribute's name.
	firstUnreadable error
	// All of these, and malformed attributes of the standard.
	unusable []unusable
	// The attribute that named an object first.
	origins map[object.Key]string
	// An attribute has a rate, which may be 0.
	ratedUp, ratedDown bool
	// Octets of Class.
	classes int
	// The attribute that is being read.
	current attribute
}

func (g *granted) addUnreadable(name string, err error) {
	if g.unreadable = append(g.unreadable, name); g.firstUnreadable == nil {
		g.firstUnreadable = fmt.Errorf("%s: %w", name, err)
	}
	g.unusable = append(g.unusable, unusable{name, err, false})
}

func (g *granted) addUnsupported(name string) { g.addUnhonoured(name, errUnknown) }

// addUnhonoured is addUnsupported with another reason.
func (g *granted) addUnhonoured(name string, err error) {
	g.unsupported = append(g.unsupported, name)
	g.unusable = append(g.unusable, unusable{name, err, false})
}

// forwarded returns why a session cannot have a prefix, or nil.
func forwarded(p netip.Prefix) error {
	if p.Bits() == 0 {
		return fmt.Errorf("%s is all addresses", p)
	}
	if what := object.NotForwarded(p); what != "" {
		return fmt.Errorf("%s is %s: nothing is forwarded to it", p, what)
	}
	return nil
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// The most that one packet may name, of each.
const (
	// A Session has 64 addresses and prefixes; an IPv4 address, an IPv6 address, a prefix of the link and a delegated prefix are four.
	mostRoutes = 60
	// A router advertisement of 1,280 bytes has room for more.
	mostAnnounced = 16
	mostPools     = 8
	mostDNS       = 4
	// Octets of Class that fit into a record beside the longest other attributes.
	mostClass = 1800
)

// grantOf reads attributes. The mapping of the policy precedes the attributes' standard meaning. The error is that of the first malformed attribute of
// the standard; the others are read all the same.
func grantOf(all []attribute, mapping []*api.RadiusMapping) (granted, error) {
	g := granted{}
	var malformed error
	for _, a := range all {
		g.current = a
		mapped, err := g.mapped(a, mapping)
		switch {
		case err != nil:
			g.addUnreadable(a.name(), err)
		case mapped:
		case a.vendor == 0:
			if err := g.standard(a); err != nil {
				g.unusable = append(g.unusable, unusable{a.name(), err, true})
				if malformed == nil || errors.Is(err, errService) {
					malformed = fmt.Errorf("%w: %s: %w", errInvalid, a.name(), err)
				}
			}
		default:
			known, err := g.ofVendor(a)
			if err != nil {
				g.addUnreadable(a.name(), err)
			} else if !known {
				g.addUnsupported(a.name())
			}
		}
		g.note(a)
	}
	if g.InterimInterval > 0 {
		g.InterimInterval = max(g.InterimInterval, leastInterim)
	}
	g.limit(&g.RateUp, &g.MeterUp, g.ratedUp, "Huawei-Input-Burst-Size")
	g.limit(&g.RateDown, &g.MeterDown, g.ratedDown, "Huawei-Output-Burst-Size")
	return g, malformed
}

// limit completes a rate. A peak rate alone is the rate, and a rate of 0 is none, also if the profile has one. rated: an attribute has a rate;
// burst is the one of which the rate is missing otherwise.
func (g *granted) limit(rate *subscriber.Rate, meter *string, rated bool, burst string) {
	switch {
	case rate.BitsPerSecond != 0:
	case rate.PeakBitsPerSecond != 0:
		rate.BitsPerSecond, rate.PeakBitsPerSecond = rate.PeakBitsPerSecond, 0
	case rated:
		*rate = subscriber.Rate{}
		if *meter == "" {
			*meter = subscriber.Clear
		}
	case *rate != subscriber.Rate{}:
		*rate = subscriber.Rate{}
		g.addUnreadable(burst, errors.New("without a rate"))
	}
}

func (g *granted) standard(a attribute) error {
	switch a.kind {
	case typeUserName:
		g.Username = string(a.value)
	case typeFramedIPAddress:
		address, err := ip4(a.value)
		if err != nil {
			return err
		}
		// RFC 2865 section 5.8: the user, or the NAS, chooses.
		if n := binary.BigEndian.Uint32(a.value); n != math.MaxUint32 && n != math.MaxUint32-1 {
			if !address.IsGlobalUnicast() && !address.IsPrivate() {
				return fmt.Errorf("%s is no subscriber's address", address)
			}
			if err := forwarded(single(address)); err != nil {
				return err
			}
			first(g, a, &g.IPv4, address)
		}
	case typeFramedPool:
		return appendName(&g.IPv4Pools, a.value)
	case typeFramedRoute, typeFramedIPv6Route:
		// RFC 2865 section 5.22: the prefix, then a gateway and metrics, which the session's own link replaces.
		route, err := routeOf(string(a.value), a.kind == typeFramedIPv6Route)
		if err == nil {
			err = forwarded(route)
		}
		if err != nil {
			return err
		}
		if len(g.Routes) == mostRoutes {
			return fmt.Errorf("more than %d routes", mostRoutes)
		}
		g.Routes = append(g.Routes, route)
	case typeRouteIPv6Information:
		// RFC 6911 section 3.3.
		route, err := announcedOf(a.value)
		if err != nil {
			return err
		}
		if len(g.Announced) == mostAnnounced {
			return fmt.Errorf("more than %d routes", mostAnnounced)
		}
		g.Announced = append(g.Announced, route)
	case typeFramedIPv6Prefix:
		prefix, err := prefixOf(a.value)
		if err == nil {
			err = forwarded(prefix)
		}
		if err == nil && prefix.Bits() != 64 {
			// It is no error of the standard, and no host can use it on its link (RFC 4862 section 5.5.3).
			g.addUnreadable(a.name(), fmt.Errorf("%s is no /64: a host has no address in it", prefix))
			return nil
		}
		if err == nil {
			first(g, a, &g.IPv6Prefix, prefix)
		}
		return err
	case typeDelegatedIPv6Prefix:
		prefix, err := prefixOf(a.value)
		if err == nil {
			err = forwarded(prefix)
		}
		if err == nil {
			first(g, a, &g.Delegated, prefix)
		}
		return err
	case typeFramedIPv6Address:
		address, err := ip6(a.value)
		if err == nil {
			err = forwarded(single(address))
		}
		if err == nil {
			first(g, a, &g.IPv6, address)
		}
		return err
	case typeFramedIPv6Pool, typeStatefulIPv6AddressPool:
		return appendName(&g.IPv6Pools, a.value)
	case typeDelegatedIPv6PrefixPool:
		return appendName(&g.DelegatedPools, a.value)
	case typeFramedInterfaceID:
		if len(a.value) != len(g.InterfaceID) {
			return lengthError(a.value, len(g.InterfaceID))
		}
		copy(g.InterfaceID[:], a.value)
	case typeDNSServerIPv6Address:
		address, err := ip6(a.value)
		if err == nil {
			g.addDNS(address)
		}
		return err
	case typeSessionTimeout:
		return seconds(a.value, &g.SessionTimeout)
	case typeIdleTimeout:
		return seconds(a.value, &g.IdleTimeout)
	case typeAcctInterimInterval:
		return seconds(a.value, &g.InterimInterval)
	case typeFramedMTU:
		n, err := number(a.value)
		if err != nil {
			return err
		}
		if n < leastFramedMTU || n > mostFramedMTU {
			return fmt.Errorf("%d is not from %d to %d", n, leastFramedMTU, mostFramedMTU)
		}
		if err := setMTU(&g.MTU, uint64(n)); err != nil {
			g.addUnhonoured(a.name(), err)
		}
	case typeFilterID:
		return g.filter(string(a.value))
	case typeClass:
		if g.classes += 2 + len(a.value); g.classes > mostClass {
			g.addUnhonoured(a.name(), fmt.Errorf("more than %d octets, for which an accounting record has no room", mostClass))
			return nil
		}
		g.Class = append(g.Class, a.value)
	case typeState:
		g.State = a.value
	case typeReplyMessage:
		g.message += string(a.value)
	case typeFramedIPNetmask:
		// A session has one address.
		if n, err := number(a.value); err != nil || n != math.MaxUint32 {
			g.addUnsupported(a.name())
		}
	case typeFramedRouting, typeFramedCompression, typeTerminationAction:
		// 0 is no routing, no compression, and no request at the end of the session.
		if n, err := number(a.value); err != nil || n != 0 {
			g.addUnsupported(a.name())
		}
	case typeServiceType:
		// RFC 2865 section 5.6: a service that there is not is a rejection. Say a login of an operator.
		if n, err := number(a.value); err != nil || n != serviceFramed && n != serviceCallCheck {
			return fmt.Errorf("%w %d; accepted: Framed (2) and Call-Check (10)", errService, n)
		}
	case typeFramedProtocol, typeMessageAuthenticator, typeEAPMessage, typeProxyState, typeConnectInfo:
		// They say nothing that a session of ours needs.
	default:
		g.addUnsupported(a.name())
	}
	return nil
}

// first sets an address or prefix. A session has one of each: the first counts.
func first[T comparable](g *granted, a attribute, to *T, value T) {
	var none T
	if *to != none {
		g.addUnsupported(a.name())
		return
	}
	*to = value
}

// filter reads Filter-Id: the name of an Acl, for packets from the subscriber (NAME.in), to him (NAME.out), or both.
func (g *granted) filter(text string) error {
	name, in := strings.CutSuffix(text, ".in")
	name, out := strings.CutSuffix(name, ".out")
	if name == "" || len(name) > mostName {
		return errors.New("it has no name")
	}
	if in || !out {
		g.ACLUp = name
	}
	if out || !in {
		g.ACLDown = name
	}
	return nil
}

// addDNS adds a name server of the attribute that is being read.
func (g *granted) addDNS(address netip.Addr) {
	if len(g.DNS) >= mostDNS {
		g.addUnhonoured(g.current.name(), fmt.Errorf("%s is one name server more than %d", address, mostDNS))
		return
	}
	g.DNS = append(g.DNS, address)
}

// ofVendor reads a vendor's attribute. An error means that its text is unreadable; the rest of the packet counts.
func (g *granted) ofVendor(a attribute) (known bool, err error) {
	switch a.vendor {
	case vendorCisco:
		if a.kind != ciscoAVPair {
			return false, nil
		}
		return g.cisco(string(a.value))
	case vendorMicrosoft:
		switch a.kind {
		case microsoftPrimaryDNS, microsoftSecondaryDNS:
			return true, g.dns4(a.value)
		case microsoftCHAP2Success:
			// RFC 2548 section 2.3.3: the identifier, and the text for the peer.
			if len(a.value) == 43 {
				g.chap = string(a.value[1:])
				return true, nil
			}
			return true, lengthError(a.value, 43)
		case microsoftCHAPError:
			if len(a.value) < 2 {
				return true, errors.New("no text")
			}
			g.chap = string(a.value[1:])
			return true, nil
		}
		// Keys of MPPE, which no access of ours has.
		return a.kind >= 7 && a.kind <= 17, nil
	case vendorHuawei:
		return g.huawei(a)
	case vendorJuniperERX:
		return g.juniper(a)
	case vendorMikrotik:
		if a.kind != mikrotikRateLimit {
			return false, nil
		}
		return true, g.mikrotik(string(a.value))
	}
	return false, nil
}

func (g *granted) dns4(value []byte) error {
	address, err := ip4(value)
	if err == nil {
		g.addDNS(address)
	}
	return err
}

func (g *granted) dns6(value []byte) error {
	address, err := ip6(value)
	if err == nil {
		g.addDNS(address)
	}
	return err
}

func (g *granted) huawei(a attribute) (known bool, err error) {
	set := func(to *uint64, rated *bool) (bool, error) {
		n, err := number(a.value)
		if err == nil {
			*to = uint64(n)
			*rated = true
		}
		return true, err
	}
	var burst bool
	switch a.kind {
	case huaweiInputAverageRate:
		return set(&g.RateUp.BitsPerSecond, &g.ratedUp)
	case huaweiInputPeakRate:
		return set(&g.RateUp.PeakBitsPerSecond, &g.ratedUp)
	case huaweiInputBurstSize:
		return set(&g.RateUp.BurstBytes, &burst)
	case huaweiOutputAverageRate:
		return set(&g.RateDown.BitsPerSecond, &g.ratedDown)
	case huaweiOutputPeakRate:
		return set(&g.RateDown.PeakBitsPerSecond, &g.ratedDown)
	case huaweiOutputBurstSize:
		return set(&g.RateDown.BurstBytes, &burst)
	case huaweiQosProfileName:
		return true, setName(&g.QosProfile, string(a.value))
	case huaweiVPNInstance:
		return true, setName(&g.VRF, string(a.value))
	case huaweiPrimaryDNS, huaweiSecondaryDNS:
		return true, g.dns4(a.value)
	}
	return false, nil
}

func (g *granted) juniper(a attribute) (known bool, err error) {
	switch a.kind {
	case erxVirtualRouterName, erxIPv6VirtualRouter:
		// "default" is the router that has no name of its own.
		return true, setName(&g.VRF, string(a.value))
	case erxLocalAddressPool:
		return true, appendName(&g.IPv4Pools, a.value)
	case erxPrimaryDNS, erxSecondaryDNS:
		return true, g.dns4(a.value)
	case erxIPv6PrimaryDNS, erxIPv6SecondaryDNS:
		return true, g.dns6(a.value)
	case erxIngressPolicyName:
		return true, setName(&g.MeterUp, string(a.value))
	case erxEgressPolicyName:
		return true, setName(&g.MeterDown, string(a.value))
	case erxQosProfileName:
		return true, setName(&g.QosProfile, string(a.value))
	}
	return false, nil
}

// mikrotik reads Mikrotik-Rate-Limit: rx[/tx] of rates, burst rates, burst thresholds and burst times, then a priority and least rates,
// which sessions of ours do not have. rx is from the subscriber.
func (g *granted) mikrotik(text string) error {
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields) > 6 {
		return fmt.Errorf("%q has not one to six fields", clipped(text))
	}
	var up, down [4]uint64
	for i, field := range fields[:min(len(fields), 4)] {
		rx, tx, both := strings.Cut(field, "/")
		if !both {
			tx = rx
		}
		var err error
		if up[i], err = suffixed(rx); err != nil {
			return err
		}
		if down[i], err = suffixed(tx); err != nil {
			return err
		}
	}
	rate := func(of [4]uint64) subscriber.Rate {
		r := subscriber.Rate{BitsPerSecond: of[0]}
		if of[1] > of[0] {
			r.PeakBitsPerSecond = of[1]
			// The average over the burst time may reach the threshold: so much passes above the rate.
			if seconds := of[3]; seconds > 0 && seconds <= 3600 && of[2] <= maxRate {
				r.BurstBytes = of[2] / 8 * seconds
			}
		}
		return r
	}
	g.RateUp, g.RateDown = rate(up), rate(down)
	// Without a limit, even if the profile has one.
	if up[0] == 0 {
		g.RateUp, g.MeterUp = subscriber.Rate{}, subscriber.Clear
	}
	if down[0] == 0 {
		g.RateDown, g.MeterDown = subscriber.Rate{}, subscriber.Clear
	}
	return nil
}

const maxRate = 1 << 50

// suffixed reads a number with k, M or G behind it, as powers of ten.
func suffixed(text string) (uint64, error) {
	scale := uint64(1)
	if n := len(text); n > 0 {
		switch text[n-1] {
		case 'k', 'K':
			scale, text = 1e3, text[:n-1]
		case 'm', 'M':
			scale, text = 1e6, text[:n-1]
		case 'g', 'G':
			scale, text = 1e9, text[:n-1]
		}
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > maxRate/scale {
		return 0, fmt.Errorf("%q is not a rate", clipped(text))
	}
	return n * scale, nil
}

// mapped reads an attribute by the policy's table.
func (g *granted) mapped(a attribute, mapping []*api.RadiusMapping) (bool, error) {
	for _, m := range mapping {
		if m.Vendor != a.vendor || m.Type != uint32(a.kind) || !strings.HasPrefix(string(a.value), m.Prefix) {
			continue
		}
		return true, g.set(m.Grant, a.value[len(m.Prefix):], formatOf(a, m.Prefix), max(uint64(m.Scale), 1))
	}
	return false, nil
}

func (g *granted) set(field api.GrantField, value []byte, in format, scale uint64) error {
	for _, n := range []struct {
		field api.GrantField
		to    *string
	}{
		{api.GrantField_VRF, &g.VRF}, {api.GrantField_ACL_UP, &g.ACLUp}, {api.GrantField_ACL_DOWN, &g.ACLDown},
		{api.GrantField_METER_UP, &g.MeterUp}, {api.GrantField_METER_DOWN, &g.MeterDown}, {api.GrantField_QOS_PROFILE, &g.QosProfile},
		{api.GrantField_QOS_GROUP, &g.QosGroup}, {api.GrantField_QOS_PROFILE_UP, &g.QosProfileUp}, {api.GrantField_QOS_GROUP_UP, &g.QosGroupUp},
		{api.GrantField_FLOW_PROFILE, &g.FlowProfile}, {api.GrantField_REDIRECT, &g.Redirect}, {api.GrantField_PROFILE, &g.Profile},
	} {
		if n.field == field {
			return setName(n.to, string(value))
		}
	}
	switch field {
	case api.GrantField_IGNORED:
		return nil
	case api.GrantField_IPV4_POOL:
		return appendName(&g.IPv4Pools, value)
	case api.GrantField_IPV6_POOL:
		return appendName(&g.IPv6Pools, value)
	case api.GrantField_DELEGATED_POOL:
		return appendName(&g.DelegatedPools, value)
	case api.GrantField_DNS_SERVER:
		if address, err := netip.ParseAddr(string(value)); err == nil && address.Zone() == "" {
			g.addDNS(address.Unmap())
			return nil
		}
		if len(value) == 4 {
			return g.dns4(value)
		}
		return g.dns6(value)
	}
	n, err := mappedNumber(value, in)
	if err != nil {
		return err
	}
	if n > maxRate/scale {
		return fmt.Errorf("%d is too large", n)
	}
	n *= scale
	for _, r := range []struct {
		field api.GrantField
		to    *uint64
		rated *bool
	}{
		{api.GrantField_RATE_UP, &g.RateUp.BitsPerSecond, &g.ratedUp}, {api.GrantField_RATE_DOWN, &g.RateDown.BitsPerSecond, &g.ratedDown},
		{api.GrantField_PEAK_RATE_UP, &g.RateUp.PeakBitsPerSecond, &g.ratedUp}, {api.GrantField_PEAK_RATE_DOWN, &g.RateDown.PeakBitsPerSecond, &g.ratedDown},
	} {
		if r.field == field {
			*r.to, *r.rated = n, true
			return nil
		}
	}
	if n > math.MaxUint32 {
		return fmt.Errorf("%d is too large", n)
	}
	switch field {
	case api.GrantField_MSS:
		return setMSS(&g.MSS, n)
	case api.GrantField_MTU:
		return setMTU(&g.MTU, n)
	case api.GrantField_SESSION_TIMEOUT:
		g.SessionTimeout = lasting(n)
	case api.GrantField_IDLE_TIMEOUT:
		g.IdleTimeout = lasting(n)
	case api.GrantField_INTERIM_INTERVAL:
		g.InterimInterval = lasting(n)
	}
	return nil
}

// format of a mapped attribute's number.
type format uint8

const (
	// Text if it is a number in digits, else an integer.
	anyFormat format = iota
	textFormat
	integerFormat
)

// formatOf is the format of a number. A value with a prefix is text. In an attribute that a dictionary has as an integer, octets that are digits
// are no text.
func formatOf(a attribute, prefix string) format {
	switch {
	case prefix != "":
		return textFormat
	case a.vendor == 0:
		switch a.kind {
		case typeNASPort, typeServiceType, typeFramedProtocol, typeFramedRouting, typeFramedMTU, typeFramedCompression, typeSessionTimeout, typeIdleTimeout,
			typeTerminationAction, typeNASPortType, typeAcctInterimInterval:
			return integerFormat
		}
	case a.vendor == vendorHuawei:
		switch a.kind {
		case huaweiInputBurstSize, huaweiInputAverageRate, huaweiInputPeakRate, huaweiOutputBurstSize, huaweiOutputAverageRate, huaweiOutputPeakRate:
			return integerFormat
		}
	}
	return anyFormat
}

// mappedNumber reads an integer of four or eight octets, or text, in the given format.
func mappedNumber(value []byte, in format) (uint64, error) {
	if in != integerFormat {
		if n, err := suffixed(string(value)); err == nil || in == textFormat {
			return n, err
		}
	}
	switch len(value) {
	case 4:
		return uint64(binary.BigEndian.Uint32(value)), nil
	case 8:
		return binary.BigEndian.Uint64(value), nil
	}
	return 0, errors.New("not a number")
}

const mostName = 253

func setName(to *string, name string) error {
	name = strings.TrimRight(name, "\x00")
	if name == "" || len(name) > mostName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f || r == 0xfffd }) {
		return errors.New("not a name")
	}
	*to = name
	return nil
}

func appendName(to *[]string, value []byte) error {
	var name string
	if err := setName(&name, string(value)); err != nil {
		return err
	}
	if len(*to) == mostPools {
		return fmt.Errorf("more than %d pools", mostPools)
	}
	*to = append(*to, name)
	return nil
}

func lengthError(value []byte, length int) error {
	return fmt.Errorf("it has %d octets, not %d", len(value), length)
}

func number(value []byte) (uint32, error) {
	if len(value) != 4 {
		return 0, lengthError(value, 4)
	}
	return binary.BigEndian.Uint32(value), nil
}

func seconds(value []byte, to *time.Duration) error {
	n, err := number(value)
	if err == nil {
		*to = lasting(uint64(n))
	}
	return err
}

// lasting is a timeout or an interval of so many seconds; 0: none, even if the profile has one.
func lasting(seconds uint64) time.Duration {
	if seconds == 0 {
		return subscriber.Never
	}
	return time.Duration(seconds) * time.Second
}

func ip4(value []byte) (netip.Addr, error) {
	if len(value) != 4 {
		return netip.Addr{}, lengthError(value, 4)
	}
	return netip.AddrFrom4([4]byte(value)), nil
}

func ip6(value []byte) (netip.Addr, error) {
	if len(value) != 16 {
		return netip.Addr{}, lengthError(value, 16)
	}
	address := netip.AddrFrom16([16]byte(value))
	if address.Is4In6() || address.IsMulticast() || address.IsUnspecified() {
		return netip.Addr{}, fmt.Errorf("%s is not a unicast address", address)
	}
	return address, nil
}

// prefixOf reads an IPv6 prefix (RFC 3162 section 2.3): a reserved octet, the length, and as many octets as the sender liked.
func prefixOf(value []byte) (netip.Prefix, error) {
	if len(value) < 2 || len(value) > 18 || value[1] > 128 || len(value)-2 < (int(value[1])+7)/8 {
		return netip.Prefix{}, errors.New("not a prefix")
	}
	var full [16]byte
	copy(full[:], value[2:])
	address := netip.AddrFrom16(full)
	prefix := netip.PrefixFrom(address, int(value[1]))
	if prefix.Masked().Addr() != address || prefix.Bits() == 0 || address.IsMulticast() || address.Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s is not a unicast prefix", prefix)
	}
	return prefix, nil
}

// announcedOf reads a prefix, or ::/0, the default route.
func announcedOf(value []byte) (netip.Prefix, error) {
	if len(value) >= 2 && len(value) <= 18 && value[1] == 0 && len(bytes.Trim(value[2:], "\x00")) == 0 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0), nil
	}
	return prefixOf(value)
}

// routeOf reads "192.0.2.0/24 0.0.0.0 1". Without a length, an IPv4 network has that of its class (RFC 2865 section 5.22).
func routeOf(text string, six bool) (netip.Prefix, error) {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	prefix, err := netip.ParsePrefix(word)
	if err != nil {
		address, failed := netip.ParseAddr(word)
		if failed != nil || address.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%q is not a route", clipped(text))
		}
		bits := 128
		if address.Is4() {
			bits = classOf(address)
		}
		prefix = netip.PrefixFrom(address, bits)
	}
	if prefix.Addr().Is6() != six || prefix.Addr().Is4In6() || prefix.Addr().IsMulticast() {
		return netip.Prefix{}, fmt.Errorf("%q is not a route of its family", clipped(text))
	}
	return prefix.Masked(), nil
}

func classOf(address netip.Addr) int {
	switch first := address.As4(); {
	case address.As4()[3] != 0:
		return 32
	case first[0] < 128:
		return 8
	case first[0] < 192:
		return 16
	default:
		return 24
	}
}

// clipped is text of another for a message of ours.
func clipped(text string) string { return text[:min(len(text), 64)] }
