// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"sluice.dev/sluice/agent/api"
)

func TestControlCharactersAreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"plain\n\ttext, Zoë ├─ …":   "plain\n\ttext, Zoë ├─ …",
		"\x1b[31mred\x07\r":         `\u001b[31mred\u0007\u000d`,
		"\x7f \u009b2J \u202etxt":   `\u007f \u009b2J \u202etxt`,
		"bad \xff\x9b end \xe2\x82": `bad \xff\x9b end \xe2\x82`,
		"a\u2028b":                  `a\u2028b`,
	} {
		// In one piece, and byte by byte.
		for _, size := range []int{len(text), 1} {
			var b bytes.Buffer
			w := &printable{to: &b}
			for i := 0; i < len(text); i += size {
				if n, err := w.Write([]byte(text[i : i+size])); n != size || err != nil {
					t.Errorf("%q: %d, %v", text, n, err)
				}
			}
			w.flush()
			if b.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q", text, size, b.String(), want)
			}
		}
	}
	if n, err := (&printable{to: iotest.TruncateWriter(nil, 0)}).Write(nil); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
}

func FuzzNothingThatATerminalWouldObeyIsWritten(f *testing.F) {
	f.Add("\x1b[2J\u202e\xc2", 1)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size = size % 5; size <= 0 {
			size = 1
		}
		var b bytes.Buffer
		w := &printable{to: &b}
		for len(text) > 0 {
			n := min(size, len(text))
			if _, err := w.Write([]byte(text[:n])); err != nil {
				t.Fatal(err)
			}
			text = text[n:]
		}
		w.flush()
		if out := b.String(); out != escaped(out, "\n\t") {
			t.Errorf("%q", out)
		}
	})
}

func TestNamesThatAreRefusedAreNotObeyedByTheTerminal(t *testing.T) {
	s := newSite(t)
	const name = "a\x1b]0;title\x07\u009b31m"
	object := fmt.Sprintf("apiVersion: sluice.dev/v1\nkind: Vrf\nmetadata: {name: %q}\n", "a\x1b[2J\nsluice: all is well")
	object = strings.NewReplacer(`\x1b`, `\e`).Replace(object)
	for _, arguments := range [][]string{{"apply", "-f", "-"}, {"plan", "-f", "-"}, {"delete", "-f", "-"}, {"get", "vrf", name}, {"get", "vrf/" + name},
		{"describe", "vrf", name}, {"delete", "vrf", name}, {"get", name}, {"graph", "vrf/" + name}, {"get", "vrfs", "-l", name}, {"drops", "--session", name},
		{"neighbors", "--interface", name}, {"get", "vrfs", "--owner", name}, {"apply", "-f", "/" + name}, {"history", "--limit", name}, {"diff", name},
		{"--" + name}, {name}, {"apply", "--plan", "/" + name}, {"--agent", name, "version"}, {"--at", name, "drops"}} {
		out, errs, _ := s.try(object, arguments...)
		if all := out + errs; all != escaped(all, "\n\t") || strings.Contains(all, "\nsluice: all is well") {
			t.Errorf("%q: %q", arguments, all)
		}
	}
}

func TestControlCharactersOfTheDataPlaneAreEscaped(t *testing.T) {
	s := newSite(t)
	s.written()
	s.plane.Count(
		&api.DropCountersList{Drops: []*api.DropCounters{{Reason: "a\x1b[2J", Description: "b\ncruel", Packets: 3}}},
		&api.NeighborStates{Neighbors: []*api.NeighborState{{Interface: "core", Address: "\x1b[1A", State: "x"}}})
	s.plane.Refuse(func(op, kind, name string) *api.Result { return &api.Result{Code: 22, Message: "no\x1b[2J"} })
	for _, arguments := range [][]string{{"drops"}, {"drops", "-o", "json"}, {"drops", "-o", "yaml"}, {"neighbors"}, {"top", "--count", "1", "--interval", "10ms"}} {
		out := s.ok(arguments...)
		if out != escaped(out, "\n\t") || strings.Contains(out, "\ncruel") {
			t.Errorf("%q: %q", arguments, out)
		}
	}
	out, errs, _ := s.try(edited(t, "mtu: 1600", "mtu: 1700"), "apply", "-f", "-")
	if all := out + errs; all != escaped(all, "\n\t") || !strings.Contains(all, `no\u001b[2J`) {
		t.Errorf("%q", all)
	}
}
