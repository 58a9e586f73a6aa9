// SPDX-License-Identifier: Apache-2.0

// Package gtpu follows the paths to user plane functions (TS 29.281 section 7.2) that data planes report, and derives
// each session's status from the path of its tunnel. It keeps no state of sessions: a session's status is computed
// when it is read, and a path that goes down is one event, whatever its number of sessions.
package gtpu

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// Down is the state of a path, as the data plane calls it, that answered once and no longer does.
const Down = "down"

// gone is the state of a path that was down and that no tunnel uses any more.
const gone = "gone"

const pathsPage = 5000

type path struct {
	vrf           string
	local, remote netip.Addr
}

type outage struct {
	since time.Time
	// Name of the GtpuPeer; empty: there is none.
	peer string
}

// Paths holds the paths that are down.
type Paths struct {
	mu sync.RWMutex
	// By the data plane's name; there is none without a path.
	down map[string]map[path]outage
}

// New returns Paths of which nothing is known: none is down.
func New() *Paths { return &Paths{down: map[string]map[path]outage{}} }

// pathOf returns the zero path for invalid addresses.
func pathOf(vrf, local, remote string) path {
	ours, err := netip.ParseAddr(local)
	if err != nil {
		return path{}
	}
	theirs, err := netip.ParseAddr(remote)
	if err != nil {
		return path{}
	}
	if vrf == "" {
		vrf = "default"
	}
	return path{vrf, ours, theirs}
}

// NotReady returns the reason why a session in a data plane does not serve, or the zero value if it serves.
func (p *Paths) NotReady(dataplane string, kept *object.StoredObject) intent.NotReady {
	if kept.KindName() != "Session" {
		return intent.NotReady{}
	}
	if !p.any(dataplane) {
		return intent.NotReady{}
	}
	session, ok := kept.Object().Spec.(*api.Session)
	if !ok || session.GetGtpu() == nil {
		return intent.NotReady{}
	}
	g := session.GetGtpu()
	at := pathOf(g.GetVrf(), g.GetLocalAddress(), g.GetRemoteAddress())
	p.mu.RLock()
	o, is := p.down[dataplane][at]
	p.mu.RUnlock()
	if !is {
		return intent.NotReady{}
	}
	who := at.remote.String()
	if o.peer != "" {
		who = "GtpuPeer/" + o.peer + " (" + who + ")"
	}
	return intent.NotReady{Reason: "PathDown", Message: fmt.Sprintf("the path to %s is down since %s", who, o.since.UTC().Format(time.RFC3339)), Since: o.since, External: true}
}

// Follow processes events of paths until the context or the connection ends. Afterwards no path is known to be down.
func (p *Paths) Follow(ctx context.Context, l service.Followed) {
	defer func() {
		p.mu.Lock()
		delete(p.down, l.Name)
		p.mu.Unlock()
	}()
	l.Follow(ctx, service.Events{
		What: "paths to user plane functions",
		Look: func(ctx context.Context) error { return p.look(ctx, l) },
		// There is no event for a deleted path.
		Again: func() bool { return p.any(l.Name) },
		Hear: func(e *api.Event) {
			if c := e.GetGtpuPath(); c != nil {
				p.update(l, pathOf(c.GetVrf(), c.GetLocalAddress(), c.GetRemoteAddress()), c.GetState(), time.Now(), peersOf(l.Intent))
			}
		},
	})
}

func (p *Paths) any(dataplane string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.down[dataplane]) > 0
}

// look asks for all paths.
func (p *Paths) look(ctx context.Context, l service.Followed) error {
	there, peers := map[path]bool{}, peersOf(l.Intent)
	for q := (&api.GtpuPathsQuery{Limit: pathsPage}); ; {
		page, err := dataplane.Ask[*api.GtpuPaths](ctx, l.Client, q)
		if err != nil {
			return err
		}
		for _, one := range page.GetPaths() {
			at := pathOf(one.GetVrf(), one.GetLocalAddress(), one.GetRemoteAddress())
			there[at] = true
			p.update(l, at, one.GetState(), time.Unix(0, int64(one.GetChanged())), peers)
		}
		if page.GetNextPage() == "" || page.GetNextPage() == q.GetPage() {
			break
		}
		q.Page = page.GetNextPage()
	}
	var away []path
	p.mu.RLock()
	for at := range p.down[l.Name] {
		if !there[at] {
			away = append(away, at)
		}
	}
	p.mu.RUnlock()
	for _, at := range away {
		p.update(l, at, gone, time.Now(), peers)
	}
	return nil
}

// update stores a path's state, and publishes an event if the path goes down or comes up.
func (p *Paths) update(l service.Followed, at path, state string, since time.Time, peers map[peer]string) {
	if at == (path{}) {
		return
	}
	p.mu.RLock()
	before, was := p.down[l.Name][at]
	p.mu.RUnlock()
	is := state == Down
	if was == is && !is {
		return
	}
	o := outage{since, peers[peer{at.vrf, at.remote}]}
	if was && is {
		// Only its name may be another.
		if o.since = before.since; o == before {
			return
		}
	}
	p.mu.Lock()
	if is {
		if p.down[l.Name] == nil {
			p.down[l.Name] = map[path]outage{}
		}
		p.down[l.Name][at] = o
	} else if delete(p.down[l.Name], at); len(p.down[l.Name]) == 0 {
		delete(p.down, l.Name)
	}
	p.mu.Unlock()
	if was == is {
		return
	}
	log := l.Log.With("vrf", at.vrf, "local", at.local.String(), "remote", at.remote.String(), "peer", o.peer)
	switch state {
	case Down:
		log.Warn("the path to a user plane function is down")
	case gone:
		log.Info("no tunnel uses the path to a user plane function any more, which was down")
	default:
		log.Info("the path to a user plane function is down no longer")
	}
	l.Intent.Report(pathEvent(l.Name, at, o.peer, state))
}

// pathEvent is the event of a path that went down or came up, or that no tunnel uses any more. There is no event for each session that uses it; their
// readiness changes. The peer is the name of the GtpuPeer; it may be empty.
func pathEvent(dataplane string, at path, peer, state string) *intent.ServiceEvent {
	local, remote := at.local.String(), at.remote.String()
	to, is := remote, "is "+state
	if peer != "" {
		to = "GtpuPeer/" + peer + " (" + remote + ")"
	}
	switch state {
	case Down:
		is = "is down, and sessions on it are not ready,"
	case gone:
		is = "is used by no session any more"
	}
	return &intent.ServiceEvent{Type: "path", Kind: "GtpuPath", Name: remote, State: state,
		Fields: []intent.EventField{{Name: "dataplane", Value: dataplane}, {Name: "vrf", Value: at.vrf}, {Name: "localAddress", Value: local},
			{Name: "remoteAddress", Value: remote}, {Name: "peer", Value: peer}},
		Text: "The path from " + local + " in " + dataplane + " to " + to + " " + is}
}

// peer is the identity of a GtpuPeer.
type peer struct {
	vrf    string
	remote netip.Addr
}

// peersOf returns the names of all GtpuPeers.
func peersOf(desired service.Intent) map[peer]string {
	names := map[peer]string{}
	for q := (intent.Query{Kinds: []string{"GtpuPeer"}, Limit: intent.LargestPage}); ; {
		page, err := desired.List(q)
		if err != nil {
			return names
		}
		for _, st := range page.Objects {
			if st.Object == nil {
				continue
			}
			if spec, ok := st.Object.Spec.(*api.GtpuPeer); ok {
				at := pathOf(spec.GetVrf(), spec.GetAddress(), spec.GetAddress())
				names[peer{at.vrf, at.remote}] = st.Key.Name
			}
		}
		if q.After = page.Next; q.After == "" {
			return names
		}
	}
}
