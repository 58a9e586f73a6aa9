// SPDX-License-Identifier: Apache-2.0

package pppoe

import (
	"bytes"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
	"sluice.dev/sluice/agent/wcp"
)

// delegate goes on until the wcp.Server has the link.
func (h *host) delegate(t *testing.T) wcp.Peer {
	t.Helper()
	h.discover(tagVendor, "\x00\x00\x0d\xe9\x01\x05eth 1")
	id, options := h.gotPPP(0xc021, 1)
	h.ppp(0xc021, 2, id, options...)
	h.ppp(0xc021, 1, 1, 5, 6, 1, 2, 3, h.mac[5]+9)
	return one[Delegate](h.site).Peer
}

func eapServer(p *api.PppoeServer) {
	p.Authentication = []api.PppAuthentication{api.PppAuthentication_EAP_5G, api.PppAuthentication_PAP}
	p.RelayInformation = api.RelayInformation_TRUST_INFORMATION
}

func TestA5GResidentialGatewayIsDelegatedBesideOtherHosts(t *testing.T) {
	s := newSite(t, eapServer)
	h := s.host(1, 100, 7)
	peer := h.delegate(t)
	if peer.Line.MAC != h.mac || peer.Line.OuterVLAN != 100 || string(peer.Line.CircuitID) != "eth 1" || len(all[Authenticate](s)) != 0 {
		t.Errorf("%+v", peer)
	}
	h.send(typeSession, codeSession, []byte{0xc2, 0x27, 2, 1, 0, 5, 254})
	if c := one[Carry](s); c.ID != peer.ID || c.Protocol != wcp.EAP || !bytes.Equal(c.Packet, []byte{2, 1, 0, 5, 254}) {
		t.Errorf("%+v", c)
	}
	s.take(s.Transmit(peer.ID, wcp.EAP, []byte{3, 1, 0, 4}, s.now))
	h.gotPPP(0xc227, 3)
	if half, up := s.Sessions(); half != 1 || up != 0 {
		t.Error(half, up)
	}
	s.take(s.Vouch(peer.ID, s.now))
	if half, up := s.Sessions(); half != 0 || up != 1 {
		t.Error(half, up)
	}
	// Another host of the circuit knows PAP alone.
	other := s.host(2, 100, 7)
	other.discover()
	id, _ := other.gotPPP(0xc021, 1)
	other.ppp(0xc021, 3, id, 3, 4, 0xc0, 0x23)
	id, options := other.gotPPP(0xc021, 1)
	other.ppp(0xc021, 2, id, options...)
	other.ppp(0xc021, 1, 1, 5, 6, 9, 9, 9, 9)
	other.ppp(0xc023, 1, 1, []byte("\x05alice\x01x")...)
	one[Authenticate](s)
	// It hangs up: the Manager does not know it.
	h.send(typeDiscovery, codePADT, nil)
	if down := one[Down](s); down.ID != peer.ID || len(all[Disconnect](s)) != 0 {
		t.Errorf("%+v", s.kept)
	}
	if s.take(s.Transmit(peer.ID, wcp.EAP, []byte{1}, s.now)); len(s.kept) != 0 {
		t.Errorf("%+v", s.kept)
	}
}

func TestALinkOfA5GResidentialGatewayEnds(t *testing.T) {
	for name, end := range map[string]func(*host, wcp.Peer){
		"by its server":              func(h *host, p wcp.Peer) { h.take(h.HangUp(p.ID, "no", h.now)) },
		"with its server":            func(h *host, _ wcp.Peer) { h.take(h.HangUpAll("no", h.now)) },
		"with its PppoeServer":       func(h *host, _ wcp.Peer) { h.take(h.SetServer("home", nil, h.now)) },
		"as LCP is negotiated again": func(h *host, _ wcp.Peer) { h.renegotiate() },
	} {
		s := newSite(t, eapServer)
		h := s.host(1, 100, 7)
		peer := h.delegate(t)
		s.take(s.Vouch(peer.ID, s.now))
		end(h, peer)
		if down := all[Down](s); len(down) != 1 || down[0].ID != peer.ID {
			t.Errorf("%s: %+v", name, s.kept)
		}
		h.got(typeDiscovery, codePADT)
		if len(all[Disconnect](s)) != 0 || len(s.sessions)+s.due.Len() != 0 {
			t.Errorf("%s: %+v", name, s.kept)
		}
	}
}

func TestA5GResidentialGatewayThatTheCoreRejectsPauses(t *testing.T) {
	s := newSite(t, eapServer)
	h := s.host(1, 100, 7)
	for _, pause := range []time.Duration{1, 2} {
		s.take(s.HangUp(h.delegate(t).ID, "the core rejects it", s.now))
		h.got(typeDiscovery, codePADT)
		s.now = s.now.Add(pause*time.Second - 1)
		h.session = 0
		h.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
		s.drops("rejected-before")
		s.now = s.now.Add(1)
	}
	// A link that ends later is no rejection.
	peer := h.delegate(t)
	s.take(s.Vouch(peer.ID, s.now))
	s.take(s.HangUp(peer.ID, "the core deregisters it", s.now))
	h.got(typeDiscovery, codePADT)
	h.session = 0
	h.discover()
}

// renegotiate opens LCP anew.
func (h *host) renegotiate() {
	h.ppp(0xc021, 1, 9, 5, 6, 7, 7, 7, 7)
	id, options := h.gotPPP(0xc021, 1)
	h.ppp(0xc021, 2, id, options...)
}

func TestAHostThatMixesEAPAndAnotherMethodIsGone(t *testing.T) {
	refuseEAP := func(h *host) {
		h.t.Helper()
		id, _ := h.gotPPP(0xc021, 1)
		h.ppp(0xc021, 3, id, 3, 4, 0xc0, 0x23)
		id, options := h.gotPPP(0xc021, 1)
		h.ppp(0xc021, 2, id, options...)
		h.ppp(0xc021, 1, 1, 5, 6, 9, 9, 9, 9)
	}
	wishEAP := func(h *host) {
		h.t.Helper()
		h.ppp(0xc021, 1, 77, 5, 6, 9, 9, 9, 8)
		id, _ := h.gotPPP(0xc021, 1)
		h.ppp(0xc021, 3, id, 3, 4, 0xc2, 0x27)
		id, options := h.gotPPP(0xc021, 1)
		h.ppp(0xc021, 2, id, options...)
	}
	alice := []byte("\x05alice\x01x")
	for name, mix := range map[string]func(h *host){
		"EAP while it is asked": func(h *host) {
			h.discover()
			refuseEAP(h)
			h.ppp(0xc023, 1, 1, alice...)
			wishEAP(h)
		},
		"EAP when it is up": func(h *host) {
			h.discover()
			refuseEAP(h)
			h.ppp(0xc023, 1, 1, alice...)
			id := one[Authenticate](h.site).Request.ID
			h.take(h.answered(id, "alice", subscriber.Answer{}))
			h.take(h.Connected(id, lease, [8]byte{}, "", nil, h.now))
			wishEAP(h)
			one[Disconnect](h.site)
		},
		"PAP after EAP": func(h *host) {
			h.delegate(h.t)
			h.ppp(0xc021, 1, 77, 5, 6, 9, 9, 9, 8)
			id, options := h.gotPPP(0xc021, 1)
			if bytes.Contains(options, []byte{3, 4, 0xc2, 0x27}) {
				h.ppp(0xc021, 3, id, 3, 4, 0xc0, 0x23)
				id, options = h.gotPPP(0xc021, 1)
			}
			h.ppp(0xc021, 2, id, options...)
			h.ppp(0xc023, 1, 1, alice...)
			one[Down](h.site)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, eapServer)
			h := s.host(1, 100, 7)
			mix(h)
			h.got(typeDiscovery, codePADT)
			if len(s.sessions) != 0 || s.due.Len() != 0 {
				t.Error(s.kept)
			}
		})
	}
}
