// SPDX-License-Identifier: Apache-2.0

// Package redis is the northbound whose documents are the string keys below a prefix in Redis. Statuses are hashes below another.
package redis

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice.dev/sluice/agent/keyed"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// Server is the address of Redis, and our credentials.
type Server struct {
	// HOST:PORT, or /PATH of a Unix socket.
	Address      string          `yaml:"address"`
	Database     int             `yaml:"database"`
	Username     string          `yaml:"username"`
	PasswordFile string          `yaml:"passwordFile"`
	TLS          *northbound.TLS `yaml:"tls"`
}

// Section is the northbound's part of the configuration.
type Section struct {
	Server `yaml:",inline"`
	// Documents are below Prefix, and statuses below StatusPrefix.
	Prefix       string `yaml:"prefix"`
	StatusPrefix string `yaml:"statusPrefix"`
	// The interval of reads of all keys if Redis sends no events of changes.
	Interval time.Duration `yaml:"interval"`
}

// Default prefixes and interval.
const (
	defaultPrefix       = "sluice:intent:"
	defaultStatusPrefix = "sluice:status:"
	defaultInterval     = 10 * time.Second
)

// New returns a section with default values.
func New() northbound.Section {
	return &Section{Prefix: defaultPrefix, StatusPrefix: defaultStatusPrefix, Interval: defaultInterval}
}

// Check reports errors.
func (s *Server) Check() error {
	if _, _, err := net.SplitHostPort(s.Address); err != nil && !strings.HasPrefix(s.Address, "/") {
		return object.Mistake("address", "not an address", strconv.Quote(s.Address), "HOST:PORT, or /PATH of a Unix socket")
	}
	if s.Database < 0 {
		return object.Mistake("database", "out of range", strconv.Itoa(s.Database), "0 or more")
	}
	if s.Username != "" && s.PasswordFile == "" {
		return object.Mistake("passwordFile", "missing beside username", "", "/PATH")
	}
	return s.TLS.Check()
}

// Check implements northbound.Section.
func (s *Section) Check() error {
	if s.Prefix == "" || s.StatusPrefix == "" {
		return object.Mistake("prefix, statusPrefix", "empty", "", "a prefix such as "+strconv.Quote(defaultPrefix))
	}
	if strings.HasPrefix(s.Prefix, s.StatusPrefix) || strings.HasPrefix(s.StatusPrefix, s.Prefix) {
		return object.Mistake("statusPrefix", "one of prefix and statusPrefix begins with the other", strconv.Quote(s.StatusPrefix), "a prefix of its own beside "+strconv.Quote(s.Prefix))
	}
	if s.Interval < time.Second {
		return object.Mistake("interval", "out of range", s.Interval.String(), "at least 1s")
	}
	return s.Server.Check()
}

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return s }

// Run implements northbound.Northbound.
func (s *Section) Run(ctx context.Context, e northbound.Environment) error {
	d := &driver{section: s, log: e.Log}
	keyed.Run(ctx, e, d)
	if d.statusClient != nil {
		d.statusClient.Close()
	}
	return nil
}

// Of one request; and how long a connection may be silent until it is asked whether it lives.
const patience = 5 * time.Second

// silent discards the library's log: its errors are returned, and logged once by the caller.
type silent struct{}

// Printf is part of the library's interface.
func (silent) Printf(context.Context, string, ...any) {}

var silence = sync.OnceFunc(func() { goredis.SetLogger(silent{}) })

// connect makes a client, which connects at its first use. It reads the files of credentials now.
func (s *Server) connect() (*goredis.Client, error) {
	silence()
	encrypted, err := s.TLS.Config()
	if err != nil {
		return nil, err
	}
	password, err := northbound.Secret(s.PasswordFile)
	if err != nil {
		return nil, err
	}
	network := "tcp"
	if strings.HasPrefix(s.Address, "/") {
		network = "unix"
	}
	if host, _, err := net.SplitHostPort(s.Address); err == nil && encrypted != nil {
		encrypted.ServerName = host
	}
	return goredis.NewClient(&goredis.Options{
		Network: network, Addr: s.Address, DB: s.Database, Username: s.Username, Password: password, TLSConfig: encrypted,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, ContextTimeoutEnabled: true,
		// The caller retries, and logs.
		MaxRetries: -1, DisableIdentity: true,
	}), nil
}

// glob returns a pattern that matches keys with a prefix.
func glob(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(prefix) + "*"
}
