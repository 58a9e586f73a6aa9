// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"crypto"
	"errors"
	"net/netip"
	"testing"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// FuzzReceive gives anything to a machine with an IKE SA that is up.
func FuzzReceive(f *testing.F) {
	seeds := newPair(&testing.T{})
	seeds.configure()
	seeds.initiate()
	resumes := newPair(&testing.T{})
	resumes.configure(resumption)
	resumes.pass(time.Second)
	resumes.lose()
	for _, d := range append(seeds.seen, resumes.seen...) {
		f.Add(d.Data, true)
		f.Add(d.Data, false)
	}
	f.Fuzz(func(t *testing.T, b []byte, nat bool) {
		p := newPair(t)
		p.configure()
		p.initiate()
		port := uint16(Port)
		if nat {
			port = NATPort
		}
		p.do(p.b, p.b.m.Receive(Datagram{Local: netip.AddrPortFrom(p.b.address, port), Remote: netip.AddrPortFrom(p.a.address, port), Data: b}, p.now))
		p.wire = nil
		p.pass(time.Second)
		if len(p.a.in) != 1 || len(p.b.in) != 1 {
			t.Fatal("a packet that is not authenticated ends a child")
		}
	})
}

// FuzzInside gives anything inside of the encryption to a machine: a peer that has authenticated itself, and a responder that has not.
func FuzzInside(f *testing.F) {
	for _, payloads := range [][]message.Payload{
		{&message.Delete{Protocol: message.ProtocolIKE}}, {&message.Delete{Protocol: message.ProtocolESP, SPIs: [][]byte{{1, 2, 3, 4}}}},
		{&message.Notify{Kind: message.UpdateSAAddresses}, &message.Notify{Kind: message.Cookie2, Data: make([]byte, 16)}},
		{&message.SA{Proposals: numbered(proposals(&testing.T{}, message.ProtocolESP, espSuite), []byte{1, 2, 3, 4})}, &message.Nonce{Data: make([]byte, 32)},
			&message.KE{Group: 31, Data: bytes.Repeat([]byte{9}, 32)},
			&message.TS{Selectors: []message.Selector{SelectorOf(netip.MustParsePrefix("10.1.0.0/16"))}}, &message.TS{Responder: true, Selectors: []message.Selector{SelectorOf(netip.MustParsePrefix("10.2.0.0/16"))}}},
		{&message.SA{Proposals: numbered(proposals(&testing.T{}, message.ProtocolIKE, ikeSuite), make([]byte, 8))}, &message.Nonce{Data: make([]byte, 32)}, &message.KE{Group: 31, Data: bytes.Repeat([]byte{9}, 32)}},
		{&message.ID{Kind: message.IDFQDN, Data: []byte("a.example")}, &message.Auth{Method: message.AuthSharedKey, Data: make([]byte, 32)}},
		{&message.EAP{Data: []byte{1, 7, 0, 5, 1}}},
		{&message.SA{Proposals: numbered(proposals(&testing.T{}, message.ProtocolESP, additionalESP), []byte{1, 2, 3, 4})}, &message.Nonce{Data: make([]byte, 32)},
			&message.KE{Group: 31, Data: bytes.Repeat([]byte{9}, 32)},
			&message.TS{Selectors: []message.Selector{SelectorOf(netip.MustParsePrefix("10.1.0.0/16"))}}, &message.TS{Responder: true, Selectors: []message.Selector{SelectorOf(netip.MustParsePrefix("10.2.0.0/16"))}}},
		{&message.SA{Proposals: numbered(proposals(&testing.T{}, message.ProtocolIKE, additionalIKE), make([]byte, 8))}, &message.Nonce{Data: make([]byte, 32)}, &message.KE{Group: 31, Data: bytes.Repeat([]byte{9}, 32)}},
		{&message.KE{Group: 19, Data: bytes.Repeat([]byte{9}, 64)}, &message.Notify{Kind: message.AdditionalKeyExchange, Data: make([]byte, 8)}},
		{&message.Notify{Kind: message.TicketRequest}, &message.Notify{Kind: message.TicketLifetimeOpaque, Data: make([]byte, 20)}},
	} {
		for _, exchange := range []message.Exchange{message.Informational, message.CreateChildSA, message.IKEAuth, message.IKEIntermediate, message.IKEFollowupKE} {
			for kind := range uint8(8) {
				f.Add(message.AppendPayloads(nil, payloads), uint8(message.FirstOf(payloads)), uint8(exchange), kind)
			}
		}
	}
	f.Fuzz(func(t *testing.T, plain []byte, first, exchange, kind uint8) {
		if len(plain) > 8000 {
			return
		}
		p := newPair(t)
		if kind&4 == 0 {
			p.configure(resumption)
		} else {
			p.configure(resumption, additional(t))
		}
		opening := kind&1 != 0
		if opening {
			n := 0
			p.filter = func(*Datagram) bool {
				n++
				return n <= 2
			}
		}
		p.initiate()
		p.filter = nil
		var from *ikeSA
		for _, s := range p.a.m.sas {
			from = s
		}
		id := from.nextID
		if opening {
			id = 1
		} else if kind&2 != 0 && from.outstanding == nil {
			// The answer to a request of the other end.
			for _, s := range p.b.m.sas {
				s.rekeyIKE(p.now)
			}
			p.do(p.b, p.b.m.done())
			p.wire, id, exchange = nil, 0, uint8(message.CreateChildSA)
		}
		h := from.header(message.Exchange(exchange), id, kind&2 != 0)
		packet := from.out.Seal(message.AppendHead(nil, h, message.PayloadType(first), 0, 0, from.out.Length(len(plain))), plain)
		p.do(p.b, p.b.m.Receive(Datagram{Local: netip.AddrPortFrom(p.b.address, Port), Remote: netip.AddrPortFrom(p.a.address, Port), Data: packet}, p.now))
		if opening && len(p.b.in) > 0 {
			t.Fatal("a child comes up without authentication")
		}
		p.wire = nil
		p.pass(3 * time.Second)
	})
}

// FuzzSignature gives anything as the AUTH payload of a peer, to each kind of key.
func FuzzSignature(f *testing.F) {
	var keys []crypto.PublicKey
	octets := []byte("octets")
	for _, kind := range []string{"rsa", "ecdsa", "ed25519", "sm2"} {
		key := makeKey(&testing.T{}, kind)
		keys = append(keys, key.Public())
		for _, pss := range []bool{false, true} {
			c := Credential{Key: key, PSS: pss}
			for _, hashes := range [][]uint16{ourHashes, nil} {
				if auth, err := c.sign([]byte("other octets"), hashes, true); err == nil {
					f.Add(uint8(auth.Method), auth.Data)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, method uint8, b []byte) {
		for _, key := range keys {
			if err := verifySignature(key, &message.Auth{Method: message.AuthMethod(method), Data: b}, octets, true); !errors.Is(err, errAuthentication) {
				t.Fatalf("%T: %v", key, err)
			}
		}
	})
}
