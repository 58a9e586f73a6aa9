// SPDX-License-Identifier: Apache-2.0

// Many messages into one revision, and which of them are to blame if it is refused.
package broker

import (
	"context"
	"fmt"
	"time"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// take applies the documents of messages, and returns the messages that cannot be accepted. After an error, all of them come again.
func (n *engine) take(ctx context.Context, messages []*Message) ([]Dead, error) {
	parsed := make([]*parsedMessage, len(messages))
	for i, m := range messages {
		parsed[i] = read(n.Registry, m)
	}
	if err := n.apply(ctx, parsed); err != nil {
		return nil, err
	}
	var dead []Dead
	for _, p := range parsed {
		if p.dead != nil {
			dead = append(dead, Dead{p.message, *p.dead})
		}
	}
	return dead, nil
}

// lastChange is the latest change of an object.
type lastChange struct {
	change object.Change
	order  Order
	// Nil: by an earlier batch.
	message *parsedMessage
}

// apply applies acceptable messages in their order.
func (n *engine) apply(ctx context.Context, messages []*parsedMessage) error {
	known, err := n.memory.loadOrders(messages)
	if err != nil {
		return err
	}
	for {
		var alive []*parsedMessage
		for _, p := range messages {
			if p.dead == nil {
				alive = append(alive, p)
			}
		}
		last, order := latest(alive, known)
		if len(order) == 0 {
			return nil
		}
		changes := make([]object.Change, len(order))
		for i, k := range order {
			changes[i] = last[k].change
		}
		outcome, err := n.Intent.Apply(ctx, n.source(alive), changes, intent.Options{Mode: intent.NoWait})
		if err == nil {
			n.Log.Debug("messages are stored", "messages", len(alive), "objects", len(changes), "revision", outcome.Revision)
			return n.memory.storeOrders(last, time.Now())
		}
		if mistakesOf(err).none() {
			return err
		}
		if blame(last, err) {
			continue
		}
		// The error names no message: the smaller halves show which one it is.
		if len(alive) == 1 {
			alive[0].refuse(mistakesOf(err).reason())
			return nil
		}
		if err := n.apply(ctx, alive[:len(alive)/2]); err != nil {
			return err
		}
		return n.apply(ctx, alive[len(alive)/2:])
	}
}

func (n *engine) source(messages []*parsedMessage) intent.Source {
	s := intent.Source{Owner: n.Name, Who: messages[0].message.Position}
	if len(messages) > 1 {
		s.Who += fmt.Sprintf(" to %s", messages[len(messages)-1].message.Position)
	}
	return s
}

// latest returns the latest change of each object, and the objects in the order of these changes. It leaves out
// changes that are older than the stored order.
func latest(messages []*parsedMessage, known map[object.Key]Order) (map[object.Key]lastChange, []object.Key) {
	last := map[object.Key]lastChange{}
	for _, p := range messages {
		for _, c := range p.changes {
			before, there := known[c.Key]
			if now, again := last[c.Key]; again {
				before, there = now.order, true
			}
			if there && p.order.before(before) {
				continue
			}
			order := p.order
			if order.Revision == 0 {
				order.Revision = before.Revision
			}
			last[c.Key] = lastChange{c, order, p}
		}
	}
	order := make([]object.Key, 0, len(last))
	for _, p := range messages {
		for _, c := range p.changes {
			if s, there := last[c.Key]; there && s.message == p {
				order = append(order, c.Key)
			}
		}
	}
	return last, order
}

// blame refuses the messages that caused an error, and reports whether there are any.
func blame(last map[object.Key]lastChange, err error) bool {
	about := map[*parsedMessage]*mistakes{}
	of := func(k object.Key) *mistakes {
		s, there := last[k]
		if !there {
			return &mistakes{}
		}
		if about[s.message] == nil {
			about[s.message] = &mistakes{}
		}
		return about[s.message]
	}
	all := mistakesOf(err)
	for _, c := range all.conflicts {
		one := of(c.Key)
		one.conflicts = append(one.conflicts, c)
	}
	for _, e := range all.errors {
		one := of(e.Object)
		one.errors = append(one.errors, e)
	}
	for p, m := range about {
		p.refuse(m.reason())
	}
	return len(about) > 0
}
