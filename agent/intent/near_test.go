// SPDX-License-Identifier: Apache-2.0

package intent_test

import (
	"fmt"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

func TestAMistypedNameIsThatOfTheOneObjectThatIsNear(t *testing.T) {
	r := registry(t)
	d, err := intent.New(intent.Config{Registry: r})
	must(t, err)
	plane := reconciletest.NewPlane(r)
	d.Attach(t.Context(), plane)
	near := func(kind, name, want string) {
		t.Helper()
		if got := d.Near(object.Key{Kind: kind, Name: name}); got != want {
			t.Errorf("%s %s is near %q, not %q", kind, name, got, want)
		}
	}
	var many []*object.Object
	for i := range 3000 {
		many = append(many, made("Meter", fmt.Sprintf("subscriber-%d", i), &api.Meter{CommittedRate: 1_000_000, CommittedBurst: 10_000}))
	}
	apply(t, d, "api", puts(append(many, vrf("customers", ""), vrf("green1", ""), vrf("green2", ""), vrf("Bonn", ""))...), intent.Options{Mode: intent.NoWait})

	near("Vrf", "custmoers", "customers") // changed places
	near("Vrf", "customer", "customers")
	near("Vrf", "customerrs", "customers")
	near("Vrf", "custonerz", "customers") // two letters
	near("Vrf", "CUSTOMERS", "customers")
	near("Vrf", "bonn", "Bonn")
	near("Vrf", "defalt", "default")
	near("Vrf", "green", "") // which of the two?
	near("Vrf", "green3", "")
	near("Vrf", "nothing-like-these", "")
	near("Vrf", "", "")
	near("Vrf", "x", "")
	near("Acl", "customers", "")
	near("Nothing", "customers", "")

	// Among very many, one letter is looked for.
	near("Meter", "subscribr-2777", "subscriber-2777")
	near("Meter", "subscriber_2777", "subscriber-2777")
	near("Meter", "subscribe-2777x", "")
	near("Meter", "subscriber-3000", "") // of many
	// A deleted object is not suggested.
	apply(t, d, "api", removes(vrf("customers", "")), intent.Options{Mode: intent.NoWait})
	near("Vrf", "customer", "")
}
