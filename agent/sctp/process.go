// SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// A sluice-sctp that takes no command for so long hangs, and is killed.
	writeTime = 2 * time.Second
	// How long one may take to end.
	endTime = 5 * time.Second
)

// Transport is a running sluice-sctp.
type Transport struct {
	fd      int
	log     *slog.Logger
	command *exec.Cmd
	done    chan struct{}

	mu           sync.Mutex
	next         uint32
	associations map[uint32]*Association
	ended        bool
	// A local address was added to the host after the program's start.
	stale   bool
	retired bool
}

// Association is an opened association. It may not be up yet.
type Association struct {
	transport *Transport
	id        uint32
	handler   Handler
	// How often the peer started anew. Guarded by transport.mu.
	restarts uint32
}

// Program is the path of sluice-sctp: beside this program, or in PATH.
func Program() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "sluice-sctp")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	found, err := exec.LookPath("sluice-sctp")
	if err != nil {
		return "", fmt.Errorf("sluice-sctp is neither beside this program nor in the path: %w", err)
	}
	return found, nil
}

// StackVariable is the environment variable with the SCTP stack of the program: the kernel's, libusrsctp, or (auto, the default) the kernel's if
// it has one, else libusrsctp.
const StackVariable = "SLUICE_SCTP"

func stack() (string, error) {
	switch set := os.Getenv(StackVariable); set {
	case "":
		return "auto", nil
	case "auto", "kernel", "libusrsctp":
		return set, nil
	default:
		return "", fmt.Errorf("%s %q: accepted: auto, kernel, libusrsctp", StackVariable, set)
	}
}

// Start runs the program. Its associations end with the context, or when it dies; Done is closed then. The log gets the name of its SCTP stack.
func Start(ctx context.Context, program string, log *slog.Logger) (*Transport, error) {
	stack, err := stack()
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("a socket for sluice-sctp: %w", err)
	}
	for _, fd := range pair {
		for _, option := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 4<<20)
		}
	}
	timeout := unix.NsecToTimeval(int64(writeTime))
	if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return nil, fmt.Errorf("a socket for sluice-sctp: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "agent")
	defer theirs.Close()
	t := &Transport{fd: pair[0], log: log, done: make(chan struct{}), associations: map[uint32]*Association{}}
	t.command = exec.Command(program, stack)
	t.command.ExtraFiles = []*os.File{theirs}
	t.command.Stderr = os.Stderr
	if err := t.command.Start(); err != nil {
		unix.Close(pair[0])
		return nil, fmt.Errorf("start sluice-sctp: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = unix.Shutdown(t.fd, unix.SHUT_RDWR) })
	go func() {
		t.read()
		stop()
		t.end()
	}()
	return t, nil
}

// Done is closed when the process is gone, and all associations are down.
func (t *Transport) Done() <-chan struct{} { return t.done }

func (t *Transport) read() {
	buffer := make([]byte, head+6+MaxMessage)
	for {
		count, err := unix.Read(t.fd, buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || count < head {
			return
		}
		if buffer[0] == eventStack {
			t.log.Info("SCTP runs", "stack", string(buffer[head:count]))
			continue
		}
		id := binary.BigEndian.Uint32(buffer[1:])
		t.mu.Lock()
		a := t.associations[id]
		t.mu.Unlock()
		if a == nil {
			continue
		}
		data := append([]byte{}, buffer[head:count]...)
		if buffer[0] == eventDown {
			// The handler may open the next one.
			t.mu.Lock()
			delete(t.associations, id)
			t.stale = t.stale || strings.HasPrefix(string(data), localAddress)
			t.endIfIdle()
			t.mu.Unlock()
		}
		if buffer[0] == eventRestart {
			t.mu.Lock()
			a.restarts++
			t.mu.Unlock()
		}
		deliver(a.handler, buffer[0], data)
	}
}

// localAddress begins the reason of an association whose local address the program does not know.
const localAddress = "local address: "

// Stale reports whether an association failed because the program does not know its local address. libusrsctp reads the host's addresses when it
// starts: another process knows those that were added since. The kernel always knows them.
func (t *Transport) Stale() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stale
}

// Retire ends the process after its last association.
func (t *Transport) Retire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retired = true
	t.endIfIdle()
}

// endIfIdle is called with the lock.
func (t *Transport) endIfIdle() {
	if t.retired && !t.ended && len(t.associations) == 0 {
		_ = unix.Shutdown(t.fd, unix.SHUT_RDWR)
	}
}

func (t *Transport) end() {
	t.mu.Lock()
	t.ended = true
	all := t.associations
	t.associations = nil
	unix.Close(t.fd)
	t.mu.Unlock()
	late := time.AfterFunc(endTime, func() { _ = t.command.Process.Kill() })
	_ = t.command.Wait()
	late.Stop()
	for _, a := range all {
		a.handler.Down("sluice-sctp ended")
	}
	close(t.done)
}

// Open begins an association. Its events go to the handler.
func (t *Transport) Open(c Config, h Handler) (*Association, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, ErrDown
	}
	t.next++
	a := &Association{transport: t, id: t.next, handler: h}
	b, err := c.packet(a.id)
	if err != nil {
		return nil, err
	}
	t.associations[a.id] = a
	if err := t.write(b); err != nil {
		delete(t.associations, a.id)
		return nil, err
	}
	return a, nil
}

// write is called with the lock.
func (t *Transport) write(b []byte) error {
	if t.ended {
		return ErrDown
	}
	for {
		_, err := unix.SendmsgN(t.fd, b, nil, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) {
			t.log.Error("sluice-sctp hangs, and is killed")
			_ = t.command.Process.Kill()
			return ErrDown
		}
		return err
	}
}

func (a *Association) write(b []byte) error {
	a.transport.mu.Lock()
	defer a.transport.mu.Unlock()
	if a.transport.associations[a.id] == nil {
		return ErrDown
	}
	return a.transport.write(b)
}

// Send sends a message. It does not wait for the peer; an association whose peer takes nothing for long goes down.
func (a *Association) Send(stream uint16, protocol uint32, message []byte) error {
	if len(message) == 0 || len(message) > MaxMessage {
		return fmt.Errorf("a message of %d octets, not 1 to %d", len(message), MaxMessage)
	}
	b := packet(commandSend, a.id, 6+len(message))
	b = binary.BigEndian.AppendUint16(b, stream)
	b = binary.BigEndian.AppendUint32(b, protocol)
	return a.write(append(b, message...))
}

// Renew is called from Handler.Restarted: messages from now on are for the peer's new association. Earlier messages that did not arrive are dropped.
func (a *Association) Renew() {
	a.transport.mu.Lock()
	defer a.transport.mu.Unlock()
	if a.transport.associations[a.id] != nil {
		_ = a.transport.write(binary.BigEndian.AppendUint32(packet(commandRenew, a.id, 4), a.restarts))
	}
}

// Close shuts the association down after sent data has arrived; Abort at once.
func (a *Association) Close() { _ = a.write(packet(commandClose, a.id, 0)) }
func (a *Association) Abort() { _ = a.write(packet(commandAbort, a.id, 0)) }
