// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"net/netip"
	"slices"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
)

func at(addresses ...string) ngap.CPTransportLayerInformation {
	b := per.BitString{}
	for _, text := range addresses {
		octets := netip.MustParseAddr(text).AsSlice()
		b.Octets, b.Count = append(b.Octets, octets...), b.Count+8*len(octets)
	}
	return ngap.CPTransportLayerInformation{EndpointIPAddress: &b}
}

func atPort(address string, port uint16) ngap.CPTransportLayerInformation {
	return ngap.CPTransportLayerInformation{EndpointIPAddressAndPort: &ngap.EndpointIPAddressAndPort{EndpointIPAddress: *at(address).EndpointIPAddress,
		PortNumber: []byte{byte(port >> 8), byte(port)}}}
}

// twinBed has an AMF with two associations, and another AMF.
func twinBed(t *testing.T) *bed {
	b := newBed(t)
	b.nodes["agf"].LocalAddresses = []string{"192.0.2.100"}
	for name, spec := range map[string]*api.Amf{"one": {Node: "agf", Addresses: []string{"192.0.2.1"}}, "twin": {Node: "agf", Addresses: []string{"2001:db8::1", "192.0.2.2"}, Port: 5000},
		"two": {Node: "agf", Addresses: []string{"192.0.2.3"}}} {
		b.amf(name, spec, b.now)
	}
	b.Tick(b.now)
	for _, name := range []string{"one", "twin", "two"} {
		w := b.wireOf(name)
		w.handler.Up(8, 8)
		m := response("first", 1, 50)
		if name == "two" {
			m = response("second", 2, 50)
		}
		w.receive(t, m)
	}
	return b
}

func TestAnAMFRemovesItsAssociations(t *testing.T) {
	b := twinBed(t)
	one, twin, two := b.wireOf("one"), b.wireOf("twin"), b.wireOf("two")
	remove := func(w *wire, remote ngap.CPTransportLayerInformation, local *ngap.CPTransportLayerInformation) {
		w.receive(t, &ngap.AMFConfigurationUpdate{AMFTNLAssociationToRemoveList: []ngap.AMFTNLAssociationToRemoveItem{
			{AMFTNLAssociationAddress: remote, TNLAssociationTransportLayerAddressNGRAN: local}}})
		if _, is := w.last().(*ngap.AMFConfigurationUpdateAcknowledge); !is {
			t.Errorf("%+v", w.last())
		}
	}
	// Of another AMF, at another port, from another address of ours, and unknown or malformed ones.
	elsewhere, here := at("192.0.2.101"), at("192.0.2.100")
	for _, remote := range []ngap.CPTransportLayerInformation{at("192.0.2.3"), atPort("192.0.2.2", 5001), at("192.0.2.9"), {EndpointIPAddress: &per.BitString{Octets: []byte{192}, Count: 8}}} {
		remove(one, remote, nil)
	}
	remove(one, at("192.0.2.2"), &elsewhere)
	if one.closed || twin.closed || two.closed {
		t.Fatal("an association is shut down")
	}
	remove(one, atPort("192.0.2.2", 5000), &here)
	a := b.amfs["twin"]
	if one.closed || !twin.closed || twin.aborted || a.phase != down || a.reason != "the AMF removes the association" {
		t.Errorf("%+v", a)
	}
	// It is asked again, but not at once.
	opened := len(b.core.opened)
	b.Tick(b.now.Add(mostWait / 2))
	if len(b.core.opened) != opened {
		t.Error("asked too early")
	}
	b.Tick(a.due)
	if len(b.core.opened) != opened+1 {
		t.Error("not asked")
	}
	// Its own one: both families in one IE.
	remove(one, at("192.0.2.1", "2001:db8::7"), nil)
	if !one.closed || b.amfs["one"].phase != down || two.closed {
		t.Errorf("%+v", b.amfs["one"])
	}
}

func TestAnAMFSaysWhatItsAssociationsAreFor(t *testing.T) {
	b := twinBed(t)
	w := b.wireOf("one")
	usage := func(u ngap.TNLAssociationUsage) *ngap.TNLAssociationUsage { return &u }
	weight := func(f ngap.TNLAddressWeightFactor) *ngap.TNLAddressWeightFactor { return &f }
	g := b.amfs["one"].served[0]
	opens := func() (names []string) {
		for i := range 20 {
			b.random = func() float64 { return float64(i) / 20 }
			c, err := b.Open("agf", nil, &nas.GUTI{PLMN: g.plmn, AMFID: g.amfID}, &ue{})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(names, c.AMF()) {
				names = append(names, c.AMF())
			}
		}
		slices.Sort(names)
		return names
	}
	for _, c := range []struct {
		item ngap.AMFTNLAssociationToUpdateItem
		want []string
	}{
		{ngap.AMFTNLAssociationToUpdateItem{AMFTNLAssociationAddress: at("192.0.2.1"), TNLAddressWeightFactor: weight(0)}, []string{"twin"}},
		{ngap.AMFTNLAssociationToUpdateItem{AMFTNLAssociationAddress: at("192.0.2.1"), TNLAddressWeightFactor: weight(9)}, []string{"one", "twin"}},
		{ngap.AMFTNLAssociationToUpdateItem{AMFTNLAssociationAddress: at("2001:db8::1"), TNLAssociationUsage: usage(ngap.TNLAssociationUsageNonUe)}, []string{"one"}},
		{ngap.AMFTNLAssociationToUpdateItem{AMFTNLAssociationAddress: at("192.0.2.3"), TNLAddressWeightFactor: weight(0)}, []string{"one"}},
		{ngap.AMFTNLAssociationToUpdateItem{AMFTNLAssociationAddress: at("2001:db8::1"), TNLAssociationUsage: usage(ngap.TNLAssociationUsageBoth)}, []string{"one", "twin"}},
	} {
		w.receive(t, &ngap.AMFConfigurationUpdate{AMFTNLAssociationToUpdateList: []ngap.AMFTNLAssociationToUpdateItem{c.item}})
		if got := opens(); !slices.Equal(got, c.want) {
			t.Errorf("%v, not %v", got, c.want)
		}
	}
	if b.amfs["two"].weightless {
		t.Error("an AMF changes the association of another one")
	}
	// One that is there is set up, and another one is for an operator.
	w.receive(t, &ngap.AMFConfigurationUpdate{AMFTNLAssociationToAddList: []ngap.AMFTNLAssociationToAddItem{
		{AMFTNLAssociationAddress: at("192.0.2.2"), TNLAddressWeightFactor: 0}, {AMFTNLAssociationAddress: at("192.0.2.77"), TNLAddressWeightFactor: 5}}})
	m, is := w.last().(*ngap.AMFConfigurationUpdateAcknowledge)
	if !is || len(m.AMFTNLAssociationSetupList) != 1 || len(m.AMFTNLAssociationFailedToSetupList) != 1 || !slices.Equal(opens(), []string{"one"}) {
		t.Errorf("%+v", w.last())
	}
	// A new NG setup begins from the beginning.
	if err := b.amfs["twin"].setUp(response("first", 1, 50), b.now); err != nil || b.amfs["twin"].weightless {
		t.Error("it has no weight after NG setup", err)
	}
}

func TestAnErrorIndicationInsteadOfAnAnswerEndsNGSetup(t *testing.T) {
	b := newBed(t, "one")
	w := b.wireOf("one")
	w.handler.Up(8, 8)
	ran, cause := ngap.RANUENGAPID(7), protocolCause(ngap.CauseProtocolTransferSyntaxError)
	other := ngap.ProcedureCode(ngap.ProcedureNGReset)
	w.receive(t, &ngap.ErrorIndication{RANUENGAPID: &ran, Cause: &cause})
	w.receive(t, &ngap.ErrorIndication{Cause: &cause, CriticalityDiagnostics: &ngap.CriticalityDiagnostics{ProcedureCode: &other}})
	a := b.amfs["one"]
	if a.phase != settingUp || len(w.sent) != 1 {
		t.Fatalf("%+v", a)
	}
	// Another message before NG setup is not carried out.
	all := ngap.ResetAllResetAll
	w.receive(t, &ngap.NGReset{Cause: miscCause(0), ResetType: ngap.ResetType{NGInterface: &all}})
	if m, is := w.last().(*ngap.ErrorIndication); !is || CauseText(m.Cause) != "protocol: message-not-compatible-with-receiver-state" || a.phase != settingUp {
		t.Errorf("%+v", w.last())
	}
	w.receive(t, &ngap.ErrorIndication{Cause: &cause})
	if a.phase != down || !w.aborted || a.reason != "the AMF answers NG SETUP REQUEST by ERROR INDICATION: protocol: transfer-syntax-error" {
		t.Errorf("%+v", a)
	}
}
