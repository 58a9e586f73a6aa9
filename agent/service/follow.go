// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Intent is a service's view of desired and observed state beyond the kinds that it follows.
type Intent interface {
	Get(k object.Key) (intent.Status, bool)
	List(q intent.Query) (*intent.Page, error)
	Events(from intent.Cursor) (*intent.Events, error)
	// Reveal returns an object with its secrets, or nil.
	Reveal(k object.Key) *object.Object
	// Report publishes an event of the service that is about no object.
	Report(e *intent.ServiceEvent)
	// Touched must be called when a service's NotReady of an object changes. It publishes an event.
	Touched(k object.Key)
}

const followInterval = time.Second

// follow reports the objects of a service's kinds to the service until the context ends.
func follow(ctx context.Context, source Intent, kinds []string, to Follower, warn func(error)) {
	known := map[object.Key]*object.Object{}
	for ctx.Err() == nil {
		err := followOnce(ctx, source, kinds, known, to)
		if ctx.Err() != nil || errors.Is(err, intent.ErrTooLate) {
			continue
		}
		warn(err)
		select {
		case <-ctx.Done():
		case <-time.After(followInterval):
		}
	}
}

// followOnce lists everything and goes on with events until they cannot be had any more.
func followOnce(ctx context.Context, source Intent, kinds []string, known map[object.Key]*object.Object, to Follower) error {
	var from intent.Cursor
	there := map[object.Key]bool{}
	follows := map[string]bool{}
	for i, kind := range kinds {
		follows[kind] = true
		for q := (intent.Query{Kinds: []string{kind}, Limit: intent.LargestPage}); ; {
			page, err := source.List(q)
			if err != nil {
				return fmt.Errorf("listing %s: %w", kind, err)
			}
			if i == 0 && q.After == "" {
				from = page.Cursor
			}
			for _, st := range page.Objects {
				there[st.Key] = true
				look(source, st.Key, known, to)
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
	}
	for k := range known {
		if !there[k] {
			look(source, k, known, to)
		}
	}
	to.Synced()
	events, err := source.Events(from)
	if err != nil {
		return err
	}
	events.Only(func(kind string) bool { return follows[kind] })
	for {
		e, err := events.Next(ctx)
		if err != nil {
			return err
		}
		look(source, e.Status.Key, known, to)
	}
}

// look reports an object to the service if it has changed.
func look(source Intent, k object.Key, known map[object.Key]*object.Object, to Follower) {
	before, now := known[k], source.Reveal(k)
	switch {
	case now == nil && before == nil:
		return
	case now == nil:
		delete(known, k)
	case before != nil && before.Equal(now):
		return
	default:
		known[k] = now
	}
	to.Follow(Change{k, now})
}
