// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"
)

const (
	wheelTick  = 20 * int64(time.Millisecond)
	wheelSlots = 4096
	// Buckets of set-up times, in milliseconds.
	latencySlots = 1 << 16
	// Frames between two looks at everything else.
	turn = 256
)

// counters are of all lines.
type counters struct {
	setups, failed, rejected, refused, retries, ended, lost uint64
	// Counts of a churn.
	hangups, crashes, moves, changes uint64
	// Traffic by family. Strangers are replies that were not for the line that they came to.
	sent, received [2]uint64
	strangers      uint64
}

// dialer is all lines of a wire and their clock.
type dialer struct {
	wire   *wire
	random *rand.Rand
	lines  []line
	pppoe  int // so many of them, in front
	now    int64

	method       uint16
	usernames    []string
	password     string
	without6     bool
	echoInterval int64
	server       [2]netip.Addr
	window       int
	rate         float64
	move         uint16

	pending  []uint32
	waiting  int // index of the first one of pending
	active   int
	isUpNow  int
	both     int
	desired  []bool
	credit   float64
	credited int64

	wheel [wheelSlots][]uint32
	tick  int64
	spare []uint32

	// Mean life of a session in a churn; 0: none.
	churn int64

	traffic            float64
	trafficCredit      float64
	trafficAt          int
	lastReply, longest int64

	count     counters
	latencies [latencySlots]uint32 // set-ups by milliseconds; the last: more
	timed     uint64
	first     int64 // when the first dial of these began, and when the last was up
	last      int64
	scratch   [512]byte
}

// credentials are the name and the password of a line.
func (d *dialer) credentials(l *line) (name, password string) {
	n := padded(l.number)
	return strings.ReplaceAll(d.usernames[int(l.user)%len(d.usernames)], "{n}", n), strings.ReplaceAll(d.password, "{n}", n)
}

func (d *dialer) index(l *line) uint32 {
	if l.ipoe {
		return uint32(d.pppoe) + l.number
	}
	return l.number
}

// at sets when a line is looked at next.
func (d *dialer) at(l *line, due int64) {
	if l.phase == up && l.ends != 0 {
		due = min(due, l.ends)
	}
	l.due = max(due/wheelTick, d.tick+1)
	// One that is in the wheel earlier is moved on when its turn comes.
	if l.placed == 0 || l.due < l.placed {
		d.place(l)
	}
}

func (d *dialer) place(l *line) {
	l.placed = min(l.due, d.tick+wheelSlots-1)
	slot := &d.wheel[l.placed%wheelSlots]
	*slot = append(*slot, d.index(l))
}

// timers carries out timers that are due.
func (d *dialer) timers() {
	for now := d.now / wheelTick; d.tick < now; {
		d.tick++
		slot := &d.wheel[d.tick%wheelSlots]
		d.spare, *slot = *slot, d.spare[:0]
		for _, i := range d.spare {
			l := &d.lines[i]
			if l.placed != d.tick {
				continue
			}
			l.placed = 0
			switch {
			case l.due == 0:
			case l.due > d.tick:
				d.place(l)
			default:
				l.due = 0
				if l.phase == idle {
					d.enqueue(l)
				} else {
					l.timeout(d)
				}
			}
		}
	}
}

// enqueue dials a line when it is its turn, if it is to be up.
func (d *dialer) enqueue(l *line) {
	if i := d.index(l); d.desired[i] && l.phase == idle {
		d.pending = append(d.pending, i)
	}
}

// start dials as many lines as there is room for.
func (d *dialer) start() {
	if d.waiting == len(d.pending) {
		d.pending, d.waiting = d.pending[:0], 0
		d.credited = d.now
		return
	}
	if d.rate > 0 {
		d.credit = min(d.credit+d.rate*float64(d.now-d.credited)/1e9, float64(d.window))
		d.credited = d.now
	}
	for begun := 0; d.waiting < len(d.pending) && d.active < d.window && begun < turn; d.waiting++ {
		if d.rate > 0 {
			if d.credit < 1 {
				return
			}
			d.credit--
		}
		l := &d.lines[d.pending[d.waiting]]
		if l.phase == idle && d.desired[d.index(l)] {
			if d.first == 0 {
				d.first = d.now
			}
			l.begin(d)
			begun++
		}
	}
}

// down notes that a line is not dialing and not up any more.
func (d *dialer) down(l *line) {
	switch {
	case l.phase == up:
		d.isUpNow--
	case l.phase != idle:
		d.active--
	}
	l.phase, l.due, l.ends = idle, 0, 0
}

// again dials a line after a time.
func (d *dialer) again(l *line, after time.Duration) {
	d.down(l)
	d.at(l, d.now+int64(after))
}

func (d *dialer) fail(l *line) {
	if !l.ipoe {
		l.hangUpPPPoE(d)
	}
	d.again(l, time.Duration(500+d.random.Uint32()%1000)*time.Millisecond)
}

// ended notes that the server ended the session of a line.
func (d *dialer) ended(l *line) {
	if l.phase == up {
		d.count.ended++
	} else {
		d.count.failed++
	}
	d.again(l, time.Duration(d.random.Uint32()%500)*time.Millisecond)
}

func (d *dialer) isUp(l *line) {
	d.active--
	d.isUpNow++
	d.count.setups++
	l.phase, l.since, l.echoes, d.last = up, d.now, 0, d.now
	d.latencies[min((d.now-l.began)/int64(time.Millisecond), latencySlots-1)]++
	d.timed++
	if d.churn > 0 {
		l.ends = d.now + int64(d.random.ExpFloat64()*float64(d.churn)) + int64(time.Millisecond)
	}
	if l.ipoe {
		d.at(l, l.renew)
	} else {
		d.at(l, d.now+d.echoInterval/2+int64(d.random.Float64()*float64(d.echoInterval)/2))
	}
}

// hangUp ends a line in order.
func (d *dialer) hangUp(l *line) {
	if l.phase == idle {
		return
	}
	if l.ipoe {
		l.hangUpIPoE(d)
	} else {
		l.hangUpPPPoE(d)
	}
	d.down(l)
}

// change makes a random change to a line, as subscribers and their devices do.
func (d *dialer) change(l *line) {
	soon := time.Duration(d.random.Uint32()%1000) * time.Millisecond
	switch what := d.random.Uint32() % 10; {
	case what < 4:
		d.count.hangups++
		d.hangUp(l)
	case what < 6:
		d.count.crashes++
		soon = 0
	case what < 7:
		d.count.crashes++
		soon *= 5
	case what < 8 && d.move != 0:
		d.count.moves++
		l.vlans[0] ^= d.move
	case what < 9:
		// Another user, or another device.
		d.count.changes++
		d.hangUp(l)
		l.user++
	default:
		d.count.changes++
		d.down(l)
		l.generation++
		l.setMAC()
	}
	d.again(l, soon)
}

// receive takes a frame of the wire.
func (d *dialer) receive(b []byte) {
	f, ok := parseFrame(b)
	if !ok {
		return
	}
	to := f.destination
	if to == broadcast && f.etherType == typeIP4 && len(f.payload) >= ip4Header+8+34 {
		// A DHCP server that does not know the client's address yet, or takes it back.
		to = mac(f.payload[ip4Header+8+28:])
	}
	if to[0] != 2 || to[1] != 0x10 && to[1] != 0x20 {
		return
	}
	n, count, base := int(to[3])<<16|int(to[4])<<8|int(to[5]), d.pppoe, 0
	if to[1] == 0x20 {
		count, base = len(d.lines)-d.pppoe, d.pppoe
	}
	if n >= count {
		return
	}
	l := &d.lines[base+n]
	if to != l.mac || f.vlans != l.vlans || l.phase == idle {
		return
	}
	switch {
	case l.ipoe:
		l.receiveIPoE(d, &f)
	case f.etherType == typeDiscovery || f.etherType == typeSession:
		l.receivePPPoE(d, &f)
	}
}

// send sends traffic of lines that are up, in turns.
func (d *dialer) send(elapsed int64) {
	if d.traffic == 0 || d.isUpNow == 0 {
		return
	}
	d.trafficCredit = min(d.trafficCredit+d.traffic*float64(elapsed)/1e9, turn)
	for tried := 0; d.trafficCredit >= 1 && tried < 2*len(d.lines); tried++ {
		l := &d.lines[d.trafficAt/2]
		if l.phase == up {
			l.ping(d, d.trafficAt%2)
			d.trafficCredit--
		}
		d.trafficAt = (d.trafficAt + 1) % (2 * len(d.lines))
	}
}

// arrived notes a reply: how long none came.
func (d *dialer) arrived() {
	if d.lastReply != 0 {
		d.longest = max(d.longest, d.now-d.lastReply)
	}
	d.lastReply = d.now
}

// step does one turn; it returns whether frames came.
func (d *dialer) step(began time.Time) (frames int) {
	for ; frames < turn; frames++ {
		b := d.wire.read()
		if b == nil {
			break
		}
		d.receive(b)
	}
	before := d.now
	d.now = int64(time.Since(began))
	d.timers()
	d.start()
	d.send(d.now - before)
	d.wire.flush()
	return frames
}

// percentile is a part of the set-up times, in milliseconds.
func (d *dialer) percentile(p float64) int {
	below, rank := uint64(0), uint64(math.Ceil(p*float64(d.timed)))
	for ms, n := range d.latencies {
		if below += uint64(n); below >= rank {
			return ms
		}
	}
	return 0
}

// replied notes a line's first reply of a family: d.both are those that got one of each.
func (d *dialer) replied(l *line, family int) {
	if l.received[family] == 0 && (l.received[1-family] > 0 || !d.server[1-family].IsValid()) {
		d.both++
	}
}

func address6(a [16]byte) string {
	if a == [16]byte{} {
		return ""
	}
	return netip.AddrFrom16(a).String()
}

func address4(a [4]byte) string {
	if binary.BigEndian.Uint32(a[:]) == 0 {
		return ""
	}
	return netip.AddrFrom4(a).String()
}
