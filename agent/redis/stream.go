// SPDX-License-Identifier: Apache-2.0

// A stream of messages, read by a consumer group: each arrives at least once, also when either end is killed.
package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"sluice.dev/sluice/agent/broker"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// StreamSection is the part of the configuration of a northbound that takes messages from a stream.
type StreamSection struct {
	Server `yaml:",inline"`
	// The stream of documents.
	Stream string `yaml:"stream"`
	// Consumer group; the northbound's name if empty. Each agent that receives all messages needs a group of its own.
	Group string `yaml:"group"`
	// Stream for messages that cannot be accepted; STREAM.dead if empty.
	DeadLetter string `yaml:"deadLetter"`
	// The stream for events of objects, of about EventsLength entries; empty: no events.
	Events       string `yaml:"events"`
	EventsLength int64  `yaml:"eventsLength"`
	// File that remembers the latest message about each object; /var/lib/sluice/NAME.messages.db if empty.
	Memory string `yaml:"memory"`
}

// NewStream returns a section with default values.
func NewStream() northbound.Section { return &StreamSection{EventsLength: 100_000} }

// Check implements northbound.Section.
func (s *StreamSection) Check() error {
	switch {
	case s.Stream == "":
		return object.Mistake("stream", "missing", "", "")
	case s.deadLetter() == s.Stream || s.Events == s.Stream || s.Events == s.deadLetter():
		return object.Mistake("stream, deadLetter, events", "two of them are the same", "", "three streams")
	case s.EventsLength < 1:
		return object.Mistake("eventsLength", "out of range", strconv.FormatInt(s.EventsLength, 10), "1 or more")
	}
	return s.Server.Check()
}

func (s *StreamSection) deadLetter() string { return cmp.Or(s.DeadLetter, s.Stream+".dead") }

// Open implements northbound.Section.
func (s *StreamSection) Open() northbound.Northbound { return s }

// Run implements northbound.Northbound.
func (s *StreamSection) Run(ctx context.Context, e northbound.Environment) error {
	return broker.Run(ctx, e, &streams{s, cmp.Or(s.Group, e.Name)}, broker.Settings{Memory: s.Memory})
}

// Fields of an entry that are no headers.
const (
	keyField  = "key"
	bodyField = "body"
)

// consumer is our name in the group. One consumer preserves the order, and receives its unacknowledged messages
// again.
const consumer = "agent"

type streams struct {
	*StreamSection
	group string
}

var _ broker.Driver = (*streams)(nil)

type intake struct {
	*streams
	client *goredis.Client
	// Entries after this one were given to us before, and not acknowledged; ">": there are none any more.
	after string
	// Of the latest Receive.
	ids []string
}

// Intake implements broker.Driver.
func (s *streams) Intake(ctx context.Context) (broker.Intake, error) {
	c, err := s.connect()
	if err != nil {
		return nil, err
	}
	err = c.XGroupCreateMkStream(ctx, s.Stream, s.group, "0").Err()
	if err != nil && !goredis.HasErrorPrefix(err, "BUSYGROUP") {
		c.Close()
		return nil, fmt.Errorf("group %s of stream %s: %w", s.group, s.Stream, plain(err))
	}
	return &intake{streams: s, client: c, after: "0"}, nil
}

// Receive implements broker.Intake.
func (i *intake) Receive(ctx context.Context) ([]*broker.Message, error) {
	for {
		found, err := i.client.XReadGroup(ctx, &goredis.XReadGroupArgs{Group: i.group, Consumer: consumer, Streams: []string{i.Stream, i.after},
			Count: batch, Block: patience / 2}).Result()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil && !errors.Is(err, goredis.Nil) {
			return nil, fmt.Errorf("stream %s: %w", i.Stream, plain(err))
		}
		var entries []goredis.XMessage
		if len(found) > 0 {
			entries = found[0].Messages
		}
		if len(entries) == 0 {
			i.after = ">"
			continue
		}
		if i.after != ">" {
			i.after = entries[len(entries)-1].ID
		}
		i.ids = i.ids[:0]
		var messages []*broker.Message
		for _, e := range entries {
			i.ids = append(i.ids, e.ID)
			// An entry that was trimmed since its delivery has no fields.
			if len(e.Values) > 0 {
				messages = append(messages, i.message(e))
			}
		}
		if len(messages) > 0 {
			return messages, nil
		}
		if err := i.Acknowledge(ctx); err != nil {
			return nil, err
		}
	}
}

func (i *intake) message(e goredis.XMessage) *broker.Message {
	m := &broker.Message{Position: i.Stream + "@" + e.ID, Tombstone: true}
	for name, value := range e.Values {
		text, _ := value.(string)
		switch name {
		case keyField:
			m.Key = text
		case bodyField:
			m.Body, m.Tombstone = []byte(text), false
		default:
			m.Headers = append(m.Headers, broker.Header{Name: name, Value: text})
		}
	}
	if n, ok := number(e.ID); ok {
		m.Stream, m.Number = i.Stream, n
	}
	return m
}

// number converts "MILLISECONDS-SEQUENCE" into a number of the same order. Other IDs than those of Redis may not fit.
func number(id string) (uint64, bool) {
	const bits = 20
	time, sequence, ok := strings.Cut(id, "-")
	a, err := strconv.ParseUint(time, 10, 64-bits)
	b, err2 := strconv.ParseUint(sequence, 10, bits)
	return a<<bits | b, ok && err == nil && err2 == nil
}

// DeadLetter implements broker.Intake.
func (i *intake) DeadLetter(ctx context.Context, dead []broker.Dead) error {
	_, err := i.client.TxPipelined(ctx, func(p goredis.Pipeliner) error {
		for _, d := range dead {
			fields := []any{keyField, d.Message.Key}
			if !d.Message.Tombstone {
				fields = append(fields, bodyField, d.Message.Body)
			}
			for _, h := range d.Headers() {
				fields = append(fields, h.Name, h.Value)
			}
			p.XAdd(ctx, &goredis.XAddArgs{Stream: i.deadLetter(), Values: fields})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("stream %s: %w", i.deadLetter(), plain(err))
	}
	return nil
}

// Acknowledge implements broker.Intake.
func (i *intake) Acknowledge(ctx context.Context) error {
	if err := i.client.XAck(ctx, i.Stream, i.group, i.ids...).Err(); err != nil {
		return fmt.Errorf("stream %s: %w", i.Stream, plain(err))
	}
	return nil
}

// Close implements broker.Intake.
func (i *intake) Close() { i.client.Close() }

type outlet struct {
	*streams
	client *goredis.Client
}

// Outlet implements broker.Driver.
func (s *streams) Outlet(ctx context.Context) (broker.Outlet, error) {
	if s.Events == "" {
		return nil, nil
	}
	c, err := s.connect()
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.Ping(asking).Err(); err != nil {
		c.Close()
		return nil, plain(err)
	}
	return &outlet{s, c}, nil
}

// Publish implements broker.Outlet.
func (o *outlet) Publish(ctx context.Context, events []broker.Published) error {
	_, err := o.client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for _, e := range events {
			p.XAdd(ctx, &goredis.XAddArgs{Stream: o.Events, MaxLen: o.EventsLength, Approx: true, Values: []any{keyField, e.Key.String(), bodyField, e.Body}})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("stream %s: %w", o.Events, plain(err))
	}
	return nil
}

// Close implements broker.Outlet.
func (o *outlet) Close() { o.client.Close() }
