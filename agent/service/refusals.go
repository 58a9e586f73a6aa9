// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// RefusalInterval is the time between two lines of Refusals.
const RefusalInterval = 10 * time.Second

// Refusals limits log lines that peers cause at will: one in RefusalInterval. The zero value is ready, also for concurrent use.
type Refusals struct {
	mu       sync.Mutex
	next     time.Time
	unlogged int
}

// Warn logs a line, or counts it for the next one.
func (r *Refusals) Warn(log *slog.Logger, now time.Time, message string, attributes ...slog.Attr) {
	r.mu.Lock()
	if now.Before(r.next) {
		r.unlogged++
		r.mu.Unlock()
		return
	}
	attributes = append(attributes, slog.Int("unlogged", r.unlogged))
	r.unlogged, r.next = 0, now.Add(RefusalInterval)
	r.mu.Unlock()
	log.LogAttrs(context.Background(), slog.LevelWarn, message, attributes...)
}
