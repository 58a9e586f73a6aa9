// Package rabbitmq is the northbound that takes what is wanted from a queue of RabbitMQ (AMQP 0-9-1), and tells what became of it to
// an exchange.
//
// A message is acknowledged once what it says is kept. The queue has one consumer at a time, so that its order is kept; a message
// that came too late because somebody sent it again is known by its revision.
package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"

	"sluice.dev/sluice/agent/broker"
	"sluice.dev/sluice/agent/northbound"
)

// Section is its part of the configuration.
type Section struct {
	// amqp://USER@HOST:PORT/VHOST, or amqps:.
	URL          string `yaml:"url"`
	PasswordFile string `yaml:"passwordFile"`
	// For amqps. With a certificate and no user in the URL, the certificate says who we are.
	TLS northbound.TLS `yaml:"tls"`
	// What is wanted is read from it.
	Queue string `yaml:"queue"`
	// Queue for messages that cannot be accepted; QUEUE.dead if empty.
	DeadLetter string `yaml:"deadLetter"`
	// Topic exchange where it is told how it stands with objects, with routing key KIND.NAME; nowhere if empty.
	Events string `yaml:"events"`
	// How many messages are on the way, or are kept at once; 1000 if 0.
	Prefetch int `yaml:"prefetch"`
	// File that remembers the latest revision of each object; /var/lib/sluice/NAME.messages.db if empty.
	Memory string `yaml:"memory"`
}

// New returns a section in which nothing is said.
func New() northbound.Section { return &Section{} }

// Check implements northbound.Section.
func (s *Section) Check() error {
	const accepted = "accepted: amqp://USER@HOST:PORT/VHOST, or the same with amqps"
	if s.URL == "" {
		return errors.New("url: is missing; " + accepted)
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "amqp" && u.Scheme != "amqps" || u.Hostname() == "" {
		// What could not be read may hold a password.
		return errors.New("url: is none of a broker; " + accepted)
	}
	if _, has := u.User.Password(); has {
		return errors.New("url: has a password in it; accepted: a passwordFile")
	}
	switch {
	case s.PasswordFile != "" && u.User.Username() == "":
		return errors.New("passwordFile: is of no use without a user in the url")
	case s.PasswordFile == "" && u.User.Username() != "":
		return errors.New("passwordFile: is missing")
	case u.Scheme == "amqp" && s.TLS != northbound.TLS{}:
		return errors.New("tls: the url is not amqps")
	case s.Queue == "":
		return errors.New("queue: is missing")
	case s.deadLetter() == s.Queue:
		return errors.New("queue and deadLetter: are the same")
	case s.Prefetch < 0 || s.Prefetch > 65535:
		return fmt.Errorf("prefetch: found %d; accepted: 1 to 65535, 0 (%d)", s.Prefetch, prefetch)
	}
	return s.TLS.Check()
}

func (s *Section) deadLetter() string { return cmp.Or(s.DeadLetter, s.Queue+".dead") }

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return way{s} }

type way struct{ *Section }

func (w way) Run(ctx context.Context, e northbound.Environment) error {
	return broker.Run(ctx, e, &driver{w.Section, e}, broker.Settings{Memory: w.Memory})
}
