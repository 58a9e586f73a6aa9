// SPDX-License-Identifier: Apache-2.0

package wcp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/agent/eap5g"
)

// world records the output of a Gateway.
type world struct {
	now                time.Time
	sent               []string
	registered, uplink []string
	ready              int
	closed             error
	dropped            []string
	whenReady          func()
}

func (w *world) Now() time.Time { return w.now }
func (w *world) Send(p Protocol, packet []byte) {
	w.sent = append(w.sent, map[Protocol]string{EAP: "eap ", VSNCP: "vsncp ", VSNP: "vsnp "}[p]+hex.EncodeToString(packet))
}
func (w *world) Register(_ eap5g.Parameters, message []byte) {
	w.registered = append(w.registered, hex.EncodeToString(message))
}
func (w *world) Uplink(message []byte) { w.uplink = append(w.uplink, hex.EncodeToString(message)) }
func (w *world) Ready() {
	w.ready++
	if w.whenReady != nil {
		w.whenReady()
	}
}
func (w *world) Closed(err error)      { w.closed = err }
func (w *world) Dropped(reason string) { w.dropped = append(w.dropped, reason) }

// took returns the output since the last call.
func (w *world) took() []string {
	sent := w.sent
	w.sent = nil
	return sent
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Packets of a 5G-RG that registers: 5G-NAS with a registration request, and with an answer to the core.
const (
	first     = "02010014fe0028af00000003020000000002" + "7e41"
	second    = "02020014fe0028af00000003020000000002" + "7e57"
	configure = "010900070025" + "6d"
	configAck = "020100070025" + "6d"
)

func begin(t testing.TB) (*world, *Gateway) {
	t.Helper()
	w := &world{now: time.Unix(1000, 0)}
	return w, NewGateway(w)
}

// open is a Gateway whose 5G-RG is authenticated.
func open(t testing.TB) (*world, *Gateway) {
	t.Helper()
	w, g := begin(t)
	g.Receive(EAP, unhex(t, first))
	g.Accept()
	g.Receive(VSNCP, unhex(t, configure))
	g.Receive(VSNCP, unhex(t, configAck))
	w.took()
	return w, g
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%q instead of %q", got, want)
	}
}

func TestA5GRGAuthenticatesAndSpeaksNAS(t *testing.T) {
	w, g := begin(t)
	expect(t, w.took(), "eap 0101000efe0028af000000030100")
	g.Receive(EAP, unhex(t, first))
	expect(t, w.registered, "7e41")
	g.NAS([]byte{0x7e, 0x56})
	expect(t, w.took(), "eap 01020012fe0028af0000000302000002"+"7e56")
	g.Receive(EAP, unhex(t, second))
	expect(t, w.uplink, "7e57")
	if !g.Accept() || g.Accept() {
		t.Error("a 5G-RG is accepted once")
	}
	expect(t, w.took(), "eap 03020004", "vsncp 010100070025"+"6d")
	// Messages of the core wait until VSNCP is open.
	g.NAS([]byte{0x7e, 0x42})
	g.Receive(VSNCP, unhex(t, configure))
	expect(t, w.took(), "vsncp 020900070025"+"6d")
	g.Receive(VSNCP, unhex(t, configAck))
	expect(t, w.took(), "vsnp 0100027e42")
	g.Receive(VSNP, unhex(t, "0100027e43ffff"))
	expect(t, w.uplink, "7e57", "7e43")
	if w.ready != 1 || w.closed != nil || len(w.dropped) > 0 || !g.Deadline().IsZero() {
		t.Errorf("%+v", w)
	}
}

func TestNASMessagesOfTheCoreGoOneInEachRequest(t *testing.T) {
	w, g := begin(t)
	g.Receive(EAP, unhex(t, first))
	w.took()
	g.NAS([]byte{1})
	g.NAS([]byte{2})
	expect(t, w.took(), "eap 01020011fe0028af000000030200000101")
	g.Receive(EAP, unhex(t, second))
	expect(t, w.took(), "eap 01030011fe0028af000000030200000102")
}

func TestWaitingMessagesPrecedeNewOnesToAReady5GRG(t *testing.T) {
	w, g := begin(t)
	g.Receive(EAP, unhex(t, first))
	g.Accept()
	g.NAS([]byte{1})
	g.NAS([]byte{2})
	w.whenReady = func() { g.NAS([]byte{3}) }
	g.Receive(VSNCP, unhex(t, configure))
	w.took()
	g.Receive(VSNCP, unhex(t, configAck))
	expect(t, w.took(), "vsnp 01000101", "vsnp 01000102", "vsnp 01000103")
}

func TestUnansweredRequestsAreSentAgainAndThenGivenUp(t *testing.T) {
	for name, one := range map[string]struct {
		begin  func(testing.TB) (*world, *Gateway)
		before func(*Gateway)
		times  int
		reason error
	}{
		"EAP request":    {begin, func(*Gateway) {}, maxRequests - 1, ErrSilent},
		"core":           {begin, func(g *Gateway) { g.Receive(EAP, unhex(t, first)) }, 0, ErrSilent},
		"VSNCP":          {begin, func(g *Gateway) { g.Receive(EAP, unhex(t, first)); g.Accept() }, maxConfigure - 1, ErrSilent},
		"nothing is due": {open, func(*Gateway) {}, 0, nil},
	} {
		w, g := one.begin(t)
		one.before(g)
		request := ""
		if sent := w.took(); len(sent) > 0 {
			request = sent[len(sent)-1]
		}
		again := 0
		for !g.Deadline().IsZero() {
			w.now = g.Deadline()
			g.Tick()
			for _, each := range w.took() {
				if each == request {
					again++
				}
			}
		}
		if again != one.times || !errors.Is(w.closed, one.reason) {
			t.Errorf("%s: %d times, %v", name, again, w.closed)
		}
	}
}

func TestAResourceMessageIsRepeatedUntilItIsAnswered(t *testing.T) {
	w, g := open(t)
	var results []error
	tell := func(kind Kind) {
		if err := g.Tell(kind, Resource{PDUSession: 5, Type: 1, FiveWE: 0x102, QFIs: []uint8{9, 1}}, func(err error) { results = append(results, err) }); err != nil {
			t.Fatal(err)
		}
	}
	tell(KindSetUp)
	expect(t, w.took(), "vsnp 02010501010202"+"0901")
	w.now = g.Deadline()
	g.Tick()
	expect(t, w.took(), "vsnp 02010501010202"+"0901")
	g.Receive(VSNP, unhex(t, "05010500"))
	g.Receive(VSNP, unhex(t, "05010500"))
	tell(KindModify)
	g.Receive(VSNP, unhex(t, "05020501"))
	tell(KindRelease)
	expect(t, w.took()[1:], "vsnp 040305")
	for range maxAnswers {
		w.now = g.Deadline()
		g.Tick()
	}
	tell(KindSetUp)
	g.Close()
	if len(results) != 4 || results[0] != nil || !errors.Is(results[1], ErrRefused) || !errors.Is(results[2], ErrSilent) || !errors.Is(results[3], ErrClosed) {
		t.Errorf("%v", results)
	}
	expect(t, w.dropped, "vsnp-unknown-transaction")
}

func TestForbiddenMessagesOfA5GRGEndTheLinkOrAreDropped(t *testing.T) {
	for name, one := range map[string]struct {
		open     bool
		protocol Protocol
		packet   string
		closed   error
		dropped  string
	}{
		"stop":                 {false, EAP, "0201000efe0028af000000030400", ErrStopped, ""},
		"Nak":                  {false, EAP, "020100060310", eap5g.ErrMessage, ""},
		"notification":         {false, EAP, "0201000efe0028af000000030300", eap5g.ErrMessage, ""},
		"another identifier":   {false, EAP, "0207" + first[4:], nil, "eap-identifier"},
		"VSNP at once":         {false, VSNP, "0100027e43", nil, "vsnp-too-early"},
		"VSNCP at once":        {false, VSNCP, configure, nil, "vsncp-too-early"},
		"EAP afterwards":       {true, EAP, first, nil, "eap-unexpected"},
		"another vendor":       {true, VSNCP, "01090007cf0002", nil, "vsncp-vendor"},
		"a length":             {true, VSNCP, "01090009002" + "56d", nil, "vsncp-malformed"},
		"a code":               {true, VSNCP, "09090007002" + "56d", nil, "vsncp-code"},
		"an old Ack":           {true, VSNCP, "02070007002" + "56d", nil, "vsncp-identifier"},
		"Terminate-Request":    {true, VSNCP, "05090007002" + "56d", ErrStopped, ""},
		"Configure-Reject":     {true, VSNCP, "04010007002" + "56d", ErrRefused, ""},
		"NAS of no length":     {true, VSNP, "010000", nil, "vsnp-malformed"},
		"NAS that ends early":  {true, VSNP, "0100037e43", nil, "vsnp-malformed"},
		"a kind":               {true, VSNP, "090000", nil, "vsnp-malformed"},
		"a resource":           {true, VSNP, "020105010102" + "0109", nil, "vsnp-unexpected"},
		"an unasked-for reply": {true, VSNP, "05010500", nil, "vsnp-unknown-transaction"},
	} {
		w, g := begin(t)
		if one.open {
			w, g = open(t)
		}
		g.Receive(one.protocol, unhex(t, one.packet))
		if !errors.Is(w.closed, one.closed) || (one.dropped == "") != (len(w.dropped) == 0) || one.dropped != "" && w.dropped[0] != one.dropped {
			t.Errorf("%s: %v, %q", name, w.closed, w.dropped)
		}
	}
}

func TestOptionsOfVSNCPAreRejected(t *testing.T) {
	w, g := open(t)
	g.Receive(VSNCP, unhex(t, "010a000b00256d"+"01040102"))
	expect(t, w.took(), "vsncp 040a000b00256d"+"01040102")
}

func TestACoreThatFloodsA5GRGEndsIt(t *testing.T) {
	w, g := begin(t)
	for range maxWaiting + 1 {
		g.NAS([]byte{1})
	}
	if !errors.Is(w.closed, ErrTooMany) {
		t.Error(w.closed)
	}
	w, g = open(t)
	g.NAS(make([]byte, maxNAS+1))
	expect(t, w.dropped, "nas-too-long")
}

func TestMessagesAreReadAsTheyAreWritten(t *testing.T) {
	for _, m := range []Message{
		{Kind: KindNAS, NAS: []byte{1, 2, 3}},
		{Kind: KindSetUp, Transaction: 3, Resource: Resource{5, 1, 65534, []uint8{9}}},
		{Kind: KindModify, Transaction: 3, Resource: Resource{5, 1, 1, []uint8{9, 1, 2}}},
		{Kind: KindRelease, Transaction: 4, Resource: Resource{PDUSession: 15}},
		{Kind: KindAnswer, Transaction: 4, Resource: Resource{PDUSession: 15}, Cause: 2},
	} {
		whole := m.Append(nil)
		got, err := ParseMessage(whole)
		if err != nil || !bytes.Equal(got.Append(nil), whole) || got.Kind != m.Kind || got.FiveWE != m.FiveWE || got.Cause != m.Cause || !bytes.Equal(got.QFIs, m.QFIs) {
			t.Errorf("%+v: %+v %v", m, got, err)
		}
		for n := range whole {
			if _, err := ParseMessage(slices.Clone(whole[:n])); !errors.Is(err, ErrMessage) {
				t.Errorf("%+v: %d bytes are read", m, n)
			}
		}
	}
}

// FuzzReceive passes arbitrary packets to a Gateway, with actions of a core in between.
func FuzzReceive(f *testing.F) {
	packet := func(p byte, text string) []byte {
		b := unhex(f, text)
		return append([]byte{p, byte(len(b))}, b...)
	}
	f.Add(append(append(packet(0, first), packet(4, "")...), append(packet(1, configure), packet(1, configAck)...)...))
	f.Add(append(packet(0, first), packet(5, "7e56")...))
	f.Add(append(packet(2, "0100027e43"), packet(6, "")...))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, g := begin(t)
		answered, asked := 0, 0
		for len(b) >= 2 {
			n := min(int(b[1]), len(b)-2)
			what, data := b[0], slices.Clone(b[2:2+n])
			b = b[2+n:]
			switch what % 8 {
			case 0:
				g.Receive(EAP, data)
			case 1:
				g.Receive(VSNCP, data)
			case 2:
				g.Receive(VSNP, data)
			case 3:
				if at := g.Deadline(); !at.IsZero() {
					w.now = at
				}
				g.Tick()
			case 4:
				g.Accept()
			case 5:
				g.NAS(data)
			case 6:
				if g.Tell(KindSetUp, Resource{PDUSession: 1, QFIs: data}, func(error) { answered++ }) == nil {
					asked++
				}
			case 7:
				g.Close()
			}
			if len(g.queue) > maxWaiting || len(g.transactions) > 255 || w.ready > 1 || len(w.registered) > 1 {
				t.Fatalf("%d messages and %d transactions wait, %d times ready", len(g.queue), len(g.transactions), w.ready)
			}
		}
		g.Close()
		if answered != asked {
			t.Errorf("%d of %d transactions are answered", answered, asked)
		}
	})
}
