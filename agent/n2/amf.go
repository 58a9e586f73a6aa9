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
	// Close shuts the association down after what was sent.
	Close()
	// Renew: messages from now on are for the association of a peer that started anew.
	Renew()
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
	// Names of backup AMFs by GUAMI.
	backup map[guami]string
	plmns  map[nas.PLMN][]slice
	// Of AMF CONFIGURATION UPDATE: the association is not for UEs, or has no weight.
	notForUEs, weightless bool
	// Of OVERLOAD START; nil: the AMF is not overloaded.
	overload *overload
	// The same of single slices.
	overloaded map[slice]overload

	counts counts

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
	served, backup, err := servedOf(r.ServedGUAMIList)
	if err != nil {
		return err
	}
	a.amfName, a.capacity, a.served, a.backup, a.leaving = r.AMFName, uint8(r.RelativeAMFCapacity), served, backup, nil
	a.support(r.PLMNSupportList)
	a.phase, a.since, a.reason, a.wait = ready, now, "", 0
	a.overloaded, a.notForUEs, a.weightless = nil, false, false
	a.overload, a.startUntil, a.announce = nil, time.Time{}, time.Time{}
	return nil
}

// start takes OVERLOAD START, which replaces an earlier one (section 8.7.7.2).
func (a *amf) start(m *ngap.OverloadStart) {
	a.overload, a.overloaded = nil, map[slice]overload{}
	if m.AMFOverloadResponse != nil || m.AMFTrafficLoadReductionIndication != nil || m.OverloadStartNSSAIList == nil {
		o := overloadOf(m.AMFOverloadResponse, m.AMFTrafficLoadReductionIndication)
		a.overload = &o
	}
	for _, item := range m.OverloadStartNSSAIList {
		for i := range item.SliceOverloadList {
			a.overloaded[sliceOf(&item.SliceOverloadList[i].SNSSAI)] = overloadOf(item.SliceOverloadResponse, item.SliceTrafficLoadReductionIndication)
		}
	}
}

// starting: the first NG setup was not done yet, and may be soon.
func (a *amf) starting(now time.Time) bool { return now.Before(a.startUntil) }

// servedOf are the GUAMIs of a list, and the names of their backup AMFs.
func servedOf(list []ngap.ServedGUAMIItem) (all []guami, backup map[guami]string, err error) {
	backup = map[guami]string{}
	for i := range list {
		g, err := guamiOf(&list[i].GUAMI)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, g)
		if name := list[i].BackupAMFName; name != nil {
			backup[g] = *name
		}
	}
	return all, backup, nil
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
	if u.ServedGUAMIList != nil {
		served, backup, err := servedOf(u.ServedGUAMIList)
		if err != nil {
			return err
		}
		a.served, a.backup = served, backup
	}
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
	a.leaving = slices.DeleteFunc(a.leaving, func(g guami) bool { return u.ServedGUAMIList != nil && slices.Contains(a.served, g) })
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
func (a *amf) weight() uint64 {
	switch {
	case !a.takesUEs() || a.leaves():
		return 0
	case a.spec.Weight != 0:
		return uint64(a.spec.Weight)
	}
	return uint64(a.capacity)
}

// takesNone reports whether the AMF gets no new subscribers: it is overloaded or leaves.
func (a *amf) takesNone() bool {
	return a.weight() == 0 || a.refusal(nil, ngap.RRCEstablishmentCauseMoSignalling) >= 100
}

// refusal is the percentage of new contexts that an overloaded AMF must not get (section 8.7.7.2).
func (a *amf) refusal(needed *slice, cause ngap.RRCEstablishmentCause) (percent uint8) {
	if a.overload != nil && a.overload.refuses(cause) {
		percent = a.overload.reduction
	}
	if needed == nil {
		return percent
	}
	if o, is := a.overloaded[*needed]; is && o.refuses(cause) {
		percent = max(percent, o.reduction)
	}
	return percent
}

// overload is what OVERLOAD START says of an AMF, or of a slice. action nil: the AMF names none.
type overload struct {
	action *ngap.OverloadAction
	// In percent; 100: none of these contexts is permitted.
	reduction uint8
}

func overloadOf(response *ngap.OverloadResponse, indication *ngap.TrafficLoadReductionIndication) overload {
	o := overload{reduction: 100}
	if response != nil {
		o.action = response.OverloadAction
	}
	if indication != nil {
		o.reduction = uint8(*indication)
	}
	return o
}

// refuses reports whether the action is about contexts for a cause. Each action permits emergencies. Without an action, all others are meant.
func (o overload) refuses(cause ngap.RRCEstablishmentCause) bool {
	if cause == ngap.RRCEstablishmentCauseEmergency {
		return false
	}
	if o.action == nil {
		return true
	}
	switch *o.action {
	case ngap.OverloadActionRejectNonEmergencyMoDt, ngap.OverloadActionRejectRrcCrSignalling:
		switch cause {
		case ngap.RRCEstablishmentCauseMoData, ngap.RRCEstablishmentCauseMoSMS, ngap.RRCEstablishmentCauseMoVideoCall, ngap.RRCEstablishmentCauseMoVoiceCall:
			return true
		case ngap.RRCEstablishmentCauseMoSignalling:
			return *o.action == ngap.OverloadActionRejectRrcCrSignalling
		}
		return false
	case ngap.OverloadActionPermitHighPrioritySessionsAndMobileTerminatedServicesOnly:
		switch cause {
		case ngap.RRCEstablishmentCauseHighPriorityAccess, ngap.RRCEstablishmentCauseMpsPriorityAccess, ngap.RRCEstablishmentCauseMcsPriorityAccess:
			return false
		}
	}
	return cause != ngap.RRCEstablishmentCauseMtAccess
}

func (a *amf) serves(plmn nas.PLMN, needed *slice) bool {
	supported, known := a.plmns[plmn]
	return known && (needed == nil || slices.Contains(supported, *needed))
}

// demand is what a new context needs of an AMF.
type demand struct {
	plmn   nas.PLMN
	needed *slice // nil: any
	cause  ngap.RRCEstablishmentCause
	// Which AMFs are preferred, the best first. only: no other one will do.
	prefer []func(*amf) bool
	only   bool
	// The AMFs that are preferred among all others; nil: none.
	near func(*amf) bool
}

// choose is the AMF for a new context (TS 23.501 section 6.3.5): by weight one of those that are preferred; otherwise one of those that
// serve the PLMN and the slice. An overloaded AMF gets its part of the contexts, and the others the rest. overloaded: an AMF did not get it for
// this reason. random is from 0 to below 1.
func choose(pool []*amf, d demand, random func() float64) (chosen *amf, overloaded bool) {
	left := slices.DeleteFunc(slices.Clone(pool), func(a *amf) bool { return !a.takesUEs() })
	usable := func(a *amf) bool { return a.weight() > 0 && a.serves(d.plmn, d.needed) }
	passes := d.prefer
	if !d.only && d.near != nil {
		passes = append(slices.Clone(passes), func(a *amf) bool { return usable(a) && d.near(a) })
	}
	if !d.only {
		passes = append(slices.Clone(passes), usable)
	}
	for _, suits := range passes {
		for {
			a := byWeight(left, suits, random)
			if a == nil {
				break
			}
			percent := a.refusal(d.needed, d.cause)
			if percent == 0 || percent < 100 && random() >= float64(percent)/100 {
				return a, overloaded
			}
			overloaded = true
			left = slices.DeleteFunc(left, func(other *amf) bool { return other == a })
		}
	}
	return nil, overloaded
}

// byWeight is one of the AMFs that suit; nil: none does. Without a weight they are equal.
func byWeight(all []*amf, suits func(*amf) bool, random func() float64) *amf {
	var those []*amf
	var total uint64
	for _, a := range all {
		if suits(a) {
			those = append(those, a)
			total += a.weight()
		}
	}
	if len(those) == 0 {
		return nil
	}
	if total == 0 {
		return those[0]
	}
	at := uint64(random() * float64(total))
	for _, a := range those {
		if at < a.weight() {
			return a
		}
		at -= a.weight()
	}
	return those[len(those)-1]
}
