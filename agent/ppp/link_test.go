// SPDX-License-Identifier: Apache-2.0

package ppp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unsafe"

	"sluice.dev/sluice/agent/subscriber"
)

var gets = Network{
	Address: netip.MustParseAddr("100.64.0.7"), Gateway: netip.MustParseAddr("100.64.0.1"),
	DNS:    []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("192.0.2.54"), netip.MustParseAddr("2001:db8::53")},
	Prefix: netip.MustParsePrefix("2001:db8:7::/64"), Delegated: netip.MustParsePrefix("2001:db8:700::/56"),
	Announced: []netip.Prefix{netip.MustParsePrefix("2001:db8:5::/48")},
}

// peer is the other end of a link, by hand.
type peer struct {
	t *testing.T
	*Link
	now int64
	out []Action
}

func configOf(methods ...Method) *Config {
	next := uint64(0x0102030405060708)
	return &Config{Name: "sluice", Methods: methods, IPv4: true, IPv6: true, ServerID: []byte{0, 3, 0, 1, 2, 0, 0, 0, 0, 1},
		Random: func() uint64 {
			next = next*6364136223846793005 + 1442695040888963407
			return next
		}}
}

func newPeer(t *testing.T, c *Config, maxPayload uint16) *peer {
	p := &peer{t: t, Link: New(c, maxPayload), now: int64(time.Hour)}
	p.out = p.Open(p.now, nil)
	return p
}

func (p *peer) tell(protocol Protocol, code, id uint8, data ...byte) []Action {
	packet := send(nil, protocol, code, id, data)[0].Packet[2:]
	p.out = p.Receive(protocol, packet, p.now, nil)
	return p.out
}

// next ticks at the deadline.
func (p *peer) next() []Action {
	p.t.Helper()
	at := p.Deadline()
	if at == 0 {
		p.t.Fatal("there is no deadline")
	}
	p.now = max(p.now, at)
	p.out = p.Tick(p.now, nil)
	return p.out
}

// got is the one packet with a code among the last actions.
func (p *peer) got(protocol Protocol, code uint8) (id uint8, data []byte) {
	p.t.Helper()
	for _, a := range p.out {
		if a.Kind == Send && Protocol(binary.BigEndian.Uint16(a.Packet)) == protocol && a.Packet[2] == code {
			if int(binary.BigEndian.Uint16(a.Packet[4:])) != len(a.Packet)-2 {
				p.t.Fatalf("a wrong length: %x", a.Packet)
			}
			return a.Packet[3], a.Packet[6:]
		}
	}
	p.t.Fatalf("no packet of %#x with code %d: %+v", uint16(protocol), code, p.out)
	return 0, nil
}

func (p *peer) has(kind Kind) Action {
	p.t.Helper()
	for _, a := range p.out {
		if a.Kind == kind {
			return a
		}
	}
	p.t.Fatalf("no action %d: %+v", kind, p.out)
	return Action{}
}

func (p *peer) drops(reason string) {
	p.t.Helper()
	if a := p.has(Dropped); a.Reason != reason {
		p.t.Fatalf("dropped as %s, not as %s", a.Reason, reason)
	}
}

func (p *peer) quiet() {
	p.t.Helper()
	for _, a := range p.out {
		if a.Kind == Send {
			p.t.Fatalf("sent %x", a.Packet)
		}
	}
}

// quietBut fails if anything was sent but a packet with a code.
func (p *peer) quietBut(protocol Protocol, code uint8) {
	p.t.Helper()
	for _, a := range p.out {
		if a.Kind == Send && (Protocol(binary.BigEndian.Uint16(a.Packet)) != protocol || a.Packet[2] != code) {
			p.t.Fatalf("sent %x", a.Packet)
		}
	}
}

// openLCP negotiates LCP with a magic number.
func (p *peer) openLCP() {
	p.t.Helper()
	id, options := p.lcp.id, lcpLayer{}.request(p.Link, nil)
	p.tell(LCP, configureRequest, 1, 1, 4, 5, 0xd4, 5, 6, 9, 9, 9, 9)
	p.got(LCP, configureAck)
	p.tell(LCP, configureAck, id, options...)
}

func (p *peer) openPAP() {
	p.t.Helper()
	p.openLCP()
	p.tell(PAP, papRequest, 7, append([]byte("\x05alice\x06secret"), 0)...)
	if c := p.has(Authenticate).Credentials; c.Username != "alice" || string(c.Password) != "secret" {
		p.t.Fatalf("%+v", c)
	}
	p.out = p.Accept(gets, "welcome", p.now, nil)
}

// openAll negotiates everything.
func (p *peer) openAll() {
	p.t.Helper()
	p.openPAP()
	id4, options4 := p.got(IPCP, configureRequest)
	id6, options6 := p.got(IPv6CP, configureRequest)
	p.tell(IPCP, configureRequest, 1, 3, 6, 100, 64, 0, 7)
	p.tell(IPCP, configureAck, id4, options4...)
	if p.has(Opened).Family != 4 {
		p.t.Fatal(p.out)
	}
	p.tell(IPv6CP, configureRequest, 1, 1, 10, 2, 0, 0, 0, 0, 0, 0, 9)
	p.tell(IPv6CP, configureAck, id6, options6...)
	if p.has(Opened).Family != 6 {
		p.t.Fatal(p.out)
	}
}

func TestALinkIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Link{}) + unsafe.Sizeof(addresses{}); size > 512 {
		t.Errorf("a link takes %d bytes", size)
	}
}

func TestAPeerNegotiatesEverythingWithPAP(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	_, options := p.got(LCP, configureRequest)
	if !bytes.HasPrefix(options, []byte{1, 4, 0x05, 0xd4, 3, 4, 0xc0, 0x23, 5, 6}) {
		t.Fatalf("%x", options)
	}
	p.openPAP()
	if id, message := p.got(PAP, papAck); id != 7 || string(message) != "\x07welcome" {
		t.Fatalf("%d %q", id, message)
	}
	_, options = p.got(IPCP, configureRequest)
	if !bytes.Equal(options, []byte{3, 6, 100, 64, 0, 1}) {
		t.Fatalf("%x", options)
	}
	// No address and both name servers, and a NetBIOS name server, which is rejected first.
	ask := []byte{3, 6, 0, 0, 0, 0, 129, 6, 0, 0, 0, 0, 131, 6, 0, 0, 0, 0}
	p.tell(IPCP, configureRequest, 3, append([]byte{130, 6, 0, 0, 0, 0, 2, 6, 0, 0x2d, 0x0f, 1}, ask...)...)
	if _, reject := p.got(IPCP, configureReject); !bytes.Equal(reject, []byte{130, 6, 0, 0, 0, 0, 2, 6, 0, 0x2d, 0x0f, 1}) {
		t.Fatalf("%x", reject)
	}
	p.tell(IPCP, configureRequest, 4, ask...)
	_, nak := p.got(IPCP, configureNak)
	if !bytes.Equal(nak, []byte{3, 6, 100, 64, 0, 7, 129, 6, 192, 0, 2, 53, 131, 6, 192, 0, 2, 54}) {
		t.Fatalf("%x", nak)
	}
	p.tell(IPCP, configureRequest, 5, nak...)
	p.got(IPCP, configureAck)
	p.tell(IPCP, configureAck, p.ipcp.id, options...)
	if p.has(Opened).Family != 4 || !p.Up() {
		t.Fatal(p.out)
	}
	if p.MTU() != 1492 {
		t.Error(p.MTU())
	}
}

func TestIPv6ComesByRouterAdvertisementAndDHCPv6(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	p.openAll()
	// With IPv6CP open, a router advertisement is sent.
	ra := p.out[len(p.out)-1].Packet
	if Protocol(binary.BigEndian.Uint16(ra)) != IPv6 || ra[2+40] != routerAdvertisement {
		t.Fatalf("%x", ra)
	}
	wrongSum := checksum([16]byte(ra[10:26]), [16]byte(ra[26:42]), icmp6, ra[42:])
	prefix := []byte{3, 4, 64, 0xc0, 0, 0, 0x1c, 0x20, 0, 0, 0x0e, 0x10, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8, 0, 7}
	if wrongSum != 0xffff || ra[9] != 255 || !bytes.Contains(ra, prefix) || !bytes.Contains(ra, []byte{5, 1, 0, 0, 0, 0, 5, 0xd4}) ||
		!bytes.Contains(ra, append([]byte{25, 3, 0, 0, 0, 0, 7, 8}, gets.DNS[2].AsSlice()...)) || ra[42+5] != 0x40 ||
		!bytes.HasSuffix(ra, []byte{24, 2, 48, 0, 0, 0, 7, 8, 0x20, 1, 0x0d, 0xb8, 0, 5, 0, 0}) {
		t.Fatalf("%x", ra)
	}
	source := netip.MustParseAddr("fe80::200:0:0:9")
	solicitation := packet6(source, netip.MustParseAddr("ff02::2"), icmp6, 255, []byte{routerSolicitation, 0, 0, 0, 0, 0, 0, 0}, 2)
	for range solicitationsAnswered {
		p.out = p.Receive(IPv6, solicitation[2:], p.now, nil)
		if p.has(Send).Packet[42] != routerAdvertisement {
			t.Fatal(p.out)
		}
	}
	p.out = p.Receive(IPv6, solicitation[2:], p.now, nil)
	p.drops("too-many-solicitations")
	p.quiet()
	solicitation[9] = 64
	p.out = p.Receive(IPv6, solicitation[2:], p.now, nil)
	p.drops("malformed")

	message := []byte{1, 1, 2, 3, 0, 1, 0, 4, 0, 3, 0, 1, 0, 25, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}
	datagram := append([]byte{2, 34, 2, 35, 0, byte(8 + len(message)), 0, 0}, message...)
	solicit := packet6(source, netip.MustParseAddr("ff02::1:2"), udp, 1, datagram, 6)
	p.out = p.Receive(IPv6, solicit[2:], p.now, nil)
	answer := p.has(Send).Packet
	delegated := gets.Delegated.Addr().As16()
	if !bytes.Equal(answer[26:42], source.AsSlice()) || answer[50] != 2 || !bytes.Contains(answer, append([]byte{56}, delegated[:]...)) {
		t.Fatalf("%x", answer)
	}
	for cut := range len(solicit) - 2 {
		p.out = p.Receive(IPv6, solicit[2:2+cut], p.now, nil)
		p.drops("malformed")
	}
	// Advertisements go on, ever more seldom.
	for range 5 {
		p.next()
		if p.has(Send).Packet[42] != routerAdvertisement {
			t.Fatal(p.out)
		}
	}
	if next := time.Duration(p.Deadline() - p.now); next < advertiseTime/2 || next > advertiseTime {
		t.Error(next)
	}
}

func TestCHAPAndMSCHAPv2(t *testing.T) {
	p := newPeer(t, configOf(MethodCHAP, MethodMSCHAPv2), 1492)
	p.openLCP()
	id, challenge := p.got(CHAP, chapChallenge)
	if challenge[0] != 16 || string(challenge[17:]) != "sluice" {
		t.Fatalf("%x", challenge)
	}
	// The challenge is repeated.
	p.next()
	if again, same := p.got(CHAP, chapChallenge); again != id || !bytes.Equal(same, challenge) {
		t.Fatal("another challenge")
	}
	response := append(append([]byte{16}, "0123456789abcdef"...), "bob"...)
	p.tell(CHAP, chapResponse, id+1, response...)
	p.drops("not-our-challenge")
	p.tell(CHAP, chapResponse, id, response[:9]...)
	p.drops("malformed")
	p.tell(CHAP, chapResponse, id, response...)
	if c := p.has(Authenticate).Credentials; c.Username != "bob" || string(c.CHAP.Response[:]) != "0123456789abcdef" || !bytes.Equal(c.CHAP.Challenge, challenge[1:17]) {
		t.Fatalf("%+v", c)
	}
	p.tell(CHAP, chapResponse, id, response...)
	p.drops("repeated")
	p.out = p.Accept(gets, "", p.now, nil)
	p.got(CHAP, chapSuccess)
	p.got(IPCP, configureRequest)
	// The peer did not receive it.
	p.tell(CHAP, chapResponse, id, response...)
	p.got(CHAP, chapSuccess)

	p = newPeer(t, configOf(MethodMSCHAPv2), 1492)
	p.openLCP()
	id, challenge = p.got(CHAP, chapChallenge)
	response = append(append([]byte{49}, bytes.Repeat([]byte{1}, 16)...), make([]byte, 8)...)
	response = append(append(response, bytes.Repeat([]byte{2}, 24)...), 0)
	p.tell(CHAP, chapResponse, id, append(response, "carol"...)...)
	c := p.has(Authenticate).Credentials
	if c.Username != "carol" || c.MSCHAPv2.PeerChallenge[0] != 1 || c.MSCHAPv2.Response[23] != 2 || c.MSCHAPv2.AuthenticatorChallenge != [16]byte(challenge[1:17]) {
		t.Fatalf("%+v", c)
	}
	p.out = p.Reject("no such user", p.now, nil)
	if _, message := p.got(CHAP, chapFailure); !strings.HasPrefix(string(message), "E=691 R=0 C=") || !strings.HasSuffix(string(message), " V=3 M=no such user") {
		t.Errorf("%q", message)
	}
	p.got(LCP, terminateRequest)
	if p.has(Finished).Cause != subscriber.UserError {
		t.Error(p.out)
	}
}

func TestThePeerChoosesAmongTheMethodsThatAreOffered(t *testing.T) {
	for _, c := range []struct {
		name    string
		offered []Method
		answer  uint8
		wish    []byte
		then    []byte
	}{
		{"its wish", []Method{MethodMSCHAPv2, MethodCHAP, MethodPAP}, configureNak, []byte{3, 4, 0xc0, 0x23}, []byte{3, 4, 0xc0, 0x23}},
		{"CHAP with MD5", []Method{MethodMSCHAPv2, MethodPAP, MethodCHAP}, configureNak, []byte{3, 5, 0xc2, 0x23, 5}, []byte{3, 5, 0xc2, 0x23, 5}},
		{"a wish that is not offered: the next", []Method{MethodMSCHAPv2, MethodCHAP}, configureNak, []byte{3, 4, 0xc0, 0x23}, []byte{3, 5, 0xc2, 0x23, 5}},
		{"none is left", []Method{MethodCHAP}, configureNak, []byte{3, 4, 0xc0, 0x23}, nil},
		{"it refuses altogether", []Method{MethodCHAP, MethodPAP}, configureReject, []byte{3, 5, 0xc2, 0x23, 5}, nil},
	} {
		p := newPeer(t, configOf(c.offered...), 1492)
		id, _ := p.got(LCP, configureRequest)
		p.tell(LCP, c.answer, id, c.wish...)
		if c.then == nil {
			p.has(Finished)
			continue
		}
		if _, options := p.got(LCP, configureRequest); !bytes.Contains(options, c.then) {
			t.Errorf("%s: %x", c.name, options)
		}
	}
}

func TestLCPAnswersEachOption(t *testing.T) {
	for _, c := range []struct {
		name          string
		maxPayload    uint16
		options       []byte
		code          uint8
		answer        []byte
		mtu           uint16
		anyNakContent bool
	}{
		{"nothing", 1492, nil, configureAck, nil, 1492, false},
		{"MRU", 1492, []byte{1, 4, 5, 0x78}, configureAck, []byte{1, 4, 5, 0x78}, 1400, false},
		{"MRU as by Ethernet", 1492, []byte{1, 4, 5, 0xdc}, configureNak, []byte{1, 4, 5, 0xd4}, 1492, false},
		{"PPP-Max-Payload", 1500, []byte{1, 4, 5, 0xdc}, configureAck, []byte{1, 4, 5, 0xdc}, 1500, false},
		{"MRU too large", 1492, []byte{1, 4, 0x23, 0x28}, configureNak, []byte{1, 4, 5, 0xd4}, 1492, false},
		{"MRU too small", 1492, []byte{1, 4, 0, 8}, configureNak, []byte{1, 4, 5, 0xd4}, 1492, false},
		{"unknown options", 1492, []byte{7, 2, 8, 2, 13, 3, 6, 17, 4, 5, 0, 1, 4, 5, 0x78}, configureReject, []byte{7, 2, 8, 2, 13, 3, 6, 17, 4, 5, 0}, 1492, false},
		{"authentication of us", 1492, []byte{3, 4, 0xc0, 0x23}, configureReject, []byte{3, 4, 0xc0, 0x23}, 1492, false},
		{"magic number 0", 1492, []byte{5, 6, 0, 0, 0, 0}, configureNak, []byte{5, 6}, 1492, true},
		{"an option of the wrong length", 1492, []byte{1, 3, 5}, configureReject, []byte{1, 3, 5}, 1492, false},
	} {
		p := newPeer(t, configOf(MethodPAP), c.maxPayload)
		p.tell(LCP, configureRequest, 9, c.options...)
		id, answer := p.got(LCP, c.code)
		if id != 9 || !bytes.Equal(answer, c.answer) && !(c.anyNakContent && bytes.HasPrefix(answer, c.answer)) || p.MTU() != c.mtu {
			t.Errorf("%s: %x, MTU %d", c.name, answer, p.MTU())
		}
	}
	// A peer that insists gets its own option back, and the default is in force.
	p := newPeer(t, configOf(MethodPAP), 1492)
	for range maxFailure {
		p.tell(LCP, configureRequest, 9, 1, 4, 5, 0xdc)
		p.got(LCP, configureNak)
	}
	p.tell(LCP, configureRequest, 9, 5, 6, 9, 9, 9, 9, 1, 4, 5, 0xdc)
	if _, answer := p.got(LCP, configureReject); !bytes.Equal(answer, []byte{1, 4, 5, 0xdc}) {
		t.Errorf("%x", answer)
	}
	p.tell(LCP, configureRequest, 9, 5, 6, 9, 9, 9, 9)
	p.got(LCP, configureAck)
	p = newPeer(t, configOf(MethodPAP), 1492)
	for _, malformed := range [][]byte{{1}, {1, 1}, {1, 4, 5}, {5, 6, 1, 1, 1}, {0, 0}} {
		p.tell(LCP, configureRequest, 9, malformed...)
		p.drops("malformed")
		p.quiet()
	}
}

func TestALoopIsFound(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	for range 40 {
		// All that is sent comes back.
		for _, a := range p.out {
			if a.Kind == Finished {
				if a.Cause != subscriber.PortError {
					t.Fatal(a)
				}
				return
			}
		}
		back := p.out
		p.out = nil
		for _, a := range back {
			if a.Kind == Send {
				p.out = p.Receive(Protocol(binary.BigEndian.Uint16(a.Packet)), a.Packet[2:], p.now, p.out)
			}
		}
	}
	t.Fatal("a looped line goes on for ever")
}

func TestAPeerThatDoesNotAnswerIsLeft(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	requests := 1
	for p.phase != finished {
		p.next()
		for _, a := range p.out {
			if a.Kind == Send && a.Packet[2] == configureRequest {
				requests++
			}
		}
	}
	if a := p.has(Finished); a.Cause != subscriber.LostCarrier || requests != maxConfigure {
		t.Errorf("%+v after %d requests", a, requests)
	}
	// It negotiates LCP and is then silent.
	p = newPeer(t, configOf(MethodPAP), 1492)
	p.openLCP()
	p.next()
	p.has(Finished)
	// Nor challenges are answered.
	p = newPeer(t, configOf(MethodCHAP), 1492)
	p.openLCP()
	for p.phase != finished {
		p.next()
	}
	if p.Deadline() != 0 {
		t.Error("a link that ended has a deadline")
	}
}

func TestEchoFindsAPeerThatIsGone(t *testing.T) {
	c := configOf(MethodPAP)
	c.EchoInterval, c.EchoFailures, c.IPv6 = 10*time.Second, 3, false
	p := newPeer(t, c, 1492)
	p.openPAP()
	id, options := p.got(IPCP, configureRequest)
	p.tell(IPCP, configureRequest, 1, 3, 6, 100, 64, 0, 7)
	p.tell(IPCP, configureAck, id, options...)
	for range 5 {
		p.next()
		id, data := p.got(LCP, echoRequest)
		if binary.BigEndian.Uint32(data) != p.Magic() {
			t.Errorf("%x", data)
		}
		// Of a magic number that is 0: some peers send that.
		p.tell(LCP, echoReply, id, 0, 0, 0, 0)
	}
	for range 3 {
		p.next()
		p.got(LCP, echoRequest)
	}
	p.next()
	if p.has(Finished).Cause != subscriber.LostCarrier {
		t.Error(p.out)
	}
}

func TestAPeerThatIsWatchedIsNotAsked(t *testing.T) {
	c := configOf(MethodPAP)
	c.EchoInterval, c.EchoFailures, c.IPv6 = 10*time.Second, 3, false
	p := newPeer(t, c, 1492)
	p.openPAP()
	id, options := p.got(IPCP, configureRequest)
	p.tell(IPCP, configureRequest, 1, 3, 6, 100, 64, 0, 7)
	p.tell(IPCP, configureAck, id, options...)
	p.Watched(p.now)
	if p.Deadline() != 0 {
		t.Error("a link that is watched has a deadline")
	}
	if p.out = p.Lost(p.now, nil); p.has(Finished).Cause != subscriber.LostCarrier {
		t.Error(p.out)
	}
}

func TestAPeerThatRejectsTheMagicNumberIsAskedByTheAgent(t *testing.T) {
	c := configOf(MethodPAP)
	c.EchoInterval, c.EchoFailures, c.IPv6 = 10*time.Second, 3, false
	p := newPeer(t, c, 1492)
	id, options := p.got(LCP, configureRequest)
	p.tell(LCP, configureReject, id, options[len(options)-6:]...)
	p.openLCP()
	p.tell(PAP, papRequest, 7, []byte("\x05alice\x06secret")...)
	p.Watched(p.now)
	p.out = p.Accept(gets, "welcome", p.now, nil)
	id, options = p.got(IPCP, configureRequest)
	p.tell(IPCP, configureRequest, 1, 3, 6, 100, 64, 0, 7)
	p.tell(IPCP, configureAck, id, options...)
	for range 3 {
		p.next()
		p.got(LCP, echoRequest)
	}
	p.next()
	if p.has(Finished).Cause != subscriber.LostCarrier {
		t.Error(p.out)
	}
}

func TestEchoRequestsAreAnsweredButThoseOfOurOwn(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	p.tell(LCP, echoRequest, 4, 9, 9, 9, 9)
	p.drops("too-early")
	p.openLCP()
	for _, data := range [][]byte{{9, 9, 9, 9}, {0, 0, 0, 0}, {9, 9, 9, 9, 'h', 'i'}, {}} {
		p.tell(LCP, echoRequest, 4, data...)
		id, answer := p.got(LCP, echoReply)
		if id != 4 || binary.BigEndian.Uint32(answer) != p.Magic() || len(data) > 4 && string(answer[4:]) != "hi" {
			t.Errorf("%x", answer)
		}
	}
	p.tell(LCP, echoRequest, 4, binary.BigEndian.AppendUint32(nil, p.Magic())...)
	p.drops("looped-back")
	p.quiet()
}

func TestUnknownCodesAndProtocolsAreRejected(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	p.out = p.Receive(0x80fd, []byte{1, 1, 0, 4}, p.now, nil)
	p.quiet()
	p.openAll()
	p.tell(0x80fd, configureRequest, 1)
	if _, rejected := p.got(LCP, protocolReject); !bytes.Equal(rejected, []byte{0x80, 0xfd, 1, 1, 0, 4}) {
		t.Errorf("%x", rejected)
	}
	p.tell(LCP, 77, 5, 1, 2)
	if _, rejected := p.got(LCP, codeReject); !bytes.Equal(rejected, []byte{77, 5, 0, 6, 1, 2}) {
		t.Errorf("%x", rejected)
	}
	p.tell(IPCP, 77, 5, 1, 2)
	p.got(IPCP, codeReject)
	// The peer has no IPv6.
	p.tell(LCP, protocolReject, 1, 0x80, 0x57, 1, 1, 0, 4)
	if a := p.has(Refused); a.Family != 6 {
		t.Error(a)
	}
	p.tell(LCP, protocolReject, 1, 0xc0, 0x21)
	p.has(Finished)
	p = newPeer(t, configOf(MethodPAP), 1492)
	p.tell(LCP, codeReject, 1, configureRequest, 1, 0, 4)
	p.has(Finished)
}

func TestTheInterfaceIdentifiersDiffer(t *testing.T) {
	for _, wish := range []string{"zero", "ours"} {
		p := newPeer(t, configOf(MethodPAP), 1492)
		p.openPAP()
		id := [8]byte{}
		if wish == "ours" {
			id = p.ourID
		}
		p.tell(IPv6CP, configureRequest, 0, append([]byte{1, 10}, id[:]...)...)
		_, nak := p.got(IPv6CP, configureNak)
		if given := [8]byte(nak[2:]); given == p.ourID || given == [8]byte{} {
			t.Errorf("%x", nak)
		}
		p.tell(IPv6CP, configureRequest, 1, nak...)
		p.got(IPv6CP, configureAck)
	}
	// The peer does not like ours.
	p := newPeer(t, configOf(MethodPAP), 1492)
	p.openPAP()
	id, _ := p.got(IPv6CP, configureRequest)
	p.tell(IPv6CP, configureNak, id, 1, 10, 2, 0, 0, 0, 0, 0, 0, 5)
	if _, options := p.got(IPv6CP, configureRequest); !bytes.Equal(options, []byte{1, 10, 2, 0, 0, 0, 0, 0, 0, 5}) {
		t.Errorf("%x", options)
	}
	// A method that the back end requires.
	p = newPeer(t, configOf(MethodPAP), 1492)
	p.openLCP()
	p.tell(PAP, papRequest, 7, []byte("\x05alice\x06secret")...)
	n := gets
	n.InterfaceID = [8]byte{7: 7}
	p.out = p.Accept(n, "", p.now, nil)
	p.tell(IPv6CP, configureRequest, 1, 1, 10, 2, 0, 0, 0, 0, 0, 0, 9)
	if _, nak := p.got(IPv6CP, configureNak); !bytes.Equal(nak, []byte{1, 10, 0, 0, 0, 0, 0, 0, 0, 7}) {
		t.Errorf("%x", nak)
	}
}

// Known bugs of CPE, and our reactions.
func TestBuggyCPEAreServed(t *testing.T) {
	t.Run("Configure-Ack with the options in another order", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		id, o := p.got(LCP, configureRequest)
		p.tell(LCP, configureRequest, 1)
		p.tell(LCP, configureAck, id, append(append(append([]byte{}, o[8:]...), o[4:8]...), o[:4]...)...)
		if p.phase != authenticate {
			t.Error("LCP is not open")
		}
	})
	t.Run("Configure-Ack with another option is none", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		id, o := p.got(LCP, configureRequest)
		p.tell(LCP, configureRequest, 1)
		o = append([]byte{}, o...)
		o[len(o)-1]++
		p.tell(LCP, configureAck, id, o...)
		p.drops("not-our-request")
	})
	t.Run("IPCP before authentication ends", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		p.openLCP()
		p.tell(IPCP, configureRequest, 1, 3, 6, 0, 0, 0, 0)
		p.drops("too-early")
		p.quiet()
		p.tell(PAP, papRequest, 7, []byte("\x05alice\x06secret")...)
		p.tell(IPv6CP, configureRequest, 1, 1, 10, 0, 0, 0, 0, 0, 0, 0, 9)
		p.drops("too-early")
		p.out = p.Accept(gets, "", p.now, nil)
		p.tell(IPCP, configureRequest, 1, 3, 6, 0, 0, 0, 0)
		p.got(IPCP, configureNak)
	})
	t.Run("the same Configure-Request again after LCP is open", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		p.openAll()
		p.tell(LCP, configureRequest, 1, 1, 4, 5, 0xd4, 5, 6, 9, 9, 9, 9)
		p.got(LCP, configureAck)
		if len(p.out) != 1 || !p.Up() {
			t.Errorf("%+v", p.out)
		}
	})
	t.Run("a second Configure-Ack", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		id, options := p.got(LCP, configureRequest)
		p.openLCP()
		p.tell(LCP, configureAck, id, options...)
		p.quiet()
		if p.lcp.state != opened {
			t.Error("LCP is not open any more")
		}
	})
	t.Run("IPv6CP with identifier 0 of the packet", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		p.openPAP()
		p.tell(IPv6CP, configureRequest, 0, 1, 10, 2, 0, 0, 0, 0, 0, 0, 9)
		if id, _ := p.got(IPv6CP, configureAck); id != 0 {
			t.Error(id)
		}
	})
	t.Run("one name server is known and two are asked for", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		p.openLCP()
		p.tell(PAP, papRequest, 7, []byte("\x05alice\x06secret")...)
		n := gets
		n.DNS = n.DNS[:1]
		p.out = p.Accept(n, "", p.now, nil)
		p.tell(IPCP, configureRequest, 1, 3, 6, 100, 64, 0, 7, 131, 6, 0, 0, 0, 0)
		if _, nak := p.got(IPCP, configureNak); !bytes.Equal(nak, []byte{131, 6, 192, 0, 2, 53}) {
			t.Errorf("%x", nak)
		}
	})
	t.Run("a wish for another address, again and again", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		p.openPAP()
		for range maxFailure {
			p.tell(IPCP, configureRequest, 1, 3, 6, 10, 0, 0, 1)
			p.got(IPCP, configureNak)
		}
		p.tell(IPCP, configureRequest, 1, 3, 6, 10, 0, 0, 1)
		p.got(IPCP, configureReject)
		p.tell(IPCP, configureRequest, 1)
		p.got(IPCP, configureAck)
	})
	t.Run("no address is asked for", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		p.openPAP()
		p.tell(IPCP, configureRequest, 1)
		p.got(IPCP, configureNak)
		p.tell(IPCP, configureRequest, 2)
		p.got(IPCP, configureAck)
	})
	t.Run("PAP again after IPCP began", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		p.openPAP()
		p.tell(PAP, papRequest, 7, []byte("\x05alice\x06secret")...)
		p.got(PAP, papAck)
	})
	t.Run("padding behind the length", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		p.out = p.Receive(LCP, append([]byte{configureRequest, 1, 0, 4}, make([]byte, 30)...), p.now, nil)
		if _, options := p.got(LCP, configureAck); len(options) != 0 {
			t.Errorf("%x", options)
		}
	})
	t.Run("it rejects the MRU and the magic number", func(t *testing.T) {
		p := newPeer(t, configOf(MethodPAP), 1492)
		id, o := p.got(LCP, configureRequest)
		p.tell(LCP, configureReject, id, append(append([]byte{}, o[:4]...), o[8:]...)...)
		if _, o := p.got(LCP, configureRequest); !bytes.Equal(o, []byte{3, 4, 0xc0, 0x23}) || p.Magic() != 0 {
			t.Errorf("%x", o)
		}
	})
}

func TestLCPNegotiatesAnewWhileItIsOpen(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	p.openAll()
	p.tell(LCP, configureRequest, 9, 1, 4, 5, 0x78)
	id, options := p.got(LCP, configureRequest)
	p.got(LCP, configureAck)
	if p.Up() {
		t.Error("network protocols are open without authentication")
	}
	p.tell(LCP, configureAck, id, options...)
	p.has(Renegotiated)
	if p.MTU() != 1400 {
		t.Error(p.MTU())
	}
	p.tell(PAP, papRequest, 8, []byte("\x05alice\x06secret")...)
	p.has(Authenticate)
	p.out = p.Accept(gets, "", p.now, nil)
	p.got(IPCP, configureRequest)
	p.got(IPv6CP, configureRequest)
}

func TestAPeerThatNegotiatesAgainAndAgainIsLeft(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	p.openAll()
	for i := range maxAgain {
		p.tell(LCP, configureRequest, byte(10+i), 1, 4, 5, byte(i))
		id, options := p.got(LCP, configureRequest)
		p.tell(LCP, configureAck, id, options...)
		p.has(Renegotiated)
	}
	p.tell(LCP, configureRequest, 99, 1, 4, 5, 0x78)
	if a := p.has(Finished); a.Cause != subscriber.UserError {
		t.Error(a)
	}
	p.quietBut(LCP, terminateRequest)
}

func TestAPeerEndsANetworkProtocolAndTheLink(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	p.openAll()
	p.tell(IPCP, terminateRequest, 3)
	p.got(IPCP, terminateAck)
	if !p.Up() {
		t.Error("IPv6 goes on")
	}
	p.tell(IPv6CP, terminateRequest, 3)
	p.got(IPv6CP, terminateAck)
	// It may begin again.
	p.tell(IPCP, configureRequest, 4, 3, 6, 100, 64, 0, 7)
	p.got(IPCP, configureAck)
	p.got(IPCP, configureRequest)
	p.tell(LCP, terminateRequest, 5)
	if id, _ := p.got(LCP, terminateAck); id != 5 || p.has(Finished).Cause != subscriber.UserRequest {
		t.Error(p.out)
	}
	p.tell(LCP, echoRequest, 5, 0, 0, 0, 0)
	p.quiet()
}

func TestATerminateRequestWhileANetworkProtocolIsNegotiatedDoesNotStopIt(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	p.openPAP()
	id, options := p.got(IPCP, configureRequest)
	p.tell(IPCP, terminateRequest, 3)
	p.got(IPCP, terminateAck)
	p.tell(IPCP, configureAck, id, options...)
	p.tell(IPCP, configureRequest, 1, 3, 6, 100, 64, 0, 7)
	p.has(Opened)
}

func TestAPeerThatWasDeafGetsTheConfigureRequestWithItsOwn(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	first, _ := p.got(LCP, configureRequest)
	before := p.now
	p.tell(LCP, configureRequest, 1, 5, 6, 9, 9, 9, 9)
	id, options := p.got(LCP, configureRequest)
	if id != first {
		t.Error("an answer to the first request would not count")
	}
	p.tell(LCP, configureAck, id, options...)
	p.tell(LCP, configureAck, id, options...)
	if p.phase != authenticate || p.now != before {
		t.Error("LCP is not open without a time-out")
	}
	// One that says nothing new is not answered with requests.
	p = newPeer(t, configOf(MethodPAP), 1492)
	p.tell(LCP, configureRequest, 1, 5, 6, 0, 0, 0, 0)
	p.got(LCP, configureNak)
	p.tell(LCP, configureRequest, 2, 5, 6, 0, 0, 0, 0)
	p.quietBut(LCP, configureNak)
}

func TestAnAnswerToCredentialsThatWasLostInARestartIsGivenAgain(t *testing.T) {
	for _, method := range []Method{MethodPAP, MethodCHAP} {
		c := configOf(method)
		p := newPeer(t, c, 1492)
		p.openLCP()
		ask := func() {
			t.Helper()
			if method == MethodPAP {
				p.tell(PAP, papRequest, 7, []byte("\x05alice\x06secret")...)
				return
			}
			p.tell(CHAP, chapResponse, p.auth.id, []byte("\x100123456789abcdefalice")...)
		}
		ask()
		p.has(Authenticate)
		l, ok := Restore(c, p.State(), gets, p.now)
		if !ok {
			t.Fatal("not restored")
		}
		before := p.auth.id
		p.Link = l
		if method == MethodPAP {
			ask()
		} else {
			p.tell(CHAP, chapResponse, before, []byte("\x100123456789abcdefalice")...)
			p.got(CHAP, chapChallenge)
			ask()
		}
		if p.has(Authenticate).Credentials.Username != "alice" {
			t.Error(p.out)
		}
		p.out = p.Resume("welcome", p.now, nil)
		p.got(IPCP, configureRequest)
		// A peer whose network protocols are open has no need of that.
		if l, ok = Restore(c, p.State(), gets, p.now); !ok {
			t.Fatal("not restored")
		}
		p.Link = l
		p.tell(IPCP, configureRequest, 9, 3, 6, 100, 64, 0, 7)
		p.tell(PAP, papRequest, 8, []byte("\x05alice\x06secret")...)
		p.drops("unexpected")
	}
}

func TestALinkWithoutANetworkProtocolEnds(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	p.openPAP()
	for p.phase != finished {
		p.next()
	}
	if a := p.has(Finished); a.Reason != "the peer opened no network protocol" {
		t.Error(a)
	}
}

func TestALinkGoesOnAfterARestart(t *testing.T) {
	c := configOf(MethodPAP)
	p := newPeer(t, c, 1500)
	p.openAll()
	magic, mtu, id := p.Magic(), p.MTU(), p.ourID
	l, ok := Restore(c, p.State(), gets, p.now)
	if !ok || l.Magic() != magic || l.MTU() != mtu || l.ourID != id || !l.Up() {
		t.Fatalf("%+v", l)
	}
	p.Link = l
	p.tell(LCP, echoRequest, 4, 9, 9, 9, 9)
	if _, answer := p.got(LCP, echoReply); binary.BigEndian.Uint32(answer) != magic {
		t.Errorf("%x", answer)
	}
	// It was still negotiating IPCP when the agent stopped: it repeats itself.
	p.tell(IPCP, configureRequest, 9, 3, 6, 0, 0, 0, 0)
	_, nak := p.got(IPCP, configureNak)
	id4, options := p.got(IPCP, configureRequest)
	p.tell(IPCP, configureAck, id4, options...)
	p.tell(IPCP, configureRequest, 10, nak...)
	p.has(Opened)
	for cut := range len(l.State()) {
		if _, ok := Restore(c, l.State()[:cut], gets, p.now); ok {
			t.Errorf("%d bytes of a state are read", cut)
		}
	}
}

func TestNoTruncationOfAPacketIsRead(t *testing.T) {
	p := newPeer(t, configOf(MethodPAP), 1492)
	whole := send(nil, LCP, configureRequest, 1, []byte{1, 4, 5, 0xd4})[0].Packet[2:]
	for cut := range whole {
		p.out = p.Receive(LCP, whole[:cut], p.now, nil)
		p.drops("malformed")
	}
	p.openLCP()
	whole = send(nil, PAP, papRequest, 1, []byte("\x05alice\x06secret"))[0].Packet[2:]
	for cut := range whole {
		p.out = p.Receive(PAP, whole[:cut], p.now, nil)
		p.drops("malformed")
	}
}
