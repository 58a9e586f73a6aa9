// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

// offline is a dialer whose frames go nowhere.
func offline(t testing.TB, pppoe, ipoe int) *dialer {
	t.Helper()
	d, err := newDialer(&settings{pppoe: pppoe, ipoe: ipoe, pppoeVLAN: 200, ipoeVLAN: 100, inner: 2, method: "chap", username: "a-{n},b-{n}", password: "secret",
		echo: 30 * time.Second, window: 100, server4: "192.0.2.1", seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	d.wire = &wire{fd: -1}
	return d
}

// pass lets time go by.
func (d *dialer) pass(span time.Duration) {
	for end := d.now + int64(span); d.now < end; {
		d.now += int64(10 * time.Millisecond)
		d.timers()
		d.start()
		d.wire.flush()
	}
}

func TestEachLineHasACircuitAndAMACOfItsOwn(t *testing.T) {
	d := offline(t, 5, 5)
	seen := map[string]bool{}
	for i := range d.lines {
		l := &d.lines[i]
		key := string(l.mac[:]) + string(rune(l.vlans[0])) + string(rune(l.vlans[1]))
		if seen[key] || seen[string(l.mac[:])] {
			t.Errorf("line %d has the MAC %x of another", i, l.mac)
		}
		seen[key], seen[string(l.mac[:])] = true, true
	}
	if l := &d.lines[4]; l.vlans != [2]uint16{202, 1} || l.name() != "pppoe-005" {
		t.Errorf("%s: %v", l.name(), l.vlans)
	}
	if name, _ := d.credentials(&d.lines[4]); name != "a-005" {
		t.Error(name)
	}
}

func TestALineWithIPv6AloneSendsNoDHCPv4(t *testing.T) {
	d, err := newDialer(&settings{ipoe: 4, ipoeVLAN: 100, inner: 2, method: "chap", only6: 2, echo: 30 * time.Second, window: 100, seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	d.wire = &wire{fd: -1}
	d.command([]string{"dial"})
	d.start()
	for i := range d.lines {
		l := &d.lines[i]
		if six := l.six.asking == dhcp6Solicit; l.only6 != (i%2 == 0) || six != l.only6 {
			t.Errorf("line %d: IPv6 alone: %v, it solicits: %v", i, l.only6, six)
		}
	}
	// Its lease comes, it renews, and the next answer sets the time again.
	l := &d.lines[0]
	answer := func(kind byte) {
		b := append([]byte{kind, byte(l.six.transaction >> 16), byte(l.six.transaction >> 8), byte(l.six.transaction), 0, 1, 0, 10, 0, 3, 0, 1}, l.mac[:]...)
		b = append(b, 0, 2, 0, 1, 7, 0, 25, 0, 41, 0, 0, 0, 2, 0, 0, 0, 100, 0, 0, 0, 160, 0, 26, 0, 25, 0, 0, 0, 200, 0, 0, 1, 0, 56)
		b = append(b, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		if l.receive6(d, b) {
			l.checkIPoE(d)
		}
	}
	answer(dhcp6Advertise)
	answer(dhcp6Reply)
	if l.phase != up || l.renew != d.now+int64(100*time.Second) || l.ip4 != [4]byte{} {
		t.Fatalf("phase %d, %d", l.phase, l.renew)
	}
	d.pass(101 * time.Second)
	if l.six.asking != dhcp6Renew || l.echoes == 0 {
		t.Fatalf("it does not renew: %d", l.six.asking)
	}
	answer(dhcp6Reply)
	if l.phase != up || l.echoes != 0 || l.renew != d.now+int64(100*time.Second) {
		t.Errorf("phase %d, %d", l.phase, l.renew)
	}
}

func TestALineWithoutAnAnswerTriesAgainFailsAndDialsAnew(t *testing.T) {
	d := offline(t, 1, 1)
	d.command([]string{"dial"})
	d.pass(20 * time.Second)
	if d.count.retries < 4 || d.count.failed != 0 || d.active != 2 {
		t.Errorf("%+v, %d dial", d.count, d.active)
	}
	d.pass(100 * time.Second)
	if d.count.failed < 2 || d.active > 2 || d.isUpNow != 0 {
		t.Errorf("%+v, %d dial", d.count, d.active)
	}
	d.command([]string{"hangup"})
	before := d.count.retries
	d.pass(20 * time.Second)
	if d.active != 0 || d.count.retries != before {
		t.Errorf("%d dial after hangup", d.active)
	}
}

func TestALineDoesNotTakeFramesOfAnotherCircuit(t *testing.T) {
	d := offline(t, 1, 0)
	d.command([]string{"dial"})
	d.start()
	l := &d.lines[0]
	offer := func(vlan byte) []byte {
		b := append(append([]byte{}, l.mac[:]...), 2, 0, 0, 0, 0xaa, 1, 0x81, 0, 0, vlan, 0x81, 0, 0, 1, 0x88, 0x63)
		return append(b, 0x11, pado, 0, 0, 0, 8, 1, 4, 0, 4, 1, 2, 3, 4)
	}
	d.receive(offer(201))
	if l.phase != discovering {
		t.Error("an offer of another circuit was taken")
	}
	d.receive(offer(200))
	if l.phase != requesting || l.cookieLength != 4 {
		t.Errorf("phase %d, a cookie of %d bytes", l.phase, l.cookieLength)
	}
}

// FuzzReceive: a frame of any content, in any phase, does not stop the program.
func FuzzReceive(f *testing.F) {
	f.Add(uint8(discovering), false, []byte{0x11, pado, 0, 0, 0, 8, 1, 4, 0, 4, 1, 2, 3, 4})
	f.Add(uint8(network), false, []byte{0x11, 0, 0, 1, 0, 12, 0x80, 0x21, 1, 1, 0, 10, 3, 6, 100, 64, 0, 1})
	f.Add(uint8(network), false, []byte{0x11, 0, 0, 1, 0, 12, 0xc0, 0x21, 1, 1, 0, 10, 3, 4, 0xc0, 0x23})
	f.Add(uint8(requesting), true, make([]byte, 300))
	f.Fuzz(func(t *testing.T, at uint8, ipoe bool, payload []byte) {
		if len(payload) > 1500 {
			return
		}
		d := offline(t, 1, 1)
		d.command([]string{"dial"})
		d.start()
		l := &d.lines[0]
		if ipoe {
			l = &d.lines[1]
		}
		l.session, l.server = 1, mac{2, 0, 0, 0, 0xaa, 1}
		if phase := phase(at % uint8(up+1)); phase == up {
			d.isUp(l)
		} else if phase != idle {
			l.phase = phase
		}
		for _, etherType := range []uint16{typeDiscovery, typeSession, typeIP4, typeIP6, typeARP} {
			to := l.mac
			b := append(append([]byte{}, to[:]...), 2, 0, 0, 0, 0xaa, 1)
			b = append(b, 0x81, 0, byte(l.vlans[0]>>8), byte(l.vlans[0]), 0x81, 0, byte(l.vlans[1]>>8), byte(l.vlans[1]), byte(etherType>>8), byte(etherType))
			d.receive(append(b, payload...))
			for n := range b {
				d.receive(b[:n])
			}
		}
		d.pass(5 * time.Second)
	})
}
