// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/object/objecttest"
)

func TestMistakesNameTheirField(t *testing.T) {
	objecttest.Check(t, Rules, []objecttest.Case{
		{"ports of a protocol without ports", "Acl", "{rules: [{protocol: icmp, destinationPorts: 1}]}", "rules[0].destinationPorts: ports of a protocol without ports"},
		{"two families in one rule", "Acl", "{rules: [{source: 10.0.0.0/8, destination: '::/0'}]}", "rules[0].destination: not of the family of source"},
	})
}

func TestAListIsNoLargerThanTheDataPlaneTakes(t *testing.T) {
	registry, err := object.NewRegistry(Rules)
	if err != nil {
		t.Fatal(err)
	}
	rule := &api.AclRule{Source: "2001:db8:1111:2222:3333:4444:5555:6666/128", Destination: "2001:db8:1111:2222:3333:4444:5555:7777/128", Protocol: "tcp"}
	for _, c := range []struct {
		rules   int
		problem string
	}{{80000, ""}, {100000, "rules: too much for one list"}, {200001, "rules: wrong number of elements"}} {
		spec := &api.Acl{Rules: slices.Repeat([]*api.AclRule{rule}, c.rules)}
		_, err := registry.Examine([]object.Change{object.Put(&object.Object{Kind: "Acl", Name: "large", Spec: spec})})
		errs := object.AllErrors(err)
		if c.problem == "" && len(errs) > 0 || c.problem != "" && (len(errs) == 0 || !strings.HasPrefix(errs[0].Sentence(), c.problem)) {
			t.Errorf("%d rules: error %v\nnot %s", c.rules, err, c.problem)
		}
	}
}
