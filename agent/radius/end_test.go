// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

// A server that answers a record while the agent ends does not get it again from the next agent.
func TestARecordWhoseAnswerComesWhileTheAgentEndsIsSentOnce(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	server := &api.RadiusServer{Address: "127.0.0.1", AccountingPort: uint32(conn.LocalAddr().(*net.UDPAddr).Port), Secret: "testing123", Timeout: 10e9}
	policy := &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "nas"}
	directory, buffer := t.TempDir(), make([]byte, maxLength)
	read := func() (packet, *net.UDPAddr) {
		n, from, err := conn.ReadFromUDP(buffer)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parse(append([]byte(nil), buffer[:n]...))
		if err != nil {
			t.Fatal(err)
		}
		return p, from
	}
	acknowledge := func(p packet, to *net.UDPAddr) {
		if _, err := conn.WriteToUDP(reply(AccountingResponse, p, []byte("testing123"), nil), to); err != nil {
			t.Fatal(err)
		}
	}
	a := startAgent(t, directory, server, policy, nil)
	acknowledge(read()) // Accounting-On
	a.accountFor(subscriber.Start, "s-1")
	start, from := read()
	ended := make(chan struct{})
	go func() {
		a.stop()
		close(ended)
	}()
	until(t, "the agent ends", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.ended
	})
	acknowledge(start, from)
	<-ended
	a = startAgent(t, directory, server, policy, nil)
	a.accountFor(subscriber.Stop, "s-1")
	next, _ := read()
	for _, one := range next.attributes() {
		if one.vendor == 0 && one.kind == typeAcctStatusType && one.value[3] != statusStop {
			t.Error("the next record is of Acct-Status-Type", one.value[3])
		}
	}
}

func TestSecretsOfClientsAreNotInTheLogOfRecords(t *testing.T) {
	directory := t.TempDir()
	policy := &api.RadiusPolicy{Accounting: []*api.RadiusChoice{{Server: "home"}}, NasIdentifier: "nas",
		DynamicAuthorization: &api.DynamicAuthorization{Address: "127.0.0.1", Port: uint32(freePort(t)), Clients: clientOf("clientPass")}}
	server := &api.RadiusServer{Address: "127.0.0.1", AccountingPort: uint32(freePort(t)), Secret: "testing123", Timeout: 10e6, Transmissions: 1}
	startAgent(t, directory, server, policy, nil).stop()
	files, err := filepath.Glob(filepath.Join(directory, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), "clientPass") || strings.Contains(string(b), "testing123") {
			t.Error(file, "has a secret", err)
		}
	}
	// Records of an earlier version are replaced.
	log, err := durable.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	records, err := log.Table("radius")
	if err != nil {
		t.Fatal(err)
	}
	packed, err := proto.Marshal(policy)
	if err != nil {
		t.Fatal(err)
	}
	if err := records.Put(durable.Record{Key: policyPrefix + "home", Value: packed}).Wait(); err != nil {
		t.Fatal(err)
	}
	log.Close()
	a := startAgent(t, directory, server, policy, nil)
	kept, err := a.log.Table("radius")
	if err != nil {
		t.Fatal(err)
	}
	if value := string(kept.Get(policyPrefix + "home")); value == "" || strings.Contains(value, "clientPass") {
		t.Errorf("%q", value)
	}
}

func TestADeadServerSaysWhatTheAgentKnowsOfIt(t *testing.T) {
	choices := []*api.RadiusChoice{{Server: "home"}}
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	unsigned, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer unsigned.Close()
	go func() {
		b := make([]byte, maxLength)
		for {
			n, from, err := unsigned.ReadFromUDP(b)
			if err != nil {
				return
			}
			p := packet(b[:n])
			answer := newPacket(AccessAccept, p.identifier(), p.authenticator()).withLength()
			sum := answer.digest(p.authenticator(), []byte("testing123"))
			copy(answer[4:], sum[:])
			_, _ = unsigned.WriteToUDP(answer, from)
		}
	}()
	port := func(conn *net.UDPConn) uint32 { return uint32(conn.LocalAddr().(*net.UDPAddr).Port) }
	for _, c := range []struct {
		server *api.RadiusServer
		words  string
	}{
		{&api.RadiusServer{AuthenticationPort: port(silent)}, "no answer from 127.0.0.1:"},
		{&api.RadiusServer{AuthenticationPort: port(unsigned)}, "authentication requests are dropped: no Message-Authenticator"},
		{&api.RadiusServer{AuthenticationPort: port(silent), SourceAddress: "192.0.2.99"}, "sourceAddress 192.0.2.99: cannot assign requested address"},
		{&api.RadiusServer{AuthenticationPort: port(silent), Device: "nowhere"}, "device nowhere: no such device"},
	} {
		c.server.Address, c.server.Secret, c.server.Timeout, c.server.Transmissions = "127.0.0.1", "testing123", uint64(100*time.Millisecond), 1
		a := startAgent(t, t.TempDir(), c.server, &api.RadiusPolicy{Authentication: choices}, nil)
		a.authenticate(subscriber.Credentials{Username: "alice", Password: []byte("wonderland")}, 1)
		until(t, c.words, func() bool { return strings.Contains(a.notReady("RadiusServer", "home").Message, c.words) })
		// A deleted server has no series.
		a.Follow(service.Change{Key: object.Key{Kind: "RadiusServer", Name: "home"}})
		families, err := a.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				for _, l := range m.Label {
					if l.GetName() == "server" {
						t.Error(f.GetName(), "of a deleted server")
					}
				}
			}
		}
		a.stop()
	}
}
