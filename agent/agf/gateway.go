// SPDX-License-Identifier: Apache-2.0
// 5G residential gateways (5G-RG, TS 23.316 section 7.2.1.1): they speak NAS with the core themselves, and the AGF is between W-CP and N2.

package agf

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/deadline"
	"sluice.dev/sluice/agent/eap5g"
	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/qosflow"
	"sluice.dev/sluice/agent/wcp"
)

const (
	// How long an AMF may take to release the context of a 5G-RG that is gone.
	releaseTime = 10 * time.Second
	// Messages of the AMF that wait for the 5G-RG.
	maxInbox = 64
)

// gateways are the 5G-RGs of the service. All but the metrics is used under Pool.Do.
type gateways struct {
	all    map[*gateway]bool
	due    deadline.Queue[*gateway]
	fiveWE fiveWEIDs
	count  prometheus.Gauge
	drops  *prometheus.CounterVec
}

func newGateways() gateways {
	return gateways{all: map[*gateway]bool{}, fiveWE: fiveWEIDs{used: map[fiveWEKey]bool{}},
		count: prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_agf_gateways", Help: "5G residential gateways with a link."}),
		drops: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_agf_gateway_drops_total",
			Help: "Packets of 5G residential gateways that were ignored, and NAS messages that were too long for them."}, []string{"reason"})}
}

// gateway is a 5G-RG with a link, or one whose context the AMF is to release.
type gateway struct {
	deadline.Timer
	service *agf
	wcp     *wcp.Gateway
	peer    wcp.Peer
	link    wcp.Link
	// Nil until it sends its first NAS message, and once the context is gone.
	core Core
	// Why its context is opened; and its initial message was rerouted.
	cause    ngap.RRCEstablishmentCause
	rerouted bool
	// The 5G-RG takes messages; the link is gone.
	ready, gone bool
	// INITIAL CONTEXT SETUP REQUEST, until it is answered: that is when the 5G-RG is ready and its resources are set up, or are not.
	context   *ngap.InitialContextSetupRequest
	settingUp bool
	// A procedure waits for the data plane or the 5G-RG. Messages of the AMF wait for its end: their NAS messages stay in order.
	busy     bool
	inbox    []any
	ambr     nas.AMBR
	sessions map[uint8]*resource
	// When the context is forgotten although the AMF did not release it; the zero time: it is not asked to.
	forgotten time.Time
}

// gatewayServer is the wcp.Server.
type gatewayServer struct{ s *agf }

// Open implements wcp.Server.
func (o gatewayServer) Open(p wcp.Peer, l wcp.Link) wcp.Connection {
	g := &gateway{service: o.s, peer: p, link: l, sessions: map[uint8]*resource{}}
	o.s.do(func() {
		o.s.gateways.all[g] = true
		g.wcp = wcp.NewGateway(g)
		g.settle()
	})
	return gatewayConnection{g}
}

// gatewayConnection is the wcp.Connection of a 5G-RG.
type gatewayConnection struct{ g *gateway }

// Receive implements wcp.Connection.
func (c gatewayConnection) Receive(p wcp.Protocol, packet []byte) {
	c.g.service.do(func() {
		c.g.wcp.Receive(p, packet)
		c.g.settle()
	})
}

// Down implements wcp.Connection.
func (c gatewayConnection) Down(string) { c.g.service.do(c.g.end) }

// settle puts the 5G-RG to its place among the deadlines.
func (g *gateway) settle() {
	all := &g.service.gateways
	if !all.all[g] {
		return
	}
	at := g.forgotten
	if at.IsZero() {
		at = g.wcp.Deadline()
	}
	if at.IsZero() {
		all.due.Remove(g)
	} else {
		all.due.Set(g, at)
	}
}

// tickGateways ends timers that are due.
func (s *agf) tickGateways(now time.Time) {
	all := &s.gateways
	for g, due := all.due.Due(now); due; g, due = all.due.Due(now) {
		all.due.Remove(g)
		if !g.forgotten.IsZero() {
			g.forget()
			continue
		}
		g.wcp.Tick()
		g.settle()
	}
	all.count.Set(float64(len(all.all)))
}

// ---- wcp.World

// Now implements wcp.World.
func (g *gateway) Now() time.Time { return time.Now() }

// Send implements wcp.World.
func (g *gateway) Send(p wcp.Protocol, packet []byte) {
	if !g.gone {
		g.link.Send(p, packet)
	}
}

// Dropped implements wcp.World.
func (g *gateway) Dropped(reason string) {
	g.service.gateways.drops.WithLabelValues(reason).Inc()
}

// Register implements wcp.World: the AN parameters choose the AMF (TS 23.316 section 7.2.1.1 step 4).
func (g *gateway) Register(p eap5g.Parameters, message []byte) {
	s := g.service
	name, of, _ := s.agfOf(g.peer.Profile)
	s.mu.Lock()
	pool := s.pool
	s.mu.Unlock()
	switch {
	case of == nil:
		g.abandon(missing(name).Error())
		return
	case pool == nil:
		g.abandon("the service of AMFs does not run")
		return
	}
	// An AMF that serves one of the slices, or else any: the core decides.
	desired := make([]*api.Slice, 0, len(p.Slices)+1)
	for _, one := range p.Slices {
		desired = append(desired, &api.Slice{Sst: uint32(one.SST), Sd: sdText(one.SD)})
	}
	var err error
	g.cause = p.Cause
	for _, slice := range append(desired, nil) {
		// The core does not choose among slices for which it is overloaded.
		if slice == nil && errors.Is(err, n2.ErrOverloaded) {
			break
		}
		if g.core, err = pool.Open(of.Node, slice, p.GUAMI, gatewayUE{g}); err == nil {
			break
		}
	}
	if err != nil {
		g.core = nil
		g.abandon(err.Error())
		return
	}
	plmn, err := g.core.PLMN().Octets()
	if err != nil {
		g.abandon(err.Error())
		return
	}
	requested := ngap.UEContextRequestRequested
	_, ran := g.core.IDs()
	g.core.Send(&ngap.InitialUEMessage{RANUENGAPID: ran, NASPDU: message, UserLocationInformation: g.location(), RRCEstablishmentCause: p.Cause,
		UEContextRequest: &requested, SelectedPLMNIdentity: plmn})
}

// reroute takes REROUTE NAS REQUEST (TS 38.413 section 8.6.5): the initial message goes to an AMF of another set.
func (g *gateway) reroute(m *ngap.RerouteNASRequest) {
	s := g.service
	first := n2.InitialMessage(m)
	if first == nil || g.ready || g.context != nil {
		return
	}
	from := g.core.AMF()
	if g.rerouted {
		g.core.Close()
		g.core = nil
		g.abandon(n2.ErrRerouted.Error())
		return
	}
	g.rerouted = true
	_, of, _ := s.agfOf(g.peer.Profile)
	s.mu.Lock()
	pool := s.pool
	s.mu.Unlock()
	g.core.Close()
	var err error
	if g.core, err = pool.OpenIn(of.GetNode(), nil, n2.Reroute{Set: n2.AMFSet(m), From: from}, gatewayUE{g}); err != nil {
		g.core = nil
		g.abandon(err.Error())
		return
	}
	_, first.RANUENGAPID = g.core.IDs()
	first.UserLocationInformation = g.location()
	n2.Rerouted(first, m)
	g.core.Send(first)
}

func sdText(sd []byte) string {
	if len(sd) != 3 {
		return ""
	}
	return fmt.Sprintf("%02x%02x%02x", sd[0], sd[1], sd[2])
}

// lineOf is the line's name in its global line identifier: the Circuit ID that the access node inserts, or else the
// circuit.
func lineOf(p *wcp.Peer) string {
	if len(p.Line.CircuitID) > 0 {
		return string(p.Line.CircuitID)
	}
	line := p.Line.Port
	for _, vlan := range []uint16{p.Line.OuterVLAN, p.Line.InnerVLAN} {
		if vlan != 0 {
			line += "." + strconv.Itoa(int(vlan))
		}
	}
	return line
}

// location is the line.
func (g *gateway) location() ngap.UserLocationInformation {
	_, of, _ := g.service.agfOf(g.peer.Profile)
	return locationOf(lineOf(&g.peer), of.GetHfcNode(), g.core.TAI())
}

// Uplink implements wcp.World.
func (g *gateway) Uplink(message []byte) {
	g.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
		return &ngap.UplinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: message, UserLocationInformation: g.location()}
	})
}

// Ready implements wcp.World.
func (g *gateway) Ready() {
	g.ready = true
	g.link.Authenticated()
	g.service.environment.Log.Info("a 5G residential gateway is connected", "line", lineOf(&g.peer), "mac", g.peer.Line.MAC.String())
	g.setUpContext()
}

// Closed implements wcp.World.
func (g *gateway) Closed(err error) { g.abandon(err.Error()) }

// send sends a message that has the identifiers of the 5G-RG.
func (g *gateway) send(of func(ngap.AMFUENGAPID, ngap.RANUENGAPID) any) {
	if g.core != nil {
		g.core.Send(of(g.core.IDs()))
	}
}

// abandon ends the 5G-RG's link from here.
func (g *gateway) abandon(reason string) {
	if g.gone {
		return
	}
	g.service.environment.Log.Info("a 5G residential gateway is disconnected", "line", lineOf(&g.peer), "mac", g.peer.Line.MAC.String(), "why", reason)
	g.discard()
	g.wcp.Close()
	g.link.Close(reason)
	g.end()
}

// end: the link is gone. The AMF is asked to release the context (TS 23.316 section 7.2.5).
func (g *gateway) end() {
	if g.gone {
		return
	}
	g.discard()
	g.gone = true
	g.wcp.Close()
	ids := slices.Sorted(maps.Keys(g.sessions))
	for _, id := range ids {
		g.sessions[id].remove()
	}
	// An AMF that never answered has no context to release.
	known := false
	if g.core != nil {
		amf, _ := g.core.IDs()
		known = amf != 0
	}
	if !known {
		g.forget()
		return
	}
	cause := ngap.CauseRadioNetworkRadioConnectionWithUeLost
	if context := g.context; context != nil {
		g.context = nil
		g.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			m := &ngap.InitialContextSetupFailure{AMFUENGAPID: amf, RANUENGAPID: ran, Cause: ngap.Cause{RadioNetwork: &cause}}
			for _, item := range context.PDUSessionResourceSetupListCxtReq {
				m.PDUSessionResourceFailedToSetupListCxtFail = append(m.PDUSessionResourceFailedToSetupListCxtFail, ngap.PDUSessionResourceFailedToSetupItemCxtFail{
					PDUSessionID: item.PDUSessionID, PDUSessionResourceSetupUnsuccessfulTransfer: unsuccessful(cause)})
			}
			return m
		})
	}
	g.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
		m := &ngap.UEContextReleaseRequest{AMFUENGAPID: amf, RANUENGAPID: ran, Cause: ngap.Cause{RadioNetwork: &cause}}
		for _, id := range ids {
			m.PDUSessionResourceListCxtRelReq = append(m.PDUSessionResourceListCxtRelReq, ngap.PDUSessionResourceItemCxtRelReq{PDUSessionID: ngap.PDUSessionID(id)})
		}
		return m
	})
	g.forgotten = time.Now().Add(releaseTime)
	g.settle()
}

// forget is the end of a 5G-RG.
func (g *gateway) forget() {
	if g.core != nil {
		g.core.Close()
		g.core = nil
	}
	g.service.gateways.due.Remove(g)
	delete(g.service.gateways.all, g)
}

// loseGateways: the service that had their contexts is gone.
func (s *agf) loseGateways(reason string) {
	for g := range s.gateways.all {
		g.lost(reason)
	}
}

// lost: the context at the AMF is gone. The 5G-RG dials in again when it needs one: with a service request, or a registration.
func (g *gateway) lost(reason string) {
	g.core = nil
	g.abandon(reason)
	g.forget()
}

// ---- n2.UE

// gatewayUE is the n2.UE of a 5G-RG.
type gatewayUE struct{ g *gateway }

// Cause implements n2.Caused.
func (u gatewayUE) Cause() ngap.RRCEstablishmentCause { return u.g.cause }

// Lost implements n2.UE.
func (u gatewayUE) Lost(reason string) { u.g.lost(reason) }

// Receive implements n2.UE.
func (u gatewayUE) Receive(message any) {
	g := u.g
	switch {
	case g.gone:
		g.undelivered(message, ngap.CauseRadioNetworkRadioConnectionWithUeLost)
	case len(g.inbox) == maxInbox:
		g.abandon("the core does not wait for answers")
	default:
		g.inbox = append(g.inbox, message)
		g.work()
	}
}

// work takes messages of the AMF in their order.
func (g *gateway) work() {
	for !g.busy && !g.gone && len(g.inbox) > 0 {
		message := g.inbox[0]
		g.inbox = g.inbox[1:]
		g.take(message)
	}
	g.settle()
}

// finish ends a procedure that waited, unless the 5G-RG is gone.
func (g *gateway) finish(answer func()) {
	g.busy = false
	if !g.gone {
		answer()
		g.work()
	}
}

func (g *gateway) take(message any) {
	switch m := message.(type) {
	case *ngap.DownlinkNASTransport:
		g.subscriberAMBR(m.UEAggregateMaximumBitRate)
		g.nas(m.NASPDU)
	case *ngap.InitialContextSetupRequest:
		g.subscriberAMBR(m.UEAggregateMaximumBitRate)
		g.context, g.busy = m, true
		if g.ready {
			g.setUpContext()
		} else if !g.wcp.Accept() {
			g.abandon("the core sets up a context that the 5G residential gateway did not ask for")
		}
	case *ngap.PDUSessionResourceSetupRequest:
		g.subscriberAMBR(m.UEAggregateMaximumBitRate)
		g.setUpRequest(m)
	case *ngap.PDUSessionResourceModifyRequest:
		g.modifyRequest(m)
	case *ngap.PDUSessionResourceReleaseCommand:
		g.releaseCommand(m)
	case *ngap.UEContextModificationRequest:
		g.subscriberAMBR(m.UEAggregateMaximumBitRate)
		g.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.UEContextModificationResponse{AMFUENGAPID: amf, RANUENGAPID: ran}
		})
	case *ngap.LocationReportingControl:
		amf, ran := g.core.IDs()
		if answer := n2.LocationAnswer(m, amf, ran, g.location()); answer != nil {
			g.core.Send(answer)
		}
	case *ngap.RerouteNASRequest:
		g.reroute(m)
	}
}

// nas brings a NAS message to the 5G-RG, or tells the AMF that it does not arrive.
func (g *gateway) nas(message []byte) {
	if !g.wcp.NAS(message) {
		g.undelivered(&ngap.DownlinkNASTransport{NASPDU: message}, ngap.CauseRadioNetworkFailureInRadioInterfaceProcedure)
	}
}

// discard drops the messages that wait for a 5G-RG whose link ends.
func (g *gateway) discard() {
	inbox := g.inbox
	g.inbox = nil
	for _, message := range inbox {
		g.undelivered(message, ngap.CauseRadioNetworkRadioConnectionWithUeLost)
	}
}

// undelivered tells the AMF that a NAS message does not arrive (TS 38.413 section 8.6.4).
func (g *gateway) undelivered(message any, cause ngap.CauseRadioNetwork) {
	if m, ok := message.(*ngap.DownlinkNASTransport); ok && len(m.NASPDU) > 0 {
		g.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.NASNonDeliveryIndication{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: m.NASPDU, Cause: ngap.Cause{RadioNetwork: &cause}}
		})
	}
}

// subscriberAMBR takes the subscriber's aggregate maximum bit rate.
func (g *gateway) subscriberAMBR(a *ngap.UEAggregateMaximumBitRate) {
	if a == nil {
		return
	}
	ambr := nas.AMBR{Down: qosflow.Rate(a.UEAggregateMaximumBitRateDL), Up: qosflow.Rate(a.UEAggregateMaximumBitRateUL)}
	if ambr == g.ambr {
		return
	}
	g.ambr = ambr
	for _, r := range g.sessions {
		if r.applied > 0 && !r.removed {
			r.apply(r.complain)
		}
	}
}
