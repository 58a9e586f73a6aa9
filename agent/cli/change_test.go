// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

const bng = "testdata/bng.yaml"

var bngObjects = []string{"Acl web", "Interface core", "Meter gold", "Port access", "Port core", "Route default", "Session alice", "Session bob"}

// written applies the example and drops the output.
func (s *site) written() {
	s.t.Helper()
	s.ok("apply", "-f", bng)
	s.plane.Log()
}

// edited returns the example with some text replaced.
func edited(t *testing.T, pairs ...string) string {
	t.Helper()
	text, err := os.ReadFile(bng)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(pairs...).Replace(string(text))
}

func TestApplyMakesTheDataPlaneEqualTheFiles(t *testing.T) {
	s := newSite(t)
	golden(t, "plan-create", s.ok("plan", "-f", bng))
	if got := s.plane.Objects(); len(got) != 0 {
		t.Errorf("after plan the data plane has %v", got)
	}
	golden(t, "apply-create", s.ok("apply", "-f", bng))
	if got := s.plane.Objects(); !slices.Equal(got, bngObjects) {
		t.Errorf("the data plane has %v", got)
	}
	if got := s.ok("plan", "-f", bng); got != "Nothing to change.\n" {
		t.Errorf("planned again: %s", got)
	}
	s.plane.Log()
	if got := s.ok("apply", "-f", bng); got != "8 unchanged.\n" {
		t.Errorf("applied again: %s", got)
	}
	if log := s.plane.Log(); len(log) != 0 {
		t.Errorf("applied again, the data plane was told: %v", log)
	}
}

func TestAChangeThatCanBeMadeInPlaceTouchesOnlyItsObject(t *testing.T) {
	s := newSite(t)
	s.written()
	changed := edited(t, "mtu: 1600", "mtu: 1700", "tier: gold", "tier: silver")
	golden(t, "plan-update", s.feed(changed, "plan", "-f", "-"))
	golden(t, "apply-update", s.feed(changed, "apply", "-f", "-"))
	if log := s.plane.Log(); !slices.Equal(log, []string{"put Port core"}) {
		t.Errorf("the data plane was told: %v", log)
	}
	if out := s.ok("get", "sessions", "-l", "tier=silver"); !strings.Contains(out, "alice") || strings.Contains(out, "bob") {
		t.Errorf("with the new label: %s", out)
	}
}

func TestAChangeThatCannotBeMadeInPlaceReplacesTheObjectAndItsUsers(t *testing.T) {
	s := newSite(t)
	s.written()
	changed := edited(t, "net_null1", "net_null9")
	golden(t, "plan-replace", s.feed(changed, "plan", "-f", "-"))
	golden(t, "apply-replace", s.feed(changed, "apply", "-f", "-"))
	want := []string{"delete Route default", "delete Interface core", "delete Port core", "put Port core", "put Interface core", "put Route default"}
	if log := s.plane.Log(); !slices.Equal(log, want) {
		t.Errorf("the data plane was told: %v", log)
	}
}

func TestUsersOfADeletedObjectWaitUntilItIsBack(t *testing.T) {
	s := newSite(t)
	s.written()
	golden(t, "delete-needed-refused", s.fails("", "delete", "port", "core"))
	golden(t, "delete-needed", s.ok("delete", "port", "core", "--in-use"))
	if got := s.plane.Objects(); !slices.Equal(got, []string{"Acl web", "Meter gold", "Port access", "Session alice", "Session bob"}) {
		t.Errorf("the data plane has %v", got)
	}
	golden(t, "get-waiting", s.ok("get", "if,rt"))
	s.ok("apply", "-f", bng, "--wait", "20s")
	if got := s.plane.Objects(); !slices.Equal(got, bngObjects) {
		t.Errorf("the data plane has %v", got)
	}
}

func TestObjectsAreDeletedByNameAndByFile(t *testing.T) {
	s := newSite(t)
	s.written()
	golden(t, "delete-names", s.ok("delete", "route/default", "if/core", "po/core"))
	golden(t, "delete-files", s.ok("delete", "-f", bng))
	if got := s.plane.Objects(); len(got) != 0 {
		t.Errorf("the data plane still has %v", got)
	}
}

func TestAMeterThatLetsNoLongPacketPassIsWarnedOf(t *testing.T) {
	s := newSite(t)
	meter := func(burst string) string {
		return "apiVersion: sluice.dev/v1\nkind: Meter\nmetadata: {name: small}\nspec:\n  committedRate: 8K\n  " + burst + "\n"
	}
	for burst, found := range map[string]string{"committedBurst: 1499": "found 1499; accepted: the longest packet or more, such as 1500B",
		"committedBurstTime: 1499ms": `found "1499ms"; accepted: the time of the longest packet or more, such as 1500ms for 1500 bytes`} {
		field, _, _ := strings.Cut(burst, ":")
		want := "Warning:\n  standard input:6: Meter/small: " + field + ": no packet of more than 1499 bytes ever passes, and most links take 1500: " + found + "\n"
		for _, command := range []string{"plan", "apply"} {
			if _, errs, code := s.try(meter(burst), command, "-f", "-"); code != 0 || errs != want {
				t.Errorf("%s: exit code %d\n%s\nnot %s", command, code, errs, want)
			}
		}
	}
	if _, errs, code := s.try(meter("committedBurst: 1500"), "apply", "-f", "-"); code != 0 || errs != "" {
		t.Errorf("exit code %d\n%s", code, errs)
	}
	if errs := s.fails(meter("committedBurst: 40"), "apply", "-f", "-"); !strings.Contains(errs, "standard input:6: Meter/small: committedBurst: no packet of 64 bytes ever passes") {
		t.Error(errs)
	}
}

func TestADescriptionAndAPlanShowNumbersInOneWayThatIsRead(t *testing.T) {
	s := newSite(t)
	s.written()
	const shown = "100 Mbit/s"
	if got := s.ok("describe", "meter", "gold"); !strings.Contains(got, "committedRate: "+shown+"\n") {
		t.Error(got)
	}
	changed := edited(t, "committedRate: 100M", "committedRate: "+shown, "peakRate: 150M", "peakRate: 200M", "excessBurst: 128KB", "excessBurst: 2000B")
	const want = "  ~ Meter gold\n      peakRate: 150 Mbit/s -> 200 Mbit/s\n      excessBurst: 128 KB -> 2000 B\n"
	if got := s.feed(changed, "plan", "-f", "-"); !strings.HasPrefix(got, want) {
		t.Error(got)
	}
	s.feed(changed, "apply", "-f", "-")
	if got := s.ok("diff"); got != want {
		t.Error(got)
	}
}

func TestErrorsNameFileLineObjectFieldAndMendBeforeAnyChange(t *testing.T) {
	s := newSite(t)
	for name, files := range map[string]map[string]string{
		"unreadable": {"a.yaml": edited(t, "outerVlan: 100", "outerVlan: 5000", "mtu: 1600", "mtuu: 1600"),
			"b.yaml": "apiVersion: sluice.dev/v1\nkind: Prot\nmetadata: {name: x}\n"},
		"twice":   {"a.yaml": edited(t), "b.yml": "\n---\napiVersion: sluice.dev/v1\nkind: Vrf\nmetadata: {name: red}\n---\n" + strings.SplitN(edited(t), "---", 2)[0]},
		"overlap": {"a.yaml": edited(t, "innerVlan: 8, pppoeSessionId: 12", "innerVlan: 7")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(s.dir, name)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden(t, "mistakes-"+name, s.fails("", "apply", "-f", dir))
			s.fails("", "plan", "-f", dir)
		})
	}
	if log := s.plane.Log(); len(log) != 0 {
		t.Errorf("the data plane was told: %v", log)
	}
}

func TestAConflictWithAnExistingObjectIsReportedWithFileAndLine(t *testing.T) {
	s := newSite(t)
	s.written()
	eve := "apiVersion: sluice.dev/v1\nkind: Session\nmetadata: {name: eve}\nspec:\n  access:\n    port: access\n    outerVlan: 100\n    innerVlan: 7\n"
	golden(t, "mistakes-conflict", s.fails(eve, "apply", "-f", "-"))
}

func TestAnObjectThatTheDataPlaneRefusesFailsAloneUnlessAllOrNothingIsSet(t *testing.T) {
	s := newSite(t)
	full := func(op, kind, name string) *api.Result {
		if op == "put" && kind == "Session" && name == "bob" {
			return &api.Result{Code: int32(syscall.ENOSPC), Message: "Session bob: the session table is full"}
		}
		return nil
	}
	s.plane.Refuse(full)
	golden(t, "apply-undone", s.fails("", "apply", "-f", bng, "--all-or-nothing"))
	eventually(t, "everything was taken back", func() bool { return len(s.plane.Objects()) == 0 })
	golden(t, "apply-failed", s.fails("", "apply", "-f", bng))
	if got := s.plane.Objects(); !slices.Equal(got, slices.DeleteFunc(slices.Clone(bngObjects), func(o string) bool { return o == "Session bob" })) {
		t.Errorf("the data plane has %v", got)
	}
	// While it is tried again it is pending.
	eventually(t, "bob is shown as failed", func() bool {
		out := s.ok("get", "session", "bob")
		return strings.Contains(out, "failed") && strings.Contains(out, "the session table is full")
	})
	s.plane.Refuse(nil)
	s.ok("apply", "-f", bng, "--wait", "20s")
	if got := s.plane.Objects(); !slices.Equal(got, bngObjects) {
		t.Errorf("the data plane has %v", got)
	}
}

func TestAReferencedObjectMayComeLater(t *testing.T) {
	s := newSite(t)
	text := edited(t)
	port := "---\napiVersion: sluice.dev/v1\nkind: Port\nmetadata: {name: access}\nspec: {device: \"net_null0\"}\n"
	without := strings.Replace(text, port, "", 1)
	if without == text {
		t.Fatal("the example has no such port")
	}
	out, errs, code := s.try(without, "apply", "-f", "-")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	golden(t, "apply-waits", out+errs)
	s.feed(port, "apply", "-f", "-")
	eventually(t, "the sessions were made", func() bool { return slices.Equal(s.plane.Objects(), bngObjects) })
}

func TestAMistypedReferenceIsReportedWithItsMendAndChangesNothing(t *testing.T) {
	s := newSite(t)
	s.written()
	out, errs, code := s.try(edited(t, "access: {port: access", "access: {port: acess"), "apply", "-f", "-")
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	golden(t, "apply-mistyped", out+errs)
	if log := s.plane.Log(); len(log) != 0 || !slices.Equal(s.plane.Objects(), bngObjects) {
		t.Errorf("the data plane was told %v", log)
	}
	s.ok("apply", "-f", bng)
	if log := s.plane.Log(); len(log) != 0 {
		t.Errorf("the data plane was told %v", log)
	}
}

func TestATunnelThatEndsAtNoAddressOfOursIsWarnedOf(t *testing.T) {
	s := newSite(t)
	s.written()
	tunnel := func(local string) string {
		return "apiVersion: sluice.dev/v1\nkind: Session\nmetadata: {name: ue}\nspec:\n  access: {port: access, outerVlan: 9}\n" +
			"  gtpu:\n    localAddress: " + local + "\n    localTeid: 1\n    remoteAddress: 192.0.2.9\n    remoteTeid: 1\n"
	}
	const lo = "---\napiVersion: sluice.dev/v1\nkind: Interface\nmetadata: {name: lo}\nspec: {addresses: [203.0.113.7/32]}\n"
	for _, c := range []struct {
		input string
		warn  bool
	}{{tunnel("203.0.113.7"), true}, {tunnel("192.0.2.1"), false}, {tunnel("203.0.113.7") + lo, false}} {
		for _, command := range []string{"plan", "apply"} {
			_, errs, code := s.try(c.input, command, "-f", "-")
			warned := strings.Contains(errs, `standard input:7: Session/ue: gtpu.localAddress: no interface has it in VRF default, so packets do not arrive until one does: found "203.0.113.7"`)
			if code != 0 || warned != c.warn || !c.warn && errs != "" {
				t.Errorf("%s: exit code %d, %s", command, code, errs)
			}
		}
	}
}

func TestAPlanCountsWaitingObjectsAsApplyDoes(t *testing.T) {
	const (
		header = "apiVersion: sluice.dev/v1\n"
		carol  = header + "kind: Session\nmetadata: {name: carol}\nspec:\n  access: {port: access, outerVlan: 99}\n  policy: {aclUp: nowhere}\n"
		vrf    = "kind: Interface\nmetadata: {name: core}\nspec: {port: core, vrf: internet, addresses: [192.0.2.1/24]}\n"
	)
	for _, c := range []struct {
		sentence, input string
		plan, json      []string
		apply           string
	}{
		{"a new object that names something missing will wait", carol,
			[]string{"  + Session carol   (will wait for Acl/nowhere (policy.aclUp), which is not there)\n",
				"\nPlan: 1 to create, 0 to update, 0 to replace, 0 to delete; 1 of these will wait.\n"},
			[]string{`"step": "create"`, `"waitsFor": "Acl/nowhere (policy.aclUp), which is not there"`}, "\n1 created.\n"},
		{"an object that cannot be changed in place stays as it was until what it names is there", header + vrf,
			[]string{"  ~ Interface core   (will wait for Vrf/internet (vrf), which is not there; the data plane keeps its old form until then)\n",
				"0 to delete; 1 of these will wait.\n"},
			[]string{`"step": "update"`, `"waitsFor": "Vrf/internet (vrf), which is not there"`}, "\n1 updated.\n"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			s := newSite(t)
			s.written()
			for _, o := range []struct {
				name, got string
				want      []string
			}{
				{"plan", s.feed(c.input, "plan", "-f", "-"), c.plan},
				{"plan -o json", s.feed(c.input, "plan", "-f", "-", "-o", "json"), c.json},
				{"apply", s.partly(c.input, "apply", "-f", "-"), []string{c.apply}},
				{"plan of what is applied", s.feed(c.input, "plan", "-f", "-"), []string{"Nothing to change.\n"}},
			} {
				for _, want := range o.want {
					if !strings.Contains(o.got, want) {
						t.Errorf("%s has no %q:\n%s", o.name, want, o.got)
					}
				}
			}
		})
	}
}

func TestDeletingAMissingObjectFailsAndDeletesTheRest(t *testing.T) {
	s := newSite(t)
	s.written()
	out, errs, code := s.try("", "delete", "session", "nix", "bob")
	if code != 1 || !strings.Contains(errs, "there is no Session nix") || out != "Session/bob deleted\n1 deleted.\n" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	out, errs, code = s.try("", "delete", "session", "nix")
	if code != 1 || !strings.Contains(errs, "there is no Session nix") || out != "" {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

func TestAnAgentThatIsStartedAgainRepairsOnlyTheDifference(t *testing.T) {
	s := newSite(t)
	s.written()
	s.stop()
	spec, err := proto.Marshal(&api.Vrf{Description: "not requested"})
	if err != nil {
		t.Fatal(err)
	}
	s.plane.Meddle("Vrf", "stray", spec)
	s.plane.Meddle("Session", "bob", nil)
	s.start()
	eventually(t, "bob is back and the stray is gone", func() bool { return slices.Equal(s.plane.Objects(), bngObjects) })
	log := s.plane.Log()
	slices.Sort(log)
	if !slices.Equal(log, []string{"delete Vrf stray", "put Session bob"}) {
		t.Errorf("the data plane was told: %v", log)
	}
}

func TestADataPlaneThatIsStartedAgainGetsEverything(t *testing.T) {
	s := newSite(t)
	s.written()
	s.plane.Kill()
	eventually(t, "the agent notices", func() bool { return s.away() })
	if out := s.fails("", "drops"); !strings.Contains(out, "the agent has no data plane") {
		t.Errorf("without a data plane: %s", out)
	}
	out := s.later("apiVersion: sluice.dev/v1\nkind: Vrf\nmetadata: {name: red}\n", "apply", "-f", "-")
	if !strings.Contains(out, "1 created") || !strings.Contains(out, "1 object is not applied yet") {
		t.Errorf("without a data plane: %s", out)
	}
	if out := s.feed("apiVersion: sluice.dev/v1\nkind: Vrf\nmetadata: {name: red}\n", "apply", "-f", "-", "--no-wait"); !strings.Contains(out, "1 unchanged") {
		t.Errorf("without a data plane, and without waiting for it: %s", out)
	}
	if out := s.fails("kind: Vrf\napiVersion: sluice.dev/v1\nmetadata: {name: blue}\n", "apply", "--all-or-nothing", "-f", "-"); !strings.Contains(out, "all or nothing was asked for") {
		t.Errorf("all or nothing without a data plane: %s", out)
	}
	s.plane.Start(t)
	want := append(slices.Clone(bngObjects), "Vrf red")
	eventually(t, "everything is back", func() bool { return slices.Equal(s.plane.Objects(), want) })
}

func TestNothingIsCalledAppliedWhileTheDataPlaneIsAway(t *testing.T) {
	s := newSite(t)
	s.written()
	s.plane.Kill()
	eventually(t, "the agent notices", func() bool { return s.away() })
	const why = "was applied; the data plane is away since TIME"
	if out := s.ok("get", "sessions"); strings.Contains(out, "   applied") || !strings.Contains(out, "unknown   "+why) {
		t.Errorf("get: %s", out)
	}
	if out := s.ok("get", "all", "-o", "json"); strings.Contains(out, `"applied"`) || !strings.Contains(out, `"state": "unknown"`) {
		t.Errorf("get: %s", out)
	}
	if out := s.ok("describe", "acl", "web"); !strings.Contains(out, "state     unknown") || !strings.Contains(out, "why       "+why) ||
		!strings.Contains(out, "the data plane had it") || strings.Contains(out, "false") || strings.Count(out, "   unknown   NoDataplane   ") != 2 {
		t.Errorf("describe: %s", out)
	}
	if out := s.ok("plan", "-f", bng); !strings.Contains(out, "Nothing to change.\nThe data plane is away (") {
		t.Errorf("plan: %s", out)
	}
	if out := s.later("", "apply", "-f", bng); !strings.Contains(out, "8 objects are not applied yet") {
		t.Errorf("apply: %s", out)
	}
	if out := s.later("", "apply", "-f", bng, "--wait", "10ms"); !strings.Contains(out, why) {
		t.Errorf("apply --wait: %s", out)
	}
	if out := s.later("", "delete", "session", "alice"); !strings.Contains(out, "1 object is not done yet") {
		t.Errorf("delete: %s", out)
	}
	s.later("", "apply", "-f", bng)
	s.plane.Start(t)
	if out := s.ok("apply", "-f", bng, "--wait", "20s"); !strings.Contains(out, "8 unchanged") {
		t.Errorf("apply --wait: %s", out)
	}
	if out := s.ok("delete", "session", "alice", "--wait", "20s"); !strings.Contains(out, "deleted") {
		t.Errorf("delete --wait: %s", out)
	}
	if out := s.ok("rollback", "1", "--wait", "20s"); !strings.Contains(out, "Session/alice created") {
		t.Errorf("rollback --wait: %s", out)
	}
}

func TestYAMLThatWasShownCanBeAppliedAgain(t *testing.T) {
	s := newSite(t)
	s.written()
	shown := s.ok("get", "all", "-o", "yaml")
	if out := s.feed(shown, "apply", "-f", "-"); out != "8 unchanged.\n" {
		t.Errorf("applied again: %s", out)
	}
}

func TestJSONThatWasShownCanBeAppliedAgain(t *testing.T) {
	s := newSite(t)
	s.written()
	file := s.dir + "/all.json"
	if err := os.WriteFile(file, []byte(s.ok("get", "all", "-o", "json")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := s.ok("plan", "-f", file); out != "Nothing to change.\n" {
		t.Errorf("planned: %s", out)
	}
	if out := s.ok("apply", "-f", file); out != "8 unchanged.\n" {
		t.Errorf("applied again: %s", out)
	}
	if out := s.feed(s.ok("get", "session", "alice", "-o", "json"), "delete", "-f", "-"); !strings.Contains(out, "Session/alice deleted") {
		t.Errorf("deleted: %s", out)
	}
	if out := s.ok("apply", "-f", file); !strings.Contains(out, "Session/alice created") || !strings.Contains(out, "1 created, 7 unchanged.") {
		t.Errorf("applied once more: %s", out)
	}
	if errs := s.fails(s.ok("get", "acls", "-l", "no=such", "-o", "json"), "apply", "-f", "-"); !strings.Contains(errs, "there are no objects in -") {
		t.Error(errs)
	}
}

func TestAPlanInPlaceOfObjectsIsRecognized(t *testing.T) {
	s := newSite(t)
	file := s.dir + "/tonight.plan"
	shown := s.ok("plan", "-f", bng, "-o", "json", "--out", file)
	const written = "sluice: DIR/tonight.plan: this is a plan, not objects; apply it with `sluice apply --plan FILE`\n"
	for _, command := range []string{"apply", "plan", "delete"} {
		if errs := s.fails("", command, "-f", file); errs != written {
			t.Errorf("%s: %s", command, errs)
		}
	}
	for _, text := range []string{shown, s.ok("plan", "-f", bng, "-o", "yaml")} {
		if errs := s.fails(text, "apply", "-f", "-"); !strings.HasPrefix(errs, "sluice: standard input: this is the printed form of a plan, not objects;") {
			t.Error(errs)
		}
	}
	if out := s.ok("apply", "--plan", file); !strings.Contains(out, "8 created") {
		t.Error(out)
	}
}

func TestWithoutAnAgentEveryCommandNamesTheMend(t *testing.T) {
	s := newSite(t)
	s.stop()
	for _, arguments := range [][]string{{"get", "ports"}, {"apply", "-f", bng}, {"top", "--once"}, {"trace"}, {"version"}, {"delete", "port", "x"}} {
		if out := s.fails("", arguments...); !strings.Contains(out, "no agent answers at unix://DIR/agent.sock") || !strings.Contains(out, "sluice agent") {
			t.Errorf("%v: %s", arguments, out)
		}
	}
}

// An agent that ends in the middle of the first request.
func TestAnUnansweredChangeIsReportedAsUnknown(t *testing.T) {
	for _, arguments := range [][]string{{"apply", "-f", bng}, {"rollback", "1"}, {"confirm", "1"}, {"get", "ports"}} {
		path := filepath.Join(t.TempDir(), "agent.sock")
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		var g *grpc.Server
		g = grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			go g.Stop()
			<-stream.Context().Done()
			return nil
		}))
		ended := make(chan error, 1)
		go func() { ended <- g.Serve(listener) }()
		var out, errs bytes.Buffer
		code := Run(t.Context(), append([]string{"--agent", "unix://" + path}, arguments...), strings.NewReader(""), &out, &errs)
		change := arguments[0] != "get"
		if unknown := code == exitUnanswered && strings.Contains(errs.String(), "may have accepted the change"); unknown != change {
			t.Errorf("%v: exit code %d, %s", arguments, code, errs.String())
		}
		g.Stop()
		<-ended
	}
}

func TestAnErrorNamesTheVariableOfTheAddress(t *testing.T) {
	for set, want := range map[string]string{
		"unix:///nowhere/agent.sock": "no agent answers at unix:///nowhere/agent.sock, from SLUICE_AGENT (",
		"unix:///x\n":                `SLUICE_AGENT "unix:///x\n": accepted: unix:///PATH`,
	} {
		t.Setenv("SLUICE_AGENT", set)
		var out, errs bytes.Buffer
		if code := Run(t.Context(), []string{"get", "ports"}, strings.NewReader(""), &out, &errs); code != 1 || !strings.Contains(errs.String(), want) {
			t.Errorf("exit code %d, %s", code, errs.String())
		}
	}
}

func TestUsageMistakesAreExplained(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"apply"}, "no objects: use -f FILE"},
		{[]string{"apply", "-f", "/nonexistent"}, "no such file"},
		{[]string{"apply", "-f", s.dir + "/agent.sock/x"}, "not a directory"},
		{[]string{"get", "sesions"}, `did you mean Session?`},
		{[]string{"get", "ports", "nope"}, "there is no Port nope"},
		{[]string{"get", "ports", "-o", "xml"}, "accepted: table, wide, json, yaml"},
		{[]string{"get", "ports", "-l", "=x"}, "accepted: LABEL=VALUE"},
		{[]string{"describe", "port"}, "the name is missing"},
		{[]string{"describe", "port", "nope"}, "there is no Port nope"},
		{[]string{"delete", "port"}, "the name is missing"},
		{[]string{"delete", "port", "x", "-f", "y"}, "either by name or with -f"},
		{[]string{"drops", "--session", "a", "--interface", "b"}, "either"},
		{[]string{"apply", "-f", "nope.yaml"}, "sluice: nope.yaml: no such file or directory\n"},
		{[]string{"get"}, "found nothing behind `sluice get`; accepted: sluice get KIND[,KIND...] [NAME...] | KIND/NAME... | all; see `sluice get --help`"},
		{[]string{"plan", "x"}, "found \"x\" behind `sluice plan`; accepted: sluice plan -f FILE|DIRECTORY|-"},
		{[]string{"--agent", "unix:///x\n", "get", "ports"}, `--agent "unix:///x\n": accepted: unix:///PATH`},
		{[]string{"capture"}, "the file is missing: -w FILE"},
		{[]string{"capture", "-w", s.dir + "/x", "--node", "a", "--session", "b"}, "either"},
		{[]string{"trace", "nonsense"}, "syntax error"},
		{[]string{"trace", "--count", "0"}, "accepted: 1 to 10000"},
		{[]string{"top", "--interval", "0s"}, "10ms or more"},
		{[]string{"--agent", "tcp://x", "get", "ports"}, "accepted: unix:///PATH"},
		{[]string{"apply", "-f", bng, "--confirm", "1"}, `--confirm "1": accepted: a number and its unit, such as 5m, 90s or 1h; see`},
		{[]string{"rollback", "1", "--confirm", "5 m"}, "accepted: a number and its unit"},
		{[]string{"apply", "-f", bng, "--wait", "1"}, `--wait "1": accepted: a number and its unit`},
		{[]string{"top", "--interval", "x"}, `--interval "x": accepted: a number and its unit`},
		{[]string{"nonsense"}, "unknown command"},
	} {
		if out := s.fails("", test.arguments...); !strings.Contains(out, test.want) {
			t.Errorf("%v: %s", test.arguments, out)
		}
	}
}

const home = `apiVersion: sluice.dev/v1
kind: SubscriberProfile
metadata: {name: home}
spec: {authentication: [none], ipv4Pools: [street]}
`

const wifi = `apiVersion: sluice.dev/v1
kind: N3iwf
metadata: {name: wifi}
spec:
  node: wifi
  localAddress: 192.0.2.1
  credential: n3iwf
  innerPools: [10.201.0.0/16]
  nasAddress: 10.200.0.1
  userPlaneAddresses: [10.200.0.2]
  coreAddress: 198.51.100.1
`

const street = `---
apiVersion: sluice.dev/v1
kind: AddressPool
metadata: {name: street}
spec: {ranges: [100.64.0.0/24]}
`

func TestAnObjectOfAServiceIsAppliedAndNotReadyWithoutAnObjectThatItNames(t *testing.T) {
	s := newSite(t)
	if got, want := s.feed(home, "apply", "-f", "-"), `SubscriberProfile/home created
1 created.
1 object is applied and not ready:
  standard input:1: SubscriberProfile/home: WaitsForObject: AddressPool/street does not exist
`; got != want {
		t.Errorf("%s", got)
	}
	for _, text := range []string{home, wifi} {
		if _, errs, code := s.try(text, "plan", "-f", "-"); code != 0 || !strings.Contains(errs, "unresolved reference") {
			t.Errorf("%d, %s", code, errs)
		}
	}
	_, errs, _ := s.try(wifi+street, "plan", "-f", "-")
	if !strings.Contains(errs, "2 unresolved references:\n") || !strings.Contains(errs, "standard input:7: N3iwf/wifi: credential: there is no IkeCredential n3iwf\n") {
		t.Errorf("%s", errs)
	}
	if _, errs, _ := s.try(home+street, "plan", "-f", "-"); strings.Contains(errs, "unresolved") {
		t.Errorf("%s", errs)
	}
	if got := s.ok("describe", "subscriberprofile", "home"); !strings.Contains(got, "; services of the agent use it, and no data plane has it\n") {
		t.Errorf("%s", got)
	}
	if got := s.feed(home, "apply", "-f", "-", "-o", "json"); !strings.Contains(got, `"message": "not ready: WaitsForObject: AddressPool/street does not exist"`) {
		t.Errorf("%s", got)
	}
	// With --wait it fails.
	if got := s.later(home, "apply", "-f", "-", "--wait", "1ms"); !strings.Contains(got, "SubscriberProfile/home: WaitsForObject: AddressPool/street does not exist\n") ||
		!strings.Contains(got, "1 object is applied and not ready") {
		t.Errorf("%s", got)
	}
	if got := s.feed(home+street, "apply", "-f", "-", "--wait", "20s"); got != "AddressPool/street created\n1 created, 1 unchanged.\n" {
		t.Errorf("%s", got)
	}
}

func TestAnObjectThatAServiceNeedsIsOnlyDeletedWithInUse(t *testing.T) {
	s := newSite(t)
	s.feed(home+street, "apply", "-f", "-")
	if got := s.fails("", "delete", "addresspool", "street"); !strings.Contains(got, "SubscriberProfile/home would not be ready without AddressPool/street") {
		t.Errorf("%s", got)
	}
	s.feed("", "get", "addresspool", "street")
	if got := s.later("", "delete", "addresspool", "street", "--in-use"); !strings.Contains(got, "waits for SubscriberProfile/home, which still uses it") {
		t.Errorf("%s", got)
	}
	if got := s.ok("get", "subscriberprofile"); !strings.Contains(got, "not ready: AddressPool/street is deleting") {
		t.Errorf("%s", got)
	}
	s.feed(home+street, "apply", "-f", "-")
	if got := s.feed(home+street, "delete", "-f", "-"); !strings.Contains(got, "2 deleted.") {
		t.Errorf("both at once: %s", got)
	}
}

func TestAnAppliedObjectOfAnyKindThatDoesNotServeIsPrintedWithItsReason(t *testing.T) {
	applied := func(external bool) *api.Applied {
		ready := &api.Condition{Type: "Ready", Reason: "NotConfigured", Message: "its file is missing", External: external}
		return &api.Applied{Objects: []*api.AppliedObject{{Kind: "N3iwf", Name: "wifi", Step: api.Step_CREATE, Status: &api.Status{State: api.State_APPLIED,
			Conditions: []*api.Condition{{Type: "Applied", Holds: true}, ready}}}}}
	}
	for _, c := range []struct {
		name             string
		external, waited bool
		printed          bool
		code             int
	}{
		{"a mistake", false, false, true, 0},
		{"a mistake, with --wait", false, true, true, exitUnfinished},
		{"a peer that is away", true, false, false, 0},
		{"a peer that is away, with --wait", true, true, true, 0},
	} {
		var out bytes.Buffer
		p := &program{out: &printable{to: &out}}
		err := p.printApplied(applied(c.external), "table", expected{waited: c.waited})
		printed := strings.Contains(out.String(), "1 object is applied and not ready:\n  N3iwf/wifi: NotConfigured: its file is missing\n")
		var later *unfinished
		if printed != c.printed || errors.As(err, &later) != (c.code == exitUnfinished) || err != nil && c.code == 0 {
			t.Errorf("%s: %v, %q", c.name, err, out.String())
		}
	}
}
