// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Objects of services: a full table of routes, and the sessions of a large gateway.
const (
	manyRoutes   = 1_000_000
	manySessions = 192_000
	aSecond      = 3000 // sessions
	dialed       = 30_000
)

var serviceScenarios = []string{"services-routes-1M", "services-sessions", "services-sessions-beside-routes", "services-memory", "services-agent-killed"}

// services measures objects of services in the agent.
func (p programs) services(chosen *regexp.Regexp, say func(result)) error {
	if !slices.ContainsFunc(serviceScenarios, chosen.MatchString) {
		return nil
	}
	directory, err := os.MkdirTemp(p.memory, "services-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	if err := os.Setenv(socketVariable, directory); err != nil {
		return err
	}
	defer os.Unsetenv(socketVariable)
	if p.agent, err = os.Executable(); err != nil {
		return err
	}
	g := &gateway{programs: p, directory: directory, store: filepath.Join(directory, "intent.db")}
	defer g.close()
	report := func(name string, r result) {
		if r.Scenario = name; chosen.MatchString(name) {
			say(r)
		}
	}
	if err := g.startServices(); err != nil {
		return err
	}
	empty := g.process.resident()

	// Each alone, for the cost of one. The others need both.
	whole := slices.ContainsFunc(serviceScenarios[3:], chosen.MatchString)
	if whole || chosen.MatchString(serviceScenarios[0]) {
		r, err := g.make("bench-routes", order{Count: manyRoutes})
		if err != nil {
			return err
		}
		report(serviceScenarios[0], r)
	}
	if whole || chosen.MatchString(serviceScenarios[1]) {
		r, err := g.make("bench-sessions", order{Count: dialed, Rate: aSecond})
		if err != nil {
			return err
		}
		report(serviceScenarios[1], r)
	}
	if whole {
		if _, err := g.make("bench-sessions", order{First: dialed, Count: manySessions - dialed}); err != nil {
			return err
		}
		peak := g.process.resident() - empty
		time.Sleep(settled)
		report(serviceScenarios[3], result{Objects: manyRoutes + manySessions, Resident: (g.process.resident() - empty) / (manyRoutes + manySessions),
			Peak: peak / (manyRoutes + manySessions)})
		r, err := g.killed()
		if err != nil {
			return err
		}
		report(serviceScenarios[4], r)
	}
	if !chosen.MatchString(serviceScenarios[2]) {
		return nil
	}

	// Both at once, on new processes.
	g.close()
	g.store = filepath.Join(directory, "second.db")
	if err := g.startServices(); err != nil {
		return err
	}
	routes := make(chan error, 1)
	go func() {
		_, err := give(g.directory, "bench-routes", order{Count: manyRoutes})
		routes <- err
	}()
	r, err := g.make("bench-sessions", order{Count: dialed, Rate: aSecond})
	if err != nil {
		return err
	}
	if err := <-routes; err != nil {
		return err
	}
	report(serviceScenarios[2], r)
	return nil
}

func (g *gateway) startServices() error {
	if err := g.startPlane(); err != nil {
		return err
	}
	if err := g.startAgent(); err != nil {
		return err
	}
	changes, err := intents(append(base(), &object.Object{Kind: "Interface", Name: "core", Spec: &api.Interface{Port: "access", OuterVlan: 4094,
		Addresses: []string{"203.0.113.1/24"}}}))
	if err != nil {
		return err
	}
	return g.apply(changes)
}

// make has a service make objects, and returns the time and CPU.
func (g *gateway) make(name string, o order) (result, error) {
	var a account
	r, err := g.timed(func() (err error) {
		a, err = give(g.directory, name, o)
		return err
	})
	r.Objects, r.P50, r.P99 = o.Count, a.P50, a.P99
	return r, err
}

// killed kills the agent and starts it again, and its services make all that there was.
func (g *gateway) killed() (result, error) {
	g.stopAgent()
	r := result{Objects: manyRoutes + manySessions}
	generation, err := g.generation()
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := g.startAgent(); err != nil {
		return r, err
	}
	done := make(chan error, 2)
	for name, count := range map[string]int{"bench-routes": manyRoutes, "bench-sessions": manySessions} {
		go func() {
			_, err := give(g.directory, name, order{Count: count, Complete: true})
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			return r, err
		}
	}
	r.Seconds, r.AgentCPU = time.Since(began).Seconds(), g.process.processor(true)
	now, err := g.generation()
	if err == nil && now != generation {
		err = fmt.Errorf("the data plane was changed %d times, though its objects are the same", now-generation)
	}
	return r, err
}

// generation is how many changes of objects the data plane has had.
func (g *gateway) generation() (uint64, error) {
	ctx, end := context.WithTimeout(context.Background(), patience)
	defer end()
	witness, stop, err := g.witness(ctx)
	if err != nil {
		return 0, err
	}
	defer stop()
	_, generation, err := witness.Changes(ctx, func(*api.Event) {})
	return generation, err
}
