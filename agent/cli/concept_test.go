// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/command"
	"sluice.dev/sluice/agent/service"
)

func TestServicesHaveCommands(t *testing.T) {
	definition := service.Definition{Name: "toy", Commands: func(l command.Line) []*cobra.Command {
		toy := &cobra.Command{Use: "toy", Short: "Play", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
		toy.AddCommand(&cobra.Command{Use: "wind TOY", Short: "Wind up a toy", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, names []string) error {
			_, err := l.Out().Write([]byte("Winding up " + names[0] + ".\n"))
			return err
		}})
		return []*cobra.Command{toy}
	}}
	for words, want := range map[string]string{
		"toy wind car":   "Winding up car.\n",
		"toy wind":       "sluice: found nothing behind `sluice toy wind`; accepted: sluice toy wind TOY; see `sluice toy wind --help`\n",
		"toy wind \x1bc": "Winding up ",
		"--help":         "Play",
	} {
		var out bytes.Buffer
		p := &program{in: strings.NewReader(""), out: &printable{to: &out}, err: &printable{to: &out}, services: []service.Definition{definition}}
		p.run(t.Context(), strings.Split(words, " "))
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%q: %q", words, out.String())
		}
	}
}

// withSessions runs a command of a program that has a service with sessions of its own.
func withSessions(t *testing.T, site *site, words ...string) (string, int) {
	definition := service.Definition{Name: "toy", Sessions: &command.Sessions{Flag: "owner", Usage: "the owner of a toy", TraceExample: "carl", CaptureExample: "ann",
		Find: func(_ context.Context, _ command.Line, name string) (string, error) {
			if name == "ann" {
				return "alice", nil
			}
			return "", errors.New("--owner " + name + ": there is none")
		}}}
	var out bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &printable{to: &out}, err: &printable{to: &out}, services: []service.Definition{definition}, now: time.Now}
	code := p.run(t.Context(), append([]string{"--agent", site.address()}, words...))
	return out.String(), code
}

func TestTraceAndCaptureFindSessionsOfServices(t *testing.T) {
	s := newSite(t)
	file := filepath.Join(t.TempDir(), "x.pcap")
	for words, want := range map[string]string{
		"trace --owner bob":                                 "--owner bob: there is none",
		"trace --owner bob --session alice":                 "use either --session or --owner",
		"capture -w " + file + " --owner bob":               "--owner bob: there is none",
		"capture -w " + file + " --owner bob --node n":      "use one of --node, --session and --owner",
		"capture -w " + file + " --owner ann --session bob": "use one of --node, --session and --owner",
		"capture -w " + file + " --node n --session bob":    "use either --node or --session",
	} {
		if out, code := withSessions(t, s, strings.Fields(words)...); code != 1 || !strings.Contains(out, want) {
			t.Errorf("%s: %s", words, out)
		}
	}
	for words, want := range map[string][]string{
		"trace --help":   {"sluice trace [--session NAME | --owner NAME] [FILTER]", "  sluice trace --owner carl\n", "instead of --session: the owner of a toy"},
		"capture --help": {"sluice capture [--node NODE | --session NAME | --owner NAME] -w FILE|- [FILTER]", "  sluice capture --owner ann -w alice.pcap\n"},
	} {
		out, _ := withSessions(t, s, strings.Fields(words)...)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: %s is missing in\n%s", words, w, out)
			}
		}
	}
	if out := s.ok("trace", "--help"); !strings.Contains(out, "sluice trace [--session NAME] [FILTER]") {
		t.Error(out)
	}
}
