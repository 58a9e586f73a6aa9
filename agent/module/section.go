// SPDX-License-Identifier: Apache-2.0

package module

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/object"
)

// Section is the part `modules` of the agent's configuration.
type Section struct {
	// unix:///PATH, or HOST:PORT, which needs tls unless the host is a loopback address.
	Listen string     `yaml:"listen"`
	TLS    access.TLS `yaml:"tls"`
	// By the names of modules.
	Rights map[string]Rights `yaml:"rights"`
}

// Rights are the permissions of one module. Everything else is denied.
type Rights struct {
	// "sha256:" and the hash of its token, as `sluice token` writes it.
	Token string `yaml:"token"`
	// Kinds that it may add. It may follow them, too.
	Kinds []string `yaml:"kinds"`
	// File of their descriptors, a packed FileDescriptorSet: they are known before the module attaches for the first time. Empty: none.
	Descriptors string `yaml:"descriptors"`
	// Kinds that it may follow, and of which it may produce volatile objects.
	Follow  []string `yaml:"follow"`
	Produce []string `yaml:"produce"`
	// Reasons for which packets go to it, and the ways by which it may send packets: session, vrf, interface, port.
	Punts []string `yaml:"punts"`
	Send  []string `yaml:"send"`
	// It sees the secret fields of objects that it follows.
	Secrets bool `yaml:"secrets"`
}

var (
	moduleName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	reasonWord = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	ways       = []string{"session", "vrf", "interface", "port"}
	// reservedNames are owners, and first parts of package names, of the agent's own.
	reservedNames = []string{"sluice", "google", "builtin", "agent", "api", table}
)

// Check reports errors within the section.
func (s *Section) Check() error {
	if path, unix := strings.CutPrefix(s.Listen, "unix://"); unix {
		if !strings.HasPrefix(path, "/") {
			return object.Mistake("listen", "not an address to listen at", strconv.Quote(s.Listen), "unix:///PATH or HOST:PORT")
		}
		if s.TLS.Certificate != "" || s.TLS.Key != "" {
			return object.Mistake("tls", "a Unix socket is not encrypted", "", "no tls, or listen: HOST:PORT")
		}
	} else {
		host, _, err := net.SplitHostPort(s.Listen)
		if err != nil {
			return object.Mistake("listen", "not an address to listen at", strconv.Quote(s.Listen), "unix:///PATH or HOST:PORT")
		}
		ip := net.ParseIP(host)
		switch {
		case (s.TLS.Certificate == "") != (s.TLS.Key == ""):
			return object.Mistake("tls", "certificate and key go together", "", "both, or neither")
		case s.TLS.Certificate == "" && host != "localhost" && (ip == nil || !ip.IsLoopback()):
			return object.Mistake("tls", "missing, and other hosts can reach "+s.Listen, "", "certificate and key")
		}
	}
	if len(s.Rights) == 0 {
		return object.Mistake("rights", "missing", "", "names of modules, and what each may do")
	}
	kinds, tokens := map[string]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(s.Rights)) {
		r, field := s.Rights[name], "rights."+name
		switch {
		case !moduleName.MatchString(name) || len(name) > 63:
			return object.Mistake("rights", "not a name", strconv.Quote(name), "at most 63 lower-case letters and digits, with - between words")
		case slices.Contains(reservedNames, name):
			return object.Mistake("rights", "a reserved name", strconv.Quote(name), "another name")
		}
		if _, err := r.hash(); err != nil {
			return object.Mistake(field+".token", "not a hash", "", acceptedHash)
		}
		if other := tokens[r.Token]; other != "" {
			return object.Mistake(field+".token", "module "+other+" has the same", "", "a token of its own")
		}
		tokens[r.Token] = name
		for _, kind := range r.Kinds {
			if !kindName.MatchString(kind) {
				return object.Mistake(field+".kinds", "not a kind", strconv.Quote(kind), "names such as DnsHost")
			}
			if other := kinds[kind]; other != "" {
				return object.Mistake(field+".kinds", "module "+other+" has it already", kind, "each kind once")
			}
			kinds[kind] = name
		}
		for _, reason := range r.Punts {
			if !reasonWord.MatchString(reason) {
				return object.Mistake(field+".punts", "not a reason", strconv.Quote(reason), "reasons such as local")
			}
		}
		for _, way := range r.Send {
			if !slices.Contains(ways, way) {
				return object.Mistake(field+".send", "there is no such way", strconv.Quote(way), strings.Join(ways, ", "))
			}
		}
	}
	return nil
}

// CheckKinds reports kinds in the rights that cannot exist.
func (s *Section) CheckKinds(registry *object.Registry) error {
	added := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(s.Rights)) {
		for _, kind := range s.Rights[name].Kinds {
			added[kind] = true
			k := registry.Kind(kind)
			if k == nil {
				continue
			}
			of := string(k.Message.Descriptor().ParentFile().Package())
			if first, _, _ := strings.Cut(of, "."); first != packageOf(name) {
				return fmt.Errorf("modules.rights.%s.kinds: %s is a kind of %s already; accepted: kinds of the module's own", name, kind, of)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Rights)) {
		for _, list := range []struct {
			field string
			kinds []string
		}{{"follow", s.Rights[name].Follow}, {"produce", s.Rights[name].Produce}} {
			for _, kind := range list.kinds {
				if !added[kind] && registry.Kind(kind) == nil {
					return fmt.Errorf("modules.rights.%s.%s: there is no kind %q; accepted: kinds of objects, also of modules", name, list.field, kind)
				}
			}
		}
	}
	return nil
}

const acceptedHash = "sha256: and 64 hexadecimal digits, as `sluice token` writes it"

func (r *Rights) hash() (hash [sha256.Size]byte, err error) {
	text, ok := strings.CutPrefix(r.Token, "sha256:")
	bytes, err := hex.DecodeString(text)
	if !ok || err != nil || len(bytes) != sha256.Size {
		// Do not print the value: it may be the token itself.
		return hash, errors.New("accepted: " + acceptedHash)
	}
	return [sha256.Size]byte(bytes), nil
}

func (r *Rights) mayFollow(kind string) bool {
	return slices.Contains(r.Follow, kind) || slices.Contains(r.Kinds, kind)
}
