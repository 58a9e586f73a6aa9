// SPDX-License-Identifier: Apache-2.0
// PDU sessions of 5G residential gateways (TS 23.316 section 7.3): the user plane is 5WE (RFC 8822) on the line, and GTP-U towards the core. The AGF
// sees neither addresses nor QoS rules, which are in NAS: the 5G-RG chooses the QFI of uplink packets, and the UPF that of downlink packets.

package agf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/per"
	"sluice.dev/sluice/agent/qosflow"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
	"sluice.dev/sluice/agent/wcp"
)

// fiveWEIDs are the SESSION_IDs of RFC 8822 that are in use: of each circuit its own.
type fiveWEIDs struct {
	used map[fiveWEKey]bool
	last uint16
}

type fiveWEKey struct {
	circuit subscriber.Circuit
	id      uint16
}

const lastFiveWE = 65534

// take is an identifier that the circuit does not use, and did not use a moment ago; 0: all are in use.
func (f *fiveWEIDs) take(c subscriber.Circuit) uint16 {
	for range lastFiveWE {
		f.last = f.last%lastFiveWE + 1
		if key := (fiveWEKey{c, f.last}); !f.used[key] {
			f.used[key] = true
			return f.last
		}
	}
	return 0
}

func (f *fiveWEIDs) give(c subscriber.Circuit, id uint16) { delete(f.used, fiveWEKey{c, id}) }

// resource is the user plane of a PDU session.
type resource struct {
	g      *gateway
	id     uint8
	kind   uint8
	fiveWE uint16
	flows  map[uint8]qosflow.Flow
	// Our end of the tunnel, and the UPF's.
	local, remote    netip.Addr
	teid, remoteTEID uint32
	end              farEnd
	ambr             nas.AMBR
	marks            map[uint32]qosflow.Mark
	// Groups of queues to the 5G-RG and towards the UPF; "": none.
	group, groupUp string
	// The last apply had the subscriber's rate shared with other sessions.
	togetherUp, togetherDown bool
	// Objects that its Session names or will name, and those that it named before: shared with others.
	used, before []object.Key
	// How often it was applied, and who waits for the end of the last time.
	applied int
	waiting []func(error)
	// The Session was given to the data plane; the last one that the data plane has.
	made, removed bool
	forwarding    *api.Session
}

func (r *resource) name() string { return fmt.Sprintf("rg-%s-%d", r.g.peer.ID, r.id) }

// frames: the PDU session is of type Ethernet.
func (r *resource) frames() bool { return r.kind == nas.PDUSessionEthernet }

var errNotForwarding = errors.New("the data plane does not forward for the PDU session")

// setUpItem is a PDU session resource to set up, and setUpResult its result: a transfer for the answer, and NAS for
// the 5G-RG.
type (
	setUpItem struct {
		id            ngap.PDUSessionID
		transfer, nas []byte
	}
	setUpResult struct {
		id            ngap.PDUSessionID
		ok            bool
		transfer, nas []byte
	}
)

// setUp sets up resources, all at once. done gets the results in the order of the items.
func (g *gateway) setUp(items []setUpItem, done func([]setUpResult)) {
	results := make([]setUpResult, len(items))
	left := 1
	finished := func(at int, transfer []byte, ok bool) {
		results[at].transfer, results[at].ok = transfer, ok
		if ok {
			results[at].nas = items[at].nas
		}
		if left--; left == 0 {
			done(results)
		}
	}
	for i, item := range items {
		left++
		results[i].id = item.id
		r, cause := g.newResource(item)
		if r == nil {
			finished(i, unsuccessful(cause), false)
			continue
		}
		r.open(func(err error) {
			if err == nil && !r.removed {
				finished(i, r.response(), true)
				return
			}
			g.service.environment.Log.Warn("a PDU session of a 5G residential gateway has no user plane", "name", r.name(), "error", err)
			r.remove()
			cause := ngap.CauseRadioNetworkRadioResourcesNotAvailable
			if errors.Is(err, wcp.ErrSilent) || errors.Is(err, wcp.ErrRefused) || errors.Is(err, wcp.ErrClosed) {
				cause = ngap.CauseRadioNetworkFailureInRadioInterfaceProcedure
			}
			finished(i, unsuccessful(cause), false)
		})
	}
	if left--; left == 0 {
		done(results)
	}
}

var pduSessionTypes = map[ngap.PDUSessionType]uint8{ngap.PDUSessionTypeIpv4: nas.PDUSessionIPv4, ngap.PDUSessionTypeIpv6: nas.PDUSessionIPv6,
	ngap.PDUSessionTypeIpv4v6: nas.PDUSessionIPv4v6, ngap.PDUSessionTypeEthernet: nas.PDUSessionEthernet}

// newResource reads the core's parameters of a PDU session; nil: it is refused, because of the cause.
func (g *gateway) newResource(item setUpItem) (*resource, ngap.CauseRadioNetwork) {
	_, of, _ := g.service.agfOf(g.peer.Profile)
	switch {
	case item.id < 1 || item.id > 15 || of == nil:
		return nil, ngap.CauseRadioNetworkUnknownPDUSessionID
	case g.sessions[uint8(item.id)] != nil:
		return nil, ngap.CauseRadioNetworkMultiplePDUSessionIDInstances
	}
	var m ngap.PDUSessionResourceSetupRequestTransfer
	if !decodes(item.transfer, &m) || pduSessionTypes[m.PDUSessionType] == 0 || len(m.QosFlowSetupRequestList) == 0 {
		return nil, ngap.CauseRadioNetworkUnspecified
	}
	r := &resource{g: g, id: uint8(item.id), kind: pduSessionTypes[m.PDUSessionType], flows: map[uint8]qosflow.Flow{}, marks: qosflow.Marks(of.Markings),
		group: of.QosGroup, groupUp: of.QosGroupUp}
	r.local, _ = netip.ParseAddr(of.CoreAddress)
	if !r.setRemote(&m.ULNGUUPTNLInformation) {
		return nil, ngap.CauseRadioNetworkUnspecified
	}
	for i := range m.QosFlowSetupRequestList {
		f := &m.QosFlowSetupRequestList[i]
		if f.QosFlowIdentifier < 0 || f.QosFlowIdentifier > 63 {
			return nil, ngap.CauseRadioNetworkUnkownQosFlowID
		}
		if _, twice := r.flows[uint8(f.QosFlowIdentifier)]; twice {
			return nil, ngap.CauseRadioNetworkMultipleQosFlowIDInstances
		}
		r.flows[uint8(f.QosFlowIdentifier)] = qosflow.Of(f.QosFlowIdentifier, &f.QosFlowLevelQosParameters)
	}
	r.setAMBR(m.PDUSessionAggregateMaximumBitRate)
	if r.fiveWE = g.service.gateways.fiveWE.take(g.peer.Line.Circuit); r.fiveWE == 0 {
		return nil, ngap.CauseRadioNetworkRadioResourcesNotAvailable
	}
	r.teid = g.service.newTEID(nil)
	g.sessions[r.id] = r
	return r, 0
}

func (r *resource) setAMBR(a *ngap.PDUSessionAggregateMaximumBitRate) {
	if a != nil {
		r.ambr = nas.AMBR{Down: qosflow.Rate(a.PDUSessionAggregateMaximumBitRateDL), Up: qosflow.Rate(a.PDUSessionAggregateMaximumBitRateUL)}
	}
}

// setRemote takes the UPF's end. It must be of the family of ours.
func (r *resource) setRemote(u *ngap.UPTransportLayerInformation) bool {
	far := u.GTPTunnel
	if far == nil || len(far.GTPTEID) != 4 {
		return false
	}
	octets := far.TransportLayerAddress.Octets
	switch bits := far.TransportLayerAddress.Count; {
	case bits == 160 && r.local.Is4():
		// Both families: IPv4 first (TS 38.414 section 5.1).
		octets = octets[:4]
	case bits == 160:
		octets = octets[4:20]
	case bits != r.local.BitLen():
		return false
	}
	remote, ok := netip.AddrFromSlice(octets)
	teid := binary.BigEndian.Uint32(far.GTPTEID)
	if !ok || teid == 0 || remote.IsUnspecified() || remote.IsMulticast() {
		return false
	}
	r.remote, r.remoteTEID = remote, teid
	return true
}

// response has our end of the tunnel, for the UPF.
func (r *resource) response() []byte {
	flows := ngap.QosFlowPerTNLInformation{UPTransportLayerInformation: ngap.UPTransportLayerInformation{GTPTunnel: &ngap.GTPTunnel{
		TransportLayerAddress: per.BitString{Octets: r.local.AsSlice(), Count: r.local.BitLen()}, GTPTEID: binary.BigEndian.AppendUint32(nil, r.teid)}}}
	for _, f := range qosflow.Sorted(r.flows) {
		flows.AssociatedQosFlowList = append(flows.AssociatedQosFlowList, ngap.AssociatedQosFlowItem{QosFlowIdentifier: ngap.QosFlowIdentifier(f.QFI)})
	}
	transfer, err := ngap.EncodeTransfer(&ngap.PDUSessionResourceSetupResponseTransfer{DLQosFlowPerTNLInformation: flows})
	if err != nil {
		r.g.service.environment.Log.Error("a transfer cannot be encoded", "error", err)
	}
	return transfer
}

// ofGuaranteedType: the 5QI is of a resource type with a guaranteed bit rate (TS 23.501 table 5.7.4-1).
func ofGuaranteedType(fiveQI uint32) bool {
	return fiveQI >= 1 && fiveQI <= 4 || fiveQI >= 65 && fiveQI <= 67 || fiveQI >= 71 && fiveQI <= 76 || fiveQI >= 82 && fiveQI <= 90
}

// defaultQFI is of packets without a QFI of their own: the first flow that has no guaranteed bit rate, as the flow of the default QoS rule has none
// (TS 23.501 section 5.7.2.7).
func defaultQFI(flows []qosflow.Flow) uint8 {
	for _, f := range flows {
		if !f.Guaranteed() && !ofGuaranteedType(f.FiveQI) {
			return f.QFI
		}
	}
	return flows[0].QFI
}

// announcement describes the resource to the 5G-RG.
func (r *resource) announcement() wcp.Resource {
	flows := qosflow.Sorted(r.flows)
	first := defaultQFI(flows)
	qfis := []uint8{first}
	for _, f := range flows {
		if f.QFI != first {
			qfis = append(qfis, f.QFI)
		}
	}
	return wcp.Resource{PDUSession: r.id, Type: r.kind, FiveWE: r.fiveWE, QFIs: qfis}
}

// open gives the resource to the data plane, and then to the 5G-RG.
func (r *resource) open(done func(error)) {
	r.g.share(r)
	r.apply(func(err error) {
		if err == nil && !r.removed {
			err = r.g.wcp.Tell(wcp.KindSetUp, r.announcement(), done)
			if err == nil {
				r.g.settle()
				return
			}
		}
		done(err)
	})
}

func (s *agf) unuse(keys []object.Key) {
	for _, key := range keys {
		s.shared.Release(key)
	}
}

// together tells whether the subscriber's rate limits the 5G-RG's PDU sessions together.
func (g *gateway) together() (up, down bool) {
	var all []nas.AMBR
	for _, r := range g.sessions {
		all = append(all, r.ambr)
	}
	return qosflow.Together(g.ambr, all)
}

// share applies to the PDU sessions, but one that is applied anyway, that the subscriber's rate is shared from now on, or is not.
func (g *gateway) share(but *resource) {
	up, down := g.together()
	for _, r := range g.sessions {
		if r != but && r.applied > 0 && !r.removed && (r.togetherUp != up || r.togetherDown != down) {
			r.apply(r.complain)
		}
	}
}

// complain logs the error of a change that no caller waits for.
func (r *resource) complain(err error) {
	if err != nil && !r.removed {
		r.g.service.environment.Log.Warn("a PDU session of a 5G residential gateway keeps its old rates", "name", r.name(), "error", err)
	}
}

// apply makes the data plane's Session what the resource says. done gets what became of it, or of what the resource says by then.
func (r *resource) apply(done func(error)) {
	s := r.g.service
	r.applied++
	r.waiting = append(r.waiting, done)
	r.before, r.used = append(r.before, r.used...), nil
	r.togetherUp, r.togetherDown = r.g.together()
	of := qosflow.Limit(&qosflow.Aggregates{Session: r.ambr, Subscriber: r.g.ambr, TogetherUp: r.togetherUp, TogetherDown: r.togetherDown,
		SessionID: r.name(), SubscriberID: "rg-" + r.g.peer.ID, Name: nameOf}, r.flows)
	// Frames have no source that the gateway could look at.
	policy := &api.Policy{AnySource: !r.frames()}
	// A Session that came to the data plane before an object that it names would wait there.
	left, now := 1, r.applied
	ready := func() {
		if left--; left == 0 && now == r.applied {
			r.put(policy)
		}
	}
	use := func(kind, name string, spec proto.Message) string {
		left++
		r.used = append(r.used, object.Key{Kind: kind, Name: name})
		s.shared.TakeAs(kind, name, spec, ready)
		return name
	}
	for _, one := range of.Meters {
		use("Meter", one.Name, one.Spec)
	}
	// The 5G-RG chooses the QFI of uplink packets.
	if profile := qosflow.Profile(nil, r.flows, r.marks, &of); qosflow.Needed(profile, &of) {
		policy.FlowProfile = use("FlowProfile", nameOf(profile, ""), profile)
	}
	for _, one := range []struct {
		rate uint64
		name *string
	}{{of.Up, &policy.MeterUp}, {of.Down, &policy.MeterDown}} {
		if one.rate != 0 {
			spec := qosflow.MeterOf(one.rate)
			*one.name = use("Meter", nameOf(spec, ""), spec)
		}
	}
	r.queue(policy, &of, use)
	ready()
}

// queue has queues keep what is guaranteed. A session of frames has none.
func (r *resource) queue(policy *api.Policy, of *qosflow.Limits, use func(kind, name string, spec proto.Message) string) {
	if r.frames() {
		return
	}
	if r.group != "" {
		if queues := qosflow.Queues(r.flows, r.marks, of.Aggregate.Down, false); queues != nil {
			policy.QosProfile, policy.QosGroup = use("QosProfile", nameOf(queues, ""), queues), r.group
		}
	}
	if r.groupUp != "" {
		if queues := qosflow.Queues(r.flows, r.marks, of.Aggregate.Up, true); queues != nil {
			policy.QosProfileUp, policy.QosGroupUp = use("QosProfile", nameOf(queues, ""), queues), r.groupUp
		}
	}
}

// put gives the Session to the data plane.
func (r *resource) put(policy *api.Policy) {
	s, line, now := r.g.service, &r.g.peer.Line, r.applied
	spec := &api.Session{Policy: policy,
		Access: &api.Access{Port: line.Port, OuterVlan: uint32(line.OuterVLAN), InnerVlan: uint32(line.InnerVLAN), Mac: line.MAC.String(), FiveWeSessionId: uint32(r.fiveWE)},
		Core: &api.Session_Gtpu{Gtpu: &api.Gtpu{LocalAddress: r.local.String(), LocalTeid: r.teid, RemoteAddress: r.remote.String(), RemoteTeid: r.remoteTEID,
			PduSessionContainer: true, Qfi: uint32(defaultQFI(qosflow.Sorted(r.flows))), Ethernet: r.frames()}}}
	r.made = true
	end := farEndOf(r.remote, r.remoteTEID)
	s.environment.Objects.Put(&object.Object{Kind: "Session", Name: r.name(), Spec: spec}, func(result service.Result) {
		s.do(func() {
			err := r.took(spec, end, result)
			if now == r.applied {
				r.settled(err)
			}
		})
	})
}

// took takes the data plane's result for a Session: until it forwards into another tunnel, error indications are about the one before.
func (r *resource) took(spec *api.Session, end farEnd, result service.Result) error {
	switch {
	case result.Err != nil:
		return result.Err
	// An unchanged session is not put again.
	case !result.Done && !proto.Equal(spec, r.forwarding):
		return errNotForwarding
	}
	r.forwarding = spec
	if !r.removed {
		r.g.service.moveEnd(r, &r.end, end)
	}
	return nil
}

// unnamed returns the earlier objects once the data plane's Session does not name them any more. After a failed change it still does.
func (r *resource) unnamed(err error) []object.Key {
	if err != nil && !r.removed {
		return nil
	}
	keys := r.before
	r.before = nil
	return keys
}

// settled ends apply.
func (r *resource) settled(err error) {
	r.g.service.unuse(r.unnamed(err))
	waiting := r.waiting
	r.waiting = nil
	for _, done := range waiting {
		done(err)
	}
}

// remove takes the user plane away.
func (r *resource) remove() {
	if r.removed {
		return
	}
	r.removed = true
	s := r.g.service
	if r.made {
		s.environment.Objects.Delete(object.Key{Kind: "Session", Name: r.name()}, nil)
	}
	s.unuse(r.used)
	r.used = nil
	s.gateways.fiveWE.give(r.g.peer.Line.Circuit, r.fiveWE)
	delete(s.teids, r.teid)
	s.moveEnd(r, &r.end, farEnd{})
	delete(r.g.sessions, r.id)
	// Changes that are under way have no effect any more.
	r.applied++
	r.settled(errNotForwarding)
	if !r.g.gone {
		r.g.share(nil)
	}
}

// ---- Procedures of NGAP (TS 38.413 section 8.2)

// setUpContext answers INITIAL CONTEXT SETUP REQUEST once the 5G-RG is ready.
func (g *gateway) setUpContext() {
	m := g.context
	if m == nil || g.settingUp {
		return
	}
	g.settingUp = true
	items := make([]setUpItem, 0, len(m.PDUSessionResourceSetupListCxtReq))
	for _, i := range m.PDUSessionResourceSetupListCxtReq {
		items = append(items, setUpItem{i.PDUSessionID, i.PDUSessionResourceSetupRequestTransfer, i.NASPDU})
	}
	g.setUp(items, func(results []setUpResult) {
		g.settingUp = false
		g.finish(func() {
			g.context = nil
			g.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
				answer := &ngap.InitialContextSetupResponse{AMFUENGAPID: amf, RANUENGAPID: ran}
				for _, r := range results {
					if r.ok {
						answer.PDUSessionResourceSetupListCxtRes = append(answer.PDUSessionResourceSetupListCxtRes, ngap.PDUSessionResourceSetupItemCxtRes{
							PDUSessionID: r.id, PDUSessionResourceSetupResponseTransfer: r.transfer})
					} else {
						answer.PDUSessionResourceFailedToSetupListCxtRes = append(answer.PDUSessionResourceFailedToSetupListCxtRes,
							ngap.PDUSessionResourceFailedToSetupItemCxtRes{PDUSessionID: r.id, PDUSessionResourceSetupUnsuccessfulTransfer: r.transfer})
					}
				}
				return answer
			})
			g.nas(m.NASPDU)
			for _, r := range results {
				g.nas(r.nas)
			}
		})
	})
}

func (g *gateway) setUpRequest(m *ngap.PDUSessionResourceSetupRequest) {
	items := make([]setUpItem, 0, len(m.PDUSessionResourceSetupListSUReq))
	for _, i := range m.PDUSessionResourceSetupListSUReq {
		items = append(items, setUpItem{i.PDUSessionID, i.PDUSessionResourceSetupRequestTransfer, i.PDUSessionNASPDU})
	}
	g.busy = true
	g.setUp(items, func(results []setUpResult) {
		g.finish(func() {
			g.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
				answer := &ngap.PDUSessionResourceSetupResponse{AMFUENGAPID: amf, RANUENGAPID: ran}
				for _, r := range results {
					if r.ok {
						answer.PDUSessionResourceSetupListSURes = append(answer.PDUSessionResourceSetupListSURes, ngap.PDUSessionResourceSetupItemSURes{
							PDUSessionID: r.id, PDUSessionResourceSetupResponseTransfer: r.transfer})
					} else {
						answer.PDUSessionResourceFailedToSetupListSURes = append(answer.PDUSessionResourceFailedToSetupListSURes,
							ngap.PDUSessionResourceFailedToSetupItemSURes{PDUSessionID: r.id, PDUSessionResourceSetupUnsuccessfulTransfer: r.transfer})
					}
				}
				return answer
			})
			g.nas(m.NASPDU)
			for _, r := range results {
				g.nas(r.nas)
			}
		})
	})
}

// withdraw takes a resource away. The 5G-RG hears of it.
func (g *gateway) withdraw(r *resource) {
	_ = g.wcp.Tell(wcp.KindRelease, wcp.Resource{PDUSession: r.id}, func(error) {})
	r.remove()
}

// releaseCommand releases resources. It informs the 5G-RG; the answer does not wait for it.
func (g *gateway) releaseCommand(m *ngap.PDUSessionResourceReleaseCommand) {
	for _, item := range m.PDUSessionResourceToReleaseListRelCmd {
		if r := g.sessions[uint8(item.PDUSessionID)]; r != nil && item.PDUSessionID < 16 {
			g.withdraw(r)
		}
	}
	g.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
		answer := &ngap.PDUSessionResourceReleaseResponse{AMFUENGAPID: amf, RANUENGAPID: ran}
		for _, item := range m.PDUSessionResourceToReleaseListRelCmd {
			transfer, _ := ngap.EncodeTransfer(&ngap.PDUSessionResourceReleaseResponseTransfer{})
			answer.PDUSessionResourceReleasedListRelRes = append(answer.PDUSessionResourceReleasedListRelRes, ngap.PDUSessionResourceReleasedItemRelRes{
				PDUSessionID: item.PDUSessionID, PDUSessionResourceReleaseResponseTransfer: transfer})
		}
		return answer
	})
	g.nas(m.NASPDU)
}

// modifyRequest changes resources. Each is answered when the data plane and the 5G-RG have the change.
func (g *gateway) modifyRequest(m *ngap.PDUSessionResourceModifyRequest) {
	items := m.PDUSessionResourceModifyListModReq
	answer := &ngap.PDUSessionResourceModifyResponse{}
	left := len(items)
	g.busy = true
	for _, item := range items {
		g.modify(item.PDUSessionID, item.PDUSessionResourceModifyRequestTransfer, func(transfer []byte, cause ngap.CauseRadioNetwork) {
			if transfer != nil {
				answer.PDUSessionResourceModifyListModRes = append(answer.PDUSessionResourceModifyListModRes, ngap.PDUSessionResourceModifyItemModRes{
					PDUSessionID: item.PDUSessionID, PDUSessionResourceModifyResponseTransfer: transfer})
			} else {
				transfer, _ = ngap.EncodeTransfer(&ngap.PDUSessionResourceModifyUnsuccessfulTransfer{Cause: ngap.Cause{RadioNetwork: &cause}})
				answer.PDUSessionResourceFailedToModifyListModRes = append(answer.PDUSessionResourceFailedToModifyListModRes,
					ngap.PDUSessionResourceFailedToModifyItemModRes{PDUSessionID: item.PDUSessionID, PDUSessionResourceModifyUnsuccessfulTransfer: transfer})
			}
			if left--; left > 0 {
				return
			}
			g.finish(func() {
				g.send(func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
					answer.AMFUENGAPID, answer.RANUENGAPID = amf, ran
					return answer
				})
				for _, item := range items {
					g.nas(item.NASPDU)
				}
			})
		})
	}
}

// modify changes a resource. done gets the transfer of the answer, or why the resource stays as it is.
func (g *gateway) modify(id ngap.PDUSessionID, octets []byte, done func(transfer []byte, cause ngap.CauseRadioNetwork)) {
	var r *resource
	if id >= 1 && id <= 15 {
		r = g.sessions[uint8(id)]
	}
	if r == nil {
		done(nil, ngap.CauseRadioNetworkUnknownPDUSessionID)
		return
	}
	var m ngap.PDUSessionResourceModifyRequestTransfer
	if !decodes(octets, &m) {
		done(nil, ngap.CauseRadioNetworkUnspecified)
		return
	}
	before := *r
	r.flows = maps.Clone(r.flows)
	transfer := &ngap.PDUSessionResourceModifyResponseTransfer{}
	for i := range m.QosFlowAddOrModifyRequestList {
		item := &m.QosFlowAddOrModifyRequestList[i]
		_, exists := r.flows[uint8(item.QosFlowIdentifier)]
		if item.QosFlowIdentifier < 0 || item.QosFlowIdentifier > 63 || !exists && item.QosFlowLevelQosParameters == nil {
			cause := ngap.CauseRadioNetworkUnkownQosFlowID
			transfer.QosFlowFailedToAddOrModifyList = append(transfer.QosFlowFailedToAddOrModifyList,
				ngap.QosFlowWithCauseItem{QosFlowIdentifier: item.QosFlowIdentifier, Cause: ngap.Cause{RadioNetwork: &cause}})
			continue
		}
		if item.QosFlowLevelQosParameters != nil {
			r.flows[uint8(item.QosFlowIdentifier)] = qosflow.Of(item.QosFlowIdentifier, item.QosFlowLevelQosParameters)
		}
		transfer.QosFlowAddOrModifyResponseList = append(transfer.QosFlowAddOrModifyResponseList, ngap.QosFlowAddOrModifyResponseItem{QosFlowIdentifier: item.QosFlowIdentifier})
	}
	for _, item := range m.QosFlowToReleaseList {
		if item.QosFlowIdentifier >= 0 && item.QosFlowIdentifier <= 63 {
			delete(r.flows, uint8(item.QosFlowIdentifier))
		}
	}
	back := func() {
		r.flows, r.ambr, r.remote, r.remoteTEID = before.flows, before.ambr, before.remote, before.remoteTEID
	}
	if len(r.flows) == 0 || len(m.ULNGUUPTNLModifyList) > 0 && !r.setRemote(&m.ULNGUUPTNLModifyList[0].ULNGUUPTNLInformation) {
		back()
		done(nil, ngap.CauseRadioNetworkUnspecified)
		return
	}
	if len(m.ULNGUUPTNLModifyList) > 0 {
		transfer.ULNGUUPTNLInformation = &m.ULNGUUPTNLModifyList[0].ULNGUUPTNLInformation
	}
	r.setAMBR(m.PDUSessionAggregateMaximumBitRate)
	answer, err := ngap.EncodeTransfer(transfer)
	if err != nil {
		back()
		done(nil, ngap.CauseRadioNetworkUnspecified)
		return
	}
	refused := func(err error) {
		g.service.environment.Log.Warn("a PDU session of a 5G residential gateway stays as it is", "name", r.name(), "error", err)
		if !r.removed {
			back()
			r.apply(func(error) {})
		}
		done(nil, ngap.CauseRadioNetworkRadioResourcesNotAvailable)
	}
	g.share(r)
	r.apply(func(err error) {
		if err == nil && !r.removed {
			err = g.wcp.Tell(wcp.KindModify, r.announcement(), func(err error) {
				if err != nil {
					refused(err)
					return
				}
				done(answer, 0)
			})
			g.settle()
			if err == nil {
				return
			}
		}
		refused(err)
	})
}
