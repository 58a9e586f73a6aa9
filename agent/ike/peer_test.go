// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/eap"
	"sluice.dev/sluice/agent/ike/message"
)

// Authentication with strongSwan.

const certificateConnection = `
connections {
	peer {
		version = 2
		local_addrs = 192.0.2.2
		remote_addrs = 192.0.2.1
		proposals = aes256gcm16-prfsha256-x25519
		LOCAL
		REMOTE
		children {
			net {
				local_ts = 10.2.0.0/16
				remote_ts = 10.1.0.0/16
				esp_proposals = aes256gcm16
			}
		}
	}
}
`

func TestStrongSwanAuthenticatesByCertificates(t *testing.T) {
	for _, kind := range []string{"rsa", "rsa/pss", "ecdsa", "ecdsa384", "ed25519"} {
		for _, ours := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/initiator=%v", kind, ours), func(t *testing.T) {
				t.Parallel()
				kind, rest, _ := strings.Cut(kind, "/")
				ca := newIssuer(t, kind, "CA", nil)
				between := newIssuer(t, kind, "Between", ca)
				theirs, theirKey := between.issue(kind, "there.example")
				mine, myKey := ca.issue(kind, "here.example")
				auth := "auth = pubkey"
				if rest == "pss" {
					auth = "auth = rsa/pss"
				}
				configuration := strings.NewReplacer("LOCAL", "local {\n"+auth+"\ncerts = there.pem\nid = there.example\n}", "REMOTE", "remote {\nauth = pubkey\nid = here.example\n}").Replace(certificateConnection)
				s := newStrongSwan(t, configuration, map[string][]byte{"x509/there.pem": []byte(pemOf(theirs)), "private/there.key": []byte(pemOfKey(t, theirKey)),
					"x509ca/ca.pem": []byte(pemOf(ca.certificate)), "x509ca/between.pem": []byte(pemOf(between.certificate))})
				credential, err := ParseCredential(pemOf(mine), pemOfKey(t, myKey), rest == "pss")
				if err != nil {
					t.Fatal(err)
				}
				trust := []*Authority{ca.authority(false)}
				s.answer = func(q any) any {
					v, _ := q.(VerifyChain)
					key, err := verifyChain(trust, v.Chain, v.Identity, time.Now())
					return Verified{key, err}
				}
				c := s.to("aes256gcm16-prfsha256-x25519", "aes256gcm16")
				c.LocalMethod, c.RemoteMethod, c.Credential, c.Authorities = Certificate, Certificate, credential, trust[0].keyHash()
				s.set(c)
				if ours {
					s.initiate()
				} else {
					s.swanctl("--initiate", "--child", "net")
				}
				s.agree(1)
			})
		}
	}
}

// RFC 7296 section 3.8: without RFC 7427 the signatures of both ends have SHA-1.
func TestStrongSwanMaySignWithSHA1IfThatIsAllowed(t *testing.T) {
	for _, allowed := range []bool{true, false} {
		for _, ours := range []bool{true, false} {
			t.Run(fmt.Sprintf("allowed=%v/initiator=%v", allowed, ours), func(t *testing.T) {
				t.Parallel()
				ca := newIssuer(t, "rsa", "CA", nil)
				theirs, theirKey := ca.issue("rsa", "there.example")
				mine, myKey := ca.issue("rsa", "here.example")
				configuration := "# without RFC 7427\n" + strings.NewReplacer("LOCAL", "local {\nauth = pubkey\ncerts = there.pem\nid = there.example\n}", "REMOTE", "remote {\nauth = pubkey\nid = here.example\n}").Replace(certificateConnection)
				s := newStrongSwan(t, configuration, map[string][]byte{"x509/there.pem": []byte(pemOf(theirs)), "private/there.key": []byte(pemOfKey(t, theirKey)), "x509ca/ca.pem": []byte(pemOf(ca.certificate))})
				credential, err := ParseCredential(pemOf(mine), pemOfKey(t, myKey), false)
				if err != nil {
					t.Fatal(err)
				}
				trust := []*Authority{ca.authority(false)}
				s.answer = func(q any) any {
					v, _ := q.(VerifyChain)
					key, err := verifyChain(trust, v.Chain, v.Identity, time.Now())
					return Verified{key, err}
				}
				c := s.to("aes256gcm16-prfsha256-x25519", "aes256gcm16")
				c.LocalMethod, c.RemoteMethod, c.Credential, c.Authorities, c.AllowSHA1 = Certificate, Certificate, credential, trust[0].keyHash(), allowed
				s.set(c)
				if ours {
					s.initiate()
				} else if _, err := s.try("--initiate", "--child", "net"); (err == nil) != allowed {
					t.Errorf("strongSwan says %v", err)
				}
				if allowed {
					s.agree(1)
					return
				}
				s.await("the refusal", func() bool {
					return slices.ContainsFunc(s.events, func(e string) bool {
						return strings.HasPrefix(e, "failed: ") && strings.Contains(e, "set allowSha1 of the IkeConnection")
					})
				})
			})
		}
	}
}

// Certificates with RSA keys and an authority between make IKE_AUTH too long for one packet.
func TestFragmentsOfStrongSwanArriveInAnyOrder(t *testing.T) {
	for _, ours := range []bool{true, false} {
		t.Run(fmt.Sprintf("initiator=%v", ours), func(t *testing.T) {
			t.Parallel()
			ca := newIssuer(t, "rsa", "CA", nil)
			between := newIssuer(t, "rsa", "Between", ca)
			theirs, theirKey := between.issue("rsa", "there.example")
			mine, myKey := between.issue("rsa", "here.example")
			configuration := strings.NewReplacer("LOCAL", "local {\nauth = pubkey\ncerts = there.pem\nid = there.example\n}", "REMOTE", "remote {\nauth = pubkey\nid = here.example\n}").Replace(certificateConnection)
			s := newStrongSwan(t, configuration, map[string][]byte{"x509/there.pem": []byte(pemOf(theirs)), "private/there.key": []byte(pemOfKey(t, theirKey)),
				"x509ca/ca.pem": []byte(pemOf(ca.certificate)), "x509ca/between.pem": []byte(pemOf(between.certificate))})
			credential, err := ParseCredential(pemOf(mine)+pemOf(between.certificate), pemOfKey(t, myKey), false)
			if err != nil {
				t.Fatal(err)
			}
			trust := []*Authority{ca.authority(false)}
			s.answer = func(q any) any {
				v, _ := q.(VerifyChain)
				key, err := verifyChain(trust, v.Chain, v.Identity, time.Now())
				return Verified{key, err}
			}
			s.mu.Lock()
			s.shuffle = true
			s.mu.Unlock()
			c := s.to("aes256gcm16-prfsha256-x25519", "aes256gcm16")
			c.LocalMethod, c.RemoteMethod, c.Credential, c.Authorities = Certificate, Certificate, credential, trust[0].keyHash()
			s.set(c)
			if ours {
				s.initiate()
			} else {
				s.swanctl("--initiate", "--child", "net")
			}
			s.agree(1)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.shuffled[true] == 0 || s.shuffled[false] == 0 {
				t.Errorf("%d messages of ours and %d of strongSwan's are in fragments", s.shuffled[true], s.shuffled[false])
			}
		})
	}
}

func TestStrongSwanIsRefusedForItsCertificate(t *testing.T) {
	for name, change := range map[string]func(*x509.Certificate){
		"expired": func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "of another name": func(c *x509.Certificate) { c.DNSNames = []string{"other.example"} }, "revoked": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := newIssuer(t, "ecdsa", "CA", nil)
			var changes []func(*x509.Certificate)
			if change != nil {
				changes = append(changes, change)
			}
			theirs, theirKey := ca.issue("ecdsa", "there.example", changes...)
			mine, myKey := ca.issue("ecdsa", "here.example")
			var lists []string
			if change == nil {
				lists = append(lists, ca.revoke(time.Now().Add(time.Hour), theirs.SerialNumber))
			}
			identity := "there.example"
			if name == "of another name" {
				identity = "other.example" // strongSwan uses no name that its certificate has not
			}
			configuration := strings.NewReplacer("LOCAL", "local {\nauth = pubkey\ncerts = there.pem\nid = "+identity+"\n}", "REMOTE", "remote {\nauth = pubkey\nid = here.example\n}").Replace(certificateConnection)
			s := newStrongSwan(t, configuration, map[string][]byte{"x509/there.pem": []byte(pemOf(theirs)), "private/there.key": []byte(pemOfKey(t, theirKey)), "x509ca/ca.pem": []byte(pemOf(ca.certificate))})
			credential, err := ParseCredential(pemOf(mine), pemOfKey(t, myKey), false)
			if err != nil {
				t.Fatal(err)
			}
			trust := []*Authority{ca.authority(false, lists...)}
			s.answer = func(q any) any {
				v, _ := q.(VerifyChain)
				key, err := verifyChain(trust, v.Chain, v.Identity, time.Now())
				return Verified{key, err}
			}
			c := s.to("aes256gcm16-prfsha256-x25519", "aes256gcm16")
			c.LocalMethod, c.RemoteMethod, c.Credential = Certificate, Certificate, credential
			s.set(c)
			if out, err := s.try("--initiate", "--child", "net"); err == nil {
				t.Errorf("it is connected: %s", out)
			}
			s.await("a refusal", func() bool { return s.happened("failed") > 0 || s.happened("down") > 0 })
			s.mu.Lock()
			if len(s.in) != 0 || len(s.m.children) != 0 {
				t.Errorf("%d children", len(s.in))
			}
			s.mu.Unlock()
		})
	}
}

func TestRemoteUsersOfStrongSwanGetAddresses(t *testing.T) {
	for _, password := range []string{"right", "wrong"} {
		t.Run(password, func(t *testing.T) {
			t.Parallel()
			ca := newIssuer(t, "ecdsa", "CA", nil)
			mine, myKey := ca.issue("ecdsa", "here.example")
			configuration := `
connections {
	peer {
		version = 2
		local_addrs = 192.0.2.2
		remote_addrs = 192.0.2.1
		vips = 0.0.0.0
		proposals = aes256gcm16-prfsha256-x25519
		local {
			auth = eap-mschapv2
			eap_id = alice
			id = alice@example.org
		}
		remote {
			auth = pubkey
			id = here.example
		}
		children {
			net {
				remote_ts = 10.1.0.0/16
				esp_proposals = aes256gcm16
			}
		}
	}
}
secrets {
	eap-alice {
		id = alice
		secret = ` + password + `
	}
}
`
			s := newStrongSwan(t, configuration, map[string][]byte{"x509ca/ca.pem": []byte(pemOf(ca.certificate))})
			credential, err := ParseCredential(pemOf(mine), pemOfKey(t, myKey), false)
			if err != nil {
				t.Fatal(err)
			}
			talk := eap.NewMSCHAPv2("gateway", func(username string) (string, bool) { return "right", username == "alice" })
			given := netip.MustParseAddr("10.9.0.7")
			s.answer = func(q any) (answer any) {
				switch q := q.(type) {
				case EAPStep:
					talk.Next(q.Packet, func(step eap.Step) {
						answer = EAPAnswer{Packet: step.Packet, Success: step.Success, MSK: step.MSK, Username: step.Username, Err: step.Err, Failure: step.Failure}
					})
				case LeaseAddress:
					if q.Username != "alice" || !q.IPv4 || q.IPv6 {
						t.Errorf("asked for %+v", q)
					}
					answer = Leased{Addresses: []netip.Addr{given}, DNS: []netip.Addr{netip.MustParseAddr("10.1.0.53")}}
				}
				return answer
			}
			c := s.to("aes256gcm16-prfsha256-x25519", "aes256gcm16")
			c.Remote, c.LocalMethod, c.RemoteMethod, c.Credential, c.RemoteID, c.Pools = netip.Addr{}, Certificate, EAP, credential, mustIdentity(t, "*@example.org"), []string{"pool"}
			c.Children[0].Remote = nil
			s.set(c)
			out, err := s.try("--initiate", "--child", "net")
			if password == "wrong" {
				if err == nil {
					t.Errorf("it is connected: %s", out)
				}
				// strongSwan does not take the method's answer.
				s.await("the failure is reported", func() bool { return s.happened(`failed: user "alice": wrong password`) == 1 })
				s.mu.Lock()
				if len(s.in) != 0 || s.happened("up") != 0 {
					t.Errorf("%d children, events %q", len(s.in), s.events)
				}
				s.mu.Unlock()
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			s.agree(1)
			s.mu.Lock()
			for _, child := range s.in {
				if !slices.Equal(child.Remote, []message.Selector{hostOf(given)}) {
					t.Errorf("the child is for %v", child.Remote)
				}
			}
			s.mu.Unlock()
			if list := s.swanctl("--list-sas", "--raw"); !strings.Contains(list, "local-vips=[10.9.0.7]") {
				t.Errorf("strongSwan has another address: %s", list)
			}
		})
	}
}

func TestRemoteUsersOfStrongSwanHaveCertificates(t *testing.T) {
	for _, name := range []string{"alice", "mallory"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := newIssuer(t, "ecdsa", "CA", nil)
			mine, myKey := ca.issue("ecdsa", "here.example")
			theirs, theirKey := ca.issue("rsa", "unused", func(c *x509.Certificate) { c.DNSNames, c.EmailAddresses = nil, []string{name + "@example.org"} })
			configuration := `
connections {
	peer {
		version = 2
		local_addrs = 192.0.2.2
		remote_addrs = 192.0.2.1
		vips = 0.0.0.0
		proposals = aes256gcm16-prfsha256-x25519
		local {
			auth = eap-tls
			certs = there.pem
			id = ` + name + `@example.org
			eap_id = alice@example.org
		}
		remote {
			auth = pubkey
			id = here.example
		}
		children {
			net {
				remote_ts = 10.1.0.0/16
				esp_proposals = aes256gcm16
			}
		}
	}
}
`
			s := newStrongSwan(t, configuration, map[string][]byte{"x509ca/ca.pem": []byte(pemOf(ca.certificate)), "x509/there.pem": []byte(pemOf(theirs)), "private/there.key": []byte(pemOfKey(t, theirKey))})
			credential, err := ParseCredential(pemOf(mine), pemOfKey(t, myKey), false)
			if err != nil {
				t.Fatal(err)
			}
			trust := []*Authority{ca.authority(false)}
			c := s.to("aes256gcm16-prfsha256-x25519", "aes256gcm16")
			c.Remote, c.LocalMethod, c.RemoteMethod, c.Credential, c.RemoteID, c.Trust = netip.Addr{}, Certificate, EAP, credential, mustIdentity(t, "*@example.org"), trust
			c.Children[0].Remote = []message.Selector{SelectorOf(netip.MustParsePrefix("10.2.0.0/16")), SelectorOf(netip.MustParsePrefix("192.0.2.0/24"))}
			talk := emptyServing(t).converseTLS(c, netip.MustParseAddr("192.0.2.1"))
			s.answer = func(q any) any {
				step, is := q.(EAPStep)
				if !is {
					return nil
				}
				answer := make(chan EAPAnswer, 1)
				talk.Next(step.Packet, func(step eap.Step) {
					answer <- EAPAnswer{Packet: step.Packet, Success: step.Success, MSK: step.MSK, Username: step.Username, Err: step.Err}
				})
				return <-answer
			}
			s.set(c)
			out, err := s.try("--initiate", "--child", "net")
			if name == "mallory" {
				// Her certificate is good, and it is not Alice's.
				if err == nil || s.happened("up") != 0 {
					t.Errorf("it is connected: %s", out)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			s.agree(1)
		})
	}
}

// A child of our connection takes a part of what strongSwan asks for, and the other way round; each end makes one child of each entry.
func TestStrongSwanNarrowsSelectorsAndMakesSeveralChildren(t *testing.T) {
	const ike, esp = "aes256gcm16-prfsha256-x25519", "aes256gcm16-x25519"
	second := fmt.Sprintf(`children {
			second {
				local_ts = 10.2.0.0/16
				remote_ts = 10.3.0.0/16
				esp_proposals = %s
				rekey_time = 0
			}
		}
		`, esp)
	network := func(text string) []message.Selector {
		return []message.Selector{SelectorOf(netip.MustParsePrefix(text))}
	}
	for _, ours := range []bool{true, false} {
		t.Run(fmt.Sprintf("initiator=%v", ours), func(t *testing.T) {
			t.Parallel()
			s := newStrongSwan(t, swan(ike, esp, second), nil)
			c := s.to(ike, esp)
			other := *c.Children[0]
			other.Name, other.Local, other.Remote = "second", network("10.3.0.0/16"), network("10.2.0.0/16")
			c.Children = append(c.Children, &other)
			// strongSwan has 10.2.0.0/16 and 10.1.0.0/16 in the first one.
			if c.Children[0].Local, c.Children[0].Remote = network("10.1.4.0/24"), network("10.2.0.0/16"); ours {
				c.Children[0].Local, c.Children[0].Remote = network("10.1.0.0/16"), network("10.0.0.0/8")
			}
			s.set(c)
			if ours {
				s.initiate()
			} else {
				s.swanctl("--initiate", "--child", "net")
				s.swanctl("--initiate", "--child", "second")
			}
			s.agree(2)
			want := map[string]string{"net": "10.1.4.0/24 10.2.0.0/16", "second": "10.3.0.0/16 10.2.0.0/16"}
			if ours {
				want["net"] = "10.1.0.0/16 10.2.0.0/16"
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, c := range s.in {
				var all []string
				for _, one := range slices.Concat(c.Local, c.Remote) {
					all = append(all, selectorText(one))
				}
				if text := strings.Join(all, " "); text != want[c.Conf.Name] {
					t.Errorf("%s protects %s, not %s", c.Conf.Name, text, want[c.Conf.Name])
				}
			}
			if len(s.m.sas) != 1 {
				t.Errorf("%d IKE SAs", len(s.m.sas))
			}
		})
	}
}

// INITIAL_CONTACT: an end that has lost everything comes again, and the other one deletes what it had.
func TestStrongSwanBeginsAnew(t *testing.T) {
	const ike, esp = "aes256gcm16-prfsha256-x25519", "aes256gcm16-x25519"
	for _, ours := range []bool{true, false} {
		t.Run(fmt.Sprintf("initiator=%v", ours), func(t *testing.T) {
			t.Parallel()
			s := newStrongSwan(t, swan(ike, esp, ""), nil)
			conn := s.to(ike, esp)
			s.set(conn)
			if !ours {
				s.swanctl("--initiate", "--child", "net")
				s.agree(1)
				s.restart()
				s.swanctl("--initiate", "--child", "net")
				s.agree(1)
				s.await("one IKE SA", func() bool { return len(s.m.sas) == 1 })
				return
			}
			s.initiate()
			s.agree(1)
			s.mu.Lock()
			s.m = New(time.Now())
			clear(s.in)
			clear(s.out)
			s.mu.Unlock()
			s.set(conn)
			s.initiate()
			s.agree(1)
		})
	}
}
