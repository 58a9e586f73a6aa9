// SPDX-License-Identifier: Apache-2.0

package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sluice.dev/sluice/agent/broker"
	"sluice.dev/sluice/agent/northbound"
)

const (
	prefetch = 1000
	// A broker that is silent for two intervals is lost.
	heartbeat   = 10 * time.Second
	dialTimeout = 10 * time.Second
	// How long more messages are waited for once there is one.
	gather = 5 * time.Millisecond
)

type driver struct {
	*Section
	northbound.Environment
}

// connection is a connection with a channel that confirms publications.
type connection struct {
	amqp    *amqp.Connection
	channel *amqp.Channel
	closed  <-chan *amqp.Error
	// Published messages that no queue accepted.
	returned <-chan amqp.Return
	release  func() bool
}

// connect makes a connection that ends with ctx.
func (d *driver) connect(ctx context.Context, returns int) (*connection, error) {
	u, err := url.Parse(d.URL)
	if err != nil {
		return nil, errors.New("url: is none")
	}
	config := amqp.Config{Heartbeat: heartbeat, Locale: "en_US", Properties: amqp.NewConnectionProperties()}
	config.Properties.SetClientConnectionName("sluice-" + d.Name)
	config.Dial = func(network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// For the handshake; the heartbeat takes over.
		return c, c.SetDeadline(time.Now().Add(dialTimeout))
	}
	if u.Scheme == "amqps" {
		if config.TLSClientConfig, err = d.TLS.Config(); err != nil {
			return nil, err
		}
		config.TLSClientConfig.ServerName = u.Hostname()
	}
	switch user := u.User.Username(); {
	case user != "":
		password, err := northbound.Secret(d.PasswordFile)
		if err != nil {
			return nil, err
		}
		config.SASL = []amqp.Authentication{&amqp.PlainAuth{Username: user, Password: password}}
	case d.TLS.Certificate != "":
		config.SASL = []amqp.Authentication{&amqp.ExternalAuth{}}
	}
	c := &connection{}
	if c.amqp, err = amqp.DialConfig(d.URL, config); err != nil {
		return nil, err
	}
	c.release = context.AfterFunc(ctx, func() { hangUp(c.amqp) })
	if err := c.open(returns); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *connection) open(returns int) error {
	var err error
	if c.channel, err = c.amqp.Channel(); err != nil {
		return err
	}
	c.closed = c.channel.NotifyClose(make(chan *amqp.Error, 1))
	c.returned = c.channel.NotifyReturn(make(chan amqp.Return, returns))
	return c.channel.Confirm(false)
}

// hangUp closes the connection, but does not wait long for an answer. The error of a lost connection is of no use.
func hangUp(c *amqp.Connection) { _ = c.CloseDeadline(time.Now().Add(time.Second)) }

func (c *connection) Close() {
	c.release()
	hangUp(c.amqp)
}

// missing reports whether an object does not exist on the broker. The question closes its channel.
func (c *connection) missing(look func(*amqp.Channel) error) (bool, error) {
	probe, err := c.amqp.Channel()
	if err != nil {
		return false, err
	}
	err = look(probe)
	var is *amqp.Error
	if errors.As(err, &is) && is.Code == amqp.NotFound {
		return true, nil
	}
	return false, errors.Join(err, probe.Close())
}

// queue makes a durable queue if there is none of that name. An existing one may be of any type.
func (c *connection) queue(name string) error {
	missing, err := c.missing(func(p *amqp.Channel) error {
		_, err := p.QueueDeclarePassive(name, true, false, false, false, nil)
		return err
	})
	if missing && err == nil {
		_, err = c.channel.QueueDeclare(name, true, false, false, false, nil)
	}
	if err != nil {
		return fmt.Errorf("queue %s: %w", name, err)
	}
	return nil
}

// exchange makes a durable topic exchange if there is none of that name.
func (c *connection) exchange(name string) error {
	missing, err := c.missing(func(p *amqp.Channel) error {
		return p.ExchangeDeclarePassive(name, amqp.ExchangeTopic, true, false, false, false, nil)
	})
	if missing && err == nil {
		err = c.channel.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil)
	}
	if err != nil {
		return fmt.Errorf("exchange %s: %w", name, err)
	}
	return nil
}

// outgoing is a message to be published.
type outgoing struct {
	exchange, key string
	// A queue must be there for it.
	mandatory bool
	message   amqp.Publishing
}

// publish returns once the broker has stored all of them. There are at most as many as connect allows.
func (c *connection) publish(ctx context.Context, all []outgoing) error {
	confirmations := make([]*amqp.DeferredConfirmation, len(all))
	for i, o := range all {
		var err error
		o.message.DeliveryMode = amqp.Persistent
		confirmations[i], err = c.channel.PublishWithDeferredConfirmWithContext(ctx, o.exchange, o.key, o.mandatory, false, o.message)
		if err != nil {
			return err
		}
	}
	for _, confirmation := range confirmations {
		kept, err := confirmation.WaitContext(ctx)
		if err != nil {
			return err
		}
		if !kept {
			return errors.New("the broker did not keep what was published")
		}
	}
	select {
	case r, open := <-c.returned:
		if open {
			return fmt.Errorf("%s: %s", r.RoutingKey, r.ReplyText)
		}
	default:
	}
	return nil
}

func (d *driver) prefetch() int { return cmp.Or(d.Prefetch, prefetch) }

func (d *driver) Intake(ctx context.Context) (broker.Intake, error) {
	c, err := d.connect(ctx, d.prefetch())
	if err != nil {
		return nil, err
	}
	in := &intake{connection: c, queueName: d.Queue, dead: d.deadLetter(), most: d.prefetch()}
	if err := in.begin(); err != nil {
		c.Close()
		return nil, err
	}
	return in, nil
}

type intake struct {
	*connection
	queueName, dead string
	most            int
	deliveries      <-chan amqp.Delivery
	latest          uint64
}

func (in *intake) begin() error {
	for _, name := range []string{in.queueName, in.dead} {
		if err := in.queue(name); err != nil {
			return err
		}
	}
	if err := in.channel.Qos(in.most, 0, false); err != nil {
		return err
	}
	const own, exclusive = false, true
	var err error
	if in.deliveries, err = in.channel.Consume(in.queueName, "", own, exclusive, false, false, nil); err != nil {
		return fmt.Errorf("queue %s: %w", in.queueName, err)
	}
	return nil
}

func (in *intake) lost() error {
	select {
	case err := <-in.closed:
		if err != nil {
			return fmt.Errorf("queue %s: %w", in.queueName, err)
		}
	default:
	}
	return fmt.Errorf("queue %s: the connection is lost", in.queueName)
}

func (in *intake) Receive(ctx context.Context) ([]*broker.Message, error) {
	var all []*broker.Message
	var enough <-chan time.Time
	for {
		select {
		case d, open := <-in.deliveries:
			if !open {
				return nil, in.lost()
			}
			in.latest = d.DeliveryTag
			if all = append(all, in.message(d)); len(all) == in.most {
				return all, nil
			}
			enough = time.After(gather)
		case <-enough:
			return all, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (in *intake) message(d amqp.Delivery) *broker.Message {
	m := &broker.Message{Position: in.queueName + "@" + cmp.Or(d.MessageId, fmt.Sprint(d.DeliveryTag)), Body: d.Body, Carried: d}
	for name, value := range d.Headers {
		switch v := value.(type) {
		case string, []byte, bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, int, uint:
			m.Headers = append(m.Headers, broker.Header{Name: name, Value: fmt.Sprintf(verb(v), v)})
		}
	}
	return m
}

func verb(value any) string {
	if _, is := value.([]byte); is {
		return "%s"
	}
	return "%v"
}

func (in *intake) DeadLetter(ctx context.Context, dead []broker.Dead) error {
	all := make([]outgoing, len(dead))
	for i, d := range dead {
		was, _ := d.Message.Carried.(amqp.Delivery)
		headers := amqp.Table{}
		for _, h := range d.Headers() {
			headers[h.Name] = h.Value
		}
		all[i] = outgoing{key: in.dead, mandatory: true, message: amqp.Publishing{Headers: headers, Body: was.Body, ContentType: was.ContentType,
			ContentEncoding: was.ContentEncoding, MessageId: was.MessageId, CorrelationId: was.CorrelationId, Timestamp: was.Timestamp, Type: was.Type}}
	}
	if err := in.publish(ctx, all); err != nil {
		return fmt.Errorf("dead letters to %s: %w", in.dead, err)
	}
	return nil
}

func (in *intake) Acknowledge(context.Context) error {
	if err := in.channel.Ack(in.latest, true); err != nil {
		return fmt.Errorf("acknowledging: %w", err)
	}
	return nil
}

func (d *driver) Outlet(ctx context.Context) (broker.Outlet, error) {
	if d.Events == "" {
		return nil, nil
	}
	c, err := d.connect(ctx, 1)
	if err != nil {
		return nil, err
	}
	if err := c.exchange(d.Events); err != nil {
		c.Close()
		return nil, err
	}
	return &outlet{c, d.Events}, nil
}

// A routing key is a short string (AMQP 0-9-1, 4.2.5.3). Of a very long name its end is not there; the body has all of it.
const maxKey = 255

type outlet struct {
	*connection
	to string
}

func (o *outlet) Publish(ctx context.Context, events []broker.Published) error {
	all := make([]outgoing, len(events))
	for i, e := range events {
		key := e.Key.Kind + "." + e.Key.Name
		all[i] = outgoing{exchange: o.to, key: key[:min(len(key), maxKey)],
			message: amqp.Publishing{ContentType: "application/json", Body: e.Body, Type: "status"}}
	}
	if err := o.publish(ctx, all); err != nil {
		return fmt.Errorf("events to %s: %w", o.to, err)
	}
	return nil
}
