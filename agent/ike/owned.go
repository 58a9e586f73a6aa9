// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// Owner is a service of the agent that owns connections: it registers them with the IKE service (Server). Its methods are called one at a time and
// in the order of the events, without a lock of the IKE service. They must not block. Each done is called once, at once or later.
type Owner interface {
	// EAP takes a packet of a peer that authenticates, nil at first; done sends the next one to it.
	EAP(step EAPStep, done func(EAPAnswer))
	// EAPEnded: no packet of a conversation follows, whatever its result.
	EAPEnded(conversation uint64)
	// Finish gives an authenticated peer its addresses, first child SA and notifications.
	Finish(what FinishAuth, done func(Finished))
	// Propose decides on another child SA that the peer opens.
	Propose(what ProposeChild, done func(ChildAccepted))
	// Notified answers notifications for private use in INFORMATIONAL.
	Notified(what Notified, done func(NotifiedAnswer))

	Up(PeerUp)
	Moved(PeerMoved)
	// Down: no call for the peer follows.
	Down(PeerDown)
	ChildUp(ChildUp)
	ChildDown(ChildDown)
}

// Server is the IKE service's offer to other services of the agent: service.Find[ike.Server]. Its methods may be
// called from methods of an Owner, and while the Owner holds a lock that its methods take.
type Server interface {
	// Register makes a connection of an owner known, or changes it. The name of the connection is that of no IkeConnection. Takes says which
	// initiators at the connection's Local address are the owner's. IKE SAs of a process before are returned: they have gone on meanwhile.
	Register(c *Connection, owner Owner) ([]Peer, error)
	// Unregister deletes a connection and its IKE SAs; the owner hears of each that it is down. A service that only ends does not call it: its IKE SAs stay.
	Unregister(connection string)
	// Registered returns the names of the owned connections, with those of a previous process that are not registered
	// again.
	Registered() []string
	// OpenChild opens a child SA with a peer, with notifications in CREATE_CHILD_SA. done is called when the data plane has it.
	OpenChild(peer uint64, child *Child, notify []*message.Notify, done func(ChildOpened)) error
	// CloseChild deletes the child SAs of a peer that have a name.
	CloseChild(peer uint64, name string) error
	// Inform sends notifications in INFORMATIONAL: those with the protocol ESP get the SPI of a child SA, by its name. done gets the response.
	Inform(peer uint64, child string, notify []*message.Notify, done func(NotifyAnswered)) error
	// Close deletes an IKE SA with its child SAs.
	Close(peer uint64, why string) error
}

// owners is the part of the service that serves owned connections.
type owners struct {
	// By the name of the connection. The IKE service's lock guards it.
	of map[string]Owner
	// Outcomes that an owner waits for, by token.
	opened   map[uint64]func(ChildOpened)
	informed map[uint64]func(NotifyAnswered)
	token    uint64
	// The connections of EAP conversations.
	conversations map[uint64]string

	mu    sync.Mutex
	calls []func()
	// There is something in calls.
	called chan struct{}
}

func newOwners() *owners {
	return &owners{of: map[string]Owner{}, opened: map[uint64]func(ChildOpened){}, informed: map[uint64]func(NotifyAnswered){}, conversations: map[uint64]string{},
		called: make(chan struct{}, 1)}
}

// call has f called after all calls before.
func (o *owners) call(f func()) {
	o.mu.Lock()
	o.calls = append(o.calls, f)
	o.mu.Unlock()
	select {
	case o.called <- struct{}{}:
	default:
	}
}

// run calls owners until the context ends.
func (o *owners) run(ctx context.Context) {
	for {
		o.mu.Lock()
		all := o.calls
		o.calls = nil
		o.mu.Unlock()
		for _, f := range all {
			f()
		}
		if len(all) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-o.called:
		}
	}
}

// tell calls the owner of a connection. The IKE service's lock is held.
func (o *owners) tell(connection string, f func(Owner)) {
	if owner := o.of[connection]; owner != nil {
		o.call(func() { f(owner) })
	}
}

// carryOut passes an action to its owner, and reports whether it has one. The IKE service's lock is held.
func (o *owners) carryOut(a Action, answer func(token uint64, answer any)) bool {
	switch a := a.(type) {
	case Ask:
		return o.ask(a, answer)
	case EAPEnd:
		connection, is := o.conversations[a.Conversation]
		if is {
			delete(o.conversations, a.Conversation)
			o.tell(connection, func(owner Owner) { owner.EAPEnded(a.Conversation) })
		}
		return is
	case PeerUp:
		o.tell(a.Peer.Connection, func(owner Owner) { owner.Up(a) })
	case PeerMoved:
		o.tell(a.Peer.Connection, func(owner Owner) { owner.Moved(a) })
	case PeerDown:
		o.tell(a.Peer.Connection, func(owner Owner) { owner.Down(a) })
	case ChildUp:
		o.tell(a.Peer.Connection, func(owner Owner) { owner.ChildUp(a) })
	case ChildDown:
		o.tell(a.Peer.Connection, func(owner Owner) { owner.ChildDown(a) })
	case ChildOpened:
		if done := o.opened[a.Token]; done != nil {
			delete(o.opened, a.Token)
			o.call(func() { done(a) })
		}
	case NotifyAnswered:
		if done := o.informed[a.Token]; done != nil {
			delete(o.informed, a.Token)
			o.call(func() { done(a) })
		}
	default:
		return false
	}
	return true
}

// ask asks the owner of a connection. The IKE service's lock is held.
func (o *owners) ask(a Ask, answer func(token uint64, answer any)) bool {
	switch q := a.Question.(type) {
	case EAPStep:
		if o.of[q.Connection] == nil {
			return false
		}
		o.conversations[q.Conversation] = q.Connection
		o.tell(q.Connection, func(owner Owner) { owner.EAP(q, func(e EAPAnswer) { answer(a.Token, e) }) })
	case FinishAuth:
		o.tell(q.Peer.Connection, func(owner Owner) { owner.Finish(q, func(f Finished) { answer(a.Token, f) }) })
	case ProposeChild:
		o.tell(q.Peer.Connection, func(owner Owner) { owner.Propose(q, func(c ChildAccepted) { answer(a.Token, c) }) })
	case Notified:
		o.tell(q.Peer.Connection, func(owner Owner) { owner.Notified(q, func(n NotifiedAnswer) { answer(a.Token, n) }) })
	default:
		return false
	}
	return true
}

// registry implements Server.
type registry struct{ *serving }

// Register implements Server.
func (r registry) Register(c *Connection, owner Owner) (peers []Peer, err error) {
	if c.Dataplane == "" && len(r.Dataplanes) > 0 {
		one := *c
		one.Dataplane, c = r.Dataplanes[0], &one
	}
	r.locked(func(now time.Time) []Action {
		if r.specs[c.Name] != nil {
			err = fmt.Errorf("there is an IkeConnection %q", c.Name)
			return nil
		}
		if !c.Owned || c.Takes == nil || len(c.Proposals) == 0 {
			err = fmt.Errorf("connection %q: Owned, Takes and Proposals must be set", c.Name)
			return nil
		}
		r.forgetOwners()
		r.owners.of[c.Name] = owner
		actions := r.machine.SetConnection(c.Name, c, now)
		peers = r.machine.Peers(c.Name)
		return actions
	})
	return peers, err
}

// Unregister implements Server.
func (r registry) Unregister(connection string) {
	r.locked(func(now time.Time) []Action {
		if c := r.machine.connections[connection]; c == nil || !c.Owned {
			return nil
		}
		return r.machine.SetConnection(connection, nil, now)
	})
	r.locked(func(time.Time) []Action {
		r.forgetOwners()
		return nil
	})
}

// forgetOwners forgets the owners of deleted connections whose last IKE SA is gone: until then they hear of it. The IKE service's lock is held.
func (s *serving) forgetOwners() {
	maps.DeleteFunc(s.owners.of, func(connection string, _ Owner) bool {
		return s.machine.connections[connection] == nil && len(s.machine.used[connection]) == 0
	})
}

// Registered implements Server.
func (r registry) Registered() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, c := range r.machine.connections {
		if c.Owned {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// OpenChild implements Server.
func (r registry) OpenChild(peer uint64, child *Child, notify []*message.Notify, done func(ChildOpened)) (err error) {
	r.locked(func(now time.Time) (actions []Action) {
		r.owners.token++
		token := r.owners.token
		r.owners.opened[token] = done
		if actions, err = r.machine.OpenChild(peer, child, notify, token, now); err != nil {
			delete(r.owners.opened, token)
		}
		return actions
	})
	return err
}

// CloseChild implements Server.
func (r registry) CloseChild(peer uint64, name string) (err error) {
	r.locked(func(now time.Time) (actions []Action) {
		actions, _, err = r.machine.CloseChild(peer, name, now)
		return actions
	})
	return err
}

// Inform implements Server.
func (r registry) Inform(peer uint64, child string, notify []*message.Notify, done func(NotifyAnswered)) (err error) {
	r.locked(func(now time.Time) (actions []Action) {
		r.owners.token++
		token := r.owners.token
		r.owners.informed[token] = done
		if actions, err = r.machine.Inform(peer, child, notify, token, now); err != nil {
			delete(r.owners.informed, token)
		}
		return actions
	})
	return err
}

// Close implements Server.
func (r registry) Close(peer uint64, why string) (err error) {
	r.locked(func(now time.Time) (actions []Action) {
		actions, err = r.machine.ClosePeer(peer, why, now)
		return actions
	})
	return err
}
