// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

// freeRADIUS is a server of its own, with its files in a directory of its own.
type freeRADIUS struct {
	t                          *testing.T
	directory                  string
	authentication, accounting int
	command                    *exec.Cmd
}

const freeRADIUSConfiguration = `
name = radiusd
prefix = /usr
libdir = /usr/lib/freeradius
raddbdir = DIR
logdir = DIR
run_dir = DIR
pidfile = DIR/pid
max_request_time = 5
cleanup_delay = 2
max_requests = 16384
log {
	destination = stdout
}
security {
	max_attributes = 200
	reject_delay = 0
	status_server = yes
}
client localhost {
	ipaddr = 127.0.0.1
	secret = testing123
	require_message_authenticator = no
}
thread pool {
	start_servers = 1
	max_servers = 2
	min_spare_servers = 1
	max_spare_servers = 1
}
modules {
	pap {
	}
	chap {
	}
	mschap {
		use_mppe = no
	}
	files {
		filename = DIR/users
	}
	detail {
		filename = DIR/detail
		permissions = 0600
	}
}
server default {
	listen {
		type = auth
		ipaddr = 127.0.0.1
		port = AUTHENTICATION
	}
	listen {
		type = acct
		ipaddr = 127.0.0.1
		port = ACCOUNTING
	}
	authorize {
		chap
		mschap
		files
		pap
		update reply {
			Message-Authenticator := 0x00000000000000000000000000000000
		}
	}
	authenticate {
		Auth-Type PAP {
			pap
		}
		Auth-Type CHAP {
			chap
		}
		Auth-Type MS-CHAP {
			mschap
		}
	}
	accounting {
		detail
	}
}
`

const freeRADIUSUsers = `
alice Cleartext-Password := "wonderland"
	Framed-IP-Address = 100.64.7.7,
	Framed-IPv6-Prefix = 2001:db8:7::/64,
	Delegated-IPv6-Prefix = 2001:db8:700::/56,
	Framed-IPv6-Address = 2001:db8:7::7,
	DNS-Server-IPv6-Address = 2001:db8::53,
	MS-Primary-DNS-Server = 192.0.2.53,
	Framed-Route = "198.51.100.0/24 0.0.0.0 1",
	Framed-Pool = "home",
	Session-Timeout = 86400,
	Idle-Timeout = 600,
	Acct-Interim-Interval = 300,
	Class = 0x0102,
	Class += 0x03,
	Filter-Id = "home.in",
	Mikrotik-Rate-Limit = "10M/50M",
	Cisco-AVPair = "ip:vrf-id=red",
	Cisco-AVPair += "lcp:interface-config=ip tcp adjust-mss 1400",
	ERX-Egress-Policy-Name = "down",
	Reply-Message = "hello"

User Cleartext-Password := "clientPass"

"02:00:00:00:00:01" Auth-Type := Accept
	Framed-IP-Address = 255.255.255.254
`

func freePort(t *testing.T) int {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).Port
}

func startFreeRADIUS(t *testing.T) *freeRADIUS {
	t.Helper()
	f := &freeRADIUS{t: t, directory: t.TempDir(), authentication: freePort(t), accounting: freePort(t)}
	text := strings.NewReplacer("DIR", f.directory, "AUTHENTICATION", fmt.Sprint(f.authentication), "ACCOUNTING", fmt.Sprint(f.accounting)).Replace(freeRADIUSConfiguration)
	for name, content := range map[string]string{"radiusd.conf": text, "users": freeRADIUSUsers, "dictionary": ""} {
		if err := os.WriteFile(filepath.Join(f.directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.start()
	t.Cleanup(f.stop)
	return f
}

func (f *freeRADIUS) start() {
	f.t.Helper()
	f.command = exec.Command("freeradius", "-f", "-x", "-l", "stdout", "-d", f.directory, "-n", "radiusd")
	out, err := f.command.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.command.Start(); err != nil {
		f.t.Fatal("FreeRADIUS is needed (Debian package freeradius; make setup installs it):", err)
	}
	ready := make(chan string, 1)
	go func() {
		var all strings.Builder
		lines := bufio.NewScanner(out)
		said := false
		for lines.Scan() {
			all.WriteString(lines.Text() + "\n")
			if !said && strings.Contains(lines.Text(), "Ready to process requests") {
				said = true
				ready <- ""
			}
		}
		if !said {
			ready <- all.String()
		}
	}()
	if text := <-ready; text != "" {
		f.t.Fatal("FreeRADIUS does not start:\n", text)
	}
}

func (f *freeRADIUS) stop() {
	if f.command != nil {
		_ = f.command.Process.Kill()
		_ = f.command.Wait()
		f.command = nil
	}
}

// records are the server's records, by their content.
func (f *freeRADIUS) records() (all []map[string]string) {
	text, _ := os.ReadFile(filepath.Join(f.directory, "detail"))
	pair := regexp.MustCompile(`(?m)^\t(\S+) = "?([^"\n]*)"?$`)
	for _, block := range strings.Split(string(text), "\n\n") {
		r := map[string]string{}
		for _, m := range pair.FindAllStringSubmatch(block, -1) {
			r[m[1]] += m[2]
		}
		// A record that is being written has no end yet.
		if r["Timestamp"] != "" {
			all = append(all, r)
		}
	}
	return all
}

// manager stands for the subscriber Manager.
type manager struct {
	subscriber.Manager
	mu      sync.Mutex
	ended   []subscriber.Match
	causes  []subscriber.Cause
	changed []subscriber.Grant
	matched []subscriber.Match
	count   int
	err     error
}

func (m *manager) Terminate(which []subscriber.Match, cause subscriber.Cause, _ string, done func(int, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended, m.causes = append(m.ended, which...), append(m.causes, cause)
	go done(m.count, m.err)
}

func (m *manager) Change(which []subscriber.Match, change subscriber.Grant, done func(int, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed, m.matched = append(m.changed, change), append(m.matched, which...)
	go done(m.count, m.err)
}

// text is a log.
type text struct {
	mu  sync.Mutex
	all strings.Builder
}

func (w *text) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(b)
}

// agent is the service with objects of a test.
type agent struct {
	said *text
	*radius
	t    testing.TB
	log  *durable.Log
	stop func()
	// The agent's metrics.
	metrics *prometheus.Registry
}

func startAgent(t testing.TB, directory string, server *api.RadiusServer, policy *api.RadiusPolicy, m subscriber.Manager) *agent {
	t.Helper()
	log, err := durable.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	records, err := log.Table("radius")
	if err != nil {
		t.Fatal(err)
	}
	said := &text{}
	metrics := prometheus.NewRegistry()
	made, err := newRadius(service.Environment{Log: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})), Metrics: metrics, Records: records})
	if err != nil {
		t.Fatal(err)
	}
	s := made.(*radius)
	s.manager = m
	// Those that the attributes of these tests name.
	for _, key := range []object.Key{{Kind: "Vrf", Name: "red"}, {Kind: "Acl", Name: "home"}, {Kind: "Acl", Name: "garden"}, {Kind: "AddressPool", Name: "home"}, {Kind: "Meter", Name: "down"}} {
		s.Follow(service.Change{Key: key, Object: &object.Object{Kind: key.Kind, Name: key.Name}})
	}
	for kind, spec := range map[string]any{"RadiusServer": server, "RadiusPolicy": policy} {
		o := &object.Object{Kind: kind, Name: "home"}
		switch spec := spec.(type) {
		case *api.RadiusServer:
			o.Spec = spec
		case *api.RadiusPolicy:
			o.Spec = spec
		}
		s.Follow(service.Change{Key: o.Key(), Object: o})
	}
	s.Synced()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		_ = s.run(ctx)
		close(ended)
	}()
	a := &agent{said: said, radius: s, t: t, log: log, metrics: metrics}
	a.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
		log.Close()
		for _, secret := range []string{"testing123", "wonderland", "clientPass"} {
			if strings.Contains(said.all.String(), secret) {
				t.Error("the log tells a secret:", said.all.String())
			}
		}
	})
	t.Cleanup(a.stop)
	return a
}

func (a *agent) authenticate(c subscriber.Credentials, mac byte) subscriber.Answer {
	a.t.Helper()
	answers := make(chan subscriber.Answer, 1)
	a.Authenticate(subscriber.Request{Protocol: "pppoe", Profile: "home", ID: "s-1", Credentials: c, Line: subscriber.Line{MAC: subscriber.MAC{2, 0, 0, 0, 0, mac}}},
		func(answer subscriber.Answer) { answers <- answer })
	return <-answers
}

func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come: ", what)
		}
	}
}

func objects(f *freeRADIUS) (*api.RadiusServer, *api.RadiusPolicy) {
	choice := []*api.RadiusChoice{{Server: "home"}}
	return &api.RadiusServer{Address: "127.0.0.1", AuthenticationPort: uint32(f.authentication), AccountingPort: uint32(f.accounting), Secret: "testing123",
			SourceAddress: "127.0.0.1", Timeout: 300e6, Transmissions: 3, StatusInterval: 200e6},
		&api.RadiusPolicy{Authentication: choice, Accounting: choice, NasIdentifier: "bng-1", NasIpAddress: "192.0.2.1"}
}

func TestFreeRADIUSAuthenticatesEachWayAndSaysWhatTheSubscriberGets(t *testing.T) {
	f := startFreeRADIUS(t)
	server, policy := objects(f)
	a := startAgent(t, t.TempDir(), server, policy, nil)
	answer := a.authenticate(subscriber.Credentials{Username: "alice", Password: []byte("wonderland")}, 7)
	want := subscriber.Grant{IPv4: netip.MustParseAddr("100.64.7.7"), IPv6Prefix: netip.MustParsePrefix("2001:db8:7::/64"), Delegated: netip.MustParsePrefix("2001:db8:700::/56"),
		IPv6: netip.MustParseAddr("2001:db8:7::7"), DNS: []netip.Addr{netip.MustParseAddr("2001:db8::53"), netip.MustParseAddr("192.0.2.53")},
		Routes: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, IPv4Pools: []string{"home"}, SessionTimeout: 24 * time.Hour, IdleTimeout: 10 * time.Minute,
		InterimInterval: 5 * time.Minute, Class: [][]byte{{1, 2}, {3}}, ACLUp: "home", RateUp: subscriber.Rate{BitsPerSecond: 10e6}, RateDown: subscriber.Rate{BitsPerSecond: 50e6},
		VRF: "red", MSS: 1400, MeterDown: "down"}
	if answer.Reject != nil || answer.Message != "hello" || !reflect.DeepEqual(answer.Grant, want) {
		t.Errorf("PAP:\n%+v\nnot\n%+v", answer, want)
	}
	if answer := a.authenticate(subscriber.Credentials{Username: "alice", Password: []byte("wrong")}, 7); answer.Reject == nil {
		t.Error("a wrong password is accepted")
	}
	// MD5 of the identifier, the password and the challenge (RFC 1994), computed elsewhere.
	chap := &subscriber.CHAP{Identifier: 1, Challenge: []byte("0123456789abcdef"), Response: chapResponse(1, "wonderland", "0123456789abcdef")}
	if answer := a.authenticate(subscriber.Credentials{Username: "alice", CHAP: chap}, 7); answer.Reject != nil || answer.Grant.VRF != "red" {
		t.Error("CHAP:", answer.Reject)
	}
	chap.Response[0] ^= 1
	if answer := a.authenticate(subscriber.Credentials{Username: "alice", CHAP: chap}, 7); answer.Reject == nil {
		t.Error("a wrong answer to CHAP is accepted")
	}
	// RFC 2759 section 9.2.
	ms := &subscriber.MSCHAPv2{Identifier: 9}
	fill := func(to []byte, text string) {
		b, err := hex.DecodeString(text)
		if err != nil || copy(to, b) != len(to) {
			t.Fatal(err)
		}
	}
	fill(ms.AuthenticatorChallenge[:], "5b5d7c7d7b3f2f3e3c2c602132262628")
	fill(ms.PeerChallenge[:], "21402324255e262a28295f2b3a337c7e")
	fill(ms.Response[:], "82309ecd8d708b5ea08faa3981cd83544233114a3d85d6df")
	if answer := a.authenticate(subscriber.Credentials{Username: "User", MSCHAPv2: ms}, 7); answer.Reject != nil || answer.Message != "S=407A5589115FD0D6209F510FE9C04566932CDA56" {
		t.Error("MS-CHAPv2:", answer.Reject, answer.Message)
	}
	ms.Response[5] ^= 1
	if answer := a.authenticate(subscriber.Credentials{Username: "User", MSCHAPv2: ms}, 7); answer.Reject == nil || !strings.HasPrefix(answer.Message, "E=691") {
		t.Error("a wrong answer to MS-CHAPv2:", answer.Reject, answer.Message)
	}
	if answer := a.authenticate(subscriber.Credentials{}, 1); answer.Reject != nil || answer.Grant.IPv4.IsValid() {
		t.Error("a line without credentials:", answer.Reject, answer.Grant.IPv4)
	}
	if answer := a.authenticate(subscriber.Credentials{}, 2); answer.Reject == nil {
		t.Error("an unknown line is accepted")
	}
}

func accounted(kind subscriber.RecordKind, id string, at time.Time) subscriber.Record {
	return subscriber.Record{Kind: kind, At: at, Since: at.Add(-time.Hour), Request: subscriber.Request{ID: id, Profile: "home", Protocol: "pppoe", Credentials: subscriber.Credentials{Username: "alice"},
		Line: subscriber.Line{Circuit: subscriber.Circuit{Port: "access", OuterVLAN: 100, InnerVLAN: 7}, MAC: subscriber.MAC{2, 0, 0, 0, 0, 7}}},
		Lease: subscriber.Lease{IPv4: netip.MustParseAddr("100.64.7.7")}, UpBytes: 1 << 33, DownBytes: 7, Cause: subscriber.UserRequest}
}

func TestEachAccountingRecordReachesFreeRADIUSOnceThoughServerAndAgentAreStartedAgain(t *testing.T) {
	f := startFreeRADIUS(t)
	server, policy := objects(f)
	// A machine that is busy for a moment must not make a record come twice: FreeRADIUS forgets those that it has answered.
	server.Timeout, server.Transmissions = 2e9, 1
	directory := t.TempDir()
	a := startAgent(t, directory, server, policy, nil)
	empty := func(a *agent) func() bool {
		return func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.spool.count == 0
		}
	}
	a.Account(accounted(subscriber.Start, "up", time.Now()))
	until(t, "Accounting-On and Start are acknowledged", empty(a))
	f.stop()
	const many = 40
	for i := range many {
		a.Account(accounted(subscriber.Start, fmt.Sprint("session-", i), time.Now()))
		a.Account(accounted(subscriber.Interim, fmt.Sprint("session-", i), time.Now()))
	}
	until(t, "the server counts as dead", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.spool.boxes["home"].paused
	})
	a.stop()
	a = startAgent(t, directory, server, policy, nil)
	for i := range many {
		a.Account(accounted(subscriber.Stop, fmt.Sprint("session-", i), time.Now()))
	}
	f.start()
	until(t, "all records are acknowledged", empty(a))
	counts := map[string]int{}
	at := map[string]int{}
	for i, r := range f.records() {
		counts[r["Acct-Status-Type"]]++
		key := r["Acct-Session-Id"] + " " + r["Acct-Status-Type"]
		if at[key] != 0 {
			t.Error("twice: ", key)
		}
		at[key] = i + 1
		if r["NAS-Identifier"] != "bng-1" || r["Acct-Session-Id"] == "" || r["Event-Timestamp"] == "" {
			t.Error(r)
		}
		if r["Acct-Status-Type"] == "Stop" && (r["Acct-Input-Gigawords"] != "2" || r["Acct-Terminate-Cause"] != "User-Request" || r["Acct-Session-Time"] != "3600") {
			t.Error(r)
		}
	}
	if counts["Accounting-On"] != 1 || counts["Start"] != many+1 || counts["Interim-Update"] != many || counts["Stop"] != many {
		t.Error(counts)
	}
	for i := range many {
		id := fmt.Sprint("session-", i)
		if start, interim, stop := at[id+" Start"], at[id+" Interim-Update"], at[id+" Stop"]; start == 0 || start > interim || interim > stop {
			t.Error("out of order:", id)
		}
	}
}

// radclient sends a request, with an Event-Timestamp unless it has one, and returns the output.
func radclient(t *testing.T, port int, command, attributes string) string {
	t.Helper()
	c := exec.Command("radclient", "-x", "-r", "3", "-t", "5", fmt.Sprint("127.0.0.1:", port), command, "testing123")
	if !strings.Contains(attributes, "Event-Timestamp") {
		attributes += fmt.Sprint("Event-Timestamp = ", time.Now().Unix(), "\n")
	}
	c.Stdin = strings.NewReader(attributes)
	out, err := c.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal("radclient is needed (Debian package freeradius-utils; make setup installs it):", err)
	}
	return string(out)
}

func TestRadclientChangesAndEndsSessions(t *testing.T) {
	f := startFreeRADIUS(t)
	server, policy := objects(f)
	port := freePort(t)
	policy.DynamicAuthorization = &api.DynamicAuthorization{Address: "127.0.0.1", Port: uint32(port)}
	m := &manager{count: 1}
	a := startAgent(t, t.TempDir(), server, policy, m)
	out := radclient(t, port, "coa", "Acct-Session-Id = s-1\nMikrotik-Rate-Limit = 5M/20M\nFilter-Id = garden\nSession-Timeout = 60\nEvent-Timestamp = "+fmt.Sprint(time.Now().Unix())+"\n")
	m.mu.Lock()
	if !strings.Contains(out, "Received CoA-ACK") || len(m.changed) != 1 || m.matched[0].ID != "s-1" || m.changed[0].RateDown.BitsPerSecond != 20e6 ||
		m.changed[0].ACLUp != "garden" || m.changed[0].SessionTimeout != time.Minute {
		t.Error(out, m.changed, m.matched)
	}
	m.mu.Unlock()
	out = radclient(t, port, "disconnect", "Framed-IP-Address = 100.64.7.7\nMessage-Authenticator = 0x00\n")
	m.mu.Lock()
	if !strings.Contains(out, "Received Disconnect-ACK") || len(m.ended) != 1 || m.ended[0].IPv4 != netip.MustParseAddr("100.64.7.7") || m.causes[0] != subscriber.AdminReset {
		t.Error(out, m.ended)
	}
	m.mu.Unlock()
	// By the words of our own records.
	a.Account(accounted(subscriber.Start, "s-9", time.Now()))
	out = radclient(t, port, "disconnect", "NAS-Port-Id = \"access:100.7\"\nUser-Name = alice\n")
	m.mu.Lock()
	if !strings.Contains(out, "Received Disconnect-ACK") || len(m.ended) != 2 || m.ended[1].ID != "s-9" {
		t.Error(out, m.ended)
	}
	m.mu.Unlock()
	m.mu.Lock()
	m.count = 0
	m.mu.Unlock()
	for request, cause := range map[string]string{
		"Acct-Session-Id = s-2\nIdle-Timeout = 1\n":                         "Session-Context-Not-Found",
		"NAS-Port-Id = nowhere\nIdle-Timeout = 1\n":                         "Session-Context-Not-Found",
		"Idle-Timeout = 60\n":                                               "Missing-Attribute",
		"Acct-Session-Id = s-3\nNAS-Identifier = other\nIdle-Timeout = 5\n": "NAS-Identification-Mismatch",
		"Acct-Session-Id = s-4\nFramed-Pool = other\n":                      "Unsupported-Attribute",
		"Acct-Session-Id = s-5\nMikrotik-Rate-Limit = fast\n":               "Invalid-Attribute-Value",
		"Acct-Session-Id = s-6\nService-Type = Authorize-Only\n":            "Unsupported-Service",
	} {
		if out := radclient(t, port, "coa", request); !strings.Contains(out, "Received CoA-NAK") || !strings.Contains(out, "Error-Cause = "+cause) {
			t.Errorf("%q: %s", request, out)
		}
	}
}

func TestALogLineSaysWhyRepliesOfAServerAreDropped(t *testing.T) {
	f := startFreeRADIUS(t)
	server, policy := objects(f)
	server.Secret = "another secret"
	a := startAgent(t, t.TempDir(), server, policy, nil)
	if answer := a.authenticate(subscriber.Credentials{Username: "alice", Password: []byte("wonderland")}, 7); !errors.Is(answer.Reject, subscriber.ErrUnavailable) {
		t.Error(answer.Reject)
	}
	a.mu.Lock()
	e := a.endpoints[endpointKey{"home", false}]
	for range 3 {
		a.carryOut([]action{counted{endpoint: e, what: errNoMessageAuth.Error()}})
	}
	a.mu.Unlock()
	a.stop()
	if n := strings.Count(a.said.all.String(), "set allowUnsignedReplies"); n != 1 {
		t.Errorf("%d lines: %s", n, a.said.all.String())
	}
}
