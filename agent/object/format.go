// SPDX-License-Identifier: Apache-2.0

// The formats of api/schema.proto: accepted spellings, and the canonical one.
package object

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"sluice.dev/sluice/agent/api"
)

const (
	nameLimit  = 253
	labelLimit = 63
	textLimit  = 1024
	// IFNAMSIZ less its final zero byte.
	linuxNameLimit = 15
	namespaceLimit = 200
)

const (
	nameAccepted  = "at most 253 letters, digits and . _ : @ -, beginning and ending with a letter or digit"
	labelAccepted = "at most 63 letters, digits and . _ -, beginning and ending with a letter or digit; a key may have a prefix of at most 253 before a /"
)

func validName(s string) bool { return shaped(s, nameLimit, "._:@-") }

// validLabelKey: as in Kubernetes, before the name there may be a prefix.
func validLabelKey(s string) bool {
	slash := strings.LastIndexByte(s, '/')
	return len(s)-(slash+1) <= labelLimit && slash <= nameLimit && shaped(s, nameLimit+1+labelLimit, "._/-")
}

func validLabelValue(s string) bool { return s == "" || shaped(s, labelLimit, "._-") }

// shaped reports whether it is of letters, digits and some others, and begins and ends with a letter or digit.
func shaped(s string, most int, others string) bool {
	if s == "" || len(s) > most || !letterOrDigit(s[0]) || !letterOrDigit(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !letterOrDigit(s[i]) && strings.IndexByte(others, s[i]) < 0 {
			return false
		}
	}
	return true
}

func letterOrDigit(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// FormatAccepted describes the accepted values of a format, for errors and for the documentation.
func FormatAccepted(f api.Format) string {
	switch f {
	case api.Format_IP:
		return "an IPv4 or IPv6 address"
	case api.Format_PREFIX:
		return "an IPv4 or IPv6 network with its prefix length and no bit set after it"
	case api.Format_IP_PREFIX:
		return "an IPv4 or IPv6 address with the prefix length of its network"
	case api.Format_MAC:
		return "a unicast Ethernet address: six pairs of hexadecimal digits with colons between"
	case api.Format_PORT_RANGE:
		return "a port, or the first and the last of a range with - between, 0 to 65535"
	case api.Format_VLAN_RANGE:
		return "a VLAN, or the first and the last of a range with - between, 1 to 4094"
	case api.Format_IP_PROTOCOL:
		return "tcp, udp, icmp, icmp6 or a number, 0 to 255"
	case api.Format_DSCP:
		return "a number, 0 to 63, or one of cs0 to cs7, af11 to af43, ef, va"
	case api.Format_TCP_FLAGS:
		return "flags out of fin, syn, rst, psh, ack, urg, ece, cwr with commas between; ! before those that must not be set"
	case api.Format_ICMP_TYPE:
		return "a type, or type/code, each 0 to 255"
	case api.Format_LINUX_NAME:
		return "at most 15 characters without /, : and white space"
	case api.Format_NAMESPACE:
		return "at most 200 characters without / and white space"
	default:
		return "text of at most 1024 bytes without control characters"
	}
}

// numberRange reads a number, or the first and the last of a range.
func numberRange(s string, least, most int) (string, error) {
	first, last, isRange := strings.Cut(s, "-")
	from, err := decimal(first, most)
	if err != nil {
		return "", err
	}
	if from < least {
		return "", fmt.Errorf("less than %d", least)
	}
	if !isRange {
		return strconv.Itoa(from), nil
	}
	to, err := decimal(last, most)
	if err != nil {
		return "", err
	}
	if from > to {
		return "", fmt.Errorf("a range that ends before it begins")
	}
	return fmt.Sprintf("%d-%d", from, to), nil
}

// Canonical returns the canonical spelling of s, so that two values can be compared, or an error.
func Canonical(f api.Format, s string) (string, error) {
	switch f {
	case api.Format_IP:
		a, err := address(s)
		return a.String(), err
	case api.Format_PREFIX:
		p, err := ParseNetwork(s)
		if err != nil {
			return "", err
		}
		return p.String(), nil
	case api.Format_IP_PREFIX:
		p, err := prefix(s)
		if err == nil && (p.Addr().IsUnspecified() || p.Addr().IsMulticast()) {
			err = fmt.Errorf("not an address of a host")
		}
		return p.String(), err
	case api.Format_MAC:
		mac, err := net.ParseMAC(s)
		if err != nil || len(mac) != 6 || len(s) != 17 || strings.Count(s, ":") != 5 {
			return "", fmt.Errorf("not an Ethernet address")
		}
		if mac[0]&1 != 0 {
			return "", fmt.Errorf("a multicast Ethernet address")
		}
		if mac.String() == "00:00:00:00:00:00" {
			return "", fmt.Errorf("not the Ethernet address of a host")
		}
		return mac.String(), nil
	case api.Format_PORT_RANGE:
		return numberRange(s, 0, 65535)
	case api.Format_VLAN_RANGE:
		return numberRange(s, 1, 4094)
	case api.Format_IP_PROTOCOL:
		if n, ok := protocols[strings.ToLower(s)]; ok {
			return strconv.Itoa(n), nil
		}
		n, err := decimal(s, 255)
		return strconv.Itoa(n), err
	case api.Format_DSCP:
		n, ok := dscp(strings.ToLower(s))
		if ok {
			return strconv.Itoa(n), nil
		}
		n, err := decimal(s, 63)
		return strconv.Itoa(n), err
	case api.Format_TCP_FLAGS:
		return tcpFlags(s)
	case api.Format_ICMP_TYPE:
		kind, code, hasCode := strings.Cut(s, "/")
		k, err := decimal(kind, 255)
		if err != nil || !hasCode {
			return strconv.Itoa(k), err
		}
		c, err := decimal(code, 255)
		return fmt.Sprintf("%d/%d", k, c), err
	case api.Format_LINUX_NAME:
		if len(s) > linuxNameLimit || s == "." || s == ".." ||
			strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r == ':' || r <= ' ' || r == 0x7f || unicode.IsSpace(r) }) {
			return "", fmt.Errorf("not a name that Linux accepts")
		}
		return s, nil
	case api.Format_NAMESPACE:
		if len(s) > namespaceLimit || s == "." || s == ".." ||
			strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r <= ' ' || r == 0x7f || unicode.IsSpace(r) }) {
			return "", fmt.Errorf("not a name of a network namespace")
		}
		return s, nil
	default:
		if len(s) > textLimit || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
			return "", fmt.Errorf("not acceptable as text")
		}
		return s, nil
	}
}

// acceptable returns the error that canonical would return, without the cost of the canonical spelling.
func acceptable(f api.Format, s string) error {
	var err error
	switch f {
	case api.Format_IP:
		_, err = address(s)
	case api.Format_PREFIX:
		_, err = ParseNetwork(s)
	default:
		_, err = Canonical(f, s)
	}
	return err
}

// ParseNetwork reads a prefix without bits after it.
func ParseNetwork(s string) (netip.Prefix, error) {
	p, err := prefix(s)
	if err == nil && p != p.Masked() {
		err = fmt.Errorf("not a network: bits are set after its prefix; the network is %s", p.Masked())
	}
	return p, err
}

func address(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil && strings.Contains(s, "/"):
		return a, fmt.Errorf("not an address: it has a prefix length")
	case err != nil:
		return a, fmt.Errorf("not an IP address")
	case a.Zone() != "":
		return a, fmt.Errorf("an address with a zone")
	case a.Is4In6():
		return a, fmt.Errorf("an IPv4 address written as IPv6")
	}
	return a, nil
}

func prefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil && !strings.Contains(s, "/"):
		if a, err := address(s); err == nil {
			return p, fmt.Errorf("the prefix length is missing (%s/%d for this address alone)", s, a.BitLen())
		}
		return p, fmt.Errorf("not an IP prefix")
	case err != nil:
		return p, fmt.Errorf("not an IP prefix")
	case p.Addr().Is4In6():
		return p, fmt.Errorf("an IPv4 prefix written as IPv6")
	}
	return p, nil
}

// decimal parses digits only: no sign, no leading zero that could be taken for octal.
func decimal(s string, most int) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || len(s) > 1 && s[0] == '0' || s[0] == '+' {
		return 0, fmt.Errorf("not a number")
	}
	if n > uint64(most) {
		return 0, fmt.Errorf("out of range")
	}
	return int(n), nil
}

var protocols = map[string]int{"icmp": 1, "tcp": 6, "udp": 17, "icmp6": 58}

// dscp returns the code point of a per-hop behaviour: class selectors (RFC 2474 section 4.2.2), assured (RFC 2597 section 6) and
// expedited forwarding (RFC 3246), voice-admit (RFC 5865).
func dscp(name string) (int, bool) {
	digit := func(i int, from, to byte) (int, bool) { return int(name[i] - '0'), name[i] >= from && name[i] <= to }
	switch {
	case name == "ef":
		return 46, true
	case name == "va" || name == "voice-admit":
		return 44, true
	case len(name) == 3 && strings.HasPrefix(name, "cs"):
		n, ok := digit(2, '0', '7')
		return n << 3, ok
	case len(name) == 4 && strings.HasPrefix(name, "af"):
		class, ok := digit(2, '1', '4')
		drop, ok2 := digit(3, '1', '3')
		return class<<3 | drop<<1, ok && ok2
	}
	return 0, false
}

var tcpFlagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"}

func tcpFlags(s string) (string, error) {
	state := map[string]string{}
	for _, part := range strings.Split(strings.ToLower(s), ",") {
		name := strings.TrimPrefix(strings.TrimSpace(part), "!")
		known := false
		for _, f := range tcpFlagNames {
			known = known || f == name
		}
		if !known {
			return "", fmt.Errorf("%s is not a TCP flag", Quote(name))
		}
		if state[name] != "" {
			return "", fmt.Errorf("duplicate TCP flag %q", name)
		}
		state[name] = strings.TrimSpace(part)
	}
	var ordered []string
	for _, f := range tcpFlagNames {
		if state[f] != "" {
			ordered = append(ordered, state[f])
		}
	}
	return strings.Join(ordered, ","), nil
}
