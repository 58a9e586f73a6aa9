// SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// downed hears that its association is down.
type downed chan string

func (downed) Up(uint16, uint16)              {}
func (downed) Restarted(uint16, uint16)       {}
func (downed) Message(uint16, uint32, []byte) {}
func (downed) Path(netip.Addr, bool)          {}
func (d downed) Down(reason string)           { d <- reason }

func TestAProgramThatTakesNothingIsKilled(t *testing.T) {
	program := filepath.Join(t.TempDir(), "hangs")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	transport, err := Start(context.Background(), program, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	down := make(downed, 1)
	a, err := transport.Open(Config{Remote: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Port: 38412, Streams: 2, Heartbeat: time.Second}, down)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = a.Send(0, 60, make([]byte, MaxMessage))
	}
	if !errors.Is(err, ErrDown) {
		t.Error(err)
	}
	<-down
	<-transport.Done()
}
