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
	// One reply, or those of a stream; closed when nothing more comes.
	replies chan *api.Reply
	stream  bool
	// Called when the data plane says that it is still at it. May be nil.
	alive func()
	// Guarded by conn.mu.
	abandoned bool
	lost      uint64
	end       error
}

// conn is one connection. Requests may be made from any goroutine.
type conn struct {
	socket   net.Conn
	greeting *api.Greeting
	// How long a peer that does not read may hold up a writer.
	patience time.Duration

	write sync.Mutex
	frame []byte

	mu    sync.Mutex
	next  uint64
	calls map[uint64]*call
	err   error
	// Closed when the connection is.
	closed chan struct{}
	// Closed when nothing reads any more.
	reader chan struct{}
}

// handshake takes over the socket, also if it fails.
func handshake(ctx context.Context, socket net.Conn, patience time.Duration) (*conn, error) {
	c := &conn{socket: socket, patience: patience, calls: map[uint64]*call{}, closed: make(chan struct{}),
		reader: make(chan struct{})}
	go c.read()
	reply, err := c.call(ctx, &api.Request{Operation: &api.Request_Hello{Hello: &api.Hello{Version: Version}}}, nil)
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
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = fmt.Errorf("%w: %w", ErrDisconnected, err)
	for _, w := range c.calls {
		w.end = c.err
		close(w.replies)
	}
	c.calls = nil
	close(c.closed)
	c.socket.Close()
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
	defer c.mu.Unlock()
	w := c.calls[reply.GetId()]
	if w == nil {
		return
	}
	if !w.stream && !reply.GetLast() && reply.GetAnswer() == nil && reply.GetResult().GetCode() == 0 {
		if w.alive != nil {
			w.alive()
		}
		return
	}
	last := reply.GetLast() || !w.stream || reply.GetResult().GetCode() != 0
	if !w.abandoned && (!w.stream || reply.GetAnswer() != nil) {
		select {
		case w.replies <- reply:
		default:
			w.lost++
		}
	}
	if last {
		delete(c.calls, reply.GetId())
		w.end = Refused(reply.GetResult())
		close(w.replies)
	}
}

// start sends a request, whose id it sets.
func (c *conn) start(request *api.Request, w *call) (*call, error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, c.err
	}
	c.next++
	request.Id = c.next
	c.calls[request.Id] = w
	c.mu.Unlock()
	if err := c.send(request); err != nil {
		c.mu.Lock()
		delete(c.calls, request.Id)
		c.mu.Unlock()
		return nil, err
	}
	return w, nil
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

// call makes a request that has one reply. A refusal is in the reply. alive may be nil.
func (c *conn) call(ctx context.Context, request *api.Request, alive func()) (*api.Reply, error) {
	w, err := c.start(request, &call{replies: make(chan *api.Reply, 1), alive: alive})
	if err != nil {
		return nil, err
	}
	select {
	case reply := <-w.replies:
		if reply == nil {
			return nil, w.end
		}
		return reply, nil
	case <-ctx.Done():
		c.mu.Lock()
		w.abandoned = true
		c.mu.Unlock()
		return nil, ctx.Err()
	}
}
