// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"flag"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
	"sluice.dev/sluice/agent/server"
	"sluice.dev/sluice/agent/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// site is an agent with a data plane, and a place for its files.
type site struct {
	t     *testing.T
	plane *dataplanetest.Fake
	dir   string
	// Ends the agent.
	stop func()
	// Names of all kinds, as messages list them.
	kinds string
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "sl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &site{t: t, plane: dataplanetest.New(t), dir: dir}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// logWriter puts the agent's log into the test's.
type logWriter struct{ t *testing.T }

func (w logWriter) Write(line []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}

func (s *site) address() string { return "unix://" + s.dir + "/agent.sock" }

// start starts the agent, again after stop.
func (s *site) start() {
	s.t.Helper()
	registry, err := concepts.NewRegistry()
	if err != nil {
		s.t.Fatal(err)
	}
	var kinds []string
	for _, k := range registry.Kinds() {
		kinds = append(kinds, k.Name)
	}
	s.kinds = strings.Join(kinds, ", ")
	endpoint, err := dataplane.ParseEndpoint("unix://"+s.plane.Path, dataplane.Credentials{})
	if err != nil {
		s.t.Fatal(err)
	}
	intents, err := store.Open(s.dir+"/intent.db", registry)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		err := server.Run(ctx, server.Config{Listen: s.dir + "/agent.sock", Dataplanes: []server.Dataplane{{Endpoint: endpoint}}, Registry: registry, Store: intents,
			Release: "1.0", Priorities: map[string]int{"night": 10}, Log: slog.New(slog.NewTextHandler(logWriter{s.t}, nil)),
			MinBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}, func() { close(ready) })
		if err != nil {
			s.t.Error(err)
		}
	}()
	var once sync.Once
	s.stop = func() {
		once.Do(func() {
			cancel()
			<-ended
			if err := intents.Close(); err != nil {
				s.t.Error(err)
			}
		})
	}
	select {
	case <-ready:
	case <-ended:
		s.t.FailNow()
	}
	for s.away() {
		time.Sleep(time.Millisecond)
	}
}

// away reports whether the agent is without its data plane.
func (s *site) away() bool {
	s.t.Helper()
	out, errs, code := s.try("", "version")
	away := strings.Contains(out, "data plane  not connected: ")
	if away != strings.Contains(errs, "the agent is not connected to the data plane") || away != (code != 0) {
		s.t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	return away
}

// try runs a command and returns its output and exit code.
func (s *site) try(input string, arguments ...string) (out, errs string, code int) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	code = Run(s.t.Context(), append([]string{"--agent", s.address()}, arguments...), strings.NewReader(input), &stdout, &stderr)
	return s.anonymous(stdout.String()), s.anonymous(stderr.String()), code
}

// ok is try for a command that must succeed.
func (s *site) ok(arguments ...string) string { return s.feed("", arguments...) }

func (s *site) feed(input string, arguments ...string) string {
	s.t.Helper()
	out, errs, code := s.try(input, arguments...)
	if code != 0 {
		s.t.Fatalf("sluice %s: exit code %d\n%s%s", strings.Join(arguments, " "), code, out, errs)
	}
	return out
}

// later is try for a command whose change is accepted and not done yet.
func (s *site) later(input string, arguments ...string) string {
	s.t.Helper()
	out, errs, code := s.try(input, arguments...)
	if code != exitUnfinished {
		s.t.Fatalf("sluice %s: exit code %d\n%s%s", strings.Join(arguments, " "), code, out, errs)
	}
	return out + errs
}

// partly is try for a command that carries out only a part of its request.
func (s *site) partly(input string, arguments ...string) string {
	s.t.Helper()
	out, errs, code := s.try(input, arguments...)
	if code != 1 || out == "" {
		s.t.Fatalf("sluice %s: exit code %d\n%s%s", strings.Join(arguments, " "), code, out, errs)
	}
	return out
}

// fails is try for a command that must not succeed; it returns the error output.
func (s *site) fails(input string, arguments ...string) string {
	s.t.Helper()
	out, errs, code := s.try(input, arguments...)
	if code == 0 {
		s.t.Fatalf("sluice %s: exit code 0\n%s%s", strings.Join(arguments, " "), out, errs)
	}
	return errs
}

var times = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
var gaps = regexp.MustCompile(` +(\d+[smhd]\b)?`)
var ages = regexp.MustCompile(`\bfor \d+[smhd]\b`)

// anonymous replaces text that differs from run to run.
func (s *site) anonymous(text string) string {
	text = strings.ReplaceAll(text, s.dir, "DIR")
	text = strings.ReplaceAll(text, s.plane.Path, "DATAPLANE")
	text = strings.ReplaceAll(text, s.kinds, "KINDS")
	text = ages.ReplaceAllString(text, "for AGE")
	return times.ReplaceAllString(text, "TIME")
}

// background runs a command. end stops it and returns its output; out reads its output.
func (s *site) background(arguments ...string) (end func() (string, int), out io.Reader) {
	ctx, cancel := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		c := Run(ctx, append([]string{"--agent", s.address()}, arguments...), strings.NewReader(""), writer, &stderr)
		writer.Close()
		code <- c
	}()
	var once sync.Once
	last := 0
	end = func() (string, int) {
		once.Do(func() {
			cancel()
			_, _ = io.Copy(io.Discard, reader)
			last = <-code
		})
		return stderr.String(), last
	}
	s.t.Cleanup(func() { end() })
	return end, reader
}

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

// eventually waits for something that the agent does in its own time.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came to be that %s", what)
		}
	}
}
