// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
)

// edit applies the example with words replaced.
func (s *site) edit(arguments []string, pairs ...string) string {
	s.t.Helper()
	return s.feed(edited(s.t, pairs...), append([]string{"apply", "-f", "-"}, arguments...)...)
}

func TestHistoryShowsCallersAndObjectsAndDiffShowsFields(t *testing.T) {
	s := newSite(t)
	s.written()
	s.edit([]string{"--why", "fewer bits"}, "innerVlan: 8", "innerVlan: 9")
	s.ok("delete", "session", "alice")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	history := strings.ReplaceAll(s.ok("history"), me.Username, "ME")
	golden(t, "history", history)
	golden(t, "diff-latest", s.ok("diff"))
	golden(t, "diff-since", s.ok("diff", "1"))
	golden(t, "diff-two", s.ok("diff", "1", "2", "-o", "json"))
	if got := s.ok("diff", "3"); got != "No difference.\n" {
		t.Errorf("since the latest: %s", got)
	}
	var all []struct{ Revision int }
	if err := json.Unmarshal([]byte(s.ok("history", "-o", "json", "--limit", "2", "--before", "3")), &all); err != nil || len(all) != 2 || all[0].Revision != 2 {
		t.Errorf("history before revision 3: %v, %v", all, err)
	}
	if errs := s.fails("", "diff", "99"); !strings.Contains(errs, "revision 99: the history has no such revision") {
		t.Error(errs)
	}
}

func TestARollbackRestoresDesiredState(t *testing.T) {
	s := newSite(t)
	s.written()
	// But for how long each has been so.
	everything := func() string { return gaps.ReplaceAllString(s.ok("get", "all", "-o", "wide"), " ") }
	before := everything()
	s.edit(nil, "innerVlan: 8", "innerVlan: 9")
	s.ok("delete", "session", "alice")
	golden(t, "rollback", s.ok("rollback", "1"))
	if after := everything(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	s.ok("rollback", "3")
	if got := s.ok("get", "sessions"); strings.Contains(got, "alice") {
		t.Errorf("rolling back was not rolled back:\n%s", got)
	}
	if errs := s.fails("", "rollback", "99"); !strings.Contains(errs, "no such revision") {
		t.Error(errs)
	}
	now := s.ok("get", "all", "-o", "yaml")
	if errs := s.fails("", "rollback", "0"); !strings.Contains(errs, "0 is the empty configuration; accepted: a revision's number") {
		t.Error(errs)
	}
	if after := s.ok("get", "all", "-o", "yaml"); after != now {
		t.Errorf("going back to 0 made of\n%s\n%s", now, after)
	}
}

func TestAnExportHasExplicitZeros(t *testing.T) {
	s := newSite(t)
	file := filepath.Join(t.TempDir(), "meter.yaml")
	text := "apiVersion: sluice.dev/v1\nkind: Meter\nmetadata: {name: m}\nspec: {committedRate: 1M, committedBurst: 10KB, excessBurst: 0}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s.ok("apply", "-f", file)
	for _, format := range []string{"yaml", "json"} {
		export := s.ok("get", "all", "-o", format)
		if !strings.Contains(strings.ReplaceAll(export, `"`, ""), "excessBurst: 0") {
			t.Errorf("%s", export)
		}
		if err := os.WriteFile(file, []byte(export), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := s.ok("apply", "-f", file); out != "1 unchanged.\n" {
			t.Error(out)
		}
	}
}

func TestKindsAreNamedAsPeopleWriteThem(t *testing.T) {
	s := newSite(t)
	for _, word := range []string{"QosProfile", "qosprofile", "qos-profiles", "qosprofiles"} {
		s.ok("get", word)
	}
}

func TestAnUnconfirmedRevisionIsUndoneAlsoAfterARestartOfTheAgent(t *testing.T) {
	s := newSite(t)
	s.written()
	golden(t, "apply-confirm", s.edit([]string{"--confirm", "1h"}, "innerVlan: 8", "innerVlan: 9"))
	refused := func(revision, why string) {
		t.Helper()
		if errs := s.fails("", "confirm", revision); errs != "sluice: "+why+"\n" {
			t.Error(errs)
		}
	}
	refused("99", "there is no revision 99; the latest is 2; revision 2 waits to be confirmed")
	refused("1", "revision 1 stands, and did not have to be confirmed; revision 2 waits to be confirmed")
	if errs := s.fails("", "rollback", "1", "--confirm", "0s"); !strings.Contains(errs, "--confirm 0s: accepted: at least 1s, such as 5m") {
		t.Error(errs)
	}
	if got := s.ok("confirm"); got != "Revision 2 is confirmed.\n" {
		t.Error(got)
	}
	if errs := s.fails("", "confirm"); !strings.Contains(errs, "no revision waits to be confirmed") {
		t.Error(errs)
	}
	refused("2", "revision 2 was confirmed already")
	refused("18446744073709551615", "there is no revision 18446744073709551615; the latest is 2")
	if got := s.edit([]string{"--confirm", "1s"}, "innerVlan: 8", "innerVlan: 10"); !strings.HasPrefix(got, "Session/bob updated\n") {
		t.Error(got)
	}
	s.stop()
	s.start()
	eventually(t, "the change is undone", func() bool {
		return strings.Contains(s.ok("get", "session", "bob", "-o", "yaml"), "innerVlan: 9")
	})
	refused("3", "revision 3 was undone already, by revision 4")
}

func TestHistoryShowsWaitingConfirmedAndUndoneRevisions(t *testing.T) {
	s := newSite(t)
	s.written()
	s.edit([]string{"--confirm", "1h", "--why", "a try"}, "innerVlan: 8", "innerVlan: 9")
	s.ok("confirm")
	s.edit([]string{"--confirm", "1s"}, "innerVlan: 8", "innerVlan: 10")
	eventually(t, "the change is undone", func() bool {
		return strings.Contains(s.ok("get", "session", "bob", "-o", "yaml"), "innerVlan: 9")
	})
	s.edit([]string{"--confirm", "1h"}, "innerVlan: 8", "innerVlan: 11")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "history-standing", strings.ReplaceAll(s.ok("history"), me.Username, "ME"))
	golden(t, "history-standing-json", strings.ReplaceAll(s.ok("history", "-o", "json"), me.Username, "ME"))
	if got := s.ok("history", "--before", "4"); !strings.Contains(got, "undone by revision 4") {
		t.Error(got)
	}
}

func TestAPartialUndoIsReported(t *testing.T) {
	for _, one := range []struct {
		revision       *api.Revision
		words, inAWord string
	}{
		{&api.Revision{}, "", ""},
		{&api.Revision{ConfirmBy: 1, Waits: true, Overdue: true}, "could not be undone; the agent tries again", "overdue"},
		{&api.Revision{Waits: true, Overdue: true, UndoneBy: 4, UndoneInPart: true}, "undone in part by revision 4, the rest is tried again", "overdue"},
		{&api.Revision{UndoneBy: 4, UndoneInPart: true}, "undone in part by revision 4, the rest was confirmed", "confirmed"},
		{&api.Revision{UndoneBy: 4}, "undone by revision 4", "undone"},
	} {
		if words, word := standingOf(one.revision), standing(one.revision); words != one.words || word != one.inAWord {
			t.Errorf("%v: %q, %q", one.revision, words, word)
		}
	}
}

func TestAPlanThatWasWrittenIsAppliedAsItIsOrNotAtAll(t *testing.T) {
	s := newSite(t)
	s.written()
	file := s.dir + "/tonight.plan"
	s.feed(edited(t, "innerVlan: 8", "innerVlan: 9"), "plan", "-f", "-", "--out", file)
	if is, err := os.Stat(file); err != nil || is.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", is, err)
	}
	if got := s.ok("apply", "--plan", file); !strings.Contains(got, "Session/bob updated") {
		t.Error(got)
	}
	if errs := s.fails("", "apply", "--plan", file); !strings.Contains(errs, "the plan is outdated") || !strings.Contains(errs, "Session/bob") {
		t.Error(errs)
	}
	if errs := s.fails("", "apply", "--plan", "testdata/bng.yaml"); !strings.Contains(errs, "this is not a plan") {
		t.Error(errs)
	}
}

func TestOwnersDoNotOverwriteOneAnotherUnlessTheyTakeOver(t *testing.T) {
	s := newSite(t)
	s.written()
	changed := edited(t, "innerVlan: 8", "innerVlan: 9")
	errs := s.fails(changed, "apply", "-f", "-", "--owner", "night-shift")
	golden(t, "conflict-owners", errs)
	s.feed(changed, "apply", "-f", "-", "--owner", "night-shift", "--force")
	got := s.ok("describe", "session", "bob")
	if !strings.Contains(got, "owner     night-shift, api") || !strings.Contains(got, "COUNTS") {
		t.Error(got)
	}
	s.feed(changed, "delete", "-f", "-", "--owner", "night-shift")
	if got := s.ok("get", "session", "bob", "-o", "yaml"); !strings.Contains(got, "innerVlan: 8") || !strings.Contains(got, "owner: api") {
		t.Errorf("the other's value did not come back:\n%s", got)
	}
}

func TestApplyReportsASecondOwner(t *testing.T) {
	s := newSite(t)
	s.ok("apply", "-f", bng, "--owner", "lab")
	export := s.ok("get", "all", "-o", "yaml")
	const would, is = "8 objects would have fields of api, besides lab.\n", "8 objects now have fields of api, besides lab.\n"
	if got := s.feed(export, "plan", "-f", "-"); got != "Nothing to change.\n"+would {
		t.Error(got)
	}
	if out, errs, code := s.try(export, "plan", "-f", "-", "-o", "json"); code != 0 || out != "[]\n" || errs != would {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if got := s.feed(export, "apply", "-f", "-"); got != "8 unchanged.\n"+is {
		t.Error(got)
	}
	// It owns them already.
	if got := s.feed(export, "plan", "-f", "-"); got != "Nothing to change.\n" {
		t.Error(got)
	}
	if got := s.feed(export, "apply", "-f", "-"); got != "8 unchanged.\n" {
		t.Error(got)
	}
	if got := s.feed(export, "delete", "-f", "-"); got != "8 unchanged.\n8 objects still have fields of lab.\n" {
		t.Error(got)
	}
	if got := s.ok("get", "all", "--owner", "api", "-o", "json"); got != "[]\n" {
		t.Errorf("not given up: %s", got)
	}
	s.feed(export, "apply", "-f", "-")
	acl := s.ok("get", "acl", "web", "-o", "json")
	if got := s.feed(acl, "delete", "-f", "-"); got != "1 unchanged.\n1 object still has fields of lab.\n" {
		t.Error(got)
	}
	var output struct {
		Joined struct {
			Owner   string
			Objects int
			Besides []string
		}
	}
	s.feed(acl, "apply", "-f", "-")
	got := s.feed(acl, "apply", "-f", "-", "--owner", "third", "-o", "json")
	if err := json.Unmarshal([]byte(got), &output); err != nil || output.Joined.Owner != "third" || output.Joined.Objects != 1 || !slices.Equal(output.Joined.Besides, []string{"api", "lab"}) {
		t.Errorf("%v, %s", err, got)
	}
	// Show the changed fields, too.
	mss := "apiVersion: sluice.dev/v1\nkind: Session\nmetadata: {name: bob}\nspec:\n  policy: {mss: 1200}\n"
	if got := s.feed(mss, "apply", "-f", "-", "--owner", "third"); got != "Session/bob updated\n1 updated.\n1 object now has fields of third, besides api and lab.\n" {
		t.Error(got)
	}
}

func TestDeletingAnObjectOfAnotherOwnerNamesThatOwner(t *testing.T) {
	s := newSite(t)
	s.written()
	errs := s.fails("", "delete", "-f", bng, "--owner", "lab")
	golden(t, "delete-of-another", errs)
	if got := s.ok("get", "all", "--owner", "api", "-o", "json"); strings.Count(got, `"apiVersion"`) != 8 {
		t.Errorf("something was given up: %s", got)
	}
	s.ok("apply", "-f", bng, "--owner", "night")
	s.ok("apply", "-f", bng, "--owner", "lab")
	if got := s.ok("delete", "-f", bng, "--owner", "lab"); got != "8 unchanged.\n8 objects still have fields of api and night.\n" {
		t.Error(got)
	}
	s.ok("delete", "-f", bng, "--owner", "night")
	if got := s.ok("delete", "-f", bng); !strings.HasSuffix(got, "\n8 deleted.\n") {
		t.Error(got)
	}
	if got := s.ok("delete", "-f", bng); got != "8 missing.\n" {
		t.Error(got)
	}
}

func TestOverriddenFieldsAreWarnedOf(t *testing.T) {
	s := newSite(t)
	s.written()
	bob := func(mss string) string {
		return "apiVersion: sluice.dev/v1\nkind: Session\nmetadata: {name: bob}\nspec:\n  policy: {mss: " + mss + "}\n"
	}
	s.feed(bob("1200"), "apply", "-f", "-", "--owner", "night")
	out, errs, code := s.try(bob("1300"), "apply", "-f", "-", "--owner", "lab")
	if want := "standard input:5: Session/bob: policy.mss: the value of night (1200 B) counts, with priority 10: found 1300"; code != 0 || !strings.Contains(errs, want) {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if got := s.ok("get", "sessions", "--owner", "lab"); !strings.Contains(got, "bob") || strings.Contains(got, "alice") {
		t.Error(got)
	}
	if errs := s.fails("", "get", "session", "alice", "--owner", "lab"); !strings.Contains(errs, "there is no Session alice with fields of lab") {
		t.Error(errs)
	}
	if errs := s.fails("", "get", "sessions", "--owners"); !strings.Contains(errs, "--owners is for -o yaml or -o json") {
		t.Error(errs)
	}
	if got := s.ok("get", "session", "bob", "-o", "yaml", "--owners"); !strings.Contains(got, "overridden: true") {
		t.Error(got)
	}
}

func TestAWatchGoesOnWhereItWasWhenTheAgentIsStartedAgain(t *testing.T) {
	s := newSite(t)
	s.written()
	end, out := s.background("get", "sessions", "-w", "-o", "json")
	seen := make(chan string, 100)
	go func() {
		defer close(seen)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var output struct {
				Change string
				Object struct {
					Metadata struct{ Name string }
					Status   struct{ State string }
				}
			}
			if err := json.Unmarshal(lines.Bytes(), &output); err != nil {
				t.Error(err)
			}
			seen <- output.Change + " " + output.Object.Metadata.Name + " " + output.Object.Status.State
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	for _, want := range []string{"exists alice applied", "exists bob applied"} {
		if got := <-seen; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	s.stop()
	s.start()
	s.ok("delete", "session", "alice")
	s.edit(nil, "name: bob", "name: carol", "innerVlan: 7", "innerVlan: 17", "name: alice", "name: dave",
		"100.64.0.7/32, \"2001:db8:7::/64\"", "100.64.0.17/32", "innerVlan: 8,", "innerVlan: 18,", "100.64.0.8/32", "100.64.0.18/32")
	var all []string
	for got := range seen {
		if all = append(all, got); slices.Contains(all, "changed dave applied") && slices.Contains(all, "ended alice gone") {
			break
		}
	}
	ended := 0
	for _, one := range all {
		if strings.HasPrefix(one, "exists") {
			t.Errorf("told again as if it were new: %s", one)
		}
		if one == "ended alice gone" {
			ended++
		}
	}
	if ended != 1 {
		t.Errorf("told: %q", all)
	}
	if errs, code := end(); code != 0 || !strings.Contains(errs, "the watch continues when it does") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

func TestTheGraphShowsReferencesAndFailures(t *testing.T) {
	s := newSite(t)
	s.written()
	s.partly(`{apiVersion: sluice.dev/v1, kind: Session, metadata: {name: eve}, spec: {access: {port: nowhere, outerVlan: 9}}}`, "apply", "-f", "-")
	golden(t, "graph", s.ok("graph"))
	golden(t, "graph-one", s.ok("graph", "acl/web"))
	golden(t, "graph-dot", s.ok("graph", "-o", "dot"))
	picture := s.ok("graph", "-o", "svg")
	read := xml.NewDecoder(strings.NewReader(picture))
	boxes := 0
	for {
		token, err := read.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "title" {
			boxes++
		}
	}
	if boxes != 10 || !strings.Contains(picture, "Session eve: pending: waits for Port/nowhere") || !strings.Contains(picture, "Port nowhere: not there") {
		t.Errorf("%d objects in the picture:\n%s", boxes, picture)
	}
	if errs := s.fails("", "graph", "session/mallory"); !strings.Contains(errs, "there is no Session mallory") {
		t.Error(errs)
	}
}

func TestManyThatAreAlikeAreOneInTheGraph(t *testing.T) {
	s := newSite(t)
	s.written()
	var b strings.Builder
	for _, name := range strings.Fields("a b c d e f g h") {
		b.WriteString(`{apiVersion: sluice.dev/v1, kind: Acl, metadata: {name: ` + name + "}}\n---\n")
	}
	s.feed(b.String(), "apply", "-f", "-")
	if got := s.ok("graph", "acls"); !strings.Contains(got, "Acl a and 7 more\n") || strings.Contains(got, "Acl b\n") {
		t.Error(got)
	}
	if got := s.ok("graph", "acls", "--every"); !strings.Contains(got, "Acl h\n") {
		t.Error(got)
	}
}

func TestAMissingNameIsReportedWithoutASuggestion(t *testing.T) {
	s := newSite(t)
	s.written()
	if errs := s.fails("", "get", "session", "nobody"); errs != "sluice: there is no Session nobody\n" {
		t.Errorf("%q", errs)
	}
}

func TestAMistypedNameGetsASuggestion(t *testing.T) {
	s := newSite(t)
	s.written()
	const meant = "there is no Session alcie; did you mean alice?\n"
	for _, command := range []string{"get", "describe", "delete"} {
		if errs := s.fails("", command, "session", "alcie"); errs != "sluice: "+meant {
			t.Errorf("%s: %q", command, errs)
		}
	}
	errs := s.fails("", "delete", "session", "alcie", "nobody", "bib")
	if want := "sluice: there is no Session alcie; did you mean alice?\n        there is no Session nobody\n        there is no Session bib; did you mean bob?\n"; errs != want {
		t.Errorf("%q", errs)
	}
	if errs := s.fails("", "get", "vrf", "defautl"); errs != "sluice: there is no Vrf defautl; did you mean default?\n" {
		t.Errorf("%q", errs)
	}
	if errs := s.fails("", "get", "session", "alcie", "-l", "a=b"); errs != "sluice: there is no Session alcie with such labels\n" {
		t.Errorf("%q", errs)
	}
	if got := s.ok("get", "sessions"); !strings.Contains(got, "alice") || !strings.Contains(got, "bob") {
		t.Error(got)
	}
}

func TestHistoryNamesTheChangedObjects(t *testing.T) {
	s := newSite(t)
	s.written()
	s.feed(edited(t, "mtu: 1600", "mtu: 1700", "name: bob", "name: carol", "innerVlan: 8", "innerVlan: 9", "100.64.0.8", "100.64.0.9"), "apply", "-f", "-")
	s.ok("delete", "session", "bob")
	out := s.ok("history")
	for _, want := range []string{
		"   1 session deleted   -\n",
		"   1 session created; 1 port updated   -\n",
		"   1 acl, 1 interface, 1 meter, 2 ports, 1 route, 2 sessions created   -\n",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("%s: %s", want, out)
		}
	}
	if out := s.ok("history", "2"); !strings.Contains(out, "Revision 2\n  time     TIME\n  owner    api\n") || !strings.Contains(out, "objects  2\n\n  CHANGE    OBJECT\n") ||
		!strings.Contains(out, "  created   Session/carol\n") || !strings.Contains(out, "  updated   Port/core\n") {
		t.Errorf("%s", out)
	}
	var one struct {
		Revision, Objects int
		Changed           []struct{ Step, Kind, Name string }
	}
	if err := json.Unmarshal([]byte(s.ok("history", "3", "-o", "json")), &one); err != nil || one.Revision != 3 || len(one.Changed) != 1 || one.Changed[0].Step != "delete" ||
		one.Changed[0].Name != "bob" {
		t.Errorf("%+v, %v", one, err)
	}
	// Of many, the history names the first, and a revision by itself all.
	var b strings.Builder
	for i := range 50 {
		fmt.Fprintf(&b, "---\napiVersion: sluice.dev/v1\nkind: Vrf\nmetadata: {name: v%02d}\n", i)
	}
	s.feed(b.String(), "apply", "-f", "-")
	if out := s.ok("history", "--limit", "1"); !strings.Contains(out, "   50   20 vrfs created; and 30 more   -\n") {
		t.Errorf("%s", out)
	}
	if out := s.ok("history", "4"); strings.Count(out, "created") != 50 || !strings.Contains(out, "Vrf/v49") || strings.Contains(out, "more") {
		t.Errorf("%s", out)
	}
	for arguments, want := range map[string]string{"history 9": "there is no revision 9; ", "history 0": "there is no revision 0; ", "history x": `"x" is not the number of a revision`,
		"history 2 --limit 3": "use either a revision or --limit", "history 18446744073709551615": "there is no revision 18446744073709551615"} {
		if errs := s.fails("", strings.Fields(arguments)...); !strings.Contains(errs, want) {
			t.Errorf("%s: %s", arguments, errs)
		}
	}
}
