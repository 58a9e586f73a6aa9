// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

func (a *agent) apply(kind string, o *object.Object) {
	o.Kind, o.Name = kind, "home"
	a.Follow(service.Change{Key: o.Key(), Object: o})
}

func TestARequestThatWaitsGoesToTheServerAsItIsConfiguredMeanwhile(t *testing.T) {
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	choices := []*api.RadiusChoice{{Server: "home"}}
	server := func(port int) *api.RadiusServer {
		return &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(port), AccountingPort: uint32(port), Secret: "testing123", Timeout: 30e9}
	}
	a := startAgent(t, t.TempDir(), server(silent.LocalAddr().(*net.UDPAddr).Port), &api.RadiusPolicy{Authentication: choices, Accounting: choices}, nil)
	answers := make(chan subscriber.Answer, 1)
	a.Authenticate(subscriber.Request{ID: "s-1", Profile: "home"}, func(answer subscriber.Answer) { answers <- answer })
	a.Account(accounted(subscriber.Start, "s-1", time.Now()))
	buffer := make([]byte, maxLength)
	if _, err := silent.Read(buffer); err != nil {
		t.Fatal(err)
	}
	a.apply("RadiusServer", &object.Object{Spec: server(responder(t))})
	if answer := <-answers; answer.Reject != nil || !answer.Grant.IPv4.IsValid() {
		t.Error(answer.Reject)
	}
	until(t, "the record is acknowledged", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.spool.count == 0
	})
}

// A server that is busy for a moment has the requests in its socket's buffer, and that is of the usual size.
func TestAServerWithAnUsualBufferThatIsBusyLosesNoRequestOfMany(t *testing.T) {
	const usual, many = 212992, 1000
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The kernel doubles it.
	if err := conn.SetReadBuffer(usual / 2); err != nil {
		t.Fatal(err)
	}
	choices := []*api.RadiusChoice{{Server: "home"}}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(conn.LocalAddr().(*net.UDPAddr).Port), Secret: "testing123", Timeout: 60e9},
		&api.RadiusPolicy{Authentication: choices}, nil)
	answers := make(chan subscriber.Answer, many)
	for i := range many {
		a.Authenticate(subscriber.Request{ID: fmt.Sprint("s-", i), Profile: "home"}, func(answer subscriber.Answer) { answers <- answer })
	}
	go answerAll(conn)
	for range many {
		select {
		case answer := <-answers:
			if answer.Reject != nil {
				t.Fatal(answer.Reject)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("requests are lost")
		}
	}
}

func TestTheSameLineIsLoggedOnceForManyAnswers(t *testing.T) {
	choices := []*api.RadiusChoice{{Server: "home"}}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(freePort(t)), Secret: "testing123"},
		&api.RadiusPolicy{Authentication: choices}, nil)
	request, _ := parse(accessRequest(AccessRequest, 1, authenticator{}, []byte("testing123"), nil, nil))
	a.mu.Lock()
	for i := range 100 {
		var all attributes
		all.add(typeFramedIPAddress, []byte{127, 0, 0, byte(i)})
		wrong, _ := parse(reply(AccessAccept, request, []byte("testing123"), all))
		if result, answer := a.answer(a.policies[0], whom{}, wrong, a.endpoints[endpointKey{"home", false}], false); result != "invalid" || answer.Reject == nil {
			t.Error(result)
		}
	}
	for i := range 3 * mostWarned {
		a.seldom(fmt.Sprint(i))
	}
	if len(a.warned) > mostWarned {
		t.Error("lines are remembered for ever")
	}
	a.mu.Unlock()
	a.stop()
	if n := strings.Count(a.said.all.String(), "Framed-IP-Address"); n != 1 {
		t.Errorf("%d lines", n)
	}
}

func TestADroppedCoARequestIsLoggedOnceWithItsReason(t *testing.T) {
	choices := []*api.RadiusChoice{{Server: "home"}}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(freePort(t)), Secret: "testing123"},
		&api.RadiusPolicy{Authentication: choices}, nil)
	forged := demandOf(CoARequest, false, session(time.Now()))
	forged[5] ^= 1
	l := &listener{clients: permittedFor(&api.DynamicAuthorization{})}
	for range 100 {
		if answer, demanded, _, _, _ := a.understand(l, client1, forged); answer != nil || demanded != nil {
			t.Fatal("a request with another secret is believed")
		}
	}
	a.understand(l, netip.MustParseAddrPort("192.0.2.21:1"), forged)
	a.stop()
	for _, line := range []string{"the client has another secret", "no client of dynamicAuthorization has this address"} {
		if n := strings.Count(a.said.all.String(), line); n != 1 {
			t.Errorf("%d lines: %s", n, line)
		}
	}
}

func TestARateThatCannotBeReadIsLoggedOnceForManyAnswers(t *testing.T) {
	choices := []*api.RadiusChoice{{Server: "home"}}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(freePort(t)), Secret: "testing123"},
		&api.RadiusPolicy{Authentication: choices}, nil)
	request, _ := parse(accessRequest(AccessRequest, 1, authenticator{}, []byte("testing123"), nil, nil))
	a.mu.Lock()
	for i := range 100 {
		var all attributes
		all.vendor(vendorCisco, ciscoAVPair, fmt.Appendf(nil, "lcp:interface-config=rate-limit output fast%d", i))
		accept, _ := parse(reply(AccessAccept, request, []byte("testing123"), all))
		if result, _ := a.answer(a.policies[0], whom{}, accept, a.endpoints[endpointKey{"home", false}], false); result != "accept" {
			t.Error(result)
		}
	}
	a.mu.Unlock()
	a.stop()
	if n := strings.Count(a.said.all.String(), "is not a rate"); n != 1 {
		t.Errorf("%d lines: %s", n, a.said.all.String())
	}
}

func TestWhoWaitsWhenTheServiceEndsIsTold(t *testing.T) {
	choices := []*api.RadiusChoice{{Server: "home"}}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(freePort(t)), Secret: "testing123", Timeout: 30e9},
		&api.RadiusPolicy{Authentication: choices}, nil)
	answers := make(chan subscriber.Answer, 1)
	a.Authenticate(subscriber.Request{ID: "s-1", Profile: "home"}, func(answer subscriber.Answer) { answers <- answer })
	a.stop()
	if answer := <-answers; answer.Reject == nil {
		t.Error("accepted")
	}
}

func TestANASSaysThatItAccountsOnceAndThatItNoLongerDoes(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var mu sync.Mutex
	var kinds []byte
	go func() {
		buffer := make([]byte, maxLength)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			p, err := parse(buffer[:n])
			if err != nil {
				continue
			}
			for _, a := range p.attributes() {
				if a.kind == typeAcctStatusType {
					mu.Lock()
					kinds = append(kinds, a.value[3])
					mu.Unlock()
				}
			}
			_, _ = conn.WriteToUDPAddrPort(reply(AccountingResponse, p, []byte("testing123"), nil), from)
		}
	}()
	directory, choices := t.TempDir(), []*api.RadiusChoice{{Server: "home"}}
	server := &api.RadiusServer{Address: "127.0.0.1", AccountingPort: uint32(conn.LocalAddr().(*net.UDPAddr).Port), Secret: "testing123"}
	var a *agent
	comes := func(want ...byte) {
		t.Helper()
		until(t, "records", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(kinds, want) && a.spool.count == 0
		})
	}
	policy := &api.RadiusPolicy{Accounting: choices}
	a = startAgent(t, directory, server, policy, nil)
	comes(statusOn)
	// A change of the policy and a start of the agent are neither an end nor a beginning.
	a.apply("RadiusPolicy", &object.Object{Spec: &api.RadiusPolicy{Accounting: choices, SpoolRate: 5}})
	a.stop()
	a = startAgent(t, directory, server, policy, nil)
	a.Account(accounted(subscriber.Start, "s-1", time.Now()))
	comes(statusOn, statusStart)
	a.apply("RadiusPolicy", &object.Object{Spec: &api.RadiusPolicy{}})
	comes(statusOn, statusStart, statusOff)
	a.apply("RadiusPolicy", &object.Object{Spec: policy})
	comes(statusOn, statusStart, statusOff, statusOn)
}

func TestASessionWhoseStartTheAgentLostIsAccountedForAllTheSame(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	choices := []*api.RadiusChoice{{Server: "home"}}
	server := &api.RadiusServer{Address: "127.0.0.1", AccountingPort: uint32(conn.LocalAddr().(*net.UDPAddr).Port), Secret: "testing123"}
	a := startAgent(t, t.TempDir(), server, &api.RadiusPolicy{Accounting: choices}, nil)
	since := time.Unix(1_800_000_000, 0)
	record := func(kind subscriber.RecordKind, id string) subscriber.Record {
		r := accounted(kind, id, since.Add(time.Minute))
		r.Since = since
		if kind == subscriber.Start {
			r.At = since
		}
		return r
	}
	waiting := func(id string) (kinds []subscriber.RecordKind, first time.Time) {
		a.mu.Lock()
		defer a.mu.Unlock()
		l := a.spool.boxes["home"].lines[id]
		if l == nil {
			return nil, first
		}
		for _, r := range l.records {
			kinds = append(kinds, r.kind)
		}
		return kinds, l.records[0].at
	}
	whole := []subscriber.RecordKind{subscriber.Start, subscriber.Stop}
	// Killed before the Start was in the log; the Stop comes again, as after another kill.
	a.Account(record(subscriber.Stop, "lost"))
	a.Account(record(subscriber.Stop, "lost"))
	if kinds, first := waiting("lost"); !slices.Equal(kinds, whole) || !first.Equal(since) {
		t.Error("of a session whose Start is lost:", kinds, first)
	}
	a.Account(record(subscriber.Interim, "lives"))
	a.Account(record(subscriber.Stop, "lives"))
	if kinds, _ := waiting("lives"); !slices.Equal(kinds, []subscriber.RecordKind{subscriber.Start, subscriber.Interim, subscriber.Stop}) {
		t.Error("of a session that goes on:", kinds)
	}
	a.Account(record(subscriber.Start, "usual"))
	a.Account(record(subscriber.Stop, "usual"))
	if kinds, _ := waiting("usual"); !slices.Equal(kinds, whole) {
		t.Error("of a session whose Start was kept:", kinds)
	}
}

func TestAnAnswerLeavesFromTheAddressThatTheRequestCameTo(t *testing.T) {
	f := startFreeRADIUS(t)
	server, policy := objects(f)
	port := freePort(t)
	policy.DynamicAuthorization = &api.DynamicAuthorization{Port: uint32(port), Clients: []*api.RadiusClient{{Addresses: "::1/128", Secret: "testing123"}}}
	startAgent(t, t.TempDir(), server, policy, &manager{count: 1})
	for _, address := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
		var all attributes
		all.text(typeAcctSessionID, "s-"+address)
		all.number(typeEventTimestamp, uint32(time.Now().Unix()))
		request := append(newPacket(DisconnectRequest, 7, authenticator{}), all...).withLength()
		sum := request.digest(authenticator{}, []byte("testing123"))
		copy(request[4:], sum[:])
		// A socket that is connected takes packets of that address alone. It is a permitted client by its own.
		source := "127.0.0.1"
		if strings.Contains(address, ":") {
			source = address
		}
		conn, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}}).Dial("udp", net.JoinHostPort(address, fmt.Sprint(port)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(request); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, maxLength)
		if n, err := conn.Read(answer); err != nil || packet(answer[:n]).code() != DisconnectACK {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestASocketForRequestsIsOpenedAgainWhenItsDeviceIsAnother(t *testing.T) {
	port := freePort(t)
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AccountingPort: uint32(freePort(t)), Secret: "testing123"},
		&api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, DynamicAuthorization: &api.DynamicAuthorization{Address: "127.0.0.1", Port: uint32(port), Device: "lo"}}, &manager{count: 1})
	current := func() *net.UDPConn {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, l := range a.listeners {
			return l.conn
		}
		return nil
	}
	until(t, "a socket", func() bool { return current() != nil })
	first := current()
	a.mu.Lock()
	a.indexOf = func(string) int { return 7777 }
	a.mu.Unlock()
	until(t, "another socket", func() bool { return current() != nil && current() != first })
	if out := radclient(t, port, "disconnect", "Acct-Session-Id = s-1\n"); !strings.Contains(out, "Received Disconnect-ACK") {
		t.Error(out)
	}
}

func TestASocketWhoseSourceIsGoneIsReplaced(t *testing.T) {
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "127.0.0.1", AccountingPort: uint32(freePort(t)), Secret: "testing123"},
		&api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}}, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	e := a.endpoints[endpointKey{"home", true}]
	// A socket that is not connected fails as one does whose source is gone.
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range a.sockets[e] {
		if one != nil {
			one.Close()
		}
	}
	a.sockets[e] = []*net.UDPConn{conn}
	a.send(transmit{e, 0, []byte("x")})
	if a.sockets[e][0] != nil {
		t.Fatal("it is used again")
	}
	a.send(transmit{e, 0, []byte("x")})
	if a.sockets[e][0] == nil {
		t.Error("there is none")
	}
}

func TestASocketIsBoundToTheDeviceOfItsServer(t *testing.T) {
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	at := server.LocalAddr().(*net.UDPAddr).AddrPort()
	conn, err := open(settings{address: at, device: "lo"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if n, err := server.Read(make([]byte, 8)); n != 5 || err != nil {
		t.Errorf("%d bytes, error %v", n, err)
	}
	if _, err := open(settings{address: at, device: "nowhere"}); err == nil || !strings.Contains(err.Error(), "device nowhere") {
		t.Errorf("a device that does not exist: %v", err)
	}
}

func TestAPanicInATimerEndsNeitherTheAgentNorItsTimers(t *testing.T) {
	server := newAccountingServer(t)
	a := startAgent(t, t.TempDir(), server.spec(), &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "nas"}, nil)
	server.got(t, a, 1)
	a.mu.Lock()
	// reportStuck does not expect it.
	a.spool.boxes["broken"] = nil
	a.mu.Unlock()
	until(t, "a panic", func() bool { return a.panicked.Load() != 0 })
	a.mu.Lock()
	delete(a.spool.boxes, "broken")
	a.mu.Unlock()
	// The server is dead for the first record: a timer sends it again.
	server.setDeaf(true)
	a.accountFor(subscriber.Start, "s-1")
	until(t, "the pause", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		box := a.spool.boxes["home"]
		return box != nil && box.paused
	})
	server.setDeaf(false)
	if got := server.got(t, a, 1); got[0] != "start nas s-1" {
		t.Error(got)
	}
	a.stop()
	if said := a.said.all.String(); !strings.Contains(said, "the code for a packet or a timer panicked") {
		t.Error(said)
	}
}
