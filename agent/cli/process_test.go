// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
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
func (s *site) launch() *process {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &process{command: exec.Command(self, "agent", "--listen", s.address(), "--dataplane", "unix://"+s.plane.Path,
		"--store", s.dir+"/process.db")}
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
