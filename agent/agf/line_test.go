// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/aka"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/n2"
	"sluice.dev/sluice/agent/nas"
	"sluice.dev/sluice/agent/ngap"
	"sluice.dev/sluice/agent/per"
	"sluice.dev/sluice/agent/qosflow"
)

// core records a line's messages of a context.
type core struct {
	t      testing.TB
	ran    ngap.RANUENGAPID
	sent   []any
	closed bool
	// Why the line did not take messages.
	refused []n2.NASRefusal
	// The AMF is asked to release it.
	released bool
}

func (c *core) IDs() (ngap.AMFUENGAPID, ngap.RANUENGAPID) { return 9, c.ran }
func (c *core) AMF() string                               { return "core-1" }
func (c *core) TAI() ngap.TAI {
	return ngap.TAI{PLMNIdentity: []byte{0, 0xf1, 0x10}, TAC: []byte{0, 0, 1}}
}
func (c *core) PLMN() nas.PLMN { return "00101" }
func (c *core) RefusedNAS(why n2.NASRefusal) {
	c.refused = append(c.refused, why)
}
func (c *core) Close()   { c.closed = true }
func (c *core) Release() { c.closed, c.released = true, true }
func (c *core) Send(message any) {
	c.t.Helper()
	if _, err := ngap.Encode(message); err != nil {
		c.t.Fatal(err)
	}
	c.sent = append(c.sent, message)
}

// bed is a line with a World whose time the test moves.
type bed struct {
	*Line
	t     testing.TB
	now   time.Time
	at    time.Time
	cores []*core
	down  uint32 // the next downlink count
	noAMF bool
	to    *n2.Reroute
	guti  *nas.GUTI
	ended bool
	why   error
	hold  time.Duration
	saved int
	// IP packets into tunnels.
	uplinks [][]byte
}

func (b *bed) Open(_ *Line, guti *nas.GUTI, to *n2.Reroute) (Core, error) {
	if b.noAMF {
		return nil, n2.ErrNoAMF
	}
	b.to, b.guti = to, guti
	c := &core{t: b.t, ran: ngap.RANUENGAPID(len(b.cores) + 4)}
	b.cores = append(b.cores, c)
	return c, nil
}
func (b *bed) Now() time.Time                              { return b.now }
func (b *bed) Alarm(_ *Line, at time.Time)                 { b.at = at }
func (b *bed) Save(*Line)                                  { b.saved++ }
func (b *bed) Over(_ *Line, why error, hold time.Duration) { b.ended, b.why, b.hold = true, why, hold }
func (b *bed) Uplink(_ *Session, packet []byte)            { b.uplinks = append(b.uplinks, packet) }
func (b *bed) Random(time.Duration) time.Duration          { return time.Second }
func (b *bed) core() *core                                 { return b.cores[len(b.cores)-1] }

// pass moves the time to the next alarm.
func (b *bed) pass() time.Duration {
	b.t.Helper()
	if b.at.IsZero() {
		b.t.Fatal("no timer runs")
	}
	passed := b.at.Sub(b.now)
	b.now = b.at
	b.Tick()
	return passed
}

// user is the subscriber of a PDU session.
type user struct {
	up      *Result
	changed []Result
	err     error
	ended   bool
}

func (u *user) Up(r Result)      { u.up = &r }
func (u *user) Changed(r Result) { u.changed = append(u.changed, r) }
func (u *user) Ended(err error)  { u.err, u.ended = err, true }

func settings() Settings {
	return Settings{Line: "line-7", Realm: "example", Slice: &nas.SNSSAI{SST: 1}, MAC: [6]byte{2, 0, 0, 0, 0, 7}, Marks: qosflow.Marks(nil)}
}

func demand(teid uint32) Demand {
	return Demand{Type: nas.PDUSessionIPv4, DNN: "internet", Address: netip.MustParseAddr("192.0.2.1"), TEID: teid}
}

func newBed(t testing.TB, s Settings) (*bed, *user) {
	b := &bed{t: t, now: time.Unix(1e9, 0)}
	b.Line = NewLine(s, b)
	u := &user{}
	if _, err := b.Add(demand(77), u); err != nil {
		t.Fatal(err)
	}
	return b, u
}

// messages that the line sent by a context, as NAS; the security header of each.
func (c *core) nas() (headers []uint8, all []any) {
	c.t.Helper()
	for _, sent := range c.sent {
		var octets []byte
		switch m := sent.(type) {
		case *ngap.InitialUEMessage:
			octets = m.NASPDU
		case *ngap.UplinkNASTransport:
			octets = m.NASPDU
		default:
			continue
		}
		header, err := nas.HeaderOf(octets)
		if err != nil {
			c.t.Fatal(err)
		}
		plain, _ := nas.Unverified(octets)
		message, err := nas.Decode(plain)
		if err != nil {
			c.t.Fatalf("%x: %v", octets, err)
		}
		headers, all = append(headers, header), append(all, message)
	}
	return headers, all
}

// last is the last NAS message of the line.
func last[T any](c *core) T {
	c.t.Helper()
	_, all := c.nas()
	var none T
	if len(all) == 0 {
		c.t.Fatal("the line sent nothing")
	}
	message, ok := all[len(all)-1].(T)
	if !ok {
		c.t.Fatalf("the line sent %T, not %T", all[len(all)-1], none)
	}
	return message
}

// lastSession is the last 5GSM message of the line.
func lastSession[T any](c *core) T {
	c.t.Helper()
	transport := last[*nas.ULNASTransport](c)
	message, err := nas.Decode(transport.PayloadContainer)
	of, ok := message.(T)
	if err != nil || !ok {
		c.t.Fatalf("the line sent %T: %v", message, err)
	}
	return of
}

func plain(t testing.TB, message any) []byte {
	t.Helper()
	octets, err := nas.Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	return octets
}

// null is a message of the network with null algorithms.
func (b *bed) null(header uint8, message any) []byte {
	b.t.Helper()
	octets := plain(b.t, message)
	if header == nas.Plain {
		return octets
	}
	octets = append([]byte{nas.MobilityManagement, header, 0, 0, 0, 0, byte(b.down)}, octets...)
	b.down++
	return octets
}

func (b *bed) say(header uint8, message any) {
	b.t.Helper()
	b.Receive(&ngap.DownlinkNASTransport{NASPDU: b.null(header, message)})
}

func (b *bed) saySession(message any) {
	b.t.Helper()
	b.say(nas.IntegrityCiphered, &nas.DLNASTransport{PayloadContainerType: 1, PayloadContainer: plain(b.t, message)})
}

func (b *bed) secure() {
	b.t.Helper()
	b.down = 0
	b.say(nas.NewContext, &nas.SecurityModeCommand{NASSecAlgo: []byte{0}, UESecCap: []byte{0x80, 0x80, 0, 0}})
}

var testGUTI = []byte{0xf2, 0, 0xf1, 0x10, 1, 0, 0x41, 0, 0, 0, 9}

func (b *bed) register() {
	b.t.Helper()
	b.secure()
	b.Receive(&ngap.InitialContextSetupRequest{NASPDU: b.null(nas.IntegrityCiphered, &nas.RegistrationAccept{FiveGSRegResult: []byte{2}, GUTI: testGUTI, Non3GPPDeregTimer: []byte{0x29}})})
}

// far is the UPF's end of a tunnel.
func far(teid byte) ngap.UPTransportLayerInformation {
	return ngap.UPTransportLayerInformation{GTPTunnel: &ngap.GTPTunnel{TransportLayerAddress: per.BitString{Octets: []byte{192, 0, 2, 2}, Count: 32}, GTPTEID: []byte{0, 0, 1, teid}}}
}

func parameters(fiveQI int64, gbr *ngap.GBRQosInformation) ngap.QosFlowLevelQosParameters {
	return ngap.QosFlowLevelQosParameters{QosCharacteristics: ngap.QosCharacteristics{NonDynamic5QI: &ngap.NonDynamic5QIDescriptor{FiveQI: ngap.FiveQI(fiveQI)}},
		AllocationAndRetentionPriority: ngap.AllocationAndRetentionPriority{PriorityLevelARP: 8}, GBRQosInformation: gbr}
}

func transfer(t testing.TB, kind ngap.PDUSessionType, teid byte) []byte {
	t.Helper()
	octets, err := ngap.EncodeTransfer(&ngap.PDUSessionResourceSetupRequestTransfer{PDUSessionType: kind, ULNGUUPTNLInformation: far(teid),
		QosFlowSetupRequestList: []ngap.QosFlowSetupRequestItem{{QosFlowIdentifier: 5, QosFlowLevelQosParameters: parameters(9, nil)}}})
	if err != nil {
		t.Fatal(err)
	}
	return octets
}

func (b *bed) accept(id uint8, address byte) *nas.PDUSessionEstablishmentAccept {
	return &nas.PDUSessionEstablishmentAccept{Session: nas.Session{PDUSessionID: id, PTI: b.sessions[id].pti}, SSCMode: 1, PDUSessType: 1,
		QoSRules: []byte{1, 0, 6, 0x31, 0x31, 1, 1, 255, 5}, SessAMBR: []byte{6, 0, 20, 6, 0, 10}, PDUAddress: []byte{1, 100, 64, 9, address},
		ExtProtConfig: []byte{0x80, 0, 0x0d, 4, 192, 0, 2, 53}}
}

// give sets a PDU session up.
func (b *bed) give(id, address byte) {
	b.t.Helper()
	accept := b.null(nas.IntegrityCiphered, &nas.DLNASTransport{PayloadContainerType: 1, PayloadContainer: plain(b.t, b.accept(id, address))})
	b.Receive(&ngap.PDUSessionResourceSetupRequest{PDUSessionResourceSetupListSUReq: []ngap.PDUSessionResourceSetupItemSUReq{
		{PDUSessionID: ngap.PDUSessionID(id), PDUSessionNASPDU: accept, PDUSessionResourceSetupRequestTransfer: transfer(b.t, ngap.PDUSessionTypeIpv4, 2)}}})
}

// up is a line with a PDU session.
func up(t testing.TB) (*bed, *user) {
	t.Helper()
	b, u := newBed(t, settings())
	b.register()
	b.give(1, 9)
	if u.up == nil {
		t.Fatal(u.err)
	}
	return b, u
}

func TestALineRegistersWithTheIdentityOfItsLine(t *testing.T) {
	b, _ := newBed(t, settings())
	first, ok := b.core().sent[0].(*ngap.InitialUEMessage)
	if !ok || first.AuthenticatedIndication == nil || string(first.UserLocationInformation.UserLocationInformationWAGF.GlobalLineID.GlobalLineIdentity) != "line-7" {
		t.Fatalf("%+v", first)
	}
	request := last[*nas.RegistrationRequest](b.core())
	if !strings.HasSuffix(string(request.FiveGSID), "useridline-7@example") || request.FiveGSRegType != followOn|initialRegistration || !bytes.Equal(request.UESecCap, []byte{0x80, 0x80}) {
		t.Errorf("%+v", request)
	}
}

func TestALineThatIsSetUpHasWhatTheCoreGave(t *testing.T) {
	b, u := up(t)
	r := u.up
	if r.IPv4 != netip.MustParseAddr("100.64.9.9") || r.Down != 20_000_000 || r.Up != 10_000_000 || r.Flows != nil || r.QueuesDown != nil || len(r.DNS) != 1 {
		t.Errorf("%+v", r)
	}
	g := r.Tunnel
	if g.LocalAddress != "192.0.2.1" || g.LocalTeid != 77 || g.RemoteAddress != "192.0.2.2" || g.RemoteTeid != 258 || g.Qfi != 5 {
		t.Errorf("%+v", g)
	}
	headers, all := b.core().nas()
	if !slices.Equal(headers, []uint8{nas.Plain, nas.NewContextCiphered, nas.IntegrityCiphered, nas.IntegrityCiphered}) {
		t.Errorf("%v %+v", headers, all)
	}
	if complete := all[1].(*nas.SecurityModeComplete); !bytes.Equal(complete.NASContainer, plain(t, all[0])) {
		t.Errorf("%x", complete.NASContainer)
	}
}

func TestOtherAlgorithmsThanNullAreRefused(t *testing.T) {
	for _, command := range []*nas.SecurityModeCommand{{NASSecAlgo: []byte{0x22}, UESecCap: []byte{0x80, 0x80}}, {NASSecAlgo: []byte{0}, NASKSI: 1, UESecCap: []byte{0x80, 0x80}},
		{NASSecAlgo: []byte{0}, UESecCap: []byte{0xf0, 0x80}}, {NASSecAlgo: []byte{0}, UESecCap: []byte{0x80, 0x80, 1}}} {
		b, _ := newBed(t, settings())
		b.say(nas.NewContext, command)
		if m := last[*nas.SecurityModeReject](b.core()); m.FiveGMMCause[0] != causeMismatch || b.context != nil {
			t.Errorf("%+v", command)
		}
	}
}

func TestTheIdentityOfTheHomeIsItsMAC(t *testing.T) {
	b, _ := newBed(t, settings())
	requested := uint8(1)
	b.say(nas.NewContext, &nas.SecurityModeCommand{NASSecAlgo: []byte{0}, UESecCap: []byte{0x80, 0x80}, IMEISVReq: &requested})
	if m := last[*nas.SecurityModeComplete](b.core()); !bytes.Equal(m.PEI, []byte{6, 2, 0, 0, 0, 0, 7}) {
		t.Errorf("%x", m.PEI)
	}
	b.say(nas.IntegrityCiphered, &nas.IdentityRequest{FiveGSIDType: nas.IdentitySUCI})
	if m := last[*nas.IdentityResponse](b.core()); m.FiveGSID[0] != 0x31 {
		t.Errorf("%x", m.FiveGSID)
	}
}

func TestARejectedLineWaitsAsTheCauseSays(t *testing.T) {
	for cause, expected := range map[uint8]time.Duration{3: t3502Time, 11: t3502Time, 111: t3511Time, causeCongestion: 10 * time.Second} {
		b, u := newBed(t, settings())
		b.say(nas.Plain, &nas.RegistrationReject{FiveGMMCause: []byte{cause}, T3346: []byte{5}})
		if !u.ended || u.err == nil || !b.ended || b.hold != expected || !b.core().closed {
			t.Errorf("cause %d: %v, hold %s", cause, u.err, b.hold)
		}
	}
	b, u := newBed(t, settings())
	b.register()
	b.saySession(&nas.PDUSessionEstablishmentReject{Session: nas.Session{PDUSessionID: 1, PTI: b.sessions[1].pti}, FiveGSMCause: []byte{27}})
	if u.err == nil || !strings.Contains(u.err.Error(), "cause 27") || b.state != leaving {
		t.Error(u.err, b.state)
	}
}

func TestALineWhosePDUSessionIsRefusedWaits(t *testing.T) {
	for _, c := range []struct {
		refusals int
		timer    []byte
		want     time.Duration
	}{{0, nil, t3511Time}, {4, nil, t3502Time}, {0, []byte{0x21}, time.Hour}} {
		b, _ := newBed(t, settings())
		b.refusals = c.refusals
		b.register()
		b.saySession(&nas.PDUSessionEstablishmentReject{Session: nas.Session{PDUSessionID: 1, PTI: b.sessions[1].pti}, FiveGSMCause: []byte{27}, BackOffTimer: c.timer})
		b.say(nas.IntegrityCiphered, &nas.UEDeregistrationAccept{})
		if !b.ended || b.hold != c.want || b.refusals != c.refusals+1 || b.why == nil || !strings.Contains(b.why.Error(), "cause 27") {
			t.Errorf("%+v: %v, %s, %d", c, b.why, b.hold, b.refusals)
		}
	}
	// One that has another session keeps it, and one whose session came up has no refusals any more.
	b, _ := up(t)
	second := &user{}
	if _, err := b.Add(demand(78), second); err != nil {
		t.Fatal(err)
	}
	b.saySession(&nas.PDUSessionEstablishmentReject{Session: nas.Session{PDUSessionID: 2, PTI: b.sessions[2].pti}, FiveGSMCause: []byte{27}})
	b.sessions[1].Release()
	b.say(nas.IntegrityCiphered, &nas.UEDeregistrationAccept{})
	if !second.ended || !b.ended || b.why != nil || b.hold != 0 {
		t.Errorf("%v, %s", b.why, b.hold)
	}
	b, _ = newBed(t, settings())
	b.refusals = 4
	b.register()
	if b.give(1, 9); b.refusals != 0 {
		t.Error(b.refusals)
	}
}

func TestATunnelOfAnotherFamilyIsNamed(t *testing.T) {
	s := settings()
	b := &bed{t: t, now: time.Unix(1e9, 0)}
	b.Line = NewLine(s, b)
	u, d := &user{}, demand(77)
	d.Address = netip.MustParseAddr("2001:db8::1")
	if _, err := b.Add(d, u); err != nil {
		t.Fatal(err)
	}
	b.register()
	if b.give(1, 9); u.err == nil || u.err.Error() != "the UPF's address is not of the family of 2001:db8::1, the Agf's coreAddress" {
		t.Error(u.err)
	}
}

func TestALineWhoseAuthenticationFailsSaysWhatFailed(t *testing.T) {
	s := settings()
	s.Subscription = &Subscription{PLMN: "00101", MSIN: "0000000001", Name: "CoreSubscriber/home-7", USIM: aka.USIM{Milenage: aka.NewMilenage([16]byte{1}, [16]byte{2})}}
	b, u := newBed(t, s)
	b.say(nas.Plain, &nas.AuthenticationRequest{ABBA: []byte{0, 0}, RAND: make([]byte, 16), AUTN: append([]byte{0, 0, 0, 0, 0, 0, 0x80}, make([]byte, 9)...)})
	b.pass()
	want := "the core does not authenticate again (T3520): the MAC of the core's challenge is wrong: key or opc of CoreSubscriber/home-7 is not that of the core"
	if u.err == nil || u.err.Error() != want {
		t.Error(u.err)
	}
}

// TS 24.501 sections 5.3.20.2, 5.4.1.3.5, 5.5.1.2.5 and 5.6.1.5. The random part is a second.
func TestALineWithCredentialsThatIsRejectedWithoutProtectionWaitsForARandomTime(t *testing.T) {
	long := []byte{6<<5 | 1}
	for _, c := range []struct {
		message   any
		state     state
		protected bool
		doubts    int
		expected  time.Duration
	}{
		{&nas.RegistrationReject{FiveGMMCause: []byte{3}}, registering, false, 0, 30*time.Minute + time.Second},
		{&nas.RegistrationReject{FiveGMMCause: []byte{7}}, registering, false, 8, 30*time.Minute + time.Second},
		{&nas.RegistrationReject{FiveGMMCause: []byte{6}}, registering, false, 9, 24 * time.Hour},
		{&nas.RegistrationReject{FiveGMMCause: []byte{3}}, registering, true, 9, t3502Time},
		{&nas.RegistrationReject{FiveGMMCause: []byte{111}, T3502: long}, registering, false, 0, t3511Time},
		{&nas.RegistrationReject{FiveGMMCause: []byte{causeCongestion}, T3346: long}, registering, false, 0, 15*time.Minute + time.Second},
		{&nas.RegistrationReject{FiveGMMCause: []byte{causeCongestion}, T3346: []byte{5}}, registering, true, 0, 10 * time.Second},
		{&nas.ServiceReject{FiveGMMCause: []byte{7}}, requesting, false, 0, 30*time.Minute + time.Second},
		{&nas.AuthenticationReject{}, registering, false, 0, 30*time.Minute + time.Second},
		{&nas.AuthenticationReject{}, registering, true, 0, t3502Time},
	} {
		b, of := credentialed(t)
		b.state, b.doubts = c.state, c.doubts
		octets := plain(t, c.message)
		if c.protected {
			octets = of(nas.Integrity, 10, octets)
		}
		b.Receive(&ngap.DownlinkNASTransport{NASPDU: octets})
		if !b.ended || b.hold != c.expected {
			t.Errorf("%T %+v: ended %v, hold %s, not %s", c.message, c, b.ended, b.hold, c.expected)
		}
	}
	// Those that are not taken without protection at all, and a congestion that leaves the line registered.
	for _, message := range []any{&nas.RegistrationReject{FiveGMMCause: []byte{76}}, &nas.RegistrationReject{FiveGMMCause: []byte{81}}, &nas.ServiceReject{FiveGMMCause: []byte{78}}} {
		b, _ := credentialed(t)
		b.state = registering
		if b.say(nas.Plain, message); b.ended || !slices.Equal(b.core().refused, []n2.NASRefusal{n2.NASUnprotected}) {
			t.Errorf("%+v: %v", message, b.core().refused)
		}
	}
	b, _ := credentialed(t)
	b.state = requesting
	if b.say(nas.Plain, &nas.ServiceReject{FiveGMMCause: []byte{causeCongestion}, T3346: []byte{1}}); b.ended || b.pass() != 15*time.Minute+time.Second {
		t.Errorf("%v", b.state)
	}
}

func TestARegistrationThatIsNotAnsweredEndsAndWaits(t *testing.T) {
	b, u := newBed(t, settings())
	if passed := b.pass(); passed != t3510Time || !u.ended || b.hold != t3511Time {
		t.Errorf("%s, %v, hold %s", passed, u.err, b.hold)
	}
	b, _ = newBed(t, settings())
	b.attempts = maxAttempts - 1
	b.pass()
	if b.hold != t3502Time {
		t.Errorf("hold %s after %d attempts", b.hold, maxAttempts)
	}
}

func TestARequestForAPDUSessionIsRepeatedAndGivenUp(t *testing.T) {
	b, u := newBed(t, settings())
	b.register()
	for repeat := range maxAttempts {
		before := len(b.core().sent)
		if passed := b.pass(); passed != t3580Time {
			t.Errorf("repetition %d after %s", repeat, passed)
		}
		if repeat < maxAttempts-1 && (len(b.core().sent) != before+1 || u.ended) {
			t.Errorf("repetition %d: %v", repeat, u.err)
		}
	}
	if !u.ended || b.state != leaving {
		t.Error(u.err, b.state)
	}
}

func TestALineThatGoesWhileItCannotDeregisterHasItsContextReleased(t *testing.T) {
	// While it registers.
	b, _ := newBed(t, settings())
	b.sessions[1].Release()
	if !b.ended || !b.core().released {
		t.Errorf("%v %+v", b.ended, b.core())
	}
	// While the association is lost, and the AMF may keep the context.
	b, _ = up(t)
	b.Suspended()
	b.sessions[1].Release()
	if !b.ended || !b.core().released {
		t.Errorf("%v %+v", b.ended, b.core())
	}
}

func TestADeregistrationIsRepeatedUntilItIsAccepted(t *testing.T) {
	b, u := up(t)
	b.sessions[1].Release()
	if m := last[*nas.UEDeregistrationRequest](b.core()); m.DeregistrationType != accessNon3GPP || !bytes.Equal(m.FiveGSID, testGUTI) || u.ended {
		t.Errorf("%+v %v", m, u.err)
	}
	for range maxAttempts - 1 {
		if passed := b.pass(); passed != t3521Time || b.ended {
			t.Error(passed)
		}
	}
	b.pass()
	if !b.ended {
		t.Error("the line waits for ever")
	}
	// Without an AMF, for a while: the one that is back gets the request.
	b, _ = up(t)
	b.Lost("the association is lost")
	b.noAMF = true
	b.sessions[1].Release()
	b.pass()
	before := len(b.cores)
	b.noAMF = false
	b.pass()
	if last[*nas.UEDeregistrationRequest](b.core()); b.ended || len(b.cores) != before+1 {
		t.Error("the core is not told")
	}
	b, _ = up(t)
	b.sessions[1].Release()
	b.say(nas.IntegrityCiphered, &nas.UEDeregistrationAccept{})
	if !b.ended || !b.at.IsZero() {
		t.Error("the answer does not end the deregistration")
	}
}

func TestALineHasSeveralPDUSessions(t *testing.T) {
	b, _ := up(t)
	second := &user{}
	if _, err := b.Add(demand(78), second); err != nil {
		t.Fatal(err)
	}
	b.give(2, 10)
	if second.up == nil || second.up.Tunnel.LocalTeid != 78 {
		t.Fatal(second.err)
	}
	b.sessions[2].Release()
	request := lastSession[*nas.PDUSessionReleaseRequest](b.core())
	if passed := b.pass(); passed != t3582Time {
		t.Error(passed)
	}
	b.saySession(&nas.PDUSessionReleaseCommand{Session: request.Session, FiveGSMCause: []byte{36}})
	if last := lastSession[*nas.PDUSessionReleaseComplete](b.core()); last.PTI != request.PTI || len(b.sessions) != 1 || second.ended || b.state != registered {
		t.Errorf("%+v", last)
	}
	for id := uint8(2); id <= 15; id++ {
		if _, err := b.Add(demand(uint32(100+id)), &user{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Add(demand(99), &user{}); !errors.Is(err, errNoIdentity) {
		t.Error(err)
	}
}

func TestTheCoreChangesAPDUSession(t *testing.T) {
	b, u := up(t)
	gbr := &ngap.GBRQosInformation{MaximumFlowBitRateDL: 2_000_000, MaximumFlowBitRateUL: 1_000_000, GuaranteedFlowBitRateDL: 500_000, GuaranteedFlowBitRateUL: 400_000}
	voice := parameters(1, gbr)
	octets, err := ngap.EncodeTransfer(&ngap.PDUSessionResourceModifyRequestTransfer{
		PDUSessionAggregateMaximumBitRate: &ngap.PDUSessionAggregateMaximumBitRate{PDUSessionAggregateMaximumBitRateDL: 50_000_000, PDUSessionAggregateMaximumBitRateUL: 30_000_000},
		ULNGUUPTNLModifyList:              []ngap.ULNGUUPTNLModifyItem{{ULNGUUPTNLInformation: far(9), DLNGUUPTNLInformation: far(1)}},
		QosFlowAddOrModifyRequestList:     []ngap.QosFlowAddOrModifyRequestItem{{QosFlowIdentifier: 1, QosFlowLevelQosParameters: &voice}, {QosFlowIdentifier: 7}}})
	if err != nil {
		t.Fatal(err)
	}
	command := &nas.PDUSessionModificationCommand{Session: nas.Session{PDUSessionID: 1}, SessAMBR: []byte{6, 0, 50, 6, 0, 30}}
	command.QoSRules = []byte{2, 0, 10, 0x21, 0x31, 5, 0x30, 17, 0x50, 0x13, 0xc4, 10, 1}
	pdu := b.null(nas.IntegrityCiphered, &nas.DLNASTransport{PayloadContainerType: 1, PayloadContainer: plain(t, command)})
	b.Receive(&ngap.PDUSessionResourceModifyRequest{PDUSessionResourceModifyListModReq: []ngap.PDUSessionResourceModifyItemModReq{
		{PDUSessionID: 1, NASPDU: pdu, PDUSessionResourceModifyRequestTransfer: octets}, {PDUSessionID: 3, PDUSessionResourceModifyRequestTransfer: octets}}})
	if len(u.changed) != 1 {
		t.Fatalf("%+v", u.changed)
	}
	r := u.changed[0]
	if r.Tunnel.RemoteTeid != 265 || r.Tunnel.Qfi != 5 {
		t.Errorf("%+v", r)
	}
	// The session's AMBR is of the flow without a guaranteed bit rate; the other has its MFBR.
	if r.Down != 0 || r.Up != 0 || r.rates(1) != "1000000/2000000" || r.rates(5) != "30000000/50000000" {
		t.Errorf("%s %s %+v", r.rates(1), r.rates(5), r)
	}
	if len(r.Flows.GetRules()) != 2 || r.Flows.Rules[0].Qfi != 1 || r.Flows.Rules[0].Filters[0].RemotePorts != "5060" || len(r.Flows.Flows) != 2 || r.Flows.Flows[0].Dscp != "ef" {
		t.Errorf("%+v", r.Flows)
	}
	voiceClass := r.QueuesDown.GetClasses()[qosflow.Marks(nil)[1].Class]
	if voiceClass.CommittedRate != 500_000 || voiceClass.PeakRate != 2_000_000 || r.QueuesUp.Classes[qosflow.Marks(nil)[1].Class].CommittedRate != 400_000 {
		t.Errorf("%+v", r.QueuesDown)
	}
	var answer *ngap.PDUSessionResourceModifyResponse
	for _, sent := range b.core().sent {
		if m, ok := sent.(*ngap.PDUSessionResourceModifyResponse); ok {
			answer = m
		}
	}
	var own ngap.PDUSessionResourceModifyResponseTransfer
	if len(answer.PDUSessionResourceModifyListModRes) != 1 || len(answer.PDUSessionResourceFailedToModifyListModRes) != 1 {
		t.Fatalf("%+v", answer)
	}
	if _, err := ngap.DecodeTransfer(answer.PDUSessionResourceModifyListModRes[0].PDUSessionResourceModifyResponseTransfer, &own); err != nil ||
		len(own.QosFlowAddOrModifyResponseList) != 1 || len(own.QosFlowFailedToAddOrModifyList) != 1 {
		t.Errorf("%+v %v", own, err)
	}
	lastSession[*nas.PDUSessionModificationComplete](b.core())
	// Two rules of one precedence are refused, and nothing changes.
	b.saySession(&nas.PDUSessionModificationCommand{Session: nas.Session{PDUSessionID: 1}, QoSRules: []byte{3, 0, 3, 0x20, 10, 1}})
	if m := lastSession[*nas.PDUSessionModificationCommandReject](b.core()); m.FiveGSMCause[0] != causeQoSSemantic || len(u.changed) != 1 {
		t.Errorf("%+v", m)
	}
	b.saySession(&nas.PDUSessionModificationCommand{Session: nas.Session{PDUSessionID: 4}})
	if m := lastSession[*nas.PDUSessionModificationCommandReject](b.core()); m.FiveGSMCause[0] != causeInvalidSession {
		t.Errorf("%+v", m)
	}
}

func TestTheSubscribersRateLimitsItsSessions(t *testing.T) {
	b, u := up(t)
	b.Receive(&ngap.UEContextModificationRequest{UEAggregateMaximumBitRate: &ngap.UEAggregateMaximumBitRate{UEAggregateMaximumBitRateDL: 5_000_000, UEAggregateMaximumBitRateUL: 1_000_000_000}})
	if len(u.changed) != 1 || u.changed[0].Down != 5_000_000 || u.changed[0].Up != 10_000_000 {
		t.Errorf("%+v", u.changed)
	}
	if _, ok := b.core().sent[len(b.core().sent)-1].(*ngap.UEContextModificationResponse); !ok {
		t.Error("no answer")
	}
}

func TestTheSubscribersRateLimitsItsSessionsTogether(t *testing.T) {
	b, u := up(t)
	second := &user{}
	if _, err := b.Add(demand(78), second); err != nil {
		t.Fatal(err)
	}
	b.give(2, 10)
	// 20 Mbit/s down and 10 Mbit/s up each.
	modify := func(down, up int64) {
		b.Receive(&ngap.UEContextModificationRequest{UEAggregateMaximumBitRate: &ngap.UEAggregateMaximumBitRate{
			UEAggregateMaximumBitRateDL: ngap.BitRate(down), UEAggregateMaximumBitRateUL: ngap.BitRate(up)}})
	}
	modify(40_000_000, 15_000_000)
	var names []string
	for _, one := range []*user{u, second} {
		// Uplink the session's rate and the subscriber's; downlink the session's meter does.
		r := one.changed[len(one.changed)-1]
		if r.Down != 20_000_000 || r.Up != 0 || r.rates(5) != "10000000+15000000/" {
			t.Errorf("%s %+v", r.rates(5), r)
		}
		names = append(names, r.Flows.Flows[0].MetersUp...)
	}
	if names[0] == names[2] || names[1] != names[3] {
		t.Errorf("the sessions share another meter than the subscriber's: %v", names)
	}
	modify(30_000_000, 15_000_000)
	if r := u.changed[len(u.changed)-1]; r.Down != 0 || r.rates(5) != "10000000+15000000/20000000+30000000" {
		t.Errorf("%s %+v", r.rates(5), r)
	}
	// One session alone has the rate for itself.
	b.sessions[2].Release()
	request := lastSession[*nas.PDUSessionReleaseRequest](b.core())
	b.saySession(&nas.PDUSessionReleaseCommand{Session: request.Session, FiveGSMCause: []byte{36}})
	if r := u.changed[len(u.changed)-1]; r.Down != 20_000_000 || r.Up != 10_000_000 || len(r.Meters) != 0 || r.Flows != nil {
		t.Errorf("%+v", r)
	}
}

func TestALineOfACableNetworkIsAtItsHFCNode(t *testing.T) {
	tai := ngap.TAI{PLMNIdentity: []byte{0, 0xf1, 0x10}, TAC: []byte{0, 0, 1}}
	wire, cable := locationOf("line-7", "", tai).UserLocationInformationWAGF, locationOf("line-7", "cmts-7", tai).UserLocationInformationWAGF
	if string(wire.GlobalLineID.GlobalLineIdentity) != "line-7" || wire.GlobalLineID.TAI == nil || wire.HFCNodeIDNew != nil {
		t.Errorf("%+v", wire)
	}
	if cable.GlobalLineID != nil || string(cable.HFCNodeIDNew.HFCNodeID) != "cmts-7" || string(cable.HFCNodeIDNew.TAI.TAC) != string(tai.TAC) {
		t.Errorf("%+v", cable)
	}
	s := settings()
	if got := NewLine(s, nil).suci(); !strings.HasPrefix(string(got[1:]), "type3.rid0.schid0.useridline-7@") || got[0]>>4 != nas.SUPIFormatGLI {
		t.Errorf("%q", got)
	}
	s.HFCNode = "cmts-7"
	if got := NewLine(s, nil).suci(); !strings.HasPrefix(string(got[1:]), "type2.rid0.schid0.useridline-7@") || got[0]>>4 != nas.SUPIFormatGCI {
		t.Errorf("%q", got)
	}
}

// rates of the meters of a flow: uplink/downlink.
func (r *Result) rates(qfi uint32) string {
	text := func(names []string) string {
		var all []string
		for _, name := range names {
			for _, one := range r.Meters {
				if one.Name == name {
					all = append(all, strconv.FormatUint(one.Spec.CommittedRate, 10))
				}
			}
		}
		return strings.Join(all, "+")
	}
	for _, f := range r.Flows.GetFlows() {
		if f.Qfi == qfi {
			return text(f.MetersUp) + "/" + text(f.MetersDown)
		}
	}
	return "no flow"
}

func TestTheCoreReleasesAPDUSession(t *testing.T) {
	b, u := up(t)
	b.saySession(&nas.PDUSessionReleaseCommand{Session: nas.Session{PDUSessionID: 1}, FiveGSMCause: []byte{causeReactivation}})
	lastSession[*nas.PDUSessionEstablishmentRequest](b.core())
	b.give(1, 9)
	if u.ended || len(u.changed) != 1 {
		t.Fatalf("%+v", u)
	}
	pdu := b.null(nas.IntegrityCiphered, &nas.DLNASTransport{PayloadContainerType: 1, PayloadContainer: plain(t, &nas.PDUSessionReleaseCommand{Session: nas.Session{PDUSessionID: 1}, FiveGSMCause: []byte{36}})})
	b.Receive(&ngap.PDUSessionResourceReleaseCommand{NASPDU: pdu, PDUSessionResourceToReleaseListRelCmd: []ngap.PDUSessionResourceToReleaseItemRelCmd{{PDUSessionID: 1}}})
	if !u.ended || b.state != leaving {
		t.Error(u.err, b.state)
	}
}

func TestALineWhoseContextIsReleasedComesBackByAServiceRequest(t *testing.T) {
	b, u := up(t)
	inactive := ngap.CauseRadioNetworkUserInactivity
	b.LostBy(n2.Loss{Kind: n2.Released, Cause: ngap.Cause{RadioNetwork: &inactive}, Reason: "inactive"})
	b.pass()
	first, ok := b.core().sent[0].(*ngap.InitialUEMessage)
	if !ok || len(b.cores) != 2 || first.FiveGSTMSI == nil || b.guti == nil || b.guti.TMSI != 9 {
		t.Fatalf("%+v", b.core().sent)
	}
	request := last[*nas.ServiceRequest](b.core())
	whole, err := nas.Decode(request.NASContainer)
	if err != nil || !bytes.Equal(whole.(*nas.ServiceRequest).ULDataStat, []byte{2, 0}) || request.ULDataStat != nil || !bytes.Equal(request.FiveGSID, append([]byte{0xf4}, testGUTI[5:]...)) {
		t.Errorf("%+v %+v %v", request, whole, err)
	}
	b.Receive(&ngap.InitialContextSetupRequest{NASPDU: b.null(nas.IntegrityCiphered, &nas.ServiceAccept{PDUSessStat: []byte{2, 0}}),
		PDUSessionResourceSetupListCxtReq: []ngap.PDUSessionResourceSetupItemCxtReq{{PDUSessionID: 1, PDUSessionResourceSetupRequestTransfer: transfer(t, ngap.PDUSessionTypeIpv4, 8)}}})
	if u.ended || b.state != registered || len(u.changed) != 1 || u.changed[0].Tunnel.RemoteTeid != 264 {
		t.Errorf("%+v %d", u, b.state)
	}
}

func TestAServiceRequestThatIsRejectedOrNotAnswered(t *testing.T) {
	idle := func() (*bed, *user) {
		b, u := up(t)
		b.LostBy(n2.Loss{Kind: n2.AssociationLost, Reason: "gone"})
		b.pass()
		return b, u
	}
	// The core does not know the line: it registers, and its session goes on if it has the same address.
	for _, address := range []byte{9, 10} {
		b, u := idle()
		b.say(nas.Plain, &nas.ServiceReject{FiveGMMCause: []byte{causeDeregistered}})
		if m := last[*nas.RegistrationRequest](b.core()); m.FiveGSRegType&7 != initialRegistration || m.FiveGSID[0] != 0x31 {
			t.Errorf("%+v", m)
		}
		b.register()
		b.give(1, address)
		if u.ended != (address == 10) || address == 9 && len(u.changed) != 1 {
			t.Errorf("address %d: %+v", address, u)
		}
	}
	b, u := idle()
	b.say(nas.Plain, &nas.ServiceReject{FiveGMMCause: []byte{causeCongestion}, T3346: []byte{0x0a}})
	if passed := b.pass(); passed != 20*time.Second || u.ended {
		t.Error(passed, u.err)
	}
	last[*nas.ServiceRequest](b.core())
	b, _ = idle()
	for attempt := range maxAttempts {
		if passed := b.pass(); passed != t3517Time {
			t.Errorf("attempt %d: T3517 after %s", attempt, passed)
		}
		expected := t3511Time
		if attempt == maxAttempts-1 {
			expected = t3525Time
		}
		if passed := b.pass(); passed != expected {
			t.Errorf("attempt %d: %s, not %s", attempt, passed, expected)
		}
	}
	b, u = idle()
	b.say(nas.Plain, &nas.ServiceReject{FiveGMMCause: []byte{3}})
	if !u.ended || b.hold != t3502Time {
		t.Error(u.err, b.hold)
	}
}

func TestALineThatTheCoreForgetsRegistersAnew(t *testing.T) {
	b, u := up(t)
	b.noAMF = true
	b.LostBy(n2.Loss{Kind: n2.AssociationLost, Reason: "gone"})
	began := b.now
	for b.timers[notice] != (time.Time{}) {
		b.pass()
	}
	if passed := b.now.Sub(began); passed != 9*time.Minute || u.ended {
		t.Errorf("%s %v", passed, u.err)
	}
	b.noAMF = false
	b.pass()
	if m := last[*nas.RegistrationRequest](b.core()); m.FiveGSRegType&7 != initialRegistration {
		t.Errorf("%+v", m)
	}
}

func TestTheCoreDeregistersALine(t *testing.T) {
	b, u := up(t)
	b.say(nas.IntegrityCiphered, &nas.NetworkDeregistrationRequest{DeregistrationType: accessNon3GPP})
	last[*nas.NetworkDeregistrationAccept](b.core())
	if !u.ended || !b.ended {
		t.Error(u.err)
	}
	b, u = up(t)
	b.say(nas.IntegrityCiphered, &nas.NetworkDeregistrationRequest{DeregistrationType: accessNon3GPP | reregistrationRequired})
	if m := last[*nas.RegistrationRequest](b.core()); u.ended || m.FiveGSRegType&7 != initialRegistration {
		t.Errorf("%+v %v", m, u.err)
	}
	b.register()
	b.give(1, 9)
	if u.ended || len(u.changed) != 1 {
		t.Errorf("%+v", u)
	}
	b, u = up(t)
	deregister := ngap.CauseNasDeregister
	b.LostBy(n2.Loss{Kind: n2.Released, Cause: ngap.Cause{Nas: &deregister}, Reason: "deregistered"})
	if !u.ended || !b.ended {
		t.Error(u.err)
	}
}

func TestALineThatMovedTellsTheCore(t *testing.T) {
	b, u := up(t)
	b.Moved()
	m := last[*nas.RegistrationRequest](b.core())
	whole, err := nas.Decode(m.NASContainer)
	if err != nil || m.FiveGSRegType&7 != mobilityRegistration || !bytes.Equal(whole.(*nas.RegistrationRequest).PDUSessStat, []byte{2, 0}) || b.state != updating {
		t.Fatalf("%+v %v", m, err)
	}
	b.say(nas.IntegrityCiphered, &nas.RegistrationAccept{FiveGSRegResult: []byte{2}, PDUSessStat: []byte{2, 0}})
	if b.state != registered || u.ended {
		t.Error(b.state, u.err)
	}
	// T3510 ends a mobility update; the line stays, and comes back.
	b.Moved()
	if passed := b.pass(); passed != t3510Time || u.ended || b.state != registered {
		t.Error(passed, u.err)
	}
	b.pass()
	last[*nas.ServiceRequest](b.core())
	// A core that lost a session: it is set up anew.
	b, _ = up(t)
	again := uint8(3)
	b.say(nas.IntegrityCiphered, &nas.ConfigurationUpdateCommand{ConfigUpdateInd: &again})
	b.say(nas.IntegrityCiphered, &nas.RegistrationAccept{FiveGSRegResult: []byte{2}, PDUSessStat: []byte{0, 0}})
	lastSession[*nas.PDUSessionEstablishmentRequest](b.core())
	b.Moved()
	b.say(nas.Plain, &nas.RegistrationReject{FiveGMMCause: []byte{causeIdentityUnknown}})
	if m := last[*nas.RegistrationRequest](b.core()); m.FiveGSRegType&7 != initialRegistration {
		t.Errorf("%+v", m)
	}
}

func TestALineGoesToTheAMFSetThatTheCoreNames(t *testing.T) {
	b, _ := newBed(t, settings())
	first, err := ngap.Encode(b.core().sent[0])
	if err != nil {
		t.Fatal(err)
	}
	configured := ngap.SourceToTargetAMFInformationReroute{ConfiguredNSSAI: make([]byte, 128)}
	b.Receive(&ngap.RerouteNASRequest{NGAPMessage: first, AMFSetID: per.BitString{Octets: []byte{0x01, 0x40}, Count: 10}, SourceToTargetAMFInformationReroute: &configured})
	again, ok := b.core().sent[0].(*ngap.InitialUEMessage)
	if ok && again.SourceToTargetAMFInformationReroute != &configured {
		t.Error("what the first AMF has for the second is lost")
	}
	if len(b.cores) != 2 || !ok || b.to == nil || *b.to != (n2.Reroute{Set: 5, From: "core-1"}) || !bytes.Equal(again.NASPDU, b.cores[0].sent[0].(*ngap.InitialUEMessage).NASPDU) || !b.cores[0].closed {
		t.Errorf("%+v %v", again, b.to)
	}
	// An AMF of that set reroutes it again.
	b.Receive(&ngap.RerouteNASRequest{NGAPMessage: first, AMFSetID: bits(1, 10)})
	if len(b.cores) != 2 || !b.cores[1].closed || b.Line.core != nil {
		t.Errorf("%d contexts", len(b.cores))
	}
}

func TestALineReportsWhereItIs(t *testing.T) {
	b, _ := up(t)
	b.Receive(&ngap.LocationReportingControl{LocationReportingRequestType: ngap.LocationReportingRequestType{EventType: ngap.EventTypeDirect}})
	if m, ok := b.core().sent[len(b.core().sent)-1].(*ngap.LocationReport); !ok || m.UserLocationInformation.UserLocationInformationWAGF == nil {
		t.Errorf("%+v", m)
	}
	b.Receive(&ngap.LocationReportingControl{LocationReportingRequestType: ngap.LocationReportingRequestType{EventType: ngap.EventTypeUePresenceInAreaOfInterest}})
	if m, ok := b.core().sent[len(b.core().sent)-1].(*ngap.LocationReportingFailureIndication); !ok {
		t.Errorf("%+v", m)
	}
}

func TestAnUnacceptablePDUSessionIsRefusedWithACause(t *testing.T) {
	b, _ := newBed(t, settings())
	b.register()
	b.Receive(&ngap.PDUSessionResourceSetupRequest{PDUSessionResourceSetupListSUReq: []ngap.PDUSessionResourceSetupItemSUReq{
		{PDUSessionID: 1, PDUSessionResourceSetupRequestTransfer: transfer(t, ngap.PDUSessionTypeEthernet, 2)},
		{PDUSessionID: 2, PDUSessionResourceSetupRequestTransfer: transfer(t, ngap.PDUSessionTypeIpv4, 2)},
		{PDUSessionID: 200, PDUSessionResourceSetupRequestTransfer: transfer(t, ngap.PDUSessionTypeIpv4, 2)},
		{PDUSessionID: 1, PDUSessionResourceSetupRequestTransfer: []byte{0}}}})
	answer := b.core().sent[len(b.core().sent)-1].(*ngap.PDUSessionResourceSetupResponse)
	if len(answer.PDUSessionResourceFailedToSetupListSURes) != 4 || len(answer.PDUSessionResourceSetupListSURes) != 0 {
		t.Errorf("%+v", answer)
	}
}

func TestALineIsTheSameAfterARestart(t *testing.T) {
	b, u := up(t)
	r := b.record()
	octets, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	var back lineRecord
	if err := json.Unmarshal(octets, &back); err != nil {
		t.Fatal(err)
	}
	again := &bed{t: t, now: b.now}
	l, err := restore(&back, settings(), again)
	if err != nil {
		t.Fatal(err)
	}
	again.Line = l
	v := &user{}
	l.sessions[1].events = v
	if got := l.sessions[1].result(); !proto.Equal(got.Tunnel, u.up.Tunnel) || got.IPv4 != u.up.IPv4 || got.Down != u.up.Down {
		t.Errorf("%+v", got)
	}
	c := &core{t: t, ran: ngap.RANUENGAPID(back.RAN)}
	again.cores = append(again.cores, c)
	l.attach(c)
	if l.Resumed(); len(c.sent) != 0 || l.state != registered {
		t.Errorf("%+v", c.sent)
	}
	// Counts go on: uplink above those that were used, downlink where it was.
	again.down = b.down
	again.say(nas.IntegrityCiphered, &nas.IdentityRequest{FiveGSIDType: nas.IdentitySUCI})
	if m := c.sent[0].(*ngap.UplinkNASTransport); m.NASPDU[6] != byte(b.context.Uplink+countMargin) {
		t.Errorf("%x", m.NASPDU[:8])
	}
	// An AMF that did not keep the context: a service request, no registration.
	again = &bed{t: t, now: b.now}
	again.Line, _ = restore(&back, settings(), again)
	again.sessions[1].events = v
	again.attach(nil)
	again.pass()
	last[*nas.ServiceRequest](again.core())
	if v.ended {
		t.Error(v.err)
	}
}

// TestALineWhoseSubscriberLeftBeforeARestartIsDeregistered: the agent dies after the end of the subscriber session, and before the core's answer to the deregistration.
func TestALineWhoseSubscriberLeftBeforeARestartIsDeregistered(t *testing.T) {
	recorder := &recordingBed{}
	b, u := up(t)
	recorder.bed = b
	b.world = recorder
	b.sessions[1].Leave()
	var back lineRecord
	if err := json.Unmarshal(recorder.first, &back); err != nil {
		t.Fatal(err)
	}
	if u.ended {
		t.Error("the subscriber session ends twice")
	}
	s := &agf{of: map[*Line]*registration{}, lines: map[string]*registration{}, members: map[string]*member{}, agfs: map[string]*api.Agf{}, nodes: map[string]*api.AccessNode{}}
	if err := s.takeUp(&back); err != nil || len(s.members) != 0 || len(s.lines) != 1 {
		t.Errorf("%d members of %d lines: %v", len(s.members), len(s.lines), err)
	}
	again := &bed{t: t, now: b.now}
	again.Line, _ = restore(&back, settings(), again)
	c := &core{t: t, ran: ngap.RANUENGAPID(back.RAN)}
	again.cores = append(again.cores, c)
	again.attach(c)
	again.Resumed()
	if last[*nas.UEDeregistrationRequest](c); again.state != leaving {
		t.Errorf("state %d", again.state)
	}
	// The AMF did not keep the context, and has no PDU session either.
	again = &bed{t: t, now: b.now}
	again.Line, _ = restore(&back, settings(), again)
	again.attach(nil)
	again.pass()
	last[*nas.ServiceRequest](again.core())
	again.down = b.down
	again.say(nas.IntegrityCiphered, &nas.ServiceAccept{PDUSessStat: []byte{0, 0}})
	if last[*nas.UEDeregistrationRequest](again.core()); again.state != leaving {
		t.Errorf("state %d", again.state)
	}
}

// recordingBed has the first record of its line.
type recordingBed struct {
	*bed
	first []byte
}

func (r *recordingBed) Save(l *Line) {
	if r.first == nil {
		of := l.record()
		r.first, _ = json.Marshal(&of)
	}
}

func TestASuspendedLineSendsNothingAndGoesOn(t *testing.T) {
	b, u := up(t)
	b.Suspended()
	second := &user{}
	if _, err := b.Add(demand(78), second); err != nil {
		t.Fatal(err)
	}
	before := len(b.core().sent)
	if b.Resumed(); len(b.core().sent) != before+1 || u.ended {
		t.Error("the line does not go on")
	}
	lastSession[*nas.PDUSessionEstablishmentRequest](b.core())
}

// TestEachTruncationAndFlipOfEachMessage: no message of a core takes a line down by its form.
func TestEachTruncationAndFlipOfEachMessage(t *testing.T) {
	source, _ := newBed(t, settings())
	source.register()
	accept := source.null(nas.IntegrityCiphered, &nas.DLNASTransport{PayloadContainerType: 1, PayloadContainer: plain(t, source.accept(1, 9))})
	resources := transfer(t, ngap.PDUSessionTypeIpv4, 2)
	session := nas.Session{PDUSessionID: 1}
	carried := func(message any) any {
		return &nas.DLNASTransport{PayloadContainerType: 1, PayloadContainer: plain(t, message)}
	}
	for _, message := range []any{&nas.SecurityModeCommand{NASSecAlgo: []byte{0}, UESecCap: []byte{0x80, 0x80}},
		&nas.RegistrationAccept{FiveGSRegResult: []byte{2}, GUTI: testGUTI}, &nas.AuthenticationRequest{ABBA: []byte{0, 0}, RAND: make([]byte, 16), AUTN: make([]byte, 16)},
		&nas.ConfigurationUpdateCommand{GUTI: testGUTI}, &nas.NetworkDeregistrationRequest{DeregistrationType: 2}, &nas.RegistrationReject{FiveGMMCause: []byte{11}, T3346: []byte{5}},
		&nas.AuthenticationResult{ABBA: []byte{0, 0}, EAPMsg: []byte{3, 1, 0, 4}}, &nas.AuthenticationReject{}, &nas.IdentityRequest{FiveGSIDType: nas.IdentitySUCI},
		&nas.ServiceAccept{PDUSessStat: []byte{2, 0}}, &nas.ServiceReject{FiveGMMCause: []byte{9}}, &nas.UEDeregistrationAccept{}, &nas.Notification{}, &nas.Status{FiveGMMCause: []byte{111}},
		carried(&nas.PDUSessionEstablishmentReject{Session: session, FiveGSMCause: []byte{27}}), carried(&nas.PDUSessionReleaseCommand{Session: session, FiveGSMCause: []byte{39}}),
		carried(&nas.PDUSessionModificationCommand{Session: session, SessAMBR: []byte{6, 0, 50, 6, 0, 30}, QoSRules: []byte{2, 0, 10, 0x21, 0x31, 5, 0x30, 17, 0x50, 0x13, 0xc4, 10, 1}}),
		carried(&nas.PDUSessionReleaseReject{Session: session, FiveGSMCause: []byte{43}}), carried(&nas.SessionStatus{Session: session, FiveGSMCause: []byte{43}}),
		carried(&nas.PDUSessionAuthenticationCommand{Session: session, EAPMsg: []byte{1, 1, 0, 5, 1}})} {
		octets := plain(t, message)
		try := func(m []byte) {
			b, _ := newBed(t, settings())
			b.Receive(&ngap.DownlinkNASTransport{NASPDU: m})
			b.secure()
			b.Receive(&ngap.DownlinkNASTransport{NASPDU: append([]byte{nas.MobilityManagement, nas.IntegrityCiphered, 0, 0, 0, 0, 1}, m...)})
			// And of a line that is up.
			b, _ = up(t)
			b.Receive(&ngap.DownlinkNASTransport{NASPDU: append([]byte{nas.MobilityManagement, nas.IntegrityCiphered, 0, 0, 0, 0, byte(b.down)}, m...)})
		}
		try(octets)
		mutate(octets, try)
	}
	modification, err := ngap.EncodeTransfer(&ngap.PDUSessionResourceModifyRequestTransfer{
		PDUSessionAggregateMaximumBitRate: &ngap.PDUSessionAggregateMaximumBitRate{PDUSessionAggregateMaximumBitRateDL: 50_000_000, PDUSessionAggregateMaximumBitRateUL: 30_000_000},
		ULNGUUPTNLModifyList:              []ngap.ULNGUUPTNLModifyItem{{ULNGUUPTNLInformation: far(9), DLNGUUPTNLInformation: far(1)}},
		QosFlowAddOrModifyRequestList:     []ngap.QosFlowAddOrModifyRequestItem{{QosFlowIdentifier: 7}}})
	if err != nil {
		t.Fatal(err)
	}
	mutate(modification, func(m []byte) {
		b, _ := up(t)
		b.Receive(&ngap.PDUSessionResourceModifyRequest{PDUSessionResourceModifyListModReq: []ngap.PDUSessionResourceModifyItemModReq{{PDUSessionID: 1, PDUSessionResourceModifyRequestTransfer: m}}})
	})
	initial, err := ngap.Encode(source.core().sent[0])
	if err != nil {
		t.Fatal(err)
	}
	mutate(initial, func(m []byte) {
		b, _ := newBed(t, settings())
		b.Receive(&ngap.RerouteNASRequest{NGAPMessage: m, AMFSetID: bits(5, 10)})
	})
	mutate(accept, func(m []byte) {
		b, _ := newBed(t, settings())
		b.register()
		b.Receive(&ngap.PDUSessionResourceSetupRequest{PDUSessionResourceSetupListSUReq: []ngap.PDUSessionResourceSetupItemSUReq{
			{PDUSessionID: 1, PDUSessionNASPDU: m, PDUSessionResourceSetupRequestTransfer: resources}}})
	})
	mutate(resources, func(m []byte) {
		b, _ := newBed(t, settings())
		b.register()
		b.Receive(&ngap.PDUSessionResourceSetupRequest{PDUSessionResourceSetupListSUReq: []ngap.PDUSessionResourceSetupItemSUReq{
			{PDUSessionID: 1, PDUSessionNASPDU: accept, PDUSessionResourceSetupRequestTransfer: m}}})
	})
}

func mutate(octets []byte, try func([]byte)) {
	for length := range octets {
		try(octets[:length])
	}
	for bit := range 8 * len(octets) {
		flipped := bytes.Clone(octets)
		flipped[bit/8] ^= 1 << (bit % 8)
		try(flipped)
	}
}

func TestAMalformedGUTICountsAsAbsent(t *testing.T) {
	for _, octets := range [][]byte{{}, {0xf2}, {0xf2, 0, 0xf1}, testGUTI[:10], append(slices.Clone(testGUTI), 0), {0xf1, 0, 0xf1, 0x10, 1, 0, 0x41, 0, 0, 0, 9}} {
		b, _ := newBed(t, settings())
		b.secure()
		b.Receive(&ngap.InitialContextSetupRequest{NASPDU: b.null(nas.IntegrityCiphered, &nas.RegistrationAccept{FiveGSRegResult: []byte{2}, GUTI: octets})})
		b.say(nas.IntegrityCiphered, &nas.ConfigurationUpdateCommand{GUTI: octets})
		if b.state != registered || b.Line.guti != nil {
			t.Errorf("%x: state %v, GUTI %x", octets, b.state, b.Line.guti)
		}
		// Without a GUTI it cannot ask for service.
		b.requestService()
		if b.state != registering {
			t.Errorf("%x: state %v", octets, b.state)
		}
		b, _ = up(t)
		b.say(nas.IntegrityCiphered, &nas.ConfigurationUpdateCommand{GUTI: octets})
		if !bytes.Equal(b.Line.guti, testGUTI) {
			t.Errorf("%x: GUTI %x", octets, b.Line.guti)
		}
	}
}

// TS 24.501 section 4.4.4.2: a line with credentials takes no registration without authentication.
func TestALineWithCredentialsTakesNoPlainRegistrationAccept(t *testing.T) {
	for _, credentials := range []bool{false, true} {
		s := settings()
		if credentials {
			s.Subscription = &Subscription{PLMN: "00101", MSIN: "0000000001"}
		}
		b, _ := newBed(t, s)
		b.say(nas.Plain, &nas.RegistrationAccept{FiveGSRegResult: []byte{2}, GUTI: testGUTI})
		if (b.state == registering) != credentials {
			t.Errorf("credentials: %v, state %v", credentials, b.state)
		}
	}
}

// After a restart a line goes on with the counts of its last record and a margin.
func TestTheRecordFollowsTheUplinkCounts(t *testing.T) {
	b, _ := up(t)
	for range countMargin {
		before := b.saved
		for range countMargin / 2 {
			b.say(nas.IntegrityCiphered, &nas.IdentityRequest{FiveGSIDType: nas.IdentitySUCI})
		}
		if b.saved == before {
			t.Fatal("no record of the counts")
		}
	}
}

func TestNASBehindAMessageThatEndsTheContextIsDiscarded(t *testing.T) {
	s := settings()
	s.Subscription = &Subscription{PLMN: "00101", MSIN: "0000000001"}
	b, _ := newBed(t, s)
	b.state = requesting
	reject := plain(t, &nas.ServiceReject{FiveGMMCause: []byte{22}, T3346: []byte{5}})
	challenge := plain(t, &nas.AuthenticationRequest{ABBA: []byte{0, 0}, RAND: make([]byte, 16), AUTN: make([]byte, 16)})
	b.Receive(&ngap.InitialContextSetupRequest{NASPDU: reject, PDUSessionResourceSetupListCxtReq: []ngap.PDUSessionResourceSetupItemCxtReq{{PDUSessionID: 1, NASPDU: challenge}}})
	if b.Line.core != nil {
		t.Errorf("it goes on: %v", b.state)
	}
}

func TestOtherAlgorithmsOfTheSameKeyKeepTheCounts(t *testing.T) {
	s := settings()
	s.Subscription = &Subscription{PLMN: "00101", MSIN: "0000000001"}
	b, _ := newBed(t, s)
	kamf := [32]byte{1, 2, 3}
	before, err := nas.NewSecurityContext(3, kamf, nas.AES<<4|nas.AES)
	if err != nil {
		t.Fatal(err)
	}
	before.Uplink, before.Downlink = 700, 300
	b.context, b.state = before, registered
	command := func(count uint32, algorithm uint8) []byte {
		octets := append([]byte{nas.MobilityManagement, nas.NewContext, 0, 0, 0, 0, byte(count)},
			plain(t, &nas.SecurityModeCommand{NASSecAlgo: []byte{algorithm<<4 | algorithm}, NASKSI: 3, UESecCap: b.capability()})...)
		code := nas.Code(algorithm, aka.AlgorithmKey(kamf, aka.NASIntegrity, algorithm), count, 2, true, octets[6:])
		copy(octets[2:], code[:])
		return octets
	}
	// An earlier count is a replay.
	if b.Receive(&ngap.DownlinkNASTransport{NASPDU: command(260, nas.SNOW3G)}); b.context != before {
		t.Error("a count that was used before is accepted")
	}
	b.Receive(&ngap.DownlinkNASTransport{NASPDU: command(301, nas.SNOW3G)})
	if c := b.context; c == before || c.Uplink != 701 || c.Downlink < 301 || c.Algorithms != nas.SNOW3G<<4|nas.SNOW3G {
		t.Errorf("%+v", c)
	}
}

// credentialed is a registered line whose NAS has AES. The second function makes a message of the network.
func credentialed(t *testing.T) (*bed, func(header uint8, count uint32, message []byte) []byte) {
	t.Helper()
	s := settings()
	s.Subscription = &Subscription{PLMN: "00101", MSIN: "0000000001"}
	b, _ := newBed(t, s)
	kamf := [32]byte{1, 2, 3}
	context, err := nas.NewSecurityContext(3, kamf, nas.AES)
	if err != nil {
		t.Fatal(err)
	}
	context.Downlink = 10
	b.context, b.state = context, registered
	b.stop(t3510)
	return b, func(header uint8, count uint32, message []byte) []byte {
		octets := append([]byte{nas.MobilityManagement, header, 0, 0, 0, 0, byte(count)}, message...)
		code := nas.Code(nas.AES, aka.AlgorithmKey(kamf, aka.NASIntegrity, nas.AES), count, 2, true, octets[6:])
		copy(octets[2:], code[:])
		return octets
	}
}

func TestNASMessagesThatAreNotTakenAreCountedByReason(t *testing.T) {
	b, of := credentialed(t)
	identity := plain(t, &nas.IdentityRequest{FiveGSIDType: nas.IdentitySUCI})
	unknown := []byte{nas.MobilityManagement, 0, 0xff}
	short := plain(t, &nas.RegistrationAccept{FiveGSRegResult: []byte{2}})[:3]
	forged := of(nas.Integrity, 12, identity)
	forged[2] ^= 1
	command := plain(t, &nas.SecurityModeCommand{NASSecAlgo: []byte{nas.AES}, NASKSI: 3, UESecCap: b.capability()})
	for _, c := range []struct {
		octets   []byte
		why      n2.NASRefusal
		answered bool
	}{
		{[]byte{nas.MobilityManagement}, n2.NASMalformed, false},
		{[]byte{nas.MobilityManagement, 9, 0, 0, 0, 0, 0, 0}, n2.NASMalformed, false},
		{of(nas.Integrity, 9, identity), n2.NASReplayed, false},
		{forged, n2.NASIntegrity, false},
		{plain(t, &nas.ConfigurationUpdateCommand{}), n2.NASUnprotected, false},
		{of(nas.NewContext, 10, identity), n2.NASUnprotected, false},
		{command, n2.NASUnprotected, false},
		{of(nas.NewContext, 9, command), n2.NASReplayed, false},
		// A message without its protection gets no answer, whatever its sender.
		{unknown, n2.NASUnknownType, false},
		{short, n2.NASMalformed, false},
		{of(nas.Integrity, 10, unknown), n2.NASUnknownType, true},
		{of(nas.Integrity, 11, short), n2.NASMalformed, true},
	} {
		before := len(b.core().sent)
		b.core().refused = nil
		b.Receive(&ngap.DownlinkNASTransport{NASPDU: c.octets})
		if !slices.Equal(b.core().refused, []n2.NASRefusal{c.why}) || (len(b.core().sent) > before) != c.answered {
			t.Errorf("%x: %v, not %s; %d messages", c.octets, b.core().refused, c.why, len(b.core().sent)-before)
		}
	}
	b.core().refused, b.context = nil, nil
	b.Receive(&ngap.DownlinkNASTransport{NASPDU: of(nas.Integrity, 12, identity)})
	b.context, _ = nas.NewSecurityContext(3, [32]byte{}, nas.AES)
	b.context.Downlink = 1 << 24
	b.Receive(&ngap.DownlinkNASTransport{NASPDU: of(nas.Integrity, 12, identity)})
	if !slices.Equal(b.core().refused, []n2.NASRefusal{n2.NASNoContext, n2.NASCount}) {
		t.Error(b.core().refused)
	}
}

// commanded is a line whose EAP-AKA' challenge is answered: its SECURITY MODE COMMAND with an EAP message, and with a code that is right or false.
func commanded(t *testing.T) (*bed, func(packet []byte, right bool)) {
	t.Helper()
	s := settings()
	card := aka.NewMilenage([16]byte{1}, [16]byte{2})
	s.Subscription = &Subscription{PLMN: "00101", MSIN: "0000000001", USIM: aka.USIM{Milenage: card}}
	b, _ := newBed(t, s)
	network, supi := networkName("00101"), "001010000000001"
	rand, sqn := [16]byte{9}, aka.Sequence(64)
	_, ck, ik, ak := card.F2345(rand)
	mac, _ := card.F1(rand, sqn, [2]byte{0x80})
	autn := sqn[:]
	for i := range ak {
		autn[i] ^= ak[i]
	}
	ckPrime, ikPrime := aka.Prime(ck, ik, network, [6]byte(autn))
	keys := aka.PrimeKeys(ckPrime, ikPrime, supi)
	challenge := []byte{1, 7, 0, 0, 50, 1, 0, 0, 1, 5, 0, 0}
	challenge = append(append(challenge, rand[:]...), 2, 5, 0, 0)
	challenge = append(append(append(challenge, autn...), 0x80, 0), mac[:]...)
	challenge = append(challenge, 24, 1, 0, 1, 23, byte((4+len(network)+3)/4), 0, byte(len(network)))
	challenge = append(challenge, network...)
	challenge = append(challenge, make([]byte, (4-len(network)%4)%4)...)
	challenge = append(challenge, 11, 5, 0, 0)
	challenge = append(challenge, make([]byte, 16)...)
	challenge[3] = byte(len(challenge))
	h := hmac.New(sha256.New, keys.Aut[:])
	h.Write(challenge)
	copy(challenge[len(challenge)-16:], h.Sum(nil))
	b.say(nas.Plain, &nas.AuthenticationRequest{NASKSI: 2, ABBA: []byte{0, 0}, EAPMsg: challenge})
	if b.fresh == nil {
		t.Fatal("the challenge is not answered")
	}
	kamf := b.fresh.kamf
	return b, func(packet []byte, right bool) {
		octets := append([]byte{nas.MobilityManagement, nas.NewContext, 0, 0, 0, 0, 0},
			plain(t, &nas.SecurityModeCommand{NASSecAlgo: []byte{nas.AES<<4 | nas.AES}, NASKSI: 2, UESecCap: b.capability(), EAPMsg: packet})...)
		code := nas.Code(nas.AES, aka.AlgorithmKey(kamf, aka.NASIntegrity, nas.AES), 0, 2, true, octets[6:])
		copy(octets[2:], code[:])
		if !right {
			octets[2] ^= 1
		}
		b.Receive(&ngap.DownlinkNASTransport{NASPDU: octets})
	}
}

func TestASecurityModeCommandHasNoEffectBeforeItsCodeIsVerified(t *testing.T) {
	success, failure := []byte{3, 7, 0, 4}, []byte{4, 7, 0, 4}
	for _, packet := range [][]byte{success, failure} {
		b, command := commanded(t)
		command(packet, false)
		if m := last[*nas.SecurityModeReject](b.core()); m.FiveGMMCause[0] != causeSecurityMode || b.context != nil || b.fresh == nil || b.peer == nil {
			t.Errorf("%+v", m)
		}
		if _, done := b.peer.KAUSF(); done {
			t.Error("EAP success was taken")
		}
		if !slices.Equal(b.core().refused, []n2.NASRefusal{n2.NASIntegrity}) {
			t.Error(b.core().refused)
		}
		// The true one.
		command(success, true)
		if b.context == nil {
			t.Error("no security context")
		}
	}
	b, command := commanded(t)
	command(failure, true)
	if m := last[*nas.SecurityModeReject](b.core()); m.FiveGMMCause[0] != causeSecurityMode || b.context != nil || b.fresh != nil {
		t.Errorf("%+v", m)
	}
}

func FuzzLine(f *testing.F) {
	source, _ := newBed(f, settings())
	source.register()
	f.Add(source.null(nas.IntegrityCiphered, &nas.DLNASTransport{PayloadContainerType: 1, PayloadContainer: plain(f, source.accept(1, 9))}), transfer(f, ngap.PDUSessionTypeIpv4, 2))
	f.Fuzz(func(t *testing.T, message, octets []byte) {
		b, _ := newBed(t, settings())
		b.Receive(&ngap.DownlinkNASTransport{NASPDU: message})
		b, _ = newBed(t, settings())
		b.register()
		b.Receive(&ngap.PDUSessionResourceSetupRequest{NASPDU: message, PDUSessionResourceSetupListSUReq: []ngap.PDUSessionResourceSetupItemSUReq{
			{PDUSessionID: 1, PDUSessionNASPDU: message, PDUSessionResourceSetupRequestTransfer: octets}}})
		b.requestService()
		b, _ = up(t)
		b.Receive(&ngap.PDUSessionResourceModifyRequest{PDUSessionResourceModifyListModReq: []ngap.PDUSessionResourceModifyItemModReq{
			{PDUSessionID: 1, NASPDU: message, PDUSessionResourceModifyRequestTransfer: octets}}})
	})
}
