// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/qosflow"
)

// sessionState is of a PDU session (TS 24.501 section 6.1.3.2).
type sessionState uint8

const (
	// To be set up as soon as the line is registered and connected.
	pending sessionState = iota
	establishing
	active
	releasing
)

const (
	t3580Time = 16 * time.Second // establishment
	t3582Time = 16 * time.Second // release
)

// Causes of 5GSM (TS 24.501 section 9.11.4.2).
const (
	causeRegularDeactivation = 36
	causeReactivation        = 39
	causeInvalidSession      = 43
	causeFilterSyntax        = 45
	causeQoSSemantic         = 83
	causeSMMandatory         = 96
	causeSMUnknownType       = 97
)

// Demand holds the requested parameters of a PDU session.
type Demand struct {
	// IPv4, IPv6 or both (nas.PDUSessionIPv4 ...).
	Type uint8
	DNN  string
	// Our end of the tunnel.
	Address netip.Addr
	TEID    uint32
	// Length of the prefix for the home, with IPv6; 0: the core is not asked for one.
	Delegated uint8
}

// Result holds the parameters of a PDU session from the core.
type Result struct {
	Type uint8
	// The IPv4 address; the zero address: none.
	IPv4 netip.Addr
	// Of the link-local address of IPv6.
	InterfaceID [8]byte
	// The prefix that the UPF advertises; the zero Prefix: the session has no IPv6.
	Prefix netip.Prefix
	// The prefix for the home; the zero Prefix: there is none.
	Delegated netip.Prefix
	Tunnel    *api.Gtpu
	// Of the session's meter in bit/s; 0: none.
	Up, Down uint64
	Flows    *api.FlowProfile
	// Those that Flows names.
	Meters []qosflow.Meter
	// Queues for flows with a guaranteed bit rate; nil: there is none.
	QueuesUp, QueuesDown *api.QosProfile
	nas.Options
}

// IPv6 is the address for a line that asks for one (DHCPv6 IA_NA): the interface identifier of the core in the prefix.
func (r *Result) IPv6() netip.Addr {
	if !r.Prefix.IsValid() {
		return netip.Addr{}
	}
	address := r.Prefix.Addr().As16()
	copy(address[8:], r.InterfaceID[:])
	return netip.AddrFrom16(address)
}

// Events receives the events of a PDU session.
type Events interface {
	// Up is called once, unless Ended is called before.
	Up(r Result)
	Changed(r Result)
	// Ended is the last that is called.
	Ended(err error)
}

// Session is a PDU session of a line.
type Session struct {
	ID     uint8
	line   *Line
	demand Demand
	events Events
	state  sessionState
	// Up was called: a subscriber uses it.
	told bool
	// Its subscriber session has ended: the PDU session is to be released.
	left bool
	// The core changed a parameter since the last report to the subscriber.
	dirty bool
	pti   uint8
	timer time.Time
	// How often the request was sent.
	repeats int
	request []byte
	// The core's answers, by NAS and by NGAP.
	accepted  bool
	tunnelled bool
	// The core gave a tunnel of another family than ours.
	otherFamily bool
	kind        uint8
	ipv4        netip.Addr
	iid         [8]byte
	prefix      netip.Prefix
	// The UPF advertised no prefix: the session goes on with IPv4 alone.
	without6   bool
	delegation delegation
	remote     netip.Addr
	teid       uint32
	ambr       nas.AMBR
	qos        nas.QoS
	flows      map[uint8]qosflow.Flow
	options    nas.Options
	// Error indications of the UPF are ignored until then.
	refusedUntil time.Time
	// The result said last that the subscriber's rate is shared with other sessions.
	togetherUp, togetherDown bool
}

var errNoIdentity = errors.New("the line has as many PDU sessions as there can be")

// Add asks for a PDU session.
func (l *Line) Add(d Demand, e Events) (*Session, error) {
	for id := uint8(1); id <= 15; id++ {
		if l.sessions[id] != nil {
			continue
		}
		s := &Session{ID: id, line: l, demand: d, events: e}
		l.sessions[id] = s
		l.pump()
		return s, nil
	}
	return nil, errNoIdentity
}

// newPTI is a procedure transaction identity that no other session uses: 1 to 254.
func (l *Line) newPTI() uint8 {
	for {
		l.lastPTI = l.lastPTI%254 + 1
		used := false
		for _, s := range l.sessions {
			used = used || s.pti == l.lastPTI
		}
		if !used {
			return l.lastPTI
		}
	}
}

// setTimer sets T3580 or T3582.
func (s *Session) setTimer(after time.Duration) {
	s.timer = s.line.world.Now().Add(after)
	s.line.alarm()
}

func (s *Session) stopTimer() {
	s.timer = time.Time{}
	s.line.alarm()
}

// remove: the session is over. The subscriber gets the reason.
func (s *Session) remove(err error) {
	if s.line.sessions[s.ID] != s {
		return
	}
	delete(s.line.sessions, s.ID)
	s.stopTimer()
	if err != nil && !s.told && s.line.state == registered {
		s.line.refuse(err)
	}
	if s.state != releasing {
		s.events.Ended(err)
	}
}

// refuse: the line has not got its PDU session. If it has no other one, it waits as after a rejected registration: T3511, or T3502 after some attempts.
func (l *Line) refuse(err error) {
	l.refusals++
	l.refused = err
	if l.refusedFor = t3511Time; l.refusals >= maxAttempts {
		l.refusedFor = t3502Time
	}
}

// again: the core has the session no more, and it is set up anew.
func (s *Session) again() {
	if s.state == releasing || s.left {
		s.state = releasing
		s.remove(nil)
		if s.left && len(s.line.sessions) == 0 {
			s.line.Deregister()
		}
		return
	}
	s.state, s.accepted, s.tunnelled, s.pti = pending, false, false, 0
	s.qos, s.flows = nas.QoS{}, nil
	s.stopTimer()
}

// establish sends PDU SESSION ESTABLISHMENT REQUEST (section 6.4.1).
func (s *Session) establish() {
	l := s.line
	s.pti, s.repeats = l.newPTI(), 0
	kind, ssc := s.demand.Type, uint8(1)
	request, err := nas.Encode(&nas.PDUSessionEstablishmentRequest{Session: nas.Session{PDUSessionID: s.ID, PTI: s.pti},
		IntegrityProtMaxDataRate: []byte{0xff, 0xff}, PDUSessType: &kind, SSCMode: &ssc, ExtProtConfig: nas.OptionsRequest()})
	if err != nil {
		s.remove(err)
		return
	}
	s.state, s.request = establishing, request
	s.repeat()
}

// repeat sends the request of the session's procedure.
func (s *Session) repeat() {
	l := s.line
	transport := &nas.ULNASTransport{PayloadContainerType: 1, PayloadContainer: s.request, PDUSessID: []byte{s.ID}}
	after := t3582Time
	if s.state == establishing {
		after = t3580Time
		initial := uint8(1)
		transport.RequestType = &initial
		if l.settings.Slice != nil {
			transport.SNSSAI = l.settings.Slice.Octets()
		}
		if s.demand.DNN != "" {
			name, err := nas.DNN(s.demand.DNN)
			if err != nil {
				s.remove(err)
				return
			}
			transport.DNN = name
		}
	}
	s.setTimer(after)
	if l.connected() {
		l.uplink(transport)
	}
}

// expire is the end of T3580 or T3582 (sections 6.4.1.6 and 6.4.3.5).
func (s *Session) expire() {
	s.repeats++
	switch {
	case s.state == active && s.soliciting():
		s.solicitAgain()
	case s.state == active:
		s.delegateAgain()
	case s.repeats < maxAttempts:
		s.repeat()
	case s.state == establishing:
		s.remove(errors.New("the core does not answer the request for a PDU session (T3580)"))
		s.line.unused()
	case s.state == releasing:
		s.remove(nil)
		s.line.unused()
	}
}

// Leave releases the PDU session, because its subscriber session has ended. The record has that first: after a restart the line goes on with the release.
func (s *Session) Leave() {
	s.left = true
	s.line.world.Save(s.line)
	s.Release()
}

// noSubscriber receives the events of a PDU session whose subscriber session ended before a restart.
type noSubscriber struct{}

func (noSubscriber) Up(Result)      {}
func (noSubscriber) Changed(Result) {}
func (noSubscriber) Ended(error)    {}

// Release gives a PDU session back. The last one ends the registration.
func (s *Session) Release() {
	l := s.line
	if l.sessions[s.ID] != s || s.state == releasing {
		return
	}
	before := s.state
	s.state = releasing
	if before != active || len(l.sessions) == 1 || !l.connected() || l.state != registered {
		s.remove(nil)
		l.unused()
		return
	}
	s.pti, s.repeats = l.newPTI(), 0
	request, err := nas.Encode(&nas.PDUSessionReleaseRequest{Session: nas.Session{PDUSessionID: s.ID, PTI: s.pti}, FiveGSMCause: []byte{causeRegularDeactivation}})
	if err != nil {
		s.remove(err)
		return
	}
	s.request = request
	s.repeat()
}

// unused: a line without PDU sessions is deregistered.
func (l *Line) unused() {
	if len(l.sessions) == 0 {
		l.Deregister()
		return
	}
	l.refused, l.refusedFor = nil, 0
	l.share()
	l.world.Save(l)
}

// sessionMessage takes DL NAS TRANSPORT (section 5.4.5.3).
func (l *Line) sessionMessage(m *nas.DLNASTransport) {
	if m.PayloadContainerType != 1 || l.state == leaving || l.state == over {
		return
	}
	// Our own message comes back: the AMF could not forward it.
	if m.FiveGMMCause != nil && len(m.PDUSessID) == 1 {
		if s := l.sessions[m.PDUSessID[0]]; s != nil && s.state != active {
			s.remove(fmt.Errorf("the core does not forward the request for a PDU session: %s", nas.MMCause(m.FiveGMMCause[0])))
			l.unused()
		}
		return
	}
	message, err := nas.Decode(m.PayloadContainer)
	if err != nil {
		if len(m.PayloadContainer) >= 3 && m.PayloadContainer[0] == nas.SessionManagement {
			cause := uint8(causeSMMandatory)
			if errors.Is(err, nas.ErrUnknownType) {
				cause = causeSMUnknownType
			}
			of := nas.Session{PDUSessionID: m.PayloadContainer[1], PTI: m.PayloadContainer[2]}
			l.answer(of, &nas.SessionStatus{Session: of, FiveGSMCause: []byte{cause}})
		}
		return
	}
	switch s := message.(type) {
	case *nas.PDUSessionEstablishmentAccept:
		l.accepted(s)
	case *nas.PDUSessionEstablishmentReject:
		if one := l.sessions[s.PDUSessionID]; one != nil && one.state == establishing && one.pti == s.PTI {
			one.remove(fmt.Errorf("the core rejects the PDU session: %s", nas.SMCause(s.FiveGSMCause[0])))
			// Section 6.4.1.4.2.
			l.refusedFor = max(l.refusedFor, nas.Timer3(s.BackOffTimer))
			l.unused()
		}
	case *nas.PDUSessionModificationCommand:
		l.modify(s)
	case *nas.PDUSessionReleaseCommand:
		l.released(s)
	case *nas.PDUSessionReleaseReject:
		if one := l.sessions[s.PDUSessionID]; one != nil && one.state == releasing {
			one.remove(nil)
			l.unused()
		}
	case *nas.SessionStatus:
		// The core does not have the session, or not the transaction (section 6.5.3).
		if one := l.sessions[s.PDUSessionID]; one != nil && s.FiveGSMCause[0] == causeInvalidSession && one.state != pending {
			one.remove(errors.New("the core does not have the PDU session"))
			l.unused()
		}
	case *nas.PDUSessionAuthenticationCommand:
		// The line has no credentials for a data network (section 6.3.1).
		l.answer(s.Session, &nas.PDUSessionAuthenticationComplete{Session: s.Session, EAPMsg: refusal(s.EAPMsg)})
	}
}

// refusal is EAP's legacy NAK without another method (RFC 3748 section 5.3.1).
func refusal(request []byte) []byte {
	identifier := byte(0)
	if len(request) > 1 {
		identifier = request[1]
	}
	return []byte{2, identifier, 0, 6, 3, 0}
}

// answer sends a 5GSM message.
func (l *Line) answer(of nas.Session, message any) {
	octets, err := nas.Encode(message)
	if err == nil {
		l.uplink(&nas.ULNASTransport{PayloadContainerType: 1, PayloadContainer: octets, PDUSessID: []byte{of.PDUSessionID}})
	}
}

func (l *Line) accepted(m *nas.PDUSessionEstablishmentAccept) {
	s := l.sessions[m.PDUSessionID]
	if s == nil || s.state != establishing || s.pti != m.PTI {
		// A repeated answer is none of an unknown session.
		if s == nil || s.state != active {
			l.answer(m.Session, &nas.SessionStatus{Session: m.Session, FiveGSMCause: []byte{causeInvalidSession}})
		}
		return
	}
	s.stopTimer()
	err := s.accept(m)
	if err != nil {
		s.remove(err)
		l.unused()
		return
	}
	s.state, s.pti, s.request = active, 0, nil
	s.solicit()
	s.delegate()
	s.report()
	l.share()
	l.world.Save(l)
}

func (s *Session) accept(m *nas.PDUSessionEstablishmentAccept) error {
	address, err := nas.PDUAddressOf(m.PDUAddress)
	if err != nil {
		return errors.New("the core gives no address")
	}
	var qos nas.QoS
	if err := qos.ApplyRules(m.QoSRules); err != nil {
		return err
	}
	if err := qos.ApplyFlows(m.QoSFlowDesc); err != nil {
		return err
	}
	kind := m.PDUSessType & 7
	four := kind == nas.PDUSessionIPv4 || kind == nas.PDUSessionIPv4v6
	six := kind == nas.PDUSessionIPv6 || kind == nas.PDUSessionIPv4v6
	wantsFour, wantsSix := s.demand.Type == nas.PDUSessionIPv4 || s.demand.Type == nas.PDUSessionIPv4v6, s.demand.Type == nas.PDUSessionIPv6 || s.demand.Type == nas.PDUSessionIPv4v6
	switch {
	case !four && !six, four && !wantsFour, six && !wantsSix:
		return fmt.Errorf("the core gives a PDU session of type %d", kind)
	case four && !address.IPv4.IsValid(), six && len(address.InterfaceIdentifier) != 8:
		return errors.New("the core gives no address")
	case !s.tunnelled && s.otherFamily:
		return fmt.Errorf("the UPF's address is not of the family of %s, the Agf's coreAddress", s.demand.Address)
	case !s.tunnelled:
		return errors.New("the core gives no tunnel")
	case s.told && (address.IPv4 != s.ipv4 || kind != s.kind):
		return errors.New("the core gives the PDU session another address")
	}
	s.accepted, s.dirty, s.kind, s.ipv4, s.qos = true, true, kind, address.IPv4, qos
	s.iid = [8]byte{}
	if six {
		s.iid = [8]byte(address.InterfaceIdentifier)
	}
	s.ambr, _ = nas.AMBROf(m.SessAMBR)
	s.options = nas.OptionsOf(m.ExtProtConfig)
	return nil
}

// report tells the subscriber what the session has.
func (s *Session) report() {
	if s.state != active || !s.tunnelled || !s.dirty || s.soliciting() || s.delegating() {
		return
	}
	s.dirty = false
	r := s.result()
	if s.told {
		s.events.Changed(r)
		return
	}
	s.told = true
	s.line.refused, s.line.refusedFor, s.line.refusals = nil, 0, 0
	s.events.Up(r)
}

// defaultQFI is the flow of the default rule, for packets that match no rule; without one, the first flow.
func (s *Session) defaultQFI() (qfi uint8) {
	if all := qosflow.Sorted(s.flows); len(all) > 0 {
		qfi = all[0].QFI
	}
	for _, rule := range s.qos.Rules {
		if rule.Default {
			qfi = rule.QFI
		}
	}
	return qfi
}

func (s *Session) result() Result {
	l := s.line
	reflective := false
	for _, f := range s.flows {
		reflective = reflective || f.Reflective
	}
	s.togetherUp, s.togetherDown = l.together()
	of := qosflow.Limit(&qosflow.Aggregates{Session: s.ambr, Subscriber: l.ambr, TogetherUp: s.togetherUp, TogetherDown: s.togetherDown,
		SessionID: l.settings.Line + "\x00" + strconv.Itoa(int(s.ID)), SubscriberID: l.settings.Line, Name: nameOf}, s.flows)
	r := Result{Type: s.kind, IPv4: s.ipv4, InterfaceID: s.iid, Prefix: s.prefix, Delegated: s.delegation.prefix, Options: s.options, Up: of.Up, Down: of.Down, Meters: of.Meters,
		QueuesUp: qosflow.Queues(s.flows, l.settings.Marks, of.Aggregate.Up, true), QueuesDown: qosflow.Queues(s.flows, l.settings.Marks, of.Aggregate.Down, false)}
	if profile := qosflow.Profile(&s.qos, s.flows, l.settings.Marks, &of); qosflow.Needed(profile, &of) {
		r.Flows = profile
	}
	r.Tunnel = &api.Gtpu{LocalAddress: s.demand.Address.String(), LocalTeid: s.demand.TEID, RemoteAddress: s.remote.String(), RemoteTeid: s.teid,
		PduSessionContainer: true, Qfi: uint32(s.defaultQFI()), ReflectiveQos: reflective}
	return r
}

// together tells whether the subscriber's rate limits the line's PDU sessions together.
func (l *Line) together() (up, down bool) {
	var all []nas.AMBR
	for _, s := range l.sessions {
		if s.state == active {
			all = append(all, s.ambr)
		}
	}
	return qosflow.Together(l.ambr, all)
}

// share reports to subscribers of the line that the subscriber's rate is shared from now on, or is not.
func (l *Line) share() {
	up, down := l.together()
	for _, s := range l.sessions {
		if s.state == active && s.told && (s.togetherUp != up || s.togetherDown != down) {
			s.dirty = true
			s.report()
		}
	}
}

// modify takes PDU SESSION MODIFICATION COMMAND (section 6.3.2).
func (l *Line) modify(m *nas.PDUSessionModificationCommand) {
	s := l.sessions[m.PDUSessionID]
	if s == nil || s.state != active {
		l.answer(m.Session, &nas.PDUSessionModificationCommandReject{Session: m.Session, FiveGSMCause: []byte{causeInvalidSession}})
		return
	}
	qos := s.qos.Clone()
	err := qos.ApplyRules(m.QoSRules)
	if err == nil {
		err = qos.ApplyFlows(m.QoSFlowDesc)
	}
	if err != nil {
		cause := uint8(causeQoSSemantic)
		if errors.Is(err, nas.ErrQoSSyntax) {
			cause = causeFilterSyntax
		}
		l.answer(m.Session, &nas.PDUSessionModificationCommandReject{Session: m.Session, FiveGSMCause: []byte{cause}})
		return
	}
	s.qos, s.dirty = qos, true
	if ambr, err := nas.AMBROf(m.SessAMBR); err == nil {
		s.ambr = ambr
	}
	if len(m.ExtProtConfig) > 1 {
		s.options = nas.OptionsOf(m.ExtProtConfig)
	}
	l.answer(m.Session, &nas.PDUSessionModificationComplete{Session: m.Session})
	s.report()
	l.share()
	l.world.Save(l)
}

// released takes PDU SESSION RELEASE COMMAND (section 6.3.3).
func (l *Line) released(m *nas.PDUSessionReleaseCommand) {
	s := l.sessions[m.PDUSessionID]
	l.answer(m.Session, &nas.PDUSessionReleaseComplete{Session: m.Session})
	if s == nil || s.state == pending {
		return
	}
	cause := m.FiveGSMCause[0]
	if cause == causeReactivation && s.state == active {
		s.again()
		l.pump()
		return
	}
	s.remove(fmt.Errorf("the core releases the PDU session: %s", nas.SMCause(cause)))
	l.unused()
}
