// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

var otherAddress = netip.MustParseAddr("203.0.113.1")

func (e *end) only(t *testing.T) *ikeSA {
	t.Helper()
	for _, s := range e.m.sas {
		if len(e.m.sas) == 1 {
			return s
		}
	}
	t.Fatalf("%s has %d IKE SAs", e.name, len(e.m.sas))
	return nil
}

func TestTheInitiatorMovesToAnAddressThatWorks(t *testing.T) {
	for _, which := range []string{"ours", "the peer's", "ours, after a rekey of the responder, and kills"} {
		p := newPair(t)
		p.configure(func(a, b *Connection) {
			a.NoMOBIKE, b.NoMOBIKE = false, false
			if b.Peers = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}; which != "the peer's" {
				a.OtherLocals = []netip.Addr{otherAddress}
			} else {
				b.OtherLocals = []netip.Addr{otherAddress}
			}
		})
		p.initiate()
		p.check(1)
		if strings.HasPrefix(which, "ours, ") {
			p.rekey(p.b, "")
			p.run()
			for _, e := range []*end{p.a, p.b} {
				conn := e.m.connections["peer"]
				p.restart(e, func(m *Machine) { m.SetConnection("peer", conn, p.now) })
			}
			p.check(1)
		}
		gone := p.a.address
		if which == "the peer's" {
			gone = p.b.address
			p.b.address = otherAddress // the network delivers there
		}
		p.filter = func(d *Datagram) bool { return d.Local.Addr() != gone && d.Remote.Addr() != gone }
		p.pass(45 * time.Second)
		p.check(1)
		a, b := p.a.only(t), p.b.only(t)
		if a.local != b.remote || a.remote != b.local || a.local.Addr() == gone || a.remote.Addr() == gone {
			t.Errorf("%s: %s to %s, and %s to %s; events %q", which, a.local, a.remote, b.local, b.remote, p.a.events)
		}
		for _, e := range []*end{p.a, p.b} {
			for _, c := range e.in {
				_, _, local, _, udp := c.Place()
				if local.Addr() == gone || udp {
					t.Errorf("%s: a child is at %s, in UDP: %v", which, local, udp)
				}
			}
			if n := slices.IndexFunc(e.events, func(s string) bool { return strings.HasPrefix(s, "down") }); n >= 0 {
				t.Errorf("%s: %q", which, e.events)
			}
		}
		p.pass(5 * time.Hour)
		p.check(1)
	}
}

func TestAPeerThatLostAChildGetsAnother(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	p.pass(20 * time.Second)
	// The end b has lost its SAs, without its IKE SA's knowledge.
	b := p.b.only(t)
	var lost uint32
	for _, c := range b.sortedChildren() {
		lost = c.SPIIn
		b.takeChild(c.SPIIn)
		delete(p.b.m.children, c.SPIIn)
		delete(p.b.in, c.SPIIn)
		delete(p.b.out, c.SPIIn)
	}
	for range 50 { // packets of the flow
		p.do(p.b, p.b.m.UnknownSPI("", "", p.b.address, p.a.address, lost, p.now))
	}
	p.run()
	p.pass(time.Second)
	p.check(1)
	if p.b.counts["packet invalid-spi"] != 1 {
		t.Errorf("counts %v", p.b.counts)
	}
	// Of an address without an IKE SA, and of an SPI that is known.
	p.pass(time.Minute)
	p.do(p.b, p.b.m.UnknownSPI("", "", p.b.address, otherAddress, lost, p.now))
	for spi := range p.b.in {
		p.do(p.b, p.b.m.UnknownSPI("", "", p.b.address, p.a.address, spi, p.now))
	}
	if p.b.counts["packet invalid-spi"] != 1 {
		t.Errorf("counts %v", p.b.counts)
	}
	p.run()
	p.check(1)
}

func TestTrafficStartsAChildThatIsHeld(t *testing.T) {
	for _, whole := range []bool{false, true} {
		p := newPair(t)
		p.configure(func(a, b *Connection) { b.Children[0].CloseAction = Hold })
		child := p.b.m.connections["peer"].Children[0]
		if p.b.m.onTraffic(p.b.m.connections["peer"], child) {
			t.Error("traffic starts a child that the peer never had")
		}
		p.initiate()
		name := "net"
		if whole {
			name = ""
		}
		actions, _ := p.a.m.Terminate("peer", name, p.now)
		p.do(p.a, actions)
		p.run()
		if !p.b.m.onTraffic(p.b.m.connections["peer"], child) || len(p.b.in) != 0 {
			t.Errorf("%d children, and traffic starts none", len(p.b.in))
		}
		p.do(p.b, p.b.m.Acquire("peer", "net", p.now))
		p.run()
		p.check(1)
		if p.b.m.onTraffic(p.b.m.connections["peer"], child) {
			t.Error("traffic starts a child that is up")
		}
	}
}

func TestTheSPIOfAnESPPacketIsRead(t *testing.T) {
	frame := func(protocol byte, rest ...byte) []byte {
		packet := ipPacket(netip.MustParseAddrPort("192.0.2.2:4500"), netip.MustParseAddrPort("192.0.2.1:4500"), rest)
		if protocol == protocolESP {
			packet = append(packet[:ip4Length:ip4Length], rest...)
		}
		packet[9] = protocol
		return slices.Concat(make([]byte, 12), []byte{8, 0}, packet)
	}
	for _, protocol := range []byte{protocolESP, protocolUDP} {
		whole := frame(protocol, 0, 0, 2, 1, 0, 0, 0, 1)
		from, to, spi, ok := espOf(whole)
		if !ok || spi != 0x201 || from.String() != "192.0.2.2" || to.String() != "192.0.2.1" {
			t.Errorf("%s to %s, %x, %v", from, to, spi, ok)
		}
		for n := range len(whole) - 4 {
			if _, _, _, ok := espOf(whole[:n]); ok {
				t.Errorf("%d of %d bytes are a packet", n, len(whole))
			}
		}
	}
	if _, _, _, ok := espOf(frame(6, 0, 0, 2, 1, 0, 0, 0, 1)); ok {
		t.Error("a TCP segment has an SPI")
	}
}
