// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// editor makes the next edits use a shell script, whose $1 is the file, and returns the directory of such files.
func editor(t *testing.T, script string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	t.Setenv("VISUAL", "")
	t.Setenv("EDITOR", path)
	return dir
}

// left returns the content of the file that an edit left, or "".
func left(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(dir + "/*")
	if err != nil || len(files) > 1 {
		t.Fatal(files, err)
	}
	if len(files) == 0 {
		return ""
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAnEditWithoutEditorAndTerminalIsRefused(t *testing.T) {
	s := newSite(t)
	s.written()
	editor(t, "true")
	t.Setenv("EDITOR", "")
	if _, errs, code := s.try("", "edit", "session", "alice"); code == 0 || !strings.Contains(errs, "there is no terminal; set EDITOR") {
		t.Error(code, errs)
	}
}

func TestAnEditIsApplied(t *testing.T) {
	s := newSite(t)
	s.written()
	dir := editor(t, `grep -q '^# Session/alice at revision ' "$1" && sed -i 's/outerVlan: .*/outerVlan: 411/' "$1"`)
	if out := s.ok("edit", "session", "alice", "--why", "moved"); out != "Session/alice updated\n1 updated.\n" {
		t.Error(out)
	}
	if out := s.ok("get", "session/alice", "-o", "jsonpath={.spec.access.outerVlan}"); out != "411\n" {
		t.Error(out)
	}
	if text := left(t, dir); text != "" {
		t.Errorf("the file is left: %s", text)
	}
}

func TestAnEditWithoutAChangeAppliesNothing(t *testing.T) {
	s := newSite(t)
	s.written()
	before := s.ok("history", "-o", "json")
	for _, script := range []string{"true", `echo "# a comment" >>"$1"`, `: >"$1"`} {
		dir := editor(t, script)
		if out, errs, code := s.try("", "edit", "session/alice"); out != "" || errs != "Nothing is changed.\n" || code != 0 {
			t.Errorf("%s: exit code %d\n%s%s", script, code, out, errs)
		}
		if text := left(t, dir); text != "" {
			t.Errorf("the file is left: %s", text)
		}
	}
	if after := s.ok("history", "-o", "json"); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestAnEditThatIsNotAcceptableIsShownAgainWithTheReason(t *testing.T) {
	s := newSite(t)
	s.written()
	for script, want := range map[string]string{
		`sed -i 's/outerVlan: .*/outerVlan: 5000/' "$1"`: "access.outerVlan",
		`sed -i 's/name: alice/name: carol/' "$1"`:       "the file does not hold Session/alice and nothing else",
		`sed -i 's/kind: Session/kind: [/' "$1"`:         "kind: [",
	} {
		dir := editor(t, script)
		errs := s.fails("", "edit", "session/alice")
		if !strings.Contains(errs, "nothing is applied; the file is "+dir+"/sluice-edit-") {
			t.Errorf("%s: %s", script, errs)
		}
		if text := left(t, dir); !strings.Contains(text, "# It was not applied:\n") || !strings.Contains(text, want) {
			t.Errorf("%s: the file is %s", script, text)
		}
	}
	// The second edit mends the error.
	editor(t, `if grep -q 'outerVlan: 5000' "$1"; then sed -i 's/outerVlan: 5000/outerVlan: 412/' "$1"; else sed -i 's/outerVlan: .*/outerVlan: 5000/' "$1"; fi`)
	if out := s.ok("edit", "session/alice"); !strings.Contains(out, "Session/alice updated") {
		t.Error(out)
	}
}

func TestAnEditOfAnObjectThatChangedMeanwhileIsRefused(t *testing.T) {
	s := newSite(t)
	s.written()
	marks := t.TempDir()
	dir := editor(t, fmt.Sprintf(`touch %[1]s/open; until [ -e %[1]s/go ]; do sleep 0.01; done; sed -i 's/outerVlan: .*/outerVlan: 411/' "$1"`, marks))
	ended := make(chan string)
	go func() { ended <- s.fails("", "edit", "session", "alice") }()
	eventually(t, "the editor is open", func() bool {
		_, err := os.Stat(marks + "/open")
		return err == nil
	})
	s.feed(strings.ReplaceAll(s.ok("get", "session", "alice", "-o", "yaml"), "city: bonn", "city: ulm"), "apply", "-f", "-")
	if err := os.WriteFile(marks+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if errs := <-ended; !strings.Contains(errs, "Session/alice changed while you edited it; edit it again") {
		t.Error(errs)
	}
	if text := left(t, dir); !strings.Contains(text, "outerVlan: 411") {
		t.Errorf("the file is %s", text)
	}
}

func TestAnEditChangesOneOwnersLayer(t *testing.T) {
	s := newSite(t)
	s.written()
	s.feed("apiVersion: sluice.dev/v1\nkind: Vrf\nmetadata: {name: blue}\nspec: {description: lab's}\n", "apply", "-f", "-", "--owner", "lab")
	editor(t, `sed -i "s/lab's/ours/" "$1"`)
	if errs := s.fails("", "edit", "vrf", "blue"); !strings.Contains(errs, "this owner has no fields of Vrf/blue; its owners are: lab.") {
		t.Error(errs)
	}
	s.ok("edit", "vrf", "blue", "--owner", "lab")
	if out := s.ok("get", "vrf", "blue", "-o", "jsonpath=spec.description"); out != "ours\n" {
		t.Error(out)
	}
	if errs := s.fails("", "edit", "vrf", "blu"); !strings.Contains(errs, "did you mean blue?") {
		t.Error(errs)
	}
}
