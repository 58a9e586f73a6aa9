// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// Version of api/dataplane.proto that this package speaks.
const Version = 2

// ErrDisconnected: there is no connection to the data plane, or it broke before the answer; then the result of the
// request is unknown.
var ErrDisconnected = errors.New("not connected to the data plane")

// disconnected is an ErrDisconnected, and why.
type disconnected struct{ cause error }

func (d *disconnected) Error() string   { return ErrDisconnected.Error() + ": " + d.cause.Error() }
func (d *disconnected) Unwrap() []error { return []error{ErrDisconnected, d.cause} }

// ErrTakenOver: the data plane obeys another agent, of a higher term.
var ErrTakenOver = errors.New("another agent has taken over")

// An Error is a refusal by the data plane. errors.Is finds its errno, as syscall.ENOENT.
type Error struct {
	Code    syscall.Errno
	Message string
	// The field of the request that is wrong; empty: none alone is.
	Field string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Code }

// Refused returns a result's error, or nil if the request was carried out.
func Refused(r *api.Result) error {
	if r.GetCode() == 0 {
		return nil
	}
	// Some peers give -errno. math.MinInt32 stays negative, and is no errno either way.
	code := r.GetCode()
	if code < 0 {
		code = -code
	}
	return &Error{Code: syscall.Errno(uint32(code)), Message: r.GetMessage(), Field: r.GetField()}
}

// overtaken converts a refusal because of our term to ErrTakenOver.
func overtaken(err error) error {
	if errors.Is(err, syscall.ESTALE) {
		return fmt.Errorf("%w: %w", ErrTakenOver, err)
	}
	return err
}

// A call is a request that was sent and whose last reply has not come.
type call struct {
	// Called once with the reply, or with the error, in the order of replies, mostly by the reader of the connection,
	// which it must not delay.
	answered func(*api.Reply, error)
	// Ends the connection if the data plane is silent about the request for too long. nil: the caller has a timeout
	// of its own.
	silence *time.Timer
	// Of a watch of changes: called with each event, like answered.
	each func(*api.Event)
	// Of a listing: where the objects of the reply are put as they are packed, in place of being in the reply.
	objects *string
	// Of a put or delete: where the results of the reply are put, in place of being in the reply.
	results *[]Result
	// Of a stream, in place of answered: its replies; closed when nothing more comes.
	replies chan *api.Reply
	// Of a stream of packets, in place of replies.
	punts *punts
	// Guarded by conn.mu.
	abandoned bool
	lost      uint64
	end       error
}

func (w *call) stream() bool { return w.replies != nil }

// finish is called once, when the call is not among the connection's any more.
func (w *call) finish(reply *api.Reply, err error) {
	if w.silence != nil {
		w.silence.Stop()
	}
	w.answered(reply, err)
}

// conn is one connection. Requests may be made from any goroutine.
type conn struct {
	socket   net.Conn
	greeting *api.Greeting
	// Our term; 0: none.
	term uint64
	// How long a peer that does not read may hold up a writer, and how long one may say nothing about a request.
	patience time.Duration

	write sync.Mutex
	frame []byte

	mu    sync.Mutex
	next  uint64
	calls map[uint64]*call
	err   error
	// Called with changes of other clients; nil: nothing watches them.
	changes func(*api.Event)
	// How many calls are under way that take a part of their reply as it is packed.
	cutting atomic.Int64
	// Closed when the connection is.
	closed chan struct{}
	// Closed when nothing reads any more.
	reader chan struct{}
}

// handshake takes over the socket, also if it fails.
func handshake(ctx context.Context, socket net.Conn, hello *api.Hello, patience time.Duration) (*conn, error) {
	c := &conn{socket: socket, term: hello.GetTerm(), patience: patience, calls: map[uint64]*call{}, closed: make(chan struct{}),
		reader: make(chan struct{})}
	go c.read()
	reply, err := c.call(ctx, &api.Request{Operation: &api.Request_Hello{Hello: hello}})
	if err == nil {
		err = overtaken(Refused(reply.GetResult()))
	}
	if err == nil && reply.GetGreeting() == nil {
		err = errors.New("it answered without a greeting")
	}
	if err == nil && reply.GetGreeting().GetVersion() != Version {
		err = fmt.Errorf("it speaks version %d of the contract, not %d", reply.GetGreeting().GetVersion(), Version)
	}
	if err != nil {
		err = fmt.Errorf("greeting the data plane: %w", err)
		c.close(err)
		<-c.reader
		return nil, err
	}
	c.greeting = reply.GetGreeting()
	return c, nil
}

// close ends the connection and every call on it. The first error is the one that counts.
func (c *conn) close(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	err = &disconnected{err}
	c.err = err
	var unanswered []*call
	for _, w := range c.calls {
		if w.stream() {
			w.end = err
			close(w.replies)
		} else {
			unanswered = append(unanswered, w)
		}
	}
	c.calls = nil
	close(c.closed)
	c.socket.Close()
	c.mu.Unlock()
	for _, w := range unanswered {
		w.finish(nil, err)
	}
}

func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *conn) read() {
	defer close(c.reader)
	timed := &timed{socket: c.socket, patience: c.patience}
	r := bufio.NewReaderSize(timed, 64<<10)
	var buffer bytes.Buffer
	known := words{}
	// Packets since the last read of the socket, and their streams that do not know of them.
	count, asleep := 0, []*punts(nil)
	timed.before = func() {
		for _, p := range asleep {
			p.wake()
		}
		switch {
		case count >= veryMuchAtOnce:
			time.Sleep(gatherMore)
		case count >= muchAtOnce:
			time.Sleep(gather)
		}
		count, asleep = 0, asleep[:0]
	}
	for {
		// Until a frame begins, it may be any time.
		_, err := r.Peek(1)
		var contents []byte
		if err == nil {
			timed.begin()
			contents, err = readFrame(r, &buffer)
			err = timed.end(err)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the data plane closed the connection")
			}
			c.close(err)
			return
		}
		if id, packet, is := unpackPunted(contents, known); is {
			wake, taken := c.punted(id, packet)
			if wake != nil {
				asleep = append(asleep, wake)
			}
			if taken {
				count++
				continue
			}
		}
		reply := &api.Reply{}
		if err := proto.Unmarshal(c.cut(contents), reply); err != nil {
			c.close(fmt.Errorf("a reply that cannot be read: %w", err))
			return
		}
		c.deliver(reply)
	}
}

// deliver never blocks. A stream whose reader is too slow loses replies, which are counted; other calls are not delayed.
func (c *conn) deliver(reply *api.Reply) {
	c.mu.Lock()
	w := c.calls[reply.GetId()]
	if w == nil {
		c.mu.Unlock()
		return
	}
	if w.stream() {
		c.pass(w, reply)
		c.mu.Unlock()
		return
	}
	if event := reply.GetEvent(); event != nil && w.each != nil {
		c.mu.Unlock()
		w.each(event)
		return
	}
	if !reply.GetLast() && reply.GetAnswer() == nil && reply.GetResult().GetCode() == 0 {
		// It is still at it.
		if w.silence != nil {
			w.silence.Reset(c.patience)
		}
		c.mu.Unlock()
		return
	}
	delete(c.calls, reply.GetId())
	watch := c.changes
	c.mu.Unlock()
	w.finish(reply, nil)
	if generation := reply.GetResults().GetGeneration(); watch != nil && generation != 0 {
		watch(&api.Event{Event: &api.Event_Changed{Changed: &api.Changed{Generation: generation}}})
	}
}

// pass hands a reply to the reader of the stream. c.mu is held.
func (c *conn) pass(w *call, reply *api.Reply) {
	if in := reply.GetEvent().GetPacketIn(); w.punts != nil && in != nil {
		w.punted(Punted{in.GetReason(), in.GetPort(), in.GetInterface(), in.GetSession(), in.GetFrame()})
		w.punts.wake()
	} else if !w.abandoned && w.punts == nil && reply.GetAnswer() != nil {
		select {
		case w.replies <- reply:
		default:
			w.lost++
		}
	}
	if reply.GetLast() || reply.GetResult().GetCode() != 0 {
		delete(c.calls, reply.GetId())
		w.end = Refused(reply.GetResult())
		close(w.replies)
	}
}

// A framer appends a request as a frame. The id is that of the request.
type framer func(to []byte, id uint64) ([]byte, error)

// framing returns the framer of a request, whose id it sets.
func framing(request *api.Request) framer {
	return func(to []byte, id uint64) ([]byte, error) {
		request.Id = id
		return appendFrame(to, request)
	}
}

// start sends a request. After an error there is no reply.
func (c *conn) start(frame framer, w *call) error {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.next++
	id := c.next
	c.calls[id] = w
	c.mu.Unlock()
	if err := c.send(frame, id); err != nil {
		c.mu.Lock()
		mine := c.calls[id] == w
		delete(c.calls, id)
		c.mu.Unlock()
		if mine || w.stream() {
			return err
		}
	}
	return nil
}

// ask sends a request with one reply, and calls answered. A refusal is in the reply. A data plane that is silent for
// the timeout is disconnected, because its results are unknown.
func (c *conn) ask(request *api.Request, answered func(*api.Reply, error)) {
	c.askAs(&call{}, framing(request), answered)
}

// askAs is ask with a call of one's own.
func (c *conn) askAs(w *call, frame framer, answered func(*api.Reply, error)) {
	if w.answered = answered; w.objects != nil || w.results != nil {
		c.cutting.Add(1)
		w.answered = func(reply *api.Reply, err error) {
			c.cutting.Add(-1)
			answered(reply, err)
		}
	}
	w.silence = time.AfterFunc(c.patience, func() { c.close(fmt.Errorf("no answer in %v", c.patience)) })
	if err := c.start(frame, w); err != nil {
		w.finish(nil, err)
	}
}

func (c *conn) send(appendTo framer, id uint64) error {
	c.write.Lock()
	defer c.write.Unlock()
	frame, err := appendTo(c.frame[:0], id)
	if err != nil {
		return err
	}
	if cap(frame) <= keptBuffer {
		c.frame = frame
	}
	err = c.socket.SetWriteDeadline(time.Now().Add(c.patience))
	if err == nil {
		_, err = c.socket.Write(frame)
	}
	if err != nil {
		// Part of a frame may be out; nothing that followed would be understood.
		c.close(fmt.Errorf("writing: %w", err))
		return c.failure()
	}
	return nil
}

// call is ask for a waiting caller. A caller that gives up disturbs no other.
func (c *conn) call(ctx context.Context, request *api.Request) (*api.Reply, error) {
	type answer struct {
		reply *api.Reply
		err   error
	}
	answers := make(chan answer, 1)
	c.ask(request, func(reply *api.Reply, err error) { answers <- answer{reply, err} })
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
