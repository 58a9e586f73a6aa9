// SPDX-License-Identifier: Apache-2.0
// Discovery (RFC 2516 section 5): PADI, PADO, PADR, PADS and PADT.

package pppoe

import (
	"cmp"
	"fmt"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ppp"
	"sluice.dev/sluice/agent/subscriber"
)

// mayServe returns why a circuit gets no further session of a host; "": it may.
func (m *Machine) mayServe(s *server, c circuitKey, mac subscriber.MAC) string {
	load, at := m.loads[s.name], m.circuits[c]
	most, half := s.halfOpenLimit(), load.half.of(c)
	one, count := m.hosts[hostKey{c, mac}], 0
	for ; one != nil; one = one.older {
		count++
	}
	if count >= int(cmp.Or(s.spec.SessionsPerMac, 1)) {
		// It takes the place of another.
		return ""
	}
	switch {
	case s.spec.Sessions > 0 && load.sessions >= int(s.spec.Sessions):
		return "limit-sessions"
	case s.spec.SessionsPerPort > 0 && m.ofPlace[c.place] >= int(s.spec.SessionsPerPort):
		return "limit-port"
	case at != nil && at.sessions >= int(cmp.Or(s.spec.SessionsPerCircuit, 4096)):
		return "limit-circuit"
	case half >= min(int(cmp.Or(s.spec.HalfOpenPerCircuit, 512)), max(most/2, 1)), load.half.count >= most && half >= load.half.largest:
		// Otherwise makeRoom makes room.
		return "limit-half-open"
	}
	return ""
}

func (s *server) halfOpenLimit() int { return int(cmp.Or(s.spec.HalfOpen, 8192)) }

// refusesLine returns why a server does not take the line identification of a packet; "": it does, or ignores it.
func (s *server) refusesLine(d *discovery) string {
	switch {
	case d.lines == 0:
	case s.spec.RelayInformation == api.RelayInformation_REFUSE_INFORMATION:
		return "relay-information"
	case s.spec.RelayInformation == api.RelayInformation_TRUST_INFORMATION && d.lines > 1:
		return "relay-information-twice"
	}
	return ""
}

// offered returns the Service-Names of an answer; false: the host asks for one that there is not.
func (s *server) offered(asked [][]byte) (names [][]byte, ok bool) {
	var name []byte
	if len(asked) > 0 {
		name = asked[0]
	}
	if len(s.spec.ServiceNames) == 0 {
		return [][]byte{name}, true
	}
	// The name that was asked for goes first; one that is empty asks for all.
	names, ok = [][]byte{name}, len(name) == 0
	for _, each := range s.spec.ServiceNames {
		if each == string(name) {
			ok = true
		} else {
			names = append(names, []byte(each))
		}
	}
	return names, ok
}

func (s *server) delay(sessions int) (delay time.Duration, refuse bool) {
	for _, d := range s.delays {
		if sessions >= int(d.Sessions) {
			delay, refuse = time.Duration(d.Delay), d.Refuse
		}
	}
	return delay, refuse
}

// repeat adds the tags of a host's packet that an answer repeats (RFC 2516 appendix A).
func (d *discovery) repeat(b []byte) []byte {
	return append(append(b, d.hostUniq...), d.relay...)
}

func (m *Machine) receivePADI(c circuitKey, f *frame, d *discovery) {
	m.do(Count{Type: "padi"})
	s := m.serverOf(c)
	if s == nil {
		m.dropped("no-server")
		return
	}
	mac, known := m.macs[c.place]
	if !known {
		m.dropped("port-without-mac")
		return
	}
	if why := s.refusesLine(d); why != "" {
		m.dropped(why)
		return
	}
	names, ok := s.offered(d.services)
	if !ok {
		m.dropped("service-name")
		return
	}
	if why := m.mayServe(s, c, f.source); why != "" {
		m.dropped(why)
		return
	}
	if m.rejected.pauses(hostKey{c, f.source}, m.now) {
		m.dropped("rejected-before")
		return
	}
	delay, refuse := s.delay(m.loads[s.name].sessions)
	if refuse {
		m.dropped("refused-by-load")
		return
	}
	at := m.places[c.place]
	cookie := cookieOf(m.keys[0], at, c.outer, c.inner, f.source, slotOf(m.now))
	b := appendTag(nil, tagACName, []byte(s.acName))
	for _, name := range names {
		b = appendTag(b, tagServiceName, name)
	}
	b = appendTag(b, tagACCookie, cookie[:])
	b = d.repeat(b)
	if payload := m.payload(s, d.maxPayload); payload > 1492 {
		b = appendTag(b, tagMaxPayload, []byte{byte(payload >> 8), byte(payload)})
	}
	if len(b) > mostPayload {
		m.dropped("too-long")
		return
	}
	o := &offer{place: at, frame: build(f.source, mac, &f.tags, typeDiscovery, codePADO, 0, b)}
	switch {
	case delay == 0:
		m.offer(o)
	case m.offers.Len() >= mostOffers:
		m.dropped("too-many-offers")
	default:
		m.offers.Set(o, time.Unix(0, m.now).Add(delay))
	}
}

func (m *Machine) offer(o *offer) {
	m.do(Count{Type: "pado"}, SendFrame{o.place.dataplane, o.place.port, o.frame})
}

// payload is the largest PPP payload for a host with a PPP-Max-Payload tag (RFC 4638).
func (m *Machine) payload(s *server, said uint16) uint16 {
	if said <= 1492 {
		return 1492
	}
	return max(min(said, s.mru, uint16(min(m.room(s.spec.Port), 65535))), 1492)
}

func (m *Machine) refuse(c circuitKey, f *frame, d *discovery, tag uint16, why string) {
	m.dropped(why)
	var name []byte
	if len(d.services) > 0 {
		name = d.services[0]
	}
	b := d.repeat(appendTag(appendTag(nil, tagServiceName, name), tag, []byte(why)))
	if len(b) > mostPayload {
		return
	}
	at := m.places[c.place]
	m.do(Count{Type: "pads"}, SendFrame{at.dataplane, at.port, build(f.source, m.macs[c.place], &f.tags, typeDiscovery, codePADS, 0, b)})
}

func (m *Machine) receivePADR(c circuitKey, f *frame, d *discovery) {
	m.do(Count{Type: "padr"})
	s := m.serverOf(c)
	if s == nil {
		m.dropped("no-server")
		return
	}
	config := m.configOf(s, c.place)
	if config == nil {
		m.dropped("port-without-mac")
		return
	}
	at := m.places[c.place]
	if !m.cookieRight(d.cookie, at, c.outer, c.inner, f.source) {
		// A wrong cookie: the source address may be forged, so there is no answer.
		m.dropped("cookie")
		return
	}
	if why := s.refusesLine(d); why != "" {
		m.dropped(why)
		return
	}
	if _, ok := s.offered(d.services); !ok {
		m.refuse(c, f, d, tagServiceNameError, "service-name")
		return
	}
	host := hostKey{c, f.source}
	if m.rejected.pauses(host, m.now) {
		m.dropped("rejected-before")
		return
	}
	padr, count := d.hash(), 0
	for one := m.hosts[host]; one != nil; one = one.older {
		if count++; one.padr == padr && one.state == negotiating && len(one.pads) > 0 {
			// Our PADS was lost.
			m.do(Count{Type: "pads"}, SendFrame{at.dataplane, at.port, one.pads})
			return
		}
	}
	if why := m.mayServe(s, c, f.source); why != "" {
		m.refuse(c, f, d, tagACSystemError, why)
		return
	}
	id := m.newSessionID(c)
	if id == 0 {
		m.refuse(c, f, d, tagACSystemError, "limit-circuit")
		return
	}
	for ; count >= int(cmp.Or(s.spec.SessionsPerMac, 1)); count-- {
		// A host that lost power does not end its session.
		oldest := m.hosts[host]
		for oldest.older != nil {
			oldest = oldest.older
		}
		m.end(oldest, subscriber.LostCarrier, "its host dials in again", true)
	}
	m.makeRoom(s)
	payload := m.payload(s, d.maxPayload)
	one := &session{key: sessionKey{c, id}, mac: f.source, tags: f.tags, server: s, link: ppp.New(config, payload), id: m.newID(), padr: padr}
	var name []byte
	if len(d.services) > 0 {
		name = d.services[0]
	}
	one.request = &subscriber.Request{Protocol: protocolName, Profile: s.spec.Profile, ID: one.id, Service: string(name), PPPoESessionID: id,
		Line: subscriber.Line{Circuit: subscriber.Circuit{Dataplane: at.dataplane, Port: at.port, OuterVLAN: c.outer, InnerVLAN: c.inner}, MAC: f.source}}
	if s.spec.RelayInformation == api.RelayInformation_TRUST_INFORMATION {
		l := parseLine(d.line)
		one.request.Line.CircuitID, one.request.Line.RemoteID, one.request.Line.Attributes = l.circuitID, l.remoteID, l.attributes
	}
	m.enter(one, false)
	b := d.repeat(appendTag(appendTag(nil, tagServiceName, name), tagACName, []byte(s.acName)))
	if payload > 1492 {
		b = appendTag(b, tagMaxPayload, []byte{byte(payload >> 8), byte(payload)})
	}
	one.pads = build(f.source, m.macs[c.place], &f.tags, typeDiscovery, codePADS, id, b)
	m.do(Count{Type: "pads"}, SendFrame{at.dataplane, at.port, one.pads})
	m.actions = one.link.Open(m.now, m.actions[:0])
	m.carryOut(one)
}

func (m *Machine) newID() string {
	m.nextID++
	return fmt.Sprintf("%016x", m.nextID)
}

// newSessionID is the next one that is free on the circuit; 0: none is.
func (m *Machine) newSessionID(c circuitKey) uint16 {
	at := m.circuits[c]
	last := uint16(0)
	if at != nil {
		last = at.last
	} else {
		// A circuit whose last session ended is forgotten: the next one does not begin where that one did.
		m.begin = (m.begin + 1) % 4096
		last = m.begin
	}
	for range lastSession {
		if last++; last > lastSession {
			last = 1
		}
		if m.sessions[sessionKey{c, last}] == nil {
			return last
		}
	}
	return 0
}

func (m *Machine) sendPADT(key sessionKey, mac subscriber.MAC, tags *vlanTags) {
	at := m.places[key.place]
	m.do(Count{Type: "padt-sent"}, SendFrame{at.dataplane, at.port, build(mac, m.macs[key.place], tags, typeDiscovery, codePADT, key.id, nil)})
}

func (m *Machine) receivePADT(key sessionKey, f *frame) {
	m.do(Count{Type: "padt"})
	s := m.sessions[key]
	switch {
	case s == nil:
		m.dropped("unknown-session")
	case s.mac != f.source:
		m.dropped("mac")
	default:
		m.end(s, subscriber.UserRequest, "its host sent PADT", false)
	}
}
