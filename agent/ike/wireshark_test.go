// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/ike/message"
)

// Wireshark as a second reader of the messages: tshark has the keys, decrypts each message and finds no fault in it.

// The names that tshark has for algorithms in its table of keys.
var sharkSuites = map[string][2]string{
	"aes256gcm16-prfsha256-x25519": {"AES-GCM-256 with 16 octet ICV [RFC5282]", "NONE [RFC4306]"},
	"aes256-sha256-ecp256":         {"AES-CBC-256 [RFC3602]", "HMAC_SHA2_256_128 [RFC4868]"},
	"aes128-sha384-modp2048":       {"AES-CBC-128 [RFC3602]", "HMAC_SHA2_384_192 [RFC4868]"},
	"aes128-sha512-ecp384":         {"AES-CBC-128 [RFC3602]", "HMAC_SHA2_512_256 [RFC4868]"},
}

// expertWarning is PI_WARN of Wireshark.
const expertWarning = 0x600000

// shark collects the keys of all IKE SAs of a pair.
type shark struct {
	*pair
	suite string
	keys  map[string]string
}

func newShark(t *testing.T, suite string) *shark {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: tools/setup.sh")
	}
	s := &shark{pair: newPair(t), suite: suite, keys: map[string]string{}}
	s.filter = func(*Datagram) bool {
		s.collect()
		return true
	}
	return s
}

// set configures the pair with the suite.
func (s *shark) set(change ...func(a, b *Connection)) {
	s.configure(append([]func(a, b *Connection){func(a, b *Connection) {
		a.Proposals, b.Proposals = proposals(s.t, message.ProtocolIKE, s.suite), proposals(s.t, message.ProtocolIKE, s.suite)
	}}, change...)...)
}

func (s *shark) collect() {
	for _, e := range []*end{s.a, s.b} {
		for _, sa := range e.m.sas {
			if sa.keys.Ei == nil {
				continue
			}
			h, names := sa.header(0, 0, false), sharkSuites[s.suite]
			s.keys[fmt.Sprintf("%016x,%016x", h.SPIi, h.SPIr)] = fmt.Sprintf("%x,%x,%q,%x,%x,%q", sa.keys.Ei, sa.keys.Er, names[0], sa.keys.Ai, sa.keys.Ar, names[1])
		}
	}
}

// operate has an end do what an operator asks for.
func (s *shark) operate(e *end, f func(connection, child string, now time.Time) ([]Action, int), child string) {
	s.t.Helper()
	actions, n := f("peer", child, s.now)
	if n == 0 {
		s.t.Fatalf("nothing of %q changes", child)
	}
	s.do(e, actions)
	s.run()
}

// read has tshark read what was sent. Each message must be decrypted, with the right integrity check value, and earn no warning. Among them must be
// the exchanges, payloads and notifications that the test expects.
func (s *shark) read(want ...any) {
	s.t.Helper()
	s.collect()
	dir := s.t.TempDir()
	file := []byte{0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 101, 0, 0, 0} // LINKTYPE_RAW
	for i, d := range s.seen {
		ip := ipPacket(d.Local, d.Remote, d.Data)
		for _, n := range []int{i, 0, len(ip), len(ip)} {
			file = binary.LittleEndian.AppendUint32(file, uint32(n))
		}
		file = append(file, ip...)
	}
	var table strings.Builder
	for spis, keys := range s.keys {
		fmt.Fprintf(&table, "%s,%s\n", spis, keys)
	}
	for path, content := range map[string][]byte{"packets.pcap": file, "wireshark/ikev2_decryption_table": []byte(table.String())} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	fields := []string{"isakmp.exchangetype", "isakmp.typepayload", "isakmp.notify.msgtype", "isakmp.enc.decrypted", "_ws.malformed", "_ws.expert.severity", "_ws.expert.message"}
	arguments := []string{"-n", "-r", filepath.Join(dir, "packets.pcap"), "-2", "-T", "fields"}
	for _, f := range fields {
		arguments = append(arguments, "-e", f)
	}
	c := exec.Command("tshark", arguments...)
	c.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir, "HOME="+dir)
	var problems bytes.Buffer
	c.Stderr = &problems
	out, err := c.Output()
	if err != nil {
		s.t.Fatalf("tshark: %v: %s", err, problems.String())
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != len(s.seen) {
		s.t.Fatalf("tshark reads %d of %d messages", len(lines), len(s.seen))
	}
	seen := map[any]bool{}
	for n, line := range lines {
		field := map[string][]string{}
		for i, value := range strings.Split(line, "\t") {
			if value != "" {
				field[fields[i]] = strings.Split(value, ",")
			}
		}
		number := func(name string) (all []int) {
			for _, text := range field[name] {
				v, err := strconv.ParseInt(text, 0, 32)
				if err != nil {
					s.t.Fatalf("message %d: %s is %q", n+1, name, text)
				}
				all = append(all, int(v))
			}
			return all
		}
		for _, v := range number("isakmp.exchangetype") {
			seen[message.Exchange(v)] = true
		}
		sealed := false
		for _, v := range number("isakmp.typepayload") {
			seen[message.PayloadType(v)] = true
			sealed = sealed || v == int(message.TypeEncrypted) || v == int(message.TypeFragment)
		}
		for _, v := range number("isakmp.notify.msgtype") {
			seen[message.NotifyType(v)] = true
		}
		if sealed && field["isakmp.enc.decrypted"] == nil {
			s.t.Errorf("tshark does not decrypt message %d: %q", n+1, line)
		}
		if len(field["isakmp.exchangetype"]) == 0 || field["_ws.malformed"] != nil || slices.ContainsFunc(number("_ws.expert.severity"), func(v int) bool { return v >= expertWarning }) {
			s.t.Errorf("tshark says of message %d: %q", n+1, line)
		}
	}
	for _, one := range want {
		if !seen[one] {
			s.t.Errorf("tshark sees no %v (%T)", one, one)
		}
	}
}

func TestWiresharkDecodesTheLifeOfAnIKESA(t *testing.T) {
	for suite := range sharkSuites {
		t.Run(suite, func(t *testing.T) {
			s := newShark(t, suite)
			s.b.m.CookieThreshold = 0
			s.set()
			s.initiate()
			s.pass(time.Minute) // DPD
			for _, child := range []string{"*", "", "*"} {
				for _, e := range []*end{s.a, s.b} {
					s.operate(e, e.m.Rekey, child)
				}
			}
			s.operate(s.a, s.a.m.Terminate, "net")
			s.initiate()
			s.check(1)
			s.operate(s.b, s.b.m.Terminate, "")
			s.read(message.IKESAInit, message.IKEAuth, message.CreateChildSA, message.Informational, message.TypeSA, message.TypeKE, message.TypeNonce, message.TypeIDi,
				message.TypeIDr, message.TypeAuth, message.TypeTSi, message.TypeTSr, message.TypeDelete, message.Cookie, message.RekeySA, message.InitialContact)
		})
	}
}

func TestWiresharkDecodesRefusals(t *testing.T) {
	const other = "aes256gcm16-prfsha256-ecp256"
	for name, c := range map[string]struct {
		change func(a, b *Connection)
		want   message.NotifyType
	}{
		"group": {func(a, b *Connection) {
			a.Proposals = proposals(t, message.ProtocolIKE, other, ikeSuite)
		}, message.InvalidKEPayload},
		"algorithms": {func(a, _ *Connection) { a.Proposals = proposals(t, message.ProtocolIKE, other) }, message.NoProposalChosen},
		"key":        {func(a, _ *Connection) { a.Secret = []byte("another") }, message.AuthenticationFailed},
		"networks": {func(a, _ *Connection) {
			a.Children[0].Remote = []message.Selector{SelectorOf(netip.MustParsePrefix("10.9.0.0/16"))}
		}, message.TSUnacceptable},
		"addresses": {func(_, b *Connection) { b.Pools = []string{"vpn"}; b.Profile = "vpn"; b.Children[0].Remote = nil }, message.FailedCPRequired},
		"redirect":  {func(_, b *Connection) { b.RedirectTo = "192.0.2.77" }, message.Redirect},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShark(t, ikeSuite)
			s.set(c.change)
			s.initiate()
			s.read(c.want)
		})
	}
}

// With certificates of a chain, so that IKE_AUTH is sent in fragments.
func TestWiresharkDecodesCertificatesInFragments(t *testing.T) {
	for suite := range sharkSuites {
		t.Run(suite, func(t *testing.T) {
			s, ca := newShark(t, suite), newIssuer(t, "rsa", "CA", nil)
			between := newIssuer(t, "rsa", "Between", ca)
			trust := []*Authority{ca.authority(false)}
			for _, e := range []*end{s.a, s.b} {
				e.answer = func(q any) any {
					v, _ := q.(VerifyChain)
					key, err := verifyChain(trust, v.Chain, v.Identity, time.Now())
					return Verified{key, err}
				}
			}
			s.set(func(a, b *Connection) {
				for c, name := range map[*Connection]string{a: "a.example", b: "b.example"} {
					certificate, key := between.issue("rsa", name)
					credential, err := ParseCredential(pemOf(certificate)+pemOf(between.certificate), pemOfKey(t, key), true)
					if err != nil {
						t.Fatal(err)
					}
					c.Credential, c.LocalMethod, c.RemoteMethod, c.Authorities = credential, Certificate, Certificate, trust[0].keyHash()
				}
			})
			s.initiate()
			s.check(1)
			s.read(message.TypeFragment, message.TypeCertificate, message.TypeRequest, message.SignatureHashAlgorithms, message.FragmentationSupported)
		})
	}
}

// A remote user that gets an address.
func TestWiresharkDecodesEAPAndConfigurationPayloads(t *testing.T) {
	s := newShark(t, ikeSuite)
	s.set(func(a, b *Connection) {
		a.LocalMethod, a.AskAddress, a.Children[0].Local = EAP, true, nil
		b.RemoteMethod, b.Remote, b.Pools, b.Children[0].Remote = EAP, netip.Addr{}, []string{"vpn"}, nil
	})
	msk := random(64)
	// EAP-MSCHAPv2: identity, challenge with response, success.
	success := "S=" + strings.Repeat("0", 40)
	requests := [][]byte{{1, 1, 0, 5, 1}, slices.Concat([]byte{1, 2, 0, 29, 26, 1, 2, 0, 24, 16}, random(16), []byte("gw1")),
		slices.Concat([]byte{1, 3, 0, 51, 26, 3, 2, 0, 46}, []byte(success)), {3, 3, 0, 4}}
	s.b.answer = func(q any) any {
		if _, is := q.(LeaseAddress); is {
			return Leased{Addresses: []netip.Addr{given}, DNS: []netip.Addr{netip.MustParseAddr("10.9.0.1")}}
		}
		next := requests[0]
		requests = requests[1:]
		return EAPAnswer{Packet: next, Success: len(requests) == 0, MSK: msk, Username: "alice"}
	}
	s.a.answer = func(q any) any {
		switch packet := q.(EAPResponse).Packet; {
		case packet[0] == 3:
			return EAPReply{MSK: msk}
		case packet[4] == 1:
			return EAPReply{Packet: []byte{2, packet[1], 0, 10, 1, 'a', 'l', 'i', 'c', 'e'}}
		case packet[5] == 1:
			return EAPReply{Packet: slices.Concat([]byte{2, packet[1], 0, 64, 26, 2, 2, 0, 59, 49}, random(16), make([]byte, 8), random(24), []byte{0}, []byte("alice"))}
		default:
			return EAPReply{Packet: []byte{2, packet[1], 0, 6, 26, 3}}
		}
	}
	s.initiate()
	s.check(1)
	s.read(message.TypeEAP, message.TypeConfiguration)
}

func TestWiresharkDecodesMOBIKE(t *testing.T) {
	s := newShark(t, ikeSuite)
	s.set(func(a, b *Connection) {
		a.NoMOBIKE, b.NoMOBIKE = false, false
		a.OtherLocals, b.Peers = []netip.Addr{otherAddress}, []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	})
	s.initiate()
	s.check(1)
	gone := s.a.address
	s.filter = func(d *Datagram) bool {
		s.collect()
		return d.Local.Addr() != gone && d.Remote.Addr() != gone
	}
	s.pass(45 * time.Second)
	s.check(1)
	s.read(message.MOBIKESupported, message.UpdateSAAddresses, message.AdditionalIP4Address)
}

func TestWiresharkDecodesResumption(t *testing.T) {
	s := newShark(t, ikeSuite)
	s.set(resumption)
	s.initiate()
	s.check(1)
	s.lose()
	s.filter = func(*Datagram) bool {
		s.collect()
		return true
	}
	s.read(message.IKESessionResum, message.TicketOpaque)
}
