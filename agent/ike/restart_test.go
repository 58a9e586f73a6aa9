// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"maps"
	"testing"
	"time"
)

// Agents are killed at any time while one end rekeys, or both do, and packets are lost. Afterwards there is one IKE SA with one child, and the ends did
// not begin anew.
func TestAgentsThatAreKilledAtAnyTimeLeaveOneChild(t *testing.T) {
	for seed := range *seeds {
		n := newNetwork(t, seed, seed%2 == 1)
		rekeys := []*end{n.a, n.b}
		if turn := seed / 2 % 3; turn < 2 {
			rekeys = rekeys[turn : turn+1]
		}
		id := n.a.only(t).id
		for range 60 {
			e, other := n.a, n.b
			if n.numbers.Intn(2) == 0 {
				e, other = n.b, n.a
			}
			switch n.numbers.Intn(14) {
			case 0, 1:
				child := ""
				if n.numbers.Intn(2) == 0 {
					child = "*"
				}
				by := rekeys[n.numbers.Intn(len(rekeys))]
				n.note("%s rekeys %q", by.name, child)
				actions, _ := by.m.Rekey("peer", child, n.now)
				n.do(by, actions)
			case 2:
				n.note("the agent of %s is killed", e.name)
				e.installed, n.waiting = nil, nil
				n.restart(e, func(m *Machine) { m.SetConnection("peer", n.connection(e, other, ikeSuite, espSuite), n.now) })
				n.planes[e] = &plane{maps.Clone(e.in), maps.Clone(e.out), map[uint32][]uint32{}}
			case 3:
				n.wait(time.Duration(n.numbers.Intn(1500)) * time.Millisecond)
			case 4, 5:
				n.install(e)
			default:
				n.next()
			}
		}
		n.settle(4 * time.Minute)
		n.check(1)
		if !t.Failed() && n.a.only(t).id != id {
			t.Error("the ends began anew")
		}
		if t.Failed() {
			for _, line := range n.log {
				t.Log(line)
			}
			t.Fatalf("seed %d", seed)
		}
	}
}
