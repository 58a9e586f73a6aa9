// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/eap5g"
	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
	"sluice.dev/sluice/agent/tcp"
)

const (
	// How long the core may take to answer a UE that registers, and to release a context.
	answerTime  = 15 * time.Second
	releaseTime = 10 * time.Second
	// NAS messages that wait for the UE's TCP connection, and messages that wait for the AMF.
	mostNAS, mostSuspended = 64, 64
	// The child SA of NAS.
	signalling = "signalling"
)

// ue is a UE, from its first IKE_AUTH request until its IKE SA and its context at the AMF are gone. The service's goroutine alone uses it.
type ue struct {
	s    *serving
	in   *instance
	name string
	// Of its IKE SA. up: the UE is authenticated, and has the signalling SA.
	peer         ike.Peer
	conversation uint64
	up, gone     bool
	// When the UE closed the signalling SA, or lost it.
	cut time.Time
	// Its initial message was rerouted.
	rerouted bool

	// EAP-5G: the callback that waits for our answer, nil while the UE is to answer; the identifier of our last
	// request.
	answer     func(ike.EAPAnswer)
	identifier uint8
	timer      *time.Timer

	// Of a UE that is not authenticated: its source, when it began, its place among such UEs, and what sends its initial message, which has its turn.
	source    *source
	begun     time.Time
	halfOpen  *list.Element
	initial   func()
	forwarded bool

	core *n2.Context
	// It had a context at an AMF.
	asked bool
	// The core rejects it in a NAS message without protection: for the log alone.
	rejected error
	// K_N3IWF, and the request that brought it; it is answered when the UE is up.
	key     []byte
	context *ngap.InitialContextSetupRequest

	inner []netip.Addr
	// NAS messages that wait for the UE, and those that went into its TCP connection.
	waiting, sent [][]byte
	conn          *tcp.Conn
	reading       envelopes

	sessions map[uint8]*pduSession
	// The volume of released sessions.
	past volume
	// UE-AMBR, and the names of its meters.
	ambr   rates
	meters map[string]bool
	// When it last sent or received something, and when its counters were read.
	active, looked time.Time
	// Children that were ever made: their names are not used twice.
	children int
	since    time.Time
	// The core releases the UE's context, or the UE is gone.
	ending *ending
	// The core requested a report of each movement of the UE.
	reports *ngap.LocationReportingControl

	// The RAN UE NGAP ID of its newest context.
	ran int64
	// The association with the AMF is lost, which may keep the context; and messages that wait for it.
	suspended bool
	outbox    []any
	// The context is set up: a new agent takes the UE over. Its newest records, and which state of its TCP connection they have.
	settled bool
	records durable.Pending
	mark    nasMark
	// Of a UE that was taken over: why it ends, and that its IKE SA is gone already; child SAs that belong to nothing; PDU sessions whose setup is not
	// answered.
	closing     string
	severed     bool
	superfluous []string
	unanswered  []uint8
}

// link takes the events of the UE's context at the AMF. It is called under the lock of the N2 service.
type link struct {
	u     *ue
	cause ngap.RRCEstablishmentCause
}

// Cause implements n2.Caused.
func (l link) Cause() ngap.RRCEstablishmentCause { return l.cause }

// Complete implements n2.Completing.
func (l link) Complete(m *ngap.UEContextReleaseComplete, done func()) {
	l.u.s.post(func() {
		l.u.complete(m, func() {
			if pool := l.u.s.pool; pool != nil {
				l.u.s.sender.post(l.u.records, func() { pool.Do(done) })
			}
		})
	})
}

// Receive implements n2.UE.
func (l link) Receive(message any) { l.u.s.post(func() { l.u.receive(message) }) }

// Lost implements n2.UE.
func (l link) Lost(reason string) { l.u.s.post(func() { l.u.lost(reason) }) }

// Suspended implements n2.Retained.
func (l link) Suspended() { l.u.s.post(l.u.suspend) }

// Resumed implements n2.Retained.
func (l link) Resumed() { l.u.s.post(l.u.resume) }

// suspend: the association with the AMF is lost, which may keep the context. A UE that is not connected yet does not wait for it.
func (u *ue) suspend() {
	switch {
	case u.core == nil:
	case u.up || u.gone:
		u.suspended = true
	default:
		u.s.pool.Do(u.core.Close)
		u.core = nil
		u.proceed()
	}
}

// resume: the AMF has kept the context.
func (u *ue) resume() {
	waiting := u.outbox
	u.suspended, u.outbox = false, nil
	for _, m := range waiting {
		u.dispatch(m)
	}
}

// dispatch sends a message to the AMF, after the records that are written.
func (u *ue) dispatch(m any) {
	switch core, pool := u.core, u.s.pool; {
	case core == nil:
	case !u.suspended:
		u.s.sender.post(u.records, func() { pool.Do(func() { core.Send(m) }) })
	case len(u.outbox) < mostSuspended:
		u.outbox = append(u.outbox, m)
	default:
		u.s.Log.Warn("a message does not wait for the AMF: too many do", "name", u.name)
	}
}

// send sends a message that has the identifiers of the UE.
func (u *ue) send(of func(ngap.AMFUENGAPID, ngap.RANUENGAPID) any) {
	if u.core == nil || u.s.pool == nil {
		return
	}
	var m any
	u.s.pool.Do(func() { m = of(u.core.IDs()) })
	u.dispatch(m)
}

// location is where the UE is (TS 38.413 section 9.3.1.16).
func (u *ue) location() ngap.UserLocationInformation {
	a, port := u.peer.Remote.Addr().Unmap(), u.peer.Remote.Port()
	l := &ngap.UserLocationInformationN3IWFWithPortNumber{IPAddress: per.BitString{Octets: a.AsSlice(), Count: a.BitLen()}, PortNumber: []byte{byte(port >> 8), byte(port)}}
	return ngap.UserLocationInformation{UserLocationInformationN3IWFWithPortNumber: l}
}

// ---- EAP-5G

// eap takes a packet of a UE that authenticates.
func (u *ue) eap(step ike.EAPStep, done func(ike.EAPAnswer)) {
	u.peer = step.Peer
	if step.Packet == nil {
		u.identifier = 1
		done(ike.EAPAnswer{Packet: eap5g.Request(u.identifier, eap5g.Start, nil)})
		return
	}
	if u.gone {
		done(ike.EAPAnswer{Packet: eap5g.End(u.identifier, eap.Failure), Err: errLate})
		return
	}
	u.answer = done
	r, err := eap5g.Parse(step.Packet)
	switch {
	case err != nil:
		u.refuse(err, nil)
	case r.Identifier != u.identifier:
		u.refuse(fmt.Errorf("%w: identifier %d instead of %d", eap5g.ErrMessage, r.Identifier, u.identifier), nil)
	case r.ID == eap5g.Stop:
		u.refuse(errors.New("the UE stops"), nil)
	case r.ID != eap5g.NAS:
		u.refuse(fmt.Errorf("%w: message %d", eap5g.ErrMessage, r.ID), nil)
	case u.core == nil && u.asked:
		u.refuse(errors.New("the core refuses the UE"), nil)
	case u.core == nil:
		u.register(r)
	default:
		u.uplink(r.Message)
		u.proceed()
	}
}

// register opens a context at an AMF, which the AN-parameters choose.
func (u *ue) register(r eap5g.Response) {
	u.asked = true
	slices := make([]*api.Slice, 0, len(r.Parameters.Slices)+1)
	for _, s := range r.Parameters.Slices {
		one := &api.Slice{Sst: uint32(s.SST)}
		if len(s.SD) == 3 {
			one.Sd = fmt.Sprintf("%02x%02x%02x", s.SD[0], s.SD[1], s.SD[2])
		}
		slices = append(slices, one)
	}
	now := time.Now()
	u.await(answerTime, func() { u.discard(errPace) })
	u.initial = func() {
		u.stopTimer()
		// An AMF that serves one of the slices, else any: the core decides.
		u.openContext(r, append(slices, nil), time.Now().Add(answerTime))
	}
	u.s.registering.wait(u)
	u.s.forward(now)
}

// openContext opens the context. Until a time it waits for an AMF whose NG setup is on its way.
func (u *ue) openContext(r eap5g.Response, slices []*api.Slice, until time.Time) {
	err := errors.New("there is no N2 interface")
	if u.s.pool != nil {
		u.s.pool.Do(func() { err = u.initialMessage(r, slices) })
	}
	switch {
	case err == nil:
		u.await(answerTime, func() { u.refuse(errors.New("the core does not answer"), nil) })
	case errors.Is(err, n2.ErrStarting) && time.Now().Before(until):
		u.await(tickTime, func() { u.openContext(r, slices, until) })
	default:
		u.refuse(err, backOffNotifies(u.in.backOff()))
	}
}

// initialMessage chooses the AMF, and sends it INITIAL UE MESSAGE. Called under the lock of the N2 service.
func (u *ue) initialMessage(r eap5g.Response, slices []*api.Slice) (err error) {
	var core *n2.Context
	overloaded := false
	for _, s := range slices {
		// The core does not choose among slices for which it is overloaded.
		if s == nil && overloaded {
			break
		}
		if core, err = u.s.pool.Open(u.in.spec.Node, s, r.Parameters.GUAMI, link{u, r.Parameters.Cause}); err == nil {
			break
		}
		overloaded = overloaded || errors.Is(err, n2.ErrOverloaded)
	}
	if err != nil {
		return err
	}
	u.core = core
	plmn := core.PLMN()
	if r.Parameters.PLMN != "" {
		plmn = r.Parameters.PLMN
	}
	octets, plmnErr := plmn.Octets()
	if plmnErr != nil {
		octets = nil
	}
	requested := ngap.UEContextRequestRequested
	_, ran := core.IDs()
	u.ran = int64(ran)
	core.Send(&ngap.InitialUEMessage{RANUENGAPID: ran, NASPDU: r.Message, UserLocationInformation: u.location(), RRCEstablishmentCause: r.Parameters.Cause,
		UEContextRequest: &requested, SelectedPLMNIdentity: octets})
	return nil
}

// await calls f unless something happens before.
func (u *ue) await(d time.Duration, f func()) {
	if u.timer != nil {
		u.timer.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		u.s.post(func() {
			if u.timer == timer {
				f()
			}
		})
	})
	u.timer = timer
}

func (u *ue) stopTimer() {
	if u.timer != nil {
		u.timer.Stop()
		u.timer = nil
	}
}

// refuse ends the authentication: EAP-Failure, when the UE waits for us.
func (u *ue) refuse(err error, notify []*message.Notify) {
	if u.answer == nil || u.gone {
		return
	}
	answer := u.answer
	u.answer = nil
	u.stopTimer()
	if u.core == nil {
		// Any host can cause it.
		u.s.countRefusal(u.in.name, u.peer.Remote, cmp.Or(u.rejected, err))
	} else {
		u.s.refused.WithLabelValues(reasonOf(err)).Inc()
		amf := ""
		if u.s.pool != nil {
			u.s.pool.Do(func() { amf = u.core.AMF() })
		}
		u.s.Log.Info("a UE is refused", "name", u.in.name, "remote", u.peer.Remote, "amf", amf, "error", cmp.Or(u.rejected, err))
	}
	u.note(cmp.Or(u.rejected, err))
	answer(ike.EAPAnswer{Packet: eap5g.End(u.identifier, eap.Failure), Err: err, Notify: notify})
	u.release(ngap.CauseRadioNetworkFailureInRadioInterfaceProcedure)
}

// note keeps why the UE is refused.
func (u *ue) note(err error) {
	one := &refusal{name: u.name, n3iwf: u.in.name, remote: u.peer.Remote, at: time.Now(), why: err}
	if u.core != nil && u.s.pool != nil {
		u.s.pool.Do(func() { one.amf = u.core.AMF() })
	}
	u.s.refusedUEs.add(one)
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, eap5g.ErrMessage), errors.Is(err, eap.ErrPacket):
		return "malformed"
	case errors.Is(err, n2.ErrNoAMF), errors.Is(err, errTooMany):
		return "congestion"
	case errors.Is(err, errHalfOpen):
		return "half-open"
	case errors.Is(err, errDisplaced):
		return "displaced"
	case errors.Is(err, errLate):
		return "late"
	case errors.Is(err, errPace):
		return "pace"
	}
	return "refused"
}

// proceed answers the UE that authenticates, if there is something to say: a NAS message of the core, or that it is authenticated.
func (u *ue) proceed() {
	if u.answer == nil {
		return
	}
	switch {
	case u.key != nil:
		answer := u.answer
		u.answer = nil
		// The UE authenticates the IKE SA with the key, or goes.
		u.await(answerTime, func() { u.down("the UE does not finish its authentication") })
		answer(ike.EAPAnswer{Packet: eap5g.End(u.identifier, eap.Success), Success: true, MSK: u.key, Username: u.name})
	case len(u.waiting) > 0:
		answer, nasMessage := u.answer, u.waiting[0]
		u.rejected = rejectionOf(nasMessage)
		u.answer, u.waiting = nil, u.waiting[1:]
		u.stopTimer()
		u.identifier++
		answer(ike.EAPAnswer{Packet: eap5g.Request(u.identifier, eap5g.NAS, nasMessage)})
	case u.core == nil:
		u.refuse(errors.New("the core refuses the UE"), nil)
	default:
		u.await(answerTime, func() { u.refuse(errors.New("the core does not answer"), nil) })
	}
}

// rejectionOf is why the core rejects a UE, if a NAS message is not protected and says so.
func rejectionOf(message []byte) error {
	switch m, _ := nas.Decode(message); m := m.(type) {
	case *nas.RegistrationReject:
		if len(m.FiveGMMCause) == 1 {
			return fmt.Errorf("the core sends REGISTRATION REJECT: %s", nas.MMCause(m.FiveGMMCause[0]))
		}
	case *nas.ServiceReject:
		if len(m.FiveGMMCause) == 1 {
			return fmt.Errorf("the core sends SERVICE REJECT: %s", nas.MMCause(m.FiveGMMCause[0]))
		}
	case *nas.AuthenticationReject:
		return errors.New("the core sends AUTHENTICATION REJECT")
	}
	return nil
}

// finish gives the UE that is authenticated its addresses, and the signalling SA.
func (u *ue) finish(what ike.FinishAuth, finished func(ike.Finished)) {
	u.peer = what.Peer
	done := func(f ike.Finished) {
		if f.Err != nil {
			u.note(f.Err)
		}
		finished(f)
	}
	four, six := false, false
	for _, a := range what.Attributes {
		four = four || a.Type == message.InternalIP4Address
		six = six || a.Type == message.InternalIP6Address
	}
	if !four && !six {
		done(ike.Finished{Err: errors.New("the UE asks for no address")})
		return
	}
	// Without an address of the family of NAS, the UE would reach none.
	if nas6 := u.in.nas.Is6(); !(nas6 && six) && !(!nas6 && four) {
		u.s.refused.WithLabelValues("refused").Inc()
		done(ike.Finished{Err: fmt.Errorf("the UE asks for no address of the family of nasAddress %s of N3iwf/%s", u.in.nas, u.in.name),
			Notify: []*message.Notify{{Kind: message.InternalAddressFailure, Data: []byte{}}}})
		return
	}
	for _, family := range []struct{ asked, is6 bool }{{four, false}, {six, true}} {
		if !family.asked {
			continue
		}
		a, ok := u.in.take(u, family.is6)
		if ok {
			u.inner = append(u.inner, a)
		} else if family.is6 == u.in.nas.Is6() {
			u.s.refused.WithLabelValues("congestion").Inc()
			done(ike.Finished{Err: fmt.Errorf("%w: all addresses of innerPools of N3iwf/%s are given: add a network", errTooMany, u.in.name), Notify: backOffNotifies(u.in.backOff())})
			return
		}
	}
	u.reachable()
	done(ike.Finished{Addresses: u.inner, Children: []*ike.Child{u.in.child(signalling, u.name, u.in.nas)},
		Notify: []*message.Notify{addressNotify(notifyNAS4, notifyNAS6, u.in.nas), portNotify(u.in.nasPort)}})
}

// reachable makes the objects by which packets reach the UE in its signalling SA.
func (u *ue) reachable() {
	u.s.put("IpsecTunnel", u.name, &api.IpsecTunnel{Vrf: u.in.spec.Vrf}, nil)
	u.s.put("Interface", u.name, &api.Interface{Vrf: u.in.spec.InnerVrf, IpsecTunnel: u.name}, nil)
	for _, a := range u.inner {
		u.s.put("Route", u.routeName(a), &api.Route{Vrf: u.in.spec.InnerVrf, Prefix: netip.PrefixFrom(a, a.BitLen()).String(),
			NextHops: []*api.NextHop{{Interface: u.name}}}, nil)
	}
}

func (u *ue) routeName(a netip.Addr) string {
	if a.Is4() {
		return u.name + "-4"
	}
	return u.name + "-6"
}

// established: the IKE SA is there. The AMF gets the answer to INITIAL CONTEXT SETUP REQUEST (TS 23.502 section 4.12.2.2 step 11).
func (u *ue) established(peer ike.Peer) {
	if u.gone {
		u.end("the UE took too long")
		return
	}
	u.stopTimer()
	now := time.Now()
	u.peer, u.up, u.active, u.looked, u.since = peer, true, now, now, now
	u.s.refusedUEs.connected(peer.Remote)
	u.s.Log.Info("a UE is connected", "remote", peer.Remote, "name", u.name)
	if u.core == nil {
		u.end("the AMF has no context of the UE any more")
		return
	}
	u.setUpContext()
}

func (u *ue) setUpContext() {
	m := u.context
	if m == nil || !u.up {
		return
	}
	u.context = nil
	var items []setupItem
	for _, i := range m.PDUSessionResourceSetupListCxtReq {
		items = append(items, setupItem{uint8(i.PDUSessionID), i.PDUSessionResourceSetupRequestTransfer, i.NASPDU})
	}
	u.setUp(items, m.NASPDU, func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID, results []setupResult) any {
		return &ngap.InitialContextSetupResponse{AMFUENGAPID: amf, RANUENGAPID: ran,
			PDUSessionResourceSetupListCxtRes: listOf(results, true, func(id ngap.PDUSessionID, transfer []byte) ngap.PDUSessionResourceSetupItemCxtRes {
				return ngap.PDUSessionResourceSetupItemCxtRes{PDUSessionID: id, PDUSessionResourceSetupResponseTransfer: transfer}
			}),
			PDUSessionResourceFailedToSetupListCxtRes: listOf(results, false, func(id ngap.PDUSessionID, transfer []byte) ngap.PDUSessionResourceFailedToSetupItemCxtRes {
				return ngap.PDUSessionResourceFailedToSetupItemCxtRes{PDUSessionID: id, PDUSessionResourceSetupUnsuccessfulTransfer: transfer}
			})}
	})
}

// ---- NAS

// uplink sends a NAS message of the UE to its AMF.
func (u *ue) uplink(octets []byte) {
	u.s.messages.WithLabelValues("uplink").Inc()
	u.active = time.Now()
	u.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
		return &ngap.UplinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: octets, UserLocationInformation: u.location()}
	})
}

// downlink brings a NAS message to the UE: by EAP-5G until it is authenticated, then by TCP.
func (u *ue) downlink(octets []byte) {
	if len(octets) == 0 {
		return
	}
	if u.gone {
		u.undelivered(octets, ngap.CauseRadioNetworkRadioConnectionWithUeLost)
		return
	}
	longest := maxEnvelope
	if !u.up && u.key == nil {
		longest = maxEAPNAS
	}
	if len(octets) > longest {
		u.s.refused.WithLabelValues("too-long").Inc()
		u.s.Log.Warn("the core sends a NAS message that is too long for a UE", "name", u.name, "bytes", len(octets))
		u.undelivered(octets, ngap.CauseRadioNetworkUnspecified)
		return
	}
	u.s.messages.WithLabelValues("downlink").Inc()
	u.active = time.Now()
	u.waiting = append(u.waiting, octets)
	if len(u.waiting) > mostNAS {
		u.s.Log.Warn("a UE takes no NAS messages", "name", u.name)
		u.end("the UE takes no NAS messages")
		return
	}
	if u.up {
		u.flush()
	} else if u.key == nil {
		u.proceed()
	}
	u.saveNAS()
}

// flush sends messages that wait for the TCP connection.
func (u *ue) flush() {
	if u.conn == nil || !u.conn.Established() {
		return
	}
	now := time.Now()
	u.acknowledge()
	var send []tcp.Segment
	for _, m := range u.waiting {
		send = append(send, u.conn.Send(envelope(m), now)...)
	}
	u.sent, u.waiting = append(u.sent, u.waiting...), nil
	u.transmit(send)
}

// acknowledge forgets messages that the UE has.
func (u *ue) acknowledge() {
	has := len(u.sent)
	for left := u.conn.Unacknowledged(); has > 0 && left > 0; {
		has--
		left -= len(envelope(u.sent[has]))
	}
	u.sent = u.sent[has:]
}

// disconnect is the end of the TCP connection. The next one carries what the UE did not acknowledge; what it has all the same, it drops as a replay.
func (u *ue) disconnect() {
	if u.conn == nil {
		return
	}
	u.acknowledge()
	u.waiting = append(u.sent, u.waiting...)
	u.conn, u.sent = nil, nil
}

// undelivered tells the AMF that a NAS message does not arrive (TS 38.413 section 8.6.4).
func (u *ue) undelivered(octets []byte, cause ngap.CauseRadioNetwork) {
	u.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
		return &ngap.NASNonDeliveryIndication{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: octets, Cause: ngap.Cause{RadioNetwork: &cause}}
	})
}

// segment takes a TCP segment from the UE.
func (u *ue) segment(seg tcp.Segment) {
	now := time.Now()
	if u.conn == nil || !u.conn.IsOf(seg) {
		if seg.Flags&(tcp.SYN|tcp.ACK|tcp.RST) != tcp.SYN {
			if seg.Flags&tcp.RST == 0 {
				reset := tcp.Segment{Source: seg.Destination, Destination: seg.Source, Sequence: seg.Ack, Ack: seg.Sequence + uint32(len(seg.Payload)), Flags: tcp.RST | tcp.ACK}
				u.transmit([]tcp.Segment{reset})
			}
			return
		}
		// The UE's newest connection counts.
		u.disconnect()
		conn, send := tcp.Accept(seg, u.s.random(), now)
		u.conn, u.reading = conn, envelopes{}
		u.transmit(send)
		return
	}
	data, send := u.conn.Receive(seg, now)
	messages, err := u.reading.take(data)
	for _, m := range messages {
		u.uplink(m)
	}
	// The UE repeats what is not acknowledged: nothing is, before its messages are on their way.
	u.transmit(send)
	if err != nil {
		u.s.refused.WithLabelValues("envelope").Inc()
		u.conn.Close()
		u.transmit(u.conn.Tick(now))
	}
	if u.conn != nil && u.conn.Err() != nil && !errors.Is(u.conn.Err(), tcp.ErrClosed) {
		u.disconnect()
		u.saveNAS()
		return
	}
	u.flush()
	u.saveNAS()
}

// transmit sends segments, after the record of the connection that they are of.
func (u *ue) transmit(segments []tcp.Segment) {
	if len(segments) == 0 {
		return
	}
	u.saveNAS()
	plane, vrf := u.peer.Dataplane, u.in.spec.InnerVrf
	u.s.sender.post(u.records, func() {
		for i := range segments {
			u.s.transmit(plane, vrf, segments[i].Packet())
		}
	})
}

func (u *ue) tick(now time.Time) {
	if !u.gone && !u.cut.IsZero() && now.Sub(u.cut) >= tickTime {
		u.cut = time.Time{}
		u.end("the signalling SA is gone")
	}
	for _, p := range u.sessions {
		if !u.gone && !p.lost.IsZero() && now.Sub(p.lost) >= tickTime {
			u.lostChild(p)
		}
	}
	if u.conn == nil || u.conn.Due().IsZero() || now.Before(u.conn.Due()) {
		return
	}
	u.transmit(u.conn.Tick(now))
	if u.conn.Err() != nil && !errors.Is(u.conn.Err(), tcp.ErrClosed) {
		u.disconnect()
		u.saveNAS()
	}
}

// ---- The core

// receive takes a message of the AMF.
func (u *ue) receive(m any) {
	if u.gone && u.core == nil {
		return
	}
	switch m := m.(type) {
	case *ngap.DownlinkNASTransport:
		u.downlink(m.NASPDU)
	case *ngap.InitialContextSetupRequest:
		u.initialContext(m)
	case *ngap.PDUSessionResourceSetupRequest:
		u.setupRequest(m)
	case *ngap.PDUSessionResourceModifyRequest:
		u.modifyRequest(m)
	case *ngap.PDUSessionResourceReleaseCommand:
		u.releaseCommand(m)
	case *ngap.LocationReportingControl:
		u.locate(m)
	case *ngap.RerouteNASRequest:
		u.reroute(m)
	case *ngap.UEContextModificationRequest:
		u.setRates(m.UEAggregateMaximumBitRate)
		if m.SecurityKey != nil && u.halfOpen == nil {
			u.key = m.SecurityKey.Octets
		}
		u.save()
		u.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.UEContextModificationResponse{AMFUENGAPID: amf, RANUENGAPID: ran}
		})
	}
}

func (u *ue) initialContext(m *ngap.InitialContextSetupRequest) {
	if u.gone || m.SecurityKey.Count != 256 || len(m.SecurityKey.Octets) != 32 {
		u.failContext(ngap.CauseRadioNetworkRadioConnectionWithUeLost)
		return
	}
	u.context = m
	u.setRates(m.UEAggregateMaximumBitRate)
	if u.up {
		u.setUpContext()
		return
	}
	// UEs that register do not count among those of maxUes: some may have come first.
	if len(u.in.ues) >= u.in.maxUEs() {
		u.discard(u.in.tooMany())
		return
	}
	u.s.registering.leave(u)
	u.in.ues[u] = true
	u.key = m.SecurityKey.Octets
	u.proceed()
}

// locate takes LOCATION REPORTING CONTROL (TS 38.413 section 8.12.1).
func (u *ue) locate(m *ngap.LocationReportingControl) {
	switch m.LocationReportingRequestType.EventType {
	case ngap.EventTypeChangeOfServeCell:
		u.reports = m
	case ngap.EventTypeStopChangeOfServeCell, ngap.EventTypeCancelLocationReportingForTheUe:
		u.reports = nil
	}
	u.save()
	u.reportLocation(m)
}

func (u *ue) reportLocation(m *ngap.LocationReportingControl) {
	if u.core == nil || u.s.pool == nil {
		return
	}
	var answer any
	u.s.pool.Do(func() {
		amf, ran := u.core.IDs()
		answer = n2.LocationAnswer(m, amf, ran, u.location())
	})
	if answer != nil {
		u.dispatch(answer)
	}
}

// moved: the UE has another address (MOBIKE).
func (u *ue) moved(peer ike.Peer) {
	u.peer = peer
	if u.reports != nil && !u.gone {
		u.reportLocation(u.reports)
	}
}

// reroute takes REROUTE NAS REQUEST (section 8.6.5): the initial message goes to an AMF of another set.
func (u *ue) reroute(m *ngap.RerouteNASRequest) {
	first := n2.InitialMessage(m)
	if first == nil || u.core == nil || u.up || u.gone || u.key != nil {
		return
	}
	var err error
	u.s.pool.Do(func() {
		from := u.core.AMF()
		u.core.Close()
		// One reroute: AMFs that send the UE to each other would go on for ever.
		if u.rerouted {
			u.core, err = nil, n2.ErrRerouted
			return
		}
		u.rerouted = true
		if u.core, err = u.s.pool.OpenIn(u.in.spec.Node, nil, n2.Reroute{Set: n2.AMFSet(m), From: from}, link{u, first.RRCEstablishmentCause}); err != nil {
			u.core = nil
			return
		}
		_, first.RANUENGAPID = u.core.IDs()
		u.ran = int64(first.RANUENGAPID)
		first.UserLocationInformation = u.location()
		n2.Rerouted(first, m)
		u.core.Send(first)
	})
	if err != nil {
		u.refuse(err, backOffNotifies(u.in.backOff()))
	}
}

// failContext refuses INITIAL CONTEXT SETUP REQUEST.
func (u *ue) failContext(cause ngap.CauseRadioNetwork) {
	u.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
		return &ngap.InitialContextSetupFailure{AMFUENGAPID: amf, RANUENGAPID: ran, Cause: ngap.Cause{RadioNetwork: &cause}}
	})
}

// lost: the context at the AMF is gone. The UE has no other.
func (u *ue) lost(reason string) {
	if u.core == nil {
		return
	}
	u.core, u.suspended, u.outbox = nil, false, nil
	if u.gone {
		u.forget()
		return
	}
	if !u.up {
		// The core's last message is for the UE: a rejection.
		if u.answer != nil {
			u.proceed()
		}
		return
	}
	u.end(reason)
}

// end closes the IKE SA: down() follows.
func (u *ue) end(reason string) {
	if u.s.ike == nil {
		return
	}
	if err := u.s.ike.Close(u.peer.ID, reason); err != nil {
		u.down(reason)
	}
}

// down: the IKE SA is gone.
func (u *ue) down(why string) {
	if u.gone {
		return
	}
	if u.halfOpen == nil {
		u.s.Log.Info("a UE is disconnected", "name", u.name, "why", why)
	} else {
		// Any host can cause it.
		u.s.Log.Debug("a UE does not register", "name", u.name, "why", why)
	}
	u.answer = nil
	u.release(ngap.CauseRadioNetworkRadioConnectionWithUeLost)
}

// release frees the UE's resources, and asks the AMF to release its context (TS 23.502 section 4.12.4.2).
func (u *ue) release(cause ngap.CauseRadioNetwork) {
	if u.gone {
		return
	}
	u.unsave()
	u.gone = true
	u.s.registering.leave(u)
	u.stopTimer()
	u.disconnect()
	if u.ending == nil {
		for _, m := range u.waiting {
			u.undelivered(m, ngap.CauseRadioNetworkRadioConnectionWithUeLost)
		}
	}
	ending := u.endSessions()
	for _, id := range sortedIDs(u.sessions) {
		u.sessions[id].remove(false, func() {})
	}
	u.waiting = nil
	if len(u.inner) > 0 {
		for _, a := range u.inner {
			u.s.delete("Route", u.routeName(a))
			u.in.give(a)
		}
		u.s.delete("Interface", u.name)
		u.s.delete("IpsecTunnel", u.name)
	}
	if u.core != nil {
		u.s.pool.Do(func() {
			// An AMF that never answered has no context to release.
			if amf, _ := u.core.IDs(); amf == 0 {
				u.core.Close()
				u.core = nil
			}
		})
	}
	if u.core == nil {
		u.forget()
		return
	}
	if u.context != nil {
		u.context = nil
		u.failContext(cause)
	}
	u.requestRelease(ngap.Cause{RadioNetwork: &cause}, ending.ids())
	u.awaitRelease()
}

// awaitRelease forgets the UE if the AMF does not answer. While the association is lost, the AMF cannot.
func (u *ue) awaitRelease() {
	u.await(releaseTime, func() {
		if u.suspended {
			u.awaitRelease()
			return
		}
		if u.core != nil {
			u.s.pool.Do(u.core.Close)
			u.core = nil
		}
		u.forget()
	})
}

// forget is the end of a UE.
func (u *ue) forget() {
	u.stopTimer()
	delete(u.in.ues, u)
	delete(u.s.names, u.name)
	if u.s.peers[u.peer.ID] == u {
		delete(u.s.peers, u.peer.ID)
	}
}
