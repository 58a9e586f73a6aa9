// SPDX-License-Identifier: Apache-2.0

package agf

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"sluice.dev/sluice/agent/dhcp"
	"sluice.dev/sluice/agent/dhcp6"
	"sluice.dev/sluice/agent/nas"
)

var homePrefix = netip.MustParsePrefix("2001:db8:77::/56")

// delegatingLine is a line with a PDU session of type IPv6 that has its link's prefix and asks for the home's.
func delegatingLine(t *testing.T) (*bed, *user) {
	t.Helper()
	b := &bed{t: t, now: time.Unix(1e9, 0)}
	b.Line = NewLine(settings(), b)
	u := &user{}
	d := demand(77)
	d.Type, d.Delegated = nas.PDUSessionIPv6, 56
	if _, err := b.Add(d, u); err != nil {
		t.Fatal(err)
	}
	b.register()
	b.giveSix(nas.PDUSessionIPv6)
	b.sessions[1].Advertised(advertisement("2001:db8:64:1::/64", nil))
	return b, u
}

// asked is the last DHCPv6 message of the line.
func (b *bed) asked() *dhcp6.Message {
	b.t.Helper()
	packet := b.uplinks[len(b.uplinks)-1]
	m, err := dhcp6.Parse(packet[header6+udpHeader:])
	if err != nil || packet[6] != protocolUDP {
		b.t.Fatalf("%x: %v", packet, err)
	}
	return m
}

// reply answers the last message as a server that gives a prefix; the zero Prefix: none.
func (b *bed) reply(p netip.Prefix) {
	b.t.Helper()
	message, ignored := dhcp6.Answer(b.asked(), []byte{0, 3, 0, 1, 9}, dhcp6.Lease{Delegated: p, Preferred: time.Hour, Valid: time.Hour})
	if message == nil {
		b.t.Fatal(ignored)
	}
	b.sessions[1].Advertised(dhcp.Datagram(netip.AddrPortFrom(netip.MustParseAddr("fe80::1"), serverPort), netip.AddrPortFrom(linkLocal(b.sessions[1].iid), clientPort), message))
}

func TestTheCoreDelegatesAPrefixForTheHome(t *testing.T) {
	b, u := delegatingLine(t)
	if m := b.asked(); m.Type != dhcp6.Solicit || m.Associations[0].Prefixes[0].Bits() != 56 || u.up != nil {
		t.Fatalf("%+v %+v", m, u.up)
	}
	// Of another transaction.
	b.sessions[1].delegated([]byte{dhcp6.Reply, 1, 2, 3})
	b.reply(homePrefix)
	if u.up == nil || u.up.Delegated != homePrefix || !u.up.Prefix.IsValid() {
		t.Fatalf("%+v", u.up)
	}
	// It is renewed, then asked for at any server, and given up.
	if passed := b.pass(); passed < 20*time.Minute || b.asked().Type != dhcp6.Renew {
		t.Fatal(passed, b.asked().Type)
	}
	b.reply(homePrefix)
	b.pass()
	for b.asked().Type == dhcp6.Renew {
		b.pass()
	}
	if b.asked().Type != dhcp6.Rebind || len(b.asked().ServerID) != 0 {
		t.Errorf("%+v", b.asked())
	}
	began := b.now
	for !u.ended && b.now.Sub(began) < 2*time.Hour {
		b.pass()
	}
	if !u.ended || b.now.Sub(began) > time.Hour {
		t.Error(b.now.Sub(began), u.err)
	}
}

func TestALineGoesOnWithoutAPrefixForTheHome(t *testing.T) {
	// No answer.
	b, u := delegatingLine(t)
	for range maxDelegationRequests - 1 {
		b.pass()
		if u.up != nil {
			t.Fatal("too early")
		}
	}
	if b.pass(); u.up == nil || u.up.Delegated.IsValid() {
		t.Errorf("%+v", u.up)
	}
	// The core has none, or one that overlaps with the link's, or one that is none.
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("2001:db8:64::/48"), netip.MustParsePrefix("2001:db8:64:1:8000::/80"), netip.MustParsePrefix("fe80::/56")} {
		b, u = delegatingLine(t)
		if b.reply(p); u.up == nil || u.up.Delegated.IsValid() {
			t.Errorf("%s: %+v", p, u.up)
		}
	}
}

func TestASessionEndsWhenTheCoreTakesItsPrefixAway(t *testing.T) {
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("2001:db8:78::/56")} {
		b, u := delegatingLine(t)
		b.reply(homePrefix)
		b.pass()
		if b.reply(p); !u.ended {
			t.Errorf("%s: it goes on", p)
		}
	}
}

func TestASessionThatIsSetUpAnewAsksForItsPrefixAgain(t *testing.T) {
	b, u := delegatingLine(t)
	b.reply(homePrefix)
	b.saySession(&nas.PDUSessionReleaseCommand{Session: nas.Session{PDUSessionID: 1}, FiveGSMCause: []byte{causeReactivation}})
	b.giveSix(nas.PDUSessionIPv6)
	if m := b.asked(); m.Type != dhcp6.Rebind || m.Associations[0].Prefixes[0] != homePrefix {
		t.Errorf("%+v", m)
	}
	if b.reply(homePrefix); u.ended {
		t.Error(u.err)
	}
}

func TestADelegatedPrefixOutlivesTheAgent(t *testing.T) {
	b, _ := delegatingLine(t)
	b.reply(homePrefix)
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
	if again.Line, err = restore(&back, settings(), again); err != nil {
		t.Fatal(err)
	}
	again.sessions[1].events = &user{}
	if got := again.sessions[1].result(); got.Delegated != homePrefix {
		t.Errorf("%+v", got)
	}
	c := &core{t: t, ran: 4}
	again.cores = append(again.cores, c)
	again.attach(c)
	again.Resumed()
	if again.pass(); again.asked().Type != dhcp6.Renew {
		t.Errorf("%+v", again.asked())
	}
}

func FuzzDelegated(f *testing.F) {
	f.Add([]byte{dhcp6.Reply, 0, 0, 0, 0, 25, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		b, _ := delegatingLine(t)
		if len(message) >= 4 {
			copy(message[1:], b.sessions[1].delegation.transaction[:])
		}
		b.sessions[1].delegated(message)
	})
}
