// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/object"
)

// SpecOf returns the spec of an object; nil if there is no object or one of another kind.
func SpecOf[T proto.Message](o *object.Object) (spec T) {
	if o != nil {
		spec, _ = o.Spec.(T)
	}
	return spec
}

// View is a service's typed view of a kind that it follows: the specs of the kind's objects, by name.
type View[T proto.Message] map[string]T

// Follow takes a change of an object of the kind. It returns the specs before and after it; nil: there is no object.
func (v View[T]) Follow(c Change) (before, now T) {
	before, now = v[c.Key.Name], SpecOf[T](c.Object)
	if proto.Message(now) == proto.Message(*new(T)) {
		delete(v, c.Key.Name)
	} else {
		v[c.Key.Name] = now
	}
	return before, now
}

// Every calls do once in each interval until the context ends.
func Every(ctx context.Context, interval time.Duration, do func(now time.Time)) {
	clock := time.NewTicker(interval)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-clock.C:
			do(now)
		}
	}
}
