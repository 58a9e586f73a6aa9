// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// patient is a data plane that answers requests in order, one for each call of answer.
type patient struct {
	reconciletest.Willing

	mu      sync.Mutex
	waiting []func()
	// Of requests with objects: how many are not answered, and the most that ever were.
	open, most int
}

func (p *patient) Put(ctx context.Context, objects []reconcile.Object, answered func([]reconcile.Result, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(objects) > 0 {
		p.open++
		p.most = max(p.most, p.open)
	}
	p.waiting = append(p.waiting, func() { p.Willing.Put(ctx, objects, answered) })
	if len(objects) > 0 {
		p.waiting = append(p.waiting, func() { p.open-- })
	}
}

func (p *patient) answer() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.waiting {
		f()
	}
	p.waiting = nil
}

func (p *patient) is() (open, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open, p.most
}

// aPatientScene has a port, and a data plane that answers when settled is called, which returns whether nothing is left to do.
func aPatientScene(t *testing.T) (s *scene, plane *patient, settled func() bool) {
	t.Helper()
	s = newScene(t, reconcile.Options{})
	s.apply(puts(port("p")))
	s.link()
	plane = &patient{Willing: reconciletest.Willing{}}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s.Attach(ctx, plane)
	settled = func() bool { plane.answer(); return s.Settled() }
	s.until(settled)
	return s, plane, settled
}

// aThousand sessions of a port, from a VLAN on.
func aThousand(name string, vlan uint32) []object.Change {
	var all []*object.Object
	for i := range uint32(1000) {
		all = append(all, session(fmt.Sprint(name, i), "p", vlan+i, ""))
	}
	return puts(all...)
}

func TestAnObjectOfAServiceIsSentBeforeTheAnswersAboutAnotherKind(t *testing.T) {
	s, plane, settled := aPatientScene(t)
	one, err := s.Producer("pppoe")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.Producer("bgp")
	if err != nil {
		t.Fatal(err)
	}
	many := one.Produce(aThousand("s-", 2001))
	s.until(func() bool { open, _ := plane.is(); return open == 2 })
	few := other.Produce(puts(vrf("red")))
	s.until(func() bool { open, _ := plane.is(); return open == 3 })
	s.until(settled)
	<-few.Done()
	<-many.Done()
	few.Close()
	if done, failures, interrupted := many.Close(); len(done) != 1000 || len(failures) > 0 || interrupted {
		t.Errorf("%d done, %v", len(done), failures)
	}
}

func TestOfWhatServicesProduceTheNextWaveIsUnderWayBeforeTheLastIsAnswered(t *testing.T) {
	s, plane, settled := aPatientScene(t)
	_, before := plane.is()
	if _, err := s.Apply(t.Context(), as("test"), aThousand("c-", 1), intent.Options{Mode: intent.NoWait}); err != nil {
		t.Fatal(err)
	}
	s.until(settled)
	if _, most := plane.is(); most > max(before, 1) {
		t.Errorf("%d requests with configuration were under way", most)
	}
	p, err := s.Producer("pppoe")
	if err != nil {
		t.Fatal(err)
	}
	work := p.Produce(aThousand("s-", 2001))
	s.until(func() bool { open, _ := plane.is(); return open == 2 })
	s.until(settled)
	<-work.Done()
	if done, failures, interrupted := work.Close(); len(done) != 1000 || len(failures) > 0 || interrupted {
		t.Errorf("%d done, %v", len(done), failures)
	}
	if _, most := plane.is(); most > 2 {
		t.Errorf("%d requests were under way", most)
	}
}
