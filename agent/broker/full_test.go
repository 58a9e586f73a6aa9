// SPDX-License-Identifier: Apache-2.0

package broker

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"sluice.dev/sluice/agent/northbound"
)

// onError is called when an error is logged.
type onError struct {
	slog.Handler
	call func()
}

func (o onError) Enabled(context.Context, slog.Level) bool { return true }

func (o onError) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelError {
		o.call()
	}
	return nil
}

func TestOnAFullDiskMessagesWaitUntilThereIsRoom(t *testing.T) {
	directory := t.TempDir()
	if err := syscall.Mount("none", directory, "tmpfs", 0, "size=8k"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(directory, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	full := make(chan struct{})
	s := newScene(t)
	s.hush()
	log := slog.New(onError{slog.DiscardHandler, sync.OnceFunc(func() { close(full) })})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		e := northbound.Environment{Name: "broker", Intent: s.desired, Registry: s.registry, Log: log}
		if err := Run(ctx, e, s.carrier, Settings{Memory: filepath.Join(directory, "messages.db")}); err != nil {
			t.Error(err)
		}
	}()
	defer running.Wait()
	defer cancel()
	s.send(message(meter("a", "1M"), "revision", "1"))
	<-full
	if err := syscall.Mount("none", directory, "tmpfs", syscall.MS_REMOUNT, "size=10m"); err != nil {
		t.Fatal(err)
	}
	until(t, "all acknowledged", s.allAcknowledged)
	s.hasRates(map[string]string{"a": "1M"})
}
