// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a program that is measured.
type process struct {
	*exec.Cmd
	// Its output goes to a file, so that the bench spends no time on it.
	log *os.File
	end chan error
}

// start returns when the program listens on its socket.
func start(socket string, program string, arguments ...string) (*process, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	log, err := os.Create(socket + ".log")
	if err != nil {
		return nil, err
	}
	p := &process{Cmd: exec.Command(program, arguments...), log: log, end: make(chan error, 1)}
	p.Stderr = log
	// Nothing is left behind, however this program ends.
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() { p.end <- p.Wait() }()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(time.Millisecond) {
		select {
		case err := <-p.end:
			p.end <- err
			return nil, fmt.Errorf("%s ended: %w\n%s", filepath.Base(program), err, p.output())
		default:
		}
		if c, err := net.Dial("unix", socket); err == nil {
			return p, c.Close()
		}
	}
	p.kill()
	return nil, fmt.Errorf("%s does not listen\n%s", filepath.Base(program), p.output())
}

// output returns its log.
func (p *process) output() string {
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// kill ends it without a warning.
func (p *process) kill() {
	if p == nil {
		return
	}
	// It may have ended by itself.
	_ = p.Process.Signal(syscall.SIGKILL)
	p.end <- <-p.end
	p.log.Close()
}

// processor is the time that threads of a process had, in seconds: all of them, or the main thread alone.
func (p *process) processor(all bool) float64 {
	path := fmt.Sprintf("/proc/%d/task/%d/stat", p.Process.Pid, p.Process.Pid)
	if all {
		path = fmt.Sprintf("/proc/%d/stat", p.Process.Pid)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	// The program's name, which may have spaces, ends with the last parenthesis.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticks
}

// ticks a second: Linux's unit on all our architectures.
const ticks = 100

// resident is the process's memory without pages of files, in bytes.
func (p *process) resident() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, "RssAnon:"); found {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024
		}
	}
	return 0
}

// peak watches the memory of a process. The returned function ends that, and returns the maximum.
func (p *process) peak() func() float64 {
	stop, most := make(chan struct{}), make(chan float64)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		highest := p.resident()
		for {
			select {
			case <-tick.C:
				highest = max(highest, p.resident())
			case <-stop:
				most <- max(highest, p.resident())
				return
			}
		}
	}()
	return func() float64 { close(stop); return <-most }
}
