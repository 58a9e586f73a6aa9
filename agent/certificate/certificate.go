// SPDX-License-Identifier: Apache-2.0

// Package certificate is whose certificates are accepted, beyond that an authority signed them: by the names in them (RFC 5280 section
// 4.2.1.6, and the subject's common name).
package certificate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/object"
)

// Names are patterns, in which * stands for any characters, also none. Upper and lower case are the same. None: all are accepted.
type Names []string

// Check reports errors of the names in a field.
func (n Names) Check(field string) error {
	for i, pattern := range n {
		if strings.TrimSpace(pattern) != pattern || pattern == "" {
			return object.Mistake(fmt.Sprintf("%s[%d]", field, i), "not a name", strconv.Quote(pattern), "a name, or a pattern such as *.example.org")
		}
	}
	return nil
}

// Accept returns nil if a name of the certificate matches one of the patterns.
func (n Names) Accept(c *x509.Certificate) error {
	if len(n) == 0 {
		return nil
	}
	if c == nil {
		return errors.New("there is no certificate")
	}
	names := Of(c)
	for _, name := range names {
		if slices.ContainsFunc(n, func(pattern string) bool { return matches(pattern, name) }) {
			return nil
		}
	}
	has := "it has none"
	if len(names) > 0 {
		has = strings.Join(names[:min(len(names), 10)], ", ")
	}
	return fmt.Errorf("no name of the certificate (%s) is accepted; accepted: %s", has, strings.Join(n, ", "))
}

// Of returns the names of a certificate: the subject's common name, then those of DNS, URI and email.
func Of(c *x509.Certificate) []string {
	var all []string
	if c.Subject.CommonName != "" {
		all = append(all, c.Subject.CommonName)
	}
	all = append(all, c.DNSNames...)
	for _, u := range c.URIs {
		all = append(all, u.String())
	}
	return append(all, c.EmailAddresses...)
}

// matches is peer_name_matches of the data plane.
func matches(pattern, name string) bool {
	pattern, name = strings.ToLower(pattern), strings.ToLower(name)
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	if last == 0 {
		return pattern == name
	}
	if !strings.HasPrefix(name, parts[0]) {
		return false
	}
	name = name[len(parts[0]):]
	for _, part := range parts[1:last] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, parts[last])
}
