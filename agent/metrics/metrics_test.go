// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/dataplane/dataplanetest"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile/reconciletest"
)

// scene is an agent's insides with a data plane that answers with counters, and one that takes objects.
type scene struct {
	t           testing.TB
	desired     *intent.Desired
	fake        *dataplanetest.Fake
	client      *dataplane.Client
	environment northbound.Environment
	handler     http.Handler
}

func newScene(t testing.TB) *scene {
	t.Helper()
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	fake := dataplanetest.New(t)
	endpoint, err := dataplane.ParseEndpoint("unix://"+fake.Path, dataplane.Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	client := dataplane.New(dataplane.Config{Endpoint: endpoint, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond, CallTimeout: 200 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { desired.Run(ctx); ended <- struct{}{} }()
	go func() { client.Run(ctx); ended <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-ended; <-ended })
	counters := &northbound.Counters{}
	s := &scene{t: t, desired: desired, fake: fake, client: client, environment: northbound.Environment{
		Name: "metrics", Registry: registry, Log: slog.New(slog.DiscardHandler), Counters: counters, Intent: northbound.Counting(desired, counters),
		Agent: northbound.Agent{Release: "1.0", Dataplanes: map[string]*dataplane.Client{"default": client},
			Northbounds: map[string]*northbound.Counters{"metrics": counters}},
	}}
	s.handler = handler(s.environment, nil)
	s.until(func() bool { return client.Link().GetConnected() })
	return s
}

func (s *scene) until(holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("not in twenty seconds")
		}
	}
}

func (s *scene) get(path string) (int, string) {
	s.t.Helper()
	recorder := httptest.NewRecorder()
	s.handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(recorder.Result().Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return recorder.Code, string(body)
}

// series returns sluice's metrics of a scrape, by series.
func (s *scene) series() map[string]string {
	s.t.Helper()
	code, text := s.get("/metrics")
	if code != http.StatusOK {
		s.t.Fatalf("%d: %s", code, text)
	}
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "sluice_") {
			all[name] = value
		}
	}
	return all
}

func (s *scene) tells(want map[string]string) {
	s.t.Helper()
	all := s.series()
	for name, value := range want {
		if all[name] != value {
			s.t.Errorf("%s is %q, not %q", name, all[name], value)
		}
	}
}

func sessions(from, to int) []object.Change {
	var changes []object.Change
	for i := from; i < to; i++ {
		changes = append(changes, object.Put(&object.Object{Kind: "Session", Name: fmt.Sprintf("line-%d", i), Spec: &api.Session{
			Access: &api.Access{Port: "access", OuterVlan: uint32(1 + i/4000), InnerVlan: uint32(1 + i%4000)}}}))
	}
	return changes
}

func (s *scene) apply(changes ...object.Change) {
	s.t.Helper()
	s.applyWith(intent.Options{}, changes...)
}

func (s *scene) applyWith(options intent.Options, changes ...object.Change) {
	s.t.Helper()
	if _, err := s.environment.Intent.Apply(s.t.Context(), intent.Source{Owner: "test"}, changes, options); err != nil {
		s.t.Fatal(err)
	}
}

func TestTwoHundredThousandSessionsHaveAsManySeriesAsTen(t *testing.T) {
	s := newScene(t)
	s.apply(sessions(0, 10)...)
	before := s.series()
	s.apply(sessions(10, 200_000)...)
	many := s.series()
	if pending := many[`sluice_objects{dataplane="default",kind="Session",state="pending"}`]; len(before) != len(many) || pending != "200000" {
		t.Errorf("%d series with ten, %d with two hundred thousand, of which wait %s", len(before), len(many), pending)
	}
}

func TestAScrapeHasTheDataPlanesCounters(t *testing.T) {
	s := newScene(t)
	s.fake.Count(
		&api.PortCountersList{Ports: []*api.PortCounters{{Port: "access", LinkUp: true, RxPackets: 5, TxBytes: 7, RxNoBuffer: 2}, {Port: "access"}}},
		&api.NodeCountersList{TscHz: 2_000_000_000, Nodes: []*api.NodeCounters{{Node: "rx", Calls: 1, Packets: 2, Cycles: 3}, {Node: "rx"}}},
		&api.SessionTotals{UpPackets: 11, DownBytes: 12, UpDroppedPackets: 1, DownDroppedBytes: 2},
		&api.DropCountersList{Drops: []*api.DropCounters{{Reason: "ttl-expired", Packets: 9}, {Reason: "ttl-expired"}},
			Consumed: []*api.DropCounters{{Reason: "arp-noted", Packets: 4}, {Reason: "arp-noted"}}})
	s.tells(map[string]string{
		`sluice_port_up{dataplane="default",port="access"}`:                                     "1",
		`sluice_port_packets_total{dataplane="default",direction="receive",port="access"}`:      "5",
		`sluice_port_bytes_total{dataplane="default",direction="transmit",port="access"}`:       "7",
		`sluice_port_errors_total{dataplane="default",error="receive-no-buffer",port="access"}`: "2",
		`sluice_node_calls_total{dataplane="default",node="rx"}`:                                "1",
		`sluice_node_packets_total{dataplane="default",node="rx"}`:                              "2",
		`sluice_node_cycles_total{dataplane="default",node="rx"}`:                               "3",
		`sluice_dataplane_tsc_hertz{dataplane="default"}`:                                       "2e+09",
		`sluice_session_packets_total{dataplane="default",direction="up"}`:                      "11",
		`sluice_session_bytes_total{dataplane="default",direction="down"}`:                      "12",
		`sluice_session_dropped_packets_total{dataplane="default",direction="up"}`:              "1",
		`sluice_session_dropped_bytes_total{dataplane="default",direction="down"}`:              "2",
		`sluice_dropped_packets_total{dataplane="default",reason="ttl-expired"}`:                "9",
		`sluice_consumed_packets_total{dataplane="default",reason="arp-noted"}`:                 "4",
		`sluice_dataplane_connected{dataplane="default"}`:                                       "1",
		`sluice_dataplane_connections_total{dataplane="default"}`:                               "1",
		`sluice_dataplane_unanswered_total{dataplane="default"}`:                                "0",
		`sluice_build_info{release="1.0"}`:                                                      "1",
	})
}

func TestADataPlaneThatDoesNotAnswerHoldsUpNoScrape(t *testing.T) {
	s := newScene(t)
	s.fake.Deafen(true)
	all := s.series()
	if all[`sluice_dataplane_unanswered_total{dataplane="default"}`] == "0" || all["sluice_revision"] != "0" {
		t.Errorf("%v", all)
	}
}

func TestChangesOfANorthboundAreCountedWithoutItsHelp(t *testing.T) {
	s := newScene(t)
	s.desired.Attach(t.Context(), reconciletest.Willing{})
	s.apply(object.Put(&object.Object{Kind: "Port", Name: "access", Spec: &api.Port{Device: "net_null0"}}))
	bad := object.Put(&object.Object{Kind: "Port", Name: "bad", Spec: &api.Port{}})
	if _, err := s.environment.Intent.Apply(t.Context(), intent.Source{Owner: "test"}, []object.Change{bad}, intent.Options{}); err == nil {
		t.Fatal("a port without a device is accepted")
	}
	s.tells(map[string]string{`sluice_northbound_connected{northbound="metrics"}`: "1"})
	s.environment.Counters.Connected(false)
	s.environment.Counters.Failed()
	s.tells(map[string]string{
		`sluice_northbound_changes_total{northbound="metrics"}`:                      "1",
		`sluice_northbound_refused_total{northbound="metrics"}`:                      "1",
		`sluice_northbound_errors_total{northbound="metrics"}`:                       "1",
		`sluice_northbound_connected{northbound="metrics"}`:                          "0",
		`sluice_northbound_received_total{northbound="metrics"}`:                     "2",
		`sluice_operations_total{action="create",dataplane="default",result="done"}`: "1",
		`sluice_apply_delay_seconds_count{dataplane="default"}`:                      "1",
		`sluice_apply_delay_seconds_bucket{dataplane="default",le="+Inf"}`:           "1",
		`sluice_objects{dataplane="default",kind="Port",state="applied"}`:            "1",
		`sluice_revision`:              "1",
		`sluice_unconfirmed_revisions`: "0",
		`sluice_overdue_revisions`:     "0",
		`sluice_not_undone_objects`:    "0",
	})
	s.applyWith(intent.Options{ConfirmWithin: time.Hour}, object.Remove(object.Key{Kind: "Port", Name: "access"}))
	s.tells(map[string]string{`sluice_unconfirmed_revisions`: "1", `sluice_overdue_revisions`: "0"})
}

func TestEachDataPlaneHasMetricsOfItsOwn(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	desired, err := intent.New(intent.Config{Registry: registry, Dataplanes: []intent.Dataplane{{Name: "bonn"}, {Name: "ulm"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { desired.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	counters := &northbound.Counters{}
	s := &scene{t: t, desired: desired, environment: northbound.Environment{Name: "metrics", Registry: registry, Log: slog.New(slog.DiscardHandler),
		Counters: counters, Intent: desired, Agent: northbound.Agent{Northbounds: map[string]*northbound.Counters{"metrics": counters}}}}
	s.handler = handler(s.environment, nil)
	if err := desired.AttachTo(t.Context(), "bonn", reconciletest.Willing{}); err != nil {
		t.Fatal(err)
	}
	acl := func(name string, labels map[string]string) object.Change {
		return object.Put(&object.Object{Kind: "Acl", Name: name, Labels: labels, Spec: &api.Acl{}})
	}
	s.apply(acl("both", nil), acl("north", map[string]string{"dataplane": "bonn"}), acl("south", map[string]string{"dataplane": "ulm"}),
		acl("souther", map[string]string{"dataplane": "ulm"}))
	s.until(func() bool { return s.series()[`sluice_objects{dataplane="bonn",kind="Acl",state="applied"}`] == "2" })
	s.tells(map[string]string{
		`sluice_objects{dataplane="bonn",kind="Acl",state="pending"}`:             "0",
		`sluice_objects{dataplane="ulm",kind="Acl",state="applied"}`:              "0",
		`sluice_objects{dataplane="ulm",kind="Acl",state="pending"}`:              "3",
		`sluice_operations_total{action="create",dataplane="bonn",result="done"}`: "2",
		`sluice_operations_total{action="create",dataplane="ulm",result="done"}`:  "0",
		`sluice_apply_delay_seconds_count{dataplane="bonn"}`:                      "2",
		`sluice_apply_delay_seconds_count{dataplane="ulm"}`:                       "0",
		`sluice_dataplane_in_sync{dataplane="bonn"}`:                              "1",
		`sluice_dataplane_in_sync{dataplane="ulm"}`:                               "0",
	})
	if code, text := s.get("/readyz"); code != http.StatusServiceUnavailable || text != "data plane ulm: its observed state is being read\n" {
		t.Errorf("%d: %s", code, text)
	}
}

func TestTheAgentIsReadyWhenItHasListedItsDataPlane(t *testing.T) {
	s := newScene(t)
	if code, text := s.get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(text, "being read") {
		t.Errorf("before it was read: %d: %s", code, text)
	}
	s.desired.Attach(t.Context(), reconciletest.Willing{})
	s.until(func() bool { code, _ := s.get("/readyz"); return code == http.StatusOK })
	s.fake.Kill()
	s.until(func() bool {
		code, text := s.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.HasPrefix(text, "data plane default: not connected: ")
	})
	if code, _ := s.get("/healthz"); code != http.StatusOK {
		t.Errorf("without a data plane the agent lives all the same: %d", code)
	}
	s.tells(map[string]string{`sluice_dataplane_connected{dataplane="default"}`: "0"})
}

func at(listen string) *Section { return &Section{access.Section{Listen: listen}} }

func TestTheServerEndsWithItsContext(t *testing.T) {
	s := newScene(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- at("127.0.0.1:0").Open().Run(ctx, s.environment) }()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := at("192.0.2.1:1").Open().Run(t.Context(), s.environment); err == nil {
		t.Error("it serves at an address that is not ours")
	}
}

func TestASectionHasAnAddressAndReaders(t *testing.T) {
	for listen, good := range map[string]bool{"127.0.0.1:9464": true, ":9464": true, "[::1]:9464": true, "": false, "9464": false, "localhost": false} {
		if err := at(listen).Check(); (err == nil) != good {
			t.Errorf("%q: %v", listen, err)
		}
	}
	pair := access.TLS{Certificate: "c", Key: "k"}
	for problem, s := range map[string]access.Section{
		"tls: certificate and key": {Listen: ":1", TLS: access.TLS{Key: "k"}},
		"tls: missing":             {Listen: ":1", Tokens: "t"},
		"roles: roles of":          {Listen: ":1", TLS: pair, Tokens: "t", Roles: map[string]string{"a": "read"}},
	} {
		if err := (&Section{s}).Check(); err == nil || !strings.HasPrefix(err.Error(), problem) {
			t.Errorf("%q: %v", problem, err)
		}
	}
	for _, s := range []access.Section{{Listen: ":1", TLS: pair}, {Listen: ":1", TLS: pair, Tokens: "t"}, {Listen: "127.0.0.1:1", Tokens: "t"}} {
		if err := (&Section{s}).Check(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestMetricsNeedATokenAndLivenessNeedsNone(t *testing.T) {
	s := newScene(t)
	token, line, err := access.NewToken("prometheus", access.Read)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	guard, err := access.Section{Listen: "127.0.0.1:0", Tokens: file}.Open("metrics", s.environment.Log)
	if err != nil {
		t.Fatal(err)
	}
	h := handler(s.environment, guard)
	for _, test := range []struct {
		path, authorization string
		want                int
	}{
		{"/metrics", "", http.StatusUnauthorized}, {"/metrics", "Bearer " + token + "x", http.StatusUnauthorized},
		{"/metrics", "Bearer " + token, http.StatusOK}, {"/healthz", "", http.StatusOK}, {"/readyz", "", http.StatusServiceUnavailable},
	} {
		request, answer := httptest.NewRequest(http.MethodGet, test.path, nil), httptest.NewRecorder()
		if test.authorization != "" {
			request.Header.Set("Authorization", test.authorization)
		}
		h.ServeHTTP(answer, request)
		if answer.Code != test.want || (answer.Code == http.StatusUnauthorized) != (answer.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%s %q: %d %v", test.path, test.authorization, answer.Code, answer.Header())
		}
	}
	if n := s.environment.Counters.Read(); n.Received != 3 || n.Failed != 2 {
		t.Errorf("%+v", n)
	}
}
