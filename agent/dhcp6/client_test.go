// SPDX-License-Identifier: Apache-2.0

package dhcp6

import (
	"bytes"
	"net/netip"
	"testing"
	"time"
)

var (
	clientDUID = []byte{0, 3, 0, 1, 2, 0, 0, 0, 0, 7}
	serverDUID = []byte{0, 3, 0, 1, 2, 0, 0, 0, 0, 9}
	home       = netip.MustParsePrefix("2001:db8:7:100::/56")
)

func TestAServerReadsTheRequestOfAClient(t *testing.T) {
	for _, kind := range []uint8{Solicit, Request, Renew, Rebind} {
		server := map[uint8][]byte{Request: serverDUID, Renew: serverDUID}[kind]
		m, err := Parse(AskPrefix(kind, [3]byte{1, 2, 3}, time.Second, clientDUID, server, 5, home))
		if err != nil || m.Type != kind || m.Transaction != [3]byte{1, 2, 3} || !bytes.Equal(m.ClientID, clientDUID) || !bytes.Equal(m.ServerID, server) || m.RapidCommit != (kind == Solicit) ||
			len(m.Associations) != 1 || m.Associations[0].ID != 5 || !m.Associations[0].Delegated || m.Associations[0].Prefixes[0] != home {
			t.Errorf("%d: %+v %v", kind, m, err)
		}
	}
}

// delegated is a server's answer.
func delegated(t *testing.T, kind uint8, l Lease) []byte {
	t.Helper()
	var server []byte
	if kind == Request || kind == Renew {
		server = serverDUID
	}
	m, err := Parse(AskPrefix(kind, [3]byte{1, 2, 3}, 0, clientDUID, server, 5, netip.PrefixFrom(netip.IPv6Unspecified(), 56)))
	if err != nil {
		t.Fatal(err)
	}
	answer, ignored := Answer(m, serverDUID, l)
	if answer == nil {
		t.Fatal(ignored)
	}
	return answer
}

func TestAClientReadsWhatAServerDelegates(t *testing.T) {
	d, err := ParseDelegation(delegated(t, Request, Lease{Delegated: home, Preferred: time.Hour, Valid: time.Hour}), 5)
	if err != nil || d.Type != Reply || d.Prefix != home || !bytes.Equal(d.ServerID, serverDUID) || d.Valid != time.Hour || d.Renew <= 0 || d.Renew >= d.Rebind || d.Rebind > d.Valid {
		t.Errorf("%+v %v", d, err)
	}
	if d, err = ParseDelegation(delegated(t, Request, Lease{}), 5); err != nil || d.Prefix.IsValid() {
		t.Errorf("%+v %v", d, err)
	}
	// Of another association.
	if d, err = ParseDelegation(delegated(t, Request, Lease{Delegated: home, Preferred: time.Hour, Valid: time.Hour}), 6); err != nil || d.Prefix.IsValid() {
		t.Errorf("%+v %v", d, err)
	}
}

func TestNoTruncationOfADelegationIsRead(t *testing.T) {
	whole := delegated(t, Request, Lease{Delegated: home, Preferred: time.Hour, Valid: time.Hour})
	for length := range whole {
		if d, err := ParseDelegation(whole[:length], 5); err == nil && d.Prefix.IsValid() && length < len(whole)-40 {
			t.Errorf("%d octets: %+v", length, d)
		}
	}
	for bit := range 8 * len(whole) {
		changed := bytes.Clone(whole)
		changed[bit/8] ^= 1 << (bit % 8)
		_, _ = ParseDelegation(changed, 5)
	}
}

func FuzzParseDelegation(f *testing.F) {
	f.Add([]byte{Reply, 1, 2, 3, 0, 25, 0, 12, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0}, uint32(5))
	f.Fuzz(func(t *testing.T, b []byte, iaid uint32) {
		d, err := ParseDelegation(b, iaid)
		if err == nil && d.Prefix.IsValid() && d.Prefix != d.Prefix.Masked() {
			t.Errorf("%+v", d)
		}
	})
}
