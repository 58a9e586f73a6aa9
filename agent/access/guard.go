package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
)

// Section is what of a northbound's configuration says where it listens and whom it lets in.
type Section struct {
	// HOST:PORT.
	Listen string `yaml:"listen"`
	TLS    TLS    `yaml:"tls"`
	// The CA (PEM) of clients' certificates; empty: none are asked for.
	ClientCA string `yaml:"clientCA"`
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

// Check says what is wrong. Nothing but the section is looked at.
func (s *Section) Check() error {
	host, _, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return fmt.Errorf("listen: found %q; accepted: HOST:PORT", s.Listen)
	}
	for name, role := range s.Roles {
		if _, err := ParseRole(role); err != nil {
			return fmt.Errorf("roles.%s: %w", name, err)
		}
	}
	switch {
	case (s.TLS.Certificate == "") != (s.TLS.Key == ""):
		return errors.New("tls: certificate and key need one another")
	case s.TLS.Certificate == "" && !loopback(host):
		return fmt.Errorf("tls: is missing, and %s is not on this host alone; accepted: certificate and key, or listen: 127.0.0.1:PORT", s.Listen)
	case s.TLS.Certificate == "" && s.ClientCA != "":
		return errors.New("clientCA: certificates need tls")
	case s.ClientCA == "" && s.Tokens == "":
		return errors.New("tokens: is missing; accepted: a file of tokens (sluice token), or clientCA with roles")
	case s.ClientCA != "" && len(s.Roles) == 0 && s.Tokens == "":
		return errors.New("roles: is missing, and no certificate would let anybody in; accepted: names and roles")
	case len(s.Roles) > 0 && s.ClientCA == "":
		return errors.New("roles: they are of certificates, and need clientCA")
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

	mu   sync.Mutex
	said string
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
		// Who has a token needs no certificate.
		now.ClientAuth = tls.VerifyClientCertIfGiven
		if g.tokens == nil {
			now.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return now, nil
	}
	return c
}

// Caller finds out who asks, from the connection and the Authorization headers. A token that is presented counts more than a certificate,
// and must be right. The error is *Unknown.
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
		return c, &Unknown{"it is not known who asks; accepted: " + strings.Join(accepted, ", or ")}
	}
	leaf := connection.VerifiedChains[0][0]
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

// known returns the tokens of now. Of a file with a mistake the other lines count; without the file nobody is let in.
func (g *Guard) known() Tokens {
	tokens, err := g.tokens.get()
	said := ""
	if err != nil {
		said = err.Error()
	}
	g.mu.Lock()
	again := g.said == said
	g.said = said
	g.mu.Unlock()
	if !again && err != nil {
		g.log.Error("the file of tokens has a mistake", "file", g.section.Tokens, "error", err)
	}
	return tokens
}

// Certificates says whether clients may show one.
func (g *Guard) Certificates() bool { return g.ca != nil }
