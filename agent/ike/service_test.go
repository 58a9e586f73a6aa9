// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/durable/durabletest"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

func TestAFrameIsReadAndAPacketWritten(t *testing.T) {
	for _, ends := range [][2]string{{"192.0.2.1:500", "192.0.2.2:4500"}, {"[2001:db8::1]:500", "[2001:db8::2]:500"}} {
		from, to := netip.MustParseAddrPort(ends[0]), netip.MustParseAddrPort(ends[1])
		packet := ipPacket(from, to, []byte("payload"))
		for _, tags := range [][]byte{nil, {0x81, 0, 0, 7}, {0x88, 0xa8, 0, 7, 0x81, 0, 0, 8}} {
			kind := []byte{8, 0}
			if from.Addr().Is6() {
				kind = []byte{0x86, 0xdd}
			}
			frame := slices.Concat(make([]byte, 12), tags, kind, packet)
			source, destination, payload, ok := parseFrame(append(slices.Clone(frame), 0, 0, 0))
			if !ok || source != from || destination != to || string(payload) != "payload" {
				t.Errorf("%v %x: %v %v %q", ends, tags, source, destination, payload)
			}
			for n := range frame {
				if _, _, _, ok := parseFrame(frame[:n]); ok {
					t.Errorf("%v: %d of %d bytes are a datagram", ends, n, len(frame))
				}
			}
			for at := 14 + len(tags) + 2; at < len(frame); at++ {
				bad := slices.Clone(frame)
				bad[at] ^= 1
				// The header of IPv4 has been checked before.
				if _, _, payload, ok := parseFrame(bad); ok && string(payload) != "payload" {
					t.Errorf("%v: a flipped bit at %d is taken", ends, at)
				}
			}
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(slices.Concat(make([]byte, 12), []byte{8, 0}, ipPacket(netip.MustParseAddrPort("192.0.2.1:500"), netip.MustParseAddrPort("192.0.2.2:500"), []byte("x"))))
	f.Add(slices.Concat(make([]byte, 12), []byte{0x86, 0xdd}, ipPacket(netip.MustParseAddrPort("[2001:db8::1]:500"), netip.MustParseAddrPort("[2001:db8::2]:500"), nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseFrame(b)
		espOf(b)
	})
}

// Every child becomes objects that the data plane accepts, and that hide their keys.
func TestAssociationsAreAcceptable(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	for _, esp := range []string{"aes256gcm16", "aes128gcm8", "aes128gcm12", "aes192-sha256", "aes128ctr-sha1", "chacha20poly1305", "null-sha512", "sm4-sm3", "sm4gcm16", "sm4ccm16", "aes128gmac", "aes128-sha384-esn"} {
		p := newPair(t)
		p.configure(func(a, b *Connection) {
			for _, c := range []*Connection{a, b} {
				c.Children[0].Proposals = proposals(t, message.ProtocolESP, esp)
				c.Children[0].Serves = Serves{Tunnel: "tunnel"}
			}
		})
		p.initiate()
		p.check(1)
		for _, c := range p.a.in {
			for _, outbound := range []bool{false, true} {
				o := association(c, outbound, false)
				if problems := registry.Check(o); len(problems) > 0 {
					t.Errorf("%s: %v", esp, problems)
				}
				if spi, ok := spiOf(o.Name); !ok || spi != c.SPIIn {
					t.Errorf("%s: the SPI %08x of %s", esp, spi, o.Name)
				}
				if spec, _ := o.Spec.(*api.SecurityAssociation); spec.GetPeer() != associationName(c, !outbound) || len(spec.GetSelectors()) != 1 {
					t.Errorf("%s: %v", esp, spec)
				}
			}
		}
	}
}

// Traffic of a policy opens the child of this policy, not that of another policy with the same selectors.
func TestTrafficOpensTheChildOfItsPolicy(t *testing.T) {
	p := newPair(t)
	p.configure(func(a, b *Connection) {
		for _, c := range []*Connection{a, b} {
			one, two := *c.Children[0], *c.Children[0]
			one.Name, one.Serves, one.StartAction = "one", Serves{Policy: "one"}, Hold
			two.Name, two.Serves, two.StartAction = "two", Serves{Policy: "two"}, Hold
			c.Children = []*Child{&one, &two}
		}
	})
	s := &serving{machine: p.a.m}
	p.do(p.a, s.acquire("", &api.IpsecAcquire{Policy: "three", Source: "10.1.0.1", Destination: "10.2.0.1"}, p.now))
	p.run()
	if len(p.seen)+len(p.a.in) != 0 {
		t.Error("traffic of another policy opens a child")
	}
	p.do(p.a, s.acquire("", &api.IpsecAcquire{Policy: "two", Source: "10.1.0.1", Destination: "10.2.0.1"}, p.now))
	p.run()
	p.check(1)
	for _, c := range p.a.in {
		if c.Conf.Name != "two" {
			t.Errorf("the child %s is up", c.Conf.Name)
		}
	}
}

// onWarning calls a function for each warning.
type onWarning struct {
	slog.Handler
	call func()
}

func (h onWarning) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		h.call()
	}
	return nil
}

// The service reports its SAs as complete when it has written them: a data plane deletes SAs that are missing, and loses their sequence
// numbers.
func TestRestoredSAsAreWrittenBeforeTheyAreComplete(t *testing.T) {
	log, err := durable.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	records, err := log.Table("ike")
	if err != nil {
		t.Fatal(err)
	}
	// An IKE SA that cannot be restored: a warning is among the actions.
	records.Put(durable.Record{Key: saRecord + "0000000000000001", Value: []byte("{}")}, durable.Record{Key: windowRecord + "0000000000000001", Value: []byte("{}")})
	warnings := 0
	var s *serving
	h := onWarning{slog.NewTextHandler(t.Output(), nil), func() {
		warnings++
		select {
		case <-s.first:
			t.Error("the SAs are complete before the actions of the restored IKE SAs are carried out")
		default:
		}
	}}
	made, err := newServing(service.Environment{Log: slog.New(h), Records: records, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	s, _ = made.(*serving)
	s.Synced()
	if warnings != 1 {
		t.Errorf("%d warnings", warnings)
	}
	<-s.first
	s.Synced() // again
}

// While a list of revoked certificates is being written, the connection goes on with the list of before.
func TestAFileThatCannotBeReadEndsNoIKESA(t *testing.T) {
	ca, directory := newIssuer(t, "ecdsa", "CA", nil), t.TempDir()
	certificate, key := ca.issue("ecdsa", "here.example")
	path := func(name string) string { return filepath.Join(directory, name) }
	write := func(name, content string) {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := ca.revoke(time.Now().Add(time.Hour))
	for name, content := range map[string]string{"ca.pem": pemOf(ca.certificate), "ca.crl": list, "here.pem": pemOf(certificate), "here.key": pemOfKey(t, key)} {
		write(name, content)
	}
	made, err := newServing(service.Environment{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := made.(*serving)
	s.synced = true
	s.credentials["here"] = &api.IkeCredential{CertificateFile: path("here.pem"), PrivateKeyFile: path("here.key")}
	s.authorities["ca"] = &api.IkeAuthority{CertificateFile: path("ca.pem"), RevocationListFiles: []string{path("ca.crl")}}
	s.specs["office"] = &object.Object{Kind: "IkeConnection", Name: "office", Spec: &api.IkeConnection{LocalAddress: "192.0.2.1", RemoteAddress: "192.0.2.2", Credential: "here",
		Authorities: []string{"ca"}, LocalAuthentication: api.IkeAuthentication_CERTIFICATE, RemoteAuthentication: api.IkeAuthentication_CERTIFICATE,
		Children: []*api.IkeChild{{Name: "net", Tunnel: "office", Start: api.IkeAction_AT_ONCE}}}}
	now := time.Now()
	s.refresh(now, everyConnection)
	s.machine.Tick(now)
	if len(s.machine.of("office")) != 1 {
		t.Fatal("the connection does not begin")
	}
	for name, before := range map[string]string{"ca.crl": list, "here.key": pemOfKey(t, key), "ca.pem": pemOf(ca.certificate)} {
		write(name, before[:len(before)/2])
		s.refresh(now, everyConnection)
		if p := s.problems["office"]; p.Reason != "NotConfigured" || !strings.Contains(p.Message, "stays in force") {
			t.Errorf("half of %s: %+v", name, p)
		}
		if len(s.machine.of("office")) != 1 || s.machine.connections["office"] == nil {
			t.Errorf("half of %s ends the IKE SA", name)
		}
		write(name, before)
		s.refresh(now, everyConnection)
		if p, is := s.problems["office"]; is && p.Reason == "NotConfigured" {
			t.Errorf("all of %s: %+v", name, p)
		}
	}
	// Without a configuration of before there is none.
	delete(s.machine.connections, "office")
	write("ca.crl", list[:10])
	s.refresh(now, everyConnection)
	if p := s.problems["office"]; p.Reason != "NotConfigured" || strings.Contains(p.Message, "stays in force") || !s.machine.connections["office"].Frozen {
		t.Errorf("at first: %+v", p)
	}
}

// An agent that starts while a file cannot be read takes the IKE SAs over, and opens and accepts no others.
func TestIKESAsOfAConnectionWithoutItsFilesAreTakenOver(t *testing.T) {
	spec := &api.IkeConnection{LocalAddress: "192.0.2.1", RemoteAddress: "192.0.2.2", LocalIdentity: "a.example", RemoteIdentity: "b.example", LocalAuthentication: api.IkeAuthentication_CERTIFICATE,
		RemoteAuthentication: api.IkeAuthentication_CERTIFICATE, Children: []*api.IkeChild{{Name: "net", Tunnel: "office", Start: api.IkeAction_AT_ONCE, Local: []string{"10.1.0.0/16"}, Remote: []string{"10.2.0.0/16"}}}}
	frozen, err := frozenOf("peer", "", spec)
	if err != nil {
		t.Fatal(err)
	}
	frozen.VRF = ""
	p := newPair(t)
	p.configure()
	p.initiate()
	before := p.a.only(t).children[0].SPIIn
	p.restart(p.a, func(m *Machine) { m.SetConnection("peer", frozen, p.now) })
	p.run()
	p.check(1)
	if now := p.a.only(t).children[0]; now.SPIIn != before || now.Conf.Serves.Tunnel != "office" {
		t.Errorf("the child %08x was %08x", now.SPIIn, before)
	}
	for _, child := range []string{"*", ""} {
		for _, e := range []*end{p.a, p.b} {
			x, _ := e.m.Rekey("peer", child, p.now)
			p.do(e, x)
			p.run()
			p.check(1)
		}
	}
	if _, err := p.a.m.Initiate("peer", "", p.now); err == nil {
		t.Error("the connection is opened")
	}
	// All of the file is there.
	again := p.connection(p.a, p.b, ikeSuite, espSuite)
	p.do(p.a, p.a.m.SetConnection("peer", again, p.now))
	if p.a.only(t).conn != again {
		t.Error("the IKE SA has the connection without credentials")
	}
	p.check(1)
	p.do(p.a, p.a.m.SetConnection("peer", frozen, p.now))
	x, _ := p.b.m.Terminate("peer", "", p.now)
	p.do(p.b, x)
	p.run()
	y, _ := p.b.m.Initiate("peer", "", p.now)
	p.do(p.b, y)
	p.run()
	if len(p.a.m.sas) != 0 || p.a.counts["drop no-connection"] == 0 {
		t.Errorf("%d IKE SAs, %v", len(p.a.m.sas), p.a.counts)
	}
}

// An agent that is killed between two records of one step would have the children twice, or not at all.
func TestAPacketWaitsForAllRecordsOfItsStep(t *testing.T) {
	log, err := durable.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	records, err := log.Table("ike")
	if err != nil {
		t.Fatal(err)
	}
	made, err := newServing(service.Environment{Log: slog.New(slog.DiscardHandler), Records: records, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := made.(*serving)
	address := netip.MustParseAddrPort("192.0.2.1:500")
	send := Send{Datagram: Datagram{VRF: "default", Local: address, Remote: address, Data: []byte("packet")}}
	s.carryOut([]Action{Keep{"sa/1", []byte("a")}, Keep{"sa/2", []byte("a")}, send, Keep{"sa/1", []byte("b")}, Keep{Key: "sa/2"}})
	if len(s.outbox) != 1 || len(s.outbox[0].records) != 1 || len(s.records) != 0 {
		t.Fatalf("%d packets, %d records that no packet waits for", len(s.outbox), len(s.records))
	}
	if all := records.All(); len(all) != 1 || all[0].Key != "sa/1" || string(all[0].Value) != "b" {
		t.Errorf("records %v", all)
	}
	// A record that is refused does not take the others with it.
	s.outbox = nil
	s.carryOut([]Action{Keep{"sa/3", []byte("a")}, Keep{"sa/4", make([]byte, durable.ValueLimit+1)}})
	if string(records.Get("sa/3")) != "a" {
		t.Error("a record is lost because another one is too long")
	}
}

// A packet whose record is not on the disk is not sent, neither the rest of its message nor later: an agent that is killed then would use its message ID
// again.
func TestNothingIsSentWhileTheDiskRefusesRecords(t *testing.T) {
	folder, grow := durabletest.SmallDisk(t)
	log, err := durable.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	records, err := log.Table("ike")
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	made, err := newServing(service.Environment{Log: slog.New(slog.DiscardHandler), Records: records, Metrics: metrics, Packets: &service.Sender{}})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := made.(*serving)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { s.post(ctx) })
	defer group.Wait()
	defer cancel()
	count := func(reason string) int {
		families, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if family.GetName() == "sluice_ike_drops_total" && m.GetLabel()[0].GetValue() == reason {
					return int(m.GetCounter().GetValue())
				}
			}
		}
		return 0
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not in 20 seconds: %s; %d are not kept, %d are sent", what, count("not-kept"), count("not-sent"))
			}
		}
	}
	step := func(actions ...Action) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.carryOut(actions)
	}
	address := netip.MustParseAddrPort("192.0.2.1:500")
	send := Send{Datagram: Datagram{VRF: "default", Local: address, Remote: address, Data: []byte("packet")}}
	step(Keep{"window/1", []byte("a")}, send)
	// There is no data plane.
	until("the packet of a record goes out", func() bool { return count("not-sent") == 1 })
	step(Keep{"window/1", make([]byte, 100<<10)}, send, send)
	until("both fragments are held back", func() bool { return count("not-kept") == 2 })
	step(send)
	until("it is not sent again", func() bool { return count("not-kept") == 3 })
	grow()
	until("packets go out", func() bool { step(send); return count("not-sent") > 1 })
	if again, err := durable.Open(folder); err != nil {
		t.Error(err)
	} else if kept, err := again.Table("ike"); err != nil || len(kept.Get("window/1")) != 100<<10 {
		t.Error(err, len(kept.Get("window/1")))
	}
}
