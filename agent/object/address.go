// SPDX-License-Identifier: Apache-2.0

// Checks of addresses and templates, for the rules of several kinds.
package object

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// AppendDestination appends the key of packets to a prefix. A route and an address of ours may share it; a
// subscriber's prefix may not.
func AppendDestination(b []byte, vrf string, p netip.Prefix) []byte {
	b = append(append(append(b, "VRF "...), VRFName(vrf)...), ", "...)
	return p.AppendTo(b)
}

func destination(vrf string, p netip.Prefix) string { return string(AppendDestination(nil, vrf, p)) }

// VRFName returns the name of the VRF that a field means: "default" if it is empty.
func VRFName(name string) string {
	if name == "" {
		return "default"
	}
	return name
}

const (
	notHost      = "not an address of a host"
	hostAccepted = "a unicast address"
)

// IsHost refuses addresses that no single host can have.
func IsHost(written string) bool {
	a, err := netip.ParseAddr(written)
	return err != nil || !a.IsUnspecified() && !a.IsMulticast()
}

// CheckHost reports an address that no single host can have.
func CheckHost(field, written string, add Report) {
	if !IsHost(written) {
		add(field, notHost, Quote(written), hostAccepted)
	}
}

// CheckSameFamily reports different families: two addresses or prefixes are both of IPv4 or both of IPv6, unless one is left out. noun: "address", "network".
func CheckSameFamily(field, written, otherField, other, noun string, add Report) {
	if written != "" && other != "" && Family(written) != Family(other) {
		add(field, "not of the family of "+otherField, Quote(written), "an "+Family(other)+" "+noun)
	}
}

// Family returns "IPv4" or "IPv6", of an address or a prefix.
func Family(written string) string {
	if strings.Contains(written, ":") {
		return "IPv6"
	}
	return "IPv4"
}

// CheckTemplate returns the error of a template with these placeholders.
func CheckTemplate(template string, words []string) string {
	if len(template) > 128 {
		return "too long"
	}
	open := -1
	for i, r := range template {
		switch {
		case r == '{' && open >= 0, r == '}' && open < 0:
			return "braces that do not match"
		case r == '{':
			open = i
		case r == '}':
			if word := template[open+1 : i]; !slices.Contains(words, word) {
				return "no placeholder is called " + Quote(word)
			}
			open = -1
		}
	}
	if open >= 0 {
		return "braces that do not match"
	}
	return ""
}

// IPProtocol returns the number of an IP protocol that the format IP_PROTOCOL accepts: "6" for "tcp". Empty: empty.
func IPProtocol(written string) string {
	if n, known := protocols[strings.ToLower(written)]; known {
		return strconv.Itoa(n)
	}
	return written
}
