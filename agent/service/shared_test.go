// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"slices"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

func TestEqualSpecsAreOneObjectUntilNobodyUsesIt(t *testing.T) {
	var made, gone, refused []object.Key
	var results []func(Result)
	s := &Shared{prefix: "ue-", all: map[object.Key]*sharedObject{}, refused: func(k object.Key, _ error) { refused = append(refused, k) },
		put: func(o *object.Object, result func(Result)) {
			made, results = append(made, o.Key()), append(results, result)
		},
		remove: func(k object.Key) { gone = append(gone, k) }}
	calls := 0
	then := func() { calls++ }
	first := s.Take("Meter", &api.Meter{CommittedRate: 8000}, then)
	if second := s.Take("Meter", &api.Meter{CommittedRate: 8000}, then); second != first || len(made) != 1 || calls != 0 {
		t.Fatalf("%v %v %v %d", first, second, made, calls)
	}
	results[0](Result{Done: true})
	if calls != 2 {
		t.Error("the users do not learn that the object is there")
	}
	if s.Take("Meter", &api.Meter{CommittedRate: 8000}, then); calls != 3 || len(made) != 1 {
		t.Error("an object that is there does not serve at once")
	}
	other := s.Take("Meter", &api.Meter{CommittedRate: 9000}, then)
	results[1](Result{Err: errors.New("no room")})
	if other == first || !slices.Equal(refused, []object.Key{other}) {
		t.Error(other, refused)
	}
	s.Release(first)
	s.Release(first)
	if len(gone) != 0 {
		t.Error("an object with a user is deleted")
	}
	s.Release(first)
	s.Release(first)
	if !slices.Equal(gone, []object.Key{first}) {
		t.Error(gone)
	}
	if s.Take("Meter", &api.Meter{CommittedRate: 8000}, then); len(made) != 3 {
		t.Error("an object that was deleted is not made again")
	}
	spec := &api.Meter{CommittedRate: 8000}
	if key := s.TakeAs("Meter", s.Name(spec, "ue-1"), spec, then); key == first || len(made) != 4 || key.Name == s.Name(spec, "ue-2") {
		t.Error("two owners share an object", key)
	}
}
