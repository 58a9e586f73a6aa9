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
	letters := make([]*letter, len(messages))
	for i, m := range messages {
		letters[i] = read(n.Registry, m)
	}
	if err := n.apply(ctx, letters); err != nil {
		return nil, err
	}
	var dead []Dead
	for _, l := range letters {
		if l.dead != nil {
			dead = append(dead, Dead{l.message, *l.dead})
		}
	}
	return dead, nil
}

// lastChange is the latest change of an object.
type lastChange struct {
	change object.Change
	order  Order
	// Nil: by an earlier batch.
	letter *letter
}

// apply applies acceptable letters in their order.
func (n *engine) apply(ctx context.Context, letters []*letter) error {
	known, err := n.memory.loadOrders(letters)
	if err != nil {
		return err
	}
	for {
		var alive []*letter
		for _, l := range letters {
			if l.dead == nil {
				alive = append(alive, l)
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
		// The error names no letter: the smaller halves show which one it is.
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

func (n *engine) source(letters []*letter) intent.Source {
	s := intent.Source{Owner: n.Name, Who: letters[0].message.Position}
	if len(letters) > 1 {
		s.Who += fmt.Sprintf(" to %s", letters[len(letters)-1].message.Position)
	}
	return s
}

// latest returns the latest change of each object, and the objects in the order of these changes. It leaves out
// changes that are older than the stored order.
func latest(letters []*letter, known map[object.Key]Order) (map[object.Key]lastChange, []object.Key) {
	last := map[object.Key]lastChange{}
	for _, l := range letters {
		for _, c := range l.changes {
			before, there := known[c.Key]
			if now, again := last[c.Key]; again {
				before, there = now.order, true
			}
			if there && l.order.before(before) {
				continue
			}
			order := l.order
			if order.Revision == 0 {
				order.Revision = before.Revision
			}
			last[c.Key] = lastChange{c, order, l}
		}
	}
	order := make([]object.Key, 0, len(last))
	for _, l := range letters {
		for _, c := range l.changes {
			if s, there := last[c.Key]; there && s.letter == l {
				order = append(order, c.Key)
			}
		}
	}
	return last, order
}

// blame refuses the letters that caused an error, and reports whether there are any.
func blame(last map[object.Key]lastChange, err error) bool {
	about := map[*letter]*mistakes{}
	of := func(k object.Key) *mistakes {
		s, there := last[k]
		if !there {
			return &mistakes{}
		}
		if about[s.letter] == nil {
			about[s.letter] = &mistakes{}
		}
		return about[s.letter]
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
	for l, m := range about {
		l.refuse(m.reason())
	}
	return len(about) > 0
}
