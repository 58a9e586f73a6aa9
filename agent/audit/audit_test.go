// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

func lines(t *testing.T, path string) []Entry {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []Entry
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var e Entry
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v", scanner.Text(), err)
		}
		all = append(all, e)
	}
	return all
}

// what returns an audited Intent, the audit file's path and the log.
func what(t *testing.T) (*Intent, string, *bytes.Buffer) {
	t.Helper()
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "logs", "audit.jsonl")
	l, err := Open(path, true, slog.New(slog.NewJSONHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &Intent{Interface: desired, Log: l}, path, &log
}

var alice = intent.Source{Owner: "rest", Who: "alice", From: "192.0.2.1:4711", Why: "a new customer"}

func vrf(name, description string) object.Change {
	return object.Put(&object.Object{Kind: "Vrf", Name: name, Spec: &api.Vrf{Description: description}})
}

func TestEachChangeIsWrittenDownAlsoARefusedOne(t *testing.T) {
	i, path, log := what(t)
	ctx := t.Context()
	noWait := intent.Options{Mode: intent.NoWait}
	must := func(_ *intent.Outcome, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(i.Apply(ctx, alice, []object.Change{vrf("red", "do not tell"), vrf("blue", "")}, noWait))
	must(i.Apply(ctx, alice, []object.Change{vrf("red", "do not tell")}, noWait))
	if _, err := i.Apply(ctx, intent.Source{Owner: "etcd"}, []object.Change{vrf("red", "other")}, noWait); err == nil {
		t.Error("a conflict was taken")
	}
	must(i.Rollback(ctx, alice, 0, noWait))
	if err := i.Confirm(alice, 7); !errors.Is(err, intent.ErrNothingToConfirm) {
		t.Error(err)
	}
	i.Log.Refuse("apply", alice, []object.Change{object.Remove(object.Key{Kind: "Vrf", Name: "x"})}, Forbidden, errors.New("alice may not"))
	got := lines(t, path)
	var logged []string
	for _, e := range got {
		text := fmt.Sprintf("%s %s %s %d", e.Action, e.Owner, e.Outcome, e.Revision)
		for _, o := range e.Objects {
			text += fmt.Sprintf(" %s/%s:%s", o.Kind, o.Name, o.Step)
		}
		logged = append(logged, text)
	}
	want := []string{
		"apply rest done 1 Vrf/red:create Vrf/blue:create", "apply rest unchanged 1 Vrf/red:keep", "apply etcd refused 0 Vrf/red:put",
		"rollback rest done 2 Vrf/blue:delete Vrf/red:delete", "confirm rest refused 7", "delete rest forbidden 0 Vrf/x:delete",
	}
	if strings.Join(logged, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(logged, "\n"), strings.Join(want, "\n"))
	}
	if e := got[0]; e.Who != "alice" || e.From != alice.From || e.Why != alice.Why || e.Time.IsZero() || e.Count != 2 {
		t.Errorf("%+v", e)
	}
	if !strings.Contains(got[2].Problem, "belongs to rest") {
		t.Errorf("%+v", got[2])
	}
	if n := strings.Count(log.String(), `"msg":"change"`); n != len(want) {
		t.Errorf("%d lines in the log", n)
	}
	text, _ := os.ReadFile(path)
	if strings.Contains(string(text)+log.String(), "do not tell") {
		t.Error("an object's content was written down")
	}
}

func TestAnUndoByTheAgentIsAudited(t *testing.T) {
	i, path, _ := what(t)
	red := object.Key{Kind: "Vrf", Name: "red"}
	undoing := intent.Undoing{Source: intent.Source{Owner: "agent", Why: "revision 7 undone: not confirmed in time"}, Revision: 7, Made: 8,
		Objects: []intent.Done{{Step: intent.Update, Status: intent.Status{Key: red}}}}
	i.Log.Undone(undoing)
	undoing.Left = []intent.Left{{Key: red, Problem: "Vrf/blue has that"}}
	i.Log.Undone(undoing)
	i.Log.Undone(intent.Undoing{Source: undoing.Source, Revision: 7, Problem: errors.New("no space left on device")})
	got := lines(t, path)
	for n, want := range []Entry{
		{Outcome: Done, Revision: 8, Count: 1},
		{Outcome: InPart, Revision: 8, Count: 1, Problem: "revision 7 is undone only in part; left as it is: Vrf/red (Vrf/blue has that)"},
		{Outcome: Refused, Problem: "no space left on device"},
	} {
		e := got[n]
		if e.Action != "undo" || e.Owner != "agent" || e.Why != undoing.Source.Why || e.Undoes != 7 || e.Outcome != want.Outcome ||
			e.Revision != want.Revision || e.Count != want.Count || e.Problem != want.Problem {
			t.Errorf("wrote %+v", e)
		}
	}
}

func TestAFileThatWasMovedAwayIsBegunAnew(t *testing.T) {
	i, path, _ := what(t)
	write := func() { i.Log.Write(Entry{Action: "apply", Owner: "x", Outcome: Done}) }
	write()
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write()
	write()
	if a, b := len(lines(t, path+".1")), len(lines(t, path)); a != 1 || b != 2 {
		t.Errorf("%d and %d lines", a, b)
	}
	if err := i.Log.Reopen(); err != nil {
		t.Fatal(err)
	}
	write()
	if n := len(lines(t, path)); n != 3 {
		t.Errorf("%d lines", n)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestALineThatWasCutOffDoesNotSpoilTheNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	if err := os.WriteFile(path, []byte(`{"time":"20`), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.Write(Entry{Action: "apply", Owner: "x", Outcome: Done})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var e Entry
	if err := json.Unmarshal(bytes.Split(text, []byte("\n"))[1], &e); err != nil || e.Owner != "x" {
		t.Errorf("%v: %s", err, text)
	}
}

func TestOnAFullDiskALineIsCutOffAndTheNextIsWholeWhenThereIsRoom(t *testing.T) {
	directory := t.TempDir()
	if err := syscall.Mount("none", directory, "tmpfs", 0, "size=8k"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(directory, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	path := filepath.Join(directory, "audit")
	// Whole pages, with half a line at the end.
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 8<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.Write(Entry{Action: "apply", Owner: "lost", Outcome: Done})
	for _, room := range []string{"12k", "1m"} {
		if err := syscall.Mount("none", directory, "tmpfs", syscall.MS_REMOUNT, "size="+room); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			l.Write(Entry{Action: "apply", Owner: "x", Outcome: Done})
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := 0
	for _, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		var e Entry
		if json.Unmarshal(line, &e) == nil && e.Owner == "x" {
			whole++
		}
	}
	// One line was cut off when the disk was full again.
	if lines := bytes.Count(text, []byte("\n")); whole < 101 || lines != whole+2 {
		t.Errorf("%d lines are whole, of %d", whole, lines)
	}
}

func TestLinesOfManyAtOnceStayWhole(t *testing.T) {
	i, path, _ := what(t)
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 50 {
				i.Log.Write(Entry{Action: "apply", Owner: strings.Repeat("x", 500), Outcome: Done})
			}
		}()
	}
	all.Wait()
	if n := len(lines(t, path)); n != 400 {
		t.Errorf("%d lines", n)
	}
}

func TestALineIsBoundedHoweverMuchChanges(t *testing.T) {
	i, path, _ := what(t)
	var changes []object.Change
	for n := range 1000 {
		changes = append(changes, vrf(fmt.Sprint("v", n), ""))
	}
	if _, err := i.Apply(context.Background(), alice, changes, intent.Options{Mode: intent.NoWait}); err != nil {
		t.Fatal(err)
	}
	if e := lines(t, path)[0]; len(e.Objects) != maxObjects || e.Count != 1000 {
		t.Errorf("%d objects, count %d", len(e.Objects), e.Count)
	}
	var none *Log
	none.Write(Entry{})
	if err := errors.Join(none.Reopen(), none.Close()); err != nil {
		t.Error(err)
	}
}

func TestALineHasTheAttributesOfItsAction(t *testing.T) {
	var log bytes.Buffer
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	l, err := Open(path, false, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Write(Entry{Action: "disconnect", Outcome: Done, Count: 1, Attributes: []slog.Attr{slog.String("subscribers", `username="alice"`), slog.String("long", strings.Repeat("x", 5000))}})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var line map[string]any
	if err := json.Unmarshal(text, &line); err != nil {
		t.Fatal(err)
	}
	if line["action"] != "disconnect" || line["subscribers"] != `username="alice"` || len(line["long"].(string)) > longestText+3 {
		t.Errorf("got %s", text)
	}
	if !strings.Contains(log.String(), `subscribers="username=\"alice\""`) {
		t.Errorf("got %s", log.String())
	}
}
