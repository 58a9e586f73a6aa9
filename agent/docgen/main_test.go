// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/example"
	"sluice.dev/sluice/agent/object"
)

func TestEveryKindAndFieldIsInTheReference(t *testing.T) {
	page, err := document()
	if err != nil {
		t.Fatal(err)
	}
	r, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range r.Kinds() {
		_, section, found := strings.Cut(string(page), "\n## "+k.Name+"\n")
		if !found {
			t.Errorf("%s is missing", k.Name)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for _, f := range k.Fields.List {
			if !strings.Contains(section, "| `"+f.Name+"` |") && !strings.Contains(section, "| `"+f.Name+"[]` |") {
				t.Errorf("%s.%s is missing", k.Name, f.Name)
			}
		}
	}
	for _, row := range []string{
		"| `access.outerVlan` | 0 to 4094 | untagged |  |",
		"| `access.pduSessionId` | 0 to 15 | the subscriber's only session | TS 24.007 section 11.2.3.1b. Sessions that differ in it alone",
		"| `committedBurstTime` | time, 0 to 10s; `10ms` | 0 |  |",
		"| `nextHops[].interface` | the name of an Interface | the one whose network holds the address | *Needs* this [Interface](#interface). |",
	} {
		if !strings.Contains(string(page), row) {
			t.Errorf("there is no row %s", row)
		}
	}
}

func TestTheExamplesAreAcceptableTogether(t *testing.T) {
	r, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	written, err := example.Objects(r)
	if err != nil {
		t.Fatal(err)
	}
	var changes []object.Change
	for _, w := range written {
		changes = append(changes, object.Put(w.Object))
	}
	if _, err := object.NewSet(r).Apply(changes); err != nil {
		t.Fatal(err)
	}
}
