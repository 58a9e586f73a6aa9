// Package dataplanetest is a data plane for tests: it speaks api/dataplane.proto on a real Unix socket and keeps objects
// as strictly as the real one (what an object names must be there, what is named cannot be deleted, what is immutable
// cannot change), but moves no packets.
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
	"testing"

	"google.golang.org/protobuf/proto"

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

	nodes      *api.NodeCountersList
	ports      *api.PortCountersList
	interfaces *api.InterfaceCountersList
	sessions   *api.SessionCountersList
	drops      *api.DropCountersList
	queues     *api.QueueCountersList
	schedulers *api.SchedulerCountersList
	totals     *api.SessionTotals
	neighbors  *api.NeighborStates
	paths      *api.GtpuPaths
}

// peer is one connection; mu serialises writing.
type peer struct {
	socket  net.Conn
	mu      sync.Mutex
	streams map[uint64]*api.Request
}

// New returns a Fake that has been started, and is stopped when the test ends.
func New(t testing.TB) *Fake {
	t.Helper()
	// Not t.TempDir(): with a long test name the path would be longer than a Unix socket's may be.
	dir, err := os.MkdirTemp("", "dp")
	if err != nil {
		t.Fatal(err)
	}
	f := &Fake{Path: dir + "/s"}
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

// Log returns what was asked for since the last call: "put Port access", "delete Route default".
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

// Meddle changes what it holds behind the agent's back. A nil spec deletes.
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

// Refuse makes puts and deletes ("put", "delete") fail with what the function returns, if it is not nil.
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
		switch l := list.(type) {
		case *api.NodeCountersList:
			f.nodes = l
		case *api.PortCountersList:
			f.ports = l
		case *api.InterfaceCountersList:
			f.interfaces = l
		case *api.SessionCountersList:
			f.sessions = l
		case *api.DropCountersList:
			f.drops = l
		case *api.QueueCountersList:
			f.queues = l
		case *api.SchedulerCountersList:
			f.schedulers = l
		case *api.NeighborStates:
			f.neighbors = l
		case *api.GtpuPaths:
			f.paths = l
		case *api.SessionTotals:
			f.totals = l
		default:
			panic(fmt.Sprintf("not counters: %T", list))
		}
	}
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

// Emit sends an answer on every open stream of its type, and ends the stream if last.
func (f *Fake) Emit(answer proto.Message, last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
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
				if r.GetWatch() == nil || r.GetWatch().GetChanges() != (a.GetChanged() != nil) {
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
		p := &peer{socket: socket, streams: map[uint64]*api.Request{}}
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

// WriteReply leaves it to whoever reads to notice that a socket is broken.
func WriteReply(w io.Writer, reply *api.Reply) {
	frame, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4), reply)
	if err != nil {
		panic(err)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	_, _ = w.Write(frame)
}

func (f *Fake) answer(p *peer, request *api.Request) *api.Reply {
	switch o := request.Operation.(type) {
	case *api.Request_Hello:
		return &api.Reply{Answer: &api.Reply_Greeting{Greeting: &api.Greeting{Version: 1, Release: "fake", Dpdk: "none", Cpu: "x86-64-v2",
			Boot: f.boot, Workers: 1}}}
	case *api.Request_Put:
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
			return &api.Reply{Result: &api.Result{Code: 22, Message: "filter: syntax error in \"" + filter + "\""}}
		}
		p.mu.Lock()
		p.streams[request.Id] = request
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
	case *api.Request_NodeCounters:
		return &api.Reply{Answer: &api.Reply_NodeCounters{NodeCounters: f.nodes}}
	case *api.Request_PortCounters:
		return &api.Reply{Answer: &api.Reply_PortCounters{PortCounters: f.ports}}
	case *api.Request_InterfaceCounters:
		return &api.Reply{Answer: &api.Reply_InterfaceCounters{InterfaceCounters: f.interfaces}}
	case *api.Request_SessionCounters:
		return &api.Reply{Answer: &api.Reply_SessionCounters{SessionCounters: f.sessionPage(o.SessionCounters)}}
	case *api.Request_QueueCounters:
		return &api.Reply{Answer: &api.Reply_QueueCounters{QueueCounters: f.queues}}
	case *api.Request_SchedulerCounters:
		return &api.Reply{Answer: &api.Reply_SchedulerCounters{SchedulerCounters: f.schedulers}}
	case *api.Request_DropCounters:
		return &api.Reply{Answer: &api.Reply_DropCounters{DropCounters: f.drops}}
	case *api.Request_SessionTotals:
		return &api.Reply{Answer: &api.Reply_SessionTotals{SessionTotals: f.totals}}
	case *api.Request_NeighborStates:
		return &api.Reply{Answer: &api.Reply_NeighborStates{NeighborStates: f.neighbors}}
	case *api.Request_GtpuPaths:
		return &api.Reply{Answer: &api.Reply_GtpuPaths{GtpuPaths: f.paths}}
	}
	return &api.Reply{Result: &api.Result{Code: 22, Message: "no operation that is known"}}
}
