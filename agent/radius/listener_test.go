// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// notReady is what operators see of an object of the test.
func (a *agent) notReady(kind, name string) intent.NotReady {
	a.t.Helper()
	registry, err := concepts.NewRegistry()
	if err != nil {
		a.t.Fatal(err)
	}
	stored, err := registry.NewStored(object.Key{Kind: kind, Name: name}, nil, nil, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.NotReady("", stored)
}

// disconnected reports whether a Disconnect-Request with this secret has an answer from the address that it is sent to. The wait is for an answer that
// must not come.
func disconnected(t *testing.T, address string, port int, secret, session string, wait time.Duration) bool {
	t.Helper()
	var all attributes
	all.text(typeAcctSessionID, session)
	all.number(typeEventTimestamp, uint32(time.Now().Unix()))
	request := append(newPacket(DisconnectRequest, 7, authenticator{}), all...).withLength()
	sum := request.digest(authenticator{}, []byte(secret))
	copy(request[4:], sum[:])
	conn, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}}).Dial("udp", net.JoinHostPort(address, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(request); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, maxLength)
	n, err := conn.Read(answer)
	return err == nil && packet(answer[:n]).code() == DisconnectACK
}

func clientOf(secret string) []*api.RadiusClient {
	return []*api.RadiusClient{{Addresses: "127.0.0.1/32", Secret: secret}}
}

func TestPoliciesWithAndWithoutAnAddressAndADeviceReceiveBesideEachOther(t *testing.T) {
	choices := []*api.RadiusChoice{{Server: "home"}}
	for name, own := range map[string]*api.DynamicAuthorization{"address": {Address: "127.0.0.1"}, "device": {Device: "lo"}, "both": {Address: "127.0.0.1", Device: "lo"}, "IPv4": {Address: "0.0.0.0"}} {
		t.Run(name, func(t *testing.T) {
			port := uint32(freePort(t))
			own.Port, own.Clients = port, clientOf("ofHome")
			a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "192.0.2.10", Secret: "testing123"}, &api.RadiusPolicy{Authentication: choices}, &manager{count: 1})
			a.set("RadiusPolicy", "biz", &api.RadiusPolicy{Authentication: choices, Profiles: []string{"biz"}, DynamicAuthorization: &api.DynamicAuthorization{Port: port, Clients: clientOf("ofBiz")}})
			a.set("RadiusPolicy", "home", &api.RadiusPolicy{Authentication: choices, DynamicAuthorization: own})
			for _, policy := range []string{"home", "biz"} {
				if why := a.notReady("RadiusPolicy", policy); why.Reason != "" {
					t.Error(policy, why)
				}
			}
			for i, c := range []struct{ address, secret string }{{"127.0.0.1", "ofHome"}, {"127.0.0.1", "ofBiz"}, {"127.0.0.2", "ofBiz"}} {
				if !disconnected(t, c.address, int(port), c.secret, fmt.Sprint("s-", i), 15*time.Second) {
					t.Error(c, "no answer")
				}
			}
			if own.Address == "127.0.0.1" && disconnected(t, "127.0.0.2", int(port), "ofHome", "s-4", 100*time.Millisecond) {
				t.Error("a policy has requests of another address")
			}
			// Another program cannot take the port over.
			config := listenAt{netip.MustParseAddrPort(fmt.Sprintf("127.0.0.1:%d", port)), ""}
			if conn, err := bindShared(config, true); err == nil {
				conn.Close()
				t.Error("the port is open to others")
			}
		})
	}
}

func TestAPolicyWhoseSocketForRequestsCannotBeBoundIsNotReady(t *testing.T) {
	choices := []*api.RadiusChoice{{Server: "home"}}
	of := func(address, device string) *api.RadiusPolicy {
		return &api.RadiusPolicy{Authentication: choices, DynamicAuthorization: &api.DynamicAuthorization{Address: address, Port: uint32(freePort(t)), Device: device}}
	}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "192.0.2.10", Secret: "testing123"}, of("192.0.2.99", ""), nil)
	for _, c := range []struct {
		policy *api.RadiusPolicy
		words  []string
	}{
		{of("192.0.2.99", ""), []string{"dynamicAuthorization.address 192.0.2.99", "cannot assign requested address"}},
		{of("", "nowhere"), []string{"dynamicAuthorization.device nowhere", "no such device"}},
		{of("127.0.0.1", "lo"), nil},
	} {
		a.set("RadiusPolicy", "home", c.policy)
		why := a.notReady("RadiusPolicy", "home")
		if c.words == nil && why.Reason != "" || c.words != nil && why.Reason != "NotListening" {
			t.Error(why)
		}
		for _, word := range c.words {
			if !strings.Contains(why.Message, word) {
				t.Errorf("%q has no %q", why.Message, word)
			}
		}
	}
	port := freePort(t)
	taken, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy := of("127.0.0.1", "")
	busy.DynamicAuthorization.Port = uint32(port)
	a.set("RadiusPolicy", "home", busy)
	if why := a.notReady("RadiusPolicy", "home"); !strings.Contains(why.Message, fmt.Sprintf("dynamicAuthorization.port %d: address already in use", port)) {
		t.Error(why)
	}
	taken.Close()
	until(t, "the port is free", func() bool { return a.notReady("RadiusPolicy", "home").Reason == "" })
	a.set("RadiusPolicy", "home", (*api.RadiusPolicy)(nil))
}

func TestAServerOfManyPoliciesIsOneClientOfEachAndAForgerOfNone(t *testing.T) {
	choices := []*api.RadiusChoice{{Server: "home"}}
	policy := func() *api.RadiusPolicy {
		return &api.RadiusPolicy{Authentication: choices, Accounting: choices, NasIdentifier: "nas", DynamicAuthorization: &api.DynamicAuthorization{Address: "127.0.0.1", Port: 3799}}
	}
	a := startAgent(t, t.TempDir(), &api.RadiusServer{Address: "192.0.2.20", Secret: secret}, policy(), nil)
	const many = 50
	for i := range many - 1 {
		p := policy()
		p.Profiles = []string{fmt.Sprint("p-", i)}
		a.set("RadiusPolicy", fmt.Sprint("p-", i), p)
	}
	a.mu.Lock()
	clients := a.permittedAt(listenAt{netip.MustParseAddrPort("127.0.0.1:3799"), ""})
	a.mu.Unlock()
	if len(clients) != many {
		t.Error(len(clients), "clients")
	}
	request := demandOf(DisconnectRequest, true, session(time.Now()))
	if _, by, drop := authenticate(clients, client1.Addr(), request); len(by) != many || drop != "" {
		t.Error(len(by), drop)
	}
	request[5] ^= 1
	if _, by, drop := authenticate(clients, client1.Addr(), request); len(by) != 0 || drop != errAuthenticator.Error() {
		t.Error(len(by), drop)
	}
}
