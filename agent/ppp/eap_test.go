// SPDX-License-Identifier: Apache-2.0

package ppp

import (
	"bytes"
	"slices"
	"testing"
)

func TestAPeerThatChoosesEAPIsItsOwnersToAuthenticate(t *testing.T) {
	p := newPeer(t, configOf(MethodEAP, MethodPAP), 1492)
	if _, options := p.got(LCP, configureRequest); !bytes.Contains(options, []byte{optionAuth, 4, 0xc2, 0x27}) {
		t.Fatalf("%x", options)
	}
	p.tell(EAP, 2, 1)
	p.drops("unknown-protocol")
	p.openLCP()
	p.has(Delegated)
	for _, protocol := range []Protocol{EAP, VSNCP, VSNP} {
		p.out = p.Receive(protocol, []byte{1, 2, 3}, p.now, nil)
		if a := p.has(Carried); a.Protocol != protocol || !bytes.Equal(a.Packet, []byte{1, 2, 3}) {
			t.Errorf("%+v", a)
		}
	}
	p.out = p.Transmit(EAP, []byte{3, 1, 0, 4}, nil)
	if a := p.has(Send); !bytes.Equal(a.Packet, []byte{0xc2, 0x27, 3, 1, 0, 4}) {
		t.Errorf("%x", a.Packet)
	}
	p.Authenticated()
	// The link stays without a network protocol.
	if p.Deadline() != 0 {
		t.Error("the link ends by itself")
	}
	p.tell(LCP, protocolReject, 1, 0x80, 0x21, 1)
	if p.Deadline() != 0 {
		t.Error("the link ends because its peer has no IPv4")
	}
	p.tell(LCP, protocolReject, 2, 0xc2, 0x27, 1)
	p.has(Finished)
	if p.out = p.Transmit(EAP, []byte{3}, nil); len(p.out) != 0 {
		t.Error("a link that is over sends")
	}
}

func TestAPeerWithoutEAPChoosesAnotherMethod(t *testing.T) {
	p := newPeer(t, configOf(MethodEAP, MethodPAP), 1492)
	id, _ := p.got(LCP, configureRequest)
	p.tell(LCP, configureNak, id, optionAuth, 4, 0xc0, 0x23)
	p.openPAP()
	p.out = p.Receive(VSNP, []byte{1}, p.now, nil)
	p.drops("unknown-protocol")
}

func TestALinkWhoseOwnerDoesNotAuthenticateEnds(t *testing.T) {
	p := newPeer(t, configOf(MethodEAP), 1492)
	p.openLCP()
	for p.phase != finished {
		p.next()
	}
	if !slices.ContainsFunc(p.out, func(a Action) bool { return a.Kind == Finished }) {
		t.Errorf("%+v", p.out)
	}
}
