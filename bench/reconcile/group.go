// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/object"
)

// How many routes refer to the next hop group that is changed, and how often it is.
var groupSizes = []struct {
	name  string
	count int
}{{"1", 1}, {"1M", 1_000_000}}

const groupChanges, groupWarming = 2000, 100

// groups measures changes of a next hop group in a data plane alone: from the request to the answer.
func (p programs) groups(chosen *regexp.Regexp, say func(result)) error {
	for _, size := range groupSizes {
		name := "reconcile-group-" + size.name
		if !chosen.MatchString(name) {
			continue
		}
		r, err := p.group(size.count)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.Scenario, r.Objects, r.Changes, r.Store = name, size.count, groupChanges, "none"
		say(r)
	}
	return nil
}

func (p programs) group(count int) (result, error) {
	directory, err := os.MkdirTemp(p.memory, "group-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(directory)
	g := &gateway{programs: p, directory: directory}
	defer func() { g.plane.kill() }()
	if err := g.startPlane(); err != nil {
		return result{}, err
	}
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	client, stop, err := g.witness(ctx)
	if err != nil {
		return result{}, err
	}
	defer stop()
	if err := putAll(client, network()); err != nil {
		return result{}, err
	}
	routes := make([]*object.Object, count)
	for i := range routes {
		routes[i] = &object.Object{Kind: "Route", Name: fmt.Sprintf("route-%d", i), Spec: &api.Route{
			Prefix: fmt.Sprintf("%d.%d.%d.0/24", 1+i>>16, i>>8&255, i&255), NextHopGroup: "shared"}}
	}
	if err := putAll(client, routes); err != nil {
		return result{}, err
	}
	took := make([]float64, groupWarming+groupChanges)
	var r result
	for i := range took {
		change := []*object.Object{nextHopGroup(i)}
		began := time.Now()
		if err := putAll(client, change); err != nil {
			return r, err
		}
		took[i] = float64(time.Since(began).Nanoseconds()) / 1000
		if i >= groupWarming {
			r.Seconds += took[i] / 1e6
		}
	}
	took = took[groupWarming:]
	slices.Sort(took)
	r.P50, r.P99 = share(took, 0.5), share(took, 0.99)
	return r, nil
}

// network is an interface with four neighbours, and the group that leads to some of them.
func network() []*object.Object {
	objects := []*object.Object{
		{Kind: "Port", Name: "core", Spec: &api.Port{Device: "net_null0,no-rx=1"}},
		{Kind: "Interface", Name: "core", Spec: &api.Interface{Port: "core", Addresses: []string{"192.0.2.1/24"}}},
	}
	for i := range 4 {
		objects = append(objects, &object.Object{Kind: "Neighbor", Name: fmt.Sprint("peer-", i), Spec: &api.Neighbor{
			Interface: "core", Address: fmt.Sprint("192.0.2.", 11+i), Mac: fmt.Sprintf("02:00:00:00:00:%02x", 11+i)}})
	}
	return append(objects, nextHopGroup(0))
}

// nextHopGroup has two of the four neighbours, others each time.
func nextHopGroup(turn int) *object.Object {
	hop := func(i int) *api.NextHop {
		return &api.NextHop{Address: fmt.Sprint("192.0.2.", 11+i%4), Weight: uint32(1 + i%3)}
	}
	return &object.Object{Kind: "NextHopGroup", Name: "shared", Spec: &api.NextHopGroup{NextHops: []*api.NextHop{hop(turn), hop(turn + 1)}}}
}

// putAll returns when the data plane has all objects.
func putAll(client *dataplane.Client, objects []*object.Object) error {
	all := make([]dataplane.Packed, len(objects))
	for i, o := range objects {
		spec, err := proto.Marshal(o.Spec)
		if err != nil {
			return err
		}
		all[i] = dataplane.Packed{Kind: o.Kind, Name: o.Name, Spec: string(spec)}
	}
	answered := make(chan error, 1)
	client.Put(all, func(results []dataplane.Result, err error) {
		for i, r := range results {
			if err == nil && r.Code != 0 {
				err = fmt.Errorf("%s/%s: %s", all[i].Kind, all[i].Name, r.Message)
			}
		}
		answered <- err
	})
	return <-answered
}
