// SPDX-License-Identifier: Apache-2.0

// Package dataplanetest is a data plane for tests: it speaks api/dataplane.proto on a real Unix socket and keeps
// objects as strictly as the real one (a named object must exist, an object in use cannot be deleted, an immutable
// field cannot change), but moves no packets.
package dataplanetest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"sluice.dev/sluice/agent/api"
)

// A Fake is one data plane over several starts of its process.
type Fake struct {
	// Path of the socket.
	Path string

	mu       sync.Mutex
	listener net.Listener
	running  sync.WaitGroup
	conns    map[*peer]bool
	boot     uint64
	// How many changes of objects there were.
	generation uint64
	objects    map[key]*held
	namedBy    map[key]map[key]bool
	made       int
	log        []string
	refuse     func(op, kind, name string) *api.Result
	deaf       bool
	// Reasons for packets that it does not know.
	unknownReasons []string
	// How many streams were opened.
	opened uint64
	// The highest term so far.
	term uint64

	// To questions about state, by the type of the answer.
	answers map[protoreflect.FullName]proto.Message
	// The last question of each type.
	asked map[string]proto.Message
}

// peer is one connection; mu serialises writing.
type peer struct {
	socket  net.Conn
	mu      sync.Mutex
	streams map[uint64]*api.Request
	// The streams in the order in which they were opened.
	opened map[uint64]uint64
	term   uint64
}

// New returns a Fake that has been started, and is stopped when the test ends.
func New(t testing.TB) *Fake {
	t.Helper()
	// Not t.TempDir(): with a long test name the path would be longer than a Unix socket's may be.
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	f := &Fake{Path: dir + "/s", answers: map[protoreflect.FullName]proto.Message{}, asked: map[string]proto.Message{}}
	f.Start(t)
	t.Cleanup(func() {
		f.Kill()
		os.RemoveAll(dir)
	})
	return f
}

// Start starts the process: no objects, another boot number.
func (f *Fake) Start(t testing.TB) {
	t.Helper()
	l, err := net.Listen("unix", f.Path)
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listener, f.conns = l, map[*peer]bool{}
	f.objects, f.namedBy = map[key]*held{}, map[key]map[key]bool{}
	f.boot++
	f.generation = 1
	f.running.Add(1)
	go f.accept(l)
}

// Kill ends the process: connections break, objects and counters are forgotten.
func (f *Fake) Kill() {
	f.Disconnect()
	f.mu.Lock()
	if f.listener != nil {
		f.listener.Close()
		f.listener = nil
	}
	f.mu.Unlock()
	f.Disconnect()
	f.running.Wait()
}

// Disconnect breaks the connections, no more.
func (f *Fake) Disconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.conns {
		p.socket.Close()
	}
}

// Log returns the requests since the last call: "put Port access", "delete Route default".
func (f *Fake) Log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	log := f.log
	f.log = nil
	return log
}

// Objects returns "Kind name" of everything it holds, sorted.
func (f *Fake) Objects() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for k := range f.objects {
		names = append(names, k.kind+" "+k.name)
	}
	slices.Sort(names)
	return names
}

// Object returns one object's spec, or nil.
func (f *Fake) Object(kind, name string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.objects[key{kind, name}]; h != nil {
		return h.object.Spec
	}
	return nil
}

// Meddle changes an object behind the agent's back. A nil spec deletes.
func (f *Fake) Meddle(kind, name string, spec []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if spec == nil {
		f.forget(key{kind, name})
		return
	}
	o := &api.Object{Kind: kind, Name: name, Spec: spec}
	h, err := read(o)
	if err != nil {
		panic(err)
	}
	f.keep(o, h)
}

// Refuse makes puts and deletes ("put", "delete") fail with the function's result, if it is not nil.
func (f *Fake) Refuse(refuse func(op, kind, name string) *api.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

// Deafen makes it read requests and answer nothing.
func (f *Fake) Deafen(deaf bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf = deaf
}

// Count sets the counters that it answers with, by the type of each.
func (f *Fake) Count(lists ...proto.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, list := range lists {
		f.answers[list.ProtoReflect().Descriptor().FullName()] = list
	}
}

// Asked returns the last question about state of a type: "RouteLookUpQuery".
func (f *Fake) Asked(query string) proto.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[query]
}

// Streams returns the requests of the streams that are open, but for the watch of changes that every agent has.
func (f *Fake) Streams() []*api.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	var open []*api.Request
	for p := range f.conns {
		p.mu.Lock()
		for _, r := range p.streams {
			if !r.GetWatch().GetChanges() {
				open = append(open, r)
			}
		}
		p.mu.Unlock()
	}
	return open
}

// Forget makes it refuse a Watch for packets of these reasons.
func (f *Fake) Forget(reasons ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unknownReasons = reasons
}

// receiver returns the newest stream that asks for packets of the reason; 0: none does. f.mu is held.
func (f *Fake) receiver(reason string) (newest uint64) {
	for p := range f.conns {
		p.mu.Lock()
		for id, r := range p.streams {
			if slices.Contains(r.GetWatch().GetPunts(), reason) {
				newest = max(newest, p.opened[id])
			}
		}
		p.mu.Unlock()
	}
	return newest
}

// Emit sends an answer on every open stream of its type, and ends the stream if last. A packet goes to the newest stream that asks for its
// reason.
func (f *Fake) Emit(answer proto.Message, last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	event, _ := answer.(*api.Event)
	receiver := f.receiver(event.GetPacketIn().GetReason())
	for p := range f.conns {
		p.mu.Lock()
		for id, r := range p.streams {
			reply := &api.Reply{Id: id, Last: last}
			switch a := answer.(type) {
			case *api.TracedPacket:
				if r.GetTrace() == nil {
					continue
				}
				reply.Answer = &api.Reply_Traced{Traced: a}
			case *api.CapturedPacket:
				if r.GetCapture() == nil {
					continue
				}
				reply.Answer = &api.Reply_Captured{Captured: a}
			case *api.Event:
				if r.GetWatch() == nil || r.GetWatch().GetChanges() != (a.GetChanged() != nil) || a.GetPacketIn() != nil && p.opened[id] != receiver {
					continue
				}
				reply.Answer = &api.Reply_Event{Event: a}
			default:
				panic(fmt.Sprintf("not a stream's answer: %T", answer))
			}
			if last {
				delete(p.streams, id)
			}
			p.send(reply)
		}
		p.mu.Unlock()
	}
}

func (f *Fake) accept(l net.Listener) {
	defer f.running.Done()
	for {
		socket, err := l.Accept()
		if err != nil {
			return
		}
		p := &peer{socket: socket, streams: map[uint64]*api.Request{}, opened: map[uint64]uint64{}}
		f.mu.Lock()
		f.conns[p] = true
		if f.listener != l {
			socket.Close()
		}
		f.running.Add(1)
		f.mu.Unlock()
		go f.serve(p)
	}
}

func (f *Fake) serve(p *peer) {
	defer f.running.Done()
	defer func() {
		f.mu.Lock()
		delete(f.conns, p)
		f.mu.Unlock()
		p.socket.Close()
	}()
	r := bufio.NewReader(p.socket)
	for {
		request := ReadRequest(r)
		if request == nil {
			return
		}
		f.mu.Lock()
		if !f.deaf || request.GetHello() != nil {
			if reply := f.answer(p, request); reply != nil {
				reply.Id = request.Id
				reply.Last = true
				p.mu.Lock()
				p.send(reply)
				p.mu.Unlock()
			}
		}
		f.mu.Unlock()
	}
}

// ReadRequest returns nil if there is none.
func ReadRequest(r io.Reader) *api.Request {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil
	}
	contents := make([]byte, binary.BigEndian.Uint32(header[:]))
	if _, err := io.ReadFull(r, contents); err != nil {
		return nil
	}
	request := &api.Request{}
	if err := proto.Unmarshal(contents, request); err != nil {
		return nil
	}
	return request
}

// send is called with p.mu held.
func (p *peer) send(reply *api.Reply) { WriteReply(p.socket, reply) }

// WriteReply ignores errors: the reader notices a broken socket.
func WriteReply(w io.Writer, reply *api.Reply) {
	frame, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4), reply)
	if err != nil {
		panic(err)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	_, _ = w.Write(frame)
}

func (f *Fake) answer(p *peer, request *api.Request) *api.Reply {
	overtaken := &api.Reply{Result: &api.Result{Code: int32(syscall.ESTALE), Message: "term: it is lower than another's"}}
	switch o := request.Operation.(type) {
	case *api.Request_Hello:
		p.term = o.Hello.GetTerm()
		if p.term != 0 && p.term < f.term {
			return overtaken
		}
		f.term = max(f.term, p.term)
		return &api.Reply{Answer: &api.Reply_Greeting{Greeting: &api.Greeting{Version: 2, Release: "fake", Dpdk: "none", Cpu: "x86-64-v2",
			Boot: f.boot, Workers: 1}}}
	case *api.Request_Put:
		if p.term < f.term {
			return overtaken
		}
		results := &api.Results{}
		defer func() { results.Generation = f.generation }()
		for _, object := range o.Put.Objects {
			results.Results = append(results.Results, f.put(object))
		}
		return &api.Reply{Answer: &api.Reply_Results{Results: results}}
	case *api.Request_Delete:
		results := &api.Results{}
		defer func() { results.Generation = f.generation }()
		for _, name := range o.Delete.Names {
			results.Results = append(results.Results, f.delete(name.Kind, name.Name))
		}
		return &api.Reply{Answer: &api.Reply_Results{Results: results}}
	case *api.Request_List:
		return &api.Reply{Answer: &api.Reply_Objects{Objects: f.list(o.List)}}
	case *api.Request_Watch, *api.Request_Trace, *api.Request_Capture:
		if filter := request.GetTrace().GetFilter() + request.GetCapture().GetFilter(); strings.Contains(filter, "nonsense") {
			return &api.Reply{Result: &api.Result{Code: 22, Message: "filter: syntax error in \"" + filter + "\"", Field: "filter"}}
		}
		for _, reason := range request.GetWatch().GetPunts() {
			if slices.Contains(f.unknownReasons, reason) {
				return &api.Reply{Result: &api.Result{Code: int32(syscall.ENOENT), Message: "punts: this data plane knows no such reason"}}
			}
		}
		p.mu.Lock()
		f.opened++
		p.streams[request.Id], p.opened[request.Id] = request, f.opened
		if request.GetWatch().GetChanges() {
			p.send(&api.Reply{Id: request.Id, Answer: &api.Reply_Event{Event: &api.Event{Event: &api.Event_Changed{
				Changed: &api.Changed{Generation: f.generation}}}}})
		}
		p.mu.Unlock()
		return nil
	case *api.Request_Cancel:
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.streams[o.Cancel.Id] != nil {
			delete(p.streams, o.Cancel.Id)
			p.send(&api.Reply{Id: o.Cancel.Id, Last: true})
		}
		return &api.Reply{}
	case *api.Request_PacketOut:
		f.log = append(f.log, fmt.Sprintf("packet out, %d bytes", len(o.PacketOut.Packet)))
		return &api.Reply{}
	case *api.Request_PacketsOut:
		for _, packet := range o.PacketsOut.Packets {
			f.log = append(f.log, fmt.Sprintf("packet out of port %q: %q", packet.GetPort(), packet.Packet))
		}
		return nil
	case *api.Request_State:
		return f.state(o.State)
	}
	return &api.Reply{Result: &api.Result{Code: 22, Message: "no operation that is known"}}
}
