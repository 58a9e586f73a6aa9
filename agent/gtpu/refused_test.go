// SPDX-License-Identifier: Apache-2.0

package gtpu

import (
	"net/netip"
	"testing"
	"time"
)

func TestASessionWhoseTunnelThePeerDoesNotKnowIsNotReady(t *testing.T) {
	b, r := newBed(t), NewRefusals()
	b.reporter = r
	end := End{netip.MustParseAddr(theirs), 1}
	b.wantNotReady("east", tunnel("", theirs), "")
	if !r.Add("east", end, then) || r.Add("east", end, then.Add(time.Second)) || r.Add("east", End{end.Address, 2}, then) {
		t.Error("Add does not report the first tunnel of the peer")
	}
	b.wantNotReady("east", tunnel("", theirs), "TunnelUnknown "+theirs+" does not know TEID 1: it answers packets with error indications since 2026-03-01T12:00:00Z")
	b.wantNotReady("east", tunnel("", other), "")
	b.wantNotReady("west", tunnel("", theirs), "")

	// The last indication counts.
	r.Expire(then.Add(refusedTime))
	if b.notReady("east", tunnel("", theirs)) == "" {
		t.Error("the session is ready after the time since the first error indication")
	}
	r.Expire(then.Add(refusedTime + time.Second))
	b.wantNotReady("east", tunnel("", theirs), "")
	if len(r.ends)+len(r.ofPeer) != 0 {
		t.Errorf("%v %v", r.ends, r.ofPeer)
	}
}

func TestRefusedTunnelsOfAPeerAndOfAllAreBounded(t *testing.T) {
	r := NewRefusals()
	at := netip.MustParseAddr("192.0.2.0")
	for range 2 * refusedEnds / refusedEndsOfPeer {
		at = at.Next()
		for teid := range uint32(refusedEndsOfPeer + 10) {
			r.Add("east", End{at, teid + 1}, then)
		}
		if n := r.ofPeer["east"][at]; n > refusedEndsOfPeer {
			t.Fatal(n)
		}
	}
	if len(r.ends["east"]) != refusedEnds {
		t.Error(len(r.ends["east"]))
	}
	r.Expire(then.Add(time.Hour))
	if len(r.ends)+len(r.ofPeer) != 0 {
		t.Errorf("%v %v", r.ends, r.ofPeer)
	}
}
