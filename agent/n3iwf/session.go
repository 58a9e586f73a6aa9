// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/gtpu"
	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/per"
	"sluice.dev/sluice/agent/qosflow"
)

// pduSession is the user plane of a PDU session: child SAs, a GreTunnel and a Session (TS 23.502 section 4.12.5).
type pduSession struct {
	u  *ue
	id uint8
	// It is of type Ethernet.
	frames bool
	parameters
	teid          uint32     // of our end of the tunnel
	local, remote netip.Addr // of GRE
	children      []*childSA
	usage         usage
	// The guaranteed rates of its flows, and the flows that did not fit when it was set up.
	reserved rates
	refused  []ngap.QosFlowWithCauseItem
	// The Session that the data plane has, and the UPF's end of its tunnel.
	applied *api.Session
	end     gtpu.RemoteEnd
	// The core knows that it is set up.
	answered bool
	// The data plane has its objects.
	made, removed bool
	// When the UE closed one of its child SAs.
	lost time.Time
	// Objects that the newest Session names. Those of Sessions before are kept until the data plane has the newest.
	shared, sharedBefore []object.Key
	// The newest Session has the UE's rate shared with other sessions.
	togetherUp, togetherDown bool
	// It is set up or modified, and modifications that wait until that is done.
	busy   bool
	queued []func()
	// Which apply is the newest, and who waits for it.
	turn    int
	waiting []func(error)
}

// parameters are what the core says of a PDU session.
type parameters struct {
	// Replaced as a whole.
	flows map[uint8]qosflow.Flow
	ambr  rates
	// The UPF's end of the tunnel.
	far     netip.Addr
	farTEID uint32
}

// childSA is a child SA of a PDU session.
type childSA struct {
	group
	name, tunnel string
}

func (p *pduSession) name() string { return fmt.Sprintf("%s-pdu-%d", p.u.name, p.id) }

// setupItem is a PDU session resource to set up, and setupResult its result: a transfer for the answer, and NAS for
// the UE.
type (
	setupItem struct {
		id            uint8
		transfer, nas []byte
	}
	setupResult struct {
		id            uint8
		ok            bool
		transfer, nas []byte
	}
)

func unsuccessful(cause ngap.CauseRadioNetwork) []byte {
	transfer, _ := ngap.EncodeTransfer(&ngap.PDUSessionResourceSetupUnsuccessfulTransfer{Cause: ngap.Cause{RadioNetwork: &cause}})
	return transfer
}

// setup sets up PDU session resources at the same time. done gets the results in the order of the items.
func (u *ue) setup(items []setupItem, done func([]setupResult)) {
	results := make([]setupResult, len(items))
	left := len(items)
	if left == 0 {
		done(nil)
		return
	}
	for i, item := range items {
		results[i] = setupResult{id: item.id}
		finished := func(transfer []byte, ok bool) {
			results[i].transfer, results[i].ok = transfer, ok
			if ok {
				results[i].nas = item.nas
			}
			if left--; left == 0 {
				done(results)
			}
		}
		p, cause := u.newSession(item)
		if p == nil {
			finished(unsuccessful(cause), false)
			continue
		}
		u.sessions[p.id] = p
		p.busy = true
		u.save()
		u.share(p)
		p.open(groups(u.in.spec.ChildFiveQis, u.in.marks, p.flows), func(err error) {
			if err == nil && !p.removed {
				p.apply(func(err error) {
					defer p.idle()
					if err != nil || p.removed {
						u.s.Log.Error("a PDU session has no user plane", "name", p.name(), "error", err)
						p.remove(true, func() {})
						finished(unsuccessful(ngap.CauseRadioNetworkRadioResourcesNotAvailable), false)
						return
					}
					finished(p.response(), true)
				})
				return
			}
			defer p.idle()
			u.s.Log.Info("a PDU session has no child SA", "name", p.name(), "error", err)
			p.remove(true, func() {})
			finished(unsuccessful(ngap.CauseRadioNetworkFailureInRadioInterfaceProcedure), false)
		})
	}
}

// newSession reads the core's parameters of a PDU session; nil: it is refused, because of the cause.
func (u *ue) newSession(item setupItem) (*pduSession, ngap.CauseRadioNetwork) {
	if u.sessions[item.id] != nil {
		return nil, ngap.CauseRadioNetworkMultiplePDUSessionIDInstances
	}
	if !u.up || u.gone || u.ending != nil {
		return nil, ngap.CauseRadioNetworkRadioConnectionWithUeLost
	}
	var m ngap.PDUSessionResourceSetupRequestTransfer
	faults, err := ngap.DecodeTransfer(item.transfer, &m)
	if err != nil || slices.ContainsFunc(faults, func(f per.Fault) bool { return f.Criticality == per.Reject || f.Kind != per.NotUnderstood }) {
		return nil, ngap.CauseRadioNetworkUnspecified
	}
	switch m.PDUSessionType {
	case ngap.PDUSessionTypeIpv4, ngap.PDUSessionTypeIpv6, ngap.PDUSessionTypeIpv4v6, ngap.PDUSessionTypeEthernet:
	default:
		return nil, ngap.CauseRadioNetworkUnspecified
	}
	p := &pduSession{u: u, id: item.id, frames: m.PDUSessionType == ngap.PDUSessionTypeEthernet, parameters: parameters{flows: map[uint8]qosflow.Flow{}}, usage: usage{since: time.Now()}}
	if !p.setFar(&m.ULNGUUPTNLInformation) {
		return nil, ngap.CauseRadioNetworkUnspecified
	}
	var flows []qosflow.Flow
	for i := range m.QosFlowSetupRequestList {
		f := &m.QosFlowSetupRequestList[i]
		if f.QosFlowIdentifier < 0 || f.QosFlowIdentifier > 63 {
			return nil, ngap.CauseRadioNetworkUnspecified
		}
		if slices.ContainsFunc(flows, func(other qosflow.Flow) bool { return other.QFI == uint8(f.QosFlowIdentifier) }) {
			return nil, ngap.CauseRadioNetworkMultipleQosFlowIDInstances
		}
		flows = append(flows, qosflow.Of(f.QosFlowIdentifier, &f.QosFlowLevelQosParameters))
	}
	p.refused = p.admit(p.flows, flows)
	p.setRates(m.PDUSessionAggregateMaximumBitRate)
	for _, up := range u.in.userPlane {
		for _, inner := range u.inner {
			if up.Is4() == inner.Is4() && !p.local.IsValid() {
				p.local, p.remote = up, inner
			}
		}
	}
	if !p.local.IsValid() || len(p.flows) == 0 {
		return nil, ngap.CauseRadioNetworkRadioResourcesNotAvailable
	}
	p.teid = u.s.newTEID()
	p.reserve()
	return p, 0
}

// setFar takes the UPF's end. It must be of the family of ours.
func (p *pduSession) setFar(info *ngap.UPTransportLayerInformation) bool {
	t := info.GTPTunnel
	if t == nil || len(t.GTPTEID) != 4 || t.TransportLayerAddress.Count != p.u.in.core.BitLen() {
		return false
	}
	far, ok := netip.AddrFromSlice(t.TransportLayerAddress.Octets)
	teid := binary.BigEndian.Uint32(t.GTPTEID)
	if !ok || teid == 0 {
		return false
	}
	p.far, p.farTEID = far, teid
	return true
}

// response is our end of the tunnel, for the UPF.
func (p *pduSession) response() []byte {
	ours := p.u.in.core
	flows := ngap.QosFlowPerTNLInformation{UPTransportLayerInformation: ngap.UPTransportLayerInformation{GTPTunnel: &ngap.GTPTunnel{
		TransportLayerAddress: per.BitString{Octets: ours.AsSlice(), Count: ours.BitLen()}, GTPTEID: binary.BigEndian.AppendUint32(nil, p.teid)}}}
	for _, qfi := range sortedIDs(p.flows) {
		flows.AssociatedQosFlowList = append(flows.AssociatedQosFlowList, ngap.AssociatedQosFlowItem{QosFlowIdentifier: ngap.QosFlowIdentifier(qfi)})
	}
	transfer, err := ngap.EncodeTransfer(&ngap.PDUSessionResourceSetupResponseTransfer{DLQosFlowPerTNLInformation: flows, QosFlowFailedToSetupList: p.refused})
	if err != nil {
		p.u.s.Log.Error("a transfer cannot be encoded", "error", err)
	}
	return transfer
}

// open opens child SAs. done is called once, when all are there or one is refused.
func (p *pduSession) open(desired []group, done func(error)) {
	left := len(desired)
	var failed error
	if left == 0 {
		done(nil)
	}
	one := func(err error) {
		if err != nil && failed == nil {
			failed = err
		}
		if left--; left == 0 {
			done(failed)
		}
	}
	for _, g := range desired {
		p.u.children++
		c := &childSA{group: g, name: fmt.Sprintf("pdu-%d-%d", p.id, p.u.children)}
		c.tunnel = p.u.name + "-" + c.name
		p.u.s.put("IpsecTunnel", c.tunnel, &api.IpsecTunnel{Vrf: p.u.in.spec.Vrf}, nil)
		p.children = append(p.children, c)
		notify := []*message.Notify{qosInfo(p.id, g.qfis, g.isDefault, g.dscp), addressNotify(notifyUP4, notifyUP6, p.local)}
		child := p.u.in.child(c.name, c.tunnel, p.local)
		// GRE checks that packets are between its ends, which are the selectors.
		child.Unselected = true
		err := p.u.s.ike.OpenChild(p.u.peer.ID, child, notify, func(o ike.ChildOpened) {
			p.u.s.post(func() { one(o.Err) })
		})
		if err != nil {
			one(err)
		}
	}
}

// close closes a child SA.
func (p *pduSession) close(c *childSA, told bool) {
	if told && p.u.s.ike != nil {
		if err := p.u.s.ike.CloseChild(p.u.peer.ID, c.name); err != nil {
			p.u.s.Log.Info("a child SA cannot be closed", "name", c.tunnel, "error", err)
		}
	}
	p.u.s.delete("IpsecTunnel", c.tunnel)
	p.children = slices.DeleteFunc(p.children, func(other *childSA) bool { return other == c })
}

// apply applies the session to the user plane. done gets the result.
func (p *pduSession) apply(done func(error)) {
	s, name := p.u.s, p.name()
	gre := p.greTunnel()
	p.sharedBefore = append(p.sharedBefore, p.shared...)
	p.shared = nil
	p.made = true
	p.turn++
	p.waiting = append(p.waiting, done)
	turn, left := p.turn, 1
	var session *api.Session
	// The data plane prepares a FlowProfile beside its main thread: a Session that came with it would wait, and not be done.
	ready := func() {
		if left--; left > 0 || turn != p.turn {
			return
		}
		answers := 2
		var failed error
		answered := func() {
			if answers--; answers == 0 {
				p.settle(turn, session, failed)
			}
		}
		s.put("GreTunnel", name, gre, func(error) { answered() })
		s.put("Session", name, session, func(err error) {
			failed = err
			answered()
		})
	}
	session = p.session(func() {
		left++
	}, ready)
	ready()
}

// produce makes the objects of a session that the data plane has from before a restart.
func (p *pduSession) produce() {
	s, name := p.u.s, p.name()
	p.made = true
	session := p.session(func() {}, func() {})
	s.put("GreTunnel", name, p.greTunnel(), nil)
	s.put("Session", name, session, nil)
	p.applied = session
	p.moveEnd(remoteEndOf(session.GetGtpu()))
}

func (p *pduSession) greTunnel() *api.GreTunnel {
	gre := &api.GreTunnel{LocalAddress: p.local.String(), RemoteAddress: p.remote.String()}
	for _, c := range p.children {
		child := &api.GreChild{Tunnel: c.tunnel}
		if !c.isDefault {
			for _, qfi := range c.qfis {
				child.Qfis = append(child.Qfis, uint32(qfi))
			}
		}
		gre.Children = append(gre.Children, child)
	}
	return gre
}

// session is the Session of a PDU session. It takes the objects that others share: taking is called before each of them, and ready when the data plane
// has answered.
func (p *pduSession) session(taking, ready func()) *api.Session {
	s := p.u.s
	// Frames have no source that the gateway could look at.
	policy := &api.Policy{AnySource: !p.frames}
	p.enforce(policy, func(kind, name string, spec proto.Message) string {
		taking()
		if name == "" {
			name = s.shared.Name(spec, "")
		}
		key := s.shared.TakeAs(kind, name, spec, ready)
		p.shared = append(p.shared, key)
		return key.Name
	})
	return &api.Session{Access: &api.Access{GreTunnel: p.name()}, Vrf: p.u.in.spec.InnerVrf, Policy: policy,
		Core: &api.Session_Gtpu{Gtpu: &api.Gtpu{LocalAddress: p.u.in.core.String(), LocalTeid: p.teid, RemoteAddress: p.far.String(), RemoteTeid: p.farTEID,
			Vrf: p.u.in.spec.CoreVrf, PduSessionContainer: true, Ethernet: p.frames, Qfi: uint32(slices.Min(slices.Collect(maps.Keys(p.flows))))}}}
}

// settle is called when the data plane has a Session, or refuses it. The newest one ends apply.
func (p *pduSession) settle(turn int, session *api.Session, err error) {
	// An unchanged session needs no change.
	if errors.Is(err, errNotDone) && proto.Equal(session, p.applied) {
		err = nil
	}
	if err == nil && p.made {
		p.applied = session
		p.moveEnd(remoteEndOf(session.GetGtpu()))
	}
	if turn != p.turn {
		return
	}
	p.giveBack(false)
	waiting := p.waiting
	p.waiting = nil
	for _, done := range waiting {
		done(err)
	}
}

// remoteEndOf is the UPF's end of a session's tunnel.
func remoteEndOf(g *api.Gtpu) gtpu.RemoteEnd {
	far, err := netip.ParseAddr(g.GetRemoteAddress())
	if err != nil {
		return gtpu.RemoteEnd{}
	}
	return gtpu.RemoteEnd{VRF: object.VRFName(g.GetVrf()), End: gtpu.End{Address: far, TEID: g.GetRemoteTeid()}}
}

// moveEnd notes the UPF's end of the tunnel that the data plane has; the zero RemoteEnd: it has none.
func (p *pduSession) moveEnd(now gtpu.RemoteEnd) {
	ends := p.u.s.ends
	if ends[p.end] == p {
		delete(ends, p.end)
	}
	if p.end = now; now != (gtpu.RemoteEnd{}) {
		ends[now] = p
	}
}

// giveBack gives back what Sessions before the newest named. all: also what the newest names.
func (p *pduSession) giveBack(all bool) {
	if all {
		p.sharedBefore = append(p.sharedBefore, p.shared...)
		p.shared = nil
	}
	for _, key := range p.sharedBefore {
		p.u.s.shared.Release(key)
	}
	p.sharedBefore = nil
}

// stop removes the objects of the user plane, but not the child SAs. counted is called once the last counters are known, or cannot be had.
func (p *pduSession) stop(counted func()) {
	s, name := p.u.s, p.name()
	if !p.made {
		counted()
		return
	}
	p.made = false
	p.turn++
	p.moveEnd(gtpu.RemoteEnd{})
	p.finish(counted)
	s.delete("GreTunnel", name)
	p.giveBack(true)
	waiting := p.waiting
	p.waiting = nil
	for _, done := range waiting {
		done(errNotDone)
	}
}

// remove removes the user plane and the child SAs. told: the UE gets DELETE of its child SAs. counted is as that of stop.
func (p *pduSession) remove(told bool, counted func()) {
	if p.removed {
		counted()
		return
	}
	p.removed = true
	p.stop(func() {
		p.u.past = p.u.past.plus(p.usage.total())
		counted()
	})
	for _, c := range slices.Clone(p.children) {
		p.close(c, told)
	}
	p.reserve()
	delete(p.u.s.teids, p.teid)
	delete(p.u.sessions, p.id)
	if !p.u.gone {
		p.u.share(nil)
	}
}

// removeAll removes PDU sessions of a UE. counted is called once, when the counters of all are known.
func removeAll(sessions map[uint8]*pduSession, told bool, counted func()) {
	left := len(sessions) + 1
	one := func() {
		if left--; left == 0 {
			counted()
		}
	}
	for _, id := range sortedIDs(sessions) {
		sessions[id].remove(told, one)
	}
	one()
}

// maxQueued modifications of a PDU session wait for the one before.
const maxQueued = 8

// idle: the session is set up, or a modification is done. The next one follows.
func (p *pduSession) idle() {
	p.busy = false
	for !p.busy && len(p.queued) > 0 {
		next := p.queued[0]
		p.queued = p.queued[1:]
		next()
	}
}

// regroup changes the child SAs to those of the flows: the UE takes the new QFIs of a child SA that stays (TS 24.502 section 7.6), or refuses them; new child
// SAs are opened, and those without flows are closed once packets take the new ones.
func (p *pduSession) regroup(done func(error)) {
	var opened []group
	var superfluous []*childSA
	var refused error
	left := 1
	heard := func(err error) {
		if err != nil {
			refused = err
		}
		if left--; left > 0 {
			return
		}
		if refused != nil || p.removed {
			done(refused)
			return
		}
		p.exchange(opened, superfluous, done)
	}
	desired := groups(p.u.in.spec.ChildFiveQis, p.u.in.marks, p.flows)
	kept := map[*childSA]bool{}
	for _, g := range desired {
		at := slices.IndexFunc(p.children, func(c *childSA) bool {
			return !kept[c] && c.isDefault == g.isDefault && (g.isDefault || c.dscp == g.dscp && overlap(c.qfis, g.qfis))
		})
		if at < 0 {
			opened = append(opened, g)
			continue
		}
		c := p.children[at]
		kept[c] = true
		if !slices.Equal(c.qfis, g.qfis) {
			c.group = g
			left++
			err := p.u.s.ike.Inform(p.u.peer.ID, c.name, []*message.Notify{saInfo(), qosInfo(p.id, g.qfis, g.isDefault, g.dscp)}, func(a ike.NotifyAnswered) {
				p.u.s.post(func() { heard(a.Err) })
			})
			if err != nil {
				heard(err)
			}
		}
	}
	for _, c := range p.children {
		if !kept[c] {
			superfluous = append(superfluous, c)
		}
	}
	heard(nil)
}

// exchange opens child SAs, and closes others once packets take the new ones.
func (p *pduSession) exchange(opened []group, superfluous []*childSA, done func(error)) {
	p.open(opened, func(err error) {
		if err != nil || p.removed {
			done(err)
			return
		}
		p.children = slices.DeleteFunc(p.children, func(c *childSA) bool { return slices.Contains(superfluous, c) })
		p.apply(func(err error) {
			for _, c := range superfluous {
				p.close(c, true)
			}
			done(err)
		})
	})
}

func overlap(a, b []uint8) bool {
	return slices.ContainsFunc(a, func(q uint8) bool { return slices.Contains(b, q) })
}
