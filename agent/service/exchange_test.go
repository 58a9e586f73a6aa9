// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
)

type greeter interface{ Greet() string }

type name string

func (n name) Greet() string { return string(n) }

func TestAnOfferIsFoundUntilItIsWithdrawn(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := Environment{Exchange: newExchange()}
	found := make(chan greeter)
	go func() {
		g, _, err := Find[greeter](ctx, e)
		if err != nil {
			t.Error(err)
		}
		found <- g
	}()
	first := Offer[greeter](e, name("first"))
	if g := <-found; g.Greet() != "first" {
		t.Fatal(g.Greet())
	}
	_, gone, _ := Find[greeter](ctx, e)
	// An offer of another type changes nothing for those that found this one.
	Offer[context.Context](e, ctx)()
	select {
	case <-gone:
		t.Fatal("the offer of another type counts as a change of this one")
	default:
	}
	second := Offer[greeter](e, name("second"))
	<-gone
	// The earlier offer is not there any more: to withdraw it takes nothing away.
	first()
	if g, _, err := Find[greeter](ctx, e); err != nil || g.Greet() != "second" {
		t.Fatal(g, err)
	}
	if g, there := Offered[greeter](&Host{exchange: e.Exchange}); !there || g.Greet() != "second" {
		t.Fatal(g, there)
	}
	second()
	if g, there := Offered[greeter](&Host{exchange: e.Exchange}); there {
		t.Fatal("a withdrawn offer is there:", g)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, _, err := Find[greeter](ended, e); err == nil {
		t.Fatal("a withdrawn offer is found")
	}
}

func TestAProviderAnswersItsQuestion(t *testing.T) {
	e := Environment{Exchange: newExchange()}
	h := &Host{exchange: e.Exchange}
	query := &api.IkeSasQuery{Connection: "office"}
	if h.Provided(query) != nil {
		t.Fatal("a question is answered before it is provided")
	}
	withdraw := Provide(e, func(_ context.Context, q *api.IkeSasQuery) (*api.IkeSas, error) {
		return &api.IkeSas{Sas: []*api.IkeSaState{{Connection: q.GetConnection()}}}, nil
	})
	answer, err := h.Provided(query)(t.Context(), query)
	if sas, ok := answer.(*api.IkeSas); err != nil || !ok || sas.GetSas()[0].GetConnection() != "office" {
		t.Fatal(answer, err)
	}
	withdraw()
	if h.Provided(query) != nil {
		t.Fatal("a question is answered after that was withdrawn")
	}
}
