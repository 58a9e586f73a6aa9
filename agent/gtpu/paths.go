// Package gtpu follows the paths to user plane functions (TS 29.281 section 7.2) as data planes tell of them, and knows of each session
// whether the path of its tunnel is down. Nothing is kept of a session: whoever asks how it stands with one is told what is so now, and
// that a path went down is one event, however many sessions are on it.
package gtpu

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Down is the state of a path, as the data plane calls it, that answered once and no longer does.
const Down = "down"

// gone is told of a path that was down and that no tunnel uses any more.
const gone = "gone"

const (
	pathsPage = 5000
	// While a path is down it is looked now and then whether it is still there: that a path went away is not told.
	lookAgain = 5 * time.Second
)

type path struct {
	vrf           string
	local, remote netip.Addr
}

type outage struct {
	since time.Time
	// Name of the GtpuPeer; empty: there is none.
	peer string
}

// Paths knows which paths are down.
type Paths struct {
	mu sync.RWMutex
	// By the data plane's name; there is none without a path.
	down map[string]map[path]outage
}

// New returns Paths of which nothing is known: none is down.
func New() *Paths { return &Paths{down: map[string]map[path]outage{}} }

// pathOf returns the zero path for what is no path.
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

// Hindrance says why a session does not serve in a data plane although it has it: a word and a sentence, both empty if it does serve.
func (p *Paths) Hindrance(dataplane string, kept *object.Kept) (reason, message string) {
	if kept.Key().Kind != "Session" {
		return "", ""
	}
	if !p.any(dataplane) {
		return "", ""
	}
	session, ok := kept.Object().Spec.(*api.Session)
	if !ok || session.GetGtpu() == nil {
		return "", ""
	}
	g := session.GetGtpu()
	at := pathOf(g.GetVrf(), g.GetLocalAddress(), g.GetRemoteAddress())
	p.mu.RLock()
	o, is := p.down[dataplane][at]
	p.mu.RUnlock()
	if !is {
		return "", ""
	}
	who := at.remote.String()
	if o.peer != "" {
		who = "GtpuPeer/" + o.peer + " (" + who + ")"
	}
	return "PathDown", fmt.Sprintf("the path to %s is down since %s", who, o.since.UTC().Format(time.RFC3339))
}

// Link is one data plane that is followed.
type Link struct {
	Name   string
	Client *dataplane.Client
	Intent *intent.Desired
	Log    *slog.Logger
}

// Follow hears of paths until the context ends, as it does with the connection. After that none is known to be down.
func (p *Paths) Follow(ctx context.Context, l Link) {
	defer func() {
		p.mu.Lock()
		delete(p.down, l.Name)
		p.mu.Unlock()
	}()
	for ctx.Err() == nil {
		if err := p.follow(ctx, l); err != nil && ctx.Err() == nil {
			l.Log.Warn("paths to user plane functions cannot be followed; trying again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(lookAgain):
			}
		}
	}
}

// follow never ends without an error.
func (p *Paths) follow(ctx context.Context, l Link) error {
	stream, err := l.Client.Watch(ctx, &api.Watch{})
	if err != nil {
		return err
	}
	defer stream.Close()
	lost := stream.Lost()
	if err := p.look(ctx, l); err != nil {
		return err
	}
	next := time.Now().Add(lookAgain)
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
		case err == nil:
			if c := reply.GetEvent().GetGtpuPath(); c != nil {
				p.heard(l, pathOf(c.GetVrf(), c.GetLocalAddress(), c.GetRemoteAddress()), c.GetState(), time.Now(), peersOf(l.Intent))
			}
		}
		now := stream.Lost()
		again := now != lost || reply.GetEvent().GetLost() > 0 || late && p.any(l.Name)
		lost = now
		if again {
			if err := p.look(ctx, l); err != nil {
				return err
			}
		}
		if again || late {
			next = time.Now().Add(lookAgain)
		}
	}
}

func (p *Paths) any(dataplane string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.down[dataplane]) > 0
}

// look asks for all paths.
func (p *Paths) look(ctx context.Context, l Link) error {
	there, peers := map[path]bool{}, peersOf(l.Intent)
	for q := (&api.GtpuPathsQuery{Limit: pathsPage}); ; {
		page, err := l.Client.GtpuPaths(ctx, q)
		if err != nil {
			return err
		}
		for _, one := range page.GetPaths() {
			at := pathOf(one.GetVrf(), one.GetLocalAddress(), one.GetRemoteAddress())
			there[at] = true
			p.heard(l, at, one.GetState(), time.Unix(0, int64(one.GetChanged())), peers)
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
		p.heard(l, at, gone, time.Now(), peers)
	}
	return nil
}

// heard takes note of a path's state, and tells if it went down, or is down no longer.
func (p *Paths) heard(l Link, at path, state string, since time.Time, peers map[peer]string) {
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
	l.Intent.PathChanged(&intent.PathChange{Dataplane: l.Name, VRF: at.vrf, Local: at.local.String(), Remote: at.remote.String(),
		Peer: o.peer, State: state})
}

// peer is what a GtpuPeer is about.
type peer struct {
	vrf    string
	remote netip.Addr
}

// peersOf returns the names of all GtpuPeers.
func peersOf(desired *intent.Desired) map[peer]string {
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
