// SPDX-License-Identifier: Apache-2.0

package module

import (
	"context"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

const (
	// Of one Production, and how many of them may wait for their results. Until one has them, nothing more is read from the module.
	changesLimit     = 4096
	productionsLimit = 16
	packetsOutLimit  = 1024
	// Packets that wait for the module, of all data planes together; more are dropped and counted.
	packetsLimit     = 4096
	packetBytesLimit = 16 << 20
	// Of one message to the module.
	batchObjects = 512
	batchPackets = 256
	batchBytes   = 1 << 20
)

// session is one call of Attach: one life of a module.
type session struct {
	module *module
	hello  *api.ModuleHello
	stream grpc.BidiStreamingServer[api.FromModule, api.ToModule]
	e      service.Environment

	// Closed when the life begins.
	began chan struct{}
	// Closed when the module has left, and when the life is over; err is set before.
	left      chan struct{}
	leaveOnce sync.Once
	over      chan struct{}
	overOnce  sync.Once
	err       error
	// Productions that may be under way.
	room chan struct{}

	// Held while a message of the module is carried out; closed: none is any more.
	carrying sync.Mutex
	closed   bool
	// A Complete is being carried out.
	completing atomic.Bool

	mu sync.Mutex
	// There is something to send.
	wake chan struct{}
	// The queue of changes for the module. If an object changes again meanwhile, only its last state.
	pending     map[object.Key]*object.Object
	order       []object.Key
	synced      bool
	results     []*api.ProductionResults
	completed   bool
	packets     map[string]*packetsOf
	packetCount int
	packetBytes int
	// Questions to send, and those without an answer, by id.
	toAsk        []*api.StateQuestion
	questions    map[uint64]chan<- *api.StateAnswer
	lastQuestion uint64
}

// packetsOf is the packets of a data plane that wait for the module.
type packetsOf struct {
	all     []*api.PacketIn
	dropped uint64
}

func newSession(m *module, hello *api.ModuleHello, stream grpc.BidiStreamingServer[api.FromModule, api.ToModule]) *session {
	return &session{module: m, hello: hello, stream: stream, began: make(chan struct{}), left: make(chan struct{}), over: make(chan struct{}), room: make(chan struct{}, productionsLimit),
		wake: make(chan struct{}, 1), pending: map[object.Key]*object.Object{}, packets: map[string]*packetsOf{}, questions: map[uint64]chan<- *api.StateAnswer{}}
}

// leave ends the life.
func (a *session) leave() { a.leaveOnce.Do(func() { close(a.left) }) }

// end is the end of the life.
func (a *session) end(err error) {
	a.overOnce.Do(func() {
		a.err = err
		close(a.over)
	})
}

// Follows implements service.Chooser.
func (a *session) Follows() []string { return a.hello.GetFollow() }

// Punts implements service.Chooser.
func (a *session) Punts() []string { return a.hello.GetPunts() }

// Run implements service.Service: it sends the module's messages.
func (a *session) Run(ctx context.Context) error {
	m := a.module
	a.e.Log.Info("the module attached", "release", a.hello.GetVersion())
	close(a.began)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.stream.Context(), cancel)()
	defer func() {
		a.carrying.Lock()
		a.closed = true
		a.carrying.Unlock()
		// Hand over the objects that the module has produced.
		a.e.Objects.Flush(ctx)
	}()
	defer cancel()
	defer a.provide()()
	sent := make(chan error, 1)
	go func() { sent <- a.send(ctx) }()
	m.touch()
	select {
	case err := <-sent:
		return err
	case <-a.left:
	case <-ctx.Done():
	}
	// Send may wait for a module that does not read. The call ends with the life, and Send with the call.
	return nil
}

// send sends until something fails.
func (a *session) send(ctx context.Context) error {
	welcome := &api.ModuleWelcome{Release: a.module.server.release, Dataplanes: slices.Sorted(slices.Values(a.e.Dataplanes))}
	if err := a.stream.Send(&api.ToModule{Message: &api.ToModule_Welcome{Welcome: welcome}}); err != nil {
		return err
	}
	for {
		one := a.next()
		if one == nil {
			select {
			case <-a.wake:
				continue
			case <-ctx.Done():
				return nil
			case <-a.left:
				return nil
			}
		}
		if err := a.stream.Send(one); err != nil {
			return err
		}
		if one.GetResults() != nil {
			<-a.room
		}
	}
}

func (a *session) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// next returns the next message to send, nil if there is none.
func (a *session) next() *api.ToModule {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.results) > 0 {
		one := a.results[0]
		a.results = a.results[1:]
		return &api.ToModule{Message: &api.ToModule_Results{Results: one}}
	}
	if a.completed {
		a.completed = false
		return &api.ToModule{Message: &api.ToModule_Completed{Completed: &api.Completed{}}}
	}
	if len(a.toAsk) > 0 {
		one := a.toAsk[0]
		a.toAsk = a.toAsk[1:]
		return &api.ToModule{Message: &api.ToModule_Question{Question: one}}
	}
	for name, p := range a.packets {
		if len(p.all) == 0 {
			continue
		}
		in := &api.ModulePacketsIn{Dataplane: name, Dropped: p.dropped}
		bytes := 0
		for len(p.all) > 0 && len(in.Packets) < batchPackets && bytes < batchBytes {
			in.Packets = append(in.Packets, p.all[0])
			bytes += len(p.all[0].GetFrame())
			p.all[0], p.all = nil, p.all[1:]
		}
		p.dropped = 0
		a.packetCount -= len(in.Packets)
		a.packetBytes -= bytes
		if len(p.all) == 0 {
			p.all = nil
		}
		return &api.ToModule{Message: &api.ToModule_Packets{Packets: in}}
	}
	if len(a.order) == 0 && !a.synced {
		return nil
	}
	followed, bytes := &api.FollowedObjects{}, 0
	for len(a.order) > 0 && len(followed.Objects) < batchObjects && bytes < batchBytes {
		k := a.order[0]
		a.order = a.order[1:]
		o := a.pending[k]
		delete(a.pending, k)
		one := &api.FollowedObject{Intent: &api.Intent{Kind: k.Kind, Name: k.Name}, Deleted: o == nil}
		if o != nil {
			if !a.module.rights.Secrets {
				o = a.e.Registry.Redacted(o)
			}
			// A stored object can always be packed.
			spec, _ := object.Pack(o.Spec)
			one.Intent.Labels, one.Intent.Spec, one.Intent.Empty = o.Labels, spec, o.Empty
			bytes += proto.Size(one)
		}
		followed.Objects = append(followed.Objects, one)
	}
	if len(a.order) == 0 {
		a.order = nil
		followed.Synced, a.synced = a.synced, false
	}
	return &api.ToModule{Message: &api.ToModule_Followed{Followed: followed}}
}

// Follow implements service.Follower.
func (a *session) Follow(c service.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, waits := a.pending[c.Key]; !waits {
		a.order = append(a.order, c.Key)
	}
	a.pending[c.Key] = c.Object
	a.wakeUp()
}

// Synced implements service.Follower.
func (a *session) Synced() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.synced = true
	a.wakeUp()
}

// Receive implements service.Receiver.
func (a *session) Receive(packets []service.Packet) {
	dropped := 0
	a.mu.Lock()
	for _, one := range packets {
		if !slices.Contains(a.hello.GetPunts(), one.Reason) {
			continue
		}
		p := a.packets[one.Dataplane]
		if p == nil {
			p = &packetsOf{}
			a.packets[one.Dataplane] = p
		}
		if a.packetCount >= packetsLimit || a.packetBytes+len(one.Frame) > packetBytesLimit {
			p.dropped++
			dropped++
			continue
		}
		a.packetCount++
		a.packetBytes += len(one.Frame)
		p.all = append(p.all, &api.PacketIn{Reason: one.Reason, Port: one.Port, Interface: one.Interface, Session: one.Session, Frame: one.Frame})
	}
	a.mu.Unlock()
	a.wakeUp()
	if dropped > 0 {
		a.e.Dropped(dropped)
	}
}

// receive carries out a message of the module. An error ends the life.
func (a *session) receive(one *api.FromModule) error {
	if p := one.GetProduction(); p != nil {
		select {
		case a.room <- struct{}{}:
		case <-a.over:
			return a.err
		case <-a.left:
			return nil
		case <-a.stream.Context().Done():
			return a.stream.Context().Err()
		}
	}
	a.carrying.Lock()
	defer a.carrying.Unlock()
	if a.closed {
		return nil
	}
	switch {
	case one.GetProduction() != nil:
		return a.produce(one.GetProduction())
	case one.GetComplete() != nil:
		if a.completing.Swap(true) {
			return status.Error(codes.InvalidArgument, "a second Complete before the Completed of the first")
		}
		go func() {
			if a.e.Objects.Complete(a.stream.Context()) != nil {
				return
			}
			a.completing.Store(false)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.completed = true
			a.wakeUp()
		}()
		return nil
	case one.GetPackets() != nil:
		return a.sendPackets(one.GetPackets())
	case one.GetConditions() != nil:
		return a.reporter(one.GetConditions())
	case one.GetAnswer() != nil:
		return a.answer(one.GetAnswer())
	case one.GetHello() != nil:
		return status.Error(codes.InvalidArgument, "a second ModuleHello")
	}
	return status.Error(codes.InvalidArgument, "an empty message, or one that this agent does not know")
}

// produce carries out the changes that the rights allow.
func (a *session) produce(p *api.Production) error {
	count := len(p.GetPut()) + len(p.GetDelete())
	if count == 0 || count > changesLimit {
		return status.Errorf(codes.InvalidArgument, "production %d: found %d changes; accepted: 1 to %d", p.GetId(), count, changesLimit)
	}
	all := &api.ProductionResults{Id: p.GetId(), Results: make([]*api.ProductionResult, count)}
	var left atomic.Int64
	left.Store(int64(count))
	done := func(i int, k object.Key, r service.Result) {
		one := &api.ProductionResult{Done: r.Done, Final: r.Final}
		if r.Err != nil {
			one.Problem = &api.Problem{Kind: clipped(k.Kind), Name: clipped(k.Name), Problem: clipped(r.Err.Error())}
			if wrong := object.AllErrors(r.Err); len(wrong) > 0 {
				one.Problem.Field, one.Problem.Problem, one.Problem.Found, one.Problem.Accepted = clipped(wrong[0].Field), clipped(wrong[0].Problem),
					clipped(wrong[0].Found), clipped(wrong[0].Accepted)
			}
		}
		all.Results[i] = one
		if left.Add(-1) > 0 {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.results = append(a.results, all)
		a.wakeUp()
	}
	for i, one := range p.GetPut() {
		k := object.Key{Kind: one.GetKind(), Name: one.GetName()}
		if err := a.mayProduce(k); err != nil {
			done(i, k, service.Result{Err: err})
			continue
		}
		o, err := a.e.Registry.New(k.Kind, k.Name, one.GetLabels(), one.GetSpec())
		if err != nil {
			done(i, k, service.Result{Err: err})
			continue
		}
		o.Empty = one.GetEmpty()
		a.e.Objects.Put(o, func(r service.Result) { done(i, k, r) })
	}
	for i, one := range p.GetDelete() {
		i += len(p.GetPut())
		k := object.Key{Kind: one.GetKind(), Name: one.GetName()}
		if err := a.mayProduce(k); err != nil {
			done(i, k, service.Result{Err: err})
			continue
		}
		a.e.Objects.Delete(k, func(r service.Result) { done(i, k, r) })
	}
	return nil
}

func (a *session) mayProduce(k object.Key) error {
	m := a.module
	if !slices.Contains(m.rights.Produce, k.Kind) {
		return &object.Error{Object: k, Field: "kind", Problem: "module " + m.name + " may not produce it", Accepted: listed(m.rights.Produce) + " in modules.rights." + m.name + ".produce"}
	}
	if a.e.Registry.Kind(k.Kind) == nil {
		return &object.Error{Object: k, Field: "kind", Problem: "there is no such kind"}
	}
	if e := object.CheckName(k); e != nil {
		return e
	}
	return nil
}

// sendPackets sends packets by ways that the rights allow.
func (a *session) sendPackets(p *api.ModulePacketsOut) error {
	if len(p.GetPackets()) > packetsOutLimit {
		return status.Errorf(codes.InvalidArgument, "packets: found %d; accepted: at most %d in a message", len(p.GetPackets()), packetsOutLimit)
	}
	for _, one := range p.GetPackets() {
		way := ""
		switch one.GetWay().(type) {
		case *api.PacketOut_Session:
			way = "session"
		case *api.PacketOut_Vrf:
			way = "vrf"
		case *api.PacketOut_Interface:
			way = "interface"
		case *api.PacketOut_Port:
			way = "port"
		default:
			return status.Error(codes.InvalidArgument, "packets: one without a way; accepted: session, vrf, interface or port")
		}
		if !slices.Contains(a.module.rights.Send, way) {
			return status.Errorf(codes.PermissionDenied, "packets: module %s may not send by %s; accepted: %s in modules.rights.%s.send", a.module.name, way,
				listed(a.module.rights.Send), a.module.name)
		}
	}
	if !slices.Contains(a.e.Dataplanes, p.GetDataplane()) {
		return status.Errorf(codes.InvalidArgument, "packets: there is no data plane %q", clipped(p.GetDataplane()))
	}
	// While the data plane is away, packets are lost, as on a wire.
	if err := a.e.Packets.Send(p.GetDataplane(), p.GetPackets()...); err != nil {
		a.e.Log.Debug("packets of the module were not sent", "dataplane", p.GetDataplane(), "error", err)
	}
	return nil
}

var reasonName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)

// reporter notes how objects stand.
func (a *session) reporter(all *api.ObjectConditions) error {
	m := a.module
	var changed []object.Key
	for _, one := range all.GetConditions() {
		k := object.Key{Kind: one.GetKind(), Name: one.GetName()}
		c := condition{one.GetReason(), one.GetMessage()}
		switch {
		case !slices.Contains(a.hello.GetFollow(), k.Kind):
			return status.Errorf(codes.PermissionDenied, "conditions: the module does not follow %q", clipped(k.Kind))
		case object.CheckName(k) != nil:
			return status.Error(codes.InvalidArgument, "conditions: "+object.CheckName(k).Sentence())
		case c != condition{} && (!reasonName.MatchString(c.reason) || c.message == ""):
			return status.Errorf(codes.InvalidArgument, "conditions: %s: reason: accepted: a word such as AddressInUse, and a message", k)
		}
		if err := checkText(c.message, 1024); err != nil {
			return status.Errorf(codes.InvalidArgument, "conditions: %s: message: %v", k, err)
		}
		m.mu.Lock()
		before := m.conditions[k]
		switch {
		case c == before:
		case c == condition{}:
			delete(m.conditions, k)
		case before == condition{} && len(m.conditions) >= conditionLimit:
			m.mu.Unlock()
			return status.Errorf(codes.ResourceExhausted, "conditions: of more than %d objects", conditionLimit)
		default:
			m.conditions[k] = c
		}
		m.mu.Unlock()
		if c != before {
			changed = append(changed, k)
		}
	}
	for _, k := range changed {
		a.e.Intent.Touched(k)
	}
	return nil
}
