// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// A peer that refuses to rekey the IKE SA opens another one, or has none in the end.
func TestKeysOfAnIKESAEndIfThePeerRefusesNewOnes(t *testing.T) {
	const other = "aes256gcm16-prfsha384-ecp384"
	for _, opens := range []bool{true, false} {
		p := newPair(t)
		p.configure(func(a, b *Connection) { b.RekeyTime = 0 })
		p.initiate()
		before := p.a.only(t).ourSPI
		conn := *p.b.only(t).conn
		conn.Proposals = proposals(t, message.ProtocolIKE, other)
		if p.b.only(t).conn = &conn; !opens {
			p.do(p.b, p.b.m.SetConnection("peer", &conn, p.now))
		}
		p.filter = func(*Datagram) bool {
			if opens && (len(p.a.in) == 0 || len(p.b.in) == 0) {
				t.Error("there is no child for a while")
			}
			return true
		}
		p.pass(4*time.Hour + 20*time.Minute)
		if p.a.only(t).ourSPI != before {
			t.Error("the IKE SA ends too soon")
		}
		p.pass(5 * time.Minute)
		if opens {
			p.check(1)
			if p.a.only(t).ourSPI == before {
				t.Errorf("the keys are the old ones; events %q", p.a.events)
			}
			continue
		}
		p.pass(25 * time.Minute)
		if p.b.m.sas[before] != nil || len(p.a.in)+len(p.b.in)+len(p.b.m.sas) != 0 {
			t.Errorf("the old keys serve on; events %q and %q", p.a.events, p.b.events)
		}
	}
}

// The Delete of an IKE SA waits for the response to another request when the agent is killed.
func TestANewAgentSendsTheDeleteThatWaited(t *testing.T) {
	for _, what := range []string{"nothing", "net"} {
		p := newPair(t)
		p.configure()
		p.initiate()
		p.filter = func(*Datagram) bool { return false }
		if what == "net" {
			x, _ := p.a.m.Terminate("peer", what, p.now)
			p.do(p.a, x)
		} else {
			p.pass(31 * time.Second) // DPD
		}
		x, _ := p.a.m.Terminate("peer", "", p.now)
		p.do(p.a, x)
		p.run()
		conn := p.a.m.connections["peer"]
		p.filter = nil
		p.restart(p.a, func(m *Machine) { m.SetConnection("peer", conn, p.now) })
		p.pass(3 * time.Second)
		if len(p.a.m.sas)+len(p.b.m.sas) != 0 || len(p.b.in) != 0 {
			t.Errorf("behind %s: %d IKE SAs here, %d there; events %q", what, len(p.a.m.sas), len(p.b.m.sas), p.b.events)
		}
	}
}

func TestAPeerThatIsNotAuthenticatedGetsLittleMemory(t *testing.T) {
	for length, up := range map[int]int{12000: 1, 20000: 0, 20001: 0} {
		p := newPair(t)
		p.configure(func(a, b *Connection) {
			a.NoFragmentation = length == 20001
			a.Credential = &Credential{Chain: [][]byte{make([]byte, length)}, Key: mustKey(ed25519.GenerateKey(rand.Reader))}
			a.LocalMethod, b.RemoteMethod = Certificate, Certificate
			p.b.answer = func(any) any { return Verified{Key: a.Credential.Key.Public()} }
		})
		p.initiate()
		for _, s := range p.b.m.sas {
			if parts := s.requestParts; parts != nil && parts.size > maxOpening {
				t.Errorf("%d bytes of fragments are kept", parts.size)
			}
		}
		if len(p.b.in) != up {
			t.Errorf("%d bytes: %d children; events %q", length, len(p.b.in), p.b.events)
		}
	}
}

// The octets of IKE_SA_INIT are kept until the peer is authenticated.
func TestALongRequestToOpenAnIKESAIsDropped(t *testing.T) {
	for extra, opened := range map[int]int{3 << 10: 1, 4 << 10: 0} {
		p := newPair(t)
		p.configure()
		actions, _ := p.a.m.Initiate("peer", "net", p.now)
		p.do(p.a, actions)
		d := p.take(p.b)
		m, err := message.Parse(d.Data)
		if err != nil {
			t.Fatal(err)
		}
		m.Payloads = append(m.Payloads, &message.Vendor{Data: make([]byte, extra)})
		d.Data = m.Append(nil)
		p.deliver(d)
		if len(p.b.m.sas) != opened || p.b.counts["drop too-long"] != 1-opened {
			t.Errorf("%d more bytes: %d IKE SAs, %v", extra, len(p.b.m.sas), p.b.counts)
		}
	}
}

// A peer that gets new keys again and again, and deletes nothing, does not fill the data plane.
func TestAPeerHasABoundedNumberOfChildren(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	a := p.a.only(t)
	for range 200 {
		newest := slices.MaxFunc(a.children, func(x, y *ChildSA) int { return cmp.Compare(x.Precedence, y.Precedence) })
		newest.half, newest.replaced = false, false
		a.rekeyChild(newest, p.now)
		p.do(p.a, p.a.m.done())
		p.deliver(p.take(p.b))
		p.deliver(p.take(p.a))
		// It sends no Delete.
		p.wire, a.queue, a.outstanding = nil, nil, nil
		for _, c := range a.children {
			c.deleting = false
		}
		a.nextID = p.b.only(t).expected
	}
	if b := p.b.only(t); len(b.children) != 2*b.mostChildren() || p.b.counts["failure NO_ADDITIONAL_SAS"] == 0 {
		t.Errorf("%d children, %v", len(b.children), p.b.counts)
	}
}

// A request and a response with one message ID come in fragments at the same time.
func TestFragmentsOfARequestAndAResponseAreNotMixed(t *testing.T) {
	p := newPair(t)
	p.configure()
	p.initiate()
	a, b := p.a.only(t), p.b.only(t)
	ask := func(e *end, s *ikeSA, then func(), payloads ...message.Payload) {
		s.request(message.Informational, p.now, func([]message.Payload, time.Time) { then() }, payloads...)
		p.do(e, e.m.done())
	}
	for a.nextID != b.nextID {
		e, s := p.b, b
		if a.nextID < b.nextID {
			e, s = p.a, a
		}
		ask(e, s, func() {})
		p.run()
	}
	// It comes back in the response.
	cookie := func(size int) message.Payload {
		return &message.Notify{Kind: message.Cookie2, Data: make([]byte, size)}
	}
	answered := false
	ask(p.a, a, func() { answered = true }, cookie(1600))
	ask(p.b, b, func() {}, cookie(790), cookie(790))
	var toA []Datagram
	for len(p.wire) > 0 {
		d := p.wire[0]
		p.wire = p.wire[1:]
		if d.Remote.Addr() == p.a.address {
			toA = append(toA, d)
		} else {
			p.deliver(d)
		}
	}
	if len(toA) != 4 {
		t.Fatalf("%d fragments", len(toA))
	}
	for _, i := range []int{0, 3, 2, 1} {
		p.deliver(toA[i])
	}
	p.run()
	if p.check(1); !answered {
		t.Errorf("the response is lost; %v", p.a.counts)
	}
}

// An agent that starts asks its peers one after the other whether they are there.
func TestANewAgentDoesNotAskAllPeersAtOnce(t *testing.T) {
	records, conn := map[string][]byte{}, (*Connection)(nil)
	for range 32 {
		p := newPair(t)
		p.configure()
		p.initiate()
		maps.Copy(records, p.a.records)
		conn = p.a.m.connections["peer"]
	}
	p := newPair(t)
	p.do(p.a, p.a.m.SetConnection("peer", conn, p.now))
	restored, n := p.a.m.Restore(records, p.now)
	p.do(p.a, restored)
	if n != 32 {
		t.Fatalf("%d IKE SAs", n)
	}
	asked, most := map[uint64]bool{}, 0
	for range 31 {
		p.now = p.now.Add(time.Second)
		p.do(p.a, p.a.m.Tick(p.now))
		fresh := 0
		for _, d := range p.wire {
			h, err := message.ParseHeader(d.Data)
			if err != nil {
				t.Fatal(err)
			}
			if !asked[h.SPIi] {
				asked[h.SPIi] = true
				fresh++
			}
		}
		most, p.wire = max(most, fresh), nil
	}
	if len(asked) != 32 || most > 12 {
		t.Errorf("%d of 32 peers are asked, and %d in one second", len(asked), most)
	}
}

// The index of connections by peer agrees with the addresses that each connection accepts.
func TestConnectionsAreFoundByTheAddressesOfBothEnds(t *testing.T) {
	m, now := New(time.Unix(1700000000, 0)), time.Unix(1700000000, 0)
	address := netip.MustParseAddr
	for i := range 300 {
		c := &Connection{Name: fmt.Sprintf("c%03d", i), Dataplane: []string{"x", "y"}[i%2], VRF: []string{"", "red"}[i/2%2], Frozen: i%11 == 0}
		if i%3 != 0 {
			c.Local = address(fmt.Sprintf("192.0.2.%d", i%5))
		}
		if i%7 == 0 {
			c.OtherLocals = []netip.Addr{address("192.0.2.1"), address("192.0.2.2")}
		}
		if i%4 != 0 {
			c.Remote = address(fmt.Sprintf("198.51.100.%d", i%20))
		}
		if i%5 == 0 {
			c.Peers = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/29")}
		}
		m.SetConnection(c.Name, c, now)
	}
	several := 0
	for _, dataplane := range []string{"x", "y", "z"} {
		for _, vrf := range []string{"", "red"} {
			for l := range 6 {
				for r := range 21 {
					local, remote := address(fmt.Sprintf("192.0.2.%d", l)), address(fmt.Sprintf("198.51.100.%d", r))
					var want []*Connection
					for _, c := range m.sorted() {
						if c.Dataplane == dataplane && c.VRF == vrf && c.takes(local, remote) {
							want = append(want, c)
						}
					}
					if len(want) > 1 {
						several++
					}
					if got := m.taking(dataplane, vrf, local, remote); !slices.Equal(got, want) {
						t.Fatalf("%s to %s: %d connections, not %d", remote, local, len(got), len(want))
					}
				}
			}
		}
	}
	if several == 0 {
		t.Error("no peer has several connections")
	}
}
