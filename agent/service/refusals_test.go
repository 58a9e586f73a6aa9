// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestRefusalsAreLoggedOnceInAWhile(t *testing.T) {
	var r Refusals
	began := time.Unix(1_800_000_000, 0)
	for i, c := range []struct {
		after time.Duration
		line  string
	}{{0, "name=0 unlogged=0"}, {0, ""}, {RefusalInterval - 1, ""}, {RefusalInterval, "name=3 unlogged=2"}, {2 * RefusalInterval, "name=4 unlogged=0"}} {
		var log bytes.Buffer
		r.Warn(slog.New(slog.NewTextHandler(&log, nil)), began.Add(c.after), "refused", slog.Int("name", i))
		if c.line == "" && log.Len() > 0 || !strings.Contains(log.String(), c.line) {
			t.Errorf("%d: %q", i, log.String())
		}
	}
}
