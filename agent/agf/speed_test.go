// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
)

// coded is a Core that writes each message as it goes out.
type coded struct {
	core
	octets int
}

func (c *coded) Send(message any) {
	octets, err := ngap.Encode(message)
	if err != nil {
		c.t.Fatal(err)
	}
	c.octets += len(octets)
}

// plant is a World of many lines.
type plant struct {
	t    testing.TB
	core *coded
	// Records are written as in the service.
	records int
}

func (p *plant) Open(*Line, *nas.GUTI, *n2.Reroute) (Core, error) { return p.core, nil }
func (p *plant) Now() time.Time                                   { return time.Unix(1e9, 0) }
func (p *plant) Alarm(*Line, time.Time)                           {}
func (p *plant) Over(*Line, error, time.Duration)                 {}
func (p *plant) Uplink(*Session, []byte)                          {}
func (p *plant) Random(time.Duration) time.Duration               { return 0 }
func (p *plant) Save(l *Line) {
	r := l.record()
	if len(r.Sessions) == 0 {
		return
	}
	octets, err := json.Marshal(&r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.records += len(octets)
}

// answers are the messages of an AMF that sets a line up, encoded.
func answers(t testing.TB) (all [][]byte) {
	source, _ := newBed(t, settings())
	encode := func(message any) {
		octets, err := ngap.Encode(message)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, octets)
	}
	encode(&ngap.DownlinkNASTransport{AMFUENGAPID: 9, RANUENGAPID: 4, NASPDU: source.null(nas.NewContext, &nas.SecurityModeCommand{NASSecAlgo: []byte{0}, UESecCap: []byte{0x80, 0x80}})})
	encode(&ngap.InitialContextSetupRequest{AMFUENGAPID: 9, RANUENGAPID: 4, GUAMI: ngap.GUAMI{PLMNIdentity: []byte{0, 0xf1, 0x10}, AMFRegionID: bits(1, 8), AMFSetID: bits(1, 10), AMFPointer: bits(1, 6)},
		AllowedNSSAI:           []ngap.AllowedNSSAIItem{{SNSSAI: ngap.SNSSAI{SST: []byte{1}}}},
		UESecurityCapabilities: ngap.UESecurityCapabilities{NRencryptionAlgorithms: bits(0, 16), NRintegrityProtectionAlgorithms: bits(0, 16), EUTRAencryptionAlgorithms: bits(0, 16), EUTRAintegrityProtectionAlgorithms: bits(0, 16)},
		SecurityKey:            long(256),
		NASPDU:                 source.null(nas.IntegrityCiphered, &nas.RegistrationAccept{FiveGSRegResult: []byte{2}, GUTI: testGUTI})})
	source.register()
	accept := source.accept(1, 9)
	accept.PTI = 1
	encode(&ngap.PDUSessionResourceSetupRequest{AMFUENGAPID: 9, RANUENGAPID: 4, PDUSessionResourceSetupListSUReq: []ngap.PDUSessionResourceSetupItemSUReq{
		{PDUSessionID: 1, SNSSAI: ngap.SNSSAI{SST: []byte{1}}, PDUSessionResourceSetupRequestTransfer: transfer(t, ngap.PDUSessionTypeIpv4, 2),
			PDUSessionNASPDU: source.null(nas.IntegrityCiphered, &nas.DLNASTransport{PayloadContainerType: 1, PayloadContainer: plain(t, accept)})}}})
	return all
}

func setUpLine(t testing.TB, p *plant, all [][]byte) *Line {
	return setUpLineOf(t, settings(), p, all)
}

func setUpLineOf(t testing.TB, s Settings, w World, all [][]byte) *Line {
	l := NewLine(s, w)
	u := &user{}
	if _, err := l.Add(demand(77), u); err != nil {
		t.Fatal(err)
	}
	for _, octets := range all {
		pdu, err := ngap.Decode(octets)
		if err != nil {
			t.Fatal(err)
		}
		l.Receive(pdu.Value)
	}
	if u.up == nil {
		t.Fatal("the line has no session: ", u.err)
	}
	return l
}

// BenchmarkRegistration is the agent's work of a registration with its PDU session: NGAP and NAS both ways, the line,
// its record.
func BenchmarkRegistration(b *testing.B) {
	all := answers(b)
	p := &plant{t: b, core: &coded{core: core{t: b, ran: 4}}}
	for b.Loop() {
		setUpLine(b, p, all)
	}
}

// BenchmarkMemory reports the memory of an active line.
func BenchmarkMemory(b *testing.B) {
	all := answers(b)
	p := &plant{t: b, core: &coded{core: core{t: b, ran: 4}}}
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		lines := make([]*Line, 10_000)
		for i := range lines {
			lines[i] = setUpLine(b, p, all)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(lines)), "B/line")
		runtime.KeepAlive(lines)
	}
}

func TestALineIsSetUpByMessagesAsTheyAreOnTheWire(t *testing.T) {
	p := &plant{t: t, core: &coded{core: core{t: t, ran: 4}}}
	setUpLine(t, p, answers(t))
	if p.records == 0 || p.core.octets == 0 {
		t.Error(p.records, p.core.octets)
	}
}

func long(count int) per.BitString { return per.BitString{Octets: make([]byte, count/8), Count: count} }
