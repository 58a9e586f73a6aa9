// SPDX-License-Identifier: Apache-2.0

package pppoe

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

// FuzzTags gives the parser any tags.
func FuzzTags(f *testing.F) {
	f.Add(tags(tagServiceName, "x", tagHostUniq, "y", tagMaxPayload, "\x05\xdc"))
	f.Add(tags(tagVendor, "\x00\x00\x0d\xe9\x01\x05eth 1\x02\x03bob\x81\x04\x00\x00\x03\xe8"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, ok := parseTags(b)
		if ok && len(d.repeat(nil)) > len(b) {
			t.Fatal("more than there was")
		}
	})
}

// FuzzReceive gives a machine any frames, each with its length before it, some of them with a cookie that is right.
func FuzzReceive(f *testing.F) {
	s := newSite(&testing.T{}, nil)
	h := s.host(1, 100, 7)
	framed := func(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }
	padi := framed(build(ourMAC, h.mac, &h.vlans, typeDiscovery, codePADI, 0, tags(tagServiceName, "")))
	padr := framed(build(ourMAC, h.mac, &h.vlans, typeDiscovery, codePADR, 0, tags(tagServiceName, "", tagACCookie, "0123456789abcdef")))
	lcp := framed(build(ourMAC, h.mac, &h.vlans, typeSession, 0, 1, []byte{0xc0, 0x21, 1, 1, 0, 4}))
	padt := framed(build(ourMAC, h.mac, &h.vlans, typeDiscovery, codePADT, 1, nil))
	f.Add(append(append(append(padi, padr...), lcp...), padt...))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newSite(t, func(p *api.PppoeServer) {
			eapServer(p)
			p.HalfOpen, p.SessionsPerMac = 8, 2
		})
		var answers []func() []Action
		// collect keeps the answers to the last actions for later.
		collect := func(refuse bool) {
			for _, a := range s.kept {
				switch a := a.(type) {
				case Delegate:
					answers = append(answers, func() []Action { return s.Vouch(a.Peer.ID, s.now) })
				case Authenticate:
					answers = append(answers, func() []Action { return s.Authenticated(a.Request.ID, a.Attempt, "x", subscriber.Answer{}, s.now) })
				case Connect:
					var err error
					if refuse {
						err = errors.New("no")
					}
					answers = append(answers, func() []Action { return s.Connected(a.Connection.ID, lease, [8]byte{}, "", err, s.now) })
				case SendFrame:
					if len(a.Frame) > 1550 {
						t.Fatalf("%d bytes", len(a.Frame))
					}
				}
			}
		}
		for len(b) > 2 {
			n := min(int(binary.BigEndian.Uint16(b)), len(b)-2)
			frame := append([]byte{}, b[2:2+n]...)
			b = b[2+n:]
			if f, ok := parseFrame(frame); ok {
				// So that a PADR gets through, and packets find a session.
				code, _, payload, ok := parsePPPoE(f.payload)
				if d, whole := parseTags(payload); ok && whole && code == codePADR && len(d.cookie) == cookieLength {
					cookie := cookieOf(s.keys[0], place{"dp", "access"}, f.outer, f.inner, f.source, slotOf(s.now.UnixNano()))
					copy(d.cookie, cookie[:])
				}
				for key := range s.sessions {
					if ok && f.payload[3] == 1 {
						binary.BigEndian.PutUint16(f.payload[2:], key.id)
					}
				}
			}
			s.take(s.Receive(Packet{"dp", "access", frame}, s.now))
			collect(n%2 == 0)
			// Answers come after other frames, too, and in any order.
			for len(answers) > 0 && n%3 != 0 {
				i := n % len(answers)
				answer := answers[i]
				answers = append(answers[:i], answers[i+1:]...)
				s.take(answer())
				collect(n%2 == 0)
			}
			if n%5 == 0 {
				s.now = s.now.Add(time.Second)
				s.Tick(s.now)
			}
		}
		half, up := s.Sessions()
		if half > 8 || half+up != len(s.sessions) || len(s.byID) != len(s.sessions) {
			t.Fatal(half, up, len(s.sessions))
		}
		s.SetServer("home", nil, s.now)
		if len(s.sessions)+len(s.hosts)+len(s.circuits)+s.due.Len()+len(s.byID) != 0 {
			t.Fatal("something is left")
		}
	})
}
