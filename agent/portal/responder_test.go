// SPDX-License-Identifier: Apache-2.0

package portal

import (
	"bufio"
	"bytes"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/tcp"
)

const get = "GET /a?b=c HTTP/1.1\r\nHost: example.net\r\nUser-Agent: x\r\n\r\n"

// peer is a client's side of a connection.
type peer struct {
	t        *testing.T
	r        *responder
	from, to netip.AddrPort
	// Next bytes of ours and of theirs.
	sequence, ack uint32
	mss           uint16
}

func newPeer(t *testing.T, from, to string) *peer {
	return &peer{t: t, r: newResponder(), from: netip.MustParseAddrPort(from), to: netip.MustParseAddrPort(to), sequence: 0xfffffff0, mss: 1460}
}

func (p *peer) send(flags uint8, payload string) (*tcp.Segment, outcome) {
	p.t.Helper()
	s := tcp.Segment{Source: p.from, Destination: p.to, Sequence: p.sequence, Ack: p.ack, Flags: flags, Payload: []byte(payload)}
	if flags&tcp.SYN != 0 {
		s.MSS = p.mss
	}
	// As it comes from the wire, with its padding.
	parsed, ok := tcp.Parse(append(s.Packet(), 0, 0, 0))
	if !ok || !bytes.Equal(parsed.Payload, s.Payload) || parsed.MSS != s.MSS {
		p.t.Fatalf("a segment is not read as it was written: %+v", parsed)
	}
	b, o := p.r.respond(&parsed, func(b []byte, most int) []byte {
		r, ok := parseRequest(b, p.to)
		if !ok {
			return nil
		}
		return found(&r, "http://portal.example.net/?u={url}", &client{}, most)
	})
	if b == nil {
		return nil, o
	}
	answer, ok := tcp.Parse(b)
	if !ok || answer.Source != p.to || answer.Destination != p.from {
		p.t.Fatalf("the answer is no segment back: %+v", answer)
	}
	return &answer, o
}

// connect does the handshake.
func (p *peer) connect() {
	p.t.Helper()
	answer, o := p.send(tcp.SYN, "")
	if o != accepted || answer.Flags != tcp.SYN|tcp.ACK || answer.Ack != p.sequence+1 || answer.MSS != ourMSS {
		p.t.Fatalf("%s: %+v", o, answer)
	}
	p.sequence++
	p.ack = answer.Sequence + 1
	if _, o := p.send(tcp.ACK, ""); o != silent {
		p.t.Fatalf("the third segment of the handshake: %s", o)
	}
}

var hosts = [][2]string{{"100.64.0.7:40000", "203.0.113.9:80"}, {"[2001:db8::7]:40000", "[2001:db8:9::9]:80"}}

func TestARequestIsAnsweredOnceHoweverOftenItComes(t *testing.T) {
	for _, h := range hosts {
		p := newPeer(t, h[0], h[1])
		p.connect()
		first, o := p.send(tcp.PSH|tcp.ACK, get)
		again, _ := p.send(tcp.PSH|tcp.ACK, get)
		if o != redirected || !bytes.Equal(first.Packet(), again.Packet()) {
			t.Fatalf("%s: the answer to a request that is sent again is another", o)
		}
		if first.Sequence != p.ack || first.Ack != p.sequence+uint32(len(get)) || first.Flags != tcp.ACK|tcp.PSH|tcp.FIN {
			t.Fatalf("%+v", first)
		}
		response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(first.Payload)), nil)
		if err != nil || response.StatusCode != 302 || response.Header.Get("Location") != "http://portal.example.net/?u=http%3A%2F%2Fexample.net%2Fa%3Fb%3Dc" {
			t.Fatalf("%v %+v", err, response)
		}
		p.sequence += uint32(len(get))
		p.ack += uint32(len(first.Payload)) + 1
		if _, o := p.send(tcp.ACK, ""); o != silent {
			t.Fatal(o)
		}
		// The rest of a long request, and the client's end.
		if answer, o := p.send(tcp.ACK, "more"); o != closed || answer.Ack != p.sequence+4 || answer.Sequence != p.ack || answer.Flags != tcp.ACK {
			t.Fatalf("%s %+v", o, answer)
		}
		if answer, o := p.send(tcp.FIN|tcp.ACK, ""); o != closed || answer.Ack != p.sequence+1 {
			t.Fatalf("%s %+v", o, answer)
		}
	}
}

// The mark has ten bits: one of 1024 segments that came too early has that of the first.
func TestOnlyTheFirstSegmentOfARequestIsAnswered(t *testing.T) {
	answered := 0
	for range 64 {
		p := newPeer(t, hosts[0][0], hosts[0][1])
		p.connect()
		start := p.sequence
		p.sequence += 1400
		// However often it comes; and the end behind a request that did not arrive.
		_, first := p.send(tcp.ACK, "Cookie: x\r\n")
		_, again := p.send(tcp.ACK, "Cookie: x\r\n")
		_, end := p.send(tcp.FIN|tcp.ACK, "")
		if first != silent || again != silent || end != silent {
			answered++
		}
		p.sequence = start
		if _, o := p.send(tcp.ACK, get); o != redirected {
			t.Fatal(o)
		}
	}
	if answered > 4 {
		t.Fatalf("%d of 64 segments that came too early are answered", answered)
	}
}

func TestConnectionsWithoutHTTPAreReset(t *testing.T) {
	for _, text := range []string{"\x16\x03\x01\x02\x00", "hello", "GET", "get / HTTP/1.1\r\n", "SSH-2.0-x\r\n"} {
		p := newPeer(t, hosts[0][0], hosts[0][1])
		p.connect()
		if answer, o := p.send(tcp.ACK, text); o != reset || answer.Flags != tcp.RST|tcp.ACK || answer.Sequence != p.ack {
			t.Errorf("%q: %s %+v", text, o, answer)
		}
	}
}

func TestASilentClientIsClosed(t *testing.T) {
	p := newPeer(t, hosts[1][0], hosts[1][1])
	p.connect()
	if answer, o := p.send(tcp.FIN|tcp.ACK, ""); o != closed || answer.Flags != tcp.FIN|tcp.ACK || answer.Sequence != p.ack || answer.Ack != p.sequence+1 {
		t.Fatalf("%s %+v", o, answer)
	}
}

func TestAConnectionOfBeforeIsReset(t *testing.T) {
	resets := 0
	for i := range 64 {
		p := newPeer(t, hosts[0][0], hosts[0][1])
		p.sequence, p.ack = uint32(i)*0x01234567, uint32(i)*0x89abcdef
		answer, o := p.send(tcp.ACK, get)
		if o == reset && answer.Flags == tcp.RST && answer.Sequence == p.ack {
			resets++
		}
	}
	// One in a thousand looks like a connection of ours.
	if resets < 60 {
		t.Fatalf("%d of 64", resets)
	}
	p := newPeer(t, hosts[0][0], hosts[0][1])
	if _, o := p.send(tcp.RST, ""); o != silent {
		t.Fatal(o)
	}
	if _, o := p.send(0, get); o != silent {
		t.Fatal(o)
	}
	if _, o := p.send(tcp.SYN|tcp.ACK, ""); o != silent {
		t.Fatal(o)
	}
}

func TestAnAnswerFitsIntoASegmentOfTheClient(t *testing.T) {
	for _, c := range []struct {
		mss  uint16
		most int
		path string
		has  string
	}{
		{1460, largeMSS, "/" + strings.Repeat("a", 700), "aaaa"},
		{1460, largeMSS, "/" + strings.Repeat("a", 2000), "example.net%2F\r\n"},
		{536, smallMSS, "/" + strings.Repeat("a", 700), "example.net%2F\r\n"},
		{0, smallMSS, "/x", "%2Fx\r\n"},
	} {
		p := newPeer(t, hosts[0][0], hosts[0][1])
		p.mss = c.mss
		p.connect()
		answer, o := p.send(tcp.ACK, "GET "+c.path+" HTTP/1.1\r\nHost: example.net\r\n\r\n")
		if o != redirected || len(answer.Payload) > c.most || !strings.Contains(string(answer.Payload), c.has) {
			t.Errorf("%d %.20s: %s, %d bytes, %s", c.mss, c.path, o, len(answer.Payload), answer.Payload)
		}
	}
}

func TestALocationHasOnlySafeCharacters(t *testing.T) {
	host := netip.MustParseAddrPort("[2001:db8::9]:80")
	for text, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n":                  "http://a.example/",
		"GET /x HTTP/1.1\r\nhost:a.example:8080\r\n\r\n":             "http://a.example:8080/x",
		"GET http://b.example/y HTTP/1.1\r\nHost: a.example\r\n\r\n": "http://b.example/y",
		"GET /x HTTP/1.0\r\n\r\n":                                    "http://[2001:db8::9]/x",
		"GET /x HTTP/1.1\r\nHost: a.exa":                             "http://[2001:db8::9]/x",
		"GET /long":                                                  "http://[2001:db8::9]/",
		"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n":              "http://a.example/",
		"GET /x HTTP/1.1\r\nHost: a\x00b\r\n\r\n":                    "http://[2001:db8::9]/x",
		"GET /\x7f\x01 HTTP/1.1\r\nHost: a.example\r\n\r\n":          "http://a.example/",
		"GET /x HTTP/1.1\r\nHost: a.example/@evil.example\r\n\r\n":   "http://[2001:db8::9]/x",
		"GET /x HTTP/1.1\nX: y\nHost: a.example\n\n":                 "http://a.example/x",
		"POST /x HTTP/1.1\r\nX: y\r\n\r\nHost: a.example\r\n":        "http://[2001:db8::9]/x",
	} {
		r, ok := parseRequest([]byte(text), host)
		if !ok || r.url != want {
			t.Errorf("%q: %q", text, r.url)
		}
		b := string(found(&r, "http://p/?u={url}&m={mac}", &client{mac: "02:00:00:00:00:01"}, largeMSS))
		head, _, _ := strings.Cut(b, "\r\n\r\n")
		if strings.Count(head, "\r\n") != 5 || !strings.Contains(head, "&m=02%3A00%3A00%3A00%3A00%3A01\r\n") {
			t.Errorf("%q: %s", text, head)
		}
	}
	if r, _ := parseRequest([]byte("HEAD / HTTP/1.1\r\n\r\n"), host); strings.Contains(string(found(&r, "http://p/", &client{}, smallMSS)), "<html>") {
		t.Error("the answer to HEAD has a body")
	}
}

func TestTruncatedPacketsAreNotRead(t *testing.T) {
	for _, h := range hosts {
		s := tcp.Segment{Source: netip.MustParseAddrPort(h[0]), Destination: netip.MustParseAddrPort(h[1]), Flags: tcp.SYN, MSS: 1460}
		whole := s.Packet()
		for n := range whole {
			if _, ok := tcp.Parse(whole[:n]); ok {
				t.Fatalf("%d of %d bytes", n, len(whole))
			}
		}
	}
}

func FuzzReceive(f *testing.F) {
	for _, h := range hosts {
		s := tcp.Segment{Source: netip.MustParseAddrPort(h[0]), Destination: netip.MustParseAddrPort(h[1]), Flags: tcp.ACK, Payload: []byte(get)}
		for _, header := range []string{"\x08\x00", "\x81\x00\x00\x01\x08\x00", "\x88\x64\x11\x00\x00\x01\x00\x28\x00\x21"} {
			f.Add(append([]byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02"+header), s.Packet()...))
		}
	}
	r := newResponder()
	f.Fuzz(func(t *testing.T, frame []byte) {
		packet, ok := packetOf(frame)
		if !ok {
			return
		}
		s, ok := tcp.Parse(packet)
		if !ok {
			return
		}
		b, _ := r.respond(&s, func(b []byte, most int) []byte {
			q, ok := parseRequest(b, s.Destination)
			if !ok {
				return nil
			}
			return found(&q, "http://portal.example.net/?u={url}", &client{}, most)
		})
		if b == nil {
			return
		}
		if answer, ok := tcp.Parse(b); !ok || answer.Destination != s.Source || len(answer.Payload) > largeMSS {
			t.Fatalf("%x", b)
		}
	})
}
