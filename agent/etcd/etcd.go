// SPDX-License-Identifier: Apache-2.0

// Package etcd is the northbound whose documents are the keys below a prefix in etcd, API version 3. Statuses are below another.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"sluice.dev/sluice/agent/keyed"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
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

// Default prefixes.
const (
	defaultPrefix       = "/sluice/intent/"
	defaultStatusPrefix = "/sluice/status/"
)

// New returns a section with default values.
func New() northbound.Section {
	return &Section{Prefix: defaultPrefix, StatusPrefix: defaultStatusPrefix}
}

// Check implements northbound.Section.
func (s *Section) Check() error {
	if len(s.Endpoints) == 0 {
		return object.Mistake("endpoints", "missing", "", "a list of http://HOST:PORT or https://HOST:PORT")
	}
	for _, e := range s.Endpoints {
		if !strings.HasPrefix(e, "http://") && !strings.HasPrefix(e, "https://") {
			return object.Mistake("endpoints", "not a URL", strconv.Quote(e), "http://HOST:PORT or https://HOST:PORT")
		}
		if s.TLS != nil && !strings.HasPrefix(e, "https://") {
			return object.Mistake("endpoints", "not encrypted, beside tls", strconv.Quote(e), "https://HOST:PORT")
		}
	}
	if s.Prefix == "" || s.StatusPrefix == "" {
		return object.Mistake("prefix, statusPrefix", "empty", "", "a prefix such as "+defaultPrefix)
	}
	if strings.HasPrefix(s.Prefix, s.StatusPrefix) || strings.HasPrefix(s.StatusPrefix, s.Prefix) {
		return object.Mistake("statusPrefix", "one of prefix and statusPrefix begins with the other", strconv.Quote(s.StatusPrefix), "a prefix of its own beside "+strconv.Quote(s.Prefix))
	}
	if (s.Username == "") != (s.PasswordFile == "") {
		return object.Mistake("username, passwordFile", "they go together", "", "both, or neither")
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
	// Keys in one answer, and etcd's default limit of a request.
	page          = 1000
	maxOperations = 128
	maxBytes      = 1 << 20
)

// Connect returns a client, which connects when it is used.
func (s *Section) Connect() (*clientv3.Client, error) {
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
		// Errors are returned, and logged once by the caller.
		Logger: zap.NewNop(),
	})
}

// plain returns an error without the details of gRPC.
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
