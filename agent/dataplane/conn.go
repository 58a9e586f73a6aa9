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
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// Version of api/dataplane.proto that this package speaks.
const Version = 1

// ErrDisconnected says that there is no connection to the data plane, or that it broke before the answer came; then what
// was asked may or may not have been done.
var ErrDisconnected = errors.New("not connected to the data plane")

// An Error is a refusal by the data plane. errors.Is finds its errno, as syscall.ENOENT.
type Error struct {
	Code    syscall.Errno
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Code }

// Refused returns what a result says as an error, or nil if it was carried out.
func Refused(r *api.Result) error {
	if r.GetCode() == 0 {
		return nil
	}
	// Some peers give -errno. math.MinInt32 stays negative, and is no errno either way.
	code := r.GetCode()
	if code < 0 {
		code = -code
	}
	return &Error{Code: syscall.Errno(uint32(code)), Message: r.GetMessage()}
}

// A call is a request that was sent and whose last reply has not come.
type call struct {
	// Told the one reply, or why there is none: once, in the order in which replies come, mostly by what reads the connection, which
	// it must not hold up.
	answered func(*api.Reply, error)
	// Runs out when the data plane says nothing about the request for too long. nil: somebody else sees to that.
	silence *time.Timer
	// Of a watch of changes: told each event, as answered is.
	each func(*api.Event)
	// Of a stream, in place of answered: its replies; closed when nothing more comes.
	replies chan *api.Reply
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
	// How long a peer that does not read may hold up a writer, and how long one may say nothing about a request.
	patience time.Duration

	write sync.Mutex
	frame []byte

	mu    sync.Mutex
	next  uint64
	calls map[uint64]*call
	err   error
	// Whoever watches changes.
	changes func(*api.Event)
	// Closed when the connection is.
	closed chan struct{}
	// Closed when nothing reads any more.
	reader chan struct{}
}

// handshake takes over the socket, also if it fails.
func handshake(ctx context.Context, socket net.Conn, name string, patience time.Duration) (*conn, error) {
	c := &conn{socket: socket, patience: patience, calls: map[uint64]*call{}, closed: make(chan struct{}),
		reader: make(chan struct{})}
	go c.read()
	reply, err := c.call(ctx, &api.Request{Operation: &api.Request_Hello{Hello: &api.Hello{Version: Version, Name: name}}})
	if err == nil {
		err = Refused(reply.GetResult())
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
	err = fmt.Errorf("%w: %w", ErrDisconnected, err)
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
	r := bufio.NewReaderSize(c.socket, 64<<10)
	var buffer bytes.Buffer
	for {
		contents, err := readFrame(r, &buffer)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the data plane closed the connection")
			}
			c.close(err)
			return
		}
		reply := &api.Reply{}
		if err := proto.Unmarshal(contents, reply); err != nil {
			c.close(fmt.Errorf("a reply that cannot be read: %w", err))
			return
		}
		c.deliver(reply)
	}
}

// deliver never blocks: whoever reads a stream too slowly loses replies, which are counted, and holds up nobody else.
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

// pass hands a reply to whoever reads the stream. c.mu is held.
func (c *conn) pass(w *call, reply *api.Reply) {
	if !w.abandoned && reply.GetAnswer() != nil {
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

// start sends a request, whose id it sets. After an error nothing more is heard of it.
func (c *conn) start(request *api.Request, w *call) error {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.next++
	request.Id = c.next
	c.calls[request.Id] = w
	c.mu.Unlock()
	if err := c.send(request); err != nil {
		c.mu.Lock()
		mine := c.calls[request.Id] == w
		delete(c.calls, request.Id)
		c.mu.Unlock()
		if mine || w.stream() {
			return err
		}
	}
	return nil
}

// ask sends a request that has one reply, and has that told. A refusal is in the reply. A data plane that says nothing for as long as
// there is patience is disconnected, because nobody knows what it has done.
func (c *conn) ask(request *api.Request, answered func(*api.Reply, error)) {
	w := &call{answered: answered}
	w.silence = time.AfterFunc(c.patience, func() { c.close(fmt.Errorf("no answer in %v", c.patience)) })
	if err := c.start(request, w); err != nil {
		w.finish(nil, err)
	}
}

func (c *conn) send(request *api.Request) error {
	c.write.Lock()
	defer c.write.Unlock()
	frame, err := appendFrame(c.frame[:0], request)
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

// call is ask for one who waits. One that gives up before disturbs nobody.
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
