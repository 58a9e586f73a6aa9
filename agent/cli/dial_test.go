// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAClientWaitsForAnAgentThatHasManyToAccept(t *testing.T) {
	dir, err := os.MkdirTemp("", "sl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	// A socket that accepts only one waiting client.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	full := func() bool {
		client, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(client) })
		return errors.Is(unix.Connect(client, &unix.SockaddrUnix{Name: path}), syscall.EAGAIN)
	}
	for !full() {
	}
	connected := make(chan error, 1)
	go func() {
		c, err := dialUnix(t.Context(), "unix://"+path)
		if err == nil {
			c.Close()
		}
		connected <- err
	}()
	var accepted []int
	for {
		select {
		case err := <-connected:
			if err != nil {
				t.Errorf("it gave up: %v", err)
			}
			for _, c := range accepted {
				unix.Close(c)
			}
			return
		default:
			if c, _, err := unix.Accept4(fd, unix.SOCK_NONBLOCK); err == nil {
				accepted = append(accepted, c)
			}
			_ = unix.SetNonblock(fd, true)
		}
	}
}

func TestAMissingAgentIsReportedAtOnce(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]error{filepath.Join(dir, "none"): syscall.ENOENT, stale(t): syscall.ECONNREFUSED} {
		if _, err := dialUnix(t.Context(), path); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

// stale is a socket that an agent left behind.
func stale(t *testing.T) string {
	dir, err := os.MkdirTemp("", "sl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/s"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	return dir + "/s"
}

func TestVeryManyCommandsAtOnceAreAllAnswered(t *testing.T) {
	s := newSite(t)
	s.written()
	const many = 300
	changeFlags := make(chan string, many)
	for range many {
		go func() {
			out, errs, code := s.try("", "get", "sessions")
			if code == 0 && strings.Contains(out, "alice") {
				errs = ""
			}
			changeFlags <- errs
		}()
	}
	for range many {
		if errs := <-changeFlags; errs != "" {
			t.Error(errs)
		}
	}
}
