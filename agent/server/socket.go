// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// listen makes the Unix socket, for this user alone. It replaces the socket of a dead agent, but not one with a
// listener.
func listen(path string) (net.Listener, error) {
	is, err := os.Lstat(path)
	switch {
	case err == nil && is.Mode()&fs.ModeSocket == 0:
		return nil, fmt.Errorf("%s: it is there, and is not a socket; remove it, or choose another with --listen", path)
	case err == nil:
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("%s: another agent listens there; end it, or choose another socket with --listen", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing the socket that an earlier agent left: %w", err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	// The mode must be right from the first moment on.
	before := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("listening at %s: %w", path, err)
	}
	return l, nil
}
