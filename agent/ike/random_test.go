// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"flag"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"
)

var seeds = flag.Int64("seeds", 150, "random runs of each kind, TestRekeysAtAnyTimeLeaveOneChild")

// network delivers the packets of a pair in any order, loses and repeats some, and has the data planes take their time.
type network struct {
	*pair
	numbers *rand.Rand
	// Packets are lost, repeated and overtake each other.
	bad bool
	// Packets that wait for the data plane of their sender. patient: they wait as long as it takes.
	waiting []waitingPacket
	patient bool
	log     []string
	planes  map[*end]*plane
}

// plane is the SAs that a data plane has, by inbound SPI: it is told to make and to delete them, and does so later.
type plane struct {
	in, out map[uint32]*ChildSA
	// By the inbound SPI of the child that takes its place.
	removed map[uint32][]uint32
}

type waitingPacket struct {
	from  *end
	until time.Time
	Send
}

// sends returns the child whose outbound SA sends.
func (p *plane) sends() (best *ChildSA) {
	for _, c := range p.out {
		if best == nil || c.Precedence > best.Precedence {
			best = c
		}
	}
	return best
}

func newNetwork(t *testing.T, seed int64, bad bool, change ...func(a, b *Connection)) *network {
	n := &network{pair: newPair(t), numbers: rand.New(rand.NewSource(seed)), bad: bad, planes: map[*end]*plane{}}
	n.configure(change...)
	n.initiate()
	for _, e := range []*end{n.a, n.b} {
		e.slow = true
		n.planes[e] = &plane{maps.Clone(e.in), maps.Clone(e.out), map[uint32][]uint32{}}
		e.trace = func(a Action) {
			switch a := a.(type) {
			case Send:
				n.note("  %s sends %s", e.name, n.describe(a.Datagram))
			case Install:
				n.note("  %s is told to install %s", e.name, a.Child)
			case Remove:
				if a.OutboundOnly {
					delete(n.planes[e].out, a.Child.SPIIn)
				} else if after := a.After; after != 0 && slices.Contains(e.installed, after) {
					n.planes[e].removed[after] = append(n.planes[e].removed[after], a.Child.SPIIn)
				} else {
					n.planes[e].remove(a.Child.SPIIn)
				}
			case Event:
				n.note("  %s: %s: %s", e.name, a.What, a.Detail)
			}
		}
		e.held = func(one Send) bool {
			if !slices.ContainsFunc(one.After, func(spi uint32) bool { return slices.Contains(e.installed, spi) }) {
				return false
			}
			n.waiting = append(n.waiting, waitingPacket{e, n.now.Add(patience), one})
			return true
		}
	}
	return n
}

func (p *plane) remove(spi uint32) {
	delete(p.in, spi)
	delete(p.out, spi)
}

func (n *network) note(format string, a ...any) { n.log = append(n.log, fmt.Sprintf(format, a...)) }

// release sends the packets that have waited long enough.
func (n *network) release() {
	all := n.waiting
	n.waiting = nil
	for _, one := range all {
		if (n.patient || one.until.After(n.now)) && one.from.held(one.Send) {
			n.waiting[len(n.waiting)-1].until = one.until
			continue
		}
		n.wire = append(n.wire, one.Datagram)
	}
}

// install has a data plane finish what it was told.
func (n *network) install(e *end) {
	all := e.installed
	e.installed = nil
	if len(all) > 0 {
		n.note("%s installs %08x", e.name, all)
	}
	p := n.planes[e]
	for _, spi := range all {
		if c := e.in[spi]; c != nil {
			p.in[spi] = c
		}
		if c := e.out[spi]; c != nil {
			p.out[spi] = c
		}
		for _, old := range p.removed[spi] {
			p.remove(old)
		}
		delete(p.removed, spi)
	}
	for _, spi := range all {
		n.do(e, e.m.Installed(spi, nil, n.now))
	}
	n.release()
}

// next delivers one packet: the first of either direction, or any one.
func (n *network) next() {
	if len(n.wire) == 0 {
		return
	}
	i := n.numbers.Intn(len(n.wire))
	if !n.bad {
		to := n.wire[i].Remote.Addr()
		i = slices.IndexFunc(n.wire, func(d Datagram) bool { return d.Remote.Addr() == to })
	}
	d, chance := n.wire[i], n.numbers.Intn(10)
	what := "delivers"
	if !n.bad || chance != 0 {
		n.wire = slices.Delete(n.wire, i, i+1)
	} else {
		what = "repeats"
	}
	if n.bad && (chance == 1 || chance == 2) {
		what = "loses"
	}
	n.note("%s %s", what, n.describe(d))
	if what != "loses" {
		n.deliver(d)
	}
}

func (n *network) describe(d Datagram) string {
	exchange, kind, way := map[byte]string{34: "IKE_SA_INIT", 35: "IKE_AUTH", 36: "CREATE_CHILD_SA", 37: "INFORMATIONAL", 44: "IKE_FOLLOWUP_KE"}[d.Data[18]], "request", "b to a"
	if d.Data[19]&0x20 != 0 {
		kind = "response"
	}
	if d.Remote.Addr() == n.b.address {
		way = "a to b"
	}
	return fmt.Sprintf("%s: %s %s %d of %x", way, exchange, kind, d.Data[23], d.Data[:4])
}

// wait lets time go by. Packets and data planes are not slower than that.
func (n *network) wait(d time.Duration) {
	n.now = n.now.Add(d)
	if d != time.Second {
		n.note("%v go by", d)
	}
	n.do(n.a, n.a.m.Tick(n.now))
	n.do(n.b, n.b.m.Tick(n.now))
	n.release()
}

// carries finds that each end receives what the other one sends.
func (n *network) carries() {
	for _, way := range [][2]*end{{n.a, n.b}, {n.b, n.a}} {
		c := n.planes[way[0]].sends()
		if c == nil || n.planes[way[1]].in[c.SPIOut] == nil {
			n.t.Errorf("%s sends with %v, and %s does not receive it", way[0].name, c, way[1].name)
		}
	}
}

// settle has everything arrive from now on.
func (n *network) settle(d time.Duration) {
	n.bad = false
	n.note("everything arrives")
	for until := n.now.Add(d); ; n.wait(time.Second) {
		for i := 0; len(n.wire)+len(n.a.installed)+len(n.b.installed) > 0; i++ {
			if i > 2000 {
				n.t.Fatal("the ends do not come to rest")
			}
			n.install(n.a)
			n.install(n.b)
			n.next()
		}
		if !n.now.Before(until) {
			return
		}
	}
}

// Both ends rekey the IKE SA and the child at any time, or delete the child, and packets and data planes are late. Afterwards there is one of
// each, and of a deleted child nothing is left.
func TestRekeysAtAnyTimeLeaveOneChild(t *testing.T) {
	for _, kind := range []struct {
		name         string
		bad, deletes bool
		change       []func(a, b *Connection)
		// From the last change until both ends are at rest.
		rest time.Duration
	}{
		{"late", false, false, nil, 25 * time.Second},
		{"late and deleted", false, true, nil, 25 * time.Second},
		{"lost", true, false, nil, 3 * time.Minute},
		{"lost and deleted", true, true, nil, 3 * time.Minute},
		{"with additional key exchanges", false, false, []func(a, b *Connection){additional(t)}, 65 * time.Second},
		{"with additional key exchanges, lost", true, true, []func(a, b *Connection){additional(t)}, 3 * time.Minute},
	} {
		t.Run(kind.name, func(t *testing.T) {
			for seed := range *seeds {
				n := newNetwork(t, seed, kind.bad, kind.change...)
				n.patient = !kind.deletes
				for range 60 {
					e, child := n.a, ""
					if n.numbers.Intn(2) == 0 {
						e = n.b
					}
					if n.numbers.Intn(2) == 0 {
						child = "*"
					}
					switch n.numbers.Intn(12) {
					case 0:
						n.note("%s rekeys %q", e.name, child)
						actions, _ := e.m.Rekey("peer", child, n.now)
						n.do(e, actions)
					case 1:
						n.wait(time.Duration(n.numbers.Intn(1500)) * time.Millisecond)
					case 2, 3:
						n.install(e)
					case 4:
						if kind.deletes && n.numbers.Intn(3) == 0 {
							n.note("%s deletes the child", e.name)
							actions, _ := e.m.Terminate("peer", "net", n.now)
							n.do(e, actions)
						}
					default:
						n.next()
					}
					if n.patient && !t.Failed() {
						n.carries()
					}
				}
				n.settle(kind.rest)
				if kind.deletes && len(n.a.m.sas)+len(n.b.m.sas) == 0 {
					// An IKE SA whose last child the peer deletes ends.
					if len(n.a.in)+len(n.b.in)+len(n.a.m.children)+len(n.b.m.children) > 0 {
						t.Errorf("%d and %d children are left", len(n.a.m.children), len(n.b.m.children))
					}
				} else {
					left := 1
					if kind.deletes {
						left = min(len(n.a.in), 1)
					}
					n.check(left)
				}
				if t.Failed() {
					for _, line := range n.log {
						t.Log(line)
					}
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}
