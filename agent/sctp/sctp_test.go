// SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"io"
	"log/slog"
	"testing"
)

func TestTheEnvironmentChoosesTheStack(t *testing.T) {
	for set, want := range map[string]string{"": "auto", "auto": "auto", "kernel": "kernel", "libusrsctp": "libusrsctp"} {
		t.Setenv(StackVariable, set)
		if got, err := stack(); got != want || err != nil {
			t.Errorf("%q: %q, %v", set, got, err)
		}
	}
}

func TestAnUnknownStackStartsNoProgram(t *testing.T) {
	t.Setenv(StackVariable, "lksctp")
	_, err := Start(context.Background(), "/bin/true", slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err == nil || err.Error() != `SLUICE_SCTP "lksctp": accepted: auto, kernel, libusrsctp` {
		t.Error(err)
	}
}
