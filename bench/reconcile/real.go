// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/server"
)

// programs are the measured programs and their folders.
type programs struct {
	agent, dataplane string
	disk, memory     string
	huge             bool
	objects          int
}

// How many single changes there are for a percentile, and before them, for programs and processors that were idle.
const singles, warming = 3500, 500

const (
	patience = 2 * time.Minute
	// Time after many objects until the agent has returned unused memory.
	settled = 3 * time.Second
)

// gateway is an agent and a data plane that run.
type gateway struct {
	programs
	directory string
	store     string
	// The last session by name: the data plane gets it last.
	last    string
	plane   *process
	process *process
	wire    *grpc.ClientConn
	client  api.AgentClient
	// How often single changes were measured.
	turns int
}

// run measures with a real data plane.
func (p programs) run(chosen *regexp.Regexp, say func(result)) error {
	names := []string{"bulk", "one-of", "resync"}
	for i, name := range names {
		names[i] = "reconcile-" + name + "-200k"
	}
	ends := [][]string{{""}, {"-disk", "-memory"}, {"-agent", "-dataplane"}}
	selected := func(i int) bool {
		return slices.ContainsFunc(ends[i], func(end string) bool { return chosen.MatchString(names[i] + end) })
	}
	if !selected(0) && !selected(1) && !selected(2) {
		return nil
	}
	directory, err := os.MkdirTemp(p.disk, "reconcile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	fast, err := os.MkdirTemp(p.memory, "reconcile-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fast)
	g := &gateway{programs: p, directory: fast, store: filepath.Join(directory, "intent.db")}
	for i := range p.objects {
		g.last = max(g.last, sessionName(i))
	}
	defer g.close()
	if err := g.startPlane(); err != nil {
		return err
	}
	if err := g.startAgent(); err != nil {
		return err
	}
	bulk, err := g.bulk()
	if err != nil {
		return fmt.Errorf("%s: %w", names[0], err)
	}
	report := func(i int, r result) {
		r.Scenario, r.Objects = names[i]+r.Scenario, p.objects
		if chosen.MatchString(r.Scenario) {
			say(r)
		}
	}
	bulk.Store = "disk"
	report(0, bulk)
	if selected(1) {
		if err := g.oneIn("disk", directory, report); err != nil {
			return fmt.Errorf("%s: %w", names[1], err)
		}
	}
	if selected(2) {
		for _, again := range []struct {
			what string
			f    func() (result, error)
		}{{"-agent", g.resyncAgent}, {"-dataplane", g.resyncPlane}} {
			r, err := again.f()
			if err != nil {
				return fmt.Errorf("%s%s: %w", names[2], again.what, err)
			}
			r.Scenario, r.Store = again.what, "disk"
			report(2, r)
		}
	}
	if selected(1) {
		// The same agent with its store in memory: the rest is not the disk's.
		if err := g.move(directory, fast); err != nil {
			return err
		}
		if err := g.oneIn("memory", fast, report); err != nil {
			return fmt.Errorf("%s: %w", names[1], err)
		}
	}
	return nil
}

// oneIn measures single changes that are kept in a directory.
func (g *gateway) oneIn(store, directory string, report func(int, result)) error {
	r, err := g.one(directory)
	if err != nil {
		return err
	}
	r.Scenario, r.Store = "-"+store, store
	report(1, r)
	return nil
}

// move starts the agent anew with its files in another directory.
func (g *gateway) move(from, to string) error {
	g.stopAgent()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(to, "intent.db.key"), 0o600); err != nil {
		return err
	}
	g.store = filepath.Join(to, "intent.db")
	if err := g.startAgent(); err != nil {
		return err
	}
	return g.ready()
}

func (g *gateway) socket(name string) string { return filepath.Join(g.directory, name+".sock") }

func (g *gateway) startPlane() (err error) {
	arguments := []string{"--socket", g.socket("dataplane"), "--workers", "1", "--buffers", "8192", "--prefix",
		"sluice-bench-" + strconv.Itoa(os.Getpid())}
	if !g.huge {
		arguments = append(arguments, "--no-huge")
	}
	g.plane, err = start(g.socket("dataplane"), g.dataplane, arguments...)
	return err
}

func (g *gateway) startAgent() (err error) {
	g.process, err = start(g.socket("agent"), g.agent, "agent", "--dataplane", "unix://"+g.socket("dataplane"),
		"--listen", "unix://"+g.socket("agent"), "--store", g.store)
	if err != nil {
		return err
	}
	g.wire, err = grpc.NewClient("unix://"+g.socket("agent"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("sluice"), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(server.MessageLimit), grpc.MaxCallSendMsgSize(server.MessageLimit)))
	if err != nil {
		return err
	}
	g.client = api.NewAgentClient(g.wire)
	return g.until("the agent is connected to the data plane", func(v *api.Version) bool { return v.GetDataplane().GetConnected() })
}

func (g *gateway) stopAgent() {
	if g.wire != nil {
		g.wire.Close()
		g.wire = nil
	}
	g.process.kill()
	g.process = nil
}

func (g *gateway) close() {
	g.stopAgent()
	g.plane.kill()
	g.plane = nil
}

func (g *gateway) until(what string, holds func(*api.Version) bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		v, err := g.client.GetVersion(context.Background(), &api.VersionQuery{})
		if err != nil {
			return fmt.Errorf("%w\n%s", err, g.process.output())
		}
		if holds(v) {
			return nil
		}
	}
	return fmt.Errorf("not in %s: %s", patience, what)
}

// ready waits until the agent reports all objects as applied, and the data plane has the last session.
func (g *gateway) ready() error {
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	witness, stop, err := g.witness(ctx)
	if err != nil {
		return err
	}
	defer stop()
	last := &api.SessionCountersQuery{Sessions: []string{g.last}}
	return g.until("everything is applied", func(v *api.Version) bool {
		if !v.GetDataplane().GetConnected() || int(v.GetObjects()["applied"]) != g.objects+len(base()) || len(v.GetObjects()) != 1 {
			return false
		}
		there, err := dataplane.Ask[*api.SessionCountersList](ctx, witness, last)
		return err == nil && len(there.GetSessions()) == 1
	})
}

// counted checks that the data plane has all sessions.
func (g *gateway) counted() error {
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	witness, stop, err := g.witness(ctx)
	if err != nil {
		return err
	}
	defer stop()
	there, err := witness.List(ctx, "Session")
	if err == nil && len(there) != g.objects {
		err = fmt.Errorf("the data plane has %d sessions, not %d", len(there), g.objects)
	}
	return err
}

// witness is a connection of our own to the data plane, to ask it rather than the agent.
func (g *gateway) witness(ctx context.Context) (*dataplane.Client, func(), error) {
	endpoint, err := dataplane.ParseEndpoint("unix://"+g.socket("dataplane"), dataplane.Credentials{})
	if err != nil {
		return nil, nil, err
	}
	ctx, end := context.WithCancel(ctx)
	connected := make(chan struct{}, 1)
	c := dataplane.New(dataplane.Config{Endpoint: endpoint, MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
		Connected: func(context.Context, *dataplane.Client, *api.Greeting) {
			select {
			case connected <- struct{}{}:
			default:
			}
		}})
	ended := make(chan struct{})
	go func() { defer close(ended); c.Run(ctx) }()
	stop := func() { end(); <-ended }
	select {
	case <-connected:
		return c, stop, nil
	case <-ctx.Done():
		stop()
		return nil, nil, ctx.Err()
	}
}

// bulk applies all sessions at once.
func (g *gateway) bulk() (result, error) {
	changes, err := intents(base())
	if err != nil {
		return result{}, err
	}
	if err := g.apply(changes); err != nil {
		return result{}, err
	}
	objects := make([]*object.Object, g.objects)
	for i := range objects {
		objects[i] = session(i, 0)
	}
	if changes, err = intents(objects); err != nil {
		return result{}, err
	}
	objects = nil
	before, peak := g.process.resident(), g.process.peak()
	r, err := g.timed(func() error {
		if err := g.apply(changes); err != nil {
			return err
		}
		return g.ready()
	})
	most := peak()
	if err != nil {
		return r, err
	}
	// The memory of the request is free a moment later.
	time.Sleep(settled)
	if err := g.counted(); err != nil {
		return r, err
	}
	r.Resident, r.Peak = (g.process.resident()-before)/float64(g.objects), (most-before)/float64(g.objects)
	return r, nil
}

// one changes single sessions, one after the other. At times it measures the disk alone: other programs may use it, too.
func (g *gateway) one(directory string) (result, error) {
	disk, err := newSyncs(directory)
	if err != nil {
		return result{}, err
	}
	defer disk.close()
	// The memory of a large request is free a moment later; and this program's own garbage is not the agent's.
	time.Sleep(settled)
	debug.FreeOSMemory()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	// A new value, different from those of other changes.
	least := uint32(600 + g.turns*(warming+singles))
	g.turns++
	random := rand.New(rand.NewPCG(1, uint64(g.turns)))
	took := make([]float64, warming+singles)
	change := func(from, to int) error {
		for i := from; i < to; i++ {
			changes, err := intents([]*object.Object{session(random.IntN(g.objects), least+uint32(i))})
			if err != nil {
				return err
			}
			began := time.Now()
			if err := g.apply(changes); err != nil {
				return err
			}
			took[i] = float64(time.Since(began).Nanoseconds()) / 1000
			if i%4 == 0 {
				if err := disk.sync(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := change(0, warming); err != nil {
		return result{}, err
	}
	warm := len(disk.took)
	r, err := g.timed(func() error { return change(warming, len(took)) })
	took, disk.took = took[warming:], disk.took[warm:]
	slices.Sort(took)
	slices.Sort(disk.took)
	r.Changes, r.P50, r.P99 = singles, share(took, 0.5), share(took, 0.99)
	r.SyncP50, r.SyncP99 = share(disk.took, 0.5), share(disk.took, 0.99)
	return r, err
}

// share is the value that this part of all is not above.
func share(ordered []float64, part float64) float64 {
	return ordered[min(len(ordered)-1, int(part*float64(len(ordered))))]
}

// resyncAgent kills the agent and starts it again.
func (g *gateway) resyncAgent() (result, error) {
	g.stopAgent()
	r := result{}
	had, began := g.plane.processor(false), time.Now()
	if err := g.startAgent(); err != nil {
		return r, err
	}
	if err := g.ready(); err != nil {
		return r, err
	}
	r.Seconds, r.AgentCPU, r.DataplaneCPU = time.Since(began).Seconds(), g.process.processor(true), g.plane.processor(false)-had
	time.Sleep(settled)
	r.Resident = g.process.resident() / float64(g.objects)
	return r, g.counted()
}

// resyncPlane kills the data plane and starts it again.
func (g *gateway) resyncPlane() (result, error) {
	g.plane.kill()
	if err := g.until("the agent knows that the data plane is gone", func(v *api.Version) bool { return !v.GetDataplane().GetConnected() }); err != nil {
		return result{}, err
	}
	r := result{}
	had, began := g.process.processor(true), time.Now()
	if err := g.startPlane(); err != nil {
		return r, err
	}
	r.StartSeconds = time.Since(began).Seconds()
	if err := g.ready(); err != nil {
		return r, err
	}
	r.Seconds, r.AgentCPU, r.DataplaneCPU = time.Since(began).Seconds(), g.process.processor(true)-had, g.plane.processor(false)
	return r, g.counted()
}

// timed measures an unchanged agent and data plane.
func (g *gateway) timed(f func() error) (result, error) {
	agent, plane, began := g.process.processor(true), g.plane.processor(false), time.Now()
	err := f()
	return result{Seconds: time.Since(began).Seconds(), AgentCPU: g.process.processor(true) - agent, DataplaneCPU: g.plane.processor(false) - plane}, err
}

// apply has all of the changes be applied, each of them one.
func (g *gateway) apply(changes *api.Changes) error {
	applied, err := g.client.Apply(context.Background(), changes)
	if err != nil {
		return err
	}
	for _, o := range applied.GetObjects() {
		if s := o.GetStatus(); s.GetState() != api.State_APPLIED {
			return fmt.Errorf("%s/%s is %s: %s", o.GetKind(), o.GetName(), s.GetState(), s.GetMessage())
		}
		if o.GetStep() == api.Step_KEEP {
			return fmt.Errorf("%s/%s was so already", o.GetKind(), o.GetName())
		}
	}
	return nil
}

func intents(objects []*object.Object) (*api.Changes, error) {
	changes := &api.Changes{Put: make([]*api.Intent, len(objects))}
	for i, o := range objects {
		spec, err := object.Pack(o.Spec)
		if err != nil {
			return nil, err
		}
		changes.Put[i] = &api.Intent{Kind: o.Kind, Name: o.Name, Labels: o.Labels, Spec: spec}
	}
	return changes, nil
}

// syncs measures writing a page and syncing it, as the store does for each small revision.
type syncs struct {
	file *os.File
	page []byte
	took []float64
}

const pageBytes = 4096

// newSyncs makes a file of its final length: growth takes longer.
func newSyncs(directory string) (*syncs, error) {
	f, err := os.CreateTemp(directory, "sync-")
	if err != nil {
		return nil, err
	}
	s := &syncs{file: f, page: make([]byte, pageBytes)}
	if _, err = f.Write(make([]byte, (warming+singles)*pageBytes)); err == nil {
		err = f.Sync()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *syncs) close() {
	s.file.Close()
	os.Remove(s.file.Name())
}

func (s *syncs) sync() error {
	began := time.Now()
	if _, err := s.file.WriteAt(s.page, int64(len(s.took)*pageBytes)); err != nil {
		return err
	}
	err := syscall.Fdatasync(int(s.file.Fd()))
	s.took = append(s.took, float64(time.Since(began).Nanoseconds())/1000)
	return err
}
