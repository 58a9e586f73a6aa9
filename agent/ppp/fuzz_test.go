// SPDX-License-Identifier: Apache-2.0

package ppp

import (
	"encoding/binary"
	"testing"
)

// FuzzReceive gives a link any packets, each with its protocol, a code and a length before it, and lets time pass between them.
func FuzzReceive(f *testing.F) {
	packet := func(p Protocol, code, id uint8, data ...byte) []byte {
		b := send(nil, p, code, id, data)[0].Packet
		return append([]byte{byte(len(b))}, b...)
	}
	lcp := packet(LCP, configureRequest, 1, 1, 4, 5, 0xd4, 5, 6, 9, 9, 9, 9)
	f.Add(uint8(1), append(lcp, packet(PAP, papRequest, 7, []byte("\x05alice\x06secret")...)...))
	f.Add(uint8(2), append(lcp, packet(CHAP, chapResponse, 7, []byte("\x100123456789abcdefbob")...)...))
	f.Add(uint8(3), append(packet(IPCP, configureRequest, 1, 3, 6, 0, 0, 0, 0, 129, 6, 0, 0, 0, 0), packet(IPv6CP, configureRequest, 0, 1, 10, 0, 0, 0, 0, 0, 0, 0, 0)...))
	f.Add(uint8(4), append(packet(LCP, protocolReject, 1, 0x80, 0x57), packet(LCP, echoRequest, 1, 0, 0, 0, 0)...))
	f.Fuzz(func(t *testing.T, how uint8, b []byte) {
		c := configOf([]Method{MethodPAP, MethodCHAP, MethodMSCHAPv2, MethodEAP}[how%4])
		now := int64(1)
		l := New(c, 1492)
		out := l.Open(now, nil)
		if how&4 != 0 {
			// A link that is open.
			var ok bool
			if l, ok = Restore(c, l.State(), gets, now); !ok {
				t.Fatal("not restored")
			}
			out = nil
		}
		for len(b) > 3 {
			n := min(int(b[0]), len(b)-1)
			packet := b[1 : 1+n]
			b = b[1+n:]
			if len(packet) < 2 {
				if at := l.Deadline(); at > 0 {
					now = max(now, at)
				}
				out = l.Tick(now, out)
			} else {
				// Acks of sent packets, so that it gets further than by chance.
				if how&8 != 0 && len(packet) == 2 {
					for _, a := range out {
						if a.Kind == Send && a.Packet[2] == configureRequest {
							ack := append([]byte{configureAck}, a.Packet[3:]...)
							l.Receive(Protocol(binary.BigEndian.Uint16(a.Packet)), ack, now, nil)
						}
					}
				}
				out = l.Receive(Protocol(binary.BigEndian.Uint16(packet)), packet[2:], now, nil)
			}
			if len(out) > 16 {
				t.Fatalf("%d actions for one packet", len(out))
			}
			for _, a := range out {
				switch {
				case a.Kind == Delegated && how&16 != 0:
					l.Authenticated()
				case a.Kind == Authenticate && how&16 != 0:
					l.Reject("no", now, nil)
				case a.Kind == Authenticate:
					l.Accept(gets, "yes", now, nil)
				case a.Kind == Send && (len(a.Packet) < 6 || len(a.Packet) > 1500):
					t.Fatalf("%x", a.Packet)
				}
			}
			if (l.phase == finished) != (l.Deadline() == 0) && l.phase == finished {
				t.Fatal("a link that ended has a deadline")
			}
		}
	})
}
