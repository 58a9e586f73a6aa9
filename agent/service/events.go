// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"log/slog"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
)

// lookInterval is the interval between reads of state that changes without an event, and between attempts of a follower
// after an error.
const lookInterval = 5 * time.Second

// Followed is a data plane whose events are followed.
type Followed struct {
	Name   string
	Client *dataplane.Client
	Intent Intent
	Log    *slog.Logger
}

// Events are the callbacks of a follower of a data plane.
type Events struct {
	// For the log: "links of ports".
	What string
	// Look reads the whole state: at the start, after lost events, and at intervals while Again returns true. Again
	// may be nil.
	Look  func(context.Context) error
	Again func() bool
	// Hear handles an event.
	Hear func(*api.Event)
}

// Follow follows a data plane until the context ends, as it does with the connection.
func (f Followed) Follow(ctx context.Context, e Events) {
	for ctx.Err() == nil {
		if err := f.follow(ctx, e); err != nil && ctx.Err() == nil {
			f.Log.Warn(e.What+" cannot be followed; trying again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(lookInterval):
			}
		}
	}
}

// follow never ends without an error.
func (f Followed) follow(ctx context.Context, e Events) error {
	stream, err := f.Client.Watch(ctx, &api.Watch{})
	if err != nil {
		return err
	}
	defer stream.Close()
	lost := stream.Lost()
	if err := e.Look(ctx); err != nil {
		return err
	}
	next := time.Now().Add(lookInterval)
	for {
		waiting, cancel := context.WithDeadline(ctx, next)
		reply, err := stream.Next(waiting)
		late := waiting.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !late:
			return err
		case err == nil && reply.GetEvent() != nil:
			e.Hear(reply.GetEvent())
		}
		now := stream.Lost()
		again := now != lost || reply.GetEvent().GetLost() > 0 || late && e.Again != nil && e.Again()
		lost = now
		if again {
			if err := e.Look(ctx); err != nil {
				return err
			}
		}
		if again || late {
			next = time.Now().Add(lookInterval)
		}
	}
}
