// Package etcd is the northbound whose documents are the keys below a prefix in etcd, API version 3. Statuses are below another.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"sluice.dev/sluice/agent/keyed"
	"sluice.dev/sluice/agent/northbound"
)

// Section is the northbound's part of the configuration.
type Section struct {
	// http://HOST:PORT, or https://; one for each member.
	Endpoints []string `yaml:"endpoints"`
	// Documents are below Prefix, and statuses below StatusPrefix; empty: the usual.
	Prefix       string          `yaml:"prefix"`
	StatusPrefix string          `yaml:"statusPrefix"`
	Username     string          `yaml:"username"`
	PasswordFile string          `yaml:"passwordFile"`
	TLS          *northbound.TLS `yaml:"tls"`
}

// Where things are if nothing else is said.
const (
	defaultPrefix       = "/sluice/intent/"
	defaultStatusPrefix = "/sluice/status/"
)

// New returns a section with what is usual.
func New() northbound.Section {
	return &Section{Prefix: defaultPrefix, StatusPrefix: defaultStatusPrefix}
}

// Check implements northbound.Section.
func (s *Section) Check() error {
	if len(s.Endpoints) == 0 {
		return errors.New("endpoints: is missing; accepted: a list of http://HOST:PORT or https://HOST:PORT")
	}
	for _, e := range s.Endpoints {
		if !strings.HasPrefix(e, "http://") && !strings.HasPrefix(e, "https://") {
			return fmt.Errorf("endpoints: found %q; accepted: http://HOST:PORT or https://HOST:PORT", e)
		}
		if s.TLS != nil && !strings.HasPrefix(e, "https://") {
			return fmt.Errorf("endpoints: found %q together with tls; accepted: https://HOST:PORT", e)
		}
	}
	if s.Prefix == "" || s.StatusPrefix == "" {
		return errors.New("prefix, statusPrefix: found an empty one; accepted: a prefix such as " + defaultPrefix)
	}
	if strings.HasPrefix(s.Prefix, s.StatusPrefix) || strings.HasPrefix(s.StatusPrefix, s.Prefix) {
		return fmt.Errorf("statusPrefix: found %q; accepted: one of which prefix (%q) is no part, and that is no part of it", s.StatusPrefix, s.Prefix)
	}
	if (s.Username == "") != (s.PasswordFile == "") {
		return errors.New("username and passwordFile are either both there, or neither")
	}
	return s.TLS.Check()
}

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return s }

// Run implements northbound.Northbound.
func (s *Section) Run(ctx context.Context, e northbound.Environment) error {
	d := &driver{section: s}
	defer d.close()
	keyed.Run(ctx, e, d)
	return nil
}

const (
	// Of one request.
	patience = 5 * time.Second
	// Keys in one answer, and what etcd by itself accepts in one request.
	page          = 1000
	operationMost = 128
	bytesMost     = 1 << 20
)

func (s *Section) connect() (*clientv3.Client, error) {
	encrypted, err := s.TLS.Config()
	if err != nil {
		return nil, err
	}
	password, err := northbound.Secret(s.PasswordFile)
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Endpoints: s.Endpoints, Username: s.Username, Password: password, TLS: encrypted,
		DialTimeout: patience, DialKeepAliveTime: patience, DialKeepAliveTimeout: patience,
		// What goes wrong comes back as an error, and is logged once.
		Logger: zap.NewNop(),
	})
}

// plain leaves out what only gRPC understands.
func plain(what string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("no answer")
	}
	return fmt.Errorf("%s: %w", what, err)
}

var _ keyed.Driver = (*driver)(nil)

type driver struct {
	section *Section
	shared  client
}
