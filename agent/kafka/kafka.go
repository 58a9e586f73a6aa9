// SPDX-License-Identifier: Apache-2.0

// Package kafka is the northbound that reads documents from a topic of Apache Kafka, and writes events to another.
//
// It is a member of a consumer group, and commits an offset only after the changes are stored. One instance of a
// group is a static member (KIP-345): after a restart it goes on at once. Messages about one object are in order if
// they have the same key, because then they are in the same partition.
package kafka

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"

	"sluice.dev/sluice/agent/broker"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// Section is its part of the configuration.
type Section struct {
	// HOST:PORT of one or more; the others are found.
	Brokers []string `yaml:"brokers"`
	// The topic of documents.
	Topic string `yaml:"topic"`
	// Consumer group; "sluice-NAME" if empty. A new one reads the topic from its beginning.
	Group string `yaml:"group"`
	// Where messages go that cannot be accepted; TOPIC.dead if empty.
	DeadLetter string `yaml:"deadLetter"`
	// The topic for events of objects; empty: no events.
	Events string `yaml:"events"`
	// File with the order of the latest message about each object; /var/lib/sluice/NAME.messages.db if empty.
	Memory string `yaml:"memory"`
	// If it is there, though empty, connections are encrypted.
	TLS  *northbound.TLS `yaml:"tls"`
	SASL *SASL           `yaml:"sasl"`
}

// SASL holds our credentials.
type SASL struct {
	// plain, scram-sha-256 or scram-sha-512.
	Mechanism    string `yaml:"mechanism"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"passwordFile"`
}

var mechanisms = []string{"plain", "scram-sha-256", "scram-sha-512"}

// New returns an empty section.
func New() northbound.Section { return &Section{} }

// Check implements northbound.Section.
func (s *Section) Check() error {
	if len(s.Brokers) == 0 {
		return object.Mistake("brokers", "missing", "", "a list of HOST:PORT")
	}
	for _, b := range s.Brokers {
		if host, port, err := net.SplitHostPort(b); err != nil || host == "" || port == "" {
			return object.Mistake("brokers", "not an address", strconv.Quote(b), "HOST:PORT")
		}
	}
	if s.Topic == "" {
		return object.Mistake("topic", "missing", "", "")
	}
	if dead := s.deadLetter(); dead == s.Topic || dead == s.Events || s.Events == s.Topic {
		return object.Mistake("topic, deadLetter, events", "two of them are the same", "", "three topics")
	}
	if err := s.TLS.Check(); err != nil {
		return err
	}
	if a := s.SASL; a != nil {
		switch {
		case !slices.Contains(mechanisms, a.Mechanism):
			return object.Mistake("sasl.mechanism", "there is no such mechanism", strconv.Quote(a.Mechanism), "plain, scram-sha-256, scram-sha-512")
		case a.User == "":
			return object.Mistake("sasl.user", "missing", "", "")
		case a.PasswordFile == "":
			return object.Mistake("sasl.passwordFile", "missing", "", "")
		}
	}
	return nil
}

func (s *Section) deadLetter() string { return cmp.Or(s.DeadLetter, s.Topic+".dead") }

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return runner{s} }

type runner struct{ *Section }

func (w runner) Run(ctx context.Context, e northbound.Environment) error {
	return broker.Run(ctx, e, &driver{w.Section, e, &connections{log: e.Log}}, broker.Settings{Memory: w.Memory})
}
