// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/command"
)

// counted gives the data plane counters.
func (s *site) counted() {
	s.plane.Count(
		&api.SessionCountersList{Sessions: []*api.SessionCounters{
			{Session: "alice", UpPackets: 1234, UpBytes: 567890, DownPackets: 4_000_000, DownBytes: 6_000_000_000, Drops: 3, Mac: "02:00:00:00:00:07"},
			{Session: "bob"}}},
		&api.PortCountersList{Ports: []*api.PortCounters{{Port: "core", LinkUp: true, RxPackets: 12, RxBytes: 3456, Mac: "02:00:00:00:00:01"}}},
		&api.InterfaceCountersList{Interfaces: []*api.InterfaceCounters{{Interface: "core", RxPackets: 7, RxBytes: 700}}},
		&api.DropCountersList{Drops: []*api.DropCounters{
			{Reason: "acl-denied", Description: "An ACL says no.", Packets: 3},
			{Reason: "ttl-expired", Description: "The hop limit was used up.", Packets: 40_000}}},
		&api.NodeCountersList{Nodes: []*api.NodeCounters{{Node: "ip4-lookup", Calls: 10, Packets: 2560, Cycles: 25600, TakesSteps: true},
			{Node: "tx", Calls: 1}, {Node: "session-out", Next: []string{"tx", "icmp-error"}, IsStep: true}}, TscHz: 1e9},
		&api.NeighborStates{Neighbors: []*api.NeighborState{
			{Interface: "core", Address: "192.0.2.254", Mac: "02:00:00:00:00:fe", State: "reachable"},
			{Interface: "other", Address: "2001:db8::1", State: "incomplete"}}})
}

func TestObjectsAreShownInTablesForPeople(t *testing.T) {
	s := newSite(t)
	s.written()
	s.counted()
	for name, arguments := range map[string][]string{
		"get-sessions":        {"get", "sessions"},
		"get-several":         {"get", "po,Interface,routes"},
		"get-all":             {"get", "all"},
		"get-yaml":            {"get", "session", "alice", "-o", "yaml"},
		"get-json":            {"get", "SESSIONS", "-l", "city=bonn,tier,!old", "-o", "json"},
		"describe-session":    {"describe", "session", "alice"},
		"describe-interface":  {"describe", "if/core"},
		"describe-port":       {"describe", "port", "core"},
		"describe-acl":        {"describe", "acl", "web"},
		"get-wide-yaml-all":   {"get", "all", "-o", "yaml"},
		"drops":               {"drops"},
		"drops-json":          {"drops", "--session", "alice", "-o", "json"},
		"drops-yaml":          {"drops", "-o", "yaml"},
		"graph-dataplane":     {"graph", "dataplane"},
		"graph-dataplane-one": {"graph", "dataplane", "ip4-lookup"},
		"graph-dataplane-dot": {"graph", "dataplane", "-o", "dot"},
		"neighbors":           {"neighbors"},
		"state-ports":         {"get", "ports", "--state"},
		"state-ports-wide":    {"get", "ports", "--state", "-o", "wide"},
		"state-session-json":  {"get", "session", "alice", "--state=counters", "-o", "json"},
		"neighbors-json":      {"neighbors", "--interface", "core", "-o", "json"},
	} {
		golden(t, name, s.ok(arguments...))
	}
}

func TestADescriptionForProgramsHasEveryDigit(t *testing.T) {
	s := newSite(t)
	s.written()
	s.plane.Count(&api.SessionCountersList{Sessions: []*api.SessionCounters{{Session: "alice", UpPackets: 1234567, UpBytes: 98765432}}})
	var output struct {
		Metadata struct{ Name string }
		Status   struct{ State string }
		Needs    []struct{ Kind, Name, Field, State string }
		Counters struct{ UpPackets, UpBytes uint64 }
	}
	if err := json.Unmarshal([]byte(s.ok("describe", "session", "alice", "-o", "json")), &output); err != nil {
		t.Fatal(err)
	}
	if up := output.Counters; output.Metadata.Name != "alice" || output.Status.State != "applied" || len(output.Needs) == 0 || up.UpPackets != 1234567 || up.UpBytes != 98765432 {
		t.Errorf("%+v", output)
	}
	if out := s.ok("describe", "session", "alice"); !strings.Contains(out, "up packets     1234567\n  up bytes       98765432\n") {
		t.Errorf("%s", out)
	}
}

func TestAWatchShowsPresentObjectsAndThenEveryChange(t *testing.T) {
	s := newSite(t)
	s.written()
	end, out := s.background("get", "sessions", "-w", "-o", "json")
	lines := bufio.NewScanner(out)
	next := func() string {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the watch ended: %v", lines.Err())
		}
		var output struct {
			Change string
			Object struct {
				Metadata struct{ Name string }
				Status   struct{ State string }
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &output); err != nil {
			t.Fatal(err)
		}
		return output.Change + " " + output.Object.Metadata.Name + " " + output.Object.Status.State
	}
	for _, want := range []string{"exists alice applied", "exists bob applied"} {
		if got := next(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	s.ok("delete", "session", "bob")
	for got := next(); got != "ended bob gone"; got = next() {
		if !strings.HasPrefix(got, "changed bob ") {
			t.Errorf("before it is gone: %s", got)
		}
	}
	if errs, code := end(); code != 0 {
		t.Errorf("exit code %d, %s", code, errs)
	}

	end, out = s.background("get", "sessions,ports", "-w", "-l", "tier=gold")
	lines = bufio.NewScanner(out)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "NAME") || !lines.Scan() || !strings.HasPrefix(lines.Text(), "Session/alice") {
		t.Errorf("a watch as a table begins with %s", lines.Text())
	}
	end()
}

func TestTraceShowsEachNodeAndTheEnd(t *testing.T) {
	s := newSite(t)
	packet := &api.TracedPacket{End: "dropped: ttl-expired", Steps: []*api.TraceStep{
		{Node: "rx", Saw: "port access, 98 bytes"}, {Node: "ip4-hop-limit", Saw: "192.0.2.9 > 198.51.100.1, TTL 1", At: 12345}}}
	for _, format := range []string{"table", "json"} {
		_, out := s.background("trace", "--count", "2", "-o", format, "vlan", "100")
		eventually(t, "the data plane traces", func() bool { return len(s.looking()) == 1 })
		if q := s.looking()[0].GetTrace(); q.GetFilter() != "vlan 100" || q.GetCount() != 2 {
			t.Errorf("the data plane was asked for %v", q)
		}
		s.plane.Emit(packet, false)
		s.plane.Emit(packet, true)
		var text bytes.Buffer
		if _, err := text.ReadFrom(out); err != nil {
			t.Fatal(err)
		}
		golden(t, "trace-"+format, text.String())
	}
}

func TestAFilterThatCannotBeCompiledIsAllThatIsComplainedOf(t *testing.T) {
	s := newSite(t)
	want := "sluice: filter \"nonsense\": syntax error; see pcap-filter(7)\n"
	if got := s.fails("", "trace", "nonsense"); got != want {
		t.Errorf("trace: %s", got)
	}
	if got := s.fails("", "capture", "-w", s.dir+"/x.pcap", "nonsense"); got != want {
		t.Errorf("capture: %s", got)
	}
	if _, err := os.Stat(s.dir + "/x.pcap"); err == nil {
		t.Error("a file was made for a capture that never began")
	}
}

func TestATraceThatIsInterruptedEndsInTheDataPlaneToo(t *testing.T) {
	s := newSite(t)
	end, _ := s.background("trace")
	eventually(t, "the data plane traces", func() bool { return len(s.looking()) == 1 })
	if errs, code := end(); code != 0 || !strings.Contains(errs, "No packet matched.") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	eventually(t, "the data plane ended the trace", func() bool { return len(s.looking()) == 0 })
}

func TestACaptureIsAPcapFile(t *testing.T) {
	s := newSite(t)
	path := s.dir + "/x.pcap"
	end, _ := s.background("capture", "--session", "alice", "-w", path, "--count", "2", "--snap-length", "60", "udp")
	eventually(t, "the data plane captures", func() bool { return len(s.looking()) == 1 })
	if q := s.looking()[0].GetCapture(); q.GetSession() != "alice" || q.GetFilter() != "udp" || q.GetCount() != 2 || q.GetSnapLength() != 60 {
		t.Errorf("the data plane was asked for %v", q)
	}
	frame := bytes.Repeat([]byte{0xab}, 60)
	s.plane.Emit(&api.CapturedPacket{Time: 1_700_000_000_123_456_789, Length: 1500, Bytes: frame}, false)
	s.plane.Emit(&api.CapturedPacket{Time: 1_700_000_001_000_000_000, Length: 60, Bytes: frame}, true)
	var file []byte
	eventually(t, "both packets are in the file", func() bool {
		file, _ = os.ReadFile(path)
		return len(file) == 24+2*(16+60)
	})
	if errs, code := end(); code != 0 || !strings.Contains(errs, "2 packets captured.") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	words := func(at, n int) []uint32 {
		all := make([]uint32, n)
		for i := range all {
			all[i] = binary.LittleEndian.Uint32(file[at+4*i:])
		}
		return all
	}
	if got := words(0, 6); !slices.Equal(got, []uint32{0xa1b23c4d, 2 | 4<<16, 0, 0, 60, 1}) {
		t.Errorf("the file's header is %x", got)
	}
	if got := words(24, 4); !slices.Equal(got, []uint32{1_700_000_000, 123_456_789, 60, 1500}) {
		t.Errorf("the first packet's header is %v", got)
	}
	if is, err := os.Stat(path); err != nil || is.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v", is.Mode(), err)
	}
}

func TestTopShowsRatesOverItsInterval(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := &sample{at: start, boot: 1,
		sessions: map[string]*api.SessionCounters{"alice": {UpPackets: 1000, UpBytes: 1000000}, "bob": {}},
		ports:    map[string]*api.PortCounters{"core": {RxPackets: 10, RxBytes: 1000}},
		nodes:    map[string]*api.NodeCounters{"ip4-lookup": {Calls: 10, Packets: 100, Cycles: 1000}, "idle": {Calls: 5}}}
	after := &sample{at: start.Add(2 * time.Second), boot: 1,
		sessions: map[string]*api.SessionCounters{"alice": {UpPackets: 3000, UpBytes: 3500000, DownPackets: 50, DownBytes: 5000, Drops: 2}, "bob": {}, "carol": {DownPackets: 2, DownBytes: 200}},
		ports:    map[string]*api.PortCounters{"core": {LinkUp: true, RxPackets: 2010, RxBytes: 201000, TxPackets: 5, RxMissed: 1}},
		drops:    map[string]*api.DropCounters{"ttl-expired": {Reason: "ttl-expired", Packets: 4, Description: "The hop limit was used up."}},
		nodes:    map[string]*api.NodeCounters{"ip4-lookup": {Calls: 20, Packets: 2660, Cycles: 28600}, "idle": {Calls: 9}}}
	show := func(v *view, rows, lines, columns int) string {
		var b bytes.Buffer
		if err := v.print(&b, rows, lines, columns); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	golden(t, "top", show(after.since(before), 2, 0, 0))
	named := after.since(before)
	named.Sessions[0].Username = "alice@example.net"
	golden(t, "top-usernames", show(named, 2, 0, 0))
	anew := *after
	anew.boot = 2
	if v := anew.since(before); v.Totals.UpPackets != 3000 || v.Totals.UpPacketRate != 1500 {
		t.Errorf("after a restart of the data plane: %+v", v.Totals)
	}
	screen := fitted(show(after.since(before), 0, 4, 20), 4, 20)
	if lines := strings.Split(screen, "\n"); len(lines) != 4 || len([]rune(strings.TrimSuffix(lines[0], "\x1b[K"))) != 20 {
		t.Errorf("on a screen of 4 lines by 20: %q", screen)
	}
}

func TestTopFitsASmallTerminal(t *testing.T) {
	v := &view{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Totals: totals{Sessions: 200_000, ActiveSessions: 150_000,
		UpPacketRate: 1.23e6, DownPacketRate: 12.3e6, UpBitRate: 1.23e9, DownBitRate: 123e9, DropRate: 1.23e3}}
	name := strings.Repeat("a-long-name.", 3)
	for i := range 40 {
		r := float64(i) * 12345
		v.Sessions = append(v.Sessions, sessionRate{fmt.Sprint(i, name), fmt.Sprint("user-", i, name), 12345678, 1, 12345678, 1, 12345678, r, 99 * r, r, 99 * r, r})
		v.Nodes = append(v.Nodes, nodeRate{fmt.Sprintf("node-%d", i), 10, r, 12.3, 123})
	}
	for _, port := range []string{"access", name} {
		v.Ports = append(v.Ports, portRate{Name: port, LinkUp: false, RxPackets: 12345678, TxPackets: 12345678, RxMissed: 12345678,
			RxPacketRate: 12.3e6, RxBitRate: 12.3e9, TxPacketRate: 12.3e6, TxBitRate: 12.3e9})
	}
	v.Drops = []dropRate{{"session-source", 12345678, 12345, strings.Repeat("It is all rather complicated. ", 5)}}
	for name, size := range map[string][2]int{"SUBSCRIBER": {24, 80}, "USERNAME": {60, 132}} {
		var b bytes.Buffer
		if err := v.print(&b, 0, size[0], size[1]); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		if len(lines) != size[0]-1 {
			t.Errorf("%d lines, not %d:\n%s", len(lines), size[0]-1, b.String())
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > size[1] {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		for _, part := range []string{name, "DROPS", "PORT", "LOST", "NODE", "CYCLES/PACKET", "node-3", "session-source", "... and"} {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s is not shown:\n%s", part, b.String())
			}
		}
	}
}

func TestBuiltinObjectsAreShown(t *testing.T) {
	s := newSite(t)
	if out := s.ok("get", "vrfs"); !strings.Contains(out, "default") {
		t.Errorf("got %q", out)
	}
	if out := s.ok("get", "vrf", "default", "-o", "json"); !strings.Contains(out, `"builtin"`) {
		t.Errorf("got %q", out)
	}
	if out := s.ok("describe", "vrf", "default"); !strings.Contains(out, "builtin") {
		t.Errorf("got %q", out)
	}
	s.feed("apiVersion: sluice.dev/v1\nkind: Vrf\nmetadata: {name: default}\nspec: {description: ours}\n", "apply", "-f", "-")
	if out := s.ok("get", "vrfs"); strings.Count(out, "default") != 1 || !strings.Contains(out, "ours") {
		t.Errorf("written down, got %q", out)
	}
	if errs := s.fails("", "describe", "vrf", "red"); !strings.Contains(errs, "there is no Vrf red") {
		t.Errorf("got %q", errs)
	}
	if out := s.ok("get", "vrfs", "-l", "city=bonn"); out != "" {
		t.Errorf("with a label: %q", out)
	}
}

func TestTopAsksForEachUserNameOnce(t *testing.T) {
	names, queried, problem := map[string]string{}, 0, error(nil)
	newNames := func() usernames {
		return usernames{of: []*command.Sessions{{Usernames: func(_ context.Context, _ command.Line, sessions []string) (map[string]string, error) {
			queried += len(sessions)
			if problem != nil {
				return nil, problem
			}
			return names, nil
		}}}, known: map[string]string{}}
	}
	sessions := []sessionRate{{Name: "static"}}
	for i := range 200 {
		session := fmt.Sprint("pppoe-", i)
		names[session] = fmt.Sprint("user-", i)
		sessions = append(sessions, sessionRate{Name: session})
	}
	up := newNames()
	delete(names, "pppoe-199")
	for range 3 {
		up.fill(t.Context(), sessions[:10])
	}
	names["pppoe-199"] = "user-199"
	for range 3 {
		up.fill(t.Context(), sessions)
	}
	// The first answer had all names but one.
	if queried != 11 || sessions[0].Username != "" || sessions[9].Username != "user-8" || sessions[200].Username != "user-199" {
		t.Errorf("%d names were queried: %+v", queried, sessions[:10])
	}
	// An agent that is away for a moment.
	names, problem = map[string]string{"pppoe-0": "user-0"}, status.Error(codes.Unavailable, "")
	away, one := newNames(), []sessionRate{{Name: "pppoe-0"}}
	away.fill(t.Context(), one)
	problem = nil
	away.fill(t.Context(), one)
	if one[0].Username != "user-0" {
		t.Errorf("%+v", one)
	}
}

func TestTopWithoutATerminalIsPlainTextOrJSON(t *testing.T) {
	s := newSite(t)
	s.counted()
	out := s.ok("top", "--once", "--interval", "10ms")
	if strings.Contains(out, "\x1b") || !strings.Contains(out, "alice") || !strings.Contains(out, "ttl-expired") {
		t.Errorf("got %q", out)
	}
	lines := strings.Split(strings.TrimSpace(s.ok("top", "--count", "2", "--interval", "10ms", "-o", "json")), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	var output struct {
		Totals   struct{ Sessions int }
		Sessions []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(lines[1]), &output); err != nil || output.Totals.Sessions != 2 || output.Sessions[0].Name != "alice" {
		t.Errorf("got %+v, %v", output, err)
	}
}

func TestNumbersAreShortForPeople(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 7: "7", 999: "999", 1000: "1.00k", 1234567: "1.23M", 0.25: "0.25", 99.96: "100",
		12345: "12.3k", 999.7: "1.00k", 999999: "1.00M", 6e9: "6.00G", -1: "-"} {
		if got := human(n); got != want {
			t.Errorf("%v is shown as %s, want %s", n, got, want)
		}
	}
	if got := bytesText(1500000) + " " + bytesText(3) + " " + bitRate(2e6); got != "1.50 MB 3 B 2.00 Mbit/s" {
		t.Error(got)
	}
}

func TestTheShellCompletesKindsAndNames(t *testing.T) {
	s := newSite(t)
	s.written()
	s.counted()
	for _, test := range []struct {
		typed []string
		want  []string
	}{
		{[]string{"get", "ses"}, []string{"sessions"}},
		{[]string{"get", "ports,me"}, []string{"ports,meters"}},
		{[]string{"get", "session", ""}, []string{"alice", "bob"}},
		{[]string{"get", "session", "alice", ""}, []string{"bob"}},
		{[]string{"describe", "po/"}, []string{"po/access", "po/core"}},
		{[]string{"describe", "port", "core", ""}, nil},
		{[]string{"delete", "Acl", "w"}, []string{"web"}},
		{[]string{"capture", "--node", "ip"}, []string{"ip4-lookup"}},
		{[]string{"drops", "--session", ""}, []string{"alice", "bob"}},
		{[]string{"get", "ports", "-o", "j"}, []string{"json", "jsonpath="}},
		{[]string{"completion", "z"}, []string{"zsh"}},
	} {
		out := s.ok(append([]string{cobra.ShellCompNoDescRequestCmd}, test.typed...)...)
		got := strings.Split(strings.TrimSpace(out), "\n")
		if got = got[:len(got)-1]; !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.typed, got, test.want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := s.ok("completion", shell); !strings.Contains(out, "sluice") {
			t.Errorf("%s: %s", shell, out)
		}
	}
}

func TestEveryCommandHasAnExampleInItsHelp(t *testing.T) {
	p := &program{}
	root, err := p.root()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(root.Commands(), root) {
		if c.Name() != "help" && (c.Example == "" || c.Short == "") {
			t.Errorf("%s has none", c.CommandPath())
		}
		for line := range strings.Lines(c.Long + "\n" + c.Example) {
			if len(line) > 130 {
				t.Errorf("%s: a line that is too long: %s", c.CommandPath(), line)
			}
		}
	}
}

func TestPacketsThatAreConsumedAreNoDrops(t *testing.T) {
	s := newSite(t)
	s.written()
	s.counted()
	list := &api.DropCountersList{Drops: []*api.DropCounters{{Reason: "ttl-expired", Description: "Too far.", Packets: 3}},
		Consumed: []*api.DropCounters{{Reason: "arp-noted", Description: "Noted.", Packets: 40}}}
	s.plane.Count(list)
	const consumed = "CONSUMED, NOT DROPPED   PACKETS   WHAT IT MEANS\narp-noted                    40   Noted.\n"
	if out := s.ok("drops"); out != "DROP          PACKETS   WHAT IT MEANS\nttl-expired         3   Too far.\n\n"+consumed {
		t.Errorf("%s", out)
	}
	if out := s.ok("drops", "-o", "json"); strings.Contains(out, "arp-noted") || !strings.Contains(out, "ttl-expired") {
		t.Errorf("%s", out)
	}
	if out := s.ok("drops", "--consumed", "-o", "json"); !strings.Contains(out, "arp-noted") || strings.Contains(out, "ttl-expired") {
		t.Errorf("%s", out)
	}
	if out := s.ok("drops", "--consumed"); out != consumed {
		t.Errorf("%s", out)
	}
	if out := s.ok("describe", "interface", "core"); !strings.Contains(out, "\n\n  CONSUMED, NOT DROPPED   PACKETS") {
		t.Errorf("%s", out)
	}
	if out := s.ok("describe", "interface", "core", "-o", "yaml"); !strings.Contains(out, "\nconsumed:\n  - reason: arp-noted\n") {
		t.Errorf("%s", out)
	}
	list.Drops = nil
	s.plane.Count(list)
	if out, errs, code := s.try("", "drops"); out != consumed || errs != "No packet was dropped.\n" || code != 0 {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

func TestAWrongValueOfAFlagIsExplained(t *testing.T) {
	s := newSite(t)
	for arguments, want := range map[string]string{
		"top --count x":            `--count "x": accepted: a whole number; see `,
		"trace --count -1":         `--count "-1": accepted: a whole number from 0 to 4294967295; see `,
		"history --limit 1e30":     `--limit "1e30": accepted: a whole number from 0 to 4294967295; see `,
		"history --before " + "-1": `--before "-1": accepted: a whole number from 0 to 18446744073709551615; see `,
		"get all --watch=maybe":    `--watch "maybe": accepted: true or false; see `,
		"get all -o xml":           `--output "xml": accepted: table, wide, json, yaml, name, jsonpath=TEMPLATE; see `,
		"top --interval 5":         `--interval "5": accepted: a number and its unit, such as 5m, 90s or 1h; see `,
		"top --bogus":              "unknown flag: --bogus; see ",
		"diff x":                   `"x" is not the number of a revision`,
	} {
		if errs := s.fails("", strings.Fields(arguments)...); !strings.HasPrefix(errs, "sluice: "+want) || strings.Contains(errs, "strconv") {
			t.Errorf("%s: %s", arguments, errs)
		}
	}
}

func TestNeighboursOfAnInterfaceThatIsNotThereAreAMistake(t *testing.T) {
	s := newSite(t)
	s.written()
	if errs := s.fails("", "neighbors", "--interface", "cor"); errs != "sluice: interface: there is no Interface cor; did you mean core?\n" {
		t.Error(errs)
	}
	if out, errs, code := s.try("", "neighbors", "--interface", "core"); out != "" || errs != "No neighbours.\n" || code != 0 {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

func TestVersionTellsOfAllThreePrograms(t *testing.T) {
	s := newSite(t)
	want := fmt.Sprintf("sluice      %s\nagent       1.0 at unix://DIR/agent.sock\ndata plane  fake at unix://DATAPLANE, DPDK none, 1 worker, built for x86-64-v2\n", Release())
	if got := s.ok("version"); got != want {
		t.Errorf("got %s", got)
	}
	var output struct {
		Dataplane struct{ Connected bool }
	}
	if err := json.Unmarshal([]byte(s.ok("version", "-o", "json")), &output); err != nil || !output.Dataplane.Connected {
		t.Errorf("got %+v, %v", output, err)
	}
}

// looking returns the data plane's streams that clients asked for, not the agent itself.
func (s *site) looking() []*api.Request {
	return slices.DeleteFunc(s.plane.Streams(), func(r *api.Request) bool { return r.GetWatch() != nil })
}

func TestAStateThatIsNotThereIsAMistake(t *testing.T) {
	s := newSite(t)
	s.written()
	for arguments, want := range map[string]string{
		"get vrfs --state":                                "Vrf has no operational state of its own",
		"get ports,sessions --state":                      "--state is for one kind",
		"get sessions --state=x":                          `--state "x": accepted: counters, drops, queues, search, subscriber`,
		"get acls --state":                                "--state=hits: acl is missing",
		"get neighbors a --state":                         "--state=neighbors is not for a single Neighbor",
		"get ports --state --field-selector x=1":          `"x" is no filter of counters`,
		"get neighbors --state --field-selector limit=no": `limit: found "no"`,
	} {
		if errs := s.fails("", strings.Fields(arguments)...); !strings.Contains(errs, want) {
			t.Errorf("%s: %s", arguments, errs)
		}
	}
}
