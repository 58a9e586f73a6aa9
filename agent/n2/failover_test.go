// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/per"
)

// setBed has AMFs of given identifiers: region, set and pointer.
func setBed(t testing.TB, all map[string][3]uint32, backup map[string]string) *bed {
	var names []string
	for _, name := range []string{"one", "two", "three"} {
		if _, is := all[name]; is {
			names = append(names, name)
		}
	}
	b := newBed(t, names...)
	for _, name := range names {
		b.setUpAs(t, name, all[name], backup[name])
	}
	return b
}

func (b *bed) setUpAs(t testing.TB, name string, id [3]uint32, backup string) {
	w := b.wireOf(name)
	w.handler.Up(8, 8)
	m := response(name, 0, 50)
	m.ServedGUAMIList[0].GUAMI = ngap.GUAMI{PLMNIdentity: testPLMN, AMFRegionID: bits(id[0], 8), AMFSetID: bits(id[1], 10), AMFPointer: bits(id[2], 6)}
	if backup != "" {
		m.ServedGUAMIList[0].BackupAMFName = &backup
	}
	w.receive(t, m)
}

// connected is a UE with a context at an AMF that has answered.
func (b *bed) connected(t testing.TB, name string, u UE) (*Context, ngap.AMFUENGAPID, ngap.RANUENGAPID) {
	t.Helper()
	g := b.amfs[name].served[0]
	c, err := b.Open("agf", nil, &nas.GUTI{PLMN: g.plmn, AMFID: g.amfID}, u)
	if err != nil || c.AMF() != name {
		t.Fatal(c, err)
	}
	_, ran := c.IDs()
	empty := per.BitString{Octets: []byte{0, 0}, Count: 16}
	b.wireOf(name).receive(t, &ngap.InitialContextSetupRequest{AMFUENGAPID: 70, RANUENGAPID: ran, NASPDU: []byte{1},
		GUAMI:        ngap.GUAMI{PLMNIdentity: testPLMN, AMFRegionID: bits(g.region(), 8), AMFSetID: bits(g.set(), 10), AMFPointer: bits(g.amfID&63, 6)},
		AllowedNSSAI: []ngap.AllowedNSSAIItem{{SNSSAI: ngap.SNSSAI{SST: []byte{1}}}}, SecurityKey: per.BitString{Octets: make([]byte, 32), Count: 256},
		UESecurityCapabilities: ngap.UESecurityCapabilities{NRencryptionAlgorithms: empty, NRintegrityProtectionAlgorithms: empty, EUTRAencryptionAlgorithms: empty,
			EUTRAintegrityProtectionAlgorithms: empty}})
	return c, 70, ran
}

func uplink(c *Context) {
	amf, ran := c.IDs()
	c.Send(&ngap.UplinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: []byte{1}, UserLocationInformation: ngap.UserLocationInformation{
		UserLocationInformationWAGF: &ngap.UserLocationInformationWAGF{GlobalLineID: &ngap.GlobalLineID{GlobalLineIdentity: []byte{1}}}}})
}

var (
	sameSetOfTwo = map[string][3]uint32{"one": {1, 1, 1}, "two": {1, 1, 2}}
	otherSets    = map[string][3]uint32{"one": {1, 1, 1}, "two": {1, 2, 1}}
)

func TestTheNextMessageOfAUEWhoseAMFFailsGoesToAnotherOfTheSet(t *testing.T) {
	b := setBed(t, sameSetOfTwo, nil)
	// One that can wait, and one that cannot.
	for _, u := range []UE{&owner{}, &ue{}} {
		c, amf, ran := b.connected(t, "one", u)
		one, two := b.wireOf("one"), b.wireOf("two")
		one.handler.Down("lost")
		before := len(two.sent)
		uplink(c)
		m, is := two.last().(*ngap.UplinkNASTransport)
		if !is || len(two.sent) != before+1 || m.AMFUENGAPID != amf || m.RANUENGAPID != ran || c.AMF() != "two" || two.sent[before].stream == 0 {
			t.Fatalf("%+v at %s", two.last(), c.AMF())
		}
		two.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: []byte{2}})
		var got int
		var lost bool
		switch u := u.(type) {
		case *owner:
			got, lost = len(u.got), u.suspended || len(u.lost) > 0
		case *ue:
			got, lost = len(u.got), u.lost != ""
		}
		if got != 2 || lost {
			t.Errorf("%d messages, lost %v", got, lost)
		}
		// The first AMF is back, and kept the context: it hears that the gateway has it no more, and its messages are not for the UE.
		b.now = b.amfs["one"].due
		b.Tick(b.now)
		b.comeBack(t)
		c.Release()
		two.receive(t, &ngap.UEContextReleaseCommand{UENGAPIDs: ngap.UENGAPIDs{UENGAPIDPair: &ngap.UENGAPIDPair{AMFUENGAPID: amf, RANUENGAPID: ran}}, Cause: miscCause(0)})
		if _, is := two.last().(*ngap.UEContextReleaseComplete); !is {
			t.Errorf("%+v", two.last())
		}
	}
}

// comeBack sets the first AMF up again.
func (b *bed) comeBack(t testing.TB) {
	t.Helper()
	b.setUpAs(t, "one", sameSetOfTwo["one"], "")
	if b.amfs["one"].phase != ready {
		t.Fatal("not ready")
	}
}

func TestAnAMFThatKeptAContextHearsThatAnotherHasIt(t *testing.T) {
	b := setBed(t, sameSetOfTwo, nil)
	stays, moves := &owner{}, &owner{}
	_, _, _ = b.connected(t, "one", stays)
	c, amf, ran := b.connected(t, "one", moves)
	b.wireOf("one").handler.Down("lost")
	uplink(c)
	b.Tick(b.amfs["one"].due)
	w := b.wireOf("one")
	w.handler.Up(8, 8)
	m, kept := response("one", 1, 50), ngap.UERetentionInformationUesRetained
	m.UERetentionInformation = &kept
	w.receive(t, m)
	reset, is := w.last().(*ngap.NGReset)
	if !is || len(reset.ResetType.PartOfNGInterface) != 1 || *reset.ResetType.PartOfNGInterface[0].RANUENGAPID != ran {
		t.Fatalf("%+v", w.last())
	}
	// A late message of it does not reach the UE, and ends nothing.
	before := len(moves.got)
	w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: []byte{3}})
	w.receive(t, &ngap.NGResetAcknowledge{})
	if len(moves.got) != before || len(moves.lost) != 0 || len(stays.lost) != 0 || c.AMF() != "two" {
		t.Errorf("%+v %+v at %s", moves, stays, c.AMF())
	}
}

func TestAnAMFThatStartsAnewHearsOfNothingBeforeNGSetup(t *testing.T) {
	b := setBed(t, otherSets, nil)
	c, _, _ := b.connected(t, "one", &owner{})
	w := b.wireOf("one")
	uplink(c)
	w.handler.Restarted(8, 8)
	uplink(c)
	if len(w.sent) != 1 || len(w.old) == 0 {
		t.Fatalf("%d messages, %d before", len(w.sent), len(w.old))
	}
	if _, is := w.last().(*ngap.NGSetupRequest); !is {
		t.Errorf("%+v", w.last())
	}
}

func TestAnAMFThatIsBackBeforeTheNextMessageKeepsTheContext(t *testing.T) {
	b := setBed(t, sameSetOfTwo, nil)
	u := &owner{}
	c, _, _ := b.connected(t, "one", u)
	b.wireOf("one").handler.Down("lost")
	b.Tick(b.amfs["one"].due)
	w := b.wireOf("one")
	w.handler.Up(8, 8)
	m, kept := response("one", 1, 50), ngap.UERetentionInformationUesRetained
	m.UERetentionInformation = &kept
	w.receive(t, m)
	uplink(c)
	if _, is := w.last().(*ngap.UplinkNASTransport); !is || c.AMF() != "one" || len(u.lost) != 0 {
		t.Errorf("%+v at %s", w.last(), c.AMF())
	}
}

func TestAUEWhoseAMFFailsWaitsForItIfThereIsNoOtherOfTheSet(t *testing.T) {
	b := setBed(t, otherSets, nil)
	waits, cannot := &owner{}, &ue{}
	c, _, _ := b.connected(t, "one", waits)
	// The registration of another one is not done: no AMF can go on with it.
	set, begins := setBed(t, sameSetOfTwo, nil), &ue{}
	early, err := set.Open("agf", nil, nil, begins)
	if err != nil {
		t.Fatal(err)
	}
	_, ran := early.IDs()
	set.wireOf(early.AMF()).receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 5, RANUENGAPID: ran, NASPDU: []byte{1}})
	if set.wireOf(early.AMF()).handler.Down("lost"); begins.lost == "" {
		t.Error("a UE that registers goes to another AMF")
	}
	_, _, _ = b.connected(t, "one", cannot)
	b.wireOf("one").handler.Down("lost")
	uplink(c)
	if !waits.suspended || cannot.lost == "" || c.AMF() != "one" {
		t.Errorf("%+v %+v", waits, cannot)
	}
	// An AMF of the set comes into service.
	b.wireOf("two").receive(t, &ngap.AMFConfigurationUpdate{ServedGUAMIList: []ngap.ServedGUAMIItem{{GUAMI: testGUAMI(9)}}})
	uplink(c)
	if _, is := b.wireOf("two").last().(*ngap.UplinkNASTransport); !is || waits.suspended || c.AMF() != "two" {
		t.Errorf("%+v %+v", waits, b.wireOf("two").last())
	}
	// That fails as well.
	b.wireOf("two").handler.Down("lost")
	if !waits.suspended {
		t.Error("it does not wait")
	}
}

func TestABackupAMFTakesTheUEsOfAnAMFThatFails(t *testing.T) {
	// An AMF of the set is there, too: the backup goes before it.
	b := setBed(t, map[string][3]uint32{"one": {1, 1, 1}, "two": {1, 1, 2}, "three": {1, 7, 1}}, map[string]string{"one": "three"})
	c, _, _ := b.connected(t, "one", &owner{})
	b.wireOf("one").handler.Down("lost")
	uplink(c)
	if c.AMF() != "three" {
		t.Error(c.AMF())
	}
	g := b.amfs["one"].served[0]
	if c, err := b.Open("agf", nil, &nas.GUTI{PLMN: g.plmn, AMFID: g.amfID}, &ue{}); err != nil || c.AMF() != "three" {
		t.Error(c, err)
	}
	b.wireOf("three").handler.Down("lost")
	if c, err := b.Open("agf", nil, &nas.GUTI{PLMN: g.plmn, AMFID: g.amfID}, &ue{}); err != nil || c.AMF() != "two" {
		t.Error(c, err)
	}
}

func TestAnInitialMessageGoesToAnAMFOfTheSetBeforeOneOfTheRegion(t *testing.T) {
	b := setBed(t, map[string][3]uint32{"one": {2, 1, 1}, "two": {1, 2, 1}, "three": {1, 1, 1}}, nil)
	guti := &nas.GUTI{PLMN: "00101", AMFID: 1<<16 | 1<<6 | 5}
	for _, name := range []string{"three", "two", "one"} {
		if c, err := b.Open("agf", nil, guti, &ue{}); err != nil || c.AMF() != name {
			t.Error(name, c, err)
		}
		b.wireOf(name).handler.Down("lost")
	}
}

func TestUEsOfAnUnavailableGUAMIGoToAnotherAMFWithTheirNextMessage(t *testing.T) {
	apply := ngap.TimerApproachForGUAMIRemovalApplyTimer
	for _, timer := range []*ngap.TimerApproachForGUAMIRemoval{nil, &apply} {
		b := setBed(t, sameSetOfTwo, nil)
		u := &ue{}
		c, amf, ran := b.connected(t, "one", u)
		one, two := b.wireOf("one"), b.wireOf("two")
		one.receive(t, &ngap.AMFStatusIndication{UnavailableGUAMIList: []ngap.UnavailableGUAMIItem{{GUAMI: testGUAMI(1), TimerApproachForGUAMIRemoval: timer}}})
		// Until then the AMF has it.
		one.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: []byte{1}})
		uplink(c)
		want := "two"
		if timer != nil {
			want = "one"
		}
		if c.AMF() != want || u.lost != "" || len(u.got) != 2 {
			t.Errorf("%s, not %s: %+v", c.AMF(), want, u)
		}
		one.handler.Down("gone")
		uplink(c)
		if _, is := two.last().(*ngap.UplinkNASTransport); !is || u.lost != "" {
			t.Errorf("%+v %+v", two.last(), u)
		}
	}
}

func TestAnAMFOfTheSetTakesAContextOverByItsOwnMessage(t *testing.T) {
	b := setBed(t, sameSetOfTwo, nil)
	u := &owner{}
	c, amf, ran := b.connected(t, "one", u)
	two := b.wireOf("two")
	// Not while its AMF serves it, and not with another identifier.
	two.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: []byte{1}})
	b.wireOf("one").handler.Down("lost")
	two.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: amf + 1, RANUENGAPID: ran, NASPDU: []byte{1}})
	for _, one := range two.sent[1:] {
		if m, is := one.pdu.Value.(*ngap.ErrorIndication); !is || CauseText(m.Cause) != "radio network: unknown-local-UE-NGAP-ID" {
			t.Errorf("%+v", one.pdu.Value)
		}
	}
	if len(u.got) != 1 || c.AMF() != "one" {
		t.Fatal(u.got, c.AMF())
	}
	two.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: []byte{1}})
	if len(u.got) != 2 || c.AMF() != "two" {
		t.Error(u.got, c.AMF())
	}
}

func TestAContextWhoseAMFDoesNotComeBackStaysUnlessItsUEComesBackByItself(t *testing.T) {
	b := setBed(t, sameSetOfTwo, nil)
	stays, returns := &ue{}, &owner{}
	c, _, _ := b.connected(t, "one", stays)
	_, _, _ = b.connected(t, "one", returns)
	b.wireOf("one").handler.Down("lost")
	b.Tick(time.Now().Add(retainTime + time.Second))
	if stays.lost != "" || c.AMF() != "two" || len(returns.lost) != 1 {
		t.Errorf("%+v at %s, %+v", stays, c.AMF(), returns)
	}
}

func TestADeletionWarnsOfUEsThatNoOtherAMFTakesOver(t *testing.T) {
	for _, c := range []struct {
		ids  map[string][3]uint32
		kind string
		name string
		spec proto.Message
		node *api.AccessNode
		want string
	}{
		{sameSetOfTwo, "Amf", "one", nil, nil, ""},
		{otherSets, "Amf", "one", nil, nil, "ends the contexts of 2 lines at the core"},
		{otherSets, "Amf", "two", nil, nil, ""},
		{otherSets, "Amf", "one", &api.Amf{Node: "agf", Addresses: []string{"192.0.2.99"}}, nil, ""},
		{otherSets, "Amf", "one", &api.Amf{Node: "other"}, nil, "ends the contexts of 2 lines at the core"},
		{otherSets, "Amf", "one", nil, &api.AccessNode{N3IwfId: 9}, "disconnects 2 UEs, whose contexts at the core end"},
		{sameSetOfTwo, "AccessNode", "agf", nil, nil, "ends the contexts of 2 lines at the core"},
	} {
		b := setBed(t, c.ids, nil)
		for range 2 {
			b.connected(t, "one", &owner{})
		}
		if c.node != nil {
			b.nodes["agf"].N3IwfId, b.nodes["agf"].WagfId = c.node.N3IwfId, 0
		}
		var o *object.Object
		if c.spec != nil {
			o = &object.Object{Kind: c.kind, Name: c.name, Spec: c.spec}
		}
		if got := strings.Join(b.Warnings(object.Key{Kind: c.kind, Name: c.name}, o), "; "); got != c.want {
			t.Errorf("%s/%s: %q instead of %q", c.kind, c.name, got, c.want)
		}
	}
}
