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

// accountingServer answers Accounting-Requests once it is told to, and writes down "STATUS NAS SESSION" of each.
type accountingServer struct {
	conn *net.UDPConn
	mu   sync.Mutex
	seen []string
	// How many Status-Server requests it has answered.
	asked int
	deaf  bool
}

func newAccountingServer(t *testing.T) *accountingServer {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &accountingServer{conn: conn}
	go func() {
		buffer := make([]byte, maxLength)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if p, err := parse(buffer[:n]); err == nil && s.heard(p) {
				_, _ = conn.WriteToUDPAddrPort(reply(AccountingResponse, p, []byte("testing123"), nil), from)
			}
		}
	}()
	return s
}

func (s *accountingServer) heard(p packet) bool {
	if p.code() == StatusServer {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.deaf {
			s.asked++
		}
		return !s.deaf
	}
	names := map[byte]string{statusStart: "start", statusInterim: "interim", statusStop: "stop", statusOn: "on", statusOff: "off"}
	status, nas, session := "", "", ""
	for _, a := range p.attributes() {
		switch a.kind {
		case typeAcctStatusType:
			status = names[a.value[3]]
		case typeNASIdentifier:
			nas = string(a.value)
		case typeAcctSessionID:
			session = string(a.value)
		}
	}
	if status == "on" || status == "off" {
		session = "-"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.deaf {
		s.seen = append(s.seen, fmt.Sprint(status, " ", nas, " ", session))
	}
	return !s.deaf
}

func (s *accountingServer) setDeaf(deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = deaf
}

func (s *accountingServer) spec() *api.RadiusServer {
	return &api.RadiusServer{Address: "127.0.0.1", AccountingPort: uint32(s.conn.LocalAddr().(*net.UDPAddr).Port), Secret: "testing123",
		Timeout: 1e9, Transmissions: 1, DeadTime: 1e9}
}

// got waits until all records are acknowledged, and returns what the server saw since it was asked last.
func (s *accountingServer) got(t *testing.T, a *agent, count int) []string {
	t.Helper()
	until(t, "records", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.seen) >= count && a.spool.count == 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

func (a *agent) set(kind, name string, spec any) {
	var o *object.Object
	switch spec := spec.(type) {
	case *api.RadiusServer:
		o = &object.Object{Kind: kind, Name: name, Spec: spec}
	case *api.RadiusPolicy:
		if spec != nil {
			o = &object.Object{Kind: kind, Name: name, Spec: spec}
		}
	}
	a.Follow(service.Change{Key: object.Key{Kind: kind, Name: name}, Object: o})
}

func (a *agent) accountFor(kind subscriber.RecordKind, id string) {
	a.Account(accounted(kind, id, time.Now()))
}

func TestASessionHasItsRecordsAtThePolicyThatHadItsStart(t *testing.T) {
	old, young := newAccountingServer(t), newAccountingServer(t)
	choices := []*api.RadiusChoice{{Server: "home"}}
	policy := func(server string, profiles ...string) *api.RadiusPolicy {
		return &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: server}}, NasIdentifier: "bng-1", Profiles: profiles}
	}
	directory := t.TempDir()
	a := startAgent(t, directory, old.spec(), &api.RadiusPolicy{Accounting: choices, NasIdentifier: "bng-1", Profiles: []string{"home"}}, nil)
	a.accountFor(subscriber.Start, "s-1")
	if got := old.got(t, a, 2); !slices.Equal(got, []string{"on bng-1 -", "start bng-1 s-1"}) {
		t.Error(got)
	}
	// The profile is the other policy's now; the agent starts again between the two.
	a.set("RadiusServer", "new", young.spec())
	a.set("RadiusPolicy", "new", policy("new", "home"))
	a.set("RadiusPolicy", "home", policy("home", "none"))
	a.accountFor(subscriber.Interim, "s-1")
	a.accountFor(subscriber.Start, "s-2")
	if got := young.got(t, a, 1); !slices.Equal(got, []string{"start bng-1 s-2"}) {
		t.Error(got)
	}
	if got := old.got(t, a, 1); !slices.Equal(got, []string{"interim bng-1 s-1"}) {
		t.Error(got)
	}
	a.stop()
	a = startAgent(t, directory, old.spec(), policy("home", "none"), nil)
	a.accountFor(subscriber.Stop, "s-1")
	if got := old.got(t, a, 1); !slices.Contains(got, "stop bng-1 s-1") || slices.Contains(got, "start bng-1 s-1") {
		t.Error(got)
	}
}

func TestAfterAccountingOffASessionThatGoesOnStartsAgain(t *testing.T) {
	for name, c := range map[string]struct {
		between *api.RadiusPolicy
		nas     string
		want    []string
	}{
		"accounting is off and on again": {&api.RadiusPolicy{NasIdentifier: "bng-1"}, "bng-1", []string{"off bng-1 -", "on bng-1 -", "start bng-1 s-1", "interim bng-1 s-1", "stop bng-1 s-1"}},
		"the policy is gone for a while": {nil, "bng-1", []string{"off bng-1 -", "on bng-1 -", "start bng-1 s-1", "interim bng-1 s-1", "stop bng-1 s-1"}},
		"the NAS has another name":       {nil, "bng-2", []string{"off bng-1 -", "on bng-2 -", "start bng-2 s-1", "interim bng-2 s-1", "stop bng-2 s-1"}},
	} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(name, restart), func(t *testing.T) {
				server := newAccountingServer(t)
				policy := func(nas string) *api.RadiusPolicy {
					return &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: nas}
				}
				directory := t.TempDir()
				a := startAgent(t, directory, server.spec(), policy("bng-1"), nil)
				a.accountFor(subscriber.Start, "s-1")
				if got := server.got(t, a, 2); !slices.Equal(got, []string{"on bng-1 -", "start bng-1 s-1"}) {
					t.Error(got)
				}
				if c.nas == "bng-1" {
					a.set("RadiusPolicy", "home", c.between)
					a.accountFor(subscriber.Interim, "s-1")
				}
				if restart {
					a.stop()
					a = startAgent(t, directory, server.spec(), policy(c.nas), nil)
				} else {
					a.set("RadiusPolicy", "home", policy(c.nas))
				}
				a.accountFor(subscriber.Interim, "s-1")
				a.accountFor(subscriber.Stop, "s-1")
				if got := server.got(t, a, len(c.want)); !slices.Equal(got, c.want) {
					t.Error(got)
				}
			})
		}
	}
}

func TestAStartThatAKilledAgentLostIsSentAtTheRestartAndNoOtherOneIsSentAgain(t *testing.T) {
	server := newAccountingServer(t)
	policy := &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "bng-1"}
	directory := t.TempDir()
	a := startAgent(t, directory, server.spec(), policy, nil)
	a.accountFor(subscriber.Start, "acknowledged")
	if got := server.got(t, a, 2); !slices.Equal(got, []string{"on bng-1 -", "start bng-1 acknowledged"}) {
		t.Error(got)
	}
	server.setDeaf(true)
	a.accountFor(subscriber.Start, "waiting")
	a.accountFor(subscriber.Start, "ended")
	a.accountFor(subscriber.Stop, "ended")
	since := time.Now().Add(-time.Minute)
	resume := func(ids ...string) {
		a.stop()
		a = startAgent(t, directory, server.spec(), policy, nil)
		for _, id := range ids {
			r := accounted(subscriber.Start, id, since)
			r.Since = since
			a.Resume(r)
		}
	}
	// The agent is killed again before the server has the Start.
	for range 2 {
		resume("acknowledged", "waiting", "ended", "lost")
	}
	a.mu.Lock()
	if l := a.spool.boxes["home"].lines["lost"]; l == nil || len(l.records) != 1 || !l.records[0].at.Equal(since) {
		t.Error("the Start is not of the time when the session came up")
	}
	a.mu.Unlock()
	server.setDeaf(false)
	got := server.got(t, a, 4)
	slices.Sort(got)
	if !slices.Equal(got, []string{"start bng-1 ended", "start bng-1 lost", "start bng-1 waiting", "stop bng-1 ended"}) {
		t.Error(got)
	}
	resume("acknowledged", "waiting", "lost")
	a.accountFor(subscriber.Stop, "lost")
	if got := server.got(t, a, 1); !slices.Equal(got, []string{"stop bng-1 lost"}) {
		t.Error(got)
	}
}

func TestAServerThatComesBackEndsThePausesOfItsPoliciesAlone(t *testing.T) {
	server, other := newAccountingServer(t), newAccountingServer(t)
	server.setDeaf(true)
	other.setDeaf(true)
	spec := server.spec()
	spec.StatusInterval = 1e9
	a := startAgent(t, t.TempDir(), spec, &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "bng-1"}, nil)
	a.set("RadiusServer", "other", other.spec())
	a.set("RadiusPolicy", "other", &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "other"}}, NasIdentifier: "bng-2", Profiles: []string{"other"}})
	a.accountFor(subscriber.Start, "s-1")
	pauses := func(name string) (paused bool, until time.Time) {
		a.mu.Lock()
		defer a.mu.Unlock()
		box := a.spool.boxes[name]
		return box.paused, box.until
	}
	until(t, "pauses", func() bool {
		first, _ := pauses("home")
		second, _ := pauses("other")
		return first && second
	})
	// Long pauses: only the answer to Status-Server ends one.
	far := time.Now().Add(time.Hour)
	a.mu.Lock()
	for _, box := range a.spool.boxes {
		box.until = far
	}
	a.mu.Unlock()
	server.setDeaf(false)
	until(t, "the records of the server that answers", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.spool.boxes["home"].records() == 0
	})
	if paused, at := pauses("other"); !paused || !at.Equal(far) {
		t.Error("another server's answer ends the pause")
	}
}

func TestAStopThatComesWhileThePolicyIsGoneReachesItsServers(t *testing.T) {
	server := newAccountingServer(t)
	a := startAgent(t, t.TempDir(), server.spec(), &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "bng-1"}, nil)
	a.accountFor(subscriber.Start, "s-1")
	server.got(t, a, 2)
	a.set("RadiusPolicy", "home", nil)
	a.accountFor(subscriber.Stop, "s-1")
	if got := server.got(t, a, 2); !slices.Equal(got, []string{"off bng-1 -", "stop bng-1 s-1"}) {
		t.Error(got)
	}
	// Nothing of the policy is left once nothing needs it.
	a.set("RadiusPolicy", "other", &api.RadiusPolicy{})
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.accounted)+len(a.retired)+len(a.sessions.of)+len(a.spool.table.Unsorted()) != 0 {
		t.Error(a.accounted, a.retired, a.sessions.of, a.spool.table.Unsorted())
	}
}

func TestAccountingOffOutlivesASilentServerAndAKilledAgent(t *testing.T) {
	server := newAccountingServer(t)
	directory := t.TempDir()
	a := startAgent(t, directory, server.spec(), &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "bng-1"}, nil)
	server.got(t, a, 1)
	server.setDeaf(true)
	a.accountFor(subscriber.Start, "s-1")
	a.set("RadiusPolicy", "home", nil)
	a.stop()
	// "home" is another policy, which does not account.
	a = startAgent(t, directory, server.spec(), &api.RadiusPolicy{}, nil)
	server.setDeaf(false)
	if got := server.got(t, a, 2); !slices.Equal(got, []string{"start bng-1 s-1", "off bng-1 -"}) {
		t.Error(got)
	}
}

func TestAccountingOffOfAPolicyThatWentWhileTheAgentWasAway(t *testing.T) {
	server := newAccountingServer(t)
	directory := t.TempDir()
	a := startAgent(t, directory, server.spec(), &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "bng-1"}, nil)
	server.got(t, a, 1)
	a.stop()
	a = startAgent(t, directory, server.spec(), &api.RadiusPolicy{}, nil)
	if got := server.got(t, a, 1); !slices.Equal(got, []string{"off bng-1 -"}) {
		t.Error(got)
	}
}

func TestARecordOfAnotherPolicyOfTheNASWaitsForAccountingOn(t *testing.T) {
	server := newAccountingServer(t)
	server.setDeaf(true)
	policy := func(profile string) *api.RadiusPolicy {
		return &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "bng-1", Profiles: []string{profile}}
	}
	a := startAgent(t, t.TempDir(), server.spec(), policy("nobody"), nil)
	a.set("RadiusPolicy", "zone", policy("home"))
	a.accountFor(subscriber.Start, "s-1")
	until(t, "the server is asked", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.spool.boxes["home"].paused
	})
	server.setDeaf(false)
	if got := server.got(t, a, 2); !slices.Equal(got, []string{"on bng-1 -", "start bng-1 s-1"}) {
		t.Error(got)
	}
}

func TestANASHasItsNameAgainFromItsKey(t *testing.T) {
	for _, n := range []nas{{}, {identifier: "bng/1/2"}, {"bng-1", netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}} {
		if got := nasOf(n.key()); got != n {
			t.Error(got, n)
		}
	}
}

func TestAccountingTellsWhoAcceptedTheSubscriber(t *testing.T) {
	p := newPolicy("home", &api.RadiusPolicy{}, "bng-1")
	for _, local := range []bool{false, true} {
		r := accounted(subscriber.Start, "s-1", time.Now())
		r.Grant.Local = local
		got := valueOf(p.accountingAttributes(&r), typeAcctAuthentic)
		if want := map[bool]byte{false: authenticRADIUS, true: authenticLocal}[local]; len(got) != 4 || got[3] != want {
			t.Errorf("Local is %v: %v", local, got)
		}
	}
}

func valueOf(all attributes, kind uint8) (value []byte) {
	for _, a := range packet(append(make([]byte, headLength), all...)).attributes() {
		if a.vendor == 0 && a.kind == kind {
			value = a.value
		}
	}
	return value
}

func TestAHostThatSendsManyAttributesOfTheLineHidesNothingElse(t *testing.T) {
	p := newPolicy("home", &api.RadiusPolicy{}, "bng-1")
	r := accounted(subscriber.Stop, "s-1", time.Now())
	r.Line.Attributes = map[uint8][]byte{}
	for kind := 0x81; kind < 0xfe; kind++ {
		// The small ones take the room that the large ones leave.
		r.Line.Attributes[uint8(kind)] = make([]byte, max(240-20*(kind-0x81)/2, 1))
	}
	r.Grant.Class = [][]byte{[]byte("gold")}
	all := p.accountingAttributes(&r)
	for _, kind := range []uint8{typeAcctSessionID, typeAcctInputOctets, typeAcctInputGigawords, typeAcctTerminateCause, typeClass} {
		if valueOf(all, kind) == nil {
			t.Errorf("attribute %d is missing", kind)
		}
	}
	r.CHAP = &subscriber.CHAP{Challenge: make([]byte, 16)}
	access, _, err := p.accessAttributes(&r.Request)
	if err != nil || valueOf(access, typeCHAPPassword) == nil || len(access) > maxLength {
		t.Error(err, len(access))
	}
}

func TestAUserNameThatRADIUSDoesNotCarryIsRefused(t *testing.T) {
	p := newPolicy("home", &api.RadiusPolicy{}, "bng-1")
	for length, refused := range map[int]bool{maxValue: false, maxValue + 1: true} {
		r := accounted(subscriber.Start, "s-1", time.Now())
		r.Username = strings.Repeat("a", length)
		if _, _, err := p.accessAttributes(&r.Request); (err != nil) != refused {
			t.Error(length, err)
		}
	}
}

func TestServiceTypeIsTheSameInAllRequestsOfASession(t *testing.T) {
	p := newPolicy("home", &api.RadiusPolicy{}, "bng-1")
	for _, password := range [][]byte{nil, []byte("secret")} {
		r := accounted(subscriber.Start, "s-1", time.Now())
		r.Protocol, r.Password, r.Grant.Proved = "dhcp4", password, password != nil
		access, _, err := p.accessAttributes(&r.Request)
		if err != nil {
			t.Fatal(err)
		}
		// The Manager forgets credentials.
		r.Password = nil
		want := byte(serviceCallCheck)
		if password != nil {
			want = serviceFramed
		}
		for _, got := range [][]byte{valueOf(access, typeServiceType), valueOf(p.accountingAttributes(&r), typeServiceType)} {
			if len(got) != 4 || got[3] != want {
				t.Errorf("password %q: %v", password, got)
			}
		}
	}
}

func TestAnAnswerToStatusServerEndsTheWaitOfRecords(t *testing.T) {
	server := newAccountingServer(t)
	spec := server.spec()
	spec.StatusInterval, spec.DeadTime = 100e6, 3600e9
	a := startAgent(t, t.TempDir(), spec, &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "nas"}, nil)
	server.got(t, a, 1)
	server.setDeaf(true)
	a.accountFor(subscriber.Start, "s-1")
	until(t, "a pause", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		box := a.spool.boxes["home"]
		if !box.paused || box.busy > 0 {
			return false
		}
		// No record asks the server until then.
		box.until = time.Now().Add(time.Hour)
		return true
	})
	server.setDeaf(false)
	if got := server.got(t, a, 1); len(got) != 1 || got[0] != "start nas s-1" {
		t.Errorf("%q", got)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if server.asked == 0 {
		t.Error("the server was not asked")
	}
}
