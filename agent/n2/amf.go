// SPDX-License-Identifier: Apache-2.0

// Package n2 is the N2 interface of this gateway to a 5G core: an association to each AMF of a pool (TS 38.412), and
// the procedures of NGAP (TS 38.413) that are not of a subscriber. Messages of a subscriber go to the UE that opened
// its context.
package n2

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
)

// Payload protocol identifier and port of NGAP (TS 38.412 section 7).
const (
	payloadProtocol = 60
	defaultPort     = 38412
)

const (
	streams          = 64
	defaultHeartbeat = 5 * time.Second
	// How long an AMF has for the answer to NG SETUP REQUEST, and how long we wait before the next attempt.
	setupTime = 10 * time.Second
	firstWait = 500 * time.Millisecond
	mostWait  = 30 * time.Second
	// How long contexts wait for a lost association.
	retainTime = 30 * time.Second
	// How long an AMF may take to release a context that was closed here.
	closedTime = 30 * time.Second
	// How long an AMF that is new in the configuration counts as one that starts.
	startTime = 15 * time.Second
	// How long contexts of before a restart wait for their owners.
	ownerTime = time.Minute
)

// phase of an AMF.
type phase uint8

const (
	down phase = iota
	connecting
	settingUp
	ready
)

func (p phase) String() string {
	return [...]string{"down", "connecting", "NG setup", "ready"}[p]
}

// transport is an open association.
type transport interface {
	Send(stream uint16, protocol uint32, message []byte) error
	Abort()
}

// guami is a globally unique AMF identifier.
type guami struct {
	plmn  nas.PLMN
	amfID uint32 // region, set and pointer: 24 bits
}

// amf is an AMF of a pool. It has no I/O: the service calls it, and carries out its actions.
type amf struct {
	name string
	node string
	spec *api.Amf

	phase phase
	// Since when, and why it is down.
	since  time.Time
	reason string
	// The next attempt, or the end of the current one.
	due     time.Time
	wait    time.Duration
	out     uint16
	assoc   transport
	handler *handler
	// Addresses of the AMF that do not answer heartbeats.
	unreachable map[netip.Addr]bool

	// Until when the first NG setup may be on its way; zero: it was done.
	startUntil time.Time

	// When RAN CONFIGURATION UPDATE is sent again that the AMF refused; zero: it is not.
	announce time.Time

	// Of NG SETUP RESPONSE and AMF CONFIGURATION UPDATE.
	amfName  string
	capacity uint8
	served   []guami
	// GUAMIs that AMF STATUS INDICATION announced as unavailable soon.
	leaving []guami
	plmns   map[nas.PLMN][]slice
	// Of OVERLOAD START: percent of new contexts that go elsewhere; 100: all.
	reduction uint8
	overload  bool
	// The same of single slices.
	overloaded map[slice]uint8

	// UE contexts by RAN UE NGAP ID.
	ues map[int64]*Context
	// Identifiers of contexts that were closed here, until they may be used again: the AMF may still release them.
	closed map[int64]closedContext
	// Identifiers of each NG RESET that the AMF has not acknowledged yet.
	sweeps [][]int64
	// The AMF has no context of before the agent's start but those that the gateway has.
	swept bool
	// Until when contexts wait for the association to come back.
	retainUntil time.Time
}

// closedContext was closed here.
type closedContext struct {
	// When its identifier may be used again.
	until time.Time
	// The AMF releases it by itself, or was asked to. If not, it had not answered yet.
	releasing bool
	// The AMF has ended it.
	confirmed bool
	// It has a record.
	recorded bool
}

type slice struct {
	sst uint8
	sd  string
}

func sliceOf(s *ngap.SNSSAI) slice {
	one := slice{sd: string(s.SD)}
	if len(s.SST) == 1 {
		one.sst = s.SST[0]
	}
	return one
}

func guamiOf(g *ngap.GUAMI) (guami, error) {
	plmn, err := nas.PLMNOf(g.PLMNIdentity)
	if err != nil {
		return guami{}, err
	}
	region, set, pointer := number(g.AMFRegionID), number(g.AMFSetID), number(g.AMFPointer)
	return guami{plmn, region<<16 | set<<6 | pointer}, nil
}

// number is the value of a bit string of up to 32 bits.
func number(b per.BitString) uint32 {
	var octets [4]byte
	copy(octets[:], b.Octets)
	if b.Count > 32 {
		return 0
	}
	return binary.BigEndian.Uint32(octets[:]) >> (32 - b.Count)
}

// bits is a bit string with a value.
func bits(value uint32, count int) per.BitString {
	octets := binary.BigEndian.AppendUint32(nil, value<<(32-count))
	return per.BitString{Octets: octets[:(count+7)/8], Count: count}
}

// supportedAreas are those of NG SETUP REQUEST.
func supportedAreas(n *api.AccessNode) ([]ngap.SupportedTAItem, error) {
	var areas []ngap.SupportedTAItem
	for _, area := range n.TrackingAreas {
		plmn := nas.PLMN(area.Plmn)
		if plmn == "" {
			plmn = nas.PLMN(n.Plmn)
		}
		octets, err := plmn.Octets()
		if err != nil {
			return nil, err
		}
		item := ngap.BroadcastPLMNItem{PLMNIdentity: octets}
		for _, s := range area.Slices {
			item.TAISliceSupportList = append(item.TAISliceSupportList, ngap.SliceSupportItem{SNSSAI: snssai(s)})
		}
		areas = append(areas, ngap.SupportedTAItem{TAC: tac(area.Tac), BroadcastPLMNList: []ngap.BroadcastPLMNItem{item}})
	}
	return areas, nil
}

func tac(value uint32) []byte { return []byte{byte(value >> 16), byte(value >> 8), byte(value)} }

func snssai(s *api.Slice) ngap.SNSSAI {
	one := ngap.SNSSAI{SST: []byte{byte(s.Sst)}}
	var sd uint32
	if _, err := fmt.Sscanf(s.Sd, "%x", &sd); err == nil && s.Sd != "" {
		one.SD = []byte{byte(sd >> 16), byte(sd >> 8), byte(sd)}
	}
	return one
}

// nodeName is the RAN Node Name of an AccessNode.
func nodeName(name string, n *api.AccessNode) string {
	if n.NodeName != "" {
		return n.NodeName
	}
	return name
}

// setupRequest is NG SETUP REQUEST of a W-AGF or an N3IWF (TS 29.413 sections 5.2 and 5.4). retain: the AMF may keep the contexts that it has.
func setupRequest(name string, n *api.AccessNode, retain bool) (*ngap.NGSetupRequest, error) {
	plmn, err := nas.PLMN(n.Plmn).Octets()
	if err != nil {
		return nil, err
	}
	areas, err := supportedAreas(n)
	if err != nil {
		return nil, err
	}
	name = nodeName(name, n)
	id := bits(n.WagfId, 16)
	node := ngap.GlobalRANNodeID{GlobalWAGFID: &ngap.GlobalWAGFID{PLMNIdentity: plmn, WAGFID: ngap.WAGFID{WAGFID: &id}}}
	if n.N3IwfId != 0 {
		id = bits(n.N3IwfId, 16)
		node = ngap.GlobalRANNodeID{GlobalN3IWFID: &ngap.GlobalN3IWFID{PLMNIdentity: plmn, N3IWFID: ngap.N3IWFID{N3IWFID: &id}}}
	}
	request := &ngap.NGSetupRequest{
		GlobalRANNodeID:  node,
		RANNodeName:      &name,
		SupportedTAList:  areas,
		DefaultPagingDRX: ngap.PagingDRXV128,
	}
	if retain {
		retained := ngap.UERetentionInformationUesRetained
		request.UERetentionInformation = &retained
	}
	return request, nil
}

// setUp takes NG SETUP RESPONSE.
func (a *amf) setUp(r *ngap.NGSetupResponse, now time.Time) error {
	served, err := servedOf(r.ServedGUAMIList)
	if err != nil {
		return err
	}
	a.amfName, a.capacity, a.served, a.leaving = r.AMFName, uint8(r.RelativeAMFCapacity), served, nil
	a.support(r.PLMNSupportList)
	a.phase, a.since, a.reason, a.wait = ready, now, "", 0
	a.overloaded = nil
	a.overload, a.reduction, a.startUntil, a.announce = false, 0, time.Time{}, time.Time{}
	return nil
}

// start takes OVERLOAD START, which replaces an earlier one (section 8.7.7.2).
func (a *amf) start(m *ngap.OverloadStart) {
	a.overload, a.reduction, a.overloaded = false, 0, map[slice]uint8{}
	if m.AMFOverloadResponse != nil || m.AMFTrafficLoadReductionIndication != nil || m.OverloadStartNSSAIList == nil {
		a.overload, a.reduction = true, reductionOf(m.AMFTrafficLoadReductionIndication)
	}
	for _, item := range m.OverloadStartNSSAIList {
		for i := range item.SliceOverloadList {
			a.overloaded[sliceOf(&item.SliceOverloadList[i].SNSSAI)] = reductionOf(item.SliceTrafficLoadReductionIndication)
		}
	}
}

// reductionOf is in percent; without an indication nothing new is permitted.
func reductionOf(indication *ngap.TrafficLoadReductionIndication) uint8 {
	if indication == nil {
		return 100
	}
	return uint8(*indication)
}

// starting: the first NG setup was not done yet, and may be soon.
func (a *amf) starting(now time.Time) bool { return now.Before(a.startUntil) }

func servedOf(list []ngap.ServedGUAMIItem) ([]guami, error) {
	var all []guami
	for i := range list {
		g, err := guamiOf(&list[i].GUAMI)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

func (a *amf) support(list []ngap.PLMNSupportItem) {
	a.plmns = map[nas.PLMN][]slice{}
	for _, item := range list {
		plmn, err := nas.PLMNOf(item.PLMNIdentity)
		if err != nil {
			continue
		}
		for i := range item.SliceSupportList {
			a.plmns[plmn] = append(a.plmns[plmn], sliceOf(&item.SliceSupportList[i].SNSSAI))
		}
	}
}

// update processes AMF CONFIGURATION UPDATE: its lists replace the present ones (section 8.7.3).
func (a *amf) update(u *ngap.AMFConfigurationUpdate) error {
	served := a.served
	if u.ServedGUAMIList != nil {
		var err error
		if served, err = servedOf(u.ServedGUAMIList); err != nil {
			return err
		}
	}
	a.served = served
	if u.AMFName != nil {
		a.amfName = *u.AMFName
	}
	if u.RelativeAMFCapacity != nil {
		a.capacity = uint8(*u.RelativeAMFCapacity)
	}
	if u.PLMNSupportList != nil {
		a.support(u.PLMNSupportList)
	}
	// GUAMIs that are announced again are available (section 8.7.6).
	a.leaving = slices.DeleteFunc(a.leaving, func(g guami) bool { return u.ServedGUAMIList != nil && slices.Contains(served, g) })
	return nil
}

// fail ends an attempt or an association. The next attempt comes after a wait that grows.
func (a *amf) fail(reason string, now time.Time) {
	if a.phase == ready {
		a.wait = 0
	}
	a.wait = min(max(2*a.wait, firstWait), mostWait)
	if a.phase != down {
		a.since = now
	}
	a.phase, a.reason, a.due, a.assoc, a.handler = down, reason, now.Add(a.wait), nil, nil
}

// weight of the AMF for new contexts; 0: it takes none.
func (a *amf) weight() uint64 { return a.weightFor(nil, false) }

// weightFor: each action of OVERLOAD START permits emergency sessions (section 8.7.7.2).
func (a *amf) weightFor(needed *slice, emergency bool) uint64 {
	if a.phase != ready || len(a.served) > 0 && !slices.ContainsFunc(a.served, func(g guami) bool { return !slices.Contains(a.leaving, g) }) {
		return 0
	}
	weight := uint64(a.capacity)
	if a.spec.Weight != 0 {
		weight = uint64(a.spec.Weight)
	}
	// In hundredths: a reduction leaves the rest.
	weight *= 100
	if a.overload && !emergency {
		weight = weight * uint64(100-a.reduction) / 100
	}
	if needed != nil && !emergency {
		weight = weight * uint64(100-a.overloaded[*needed]) / 100
	}
	return weight
}

func (a *amf) serves(plmn nas.PLMN, needed *slice) bool {
	supported, known := a.plmns[plmn]
	return known && (needed == nil || slices.Contains(supported, *needed))
}

// choose is the AMF for a new context (TS 23.501 section 6.3.5): one that serves a preferred GUAMI, if it is ready; otherwise one of those
// that serve the PLMN and the slice, by weight. random is below 1.
func choose(pool []*amf, plmn nas.PLMN, needed *slice, prefer func(guami) bool, emergency bool, random float64) *amf {
	var total uint64
	for _, a := range pool {
		preferred := func(g guami) bool { return prefer(g) && !slices.Contains(a.leaving, g) }
		if prefer != nil && a.phase == ready && (needed == nil || emergency || a.overloaded[*needed] < 100) && slices.ContainsFunc(a.served, preferred) {
			return a
		}
		if a.serves(plmn, needed) {
			total += a.weightFor(needed, emergency)
		}
	}
	if total == 0 {
		return nil
	}
	at := uint64(random * float64(total))
	for _, a := range pool {
		if !a.serves(plmn, needed) {
			continue
		}
		if at < a.weightFor(needed, emergency) {
			return a
		}
		at -= a.weightFor(needed, emergency)
	}
	return nil
}
