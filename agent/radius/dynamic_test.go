// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

var client1 = netip.MustParseAddrPort("192.0.2.20:40000")

func permittedFor(spec *api.DynamicAuthorization) []permitted {
	p := newPolicy("home", &api.RadiusPolicy{NasIpAddress: "192.0.2.1"}, "bng-1")
	return []permitted{{netip.MustParsePrefix("192.0.2.20/32"), secret, p, spec}}
}

// take is authenticate and receive.
func (d *dynamic) take(clients []permitted, from netip.AddrPort, b []byte, now time.Time) (answer []byte, demanded *demand, cause uint32, drop string) {
	p, by, drop := authenticate(clients, from.Addr(), b)
	if drop != "" {
		return nil, nil, 0, drop
	}
	return d.receive(p, by, from, now)
}

// undated lets clients send requests without Event-Timestamp.
func undated() *api.DynamicAuthorization {
	return &api.DynamicAuthorization{AllowMissingEventTimestamp: true}
}

// demandOf builds a request, signed if it should be.
func demandOf(code Code, signed bool, all attributes) []byte {
	p := newPacket(code, 7, authenticator{})
	if signed {
		p = p.withMessageAuthenticator()
	}
	p = append(p, all...).withLength()
	if signed {
		p.sign(authenticator{}, []byte(secret))
	}
	sum := p.digest(authenticator{}, []byte(secret))
	copy(p[4:], sum[:])
	return p
}

func session(at time.Time) attributes {
	var a attributes
	a.text(typeAcctSessionID, "s-1")
	if !at.IsZero() {
		a.number(typeEventTimestamp, uint32(at.Unix()))
	}
	return a
}

func TestARequestIsCarriedOutOnceAndItsRetransmissionsGetTheSameAnswer(t *testing.T) {
	d, clients := newDynamic(began.Add(-time.Hour)), permittedFor(&api.DynamicAuthorization{})
	all := session(began)
	all.add(typeProxyState, []byte("p1"))
	all.add(typeProxyState, []byte("p2"))
	b := demandOf(DisconnectRequest, true, all)
	_, request, _, drop := d.take(clients, client1, b, began)
	if request == nil || request.match.ID != "s-1" || request.cause != subscriber.AdminReset {
		t.Fatal(request, drop)
	}
	if answer, again, _, drop := d.take(clients, client1, b, began); answer != nil || again != nil || drop != "in-progress" {
		t.Error("a retransmission while it is carried out:", drop)
	}
	first := d.finish(request, causeNone)
	// A copy from another address of a client is no other request.
	if answer, again, _, drop := d.take(clients, netip.AddrPortFrom(client1.Addr().Next(), 4000), b, began); again != nil || drop != "repeated" && drop != "unknown-client" {
		t.Error("a copy from another address:", answer, drop)
	}
	// An agent that was started meanwhile does not know it.
	if _, again, _, drop := newDynamic(began.Add(time.Second)).take(clients, client1, b, began.Add(2*time.Second)); again != nil || drop != "event-timestamp" {
		t.Error("a copy after a restart:", again, drop)
	}
	p, err := parse(first)
	if err != nil || p.code() != DisconnectACK || p.verifyReply(packet(b).authenticator(), []byte(secret), true) != nil {
		t.Fatal("the answer is not signed", err)
	}
	if states := p.attributes()[1:]; len(states) != 2 || string(states[0].value) != "p1" || string(states[1].value) != "p2" {
		t.Error("Proxy-State is not returned in order", states)
	}
	// From another port, as a replay.
	answer, again, _, drop := d.take(clients, netip.AddrPortFrom(client1.Addr(), 1), b, began.Add(4*time.Minute))
	if !bytes.Equal(answer, first) || again != nil || drop != "repeated" {
		t.Error("a retransmission afterwards:", drop)
	}
	if _, again, _, drop := d.take(clients, client1, b, began.Add(6*time.Minute)); again != nil || drop != "event-timestamp" {
		t.Error("a replay:", drop)
	}
	if len(d.known) != 0 || len(d.order) != 0 {
		t.Error("requests are known for ever")
	}
}

func TestARequestThatWasRecordedIsNotCarriedOutAgain(t *testing.T) {
	// The ways by which an agent forgets a request: a restart, an hour, and more requests than it knows.
	recorded := map[string][]byte{"with Event-Timestamp": demandOf(DisconnectRequest, true, session(began)), "without": demandOf(DisconnectRequest, true, session(time.Time{}))}
	for name, b := range recorded {
		dated := name != "without"
		for _, allows := range []bool{false, true} {
			clients := permittedFor(&api.DynamicAuthorization{AllowMissingEventTimestamp: allows})
			carriesOut := func(d *dynamic, at time.Time) bool {
				_, demanded, _, _ := d.take(clients, client1, b, at)
				return demanded != nil
			}
			d := newDynamic(began.Add(-time.Hour))
			if first := carriesOut(d, began); first != (dated || allows) {
				t.Errorf("%s, allowed %v: %v at first", name, allows, first)
			}
			// Only who allows requests without Event-Timestamp takes the risk.
			risk := allows && !dated
			if carriesOut(newDynamic(began.Add(time.Minute)), began.Add(2*time.Minute)) != risk || carriesOut(d, began.Add(2*time.Hour)) != risk {
				t.Errorf("%s, allowed %v: again after a restart or an hour", name, allows)
			}
		}
	}
	d, clients := newDynamic(began.Add(-time.Hour)), permittedFor(&api.DynamicAuthorization{})
	for i := range maxKnownRequests {
		d.remember(authenticator{1, byte(i), byte(i >> 8), byte(i >> 16)}, &known{until: began.Add(time.Minute)})
	}
	b := recorded["with Event-Timestamp"]
	if _, demanded, _, drop := d.take(clients, client1, b, began); demanded != nil || drop != "too-many" || len(d.known) != maxKnownRequests {
		t.Error(demanded, drop, len(d.known))
	}
	// There is room again when Event-Timestamps have become too old.
	if _, demanded, _, drop := d.take(clients, client1, b, began.Add(2*time.Minute)); demanded == nil {
		t.Error(drop)
	}
}

func TestAServerOfSeveralPoliciesSpeaksForThoseOfTheNASThatItNames(t *testing.T) {
	var policies []*policy
	var clients []permitted
	for _, of := range []struct{ name, nas, profile, address, secret string }{
		{"business", "bng-2", "office", "192.0.2.20/32", secret}, {"home", "bng-1", "house", "192.0.2.20/32", secret}, {"guests", "bng-1", "hotel", "192.0.2.20/32", secret},
		{"neighbour", "bng-1", "theirs", "192.0.2.20/32", "another"}, {"rest", "bng-1", "", "192.0.2.30/32", secret},
	} {
		spec := &api.RadiusPolicy{NasIdentifier: of.nas}
		if of.profile != "" {
			spec.Profiles = []string{of.profile}
		}
		p := newPolicy(of.name, spec, "host")
		policies = append(policies, p)
		clients = append(clients, permitted{netip.MustParsePrefix(of.address), of.secret, p, undated()})
	}
	// The first one takes no old request.
	clients[0].spec = &api.DynamicAuthorization{EventWindow: 1e9, AllowMissingEventTimestamp: true}
	for name, c := range map[string]struct {
		nas   string
		at    time.Time
		cause uint32
		want  []string
	}{
		"any NAS":            {"", time.Time{}, causeNone, []string{"house", "hotel", "office"}},
		"the first NAS":      {"bng-1", time.Time{}, causeNone, []string{"house", "hotel"}},
		"the second NAS":     {"bng-2", time.Time{}, causeNone, []string{"office"}},
		"another NAS":        {"bng-3", time.Time{}, causeNASMismatch, nil},
		"an old request":     {"", began.Add(-time.Minute), causeNone, []string{"house", "hotel"}},
		"an old request, to": {"bng-2", began.Add(-time.Minute), causeNASMismatch, nil},
	} {
		all := session(c.at)
		all.text(typeNASIdentifier, c.nas)
		_, request, cause, drop := newDynamic(began.Add(-time.Hour)).take(clients, client1, demandOf(DisconnectRequest, true, all), began)
		if cause != c.cause || drop != "" || (request == nil) != (cause != causeNone) {
			t.Errorf("%s: %d, %q", name, cause, drop)
		}
		if request == nil {
			continue
		}
		of := servedBy(policies, request.by)
		var got []string
		for _, profile := range []string{"house", "hotel", "office", "theirs", "nobody's"} {
			if of.Has(profile) {
				got = append(got, profile)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWhoIsNotBelievedGetsNoAnswer(t *testing.T) {
	all := session(began)
	forged := demandOf(CoARequest, false, all)
	forged[5] ^= 1
	wrong := demandOf(CoARequest, true, all)
	wrong[signedFirst] ^= 1
	sum := packet(wrong).digest(authenticator{}, []byte(secret))
	copy(wrong[4:], sum[:])
	strict := &api.DynamicAuthorization{RequireMessageAuthenticator: true}
	for want, c := range map[string]struct {
		from  string
		spec  *api.DynamicAuthorization
		bytes []byte
	}{
		"unknown-client":                {"192.0.2.21:1", strict, demandOf(CoARequest, true, all)},
		"authenticator":                 {"192.0.2.20:1", &api.DynamicAuthorization{}, forged},
		"message-authenticator":         {"192.0.2.20:1", &api.DynamicAuthorization{}, wrong},
		"message-authenticator-missing": {"192.0.2.20:1", strict, demandOf(CoARequest, false, all)},
		"event-timestamp-missing":       {"192.0.2.20:1", strict, demandOf(CoARequest, true, session(time.Time{}))},
		"event-timestamp":               {"192.0.2.20:1", strict, demandOf(CoARequest, true, session(began.Add(6*time.Minute)))},
		"code":                          {"192.0.2.20:1", strict, demandOf(AccessRequest, true, all)},
		"malformed":                     {"192.0.2.20:1", strict, forged[:21]},
	} {
		answer, request, _, drop := newDynamic(began.Add(-time.Hour)).take(permittedFor(c.spec), netip.MustParseAddrPort(c.from), c.bytes, began)
		if answer != nil || request != nil || drop != want {
			t.Errorf("%s: dropped as %q", want, drop)
		}
	}
}

func TestARequestMayNameASessionByItsPortAndChangeItsClass(t *testing.T) {
	var all attributes
	all.number(typeNASPort, 7)
	all.text(typeCalledStationID, "gold")
	all.add(typeClass, []byte("night"))
	_, request, cause, drop := newDynamic(began.Add(-time.Hour)).take(permittedFor(undated()), client1, demandOf(CoARequest, true, all), began)
	if request == nil {
		t.Fatal(cause, drop)
	}
	if request.nasPort != "7" || request.called != "gold" || len(request.change.Class) != 1 || string(request.change.Class[0]) != "night" {
		t.Errorf("%+v", request)
	}
}

func TestARequestMayNameTheVRFOfASession(t *testing.T) {
	for _, c := range []struct {
		code      Code
		vrf, more string
		cause     uint32
		want      string
	}{
		{CoARequest, "red", "home", causeNone, "red"}, {CoARequest, "red", "", causeMissingAttribute, ""}, {CoARequest, "-", "home", causeNone, "default"},
		{DisconnectRequest, "red", "", causeNone, "red"}, {DisconnectRequest, "red", "home", causeUnsupportedAttribute, ""}, {DisconnectRequest, "", "home", causeUnsupportedAttribute, ""},
		{DisconnectRequest, "red green", "", causeInvalidValue, ""},
	} {
		var all attributes
		all.address(typeFramedIPAddress, 0, netip.MustParseAddr("100.64.7.7"))
		if c.vrf != "" {
			all.vendor(vendorCisco, ciscoAVPair, []byte("ip:vrf-id="+c.vrf))
		}
		all.text(typeFilterID, c.more)
		_, request, cause, _ := newDynamic(began.Add(-time.Hour)).take(permittedFor(undated()), client1, demandOf(c.code, true, all), began)
		if cause != c.cause || (request != nil) != (c.cause == causeNone) {
			t.Errorf("%+v: Error-Cause %d", c, cause)
		} else if request != nil && (request.match.VRF != c.want || request.change.VRF != "") {
			t.Errorf("%+v: %+v", c, request.match)
		}
	}
}

func TestARequestMayTakeATimeoutAway(t *testing.T) {
	never := subscriber.Grant{SessionTimeout: subscriber.Never, IdleTimeout: subscriber.Never, InterimInterval: subscriber.Never}
	for _, kinds := range [][]uint8{{typeIdleTimeout}, {typeSessionTimeout, typeIdleTimeout, typeAcctInterimInterval}} {
		all := session(began)
		for _, kind := range kinds {
			all.number(kind, 0)
		}
		_, request, cause, drop := newDynamic(began.Add(-time.Hour)).take(permittedFor(undated()), client1, demandOf(CoARequest, true, all), began)
		want := never
		if len(kinds) == 1 {
			want = subscriber.Grant{IdleTimeout: subscriber.Never}
		}
		if request == nil || !sameGrant(request.change, want) {
			t.Errorf("%v: %+v, %v, %s", kinds, request, cause, drop)
		}
	}
}

func TestARequestMayNameASessionByItsLineAndInterfaceIdentifier(t *testing.T) {
	receive := func(circuit, remote, identifier string) (*demand, uint32) {
		var all attributes
		all.vendor(vendorBroadband, broadbandAgentCircuitID, []byte(circuit))
		all.vendor(vendorBroadband, broadbandAgentRemoteID, []byte(remote))
		all.add(typeFramedInterfaceID, []byte(identifier))
		_, request, cause, _ := newDynamic(began.Add(-time.Hour)).take(permittedFor(undated()), client1, demandOf(DisconnectRequest, true, all), began)
		return request, cause
	}
	request, cause := receive("olt 7", "home", "\x00\x00\x00\x00\x00\x00\x00\x07")
	if request == nil || request.match != (subscriber.Match{CircuitID: "olt 7", RemoteID: "home", InterfaceID: [8]byte{7: 7}}) {
		t.Fatalf("%+v, Error-Cause %d", request, cause)
	}
	for _, c := range [][3]string{{"", "home", "12345678"}, {"olt 7", "", "12345678"}, {"olt 7", "home", "1234567"}, {"olt 7", "home", "123456789"},
		{"olt 7", "home", "\x00\x00\x00\x00\x00\x00\x00\x00"}} {
		if request, cause := receive(c[0], c[1], c[2]); request != nil || cause != causeInvalidValue {
			t.Errorf("%q: %+v, Error-Cause %d", c, request, cause)
		}
	}
}

func TestKnownRequestsAreBounded(t *testing.T) {
	d := newDynamic(began.Add(-time.Hour))
	for i := range maxKnownRequests + 100 {
		d.remember(authenticator{byte(i), byte(i >> 8), byte(i >> 16)}, &known{until: began.Add(time.Hour), undated: true})
	}
	if len(d.known) != maxKnownRequests || len(d.order) != maxKnownRequests {
		t.Error(len(d.known), len(d.order))
	}
}

// FuzzDynamic gives the server anything, signed and as it is. It answers each signed request or demands something, and drops the rest.
func FuzzDynamic(f *testing.F) {
	f.Add([]byte(session(began)), true)
	f.Add([]byte{typeFramedIPv6Prefix, 12, 0, 64, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0}, false)
	f.Fuzz(func(t *testing.T, all []byte, coa bool) {
		d, clients := newDynamic(began.Add(-time.Hour)), permittedFor(undated())
		if len(all) > maxLength-headLength-18 {
			return
		}
		d.take(clients, client1, all, began)
		code := DisconnectRequest
		if coa {
			code = CoARequest
		}
		answer, request, _, drop := d.take(clients, client1, demandOf(code, true, all), began)
		if request != nil {
			answer = d.finish(request, causeNoSession)
		}
		if drop == "" {
			if _, err := parse(answer); err != nil {
				t.Fatalf("%x: %v", answer, err)
			}
		}
	})
}

func TestChangesThatFailAreOneLineOfTheLogAMinute(t *testing.T) {
	port := freePort(t)
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AccountingPort: uint32(freePort(t)), Secret: "testing123"},
		&api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, DynamicAuthorization: &api.DynamicAuthorization{Address: "127.0.0.1", Port: uint32(port)}},
		&manager{err: errors.New("the disk is full")})
	for i := range 3 {
		if out := radclient(t, port, "disconnect", fmt.Sprintf("Acct-Session-Id = s-%d\n", i)); !strings.Contains(out, "Resources-Unavailable") {
			t.Error(out)
		}
	}
	a.stop()
	if n := strings.Count(a.said.all.String(), "a session cannot be changed"); n != 1 {
		t.Errorf("%d lines", n)
	}
}
