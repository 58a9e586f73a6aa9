// SPDX-License-Identifier: Apache-2.0

// Package rabbitmq is the northbound that receives changes of desired state from a queue of RabbitMQ (AMQP 0-9-1),
// and publishes their results to an exchange.
//
// A message is acknowledged after its changes are stored. The queue has one consumer at a time, which preserves its
// order. A message that was sent again and arrives late is recognized by its revision.
package rabbitmq

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"

	"sluice.dev/sluice/agent/broker"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// Section is its part of the configuration.
type Section struct {
	// amqp://USER@HOST:PORT/VHOST, or amqps:.
	URL          string `yaml:"url"`
	PasswordFile string `yaml:"passwordFile"`
	// For amqps. With a certificate and no user in the URL, the certificate authenticates us.
	TLS northbound.TLS `yaml:"tls"`
	// The queue of documents.
	Queue string `yaml:"queue"`
	// Queue for messages that cannot be accepted; QUEUE.dead if empty.
	DeadLetter string `yaml:"deadLetter"`
	// The topic exchange for events of objects, with routing key KIND.NAME; empty: no events.
	Events string `yaml:"events"`
	// How many messages are on the way, or are kept at once; 1000 if 0.
	Prefetch int `yaml:"prefetch"`
	// File that remembers the latest revision of each object; /var/lib/sluice/NAME.messages.db if empty.
	Memory string `yaml:"memory"`
}

// New returns an empty section.
func New() northbound.Section { return &Section{} }

// Check implements northbound.Section.
func (s *Section) Check() error {
	const accepted = "amqp://USER@HOST:PORT/VHOST, or the same with amqps"
	if s.URL == "" {
		return object.Mistake("url", "missing", "", accepted)
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Hostname() == "" {
		// Do not print the value: it may hold a password.
		return object.Mistake("url", "not the URL of a broker", "", accepted)
	}
	if _, has := u.User.Password(); has {
		return object.Mistake("url", "it has a password", "", "a passwordFile")
	}
	switch {
	case s.PasswordFile != "" && u.User.Username() == "":
		return object.Mistake("passwordFile", "the url has no user", "", "a user in the url, or no passwordFile")
	case s.PasswordFile == "" && u.User.Username() != "":
		return object.Mistake("passwordFile", "missing", "", "")
	case u.Scheme == "amqp" && s.TLS != northbound.TLS{}:
		return object.Mistake("tls", "the url is not encrypted", "", "amqps, or no tls")
	case s.Queue == "":
		return object.Mistake("queue", "missing", "", "")
	case s.deadLetter() == s.Queue:
		return object.Mistake("deadLetter", "the same as queue", "", "another queue")
	case s.Prefetch < 0 || s.Prefetch > 65535:
		return object.Mistake("prefetch", "out of range", strconv.Itoa(s.Prefetch), fmt.Sprintf("1 to 65535, or 0 (%d)", prefetch))
	}
	return s.TLS.Check()
}

func (s *Section) deadLetter() string { return cmp.Or(s.DeadLetter, s.Queue+".dead") }

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return runner{s} }

type runner struct{ *Section }

func (w runner) Run(ctx context.Context, e northbound.Environment) error {
	return broker.Run(ctx, e, &driver{w.Section, e}, broker.Settings{Memory: w.Memory})
}
