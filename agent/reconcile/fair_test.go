// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

func TestOneObjectOfAServiceDoesNotWaitForAllOfAnother(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { desired.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	produce := func(service string, changes ...object.Change) {
		producer, err := desired.Producer(service)
		if err != nil {
			t.Fatal(err)
		}
		made := producer.Produce(changes)
		if made.Close(); len(made.Refused) > 0 {
			t.Fatal(made.Refused)
		}
	}
	many := make([]object.Change, 3000)
	for i := range many {
		many[i] = object.Put(&object.Object{Kind: "Acl", Name: fmt.Sprint("acl-", i), Spec: &api.Acl{}})
	}
	produce("many", many...)
	produce("one", object.Put(&object.Object{Kind: "Vrf", Name: "one", Spec: &api.Vrf{}}),
		object.Put(&object.Object{Kind: "Meter", Name: "one", Spec: &api.Meter{CommittedRate: 1e6, CommittedBurst: 1e6, ExcessBurst: 1e6}}))
	plane := reconciletest.NewPlane(registry)
	desired.Attach(ctx, plane)
	for desired.Count()[intent.Applied] != len(many)+2 {
		time.Sleep(time.Millisecond)
	}
	log := plane.TakeLog()
	for _, kind := range []string{"Vrf", "Meter"} {
		if at := slices.IndexFunc(log, func(line string) bool { return strings.Contains(line, kind+"/one") }); at < 0 || at > 600 {
			t.Errorf("%s/one is number %d of %d", kind, at, len(log))
		}
	}
}
