// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"reflect"
	"strconv"
	"sync"
	"syscall"
	"time"

	"sluice.dev/sluice/agent/api"
)

// Config of a Client. Zero times mean the values in brackets.
type Config struct {
	Endpoint Endpoint
	Log      *slog.Logger
	// The agent's name, for other clients of the data plane.
	Name string
	// If not nil, asked for our term at each connection (Hello.term).
	Term func() uint64
	// To connect and to be greeted (5 s).
	DialTimeout time.Duration
	// For one request (30 s), counted anew when the data plane says that it is still at it, as it does every 5 s. A
	// data plane that is silent for that time is disconnected, because its results are unknown.
	CallTimeout time.Duration
	// Between attempts to connect: at first (50 ms) and, doubling, at most (2 s; 100 ms on this machine, where to look costs next to
	// nothing, and a data plane that was started again has no session until it is found).
	MinBackoff, MaxBackoff time.Duration

	// If not nil, called by Run with each new connection, and a Client for that alone, before there is one for
	// others. An error ends the connection and is reported by Link; Accept is called again every two seconds. The
	// data plane answers then, but is not to be touched.
	Accept func(ctx context.Context, client *Client) error
	// Called by Run, one at a time, when a connection was made and when it was lost. Connected is called again, with
	// another boot number, if the data plane was started again. Its context ends with the connection.
	Connected    func(ctx context.Context, client *Client, greeting *api.Greeting)
	Disconnected func(err error)
}

// Client talks to one data plane. While there is no connection its requests fail at once with ErrDisconnected.
type Client struct {
	config Config

	mu   sync.Mutex
	conn *conn
	err  error
	// How many there were.
	connections uint64
}

// New returns a Client that connects when Run is called.
func New(config Config) *Client {
	orElse := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	orElse(&config.DialTimeout, 5*time.Second)
	orElse(&config.CallTimeout, 30*time.Second)
	orElse(&config.MinBackoff, 50*time.Millisecond)
	if config.Endpoint.network == "unix" {
		orElse(&config.MaxBackoff, 100*time.Millisecond)
	}
	orElse(&config.MaxBackoff, 2*time.Second)
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return &Client{config: config, err: errors.New("not tried yet")}
}

// Unaccepted is the error of a connection that was not accepted.
type Unaccepted struct{ error }

const acceptAgain = 2 * time.Second

// Run keeps the Client connected until the context ends.
func (c *Client) Run(ctx context.Context) {
	backoff := c.config.MinBackoff
	reported := ""
	for ctx.Err() == nil {
		var unaccepted Unaccepted
		conn, err := c.connect(ctx)
		if err == nil {
			err = c.stay(ctx, conn)
			backoff = c.config.MinBackoff
			if !errors.As(err, &unaccepted) {
				reported = ""
			}
		}
		if ctx.Err() != nil {
			return
		}
		c.set(nil, err)
		if err.Error() != reported {
			c.config.Log.Warn("no connection to the data plane", "endpoint", c.config.Endpoint.String(), "error", Cause(err))
			reported = err.Error()
		}
		wait := backoff/2 + rand.N(backoff/2+1)
		if unaccepted.error != nil {
			wait = acceptAgain
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		backoff = min(2*backoff, c.config.MaxBackoff)
	}
}

func (c *Client) connect(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.DialTimeout)
	defer cancel()
	socket, err := c.config.Endpoint.dial(ctx)
	if err != nil {
		return nil, &disconnected{err}
	}
	hello := &api.Hello{Version: Version, Name: c.config.Name}
	if c.config.Term != nil {
		hello.Term = c.config.Term()
	}
	return handshake(ctx, socket, hello, c.config.CallTimeout)
}

// stay returns when the connection is lost, and why.
func (c *Client) stay(ctx context.Context, conn *conn) error {
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.close(context.Cause(ctx)) })
	defer stop()
	go func() {
		<-conn.closed
		cancel()
	}()
	if c.config.Accept != nil {
		if err := c.config.Accept(during, &Client{config: c.config, conn: conn}); err != nil {
			conn.close(err)
			<-conn.closed
			<-conn.reader
			return Unaccepted{err}
		}
	}
	g := conn.greeting
	c.config.Log.Info("connected to the data plane", "endpoint", c.config.Endpoint.String(), "release", g.GetRelease(),
		"dpdk", g.GetDpdk(), "boot", strconv.FormatUint(g.GetBoot(), 10), "workers", g.GetWorkers())
	c.set(conn, nil)
	if c.config.Connected != nil {
		c.config.Connected(during, c, g)
	}
	<-conn.closed
	<-conn.reader
	err := conn.failure()
	c.set(nil, err)
	if c.config.Disconnected != nil {
		c.config.Disconnected(err)
	}
	return err
}

func (c *Client) set(conn *conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.err = conn, err
	if conn != nil {
		c.connections++
	}
}

// Wait sets the reason why Run is not called now.
func (c *Client) Wait(why error) { c.set(nil, why) }

// Connections returns how many connections there were so far.
func (c *Client) Connections() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connections
}

func (c *Client) current() (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil {
		return c.conn, nil
	}
	if errors.Is(c.err, ErrDisconnected) {
		return nil, c.err
	}
	return nil, &disconnected{c.err}
}

// Link returns the state of the connection.
func (c *Client) Link() *api.DataplaneLink {
	c.mu.Lock()
	defer c.mu.Unlock()
	link := &api.DataplaneLink{Endpoint: c.config.Endpoint.String(), Connected: c.conn != nil}
	if c.conn != nil {
		link.Greeting = c.conn.greeting
	} else {
		link.Error = Cause(c.err)
	}
	return link
}

// Cause is the text of an error without the prefix of ErrDisconnected, and without names of system calls.
func Cause(err error) string {
	var op *net.OpError
	var number syscall.Errno
	if errors.As(err, &op) && op.Op == "remote error" && refusesCertificate(op.Err) {
		return fmt.Sprintf("the data plane refuses the agent's certificate (%v): its --ca did not sign it, or its --client-names have none of its names", op.Err)
	}
	if errors.As(err, &op) && errors.As(op.Err, &number) {
		if op.Op == "dial" && op.Addr != nil {
			return op.Addr.String() + ": " + number.Error()
		}
		return "the connection was lost: " + number.Error()
	}
	if d := (*disconnected)(nil); errors.As(err, &d) {
		return d.cause.Error()
	}
	return err.Error()
}

// refusesCertificate reports whether an alert of TLS (RFC 8446 section 6.2) is about the certificate of this side. An alert that the peer sends
// over TCP has a type of crypto/tls that errors.As cannot name; it is a number, as tls.AlertError is.
func refusesCertificate(alert error) bool {
	number := reflect.ValueOf(alert)
	if number.Kind() != reflect.Uint8 {
		return false
	}
	switch number.Uint() {
	case 42, 43, 44, 45, 46, // bad, unsupported, revoked, expired and unknown certificate
		48, 49, // unknown authority, access denied
		116: // certificate required
		return true
	}
	return false
}

// do makes one request and returns the reply to it if it was carried out.
func (c *Client) do(ctx context.Context, request *api.Request) (*api.Reply, error) {
	conn, err := c.current()
	if err != nil {
		return nil, err
	}
	reply, err := conn.call(ctx, request)
	if err != nil {
		return nil, err
	}
	if err := Refused(reply.GetResult()); err != nil {
		return nil, err
	}
	return reply, nil
}

// garbled closes the connection on which a reply came that makes no sense.
func (c *Client) garbled(format string, args ...any) error {
	conn, err := c.current()
	if err != nil {
		return err
	}
	return garbled(conn, format, args...)
}

func garbled(conn *conn, format string, args ...any) error {
	err := fmt.Errorf("the data plane's answer makes no sense: "+format, args...)
	conn.close(err)
	return err
}

func (c *Client) open(ctx context.Context, request *api.Request) (*Stream, error) {
	return c.openAs(ctx, request, &call{replies: make(chan *api.Reply, streamDepth)})
}

// openAs is open with a call of one's own.
func (c *Client) openAs(ctx context.Context, request *api.Request, w *call) (*Stream, error) {
	conn, err := c.current()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.CallTimeout)
	defer cancel()
	return conn.stream(ctx, request, w)
}
