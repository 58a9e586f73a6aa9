// Package redis is the northbound whose documents are the string keys below a prefix in Redis. Statuses are hashes below another.
package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"sluice.dev/sluice/agent/keyed"
	"sluice.dev/sluice/agent/northbound"
)

// Server says where Redis is, and who we are to it.
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
	// How often everything is read where Redis does not tell of changes.
	Interval time.Duration `yaml:"interval"`
}

// Where things are if nothing else is said.
const (
	defaultPrefix       = "sluice:intent:"
	defaultStatusPrefix = "sluice:status:"
	defaultInterval     = 10 * time.Second
)

// New returns a section with what is usual.
func New() northbound.Section {
	return &Section{Prefix: defaultPrefix, StatusPrefix: defaultStatusPrefix, Interval: defaultInterval}
}

// Check says what is wrong.
func (s *Server) Check() error {
	if _, _, err := net.SplitHostPort(s.Address); err != nil && !strings.HasPrefix(s.Address, "/") {
		return fmt.Errorf("address: found %q; accepted: HOST:PORT, or /PATH of a Unix socket", s.Address)
	}
	if s.Database < 0 {
		return fmt.Errorf("database: found %d; accepted: 0 or more", s.Database)
	}
	if s.Username != "" && s.PasswordFile == "" {
		return errors.New("passwordFile: is missing, and there is a username; accepted: /PATH")
	}
	return s.TLS.Check()
}

// Check implements northbound.Section.
func (s *Section) Check() error {
	if s.Prefix == "" || s.StatusPrefix == "" {
		return fmt.Errorf("prefix, statusPrefix: found an empty one; accepted: a prefix such as %q", defaultPrefix)
	}
	if strings.HasPrefix(s.Prefix, s.StatusPrefix) || strings.HasPrefix(s.StatusPrefix, s.Prefix) {
		return fmt.Errorf("statusPrefix: found %q; accepted: one of which prefix (%q) is no part, and that is no part of it", s.StatusPrefix, s.Prefix)
	}
	if s.Interval < time.Second {
		return fmt.Errorf("interval: found %s; accepted: at least 1s", s.Interval)
	}
	return s.Server.Check()
}

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return s }

// Run implements northbound.Northbound.
func (s *Section) Run(ctx context.Context, e northbound.Environment) error {
	d := &driver{section: s, log: e.Log}
	keyed.Run(ctx, e, d)
	if d.teller != nil {
		d.teller.Close()
	}
	return nil
}

// Of one request; and how long a connection may be silent until it is asked whether it lives.
const patience = 5 * time.Second

// silent is what the library logs to: what goes wrong comes back as an error, and is logged once.
type silent struct{}

// Printf is part of the library's interface.
func (silent) Printf(context.Context, string, ...any) {}

var silence = sync.OnceFunc(func() { goredis.SetLogger(silent{}) })

// connect makes a client, which connects when it is used. The files that say who we are are read now.
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
		// Who calls tries again, and says so.
		MaxRetries: -1, DisableIdentity: true,
	}), nil
}

// glob returns a pattern that matches what begins with a prefix.
func glob(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(prefix) + "*"
}
