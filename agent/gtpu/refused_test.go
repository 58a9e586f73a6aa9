// SPDX-License-Identifier: Apache-2.0

package gtpu

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/service"
)

func TestASessionWhoseTunnelThePeerDoesNotKnowIsNotReady(t *testing.T) {
	b, r := newBed(t), NewRefusals()
	b.reporter = r
	end := remoteEndOf("east", "", End{netip.MustParseAddr(theirs), 1})
	second := end
	second.teid = 2
	b.wantNotReady("east", tunnel("", theirs), "")
	if !r.Add(end, then) || r.Add(end, then.Add(time.Second)) || r.Add(second, then) {
		t.Error("Add does not report the first tunnel of the peer")
	}
	b.wantNotReady("east", tunnel("", theirs), "TunnelUnknown "+theirs+" does not know TEID 1: it answers packets with error indications since 2026-03-01T12:00:00Z")
	b.wantNotReady("east", tunnel("", other), "")
	b.wantNotReady("west", tunnel("", theirs), "")
	// The same address in another VRF is another peer.
	b.wantNotReady("east", tunnel("n3", theirs), "")

	// The last indication counts.
	if over := r.Expire(then.Add(refusedTime)); over != nil {
		t.Errorf("%v: all tunnels count as known", over)
	}
	if b.notReady("east", tunnel("", theirs)) == "" {
		t.Error("the session is ready after the time since the first error indication")
	}
	if over := r.Expire(then.Add(refusedTime + time.Second)); len(over) != 1 || over[0] != end.remote {
		t.Errorf("%v", over)
	}
	b.wantNotReady("east", tunnel("", theirs), "")
	if len(r.ends)+len(r.remotes) != 0 {
		t.Errorf("%v %v", r.ends, r.remotes)
	}
}

func TestRefusedTunnelsOfAPeerAndOfAllAreBounded(t *testing.T) {
	r := NewRefusals()
	at := netip.MustParseAddr("192.0.2.0")
	for range 2 * refusedEnds / refusedEndsOfPeer {
		at = at.Next()
		for teid := range uint32(refusedEndsOfPeer + 10) {
			r.Add(remoteEndOf("east", "", End{at, teid + 1}), then)
		}
		if n := r.remotes[remote{"east", "default", at}]; n > refusedEndsOfPeer {
			t.Fatal(n)
		}
	}
	if len(r.ends) != refusedEnds {
		t.Error(len(r.ends))
	}
	r.Expire(then.Add(time.Hour))
	if len(r.ends)+len(r.remotes) != 0 {
		t.Errorf("%v %v", r.ends, r.remotes)
	}
}

func TestAPeerThatDoesNotKnowTunnelsIsOneEvent(t *testing.T) {
	b := newBed(t)
	b.put("n3", &api.Vrf{})
	b.put("core", &api.Port{Device: "net_null0"})
	b.put("n3-side", &api.Interface{Port: "core", OuterVlan: 2, Vrf: "n3"})
	b.put("default-side", &api.Interface{Port: "core"})
	built, err := Definition.New(service.Environment{Intent: b.desired, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	p := built.(*follower)
	receive := func(teid uint32, through string) {
		p.Receive([]service.Packet{{Dataplane: "east", Reason: errorIndication, Interface: through, Frame: indication(theirs, theirs, teid)}})
	}
	receive(1, "n3-side")
	receive(2, "n3-side")
	receive(1, "")
	receive(1, "default-side")
	b.wantEvents("east n3 " + theirs + " unknown; east default " + theirs + " unknown")
	b.reporter = p
	for _, vrf := range []string{"", "n3"} {
		if why := b.notReady("east", tunnel(vrf, theirs)); !strings.HasPrefix(why, "TunnelUnknown") {
			t.Errorf("VRF %q: %q", vrf, why)
		}
	}
	p.refusals.ends[remoteEndOf("east", "", End{netip.MustParseAddr(theirs), 1})] = refusal{then, then}
	p.expire(time.Now())
	b.wantEvents("east default " + theirs + " known")
}
