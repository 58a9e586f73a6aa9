// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/cli"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// The services that are measured run in the agent as it is shipped: this program becomes it when socketVariable names a directory. Each
// service takes orders on a socket there.
const socketVariable = "SLUICE_BENCH_SERVICES"

// profileVariable names a directory for profiles of orders: one of orders that are under way together has them.
const profileVariable = "SLUICE_BENCH_PROFILES"

// order is a command for a service.
type order struct {
	// Objects to make, from the first number on, and how many a second; 0: as fast as they are taken.
	First, Count, Rate int
	// The producer resumes an earlier run of the agent: the service reports that it is complete.
	Complete bool
}

// account is the result of an order.
type account struct {
	Error string
	// Of each object, from Put to the data plane's answer.
	P50, P99 float64 // microseconds
	Seconds  float64
}

// maker is a service that makes objects of one kind.
type maker struct {
	service.Environment
	make func(i int) *object.Object
}

func makerOf(name string, one func(i int) *object.Object) service.Definition {
	return service.Definition{Name: name, New: func(e service.Environment) (service.Service, error) {
		return &maker{Environment: e, make: one}, nil
	}}
}

// asAgent runs the agent with the services that are measured.
func asAgent() int {
	return cli.Main(makerOf("bench-routes", route), makerOf("bench-sessions", func(i int) *object.Object { return session(i, 0) }))
}

func orderSocket(directory, name string) string { return directory + "/" + name + ".orders" }

// Run implements service.Service.
func (m *maker) Run(ctx context.Context) error {
	path := orderSocket(os.Getenv(socketVariable), m.Name)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		var o order
		if err = json.NewDecoder(c).Decode(&o); err == nil {
			err = json.NewEncoder(c).Encode(m.carryOut(ctx, o))
		}
		c.Close()
		if err != nil {
			return err
		}
	}
}

// underWay is how many objects a service has under way: those that a peer sends meanwhile wait in the connection to the peer.
const underWay = 1 << 15

// carryOut returns when data planes have all objects.
func (m *maker) carryOut(ctx context.Context, o order) account {
	defer m.profile(o)()
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	took, began := make([]float64, o.Count), time.Now()
	room := make(chan struct{}, underWay)
	for i := range o.Count {
		// Each millisecond, those that are due: to be woken up for each costs more than the agent takes for it.
		if due := began.Add(time.Duration(i) * time.Second / time.Duration(max(1, o.Rate))); o.Rate > 0 && time.Until(due) > 0 {
			time.Sleep(time.Until(due.Add(time.Millisecond)))
		}
		room <- struct{}{}
		group.Add(1)
		one, put := m.make(o.First+i), time.Now()
		m.Objects.Put(one, func(r service.Result) {
			defer group.Done()
			<-room
			took[i] = float64(time.Since(put).Nanoseconds()) / 1000
			// In another life of the agent, the data plane has it already.
			if r.Err != nil || !r.Done && !o.Complete {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = fmt.Errorf("%s/%s: done %v: %w", one.Kind, one.Name, r.Done, r.Err)
				}
			}
		})
	}
	group.Wait()
	a := account{Seconds: time.Since(began).Seconds()}
	if o.Complete {
		first = m.Objects.Complete(ctx)
		a.Seconds = time.Since(began).Seconds()
	}
	if first != nil {
		a.Error = first.Error()
	}
	if len(took) > 0 {
		slices.Sort(took)
		a.P50, a.P99 = share(took, 0.5), share(took, 0.99)
	}
	return a
}

// profile begins a CPU profile of an order. The returned function ends it.
func (m *maker) profile(o order) func() {
	directory := os.Getenv(profileVariable)
	if directory == "" {
		return func() {}
	}
	name := fmt.Sprintf("%s/%d-%s", directory, time.Now().UnixMilli(), m.Name)
	cpu, err := os.Create(name + ".cpu")
	if err != nil || pprof.StartCPUProfile(cpu) != nil {
		return func() {}
	}
	runtime.SetMutexProfileFraction(5)
	return func() {
		pprof.StopCPUProfile()
		cpu.Close()
		for _, kind := range []string{"heap", "mutex"} {
			if file, err := os.Create(name + "." + kind); err == nil {
				_ = pprof.Lookup(kind).WriteTo(file, 0)
				file.Close()
			}
		}
	}
}

// route is one of a full table: IPv4 prefixes of 24 bits from 1.0.0.0 on.
func route(i int) *object.Object {
	n := i + 1<<16
	prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(n >> 16), byte(n >> 8), byte(n)}), 24)
	return &object.Object{Kind: "Route", Name: "bgp-" + strconv.Itoa(i), Spec: &api.Route{
		Prefix: prefix.String(), NextHops: []*api.NextHop{{Address: "203.0.113.254"}}}}
}

// give has a service carry out an order.
func give(directory, name string, o order) (account, error) {
	var a account
	c, err := net.Dial("unix", orderSocket(directory, name))
	for end := time.Now().Add(patience); err != nil; c, err = net.Dial("unix", orderSocket(directory, name)) {
		if time.Now().After(end) {
			return a, err
		}
		time.Sleep(time.Millisecond)
	}
	defer c.Close()
	if err = json.NewEncoder(c).Encode(o); err == nil {
		err = json.NewDecoder(c).Decode(&a)
	}
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		return a, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}
