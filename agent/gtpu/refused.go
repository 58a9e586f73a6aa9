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
	// Tunnels of all peers of a data plane, and of one peer.
	refusedEnds, refusedEndsOfPeer = 1 << 16, 1 << 14
)

// refusal is the time of the first and of the last error indication for a tunnel.
type refusal struct{ first, last time.Time }

// Refusals holds the tunnels that peers do not know: they sent error indications for them (TS 29.281 section 7.3.1). Several goroutines may call
// its methods.
type Refusals struct {
	mu     sync.RWMutex
	ends   map[string]map[End]refusal // by data plane
	ofPeer map[string]map[netip.Addr]int
}

// NewRefusals returns Refusals without tunnels.
func NewRefusals() *Refusals {
	return &Refusals{ends: map[string]map[End]refusal{}, ofPeer: map[string]map[netip.Addr]int{}}
}

// Add takes an error indication. It reports whether the peer knew all tunnels before. Indications beyond the limits are ignored.
func (r *Refusals) Add(dataplane string, end End, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ends := r.ends[dataplane]
	if ends == nil {
		ends = map[End]refusal{}
		r.ends[dataplane], r.ofPeer[dataplane] = ends, map[netip.Addr]int{}
	}
	if before, was := ends[end]; was {
		ends[end] = refusal{before.first, now}
		return false
	}
	if len(ends) >= refusedEnds || r.ofPeer[dataplane][end.Address] >= refusedEndsOfPeer {
		return false
	}
	ends[end] = refusal{now, now}
	r.ofPeer[dataplane][end.Address]++
	return r.ofPeer[dataplane][end.Address] == 1
}

// Expire removes tunnels without recent error indications.
func (r *Refusals) Expire(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for dataplane, ends := range r.ends {
		peers := r.ofPeer[dataplane]
		for end, one := range ends {
			if now.Sub(one.last) < refusedTime {
				continue
			}
			delete(ends, end)
			if peers[end.Address]--; peers[end.Address] == 0 {
				delete(peers, end.Address)
			}
		}
		if len(ends) == 0 {
			delete(r.ends, dataplane)
			delete(r.ofPeer, dataplane)
		}
	}
}

// NotReady returns the reason why a session in a data plane does not serve, or the zero value if its peer knows its tunnel.
func (r *Refusals) NotReady(dataplane string, stored *object.StoredObject) intent.NotReady {
	r.mu.RLock()
	none := len(r.ends[dataplane]) == 0
	r.mu.RUnlock()
	if none || stored.KindName() != "Session" {
		return intent.NotReady{}
	}
	session, ok := stored.Object().Spec.(*api.Session)
	if !ok || session.GetGtpu() == nil {
		return intent.NotReady{}
	}
	address, err := netip.ParseAddr(session.GetGtpu().GetRemoteAddress())
	if err != nil {
		return intent.NotReady{}
	}
	r.mu.RLock()
	one, is := r.ends[dataplane][End{address, session.GetGtpu().GetRemoteTeid()}]
	r.mu.RUnlock()
	if !is {
		return intent.NotReady{}
	}
	return intent.NotReady{Reason: "TunnelUnknown", Since: one.first, External: true,
		Message: fmt.Sprintf("%s does not know TEID %d: it answers packets with error indications since %s", address,
			session.GetGtpu().GetRemoteTeid(), one.first.UTC().Format(time.RFC3339))}
}
