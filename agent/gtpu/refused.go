// SPDX-License-Identifier: Apache-2.0

package gtpu

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

const (
	// A peer answers each packet of an unknown tunnel. Without an error indication for so long, the tunnel counts as known, or has no packets.
	refusedTime = time.Minute
	// Tunnels of all peers, and of one peer.
	refusedEnds, refusedEndsOfPeer = 1 << 16, 1 << 14
	// States of a peer's tunnels in events.
	unknown, known = "unknown", "known"
)

// refusal is the time of the first and of the last error indication for a tunnel.
type refusal struct{ first, last time.Time }

// remote is a peer in a VRF of a data plane, and remoteEnd a tunnel's end at it. The same address may be of another peer in another VRF.
type (
	remote struct {
		dataplane, vrf string
		address        netip.Addr
	}
	remoteEnd struct {
		remote
		teid uint32
	}
)

func remoteEndOf(dataplane, vrf string, end End) remoteEnd {
	return remoteEnd{remote{dataplane, object.VRFName(vrf), end.Address}, end.TEID}
}

// Refusals holds the tunnels that peers do not know: they sent error indications for them (TS 29.281 section 7.3.1). Several goroutines may call
// its methods.
type Refusals struct {
	mu      sync.RWMutex
	ends    map[remoteEnd]refusal
	remotes map[remote]int
}

// NewRefusals returns Refusals without tunnels.
func NewRefusals() *Refusals {
	return &Refusals{ends: map[remoteEnd]refusal{}, remotes: map[remote]int{}}
}

// Add takes an error indication. It reports whether the peer knew all tunnels before. Indications beyond the limits are ignored.
func (r *Refusals) Add(end remoteEnd, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if before, was := r.ends[end]; was {
		r.ends[end] = refusal{before.first, now}
		return false
	}
	if len(r.ends) >= refusedEnds || r.remotes[end.remote] >= refusedEndsOfPeer {
		return false
	}
	r.ends[end] = refusal{now, now}
	r.remotes[end.remote]++
	return r.remotes[end.remote] == 1
}

// Expire removes tunnels without recent error indications. It returns the peers that have no other.
func (r *Refusals) Expire(now time.Time) (over []remote) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for end, one := range r.ends {
		if now.Sub(one.last) < refusedTime {
			continue
		}
		delete(r.ends, end)
		if r.remotes[end.remote]--; r.remotes[end.remote] == 0 {
			delete(r.remotes, end.remote)
			over = append(over, end.remote)
		}
	}
	return over
}

// refusedEvent is the event of a peer that begins to refuse tunnels, or does no longer. There is no event for each session; their readiness changes.
func refusedEvent(at remote, state string) *intent.ServiceEvent {
	address := at.address.String()
	text := address + " in " + at.dataplane + " does not know tunnels of sessions, which are not ready,"
	if state == known {
		text = address + " in " + at.dataplane + " refuses no tunnel any more"
	}
	return &intent.ServiceEvent{Type: "tunnels", Kind: "GtpuPath", Name: address, State: state,
		Fields: []intent.EventField{{Name: "dataplane", Value: at.dataplane}, {Name: "vrf", Value: at.vrf}, {Name: "remoteAddress", Value: address}}, Text: text}
}

// NotReady returns the reason why a session in a data plane does not serve, or the zero value if its peer knows its tunnel.
func (r *Refusals) NotReady(dataplane string, stored *object.StoredObject) intent.NotReady {
	r.mu.RLock()
	none := len(r.ends) == 0
	r.mu.RUnlock()
	if none || stored.KindName() != "Session" {
		return intent.NotReady{}
	}
	session, ok := stored.Object().Spec.(*api.Session)
	if !ok || session.GetGtpu() == nil {
		return intent.NotReady{}
	}
	g := session.GetGtpu()
	address, err := netip.ParseAddr(g.GetRemoteAddress())
	if err != nil {
		return intent.NotReady{}
	}
	r.mu.RLock()
	one, is := r.ends[remoteEndOf(dataplane, g.GetVrf(), End{address, g.GetRemoteTeid()})]
	r.mu.RUnlock()
	if !is {
		return intent.NotReady{}
	}
	return intent.NotReady{Reason: "TunnelUnknown", Since: one.first, External: true,
		Message: fmt.Sprintf("%s does not know TEID %d: it answers packets with error indications since %s", address, g.GetRemoteTeid(),
			one.first.UTC().Format(time.RFC3339))}
}
