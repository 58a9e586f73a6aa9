// Package kafka is the northbound that takes what is wanted from a topic of Apache Kafka, and tells what became of it to another.
//
// It is a member of a consumer group, and commits an offset only once what was read is kept. One instance of a group is a static
// member (KIP-345): started again, it goes on at once. Messages about one object are in order if they have the same key, because
// then they are in the same partition.
package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"sluice.dev/sluice/agent/broker"
	"sluice.dev/sluice/agent/northbound"
)

// Section is its part of the configuration.
type Section struct {
	// HOST:PORT of one or more; the others are found.
	Brokers []string `yaml:"brokers"`
	// What is wanted is read from it.
	Topic string `yaml:"topic"`
	// Consumer group; "sluice-NAME" if empty. A new one reads the topic from its beginning.
	Group string `yaml:"group"`
	// Where messages go that cannot be accepted; TOPIC.dead if empty.
	DeadLetter string `yaml:"deadLetter"`
	// Where it is told how it stands with objects; nowhere if empty.
	Events string `yaml:"events"`
	// File that remembers what was the latest message about each object; /var/lib/sluice/NAME.messages.db if empty.
	Memory string `yaml:"memory"`
	// If it is there, though empty, connections are encrypted.
	TLS  *northbound.TLS `yaml:"tls"`
	SASL *SASL           `yaml:"sasl"`
}

// SASL says who we are.
type SASL struct {
	// plain, scram-sha-256 or scram-sha-512.
	Mechanism    string `yaml:"mechanism"`
	User         string `yaml:"user"`
	PasswordFile string `yaml:"passwordFile"`
}

var mechanisms = []string{"plain", "scram-sha-256", "scram-sha-512"}

// New returns a section in which nothing is said.
func New() northbound.Section { return &Section{} }

// Check implements northbound.Section.
func (s *Section) Check() error {
	if len(s.Brokers) == 0 {
		return errors.New("brokers: is missing; accepted: a list of HOST:PORT")
	}
	for _, b := range s.Brokers {
		if host, port, err := net.SplitHostPort(b); err != nil || host == "" || port == "" {
			return fmt.Errorf("brokers: found %q; accepted: HOST:PORT", b)
		}
	}
	if s.Topic == "" {
		return errors.New("topic: is missing")
	}
	if dead := s.deadLetter(); dead == s.Topic || dead == s.Events || s.Events == s.Topic {
		return errors.New("topic, deadLetter and events: two of them are the same")
	}
	if err := s.TLS.Check(); err != nil {
		return err
	}
	if a := s.SASL; a != nil {
		switch {
		case !slices.Contains(mechanisms, a.Mechanism):
			return fmt.Errorf("sasl.mechanism: found %q; accepted: plain, scram-sha-256, scram-sha-512", a.Mechanism)
		case a.User == "":
			return errors.New("sasl.user: is missing")
		case a.PasswordFile == "":
			return errors.New("sasl.passwordFile: is missing")
		}
	}
	return nil
}

func (s *Section) deadLetter() string { return cmp.Or(s.DeadLetter, s.Topic+".dead") }

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return way{s} }

type way struct{ *Section }

func (w way) Run(ctx context.Context, e northbound.Environment) error {
	return broker.Run(ctx, e, &driver{w.Section, e, &connections{log: e.Log}}, broker.Settings{Memory: w.Memory})
}
