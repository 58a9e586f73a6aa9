// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"sluice.dev/sluice/agent/certificate"
	"sluice.dev/sluice/agent/object"
)

// Section is the part of a northbound's configuration with its address and its clients.
type Section struct {
	// HOST:PORT.
	Listen string `yaml:"listen"`
	TLS    TLS    `yaml:"tls"`
	// The CA (PEM) of clients' certificates; empty: none are asked for.
	ClientCA string `yaml:"clientCA"`
	// Patterns of names, one of which a client's certificate has; none: any that the CA signed.
	ClientNames certificate.Names `yaml:"clientNames"`
	// Roles by a certificate's common name or DNS name; "*": any that the CA signed.
	Roles map[string]string `yaml:"roles"`
	// The file of tokens; empty: there are none.
	Tokens string `yaml:"tokens"`
}

// TLS is our own certificate: files in PEM, read again when they change.
type TLS struct {
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// Check reports errors. It reads nothing but the section.
func (s *Section) Check() error {
	host, _, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return object.Mistake("listen", "not an address to listen at", strconv.Quote(s.Listen), "HOST:PORT")
	}
	for name, role := range s.Roles {
		if _, err := ParseRole(role); err != nil {
			return object.Mistake("roles."+name, "not a role", strconv.Quote(role), acceptedRoles())
		}
	}
	if err := s.ClientNames.Check("clientNames"); err != nil {
		return err
	}
	switch {
	case len(s.ClientNames) > 0 && s.ClientCA == "":
		return object.Mistake("clientNames", "names in certificates need clientCA", "", "clientCA, too; or no clientNames")
	case (s.TLS.Certificate == "") != (s.TLS.Key == ""):
		return object.Mistake("tls", "certificate and key go together", "", "both, or neither")
	case s.TLS.Certificate == "" && !loopback(host):
		return object.Mistake("tls", "missing, and other hosts can reach "+s.Listen, "", "certificate and key, or listen: 127.0.0.1:PORT")
	case s.TLS.Certificate == "" && s.ClientCA != "":
		return object.Mistake("clientCA", "certificates of clients need tls", "", "tls, too; or no clientCA")
	case s.ClientCA == "" && s.Tokens == "":
		return object.Mistake("tokens", "missing", "", "a file of tokens (sluice token), or clientCA with roles")
	case s.ClientCA != "" && len(s.Roles) == 0 && s.Tokens == "":
		return object.Mistake("roles", "missing: no certificate has access", "", "names and roles")
	case len(s.Roles) > 0 && s.ClientCA == "":
		return object.Mistake("roles", "roles of certificates need clientCA", "", "clientCA, too; or no roles")
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Guard knows callers.
type Guard struct {
	section Section
	owner   string
	log     *slog.Logger
	tokens  *file[Tokens]
	pair    [2]*file[[]byte]
	ca      *file[*x509.CertPool]

	mu     sync.Mutex
	denied string
}

// Open reads the files that the section names; from then on they are read again when they change. Owner is the northbound's name.
func (s Section) Open(owner string, log *slog.Logger) (*Guard, error) {
	g := &Guard{section: s, owner: owner, log: log}
	whole := func(text []byte) ([]byte, error) { return text, nil }
	if s.Tokens != "" {
		g.tokens = &file[Tokens]{path: s.Tokens, read: ParseTokens}
		if info, err := os.Stat(s.Tokens); err == nil && info.Mode().Perm()&0o022 != 0 {
			return nil, fmt.Errorf("tokens: %s: others may write to it; mend it with chmod go-w", s.Tokens)
		}
		if _, err := g.tokens.get(); err != nil {
			return nil, fmt.Errorf("tokens: %s: %w", s.Tokens, err)
		}
	}
	if s.ClientCA != "" {
		g.ca = &file[*x509.CertPool]{path: s.ClientCA, read: func(text []byte) (*x509.CertPool, error) {
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(text) {
				return nil, errors.New("there is no certificate in it")
			}
			return pool, nil
		}}
		if _, err := g.ca.get(); err != nil {
			return nil, fmt.Errorf("clientCA: %s: %w", s.ClientCA, err)
		}
	}
	if s.TLS.Certificate != "" {
		g.pair = [2]*file[[]byte]{{path: s.TLS.Certificate, read: whole}, {path: s.TLS.Key, read: whole}}
		if _, err := g.certificate(); err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
	}
	return g, nil
}

func (g *Guard) certificate() (*tls.Certificate, error) {
	certificate, err := g.pair[0].get()
	if err != nil {
		return nil, err
	}
	key, err := g.pair[1].get()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	return &pair, err
}

// TLS returns the configuration for a listener, or nil if it needs none. Protocols are for ALPN.
func (g *Guard) TLS(protocols ...string) *tls.Config {
	if g.pair[0] == nil {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols}
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols}
		pair, err := g.certificate()
		if err != nil {
			// While one of two files is replaced.
			g.log.Warn("the certificate cannot be read", "file", g.section.TLS.Certificate, "error", err)
			return nil, err
		}
		now.Certificates = []tls.Certificate{*pair}
		if g.ca == nil {
			return now, nil
		}
		if now.ClientCAs, err = g.ca.get(); err != nil {
			g.log.Warn("the CA of clients cannot be read", "file", g.section.ClientCA, "error", err)
			return nil, err
		}
		// A client with a token needs no certificate.
		now.ClientAuth = tls.VerifyClientCertIfGiven
		if g.tokens == nil {
			now.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return now, nil
	}
	return c
}

// Caller identifies the caller by the connection and the Authorization headers. A presented token must be valid, and
// takes precedence over a certificate. The error is *Unknown.
func (g *Guard) Caller(connection *tls.ConnectionState, authorization []string, from string) (Caller, error) {
	c := Caller{From: from, Owner: g.owner}
	if len(authorization) > 1 {
		return c, &Unknown{"more than one Authorization"}
	}
	if len(authorization) == 1 {
		scheme, token, _ := strings.Cut(authorization[0], " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return c, &Unknown{"Authorization: accepted: Bearer and a token"}
		}
		if g.tokens == nil {
			return c, &Unknown{"Authorization: there are no tokens here; accepted: a client certificate"}
		}
		var found bool
		if c.Name, c.Role, found = g.known().find(strings.TrimSpace(token)); !found {
			return c, &Unknown{"Authorization: the token is not known"}
		}
		return c, nil
	}
	if connection == nil || len(connection.VerifiedChains) == 0 {
		accepted := []string{}
		if g.tokens != nil {
			accepted = append(accepted, "Authorization: Bearer TOKEN")
		}
		if g.ca != nil {
			accepted = append(accepted, "a client certificate")
		}
		return c, &Unknown{"unknown caller; accepted: " + strings.Join(accepted, ", or ")}
	}
	leaf := connection.VerifiedChains[0][0]
	if err := g.section.ClientNames.Accept(leaf); err != nil {
		return c, &Unknown{"clientNames: " + err.Error()}
	}
	names := append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)
	for _, name := range names {
		if c.Name == "" {
			c.Name = name
		}
		if text := g.section.Roles[name]; text != "" && name != "*" {
			c.Name = name
			c.Role, _ = ParseRole(text)
			return c, nil
		}
	}
	if text := g.section.Roles["*"]; text != "" {
		c.Role, _ = ParseRole(text)
	}
	if c.Name == "" {
		return c, &Unknown{"the certificate has no name"}
	}
	return c, nil
}

// known returns the current tokens. A line with a mistake does not affect the other lines; without the file no token is accepted.
func (g *Guard) known() Tokens {
	tokens, err := g.tokens.get()
	denied := ""
	if err != nil {
		denied = err.Error()
	}
	g.mu.Lock()
	again := g.denied == denied
	g.denied = denied
	g.mu.Unlock()
	if !again && err != nil {
		g.log.Error("the file of tokens has a mistake", "file", g.section.Tokens, "error", err)
	}
	return tokens
}

// Certificates reports whether clients may show one.
func (g *Guard) Certificates() bool { return g.ca != nil }
