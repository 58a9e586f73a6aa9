// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	mathbits "math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
	"sluice.dev/sluice/agent/sctp"
)

// core is the network: associations that are up at once, and the messages sent on them.
type core struct {
	t      testing.TB
	opened []*wire
}

type wire struct {
	handler sctp.Handler
	config  sctp.Config
	sent    []sent
	aborted bool
	closed  bool
	// Messages from before the peer started anew.
	old []sent
}

type sent struct {
	stream uint16
	pdu    *ngap.PDU
}

func (c *core) Open(config sctp.Config, h sctp.Handler) (transport, error) {
	w := &wire{handler: h, config: config}
	c.opened = append(c.opened, w)
	return w, nil
}

func (w *wire) Send(stream uint16, _ uint32, message []byte) error {
	pdu, err := ngap.Decode(message)
	if err != nil {
		return err
	}
	w.sent = append(w.sent, sent{stream, pdu})
	return nil
}

func (w *wire) Abort() { w.aborted = true }
func (w *wire) Close() { w.closed = true }
func (w *wire) Renew() { w.old, w.sent = append(w.old, w.sent...), nil }

func (w *wire) receive(t testing.TB, message any) {
	t.Helper()
	octets, err := ngap.Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	w.handler.Message(0, payloadProtocol, octets)
}

func (w *wire) last() any {
	if len(w.sent) == 0 {
		return nil
	}
	return w.sent[len(w.sent)-1].pdu.Value
}

var testPLMN = []byte{0x00, 0xf1, 0x10}

func testGUAMI(pointer uint32) ngap.GUAMI {
	return ngap.GUAMI{PLMNIdentity: testPLMN, AMFRegionID: bits(1, 8), AMFSetID: bits(1, 10), AMFPointer: bits(pointer, 6)}
}

func response(name string, pointer uint32, capacity int64) *ngap.NGSetupResponse {
	return &ngap.NGSetupResponse{AMFName: name, ServedGUAMIList: []ngap.ServedGUAMIItem{{GUAMI: testGUAMI(pointer)}},
		RelativeAMFCapacity: ngap.RelativeAMFCapacity(capacity),
		PLMNSupportList:     []ngap.PLMNSupportItem{{PLMNIdentity: testPLMN, SliceSupportList: []ngap.SliceSupportItem{{SNSSAI: ngap.SNSSAI{SST: []byte{1}}}}}}}
}

type bed struct {
	*Service
	core *core
	now  time.Time
}

func newBed(t testing.TB, amfs ...string) *bed {
	b := &bed{newService(slog.New(slog.DiscardHandler), func() float64 { return 0.5 }), &core{t: t}, time.Now()}
	b.connect(b.core, "")
	b.nodes["agf"] = &api.AccessNode{Plmn: "00101", WagfId: 7, TrackingAreas: []*api.TrackingArea{{Tac: 1, Slices: []*api.Slice{{Sst: 1}}}}}
	for _, name := range amfs {
		b.amf(name, &api.Amf{Node: "agf", Addresses: []string{"192.0.2.1"}}, b.now)
	}
	b.Tick(b.now)
	return b
}

// readyBed has AMFs with equal capacity.
func readyBed(t testing.TB, amfs ...string) *bed {
	b := newBed(t, amfs...)
	for i, w := range b.core.opened {
		w.handler.Up(8, 8)
		w.receive(t, response("amf", uint32(i), 50))
	}
	return b
}

func (b *bed) wireOf(name string) *wire { return b.amfs[name].assoc.(*wire) }

// ue records its messages.
type ue struct {
	got  []any
	lost string
}

func (u *ue) Receive(message any) { u.got = append(u.got, message) }
func (u *ue) Lost(reason string)  { u.lost = reason }

func TestNGSetupNamesTheNodeAndMakesTheAMFReady(t *testing.T) {
	b := newBed(t, "one")
	w := b.wireOf("one")
	w.handler.Up(8, 8)
	request, ok := w.last().(*ngap.NGSetupRequest)
	if !ok || request.GlobalRANNodeID.GlobalWAGFID == nil || number(*request.GlobalRANNodeID.GlobalWAGFID.WAGFID.WAGFID) != 7 {
		t.Fatalf("%+v", request)
	}
	w.receive(t, response("amf", 1, 50))
	if b.amfs["one"].phase != ready || b.amfs["one"].amfName != "amf" {
		t.Errorf("%+v", b.amfs["one"])
	}
}

func TestANodeWithAnN3IWFIdentifierIsAnN3IWF(t *testing.T) {
	request, err := setupRequest("wifi", &api.AccessNode{Plmn: "00101", N3IwfId: 9, TrackingAreas: []*api.TrackingArea{{Tac: 1, Slices: []*api.Slice{{Sst: 1}}}}}, false)
	if err != nil || request.GlobalRANNodeID.GlobalWAGFID != nil || number(*request.GlobalRANNodeID.GlobalN3IWFID.N3IWFID.N3IWFID) != 9 {
		t.Errorf("%+v %v", request, err)
	}
}

func TestAnAMFThatRefusesIsAskedAgainAfterItsTimeToWait(t *testing.T) {
	b := newBed(t, "one")
	w := b.wireOf("one")
	w.handler.Up(8, 8)
	five := ngap.TimeToWaitV5s
	w.receive(t, &ngap.NGSetupFailure{Cause: miscCause(ngap.CauseMiscUnspecified), TimeToWait: &five})
	a := b.amfs["one"]
	if a.phase != down || !w.aborted || a.due.Before(b.now.Add(5*time.Second)) {
		t.Errorf("%+v", a)
	}
	b.Tick(b.now.Add(4 * time.Second))
	if a.phase != down {
		t.Error("asked too early")
	}
	b.Tick(a.due)
	if a.phase != connecting || len(b.core.opened) != 2 {
		t.Errorf("%+v", a)
	}
	// Late messages of the first association are ignored.
	w.handler.Down("late")
	if a.phase != connecting {
		t.Error("an abandoned association ended another one")
	}
}

func TestAnAMFThatDoesNotAnswerIsAskedAgainLaterAndLater(t *testing.T) {
	b := newBed(t, "one")
	a := b.amfs["one"]
	var waits []time.Duration
	for range 4 {
		now := a.due
		b.Tick(now)
		waits = append(waits, a.due.Sub(now))
		now = a.due
		b.Tick(now)
	}
	for i := 1; i < len(waits); i++ {
		if waits[i] < waits[i-1] {
			t.Error(waits)
		}
	}
}

func TestNewContextsAreSharedByWeight(t *testing.T) {
	b := readyBed(t, "one", "two")
	b.amfs["one"].capacity, b.amfs["two"].capacity = 10, 30
	count := map[string]int{}
	for i := range 100 {
		b.random = func() float64 { return float64(i) / 100 }
		c, err := b.Open("agf", &api.Slice{Sst: 1}, nil, &ue{})
		if err != nil {
			t.Fatal(err)
		}
		count[c.AMF()]++
	}
	if count["one"] != 25 || count["two"] != 75 {
		t.Error(count)
	}
	// The operator's weight goes before the AMF's capacity.
	b.amfs["one"].spec = &api.Amf{Node: "agf", Weight: 1000}
	b.random = func() float64 { return 0.9 }
	if c, err := b.Open("", nil, nil, &ue{}); err != nil || c.AMF() != "one" {
		t.Error(c, err)
	}
}

func TestAGUTIChoosesItsAMFUnlessItLeaves(t *testing.T) {
	b := readyBed(t, "one", "two")
	served := map[string]guami{}
	for name, a := range b.amfs {
		served[name] = a.served[0]
	}
	for name, g := range served {
		guti := nas.GUTI{PLMN: g.plmn, AMFID: g.amfID}
		if c, err := b.Open("agf", nil, &guti, &ue{}); err != nil || c.AMF() != name {
			t.Error(name, c, err)
		}
	}
	one := served["one"]
	b.wireOf("one").receive(t, &ngap.AMFStatusIndication{UnavailableGUAMIList: []ngap.UnavailableGUAMIItem{{GUAMI: testGUAMI(one.amfID & 63)}}})
	if c, err := b.Open("agf", nil, &nas.GUTI{PLMN: one.plmn, AMFID: one.amfID}, &ue{}); err != nil || c.AMF() != "two" {
		t.Error(c, err)
	}
}

func TestAnOverloadedAMFTakesLessOrNothing(t *testing.T) {
	b := readyBed(t, "one")
	reduction := ngap.TrafficLoadReductionIndication(99)
	w := b.wireOf("one")
	w.receive(t, &ngap.OverloadStart{AMFTrafficLoadReductionIndication: &reduction})
	// Of a hundred new contexts it gets one, also if there is no other AMF, and also those whose 5G-GUTI is its own.
	g := b.amfs["one"].served[0]
	for _, guti := range []*nas.GUTI{nil, {PLMN: g.plmn, AMFID: g.amfID}} {
		taken := 0
		for i := range 100 {
			b.random = func() float64 { return (float64(i) + 0.5) / 100 }
			_, err := b.Open("agf", nil, guti, &ue{})
			if err == nil {
				taken++
			} else if !errors.Is(err, ErrOverloaded) {
				t.Fatal(err)
			}
		}
		if taken != 1 {
			t.Errorf("%d with %v", taken, guti)
		}
	}
	w.receive(t, &ngap.OverloadStart{})
	if _, err := b.Open("agf", nil, nil, &ue{}); !errors.Is(err, ErrNoAMF) {
		t.Error(err)
	}
	w.receive(t, &ngap.OverloadStop{})
	if _, err := b.Open("agf", nil, nil, &ue{}); err != nil {
		t.Error(err)
	}
}

func TestAnAMFThatIsOverloadedForASliceTakesOthers(t *testing.T) {
	b := readyBed(t, "one", "two")
	two := response("amf", 1, 50)
	for _, name := range []string{"one", "two"} {
		b.amfs[name].support(append(two.PLMNSupportList[:0:0], ngap.PLMNSupportItem{PLMNIdentity: testPLMN,
			SliceSupportList: []ngap.SliceSupportItem{{SNSSAI: ngap.SNSSAI{SST: []byte{1}}}, {SNSSAI: ngap.SNSSAI{SST: []byte{2}}}}}))
	}
	overloaded := func(reduction *ngap.TrafficLoadReductionIndication) *ngap.OverloadStart {
		return &ngap.OverloadStart{OverloadStartNSSAIList: []ngap.OverloadStartNSSAIItem{{
			SliceOverloadList: []ngap.SliceOverloadItem{{SNSSAI: ngap.SNSSAI{SST: []byte{2}}}}, SliceTrafficLoadReductionIndication: reduction}}}
	}
	open := func(sst uint32, u UE) (string, error) {
		c, err := b.Open("agf", &api.Slice{Sst: sst}, nil, u)
		if err != nil {
			return "", err
		}
		return c.AMF(), nil
	}
	b.wireOf("one").receive(t, overloaded(nil))
	b.random = func() float64 { return 0 }
	if name, err := open(2, &ue{}); name != "two" {
		t.Error(name, err)
	}
	if name, err := open(1, &ue{}); name != "one" {
		t.Error(name, err)
	}
	b.wireOf("two").receive(t, overloaded(nil))
	if _, err := open(2, &ue{}); !errors.Is(err, ErrOverloaded) || !errors.Is(err, ErrNoAMF) {
		t.Error(err)
	}
	if _, err := open(9, &ue{}); errors.Is(err, ErrOverloaded) {
		t.Error(err)
	}
	if _, err := open(2, &emergency{}); err != nil {
		t.Error(err)
	}
	// The Amf still takes subscribers, and a 5G-GUTI does not choose it for this slice.
	if b.amfs["one"].weight() == 0 {
		t.Error("the AMF takes no subscribers")
	}
	g := b.amfs["one"].served[0]
	if _, err := b.Open("agf", &api.Slice{Sst: 2}, &nas.GUTI{PLMN: g.plmn, AMFID: g.amfID}, &ue{}); !errors.Is(err, ErrOverloaded) {
		t.Error(err)
	}
	// A reduction leaves the rest, and the next message replaces the first.
	ninety := ngap.TrafficLoadReductionIndication(90)
	b.wireOf("one").receive(t, overloaded(&ninety))
	if got := b.amfs["one"].refusal(&slice{sst: 2}, ngap.RRCEstablishmentCauseMoSignalling); got != 90 {
		t.Error(got)
	}
	b.wireOf("one").receive(t, &ngap.OverloadStop{})
	if name, err := open(2, &ue{}); name != "one" {
		t.Error(name, err)
	}
}

func TestASliceThatNoAMFServesHasNoContext(t *testing.T) {
	b := readyBed(t, "one")
	if _, err := b.Open("agf", &api.Slice{Sst: 9}, nil, &ue{}); !errors.Is(err, ErrNoAMF) {
		t.Error(err)
	}
	if _, err := b.Open("other", nil, nil, &ue{}); !errors.Is(err, ErrNoAMF) {
		t.Error(err)
	}
}

func TestMessagesGoToTheUEWhoseIdentifierTheyHave(t *testing.T) {
	b := readyBed(t, "one")
	w, first, second := b.wireOf("one"), &ue{}, &ue{}
	one, _ := b.Open("agf", nil, nil, first)
	two, _ := b.Open("agf", nil, nil, second)
	_, ranOne := one.IDs()
	_, ranTwo := two.IDs()
	down := func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) *ngap.DownlinkNASTransport {
		return &ngap.DownlinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: []byte{1}}
	}
	w.receive(t, down(11, ranOne))
	w.receive(t, down(12, ranTwo))
	if len(first.got) != 1 || len(second.got) != 1 {
		t.Error(first, second)
	}
	if amf, _ := one.IDs(); amf != 11 {
		t.Error(amf)
	}
	// An unknown context, and one with another identifier of the AMF.
	w.receive(t, down(13, 999))
	if e, ok := w.last().(*ngap.ErrorIndication); !ok || *e.Cause.RadioNetwork != ngap.CauseRadioNetworkUnknownLocalUENGAPID {
		t.Errorf("%+v", w.last())
	}
	w.receive(t, down(14, ranOne))
	if e, ok := w.last().(*ngap.ErrorIndication); !ok || *e.Cause.RadioNetwork != ngap.CauseRadioNetworkInconsistentRemoteUENGAPID || first.lost == "" {
		t.Errorf("%+v %q", w.last(), first.lost)
	}
	// The AMF ends the other one.
	w.receive(t, &ngap.UEContextReleaseCommand{UENGAPIDs: ngap.UENGAPIDs{UENGAPIDPair: &ngap.UENGAPIDPair{AMFUENGAPID: 12, RANUENGAPID: ranTwo}},
		Cause: radioCause(ngap.CauseRadioNetworkUnspecified)})
	if _, ok := w.last().(*ngap.UEContextReleaseComplete); !ok || second.lost == "" || len(b.amfs["one"].ues) != 0 {
		t.Errorf("%+v %+v", w.last(), second)
	}
}

// faulty panics at each message.
type faulty struct{ ue }

func (f *faulty) Receive(message any) { panic("a mistake") }
func (f *faulty) Lost(reason string)  { f.lost = reason; panic("and another one") }

func TestAMistakeOfOneUECostsItsContextAlone(t *testing.T) {
	b := readyBed(t, "one")
	w, bad, good := b.wireOf("one"), &faulty{}, &ue{}
	one, _ := b.Open("agf", nil, nil, bad)
	two, _ := b.Open("agf", nil, nil, good)
	for i, c := range []*Context{one, two} {
		_, ran := c.IDs()
		w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: ngap.AMFUENGAPID(11 + i), RANUENGAPID: ran, NASPDU: []byte{1}})
	}
	if bad.lost == "" || !one.gone || len(good.got) != 1 || good.lost != "" || two.gone {
		t.Errorf("%q %q %v", bad.lost, good.lost, good.got)
	}
}

func TestAContextThatTheAMFDoesNotKnowIsReleased(t *testing.T) {
	b := readyBed(t, "one")
	w := b.wireOf("one")
	for _, cause := range []ngap.CauseRadioNetwork{ngap.CauseRadioNetworkUnknownLocalUENGAPID, ngap.CauseRadioNetworkInconsistentRemoteUENGAPID} {
		erroneous, other := &ue{}, &ue{}
		one, _ := b.Open("agf", nil, nil, erroneous)
		two, _ := b.Open("agf", nil, nil, other)
		_, ranOne := one.IDs()
		_, ranTwo := two.IDs()
		report := func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID, cause ngap.Cause) {
			w.receive(t, &ngap.ErrorIndication{AMFUENGAPID: &amf, RANUENGAPID: &ran, Cause: &cause})
		}
		w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 11, RANUENGAPID: ranOne, NASPDU: []byte{1}})
		w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 12, RANUENGAPID: ranTwo, NASPDU: []byte{1}})
		before := len(w.sent)
		// Another cause, and an identifier of an earlier context.
		report(11, ranOne, radioCause(ngap.CauseRadioNetworkUnspecified))
		report(10, ranOne, radioCause(cause))
		if erroneous.lost != "" {
			t.Fatal(erroneous.lost)
		}
		report(11, ranOne, radioCause(cause))
		if erroneous.lost == "" || other.lost != "" || len(w.sent) != before {
			t.Errorf("%q %q %+v", erroneous.lost, other.lost, w.last())
		}
		// A second report of the same context.
		report(11, ranOne, radioCause(cause))
		if len(b.amfs["one"].ues) != 1 || len(w.sent) != before {
			t.Errorf("%v %+v", b.amfs["one"].ues, w.last())
		}
		two.Close()
	}
}

func TestTheCountersOfAnAMFHaveItsMessagesAndTheNASThatLinesRefuse(t *testing.T) {
	b := readyBed(t, "one", "two")
	c, _, _ := b.connected(t, "two", &ue{})
	c.RefusedNAS(NASReplayed)
	c.RefusedNAS(NASReplayed)
	c.RefusedNAS(NASIntegrity)
	b.wireOf("two").handler.Message(0, payloadProtocol, []byte{0xff})
	of := func(name string) *api.AmfCountersList {
		list, err := b.counters(t.Context(), &api.AmfCountersQuery{Amf: name})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if all := of("").Amfs; len(all) != 2 || all[0].Amf != "one" || all[0].RefusedNas != 0 {
		t.Errorf("%v", all)
	}
	want := &api.AmfCounters{Amf: "two", Contexts: 1, Received: 3, Sent: 2, Unreadable: 1, RefusedNas: 3,
		Refusals: []*api.AmfNasRefusals{{Reason: "integrity", Messages: 1}, {Reason: "replayed", Messages: 2}}}
	if got := of("two").Amfs; len(got) != 1 || !proto.Equal(got[0], want) {
		t.Errorf("%v", got)
	}
}

func TestAUEStaysOnItsStream(t *testing.T) {
	b := readyBed(t, "one")
	c, _ := b.Open("agf", nil, nil, &ue{})
	for range 3 {
		c.Send(&ngap.UplinkNASTransport{NASPDU: []byte{1}, UserLocationInformation: ngap.UserLocationInformation{
			UserLocationInformationWAGF: &ngap.UserLocationInformationWAGF{GlobalLineID: &ngap.GlobalLineID{GlobalLineIdentity: []byte{1}}}}})
	}
	all := b.wireOf("one").sent
	for _, one := range all[1:] {
		if one.stream == 0 || one.stream != all[1].stream {
			t.Error(one.stream)
		}
	}
	if len(all) != 4 {
		t.Error(len(all))
	}
}

func TestAResetEndsTheContextsThatItNames(t *testing.T) {
	b := readyBed(t, "one")
	w, first, second := b.wireOf("one"), &ue{}, &ue{}
	one, _ := b.Open("agf", nil, nil, first)
	_, _ = b.Open("agf", nil, nil, second)
	_, ran := one.IDs()
	w.receive(t, &ngap.NGReset{Cause: miscCause(ngap.CauseMiscUnspecified), ResetType: ngap.ResetType{
		PartOfNGInterface: []ngap.UEAssociatedLogicalNGConnectionItem{{RANUENGAPID: &ran}}}})
	if answer, ok := w.last().(*ngap.NGResetAcknowledge); !ok || len(answer.UEAssociatedLogicalNGConnectionList) != 1 || first.lost == "" || second.lost != "" {
		t.Errorf("%+v", w.last())
	}
	// By the AMF's identifier alone.
	third := &ue{}
	another, _ := b.Open("agf", nil, nil, third)
	_, ran = another.IDs()
	theirs, unknown := ngap.AMFUENGAPID(77), ngap.AMFUENGAPID(78)
	w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: theirs, RANUENGAPID: ran, NASPDU: []byte{1}})
	w.receive(t, &ngap.NGReset{Cause: miscCause(ngap.CauseMiscUnspecified), ResetType: ngap.ResetType{
		PartOfNGInterface: []ngap.UEAssociatedLogicalNGConnectionItem{{AMFUENGAPID: &unknown}, {AMFUENGAPID: &theirs}}}})
	if third.lost == "" || second.lost != "" {
		t.Error("the context with the AMF's identifier is there, or another one is gone")
	}
	all := ngap.ResetAllResetAll
	w.receive(t, &ngap.NGReset{Cause: miscCause(ngap.CauseMiscUnspecified), ResetType: ngap.ResetType{NGInterface: &all}})
	if second.lost == "" || len(b.amfs["one"].ues) != 0 {
		t.Error("a context is left")
	}
}

func TestAResetOfVeryManyConnectionsIsAcknowledged(t *testing.T) {
	b := readyBed(t, "one")
	u := &ue{}
	c, _ := b.Open("agf", nil, nil, u)
	_, ran := c.IDs()
	reset := &ngap.NGReset{Cause: miscCause(ngap.CauseMiscUnspecified)}
	for i := range 20_000 {
		id := ngap.RANUENGAPID(i % 250)
		if i == 19_999 {
			id = ran
		}
		reset.ResetType.PartOfNGInterface = append(reset.ResetType.PartOfNGInterface, ngap.UEAssociatedLogicalNGConnectionItem{RANUENGAPID: &id})
	}
	w := b.wireOf("one")
	w.receive(t, reset)
	if answer, ok := w.last().(*ngap.NGResetAcknowledge); !ok || len(answer.UEAssociatedLogicalNGConnectionList) != 20_000 || u.lost == "" {
		t.Errorf("%T, lost %q", w.last(), u.lost)
	}
}

// again opens another context when it loses one.
type again struct {
	ue
	b    *bed
	next *ue
}

func (a *again) Lost(string) {
	a.next = &ue{}
	_, _ = a.b.Open("agf", nil, nil, a.next)
}

func TestAResetOfAllLeavesContextsThatOpenBecauseOfIt(t *testing.T) {
	b := readyBed(t, "one")
	w := b.wireOf("one")
	var all []*again
	for range 20 {
		u := &again{b: b}
		_, _ = b.Open("agf", nil, nil, u)
		all = append(all, u)
	}
	every := ngap.ResetAllResetAll
	w.receive(t, &ngap.NGReset{Cause: miscCause(ngap.CauseMiscUnspecified), ResetType: ngap.ResetType{NGInterface: &every}})
	for _, u := range all {
		if u.next == nil || u.next.lost != "" {
			t.Fatalf("%+v", u.next)
		}
	}
}

func TestAnAssociationThatEndsEndsItsContexts(t *testing.T) {
	b := readyBed(t, "one")
	u := &ue{}
	_, _ = b.Open("agf", nil, nil, u)
	b.wireOf("one").handler.Down("lost")
	if u.lost != "lost" || b.amfs["one"].phase != down {
		t.Error(u, b.amfs["one"])
	}
	if _, err := b.Open("agf", nil, nil, u); !errors.Is(err, ErrNoAMF) {
		t.Error(err)
	}
}

func TestHandoversAndTracesAreRefused(t *testing.T) {
	b := readyBed(t, "one")
	w := b.wireOf("one")
	empty := per.BitString{Octets: []byte{0, 0}, Count: 16}
	w.receive(t, &ngap.HandoverRequest{AMFUENGAPID: 5, Cause: radioCause(ngap.CauseRadioNetworkUnspecified),
		UESecurityCapabilities: ngap.UESecurityCapabilities{NRencryptionAlgorithms: empty, NRintegrityProtectionAlgorithms: empty,
			EUTRAencryptionAlgorithms: empty, EUTRAintegrityProtectionAlgorithms: empty},
		SecurityContext:                    ngap.SecurityContext{NextHopNH: per.BitString{Octets: make([]byte, 32), Count: 256}},
		PDUSessionResourceSetupListHOReq:   []ngap.PDUSessionResourceSetupItemHOReq{{SNSSAI: ngap.SNSSAI{SST: []byte{1}}, HandoverRequestTransfer: []byte{0}}},
		AllowedNSSAI:                       []ngap.AllowedNSSAIItem{{SNSSAI: ngap.SNSSAI{SST: []byte{1}}}},
		SourceToTargetTransparentContainer: []byte{0}, GUAMI: testGUAMI(0)})
	if m, ok := w.last().(*ngap.HandoverFailure); !ok || m.AMFUENGAPID != 5 {
		t.Errorf("%+v", w.last())
	}
	w.receive(t, &ngap.TraceStart{AMFUENGAPID: 5, RANUENGAPID: 6, TraceActivation: ngap.TraceActivation{NGRANTraceID: make([]byte, 8),
		InterfacesToTrace: per.BitString{Octets: []byte{0}, Count: 8}, TraceCollectionEntityIPAddress: bits(1, 32)}})
	if m, ok := w.last().(*ngap.TraceFailureIndication); !ok || m.RANUENGAPID != 6 {
		t.Errorf("%+v", w.last())
	}
}

func TestFaultsAreReportedByTheirCriticality(t *testing.T) {
	for _, test := range []struct {
		fault    per.Fault
		carryOut bool
		cause    string
	}{
		{per.Fault{Criticality: per.Ignore}, true, ""},
		{per.Fault{Criticality: per.Notify}, true, "protocol: abstract-syntax-error-ignore-and-notify"},
		{per.Fault{Criticality: per.Reject}, false, "protocol: abstract-syntax-error-reject"},
		{per.Fault{Criticality: per.Ignore, Kind: per.Misplaced}, false, "protocol: abstract-syntax-error-falsely-constructed-message"},
		{per.Fault{Criticality: per.Ignore, Kind: per.Missing}, false, ""},
		{per.Fault{ID: ngap.IDCause, Criticality: per.Ignore, Kind: per.Missing}, true, ""},
		{per.Fault{ID: ngap.IDRelativeAMFCapacity, Criticality: per.Ignore, Kind: per.Missing}, true, ""},
	} {
		carryOut, cause := examine(&ngap.PDU{Faults: []per.Fault{test.fault}})
		text := ""
		if cause != nil {
			text = CauseText(cause)
		}
		if carryOut != test.carryOut || text != test.cause {
			t.Errorf("%+v: %v %q", test.fault, carryOut, text)
		}
	}
}

func TestAProcedureWithFaultsHasItsUnsuccessfulOutcome(t *testing.T) {
	b := readyBed(t, "one")
	w := b.wireOf("one")
	c, err := b.Open("agf", nil, nil, &ue{})
	if err != nil {
		t.Fatal(err)
	}
	_, ran := c.IDs()
	// An IE of criticality reject that is unknown: 4,000.
	unknown := func(message any) []byte {
		octets, err := ngap.Encode(message)
		if err != nil {
			t.Fatal(err)
		}
		// The count of IEs is in the second and third octet of the content, whose length has one octet.
		octets[3], octets[6] = octets[3]+5, octets[6]+1
		return append(octets, 4000>>8, 4000&0xff, 0, 1, 0)
	}
	give := func(octets []byte) any {
		w.handler.Message(1, payloadProtocol, octets)
		return w.last()
	}
	modification := &ngap.UEContextModificationRequest{AMFUENGAPID: 7, RANUENGAPID: ran}
	if m, ok := give(unknown(modification)).(*ngap.UEContextModificationFailure); !ok || m.RANUENGAPID != ran || m.AMFUENGAPID != 7 ||
		CauseText(&m.Cause) != "protocol: abstract-syntax-error-reject" || m.CriticalityDiagnostics.ProcedureCode != nil ||
		len(m.CriticalityDiagnostics.IEsCriticalityDiagnostics) != 1 || m.CriticalityDiagnostics.IEsCriticalityDiagnostics[0].IEID != 4000 {
		t.Errorf("%+v", w.last())
	}
	if stream := w.sent[len(w.sent)-1].stream; stream == 0 {
		t.Error("the answer is not on the stream of the UE")
	}
	if m, ok := give(unknown(&ngap.AMFConfigurationUpdate{})).(*ngap.AMFConfigurationUpdateFailure); !ok || m.CriticalityDiagnostics == nil {
		t.Errorf("%+v", w.last())
	}
	// Nothing that it must have but the identifiers.
	octets, err := ngap.Encode(modification)
	if err != nil {
		t.Fatal(err)
	}
	octets[1] = ngap.ProcedureInitialContextSetup
	if m, ok := give(octets).(*ngap.InitialContextSetupFailure); !ok || m.RANUENGAPID != ran {
		t.Errorf("%+v", w.last())
	}
	// Of no context, and of a procedure without an unsuccessful outcome.
	modification.RANUENGAPID += 1000
	for _, message := range []any{modification, &ngap.DownlinkNASTransport{AMFUENGAPID: 7, RANUENGAPID: ran, NASPDU: []byte{1}}} {
		m, ok := give(unknown(message)).(*ngap.ErrorIndication)
		if !ok {
			t.Fatalf("%T: %+v", message, w.last())
		}
		if m.AMFUENGAPID == nil || *m.AMFUENGAPID != 7 || m.RANUENGAPID == nil || w.sent[len(w.sent)-1].stream == 0 {
			t.Errorf("%T: %+v on stream %d", message, m, w.sent[len(w.sent)-1].stream)
		}
	}
}

func TestManyFaultsThatAreIgnoredHideNoneThatDecides(t *testing.T) {
	// IEs that no message has, and behind them one of criticality reject.
	octets := []byte{0, 301 >> 8, 301 & 0xff}
	for i := range 301 {
		criticality := byte(per.Ignore) << 6
		if i == 300 {
			criticality = 0
		}
		octets = append(octets, byte((4000+i)>>8), byte(4000+i), criticality, 1, 0)
	}
	faults, err := per.Decode(octets, &ngap.AMFConfigurationUpdate{})
	if err != nil {
		t.Fatal(err)
	}
	pdu := &ngap.PDU{Value: &ngap.AMFConfigurationUpdate{}, Faults: faults}
	if carryOut, _ := examine(pdu); carryOut || len(diagnostics(pdu).IEsCriticalityDiagnostics) != 1 {
		t.Errorf("%d faults", len(faults))
	}
	for range 400 {
		pdu.Faults = append(pdu.Faults, per.Fault{Criticality: per.Reject})
	}
	if n := len(diagnostics(pdu).IEsCriticalityDiagnostics); n != 256 {
		t.Errorf("%d diagnostics", n)
	}
}

func TestAReleaseAndAResetNeedNoCause(t *testing.T) {
	b := readyBed(t, "one")
	w, first, second := b.wireOf("one"), &ue{}, &ue{}
	c, _ := b.Open("agf", nil, nil, first)
	_, _ = b.Open("agf", nil, nil, second)
	_, ran := c.IDs()
	all := ngap.ResetAllResetAll
	for _, message := range []any{
		&ngap.UEContextReleaseCommand{UENGAPIDs: ngap.UENGAPIDs{UENGAPIDPair: &ngap.UENGAPIDPair{AMFUENGAPID: 3, RANUENGAPID: ran}}, Cause: miscCause(0)},
		&ngap.NGReset{Cause: miscCause(0), ResetType: ngap.ResetType{NGInterface: &all}},
	} {
		octets, err := ngap.Encode(message)
		if err != nil {
			t.Fatal(err)
		}
		// The IE becomes one that is unknown and ignored.
		at := bytes.Index(octets, []byte{0, ngap.IDCause, 0x40})
		octets[at], octets[at+1] = 4000>>8, 4000&0xff
		w.handler.Message(1, payloadProtocol, octets)
	}
	if first.lost == "" || second.lost == "" {
		t.Errorf("%q %q", first.lost, second.lost)
	}
	if _, ok := w.last().(*ngap.NGResetAcknowledge); !ok || w.sent[len(w.sent)-1].stream != 0 {
		t.Errorf("%+v", w.last())
	}
}

func TestAReleaseWithAnotherIdentifierOfTheAMFIsInconsistent(t *testing.T) {
	b := readyBed(t, "one")
	w, u := b.wireOf("one"), &ue{}
	c, _ := b.Open("agf", nil, nil, u)
	_, ran := c.IDs()
	w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 7, RANUENGAPID: ran, NASPDU: []byte{1}})
	w.receive(t, &ngap.UEContextReleaseCommand{UENGAPIDs: ngap.UENGAPIDs{UENGAPIDPair: &ngap.UENGAPIDPair{AMFUENGAPID: 8, RANUENGAPID: ran}}, Cause: miscCause(0)})
	m, ok := w.last().(*ngap.ErrorIndication)
	if !ok || CauseText(m.Cause) != "radio network: inconsistent-remote-UE-NGAP-ID" || u.lost == "" {
		t.Errorf("%+v %q", w.last(), u.lost)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte{0, 0x14, 0, 0})
	f.Add([]byte{0x20, 0x15, 0, 3, 0, 0, 0})
	f.Fuzz(func(t *testing.T, octets []byte) {
		b := readyBed(t, "one")
		_, _ = b.Open("agf", nil, nil, &ue{})
		b.wireOf("one").handler.Message(0, payloadProtocol, octets)
	})
}

// owner is a UE that can wait.
type owner struct {
	lost      []Loss
	suspended bool
	got       []any
}

func (o *owner) Receive(message any) { o.got = append(o.got, message) }
func (o *owner) Lost(string)         {}
func (o *owner) LostBy(l Loss)       { o.lost = append(o.lost, l) }
func (o *owner) Suspended()          { o.suspended = true }
func (o *owner) Resumed()            { o.suspended = false }

func TestAnAMFThatIsNewMayBeReadySoon(t *testing.T) {
	b := newBed(t)
	open := func() error {
		_, err := b.Open("agf", nil, nil, &ue{})
		return err
	}
	if err := open(); !errors.Is(err, ErrStarting) {
		t.Errorf("before all objects are known: %v", err)
	}
	b.Synced()
	if err := open(); errors.Is(err, ErrStarting) || !errors.Is(err, ErrNoAMF) {
		t.Errorf("without an AMF: %v", err)
	}
	b.amf("one", &api.Amf{Node: "agf", Addresses: []string{"192.0.2.1"}}, b.now)
	b.Tick(b.now)
	if err := open(); !errors.Is(err, ErrStarting) || !errors.Is(err, ErrNoAMF) {
		t.Errorf("while NG setup goes on: %v", err)
	}
	w := b.wireOf("one")
	w.handler.Up(8, 8)
	w.receive(t, response("amf", 1, 50))
	if err := open(); err != nil {
		t.Error(err)
	}
	w.handler.Down("lost")
	if err := open(); errors.Is(err, ErrStarting) || !errors.Is(err, ErrNoAMF) {
		t.Errorf("after the association is lost: %v", err)
	}
}

// caused is a ue with a cause.
type caused struct {
	ue
	cause ngap.RRCEstablishmentCause
}

func (c *caused) Cause() ngap.RRCEstablishmentCause { return c.cause }

func TestTheActionOfAnOverloadedAMFIsAboutSomeCauses(t *testing.T) {
	const emergency, high, terminated, signalling, data, sms, mps = ngap.RRCEstablishmentCauseEmergency, ngap.RRCEstablishmentCauseHighPriorityAccess, ngap.RRCEstablishmentCauseMtAccess,
		ngap.RRCEstablishmentCauseMoSignalling, ngap.RRCEstablishmentCauseMoData, ngap.RRCEstablishmentCauseMoSMS, ngap.RRCEstablishmentCauseMpsPriorityAccess
	for _, c := range []struct {
		action  ngap.OverloadAction
		permits []ngap.RRCEstablishmentCause
	}{
		{ngap.OverloadActionRejectNonEmergencyMoDt, []ngap.RRCEstablishmentCause{emergency, high, terminated, signalling, mps}},
		{ngap.OverloadActionRejectRrcCrSignalling, []ngap.RRCEstablishmentCause{emergency, high, terminated, mps}},
		{ngap.OverloadActionPermitEmergencySessionsAndMobileTerminatedServicesOnly, []ngap.RRCEstablishmentCause{emergency, terminated}},
		{ngap.OverloadActionPermitHighPrioritySessionsAndMobileTerminatedServicesOnly, []ngap.RRCEstablishmentCause{emergency, high, terminated, mps}},
	} {
		b := readyBed(t, "one")
		b.wireOf("one").receive(t, &ngap.OverloadStart{AMFOverloadResponse: &ngap.OverloadResponse{OverloadAction: &c.action}})
		for _, cause := range []ngap.RRCEstablishmentCause{emergency, high, terminated, signalling, data, sms, mps} {
			if _, err := b.Open("agf", nil, nil, &caused{cause: cause}); (err == nil) != slices.Contains(c.permits, cause) {
				t.Errorf("%s, %s: %v", c.action, cause, err)
			}
		}
	}
}

func TestAReroutedUEGoesToAnotherAMFOfTheSet(t *testing.T) {
	b := readyBed(t, "one", "two", "three")
	b.amfs["two"].served = []guami{{b.amfs["two"].served[0].plmn, 0x010080}}
	b.amfs["three"].served = []guami{{b.amfs["three"].served[0].plmn, 0x010081}}
	count := map[string]int{}
	for i := range 100 {
		b.random = func() float64 { return float64(i) / 100 }
		c, err := b.OpenIn("agf", nil, Reroute{2, "one"}, &ue{})
		if err != nil {
			t.Fatal(err)
		}
		count[c.AMF()]++
	}
	if count["two"] != 50 || count["three"] != 50 {
		t.Error(count)
	}
	// There is no other AMF of its own set, and none of a third one.
	for _, set := range []uint16{1, 3} {
		if _, err := b.OpenIn("agf", nil, Reroute{set, "one"}, &ue{}); !errors.Is(err, ErrNoAMF) {
			t.Error(set, err)
		}
	}
}

type emergency struct{ ue }

func (*emergency) Cause() ngap.RRCEstablishmentCause { return ngap.RRCEstablishmentCauseEmergency }

func TestAnOverloadedAMFTakesEmergencies(t *testing.T) {
	b := readyBed(t, "one")
	b.wireOf("one").receive(t, &ngap.OverloadStart{})
	if _, err := b.Open("agf", nil, nil, &ue{}); !errors.Is(err, ErrNoAMF) {
		t.Error(err)
	}
	if _, err := b.Open("agf", nil, nil, &emergency{}); err != nil {
		t.Error(err)
	}
}

// kept has the records of a service that ended, and starts another.
func (b *bed) again(t *testing.T, table *durable.Table) *bed {
	t.Helper()
	s := newService(slog.New(slog.DiscardHandler), func() float64 { return 0.5 })
	s.environment.Records = table
	if err := s.loadRecords(b.now); err != nil {
		t.Fatal(err)
	}
	next := &bed{s, &core{t: t}, b.now}
	next.connect(next.core, "")
	next.nodes["agf"] = b.nodes["agf"]
	next.amf("one", &api.Amf{Node: "agf", Addresses: []string{"192.0.2.1"}}, b.now)
	next.Synced()
	next.Tick(b.now)
	return next
}

func records(t *testing.T) *durable.Table {
	t.Helper()
	log, err := durable.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	table, err := log.Table("n2")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestContextsOutliveAnAssociationIfTheAMFKeepsThem(t *testing.T) {
	retained := ngap.UERetentionInformationUesRetained
	for _, keeps := range []bool{true, false} {
		b := readyBed(t, "one")
		o, other := &owner{}, &ue{}
		c, err := b.Open("agf", nil, nil, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Open("agf", nil, nil, other); err != nil {
			t.Fatal(err)
		}
		b.wireOf("one").receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 77, RANUENGAPID: ngap.RANUENGAPID(c.ranID), NASPDU: []byte{1}})
		b.wireOf("one").handler.Down("gone")
		if !o.suspended || len(o.lost) != 0 || other.lost == "" {
			t.Fatalf("%+v %+v", o, other)
		}
		c.Send(&ngap.UplinkNASTransport{})
		b.Tick(b.now.Add(time.Second))
		w := b.wireOf("one")
		w.handler.Up(8, 8)
		if m, ok := w.last().(*ngap.NGSetupRequest); !ok || m.UERetentionInformation == nil || len(w.sent) != 1 {
			t.Fatalf("%+v", w.sent)
		}
		answer := response("amf", 0, 50)
		if keeps {
			answer.UERetentionInformation = &retained
		}
		w.receive(t, answer)
		if keeps != (len(o.lost) == 0) || keeps == o.suspended || !keeps && o.lost[0].Kind != AssociationLost {
			t.Errorf("kept %v: %+v", keeps, o)
		}
	}
	b := readyBed(t, "one")
	o := &owner{}
	c, _ := b.Open("agf", nil, nil, o)
	b.wireOf("one").receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 77, RANUENGAPID: ngap.RANUENGAPID(c.ranID), NASPDU: []byte{1}})
	b.wireOf("one").handler.Down("gone")
	b.Tick(time.Now().Add(retainTime + time.Second))
	if len(o.lost) != 1 {
		t.Error("the context waits for ever")
	}
}

func TestContextsOutliveTheAgent(t *testing.T) {
	retained := ngap.UERetentionInformationUesRetained
	table := records(t)
	b := readyBed(t, "one")
	b.environment.Records = table
	var ids []int64
	for range 3 {
		c, err := b.Open("agf", nil, nil, &owner{})
		if err != nil {
			t.Fatal(err)
		}
		b.wireOf("one").receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: ngap.AMFUENGAPID(100 + c.ranID), RANUENGAPID: ngap.RANUENGAPID(c.ranID), NASPDU: []byte{1}})
		ids = append(ids, c.ranID)
	}
	b.wireOf("one").receive(t, &ngap.UEContextReleaseCommand{Cause: miscCause(ngap.CauseMiscUnspecified), UENGAPIDs: ngap.UENGAPIDs{UENGAPIDPair: &ngap.UENGAPIDPair{AMFUENGAPID: ngap.AMFUENGAPID(100 + ids[2]), RANUENGAPID: ngap.RANUENGAPID(ids[2])}}})
	next := b.again(t, table)
	early, late := &owner{}, &owner{}
	if c := next.Claim(ids[0], early); c == nil || c.amfID != 100+ids[0] {
		t.Fatalf("%+v", c)
	}
	if next.Claim(ids[2], &owner{}) != nil || next.Claim(ids[0], &owner{}) != nil {
		t.Error("a context was given that is gone, or twice")
	}
	w := next.wireOf("one")
	w.handler.Up(8, 8)
	if m := w.last().(*ngap.NGSetupRequest); m.UERetentionInformation == nil {
		t.Error("the AMF is not asked to keep contexts")
	}
	answer := response("amf", 0, 50)
	answer.UERetentionInformation = &retained
	early.suspended = true
	w.receive(t, answer)
	if early.suspended || len(early.lost) != 0 {
		t.Errorf("%+v", early)
	}
	// Messages before the owner of a context wait for it.
	w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: ngap.AMFUENGAPID(100 + ids[1]), RANUENGAPID: ngap.RANUENGAPID(ids[1]), NASPDU: []byte{2}})
	if next.Claim(ids[1], late) == nil {
		t.Fatal("the context is gone")
	}
	late.suspended = true
	next.Tick(next.now)
	if late.suspended || len(late.got) != 1 {
		t.Errorf("%+v", late)
	}
	// A context without an owner: the AMF releases it.
	last := next.again(t, table)
	last.wireOf("one").handler.Up(8, 8)
	last.wireOf("one").receive(t, answer)
	last.Tick(last.now.Add(ownerTime + time.Second))
	if m, ok := last.wireOf("one").last().(*ngap.UEContextReleaseRequest); !ok {
		t.Errorf("%+v", m)
	}
}

func TestAContextThatWasClosedHereIsReleasedWithoutAnError(t *testing.T) {
	b := readyBed(t, "one")
	c, _ := b.Open("agf", nil, nil, &owner{})
	w := b.wireOf("one")
	w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 77, RANUENGAPID: ngap.RANUENGAPID(c.ranID), NASPDU: []byte{1}})
	c.Close()
	command := &ngap.UEContextReleaseCommand{Cause: miscCause(ngap.CauseMiscUnspecified), UENGAPIDs: ngap.UENGAPIDs{UENGAPIDPair: &ngap.UENGAPIDPair{AMFUENGAPID: 77, RANUENGAPID: ngap.RANUENGAPID(c.ranID)}}}
	w.receive(t, command)
	if _, ok := w.last().(*ngap.UEContextReleaseComplete); !ok {
		t.Errorf("%+v", w.last())
	}
	w.receive(t, command)
	if _, ok := w.last().(*ngap.ErrorIndication); !ok {
		t.Errorf("%+v", w.last())
	}
}

func TestAContextThatWasClosedBeforeTheAMFAnsweredIsReleasedWhenItDoes(t *testing.T) {
	b := readyBed(t, "one")
	w := b.wireOf("one")
	c, err := b.Open("agf", nil, nil, &ue{})
	if err != nil {
		t.Fatal(err)
	}
	_, ran := c.IDs()
	c.Release()
	for range 2 {
		w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 7, RANUENGAPID: ran, NASPDU: []byte{1}})
	}
	request, ok := w.last().(*ngap.UEContextReleaseRequest)
	// After NG SETUP REQUEST, one message.
	if !ok || request.AMFUENGAPID != 7 || request.RANUENGAPID != ran || len(w.sent) != 2 {
		t.Fatalf("%d messages, %+v", len(w.sent), w.last())
	}
	pair := &ngap.UENGAPIDPair{AMFUENGAPID: 7, RANUENGAPID: ran}
	w.receive(t, &ngap.UEContextReleaseCommand{UENGAPIDs: ngap.UENGAPIDs{UENGAPIDPair: pair}, Cause: radioCause(ngap.CauseRadioNetworkUnspecified)})
	if _, ok := w.last().(*ngap.UEContextReleaseComplete); !ok {
		t.Errorf("%+v", w.last())
	}
}

func TestAContextWhoseUEGoesWhileTheAssociationIsLostIsReleasedAfterwards(t *testing.T) {
	b := readyBed(t, "one")
	w, u := b.wireOf("one"), &owner{}
	c, err := b.Open("agf", nil, nil, u)
	if err != nil {
		t.Fatal(err)
	}
	_, ran := c.IDs()
	w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 7, RANUENGAPID: ran, NASPDU: []byte{1}})
	w.handler.Down("gone")
	if !u.suspended {
		t.Fatal("it is not suspended")
	}
	c.Release()
	b.Tick(time.Now().Add(time.Second))
	w = b.wireOf("one")
	w.handler.Up(8, 8)
	kept := response("amf", 1, 50)
	retained := ngap.UERetentionInformationUesRetained
	kept.UERetentionInformation = &retained
	w.receive(t, kept)
	if m, ok := w.last().(*ngap.UEContextReleaseRequest); !ok || m.AMFUENGAPID != 7 || m.RANUENGAPID != ran {
		t.Errorf("%+v", w.last())
	}
	if len(b.amfs["one"].ues) != 0 || len(u.lost) != 0 {
		t.Errorf("%+v %+v", b.amfs["one"].ues, u)
	}
}

func TestAMFsHearOfTrackingAreasAndNameAlone(t *testing.T) {
	b := readyBed(t, "one")
	w := b.wireOf("one")
	spec := func(change func(*api.AccessNode)) *api.AccessNode {
		n := proto.CloneOf(b.nodes["agf"])
		change(n)
		return n
	}
	count := func() (updates int) {
		for _, s := range w.sent {
			if _, ok := s.pdu.Value.(*ngap.RANConfigurationUpdate); ok {
				updates++
			}
		}
		return updates
	}
	b.node("agf", spec(func(*api.AccessNode) {}), b.now)
	if count() != 0 || w.aborted {
		t.Fatalf("%+v", w.last())
	}
	b.node("agf", spec(func(n *api.AccessNode) { n.NodeName = "north" }), b.now)
	if m, ok := w.last().(*ngap.RANConfigurationUpdate); !ok || *m.RANNodeName != "north" {
		t.Errorf("%+v", w.last())
	}
	b.node("agf", spec(func(n *api.AccessNode) {
		n.TrackingAreas = append(n.TrackingAreas, &api.TrackingArea{Tac: 2, Slices: []*api.Slice{{Sst: 1}}})
	}), b.now)
	if m, ok := w.last().(*ngap.RANConfigurationUpdate); !ok || len(m.SupportedTAList) != 2 || count() != 2 {
		t.Errorf("%+v", w.last())
	}
	// An AMF that refuses it is asked again when it says.
	wait := ngap.TimeToWait(1)
	w.receive(t, &ngap.RANConfigurationUpdateFailure{Cause: miscCause(ngap.CauseMiscUnspecified), TimeToWait: &wait})
	b.Tick(b.now.Add(time.Second))
	if count() != 2 {
		t.Error("it is sent too early")
	}
	for range 2 {
		b.Tick(time.Now().Add(3 * time.Second))
	}
	if count() != 3 || w.aborted {
		t.Errorf("%d updates", count())
	}
	// While NG setup is under way, what it says must not be what was.
	c := newBed(t, "one")
	c.wireOf("one").handler.Up(8, 8)
	c.node("agf", proto.CloneOf(c.nodes["agf"]), c.now)
	if c.wireOf("one").aborted {
		t.Error("the association is abandoned without a change")
	}
	first := c.wireOf("one")
	c.node("agf", &api.AccessNode{Plmn: "00101", WagfId: 7, NodeName: "north", TrackingAreas: c.nodes["agf"].TrackingAreas}, c.now)
	if !first.aborted {
		t.Error("NG setup goes on with the old name")
	}
}

// completing is a UE that has something to say when its context is released.
type completing struct {
	ue
	m    *ngap.UEContextReleaseComplete
	done func()
}

func (c *completing) Complete(m *ngap.UEContextReleaseComplete, done func()) { c.m, c.done = m, done }

func TestAUEMayAddToTheCompletionOfItsRelease(t *testing.T) {
	b := readyBed(t, "one")
	w, of := b.wireOf("one"), &completing{}
	c, _ := b.Open("agf", nil, nil, of)
	release := func() {
		w.receive(t, &ngap.UEContextReleaseCommand{Cause: miscCause(ngap.CauseMiscUnspecified), UENGAPIDs: ngap.UENGAPIDs{UENGAPIDPair: &ngap.UENGAPIDPair{AMFUENGAPID: 77, RANUENGAPID: ngap.RANUENGAPID(c.ranID)}}})
	}
	release()
	if _, ok := w.last().(*ngap.UEContextReleaseComplete); ok || of.lost != "" || of.done == nil {
		t.Fatalf("%+v %q", w.last(), of.lost)
	}
	of.m.PDUSessionResourceListCxtRelCpl = []ngap.PDUSessionResourceItemCxtRelCpl{{PDUSessionID: 5}}
	of.done()
	m, ok := w.last().(*ngap.UEContextReleaseComplete)
	if !ok || len(m.PDUSessionResourceListCxtRelCpl) != 1 || of.lost == "" || len(b.amfs["one"].ues) != 0 {
		t.Errorf("%+v %q", w.last(), of.lost)
	}
	// Too late: the association is lost meanwhile.
	c, _ = b.Open("agf", nil, nil, of)
	release()
	b.abandon(b.amfs["one"], "test", b.now)
	sent := len(w.sent)
	of.done()
	if len(w.sent) != sent {
		t.Errorf("%+v", w.last())
	}
}

// TestMalformedMessagesForAUEDisturbNoOther sends each truncation of messages for a UE, and each flip of a bit.
func TestMalformedMessagesForAUEDisturbNoOther(t *testing.T) {
	b := readyBed(t, "one")
	w := b.wireOf("one")
	other := &owner{}
	neighbour, err := b.Open("agf", nil, nil, other)
	if err != nil {
		t.Fatal(err)
	}
	w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 0x5555, RANUENGAPID: ngap.RANUENGAPID(neighbour.ranID), NASPDU: []byte{1}})
	var victim *Context
	open := func() (ngap.AMFUENGAPID, ngap.RANUENGAPID) {
		// The identifiers of the two differ in more than a bit.
		for victim == nil || victim.gone || mathbits.OnesCount64(uint64(victim.ranID^neighbour.ranID)) < 3 {
			if victim, err = b.Open("agf", nil, nil, &owner{}); err != nil {
				t.Fatal(err)
			}
		}
		return 0x2222, ngap.RANUENGAPID(victim.ranID)
	}
	cause := radioCause(ngap.CauseRadioNetworkUnspecified)
	for _, message := range []func(ngap.AMFUENGAPID, ngap.RANUENGAPID) any{
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.DownlinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: []byte{1, 2, 3}}
		},
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.InitialContextSetupRequest{AMFUENGAPID: amf, RANUENGAPID: ran, GUAMI: testGUAMI(0), AllowedNSSAI: []ngap.AllowedNSSAIItem{{SNSSAI: ngap.SNSSAI{SST: []byte{1}}}},
				UESecurityCapabilities: ngap.UESecurityCapabilities{NRencryptionAlgorithms: bits(0, 16), NRintegrityProtectionAlgorithms: bits(0, 16),
					EUTRAencryptionAlgorithms: bits(0, 16), EUTRAintegrityProtectionAlgorithms: bits(0, 16)},
				SecurityKey: per.BitString{Octets: make([]byte, 32), Count: 256}, NASPDU: []byte{1}}
		},
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.PDUSessionResourceSetupRequest{AMFUENGAPID: amf, RANUENGAPID: ran, PDUSessionResourceSetupListSUReq: []ngap.PDUSessionResourceSetupItemSUReq{
				{PDUSessionID: 1, SNSSAI: ngap.SNSSAI{SST: []byte{1}}, PDUSessionNASPDU: []byte{1}, PDUSessionResourceSetupRequestTransfer: []byte{0}}}}
		},
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.PDUSessionResourceModifyRequest{AMFUENGAPID: amf, RANUENGAPID: ran, PDUSessionResourceModifyListModReq: []ngap.PDUSessionResourceModifyItemModReq{
				{PDUSessionID: 1, NASPDU: []byte{1}, PDUSessionResourceModifyRequestTransfer: []byte{0}}}}
		},
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.PDUSessionResourceReleaseCommand{AMFUENGAPID: amf, RANUENGAPID: ran, PDUSessionResourceToReleaseListRelCmd: []ngap.PDUSessionResourceToReleaseItemRelCmd{
				{PDUSessionID: 1, PDUSessionResourceReleaseCommandTransfer: []byte{0}}}}
		},
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.UEContextModificationRequest{AMFUENGAPID: amf, RANUENGAPID: ran,
				UEAggregateMaximumBitRate: &ngap.UEAggregateMaximumBitRate{UEAggregateMaximumBitRateDL: 1e9, UEAggregateMaximumBitRateUL: 1e9}}
		},
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.LocationReportingControl{AMFUENGAPID: amf, RANUENGAPID: ran}
		},
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.RerouteNASRequest{AMFUENGAPID: &amf, RANUENGAPID: ran, NGAPMessage: []byte{0}, AMFSetID: bits(2, 10)}
		},
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.TraceStart{AMFUENGAPID: amf, RANUENGAPID: ran, TraceActivation: ngap.TraceActivation{NGRANTraceID: make([]byte, 8),
				InterfacesToTrace: per.BitString{Octets: []byte{0}, Count: 8}, TraceCollectionEntityIPAddress: bits(1, 32)}}
		},
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.ErrorIndication{AMFUENGAPID: &amf, RANUENGAPID: &ran, Cause: &cause}
		},
		func(amf ngap.AMFUENGAPID, ran ngap.RANUENGAPID) any {
			return &ngap.UEContextReleaseCommand{UENGAPIDs: ngap.UENGAPIDs{UENGAPIDPair: &ngap.UENGAPIDPair{AMFUENGAPID: amf, RANUENGAPID: ran}}, Cause: cause}
		},
	} {
		name := ""
		try := func(change func([]byte) []byte) {
			of := message(open())
			name = fmt.Sprintf("%T", of)
			octets, err := ngap.Encode(of)
			if err != nil {
				t.Fatal(name, err)
			}
			w.handler.Message(1, payloadProtocol, change(octets))
		}
		size := 0
		try(func(octets []byte) []byte { size = len(octets); return octets })
		for length := range size {
			try(func(octets []byte) []byte { return octets[:min(length, len(octets))] })
		}
		for bit := range 8 * size {
			try(func(octets []byte) []byte {
				if bit/8 < len(octets) {
					octets[bit/8] ^= 1 << (bit % 8)
				}
				return octets
			})
		}
		if neighbour.gone || len(other.got) != 1 || len(other.lost) != 0 || other.suspended || w.aborted || b.amfs["one"].phase != ready {
			t.Fatalf("%s: %+v", name, other)
		}
	}
	// It goes on.
	w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 0x5555, RANUENGAPID: ngap.RANUENGAPID(neighbour.ranID), NASPDU: []byte{1}})
	if len(other.got) != 2 {
		t.Errorf("%+v", other)
	}
}

func TestItIsSaidWhatEachAMFLacks(t *testing.T) {
	of := func(name string, p phase, plmn nas.PLMN, slices ...slice) *amf {
		return &amf{name: name, phase: p, plmns: map[nas.PLMN][]slice{plmn: slices}}
	}
	pool := []*amf{of("e", ready, "00101"), of("c", ready, "00101", slice{1, ""}, slice{2, "\x00\x00\xaa"}), of("b", ready, "00102"), of("a", 0, "00101")}
	d := demand{plmn: "00101", needed: &slice{3, ""}}
	if got := whyNone(pool[1:], d); got != ": Amf/a is not ready; Amf/b does not serve PLMN 00101; Amf/c serves PLMN 00101 with the slices 1, 2-0000aa, and not 3" {
		t.Error(got)
	}
	if got := whyNone(pool[:1], demand{plmn: "00101"}); got != ": Amf/e takes no new subscribers" {
		t.Error(got)
	}
	if got := whyNone(nil, d); got != ": no Amf names it" {
		t.Error(got)
	}
	if got := whyNone([]*amf{pool[0], pool[1], pool[2], pool[3], pool[3]}, demand{plmn: "00103"}); !strings.HasSuffix(got, "; and others") {
		t.Error(got)
	}
}
