// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func TestAViewHasTheSpecsOfAKind(t *testing.T) {
	v := View[*api.Vrf]{}
	k := object.Key{Kind: "Vrf", Name: "red"}
	first, second := &api.Vrf{}, &api.Vrf{}
	for _, step := range []struct {
		name        string
		object      *object.Object
		before, now *api.Vrf
	}{
		{"a new object", &object.Object{Kind: "Vrf", Name: "red", Spec: first}, nil, first},
		{"a changed object", &object.Object{Kind: "Vrf", Name: "red", Spec: second}, first, second},
		{"a deleted object", nil, second, nil},
		{"an object that was not there", nil, nil, nil},
		{"another kind", &object.Object{Kind: "Port", Name: "red", Spec: &api.Port{}}, nil, nil},
	} {
		before, now := v.Follow(Change{Key: k, Object: step.object})
		if before != step.before || now != step.now {
			t.Errorf("%s: before %v, now %v", step.name, before, now)
		}
		if spec, is := v["red"]; is != (step.now != nil) || spec != step.now {
			t.Errorf("%s: the view has %v", step.name, v)
		}
	}
}

func TestEveryEndsWithItsContext(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	calls := 0
	Every(ctx, time.Microsecond, func(time.Time) {
		if calls++; calls == 3 {
			end()
		}
	})
	// The clock may have ticked once more before the end is seen.
	if calls < 3 {
		t.Error(calls)
	}
}
