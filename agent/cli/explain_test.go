// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/concepts"
)

// alone runs a command without an agent.
func alone(t *testing.T, arguments ...string) (out, errs string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = Run(t.Context(), append([]string{"--agent", "unix:///nowhere/agent.sock"}, arguments...), strings.NewReader(""), &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

func TestAKindAndItsFieldsAreExplainedWithoutAnAgent(t *testing.T) {
	out, errs, code := alone(t, "explain", "vrf")
	if code != 0 {
		t.Fatal(errs)
	}
	golden(t, "explain-vrf", out)
	out, errs, code = alone(t, "explain", "se.access.outerVlan")
	if code != 0 || !strings.Contains(out, "Field Session.access.outerVlan\n") || !strings.Contains(out, "0 to 4094 (if left out: untagged)") {
		t.Error(out, errs)
	}
	out, errs, code = alone(t, "explain", "route.nextHops")
	if code != 0 {
		t.Fatal(errs)
	}
	golden(t, "explain-next-hops", out)
}

func TestEveryKindCanBeExplainedWhole(t *testing.T) {
	r, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := alone(t, "explain")
	for _, k := range r.Kinds() {
		out, errs, code := alone(t, "explain", k.Plural, "--recursive")
		if code != 0 || errs != "" {
			t.Errorf("%s: %s", k.Name, errs)
		}
		for _, f := range k.Fields.List {
			if !strings.Contains(out, "\n  "+f.Name) {
				t.Errorf("%s.%s is missing", k.Name, f.Name)
			}
			if f.Fields != nil && !strings.Contains(out, "."+f.Fields.List[0].Name) {
				t.Errorf("what is below %s.%s is missing", k.Name, f.Name)
			}
		}
		if !strings.Contains(list, k.Name) {
			t.Errorf("the list of kinds has no %s", k.Name)
		}
		for _, line := range strings.Split(out, "\n") {
			if len(line) > usualWidth {
				t.Errorf("%s: a line of %d letters: %s", k.Name, len(line), line)
			}
		}
	}
}

func TestAMistypedFieldIsExplainedByASimilarOne(t *testing.T) {
	for argument, want := range map[string]string{
		"sesion":                   `there is no kind "sesion"; did you mean Session?`,
		"pool":                     `there is no kind "pool"; did you mean AddressPool?`,
		"pools":                    `there is no kind "pools"; did you mean AddressPool?`,
		"profile":                  `there is no kind "profile"; did you mean FlowProfile or QosProfile or SubscriberProfile?`,
		"xy":                       `there is no kind "xy"; there are `,
		"session.acces":            `Session has no field "acces"; did you mean access?`,
		"session.access.outerVlam": `Session.access has no field "outerVlam"; did you mean outerVlan?`,
		"session.vrf.name":         "Session.vrf has no fields",
	} {
		if _, errs, code := alone(t, "explain", argument); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: %s", argument, errs)
		}
	}
}

func TestGetOfWhatIsNoObjectNamesItsCommand(t *testing.T) {
	for word, want := range map[string]string{
		"subscribers": `there is no kind "subscribers"; use: sluice subscriber list`,
		"paths":       `there is no kind "paths"; use: sluice paths`,
		"pool":        `there is no kind "pool"; did you mean AddressPool?`,
	} {
		if _, errs, code := alone(t, "get", word); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: %s", word, errs)
		}
	}
}
