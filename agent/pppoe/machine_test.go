// SPDX-License-Identifier: Apache-2.0

package pppoe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

var (
	ourMAC = subscriber.MAC{2, 0, 0, 0, 0xaa, 1}
	lease  = subscriber.Lease{Session: "s", IPv4: netip.MustParseAddr("100.64.0.7"), Gateway: netip.MustParseAddr("100.64.0.1"),
		IPv6Prefix: netip.MustParsePrefix("2001:db8:7::/64"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}}
)

// site is a machine with a server, and its output.
type site struct {
	t *testing.T
	*Machine
	now  time.Time
	kept []Action
}

func newSite(t *testing.T, change func(*api.PppoeServer)) *site {
	next := uint64(7)
	random := func() uint64 {
		next = next*6364136223846793005 + 1442695040888963407
		return next
	}
	s := &site{t: t, Machine: New(&cookieKeys{}, random, time.Unix(1000, 0)), now: time.Unix(2000, 0)}
	spec := &api.PppoeServer{Port: "access", OuterVlans: []string{"100-199"}, InnerVlans: []string{"1-4094"}, Profile: "home",
		Authentication: []api.PppAuthentication{api.PppAuthentication_PAP}}
	if change != nil {
		change(spec)
	}
	s.take(s.SetServer("home", spec, s.now))
	s.SetPort("dp", "access", ourMAC)
	s.Machine.Restored(true)
	return s
}

func (s *site) take(actions []Action) { s.kept = actions }

// all actions of a type.
func all[T Action](s *site) (found []T) {
	for _, a := range s.kept {
		if one, is := a.(T); is {
			found = append(found, one)
		}
	}
	return found
}

func one[T Action](s *site) T {
	s.t.Helper()
	found := all[T](s)
	if len(found) != 1 {
		s.t.Fatalf("%d of %T: %+v", len(found), *new(T), s.kept)
	}
	return found[0]
}

func (s *site) drops(why string) {
	s.t.Helper()
	if !slices.ContainsFunc(all[Count](s), func(c Count) bool { return c.Drop == why }) {
		s.t.Fatalf("not dropped as %s: %+v", why, s.kept)
	}
}

// answered is the Manager's answer to the last Authenticate of a session.
func (s *site) answered(id, username string, a subscriber.Answer) []Action {
	attempt := uint8(0)
	if one := s.byID[id]; one != nil {
		attempt = one.attempt
	}
	return s.Authenticated(id, attempt, username, a, s.now)
}

// host is a home gateway on a circuit.
type host struct {
	*site
	mac     subscriber.MAC
	vlans   vlanTags
	session uint16
	last    []byte
}

func (s *site) host(number byte, outer, inner uint16) *host {
	h := &host{site: s, mac: subscriber.MAC{2, 0, 0, 0, 1, number}}
	h.vlans.length = 8
	copy(h.vlans.bytes[:], []byte{0x88, 0xa8, byte(outer >> 8), byte(outer), 0x81, 0, byte(inner >> 8), byte(inner)})
	return h
}

func (h *host) send(etherType uint16, code byte, payload []byte) {
	b := build(ourMAC, h.mac, &h.vlans, etherType, code, h.session, payload)
	h.take(h.Receive(Packet{"dp", "access", append(b, make([]byte, 4)...)}, h.now))
}

func (h *host) ppp(protocol uint16, code, id byte, data ...byte) {
	b := binary.BigEndian.AppendUint16(nil, protocol)
	b = append(b, code, id)
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(data)))
	h.send(typeSession, codeSession, append(b, data...))
}

// got is the payload of the one frame to the host with an Ethernet type and a code.
func (h *host) got(etherType uint16, code byte) (session uint16, payload []byte) {
	h.t.Helper()
	for _, sent := range all[SendFrame](h.site) {
		f, ok := parseFrame(sent.Frame)
		if !ok || f.destination != h.mac || f.source != ourMAC || f.tags != h.vlans || sent.Port != "access" || sent.Dataplane != "dp" {
			h.t.Fatalf("%x", sent.Frame)
		}
		c, id, payload, ok := parsePPPoE(f.payload)
		if ok && f.etherType == etherType && c == code {
			return id, payload
		}
	}
	h.t.Fatalf("no frame %#x with code %#x: %+v", etherType, code, h.kept)
	return 0, nil
}

// gotPPP is a PPP packet with its protocol and code.
func (h *host) gotPPP(protocol uint16, code byte) (id byte, data []byte) {
	h.t.Helper()
	for _, sent := range all[SendFrame](h.site) {
		f, _ := parseFrame(sent.Frame)
		c, session, p, ok := parsePPPoE(f.payload)
		if ok && f.etherType == typeSession && c == 0 && session == h.session && binary.BigEndian.Uint16(p) == protocol && p[2] == code {
			return p[3], p[6:]
		}
	}
	h.t.Fatalf("no PPP packet %#x with code %d: %+v", protocol, code, h.kept)
	return 0, nil
}

func tags(all ...any) (b []byte) {
	for i := 0; i < len(all); i += 2 {
		b = appendTag(b, uint16(all[i].(int)), []byte(all[i+1].(string)))
	}
	return b
}

// discover gets a session.
func (h *host) discover(more ...any) {
	h.t.Helper()
	h.session = 0
	h.send(typeDiscovery, codePADI, tags(append([]any{tagServiceName, ""}, more...)...))
	_, pado := h.got(typeDiscovery, codePADO)
	d, ok := parseTags(pado)
	if !ok || len(d.cookie) != cookieLength {
		h.t.Fatalf("%x", pado)
	}
	h.last = tags(append([]any{tagACCookie, string(d.cookie), tagServiceName, ""}, more...)...)
	h.send(typeDiscovery, codePADR, h.last)
	if h.session, _ = h.got(typeDiscovery, codePADS); h.session == 0 {
		h.t.Fatal("no session")
	}
}

// negotiate goes on until the Manager is asked to authenticate the host.
func (h *host) negotiate(more ...any) subscriber.Request {
	h.t.Helper()
	h.discover(more...)
	id, options := h.gotPPP(0xc021, 1)
	h.ppp(0xc021, 2, id, options...)
	h.ppp(0xc021, 1, 1, 1, 4, 5, 0xd4, 5, 6, 1, 2, 3, h.mac[5]+9)
	h.gotPPP(0xc021, 2)
	h.ppp(0xc023, 1, 1, []byte("\x05alice\x01x")...)
	return one[Authenticate](h.site).Request
}

// dial goes on until the host is connected.
func (h *host) dial(more ...any) string {
	h.t.Helper()
	id := h.negotiate(more...).ID
	h.take(h.answered(id, "alice", subscriber.Answer{}))
	c := one[Connect](h.site).Connection
	if c.ID != id || !c.IPv4 || !c.IPv6 || c.Access.PppoeSessionId != uint32(h.session) || c.Access.Mac != macText(h.mac) || c.Access.LcpMagic == 0 {
		h.t.Fatalf("%+v", c)
	}
	h.take(h.Connected(id, lease, [8]byte{}, "", nil, h.now))
	h.gotPPP(0xc023, 2)
	h.gotPPP(0x8021, 1)
	h.gotPPP(0x8057, 1)
	return id
}

func TestAPeerThatTheDataPlaneLostIsEnded(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	id := h.dial()
	h.ppp(0x8021, 2, 1)
	// The link leaves echoes to the data plane.
	h.now = h.now.Add(10 * time.Minute)
	asked := binary.BigEndian.AppendUint16(nil, 0xc021)
	frame := build(h.mac, ourMAC, &h.vlans, typeSession, codeSession, h.session, append(asked, 9, 1, 0, 8, 1, 2, 3, 4))
	for _, wrong := range [][]byte{frame[:20], build(ourMAC, ourMAC, &h.vlans, typeSession, codeSession, h.session, asked),
		build(h.mac, ourMAC, &h.vlans, typeSession, codeSession, h.session+1, asked), build(h.mac, ourMAC, &h.vlans, typeDiscovery, codePADI, h.session, nil)} {
		if s.take(s.Lost(Packet{"dp", "access", wrong}, h.now)); len(all[Disconnect](s)) != 0 {
			t.Fatalf("%x ends the session", wrong)
		}
	}
	s.take(s.Lost(Packet{"dp", "access", frame}, h.now))
	if d := one[Disconnect](s); d.ID != id || d.Cause != subscriber.LostCarrier {
		t.Errorf("%+v", d)
	}
	h.gotPPP(0xc021, 5)
	h.got(typeDiscovery, codePADT)
}

func TestAHostIsDiscoveredAuthenticatedAndConnected(t *testing.T) {
	s := newSite(t, nil)
	if punts := all[PutPunt](s); len(punts) != 2 || punts[0].Punt.Protocols[0] != api.PuntProtocol_PPPOE_DISCOVERY || punts[1].Punt.Protocols[0] != api.PuntProtocol_PPP_CONTROL {
		t.Fatalf("%+v", s.kept)
	}
	h := s.host(1, 100, 7)
	h.dial()
	if half, up := s.Sessions(); half != 0 || up != 1 {
		t.Error(half, up)
	}
	h.ppp(0x8021, 1, 1, 3, 6, 0, 0, 0, 0, 129, 6, 0, 0, 0, 0)
	if _, nak := h.gotPPP(0x8021, 3); !bytes.Equal(nak, []byte{3, 6, 100, 64, 0, 7, 129, 6, 192, 0, 2, 53}) {
		t.Errorf("%x", nak)
	}
	// It hangs up, without any tag.
	h.send(typeDiscovery, codePADT, nil)
	if d := one[Disconnect](s); d.Cause != subscriber.UserRequest {
		t.Error(d)
	}
	before := h.session
	defer func() {
		// A late packet of the session before does not reach the next one.
		if h.discover(); h.session == before {
			t.Error("the next session has the same identifier")
		}
	}()
	if half, up := s.Sessions(); half != 0 || up != 0 || len(s.hosts)+len(s.circuits)+len(s.byID)+s.due.Len() != 0 || s.ofPlace[0] != 0 {
		t.Error("something is left of the session", half, up)
	}
}

func TestTheAnswersRepeatWhatIsTheHostsAndTheRelays(t *testing.T) {
	long := strings.Repeat("u", 400)
	for _, uniq := range []string{"", "u", "12345", long} {
		s := newSite(t, nil)
		h := s.host(1, 100, 7)
		h.send(typeDiscovery, codePADI, tags(tagHostUniq, uniq, tagServiceName, "any", tagRelaySessionID, "relay", tagMaxPayload, "\x05\xdc"))
		_, pado := h.got(typeDiscovery, codePADO)
		d, _ := parseTags(pado)
		if string(d.hostUniq) != string(tags(tagHostUniq, uniq)) || string(d.relay) != string(tags(tagRelaySessionID, "relay")) || string(d.services[0]) != "any" || d.maxPayload != 0 {
			t.Errorf("%q: %x", uniq, pado)
		}
		h.discover(tagHostUniq, uniq, tagRelaySessionID, "relay")
		_, pads := h.got(typeDiscovery, codePADS)
		if d, _ = parseTags(pads); string(d.hostUniq) != string(tags(tagHostUniq, uniq)) || string(d.relay) != string(tags(tagRelaySessionID, "relay")) {
			t.Errorf("%q: %x", uniq, pads)
		}
	}
}

func TestServiceNamesAreAListAndErrors(t *testing.T) {
	s := newSite(t, func(p *api.PppoeServer) { p.ServiceNames = []string{"gold", "silver"}; p.AcName = "bng" })
	h := s.host(1, 100, 7)
	h.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
	_, pado := h.got(typeDiscovery, codePADO)
	d, _ := parseTags(pado)
	if len(d.services) != 3 || !bytes.Contains(pado, tags(tagACName, "bng")) {
		t.Errorf("%x", pado)
	}
	h.send(typeDiscovery, codePADI, tags(tagServiceName, "silver"))
	_, pado = h.got(typeDiscovery, codePADO)
	if d, _ = parseTags(pado); len(d.services) != 2 || string(d.services[0]) != "silver" {
		t.Errorf("%x", pado)
	}
	h.send(typeDiscovery, codePADI, tags(tagServiceName, "lead"))
	s.drops("service-name")
	h.send(typeDiscovery, codePADR, tags(tagACCookie, string(d.cookie), tagServiceName, "lead"))
	if id, pads := h.got(typeDiscovery, codePADS); id != 0 || !bytes.Contains(pads, tags(tagServiceNameError, "service-name")) {
		t.Errorf("%d %x", id, pads)
	}
}

func TestACookieIsOfOneHostAndAMoment(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	h.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
	_, pado := h.got(typeDiscovery, codePADO)
	d, _ := parseTags(pado)
	cookie := slices.Clone(d.cookie)
	for _, other := range []*host{s.host(2, 100, 7), s.host(1, 101, 7), s.host(1, 100, 8)} {
		other.send(typeDiscovery, codePADR, tags(tagServiceName, "", tagACCookie, string(cookie)))
		s.drops("cookie")
	}
	h.send(typeDiscovery, codePADR, tags(tagServiceName, ""))
	s.drops("cookie")
	s.now = s.now.Add(cookieSlot)
	h.send(typeDiscovery, codePADR, tags(tagServiceName, "", tagACCookie, string(cookie)))
	h.got(typeDiscovery, codePADS)
	s.now = s.now.Add(cookieSlot)
	s.host(1, 100, 7).send(typeDiscovery, codePADR, tags(tagServiceName, "", tagACCookie, string(cookie)))
	s.drops("cookie")
}

func TestAPADRThatComesAgainGetsTheSameSession(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	h.discover()
	id := h.session
	h.session = 0
	h.send(typeDiscovery, codePADR, h.last)
	if again, _ := h.got(typeDiscovery, codePADS); again != id || len(s.sessions) != 1 {
		t.Error(id, again)
	}
}

func TestAHostThatLostPowerIsBackAtOnce(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	before := h.dial()
	first := h.session
	h.discover()
	if d := one[Disconnect](s); d.ID != before || d.Cause != subscriber.LostCarrier || h.session == first {
		t.Error(d, h.session)
	}
	if id, _ := h.got(typeDiscovery, codePADT); id != first {
		t.Error(id)
	}
	if len(s.sessions) != 1 {
		t.Error(len(s.sessions))
	}
}

func TestLimitsKeepFurtherHostsOut(t *testing.T) {
	for why, c := range map[string]struct {
		change func(*api.PppoeServer)
		second *host
	}{
		"limit-sessions":  {func(p *api.PppoeServer) { p.Sessions = 1 }, (&site{}).host(2, 101, 7)},
		"limit-port":      {func(p *api.PppoeServer) { p.SessionsPerPort = 1 }, (&site{}).host(2, 101, 7)},
		"limit-circuit":   {func(p *api.PppoeServer) { p.SessionsPerCircuit = 1 }, (&site{}).host(2, 100, 7)},
		"limit-half-open": {func(p *api.PppoeServer) { p.HalfOpen = 1 }, (&site{}).host(2, 100, 7)},
		"refused-by-load": {func(p *api.PppoeServer) { p.PadoDelays = []*api.PadoDelay{{Sessions: 1, Refuse: true}} }, (&site{}).host(2, 101, 7)},
	} {
		s := newSite(t, c.change)
		s.host(1, 100, 7).discover()
		c.second.site = s
		c.second.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
		s.drops(why)
		if len(all[SendFrame](s)) > 0 {
			t.Error(why, s.kept)
		}
		// A PADR without a PADI: its cookie is right.
		cookie := cookieOf(s.keys[0], s.places[0], uint16(c.second.vlans.bytes[2])<<8|uint16(c.second.vlans.bytes[3]), 7, c.second.mac, slotOf(s.now.UnixNano()))
		c.second.send(typeDiscovery, codePADR, tags(tagServiceName, "", tagACCookie, string(cookie[:])))
		if why != "refused-by-load" {
			if id, pads := c.second.got(typeDiscovery, codePADS); id != 0 || !bytes.Contains(pads, tags(tagACSystemError, why)) {
				t.Errorf("%s: %x", why, pads)
			}
		}
	}
}

func TestManyHalfOpenSessionsOfOneCircuitLeaveRoomForOthers(t *testing.T) {
	for _, limit := range []func(p *api.PppoeServer){
		func(p *api.PppoeServer) { p.HalfOpen = 20 },
		func(p *api.PppoeServer) { p.HalfOpenPerCircuit = 10 },
		func(p *api.PppoeServer) { p.HalfOpen, p.HalfOpenPerCircuit = 20, 100 },
	} {
		s := newSite(t, limit)
		for i := range 10 {
			s.host(byte(i), 100, 7).discover()
		}
		s.host(11, 100, 7).send(typeDiscovery, codePADI, tags(tagServiceName, ""))
		s.drops("limit-half-open")
		s.host(12, 100, 8).discover()
		// Those that say nothing more are gone after a while.
		for range 60 {
			s.now = s.now.Add(time.Second)
			s.take(s.Tick(s.now))
		}
		if half, _ := s.Sessions(); half != 0 || len(s.sessions) != 0 {
			t.Error(half)
		}
	}
}

func TestManyCircuitsWithHalfOpenSessionsLeaveRoomForOthers(t *testing.T) {
	s := newSite(t, func(p *api.PppoeServer) { p.HalfOpen, p.HalfOpenPerCircuit = 32, 4 })
	for i := range 32 {
		s.host(byte(i), 100, uint16(i/4+1)).discover()
	}
	of := func(inner uint16) int { return s.loads["home"].half.of(circuitKey{0, 100, inner}) }
	// The circuits with the most give up their oldest session, until each has its share.
	for i := range byte(3) {
		h := s.host(100+i, 100, 99)
		h.discover()
		if half, _ := s.Sessions(); half != 32 || of(99) != int(i)+1 {
			t.Fatal(half, of(99))
		}
	}
	s.host(103, 100, 99).discover()
	s.host(104, 100, 99).send(typeDiscovery, codePADI, tags(tagServiceName, ""))
	s.drops("limit-half-open")
	total := 0
	for inner := range uint16(9) {
		if n := of(inner); inner > 0 && (n < 3 || n > 4) {
			t.Errorf("circuit %d has %d", inner, n)
		}
		total += of(inner)
	}
	if total != 28 {
		t.Error(total)
	}
	// A host of a further circuit dials in.
	h := s.host(105, 100, 200)
	h.dial()
	for range 60 {
		s.now = s.now.Add(time.Second)
		s.take(s.Tick(s.now))
	}
	if half := &s.loads["home"].half; half.count != 0 || half.largest != 0 || len(half.circuits) != 0 || len(half.byCount) != 0 {
		t.Errorf("%+v", half)
	}
}

func TestAHostThatIsRejectedAgainAndAgainPauses(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	reject := func() {
		t.Helper()
		id := h.negotiate().ID
		s.take(s.answered(id, "alice", subscriber.Answer{Reject: errors.New("no")}))
	}
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 32} {
		reject()
		s.now = s.now.Add(pause*time.Second - 1)
		h.session = 0
		h.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
		s.drops("rejected-before")
		cookie := cookieOf(s.keys[0], s.places[0], 100, 7, h.mac, slotOf(s.now.UnixNano()))
		h.send(typeDiscovery, codePADR, tags(tagServiceName, "", tagACCookie, string(cookie[:])))
		s.drops("rejected-before")
		// Other hosts of the circuit are served.
		s.host(2, 100, 7).discover()
		s.now = s.now.Add(1)
	}
	// Once it is connected, its rejections are forgotten.
	h.dial()
	reject()
	s.now = s.now.Add(shortestPause)
	reject()
	s.now = s.now.Add(rejectionAge)
	reject()
	s.now = s.now.Add(shortestPause)
	h.discover()
	// A flood of hosts that are rejected does not fill the memory.
	r := newRejections()
	for i := range uint32(rejectedLimit + 10) {
		r.add(hostKey{circuitKey{i, 1, 1}, h.mac}, 0)
	}
	if len(r.by) != rejectedLimit || r.order.Len() != rejectedLimit || r.pauses(hostKey{circuitKey{9, 1, 1}, h.mac}, 0) || !r.pauses(hostKey{circuitKey{10, 1, 1}, h.mac}, 0) {
		t.Error(len(r.by), r.order.Len())
	}
}

func TestOffersAreDelayedByLoad(t *testing.T) {
	s := newSite(t, func(p *api.PppoeServer) {
		p.PadoDelays = []*api.PadoDelay{{Sessions: 2, Delay: uint64(time.Second)}, {Sessions: 1, Delay: uint64(200 * time.Millisecond)}}
	})
	for i, delay := range []time.Duration{0, 200 * time.Millisecond, time.Second} {
		h := s.host(byte(i), 100, 7)
		h.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
		if delay > 0 {
			if len(all[SendFrame](s)) > 0 {
				t.Fatal("no delay")
			}
			s.now = s.now.Add(delay - time.Millisecond)
			if s.take(s.Tick(s.now)); len(all[SendFrame](s)) > 0 && slices.ContainsFunc(all[Count](s), func(c Count) bool { return c.Type == "pado" }) {
				t.Fatal("too early")
			}
			s.now = s.now.Add(time.Millisecond)
			s.take(s.Tick(s.now))
		}
		if !slices.ContainsFunc(all[Count](s), func(c Count) bool { return c.Type == "pado" }) {
			t.Fatal("no offer", i)
		}
		cookie := cookieOf(s.keys[0], s.places[0], 100, 7, h.mac, slotOf(s.now.UnixNano()))
		h.send(typeDiscovery, codePADR, tags(tagServiceName, "", tagACCookie, string(cookie[:])))
		h.got(typeDiscovery, codePADS)
	}
}

func TestTheLineIsIdentified(t *testing.T) {
	s := newSite(t, func(p *api.PppoeServer) { p.RelayInformation = api.RelayInformation_TRUST_INFORMATION })
	h := s.host(1, 100, 7)
	vendor := "\x00\x00\x0d\xe9\x01\x05eth 1\x02\x03bob\x81\x04\x00\x00\x03\xe8"
	h.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
	_, pado := h.got(typeDiscovery, codePADO)
	d, _ := parseTags(pado)
	h.send(typeDiscovery, codePADR, tags(tagVendor, vendor, tagServiceName, "tv", tagACCookie, string(d.cookie)))
	h.session, _ = h.got(typeDiscovery, codePADS)
	r := s.sessions[sessionKey{circuitKey{0, 100, 7}, h.session}].request
	if string(r.Line.CircuitID) != "eth 1" || string(r.Line.RemoteID) != "bob" || !bytes.Equal(r.Line.Attributes[0x81], []byte{0, 0, 3, 0xe8}) ||
		r.Service != "tv" || r.Line.OuterVLAN != 100 || r.Line.InnerVLAN != 7 || r.Line.MAC != h.mac || r.Profile != "home" || r.PPPoESessionID != h.session {
		t.Errorf("%+v", r)
	}
	// Another vendor, and one that is longer than its tag.
	for _, wrong := range []string{"\x00\x00\x00\x09\x01\x01x", "\x00\x00\x0d\xe9\x01\x09x", "\x00\x00", ""} {
		if d, ok := parseTags(tags(tagVendor, wrong)); !ok || parseLine(d.line).circuitID != nil {
			t.Errorf("%x", wrong)
		}
	}
}

func TestAHostDoesNotNameItsLineUnlessAnAccessNodeIsTrusted(t *testing.T) {
	vendor := "\x00\x00\x0d\xe9\x01\x05eth 1"
	for _, c := range []struct {
		trust   api.RelayInformation
		tags    []any
		drop    string
		circuit string
	}{
		{api.RelayInformation_REFUSE_INFORMATION, []any{tagVendor, vendor}, "relay-information", ""},
		{api.RelayInformation_REFUSE_INFORMATION, []any{tagVendor, "\x00\x00\x00\x09\x01\x01x"}, "", ""},
		{api.RelayInformation_OVERWRITE_INFORMATION, []any{tagVendor, vendor, tagVendor, vendor}, "", ""},
		{api.RelayInformation_TRUST_INFORMATION, []any{tagVendor, vendor}, "", "eth 1"},
		// The host's, which an access node did not replace, and the access node's: they cannot be distinguished.
		{api.RelayInformation_TRUST_INFORMATION, []any{tagVendor, "\x00\x00\x0d\xe9\x01\x05eth 2", tagVendor, vendor}, "relay-information-twice", ""},
		{api.RelayInformation_TRUST_INFORMATION, []any{tagVendor, "\x00\x00\x0d\xe9", tagVendor, vendor}, "relay-information-twice", ""},
	} {
		s := newSite(t, func(p *api.PppoeServer) { p.RelayInformation = c.trust })
		h := s.host(1, 100, 7)
		h.send(typeDiscovery, codePADI, tags(append([]any{tagServiceName, ""}, c.tags...)...))
		if c.drop != "" {
			s.drops(c.drop)
			// Nor does a PADR, after a PADI without the tag.
			cookie := cookieOf(s.keys[0], s.places[0], 100, 7, h.mac, slotOf(s.now.UnixNano()))
			h.send(typeDiscovery, codePADR, tags(append([]any{tagServiceName, "", tagACCookie, string(cookie[:])}, c.tags...)...))
			s.drops(c.drop)
			if len(s.sessions) != 0 || len(all[SendFrame](s)) != 0 {
				t.Errorf("%+v: %+v", c, s.kept)
			}
			continue
		}
		h.discover(c.tags...)
		if l := s.sessions[sessionKey{circuitKey{0, 100, 7}, h.session}].request.Line; string(l.CircuitID) != c.circuit || len(l.RemoteID) != 0 || l.Attributes != nil {
			t.Errorf("%+v: %+v", c, l)
		}
	}
}

func TestPPPMaxPayload(t *testing.T) {
	s := newSite(t, func(p *api.PppoeServer) { p.Mru = 1500 })
	s.SetMTU("access", 1508)
	for said, answered := range map[string]uint16{"": 0, "\x05\xd4": 0, "\x05\xdc": 1500, "\x06\x00": 1500, "\x05\xd8": 1496, "\x05": 0} {
		h := s.host(1, 100, 7)
		h.send(typeDiscovery, codePADI, tags(tagServiceName, "", tagMaxPayload, said))
		_, pado := h.got(typeDiscovery, codePADO)
		if d, _ := parseTags(pado); d.maxPayload != answered {
			t.Errorf("%x: %d", said, d.maxPayload)
		}
	}
}

func TestASessionThatNobodyHasIsEndedByPADT(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	h.session = 99
	h.ppp(0xc021, 9, 1, 0, 0, 0, 0)
	if id, _ := h.got(typeDiscovery, codePADT); id != 99 {
		t.Error(id)
	}
	// Terminate packets, another circuit, and PADT get nothing.
	for _, quiet := range []func(){
		func() { h.ppp(0xc021, 6, 1) }, func() { h.ppp(0xc021, 5, 1) }, func() { h.send(typeDiscovery, codePADT, nil) },
		func() { other := s.host(1, 300, 7); other.session = 99; other.ppp(0xc021, 9, 1, 0, 0, 0, 0) },
	} {
		if quiet(); len(all[SendFrame](s)) > 0 {
			t.Errorf("%+v", s.kept)
		}
	}
	// Before the sessions of an earlier run are known, no host is served.
	s.Machine.Restored(false)
	h.ppp(0xc021, 9, 1, 0, 0, 0, 0)
	s.drops("not-ready")
}

func TestAnotherHostDoesNotSpeakForASession(t *testing.T) {
	s := newSite(t, nil)
	h, thief := s.host(1, 100, 7), s.host(2, 100, 7)
	h.dial()
	thief.session = h.session
	thief.send(typeDiscovery, codePADT, nil)
	s.drops("mac")
	thief.ppp(0xc021, 5, 1)
	s.drops("mac")
	if _, up := s.Sessions(); up != 1 {
		t.Error("the session ended")
	}
}

func TestASessionThatTheManagerRefusesEnds(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	id := h.negotiate().ID
	s.take(s.answered(id, "alice", subscriber.Answer{Reject: errors.New("no"), Message: "go away"}))
	if _, nak := h.gotPPP(0xc023, 3); string(nak) != "\x07go away" {
		t.Errorf("%q", nak)
	}
	h.got(typeDiscovery, codePADT)
	if len(all[Disconnect](s)) != 0 || len(s.sessions) != 0 {
		t.Errorf("%+v", s.kept)
	}
	// The host learns the reason, and nothing of other subscribers.
	for _, refusal := range []struct {
		err  error
		text string
	}{
		{fmt.Errorf("%w: home", subscriber.ErrExhausted), "no address is free"},
		{fmt.Errorf("%w: 100.64.7.7/32 is of pppoe-18c5", subscriber.ErrAddressInUse), "the address is in use"},
		{fmt.Errorf("%w: user alice has 1", subscriber.ErrLimit), "too many sessions"},
		{errors.New("session pppoe-18c5 exists"), "the gateway cannot connect the session"},
	} {
		s.now = s.now.Add(longestPause)
		id = h.negotiate().ID
		s.take(s.answered(id, "alice", subscriber.Answer{}))
		s.take(s.Connected(id, subscriber.Lease{}, [8]byte{}, "", refusal.err, s.now))
		if _, nak := h.gotPPP(0xc023, 3); len(nak) == 0 || string(nak[1:]) != refusal.text {
			t.Errorf("%q", nak)
		}
		if len(all[Disconnect](s)) != 0 || len(s.sessions) != 0 {
			t.Errorf("%+v", s.kept)
		}
	}
	// A host that goes while it is being connected is disconnected.
	s.now = s.now.Add(longestPause)
	id = h.negotiate().ID
	s.take(s.answered(id, "alice", subscriber.Answer{}))
	h.send(typeDiscovery, codePADT, nil)
	if one[Disconnect](s).ID != id {
		t.Error(s.kept)
	}
	s.take(s.Connected(id, lease, [8]byte{}, "", nil, s.now))
	if len(s.kept) != 0 {
		t.Error(s.kept)
	}
}

func TestTheManagerEndsASession(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	id := h.dial()
	s.take(s.Terminate(id, subscriber.AdminReset, "", s.now))
	h.gotPPP(0xc021, 5)
	h.got(typeDiscovery, codePADT)
	if half, up := s.Sessions(); half != 0 || up != 0 || len(all[Disconnect](s)) != 0 || len(s.circuits) != 0 {
		t.Error(half, up, s.kept)
	}
}

func TestAServerThatGoesTakesItsSessionsAlong(t *testing.T) {
	s := newSite(t, nil)
	h, other := s.host(1, 100, 7), s.host(2, 150, 7)
	h.dial()
	other.dial()
	spec := &api.PppoeServer{Port: "access", OuterVlans: []string{"100"}, InnerVlans: []string{"1-4094"}, Profile: "home"}
	otherwise := &api.PppoeServer{Port: "access", OuterVlans: []string{"100"}, InnerVlans: []string{"1-4094"}, Profile: "office"}
	elsewhere := &api.PppoeServer{Port: "other", OuterVlans: []string{"100-199"}, InnerVlans: []string{"1-4094"}, Profile: "home"}
	for _, c := range []struct {
		name         string
		spec         *api.PppoeServer
		ends, others int
	}{{"home", spec, 1, 0}, {"another", nil, 0, 0}, {"home", nil, 2, 0}, {"home", elsewhere, 2, 0}, {"home", otherwise, 1, 1}} {
		if ends, others := s.Ends(c.name, c.spec); ends != c.ends || len(others) != c.others {
			t.Error(c, ends, others)
		}
	}
	s.take(s.SetServer("home", spec, s.now))
	other.got(typeDiscovery, codePADT)
	if _, up := s.Sessions(); up != 1 {
		t.Error(up)
	}
	// Its host hears nothing yet: the Manager knows whether the line moves.
	s.take(s.SetServer("home", otherwise, s.now))
	if a := one[Serve](s); a.Profile != "office" {
		t.Error(a)
	}
	s.take(s.SetServer("home", nil, s.now))
	h.got(typeDiscovery, codePADT)
	if d := one[Disconnect](s); d.Cause != subscriber.AdminReset || len(all[DeletePunt](s)) != 2 || len(s.loads) != 0 {
		t.Error(s.kept)
	}
}

func TestASessionGoesOnAfterARestart(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	id := h.negotiate().ID
	s.take(s.answered(id, "alice", subscriber.Answer{}))
	c := one[Connect](s).Connection
	again := newSite(t, nil)
	// The data plane was not asked for its ports yet.
	again.macs = map[uint32]subscriber.MAC{}
	if _, taken := again.Restore(c, lease, again.now); !taken {
		t.Fatal("not restored")
	}
	h.site = again
	h.ppp(0xc021, 9, 5, 1, 2, 3, 4)
	if _, reply := h.gotPPP(0xc021, 10); binary.BigEndian.Uint32(reply) != s.byID[id].link.Magic() {
		t.Errorf("%x", reply)
	}
	h.ppp(0x8021, 1, 1, 3, 6, 0, 0, 0, 0)
	h.gotPPP(0x8021, 3)
	if _, taken := again.Restore(c, lease, again.now); !taken || len(again.sessions) != 1 {
		t.Error("twice")
	}
	h.send(typeDiscovery, codePADT, nil)
	if one[Disconnect](again).ID != id {
		t.Error(again.kept)
	}
	// No server has its circuit any more.
	for name, change := range map[string]func(*subscriber.Connection){
		"circuit": func(c *subscriber.Connection) { c.Line.OuterVLAN = 300 }, "state": func(c *subscriber.Connection) { c.State = c.State[:9] },
		"session": func(c *subscriber.Connection) { c.PPPoESessionID = 0 },
	} {
		wrong := c
		change(&wrong)
		if _, taken := again.Restore(wrong, lease, again.now); taken {
			t.Error(name)
		}
	}
}

func TestLCPAnewAuthenticatesAnewAndKeepsTheSession(t *testing.T) {
	for _, user := range []string{"alice", "mallory"} {
		s := newSite(t, nil)
		h := s.host(1, 100, 7)
		id := h.dial()
		h.ppp(0xc021, 1, 99, 1, 4, 5, 0x78)
		request, options := h.gotPPP(0xc021, 1)
		h.ppp(0xc021, 2, request, options...)
		if u := one[Update](s); u.ID != id {
			t.Error(u)
		} else {
			c := subscriber.Connection{}
			if u.Change(&c); c.MTU != 1400 || c.Access.LcpMagic == 0 || c.Access.LcpMagic != s.byID[id].link.Magic() {
				t.Error(c.MTU, c.Access)
			}
		}
		h.ppp(0xc023, 1, 9, append([]byte{byte(len(user))}, user+"\x01x"...)...)
		one[Authenticate](s)
		s.take(s.answered(id, user, subscriber.Answer{}))
		if user == "alice" {
			h.gotPPP(0x8021, 1)
			if len(all[Connect](s)) > 0 || len(all[Disconnect](s)) > 0 {
				t.Error(s.kept)
			}
		} else if one[Disconnect](s).Cause != subscriber.UserError {
			t.Error(s.kept)
		}
	}
}

// again negotiates LCP again.
func (h *host) again() {
	h.t.Helper()
	h.ppp(0xc021, 1, 99, 1, 4, 5, 0x78)
	id, options := h.gotPPP(0xc021, 1)
	h.ppp(0xc021, 2, id, options...)
}

func TestAHostMayNegotiateLCPAgainWhileItAuthenticates(t *testing.T) {
	alice := []byte("\x05alice\x01x")
	for name, dial := range map[string]func(h *host, id string){
		"before the answer to its credentials": func(h *host, id string) {
			before := h.byID[id].attempt
			h.again()
			h.ppp(0xc023, 1, 2, alice...)
			h.take(h.Authenticated(id, before, "alice", subscriber.Answer{}, h.now))
			if len(h.kept) != 0 {
				h.t.Error("an answer to credentials of before", h.kept)
			}
			h.take(h.answered(id, "alice", subscriber.Answer{}))
			one[Connect](h.site)
			h.take(h.Connected(id, lease, [8]byte{}, "", nil, h.now))
		},
		"without credentials before the answer": func(h *host, id string) {
			h.again()
			h.take(h.answered(id, "alice", subscriber.Answer{}))
			one[Connect](h.site)
			h.take(h.Connected(id, lease, [8]byte{}, "", nil, h.now))
			h.ppp(0xc023, 1, 2, alice...)
			one[Authenticate](h.site)
			h.take(h.answered(id, "alice", subscriber.Answer{}))
		},
		"while it is connected": func(h *host, id string) {
			h.take(h.answered(id, "alice", subscriber.Answer{}))
			one[Connect](h.site)
			h.again()
			h.ppp(0xc023, 1, 2, alice...)
			if len(all[Authenticate](h.site)) != 0 {
				h.t.Error("two requests to the Manager at once", h.kept)
			}
			h.take(h.Connected(id, lease, [8]byte{}, "", nil, h.now))
			one[Authenticate](h.site)
			h.take(h.answered(id, "alice", subscriber.Answer{}))
		},
		"without credentials while it is connected": func(h *host, id string) {
			h.take(h.answered(id, "alice", subscriber.Answer{}))
			one[Connect](h.site)
			h.again()
			h.take(h.Connected(id, lease, [8]byte{}, "", nil, h.now))
			h.ppp(0xc023, 1, 2, alice...)
			one[Authenticate](h.site)
			h.take(h.answered(id, "alice", subscriber.Answer{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			h := s.host(1, 100, 7)
			dial(h, h.negotiate().ID)
			if id, _ := h.gotPPP(0xc023, 2); id != 2 {
				t.Error("the answer is to request", id)
			}
			h.gotPPP(0x8021, 1)
			h.gotPPP(0x8057, 1)
			if half, up := s.Sessions(); half != 0 || up != 1 {
				t.Error(half, up)
			}
		})
	}
}

func TestAHostThatIsRefusedWhileItNegotiatesLCPAgainIsGone(t *testing.T) {
	for name, refuse := range map[string]func(h *host, id string){
		"by its credentials": func(h *host, id string) {
			h.ppp(0xc021, 1, 99, 1, 4, 5, 0x78)
			h.take(h.answered(id, "alice", subscriber.Answer{Reject: errors.New("no")}))
		},
		"by the Manager": func(h *host, id string) {
			h.take(h.answered(id, "alice", subscriber.Answer{}))
			h.ppp(0xc021, 1, 99, 1, 4, 5, 0x78)
			h.take(h.Connected(id, subscriber.Lease{}, [8]byte{}, "", errors.New("no"), h.now))
		},
	} {
		s := newSite(t, nil)
		h := s.host(1, 100, 7)
		refuse(h, h.negotiate().ID)
		h.got(typeDiscovery, codePADT)
		if half, up := s.Sessions(); half != 0 || up != 0 || s.due.Len() != 0 {
			t.Error(name, half, up)
		}
		h.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
		s.drops("rejected-before")
	}
}

// TestNoTruncationOfAMessageChangesASession cuts each message of a host at each byte, in each phase of a session: with the lengths that it had, and
// with a PPPoE length that is right.
func TestNoTruncationOfAMessageChangesASession(t *testing.T) {
	ppp := func(protocol uint16, code, id byte, data string) []byte {
		b := append(binary.BigEndian.AppendUint16(nil, protocol), code, id)
		return append(binary.BigEndian.AppendUint16(b, uint16(4+len(data))), data...)
	}
	// An IPv6 packet to all routers or all DHCPv6 servers, without a right checksum.
	ip6 := func(next byte, payload string) []byte {
		b := append([]byte{0, 0x57, 0x60, 0, 0, 0}, 0, byte(len(payload)), next, 255)
		b = append(append(b, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2)
		return append(b, payload...)
	}
	for phase, reach := range map[string]func(h *host){
		"none":           func(*host) {},
		"discovered":     func(h *host) { h.discover(tagHostUniq, "one") },
		"authenticating": func(h *host) { h.negotiate() },
		"connecting": func(h *host) {
			id := h.negotiate().ID
			h.take(h.answered(id, "alice", subscriber.Answer{}))
		},
		"up": func(h *host) { h.dial() },
	} {
		s := newSite(t, nil)
		h := s.host(1, 100, 7)
		reach(h)
		cookie := cookieOf(s.keys[0], place{"dp", "access"}, 100, 7, h.mac, slotOf(s.now.UnixNano()))
		half, up := s.Sessions()
		for name, message := range map[string]struct {
			etherType uint16
			code      byte
			payload   []byte
		}{
			"PADI":   {typeDiscovery, codePADI, tags(tagServiceName, "", tagHostUniq, "uniq", tagMaxPayload, "\x05\xdc", tagVendor, "\x00\x00\x0d\xe9\x01\x05eth 1")},
			"PADR":   {typeDiscovery, codePADR, tags(tagServiceName, "", tagHostUniq, "uniq", tagACCookie, string(cookie[:]))},
			"LCP":    {typeSession, codeSession, ppp(0xc021, 1, 1, "\x01\x04\x05\xd4\x05\x06\x01\x02\x03\x0a")},
			"ack":    {typeSession, codeSession, ppp(0xc021, 2, 1, "\x01\x04\x05\xd4\x05\x06\x01\x02\x03\x0a")},
			"end":    {typeSession, codeSession, ppp(0xc021, 5, 1, "bye")},
			"echo":   {typeSession, codeSession, ppp(0xc021, 9, 1, "\x01\x02\x03\x0a")},
			"PAP":    {typeSession, codeSession, ppp(0xc023, 1, 1, "\x05alice\x01x")},
			"CHAP":   {typeSession, codeSession, ppp(0xc223, 2, 1, "\x100123456789abcdefalice")},
			"IPCP":   {typeSession, codeSession, ppp(0x8021, 1, 1, "\x03\x06\x00\x00\x00\x00\x81\x06\x00\x00\x00\x00")},
			"IPv6CP": {typeSession, codeSession, ppp(0x8057, 1, 1, "\x01\x0a\x00\x00\x00\x00\x00\x00\x00\x01")},
			"RS":     {typeSession, codeSession, ip6(58, "\x85\x00\x00\x00\x00\x00\x00\x00")},
			"DHCPv6": {typeSession, codeSession, ip6(17, "\x02\x22\x02\x23\x00\x1c\x00\x00\x01\x01\x02\x03\x00\x01\x00\x04\x00\x03\x00\x01\x00\x08\x00\x02\x00\x00")},
		} {
			whole := build(ourMAC, h.mac, &h.vlans, message.etherType, message.code, 0, message.payload)
			begin := len(whole) - len(message.payload)
			if message.etherType == typeSession {
				binary.BigEndian.PutUint16(whole[begin-4:], h.session)
			}
			for cut := range whole {
				for _, right := range []bool{false, true} {
					b := slices.Clone(whole[:cut])
					if right && cut >= begin {
						binary.BigEndian.PutUint16(b[begin-2:], uint16(cut-begin))
					}
					s.take(s.Receive(Packet{"dp", "access", b}, s.now))
					if h, u := s.Sessions(); h != half || u != up {
						t.Fatalf("%s, %d of %d bytes of %s: %d and %d sessions, and not %d and %d", phase, cut, len(whole), name, h, u, half, up)
					}
					if len(all[Authenticate](s))+len(all[Update](s)) != 0 {
						t.Fatalf("%s, %d of %d bytes of %s: %+v", phase, cut, len(whole), name, s.kept)
					}
				}
			}
		}
	}
}

func TestTheMTUOfASessionFitsItsLinkAndItsPort(t *testing.T) {
	for _, c := range []struct {
		port, mru uint32
		said      string // PPP-Max-Payload
		granted   bool
		link      uint16
		mtu       uint32
		tooLarge  bool
	}{
		{1500, 0, "", false, 1492, 0, false},
		{1508, 1500, "", false, 1492, 1492, false},
		{1508, 1500, "\x05\xdc", true, 1500, 0, false},
		{1508, 1500, "\x05\xdc", true, 1400, 1400, false},
		{1500, 1500, "\x05\xdc", false, 1492, 0, true},
		{1400, 0, "", false, 1492, 0, false},
		{9600, 1500, "\x05\xdc", true, 1500, 1500, false},
	} {
		s := newSite(t, func(p *api.PppoeServer) { p.Mru = c.mru })
		s.SetMTU("access", c.port)
		h := s.host(1, 100, 7)
		if c.said != "" {
			h.discover(tagMaxPayload, c.said)
			_, pads := h.got(typeDiscovery, codePADS)
			if bytes.Contains(pads, tags(tagMaxPayload, c.said)) != c.granted {
				t.Errorf("%+v: %x", c, pads)
			}
		} else {
			h.discover()
		}
		id, options := h.gotPPP(0xc021, 1)
		h.ppp(0xc021, 2, id, options...)
		h.ppp(0xc021, 1, 1, 1, 4, byte(c.link>>8), byte(c.link), 5, 6, 1, 2, 3, 4)
		h.ppp(0xc023, 1, 1, []byte("\x05alice\x01x")...)
		s.take(s.answered(one[Authenticate](s).Request.ID, "alice", subscriber.Answer{}))
		if got := one[Connect](s).Connection.MTU; got != c.mtu || (s.TooLarge("home") != "") != c.tooLarge {
			t.Errorf("%+v: MTU %d, %q", c, got, s.TooLarge("home"))
		}
	}
}

func TestAnAttributeOfThePADRIsInEachRequest(t *testing.T) {
	s := newSite(t, func(p *api.PppoeServer) { p.RelayInformation = api.RelayInformation_TRUST_INFORMATION })
	h := s.host(1, 100, 7)
	id := h.dial(tagVendor, "\x00\x00\x0d\xe9\x01\x05eth 1")
	if kept := s.byID[id].request; kept == nil || kept.Username != "" || len(kept.Password) != 0 {
		t.Errorf("%+v", kept)
	}
	h.again()
	h.ppp(0xc023, 1, 9, []byte("\x05alice\x01x")...)
	if r := one[Authenticate](s).Request; string(r.Line.CircuitID) != "eth 1" || r.Username != "alice" {
		t.Errorf("%+v", r)
	}
	// Most sessions need no memory for that.
	other := s.host(2, 100, 7)
	if s.byID[other.dial()].request != nil {
		t.Error("a request without attributes is kept")
	}
}

func TestAHostThatWasStartedAnewGetsASessionOfItsOwn(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	h.discover(tagHostUniq, "one")
	before := h.session
	h.send(typeDiscovery, codePADR, h.last)
	if id, _ := h.got(typeDiscovery, codePADS); id != before {
		t.Error("a PADR that came again has another session:", id)
	}
	h.discover(tagHostUniq, "two")
	if _, pads := h.got(typeDiscovery, codePADS); h.session == before || !bytes.Contains(pads, tags(tagHostUniq, "two")) {
		t.Errorf("session %d, PADS %x", h.session, pads)
	}
	if half, _ := s.Sessions(); half != 1 {
		t.Error(half)
	}
}

func TestTheKeyOfCookiesIsReplaced(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	keys, now := cookieKeys{}, s.now
	renew := func() {
		t.Helper()
		now = now.Add(keyTime)
		if !keys.due(now) || keys.renew(now) != nil || keys.due(now) {
			t.Fatal(keys.made)
		}
		s.SetKeys(&keys)
	}
	renew()
	padr := func() []byte {
		h.session = 0
		h.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
		_, pado := h.got(typeDiscovery, codePADO)
		d, _ := parseTags(pado)
		return tags(tagACCookie, string(d.cookie), tagServiceName, "")
	}
	b := padr()
	renew()
	h.send(typeDiscovery, codePADR, b)
	h.got(typeDiscovery, codePADS)
	renew()
	h.send(typeDiscovery, codePADR, b)
	s.drops("cookie")
	if read, ok := readCookieKeys(keys.bytes()); !ok || read.keys != keys.keys || !read.made.Equal(keys.made) {
		t.Error("what is written is not what is read")
	}
	if _, ok := readCookieKeys(keys.bytes()[1:]); ok || !keys.due(now.Add(-time.Second)) {
		t.Error("a record that is cut, or of a clock that was set back, is taken")
	}
}

func TestAFamilyThatTheHostDoesNotSpeakIsGivenBack(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	h.dial()
	h.ppp(0xc021, 8, 1, 0x80, 0x57, 1, 1, 0, 4)
	c := subscriber.Connection{IPv4: true, IPv6: true}
	if one[Update](s).Change(&c); !c.IPv4 || c.IPv6 {
		t.Errorf("%+v", c)
	}
}

func TestSessionIdentifiersOfACircuitFollowEachOther(t *testing.T) {
	s := newSite(t, func(p *api.PppoeServer) { p.SessionsPerMac = 3 })
	h := s.host(1, 100, 7)
	h.discover()
	first := h.session
	for i := range uint16(2) {
		h.now = h.now.Add(cookieSlot)
		h.discover()
		if h.session != first+i+1 {
			t.Error(first, h.session)
		}
	}
	s.circuits[circuitKey{0, 100, 7}].last = lastSession
	s.host(2, 100, 7).discover()
	if s.sessions[sessionKey{circuitKey{0, 100, 7}, 1}] == nil {
		t.Error("identifiers do not begin anew")
	}
}

func TestAFloodIsBounded(t *testing.T) {
	s := newSite(t, func(p *api.PppoeServer) {
		p.HalfOpen = 100
		p.PadoDelays = []*api.PadoDelay{{Delay: uint64(time.Second)}}
	})
	for i := range 3 * mostOffers {
		h := s.host(byte(i), 100, uint16(i%4000+1))
		h.mac[3], h.mac[4] = byte(i>>16), byte(i>>8)
		h.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
		cookie := cookieOf(s.keys[0], s.places[0], 100, uint16(i%4000+1), h.mac, slotOf(s.now.UnixNano()))
		h.send(typeDiscovery, codePADR, tags(tagServiceName, "", tagACCookie, string(cookie[:])))
	}
	if half, _ := s.Sessions(); half != 100 || s.offers.Len() > mostOffers || len(s.circuits) > 100 {
		t.Error(half, s.offers.Len(), len(s.circuits))
	}
}

func TestNoTruncationOfAPacketIsRead(t *testing.T) {
	s := newSite(t, nil)
	h := s.host(1, 100, 7)
	whole := build(ourMAC, h.mac, &h.vlans, typeDiscovery, codePADI, 0, tags(tagServiceName, "x", tagHostUniq, "y"))
	for cut := range whole {
		s.take(s.Receive(Packet{"dp", "access", whole[:cut]}, s.now))
		if len(all[SendFrame](s)) > 0 {
			t.Fatal(cut)
		}
	}
	for _, wrong := range [][]byte{{1}, {1, 1, 0}, {1, 1, 0, 9, 0}} {
		h.send(typeDiscovery, codePADI, wrong)
		s.drops("malformed")
	}
	h.send(typeDiscovery, codePADI, append(tags(tagServiceName, "x", tagEnd, ""), 1, 2, 3))
	h.got(typeDiscovery, codePADO)
	h.send(typeDiscovery, 0x42, nil)
	s.drops("code")
	h.mac[0] = 1
	h.send(typeDiscovery, codePADI, tags(tagServiceName, ""))
	s.drops("malformed")
}

func BenchmarkSetUp(b *testing.B) {
	s := newSite(&testing.T{}, nil)
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range b.N {
		h := s.host(byte(i), uint16(100+i/4000%100), uint16(i%4000+1))
		h.mac[3], h.mac[4] = byte(i>>16), byte(i>>8)
		h.dial()
	}
	var after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(s.sessions)), "B/session")
}
