// SPDX-License-Identifier: Apache-2.0

// Package port follows the links of ports as data planes report them. A port without a link is applied and not ready.
package port

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// LinkDown is the reason of a Ready condition that does not hold because the port has no link.
const LinkDown = "LinkDown"

type outage struct {
	since time.Time
	why   string
}

// Links holds the ports without a link.
type Links struct {
	mu sync.RWMutex
	// By the data plane's name and the port's.
	down map[string]map[string]outage
}

// NewLinks returns Links of which nothing is known: none is down.
func NewLinks() *Links { return &Links{down: map[string]map[string]outage{}} }

// NotReady returns the reason why a port in a data plane does not serve, or the zero value if it serves.
func (l *Links) NotReady(dataplane string, stored *object.StoredObject) intent.NotReady {
	if stored.Key().Kind != "Port" {
		return intent.NotReady{}
	}
	l.mu.RLock()
	o, is := l.down[dataplane][stored.Key().Name]
	l.mu.RUnlock()
	if !is {
		return intent.NotReady{}
	}
	message := "the link is down since " + o.since.UTC().Format(time.RFC3339)
	if o.why != "" {
		message += ": " + o.why
	}
	return intent.NotReady{Reason: LinkDown, Message: message, Since: o.since, External: true}
}

// Follow processes events of links until the context or the connection ends. Afterwards no link is known to be down.
func (l *Links) Follow(ctx context.Context, f service.Followed) {
	defer func() {
		l.mu.Lock()
		delete(l.down, f.Name)
		l.mu.Unlock()
	}()
	f.Follow(ctx, service.Events{
		What: "links of ports",
		Look: func(ctx context.Context) error { return l.look(ctx, f) },
		Hear: func(e *api.Event) {
			if link := e.GetPortLink(); link != nil {
				l.update(f, link.GetPort(), link.GetUp(), link.GetWhy(), time.Now())
			}
		},
	})
}

// look asks for the links of all ports.
func (l *Links) look(ctx context.Context, f service.Followed) error {
	all, err := dataplane.Ask[*api.PortCountersList](ctx, f.Client, &api.PortCountersQuery{})
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, p := range all.GetPorts() {
		there[p.GetPort()] = true
		l.update(f, p.GetPort(), p.GetLinkUp(), p.GetLinkWhy(), time.Now())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name := range l.down[f.Name] {
		if !there[name] {
			delete(l.down[f.Name], name)
		}
	}
	return nil
}

// update stores a link's state, and publishes a change.
func (l *Links) update(f service.Followed, name string, up bool, why string, now time.Time) {
	l.mu.Lock()
	before, was := l.down[f.Name][name]
	o := outage{now, why}
	if was {
		o.since = before.since
	}
	same := was == !up && (up || o == before)
	switch {
	case same:
	case up:
		delete(l.down[f.Name], name)
	default:
		if l.down[f.Name] == nil {
			l.down[f.Name] = map[string]outage{}
		}
		l.down[f.Name][name] = o
	}
	l.mu.Unlock()
	if same {
		return
	}
	if up {
		f.Log.Info("the link of a port is up again", "port", name, "after", fmt.Sprint(now.Sub(before.since).Round(time.Millisecond)))
	} else {
		f.Log.Warn("the link of a port is down", "port", name, "why", why)
	}
	f.Intent.Touched(object.Key{Kind: "Port", Name: name})
}
