// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The tests' program is also Sluice, for tests that need a separate process.
const isSluice = "SLUICE_TEST_IS_SLUICE"

func TestMain(m *testing.M) {
	if os.Getenv(isSluice) != "" {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

type process struct {
	command *exec.Cmd
	log     bytes.Buffer
}

// launch starts `sluice agent` and waits until it serves.
func (s *site) launch(options ...string) *process {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	// As where core dumps are allowed.
	p := &process{command: exec.Command("sh", append([]string{"-c", `ulimit -c unlimited; echo 0x33 >/proc/self/coredump_filter; exec "$0" "$@"`, self, "agent", "--listen", s.address(),
		"--dataplane", "unix://" + s.plane.Path, "--store", s.dir + "/process.db"}, options...)...)}
	p.command.Env = append(os.Environ(), isSluice+"=1")
	p.command.Stderr = &p.log
	if err := p.command.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { p.end(syscall.SIGKILL) })
	eventually(s.t, "the agent serves", func() bool {
		out, _, code := s.try("", "version")
		return code == 0 && strings.Contains(out, "data plane  fake")
	})
	return p
}

func (p *process) end(by syscall.Signal) error {
	if err := p.command.Process.Signal(by); err != nil {
		return err
	}
	return p.command.Wait()
}

func TestAnAgentThatWasKilledGoesOnWhereItWas(t *testing.T) {
	s := newSite(t)
	s.stop()
	first := s.launch()
	s.written()
	first.end(syscall.SIGKILL)
	if _, err := os.Lstat(s.dir + "/agent.sock"); err != nil {
		t.Errorf("a killed agent leaves its socket: %v", err)
	}
	second := s.launch()
	if got := s.ok("plan", "-f", bng); got != "Nothing to change.\n" {
		t.Errorf("after the kill: %s", got)
	}
	eventually(t, "everything is known to be applied", func() bool { return !strings.Contains(s.ok("get", "all"), "pending") })
	if log := s.plane.Log(); len(log) != 0 {
		t.Errorf("the data plane was told: %v", log)
	}

	// Another may not take its place while it is alive.
	self, _ := os.Executable()
	rival := exec.Command(self, "agent", "--listen", s.address(), "--store", s.dir+"/rival.db")
	rival.Env = append(os.Environ(), isSluice+"=1")
	out, err := rival.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another agent listens there") {
		t.Errorf("a second agent: %v, %s", err, out)
	}

	// A watch must not delay the end.
	end, _ := s.background("get", "all", "-w")
	time.Sleep(10 * time.Millisecond)
	if err := second.end(syscall.SIGTERM); err != nil {
		t.Errorf("at SIGTERM: %v\n%s", err, second.log.String())
	}
	end()
	if _, err := os.Lstat(s.dir + "/agent.sock"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if got := s.plane.Objects(); !slices.Equal(got, bngObjects) {
		t.Errorf("the data plane has %v", got)
	}
}

func TestAnAgentMakesNoCoreDumpsUnlessItMay(t *testing.T) {
	for _, c := range []struct{ option, limit, filter string }{{"--core-dumps=false", "0", "00000000"}, {"--core-dumps", "unlimited", "00000033"}} {
		s := newSite(t)
		s.stop()
		p := s.launch(c.option)
		read := func(name string) string {
			text, err := os.ReadFile("/proc/" + strconv.Itoa(p.command.Process.Pid) + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(string(text))
		}
		_, line, _ := strings.Cut(read("limits"), "Max core file size")
		if words := strings.Fields(line); len(words) < 2 || words[0] != c.limit || words[1] != c.limit {
			t.Errorf("%s: the limit of core dumps is %q", c.option, strings.Join(words[:min(2, len(words))], " "))
		}
		if filter := read("coredump_filter"); filter != c.filter {
			t.Errorf("%s: the filter of core dumps is %s", c.option, filter)
		}
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
}
