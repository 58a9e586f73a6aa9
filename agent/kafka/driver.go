// SPDX-License-Identifier: Apache-2.0

package kafka

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"sluice.dev/sluice/agent/broker"
	"sluice.dev/sluice/agent/northbound"
)

const (
	// Most messages at once.
	batch = 10_000
	// How long the group waits for a member that was killed and does not come again.
	sessionTimeout = 10 * time.Second
	// A broker accepts a record of this size by default (message.max.bytes).
	recordLimit = 1_048_588
)

type driver struct {
	*Section
	northbound.Environment
	connections *connections
}

// client returns a client that a broker has answered. It makes missing topics.
func (d *driver) client(ctx context.Context, topics []topic, more ...kgo.Opt) (*kgo.Client, error) {
	options := append([]kgo.Opt{
		kgo.SeedBrokers(d.Brokers...), kgo.ClientID("sluice-" + d.Name), kgo.WithHooks(d.connections),
		// Readers need no library for it.
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(recordLimit), kgo.MetadataMinAge(250 * time.Millisecond),
	}, more...)
	if d.TLS != nil {
		config, err := d.TLS.Config()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if d.SASL != nil {
		options = append(options, kgo.SASL(d.SASL.mechanism()))
	}
	c, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	if err = c.Ping(ctx); err == nil {
		err = makeTopics(ctx, c, topics)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// mechanism reads the password whenever a connection is made.
func (s *SASL) mechanism() sasl.Mechanism {
	if s.Mechanism == "plain" {
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			password, err := northbound.Secret(s.PasswordFile)
			return plain.Auth{User: s.User, Pass: password}, err
		})
	}
	auth := func(context.Context) (scram.Auth, error) {
		password, err := northbound.Secret(s.PasswordFile)
		return scram.Auth{User: s.User, Pass: password}, err
	}
	if s.Mechanism == "scram-sha-256" {
		return scram.Sha256(auth)
	}
	return scram.Sha512(auth)
}

// topic is a topic that must exist.
type topic struct {
	name string
	// Only the latest record of each key is kept.
	compacted bool
}

// makeTopics makes topics with the brokers' defaults. Topics that it may not make must exist.
func makeTopics(ctx context.Context, c *kgo.Client, topics []topic) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 10_000
	for _, t := range topics {
		one := kmsg.NewCreateTopicsRequestTopic()
		one.Topic, one.NumPartitions, one.ReplicationFactor = t.name, -1, -1
		if t.compacted {
			policy := kmsg.NewCreateTopicsRequestTopicConfig()
			policy.Name, policy.Value = "cleanup.policy", kmsg.StringPtr("compact")
			one.Configs = append(one.Configs, policy)
		}
		request.Topics = append(request.Topics, one)
	}
	response, err := request.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("making topics: %w", err)
	}
	for _, t := range response.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case err == nil, errors.Is(err, kerr.TopicAlreadyExists), errors.Is(err, kerr.TopicAuthorizationFailed),
			errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.PolicyViolation):
		default:
			return fmt.Errorf("making topic %s: %w", t.Topic, err)
		}
	}
	return nil
}

// connections logs brokers that cannot be reached, which the client does not report itself.
type connections struct {
	log  *slog.Logger
	lost atomic.Bool
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (c *connections) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	where := net.JoinHostPort(meta.Host, fmt.Sprint(meta.Port))
	switch {
	case err != nil && !errors.Is(err, context.Canceled) && c.lost.CompareAndSwap(false, true):
		c.log.Warn("the broker cannot be reached; trying again", "endpoint", where, "error", err)
	case err == nil && c.lost.CompareAndSwap(true, false):
		c.log.Info("the broker is reached again", "endpoint", where)
	}
}

func (d *driver) Intake(ctx context.Context) (broker.Intake, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	dead := d.deadLetter()
	c, err := d.client(ctx, []topic{{name: d.Topic}, {name: dead}},
		kgo.ConsumeTopics(d.Topic), kgo.ConsumerGroup(cmp.Or(d.Group, "sluice-"+d.Name)), kgo.InstanceID("sluice-"+d.Name+"@"+host),
		kgo.SessionTimeout(sessionTimeout), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		// Received messages are stored and committed before another member of the group gets their partition.
		kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &intake{client: c, dead: dead, log: d.Log}, nil
}

type intake struct {
	client *kgo.Client
	dead   string
	log    *slog.Logger
}

func (in *intake) Receive(ctx context.Context) ([]*broker.Message, error) {
	for {
		fetches := in.client.PollRecords(ctx, batch)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, e := range fetches.Errors() {
			var loss *kgo.ErrDataLoss
			if !errors.As(e.Err, &loss) {
				return nil, fmt.Errorf("reading %s/%d: %w", e.Topic, e.Partition, e.Err)
			}
			in.log.Warn("messages were deleted from the topic; going on after them", "topic", e.Topic, "partition", e.Partition, "error", e.Err)
		}
		if fetches.NumRecords() > 0 {
			return messages(fetches), nil
		}
		in.client.AllowRebalance()
	}
}

func messages(fetches kgo.Fetches) []*broker.Message {
	var all []*broker.Message
	for _, f := range fetches {
		for _, t := range f.Topics {
			// A topic that was deleted and made again starts at offset zero.
			id := t.Topic
			if t.TopicID != [16]byte{} {
				id = hex.EncodeToString(t.TopicID[:])
			}
			for _, p := range t.Partitions {
				for _, r := range p.Records {
					m := &broker.Message{Position: fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset), Key: string(r.Key), Body: r.Value,
						Tombstone: r.Value == nil, Stream: fmt.Sprintf("%s/%d", id, r.Partition), Number: uint64(r.Offset), Carried: r}
					for _, h := range r.Headers {
						m.Headers = append(m.Headers, broker.Header{Name: h.Key, Value: string(h.Value)})
					}
					all = append(all, m)
				}
			}
		}
	}
	return all
}

func (in *intake) DeadLetter(ctx context.Context, dead []broker.Dead) error {
	records := make([]*kgo.Record, len(dead))
	for i, d := range dead {
		records[i] = in.deadRecord(d, d.Message.Body)
	}
	for i, result := range in.client.ProduceSync(ctx, records...) {
		err := result.Err
		if errors.Is(err, kerr.MessageTooLarge) {
			// With its reason it is longer than it was.
			r := in.deadRecord(dead[i], nil)
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "body", Value: []byte("too large to be here; it is at position")})
			err = in.client.ProduceSync(ctx, r).FirstErr()
		}
		if err != nil {
			return fmt.Errorf("dead letters to %s: %w", in.dead, err)
		}
	}
	return nil
}

func (in *intake) deadRecord(d broker.Dead, body []byte) *kgo.Record {
	r := &kgo.Record{Topic: in.dead, Value: body}
	if d.Message.Key != "" {
		r.Key = []byte(d.Message.Key)
	}
	for _, h := range d.Headers() {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	return r
}

func (in *intake) Acknowledge(ctx context.Context) error {
	if err := in.client.CommitUncommittedOffsets(ctx); err != nil {
		return fmt.Errorf("committing offsets: %w", err)
	}
	in.client.AllowRebalance()
	return nil
}

func (in *intake) Close() { in.client.CloseAllowingRebalance() }

func (d *driver) Outlet(ctx context.Context) (broker.Outlet, error) {
	if d.Events == "" {
		return nil, nil
	}
	c, err := d.client(ctx, []topic{{d.Events, true}}, kgo.DefaultProduceTopic(d.Events), kgo.ProducerLinger(0))
	if err != nil {
		return nil, err
	}
	return &outlet{c, d.Events}, nil
}

type outlet struct {
	client *kgo.Client
	topic  string
}

func (o *outlet) Publish(ctx context.Context, events []broker.Published) error {
	records := make([]*kgo.Record, 0, len(events))
	for _, e := range events {
		key := []byte(e.Key.String())
		records = append(records, &kgo.Record{Key: key, Value: e.Body})
		if e.Gone {
			records = append(records, &kgo.Record{Key: key})
		}
	}
	if err := o.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("events to %s: %w", o.topic, err)
	}
	return nil
}

func (o *outlet) Close() { o.client.Close() }
