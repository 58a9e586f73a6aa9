// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

var began = time.Unix(1_800_000_000, 0)

// bench is a client with servers, and its output.
type bench struct {
	t       testing.TB
	client  *client
	now     time.Time
	choices []choice
	sent    []transmit
	counts  map[string]int
	results []finished
	number  byte
}

func newBench(t testing.TB, servers int, change func(i int, s *settings, weight *uint32)) *bench {
	b := &bench{t: t, now: began, counts: map[string]int{}}
	b.client = newClient("bng", func(to []byte) {
		for i := range to {
			b.number++
			to[i] = b.number
		}
	})
	b.client.chance = func(n int) int { return n / 2 }
	for i := range servers {
		s := settings{server: string(rune('a' + i)), address: netip.MustParseAddrPort("192.0.2.1:1812"), secret: secret, timeout: time.Second, tries: 3,
			deadTime: 30 * time.Second, most: 1024}
		weight := uint32(0)
		if change != nil {
			change(i, &s, &weight)
		}
		b.choices = append(b.choices, choice{b.client.add(s), weight})
	}
	return b
}

func (b *bench) take(actions []action) {
	for _, a := range actions {
		switch a := a.(type) {
		case transmit:
			b.sent = append(b.sent, a)
		case counted:
			b.counts[a.endpoint.server+" "+a.what]++
		case finished:
			b.results = append(b.results, a)
			if a.exchange.done != nil {
				a.exchange.done(a.packet, a.endpoint)
			}
		}
	}
}

func (b *bench) ask() *exchange {
	var a attributes
	a.text(typeUserName, "nemo")
	x := &exchange{code: AccessRequest, attributes: a, password: []byte("arctangent"), choices: func() []choice { return b.choices }}
	b.take(b.client.submit(x, b.now))
	return x
}

// pass lets time pass in small steps.
func (b *bench) pass(d time.Duration) {
	for end := b.now.Add(d); b.now.Before(end); {
		b.now = b.now.Add(50 * time.Millisecond)
		b.take(b.client.tick(b.now))
	}
}

// passUntilTheNext lets time pass until a request has had all its transmissions to a server, and the next server has it.
func (b *bench) passUntilTheNext() {
	for before := b.counts["a timeout"]; b.counts["a timeout"] == before; {
		b.pass(50 * time.Millisecond)
	}
}

// last removes and returns the last sent packet.
func (b *bench) last() transmit {
	b.t.Helper()
	if len(b.sent) == 0 {
		b.t.Fatal("nothing was sent")
	}
	s := b.sent[len(b.sent)-1]
	b.sent = b.sent[:len(b.sent)-1]
	return s
}

func answerTo(sent transmit, code Code, all attributes) []byte {
	return reply(code, packet(sent.bytes), []byte(sent.endpoint.secret), all)
}

func (b *bench) reply(sent transmit, bytes []byte) {
	b.take(b.client.receive(sent.endpoint, sent.socket, bytes, b.now))
}

func TestAnAnswerEndsARequestOnce(t *testing.T) {
	b := newBench(t, 1, nil)
	b.ask()
	sent := b.last()
	b.reply(sent, answerTo(sent, AccessAccept, nil))
	if len(b.results) != 1 || b.results[0].packet.code() != AccessAccept {
		t.Fatal(b.results)
	}
	b.reply(sent, answerTo(sent, AccessReject, nil))
	b.pass(time.Minute)
	if len(b.results) != 1 || b.counts["a unexpected"] != 1 || len(b.sent) != 0 {
		t.Error(b.results, b.counts, len(b.sent))
	}
}

func TestForgedAnswersAreDroppedAndTheTrueOneStillCounts(t *testing.T) {
	b := newBench(t, 1, nil)
	b.ask()
	sent := b.last()
	forged := reply(AccessAccept, packet(sent.bytes), []byte("guess"), nil)
	b.reply(sent, forged)
	b.reply(sent, forged[:10])
	b.reply(sent, answerTo(sent, CoAACK, nil))
	other := bytes.Clone(answerTo(sent, AccessAccept, nil))
	other[1]++
	b.reply(sent, other)
	unsigned := newPacket(AccessAccept, packet(sent.bytes).identifier(), packet(sent.bytes).authenticator()).withLength()
	sum := unsigned.digest(packet(sent.bytes).authenticator(), []byte(secret))
	copy(unsigned[4:], sum[:])
	b.reply(sent, unsigned)
	if len(b.results) != 0 {
		t.Fatal("a forged answer is believed")
	}
	for _, why := range []string{"authenticator", "malformed", "code", "unexpected", "message-authenticator-missing"} {
		if b.counts["a "+why] != 1 {
			t.Errorf("%s: %d", why, b.counts["a "+why])
		}
	}
	b.reply(sent, answerTo(sent, AccessReject, nil))
	if len(b.results) != 1 || b.results[0].packet.code() != AccessReject {
		t.Error(b.results)
	}
}

func TestAnUnsignedAnswerIsBelievedIfTheServerIsAllowedTo(t *testing.T) {
	b := newBench(t, 1, func(_ int, s *settings, _ *uint32) { s.unsigned = true })
	b.ask()
	sent := b.last()
	p := newPacket(AccessAccept, packet(sent.bytes).identifier(), packet(sent.bytes).authenticator()).withLength()
	sum := p.digest(packet(sent.bytes).authenticator(), []byte(secret))
	copy(p[4:], sum[:])
	b.reply(sent, p)
	if len(b.results) != 1 {
		t.Error(b.counts)
	}
	// But for EAP (RFC 3579 section 3.1).
	x := &exchange{code: AccessRequest, eap: true, choices: func() []choice { return b.choices }}
	b.take(b.client.submit(x, b.now))
	sent = b.last()
	p = newPacket(AccessAccept, packet(sent.bytes).identifier(), packet(sent.bytes).authenticator()).withLength()
	sum = p.digest(packet(sent.bytes).authenticator(), []byte(secret))
	copy(p[4:], sum[:])
	b.reply(sent, p)
	if len(b.results) != 1 {
		t.Error("an unsigned answer to EAP is believed")
	}
}

func TestARequestIsSentAgainWithTheSameOctetsThenGoesToTheNextServer(t *testing.T) {
	b := newBench(t, 2, nil)
	b.ask()
	b.passUntilTheNext()
	if len(b.sent) != 4 {
		t.Fatalf("%d transmissions", len(b.sent))
	}
	for i, s := range b.sent[:3] {
		if s.endpoint.server != "a" || !bytes.Equal(s.bytes, b.sent[0].bytes) {
			t.Errorf("transmission %d is another", i)
		}
	}
	last := b.last()
	if last.endpoint.server != "b" || packet(last.bytes).authenticator() == packet(b.sent[0].bytes).authenticator() {
		t.Error("the next server got the same authenticator, or nothing")
	}
	// A late answer of the first one is ignored.
	b.reply(b.sent[0], answerTo(b.sent[0], AccessAccept, nil))
	if len(b.results) != 0 || b.counts["a unexpected"] != 1 || b.counts["a dead"] != 1 {
		t.Error(b.results, b.counts)
	}
	b.reply(last, answerTo(last, AccessAccept, nil))
	if len(b.results) != 1 {
		t.Error("no result")
	}
	// The first is dead: the next request goes to the second at once.
	b.ask()
	if b.last().endpoint.server != "b" {
		t.Error("a dead server was asked")
	}
}

func TestADeadServerIsTriedAfterItsTimeAndServesAgain(t *testing.T) {
	b := newBench(t, 2, nil)
	b.ask()
	b.passUntilTheNext()
	b.reply(b.sent[3], answerTo(b.sent[3], AccessAccept, nil))
	b.pass(31 * time.Second)
	b.sent = nil
	b.ask()
	sent := b.last()
	if sent.endpoint.server != "a" {
		t.Fatal("it is not tried")
	}
	if a := b.choices[:1]; !room(a, b.now) || room(a, b.now.Add(-31*time.Second)) {
		t.Error("records wait for a server whose dead time is over, or do not wait for one that is dead")
	}
	b.reply(sent, answerTo(sent, AccessAccept, nil))
	if b.counts["a alive"] != 1 {
		t.Error(b.counts)
	}
}

func TestADeadServerIsAskedForItsStatusAndReturnsWithItsAnswer(t *testing.T) {
	b := newBench(t, 2, func(_ int, s *settings, _ *uint32) { s.statusInterval = 5 * time.Second })
	b.ask()
	b.pass(40 * time.Second)
	status := 0
	var last transmit
	for _, s := range b.sent {
		if p := packet(s.bytes); s.endpoint.server == "a" && p.code() == StatusServer {
			status++
			last = s
			if at, err := p.messageAuthenticator(); err != nil || at != signedFirst {
				t.Error("a Status-Server without Message-Authenticator")
			}
		}
	}
	if status < 5 || status > 9 {
		t.Errorf("%d Status-Servers in 37 s", status)
	}
	for before := last.bytes; bytes.Equal(last.bytes, before); {
		b.sent = nil
		b.pass(50 * time.Millisecond)
		for _, s := range b.sent {
			if s.endpoint.server == "a" {
				last = s
			}
		}
	}
	// As FreeRADIUS answers it: without Message-Authenticator.
	p := newPacket(AccessAccept, packet(last.bytes).identifier(), packet(last.bytes).authenticator()).withLength()
	sum := p.digest(packet(last.bytes).authenticator(), []byte(secret))
	copy(p[4:], sum[:])
	b.reply(last, p)
	if b.counts["a alive"] != 1 {
		t.Error(b.counts)
	}
	b.ask()
	if b.last().endpoint.server != "a" {
		t.Error("it is not used again")
	}
}

func TestThousandsOfRequestsWaitAtOnceEachWithItsOwnIdentifierAndSocket(t *testing.T) {
	const many = 3000
	b := newBench(t, 1, func(_ int, s *settings, _ *uint32) { s.most = many })
	for range many + 500 {
		b.ask()
	}
	if len(b.sent) != many {
		t.Fatalf("%d were sent", len(b.sent))
	}
	type slot struct {
		socket int
		id     uint8
	}
	seen := map[slot]bool{}
	sent := b.sent
	b.sent = nil
	for _, s := range sent {
		at := slot{s.socket, packet(s.bytes).identifier()}
		if seen[at] {
			t.Fatal("an identifier is used twice", at)
		}
		seen[at] = true
	}
	for _, s := range sent {
		b.reply(s, answerTo(s, AccessAccept, nil))
	}
	// Those that waited for room took the place of the others.
	if len(b.results) != many || len(b.sent) != 500 {
		t.Errorf("%d results, %d more sent", len(b.results), len(b.sent))
	}
}

func TestServersWithWeightsShareRequests(t *testing.T) {
	b := newBench(t, 3, func(i int, _ *settings, weight *uint32) { *weight = []uint32{3, 1, 0}[i] })
	b.client.chance = rand.New(rand.NewPCG(1, 2)).IntN
	got := map[string]int{}
	for range 400 {
		b.ask()
	}
	for _, s := range b.sent {
		got[s.endpoint.server]++
	}
	if got["c"] != 0 || got["a"] < 250 || got["b"] < 50 {
		t.Error(got)
	}
}

func TestIfAllServersAreDeadAFewRequestsAskAnyway(t *testing.T) {
	b := newBench(t, 1, nil)
	b.ask()
	b.passUntilTheNext()
	if len(b.results) != 1 || b.results[0].packet != nil {
		t.Fatal("no end")
	}
	b.sent = nil
	for range 100 {
		b.ask()
	}
	if len(b.sent) != mostProbes || len(b.results) != 1+100-mostProbes {
		t.Errorf("%d sent, %d results", len(b.sent), len(b.results))
	}
	sent := b.last()
	b.reply(sent, answerTo(sent, AccessAccept, nil))
	b.sent = nil
	for range 100 {
		b.ask()
	}
	if len(b.sent) != 100 {
		t.Error("it answered, and is not asked")
	}
}

func TestWhatWaitsAtAServerThatIsRemovedGoesToAnother(t *testing.T) {
	b := newBench(t, 2, nil)
	b.ask()
	gone := b.choices[0].endpoint
	b.take(b.client.remove(gone, b.now))
	if sent := b.last(); sent.endpoint.server != "b" || gone.outstanding != 0 {
		t.Error("it did not")
	}
}

func TestOneLostRequestDoesNotMakeAServerDead(t *testing.T) {
	b := newBench(t, 2, nil)
	b.ask()
	b.pass(2 * time.Second)
	b.sent = nil
	b.ask()
	sent := b.last()
	b.reply(sent, answerTo(sent, AccessAccept, nil))
	b.pass(6 * time.Second)
	if b.counts["a dead"] != 0 || b.counts["a timeout"] != 1 {
		t.Error(b.counts)
	}
}

func TestARequestForAServerWithRoomDoesNotWaitBehindOthers(t *testing.T) {
	b := newBench(t, 2, func(_ int, s *settings, _ *uint32) { s.most = 1 })
	busy, free := b.choices[:1], b.choices[1:]
	ask := func(choices []choice) {
		b.take(b.client.submit(&exchange{code: AccessRequest, choices: func() []choice { return choices }}, b.now))
	}
	ask(busy)
	ask(free)
	answer := b.last()
	ask(busy)
	ask(free)
	b.reply(answer, answerTo(answer, AccessAccept, nil))
	if sent := b.last(); sent.endpoint.server != "b" || len(b.client.queues[""]) != 1 {
		t.Error("it waits", len(b.client.queues[""]))
	}
}

func TestRequestsOfAPolicyDoNotWaitBehindThoseOfAnother(t *testing.T) {
	b := newBench(t, 2, func(_ int, s *settings, _ *uint32) { s.most = 1 })
	ask := func(group string, choices []choice) {
		b.take(b.client.submit(&exchange{code: AccessRequest, group: group, choices: func() []choice { return choices }}, b.now))
	}
	slow, fast := b.choices[:1], b.choices[1:]
	for range 2 * mostLooked {
		ask("slow", slow)
	}
	const asked = 3
	for range asked {
		ask("fast", fast)
	}
	for range asked {
		sent := b.last()
		if sent.endpoint.server != "b" {
			t.Fatal("the fast server has nothing to do")
		}
		b.reply(sent, answerTo(sent, AccessAccept, nil))
	}
	if len(b.results) != asked || len(b.client.queues) != 1 || len(b.client.groups) != 1 {
		t.Error(len(b.results), len(b.client.queues), b.client.groups)
	}
	// Policies share a server: each in turn.
	for range 10 {
		ask("one", fast)
		ask("two", fast)
	}
	first := map[string]int{}
	for range 10 {
		sent := b.last()
		first[exchangeOf(sent).group]++
		b.reply(sent, answerTo(sent, AccessAccept, nil))
	}
	if first["one"] < 3 || first["two"] < 3 {
		t.Error(first)
	}
}

func exchangeOf(sent transmit) *exchange {
	return sent.endpoint.sockets[sent.socket].waiting[packet(sent.bytes).identifier()]
}

func TestWhoWaitsIsToldWhenTheClientEnds(t *testing.T) {
	b := newBench(t, 1, func(_ int, s *settings, _ *uint32) { s.most = 1 })
	b.ask()
	b.ask()
	sent := b.last()
	b.take(b.client.end())
	// Late packets, on both sides.
	b.reply(sent, answerTo(sent, AccessAccept, nil))
	b.ask()
	b.pass(time.Minute)
	if len(b.results) != 3 || b.counts["a unexpected"] != 1 || len(b.sent) != 0 {
		t.Error(len(b.results), b.counts)
	}
}

func TestEachWaitForAnAnswerIsTwiceAsLongAsTheOneBefore(t *testing.T) {
	var waits []time.Duration
	b := newBench(t, 1, func(_ int, s *settings, _ *uint32) { s.timeout, s.tries = time.Second, 7 })
	// The middle of the spread.
	b.client.chance = func(n int) int { return n / 2 }
	b.ask()
	first := b.now
	for sent := len(b.sent); b.counts["a timeout"] == 0; {
		if b.pass(50 * time.Millisecond); len(b.sent) > sent || b.counts["a timeout"] > 0 {
			sent = len(b.sent)
			waits = append(waits, b.now.Sub(first).Round(time.Second))
			first = b.now
		}
	}
	if want := []time.Duration{1e9, 2e9, 4e9, 8e9, 16e9, 16e9, 16e9}; !slices.Equal(waits, want) {
		t.Error(waits)
	}
}
