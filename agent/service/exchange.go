// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"reflect"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Exchange connects services of one agent. An offer is a value of an interface type, and the type is its name. One
// service offers it; any service may use it. The name of an answer to a question about operational state is the full name of the question.
type Exchange struct {
	mu     sync.Mutex
	offers map[any]any
	// Closed and removed when the offer of the name comes, changes or goes.
	changed map[any]chan struct{}
}

func newExchange() *Exchange {
	return &Exchange{offers: map[any]any{}, changed: map[any]chan struct{}{}}
}

// Offer makes value known as a T until withdraw is called. A later offer of the same type takes the place of an earlier one.
func Offer[T any](e Environment, value T) (withdraw func()) {
	return e.Exchange.offer(reflect.TypeFor[T](), &struct{ value T }{value})
}

// Provider answers a question about operational state.
type Provider func(ctx context.Context, query proto.Message) (proto.Message, error)

// Provide makes f answer questions of the type Q, a message with the option `state` (api/schema.proto), until withdraw is called. Errors
// are those of gRPC.
func Provide[Q, R proto.Message](e Environment, f func(context.Context, Q) (R, error)) (withdraw func()) {
	var question Q
	return ProvideNamed(e, question.ProtoReflect().Descriptor().FullName(), func(ctx context.Context, query proto.Message) (proto.Message, error) {
		return f(ctx, query.(Q))
	})
}

// ProvideNamed is Provide for questions whose type is not known to the program.
func ProvideNamed(e Environment, question protoreflect.FullName, p Provider) (withdraw func()) {
	return e.Exchange.offer(question, &struct{ value Provider }{p})
}

// Provided returns the provider of a question, nil if there is none now.
func (h *Host) Provided(query proto.Message) Provider {
	h.exchange.mu.Lock()
	defer h.exchange.mu.Unlock()
	if held, there := h.exchange.offers[query.ProtoReflect().Descriptor().FullName()].(*struct{ value Provider }); there {
		return held.value
	}
	return nil
}

// offer makes held known until withdraw is called.
func (x *Exchange) offer(name, held any) (withdraw func()) {
	x.set(name, held)
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.offers[name] == held {
			delete(x.offers, name)
			x.notify(name)
		}
	}
}

// Find returns the offer of type T. It waits for one until the context ends. gone is closed when the offer of T
// changes or is withdrawn.
func Find[T any](ctx context.Context, e Environment) (value T, gone <-chan struct{}, err error) {
	x, name := e.Exchange, reflect.TypeFor[T]()
	for {
		x.mu.Lock()
		offered, changed := x.offers[name], x.changed[name]
		if changed == nil {
			changed = make(chan struct{})
			x.changed[name] = changed
		}
		x.mu.Unlock()
		if held, there := offered.(*struct{ value T }); there {
			return held.value, changed, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return value, nil, ctx.Err()
		}
	}
}

// Offered returns the host's offer of type T, if there is one.
func Offered[T any](h *Host) (value T, there bool) {
	h.exchange.mu.Lock()
	defer h.exchange.mu.Unlock()
	held, there := h.exchange.offers[reflect.TypeFor[T]()].(*struct{ value T })
	if there {
		value = held.value
	}
	return value, there
}

func (x *Exchange) set(name, held any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.offers[name] = held
	x.notify(name)
}

// notify wakes services that found or await an offer of the type. x.mu is held.
func (x *Exchange) notify(name any) {
	if changed := x.changed[name]; changed != nil {
		close(changed)
		delete(x.changed, name)
	}
}
