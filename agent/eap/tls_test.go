// SPDX-License-Identifier: Apache-2.0

package eap

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

// selfSigned makes a certificate; padding makes it long.
func selfSigned(t *testing.T, name string, padding int) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, OrganizationalUnit: []string{strings.Repeat("x", padding)}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// tlsPeer is a user with a certificate, in pieces of a size. It returns the key as crypto/tls exports it.
func tlsPeer(t *testing.T, c Conversation, identity string, config *tls.Config, piece int) (Step, []byte) {
	t.Helper()
	p := &pipe{}
	p.changed.L = &p.mu
	conn := tls.Client(p, config)
	var ended bool
	var key []byte
	go func() {
		err := conn.Handshake()
		if state := conn.ConnectionState(); err == nil {
			if state.Version == tls.VersionTLS13 {
				key, _ = state.ExportKeyingMaterial("EXPORTER_EAP_TLS_Key_Material", []byte{TypeTLS}, 128)
				key = key[:min(len(key), 64)]
			} else {
				key, _ = state.ExportKeyingMaterial("client EAP encryption", nil, 64)
			}
		}
		p.mu.Lock()
		ended = true
		p.changed.Broadcast()
		p.mu.Unlock()
	}()
	answers := make(chan Step, 1)
	c.Next(nil, func(s Step) { answers <- s })
	var in, out []byte
	for range 100 {
		step := <-answers
		if step.Success || step.Err != nil {
			p.Close()
			return step, key
		}
		request, err := Parse(step.Packet)
		if err != nil || request.Code != Request || len(step.Packet) > tlsFragment+20 {
			t.Fatalf("%x: %v", step.Packet, err)
		}
		answer := Packet{Code: Response, Identifier: request.Identifier, Type: request.Type, Data: []byte(identity)}
		if request.Type == TypeTLS {
			flags, data := request.Data[0], request.Data[1:]
			if flags&tlsLength != 0 {
				data = data[4:]
			}
			in = append(in, data...)
			if flags&tlsMore == 0 && len(out) == 0 {
				out = p.exchange(in, func() bool { return ended })
				in = nil
				if len(out) > piece {
					answer.Data = binary.BigEndian.AppendUint32([]byte{tlsLength | tlsMore}, uint32(len(out)))
				} else {
					answer.Data = []byte{0}
				}
			} else {
				answer.Data = []byte{0}
				if len(out) > piece {
					answer.Data = []byte{tlsMore}
				}
			}
			n := min(len(out), piece)
			answer.Data = append(answer.Data, out[:n]...)
			out = out[n:]
		}
		c.Next(answer.Append(nil), func(s Step) { answers <- s })
	}
	t.Fatal("the conversation does not end")
	return Step{}, nil
}

func TestACertificateProvesAUserByTLS(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, suite := range []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384} {
			for _, piece := range []int{100, 4000} {
				t.Run(fmt.Sprintf("%s/%s/%d", tls.VersionName(version), tls.CipherSuiteName(suite), piece), func(t *testing.T) {
					mine, theirs := selfSigned(t, "gateway", 3000), selfSigned(t, "alice", 2000)
					c := NewTLS(TLS{Config: &tls.Config{Certificates: []tls.Certificate{mine}}, Verify: func(chain [][]byte, identity string) (string, error) {
						if len(chain) != 1 || !bytes.Equal(chain[0], theirs.Certificate[0]) || identity != "Alice@example.org" {
							return "", fmt.Errorf("%d certificates of %q", len(chain), identity)
						}
						return "alice@example.org", nil
					}})
					step, key := tlsPeer(t, c, "Alice@example.org", &tls.Config{Certificates: []tls.Certificate{theirs}, InsecureSkipVerify: true, MinVersion: version, MaxVersion: version,
						CipherSuites: []uint16{suite}}, piece)
					if !step.Success || step.Username != "alice@example.org" || len(step.MSK) != 64 || !bytes.Equal(step.MSK, key) {
						t.Errorf("%+v, and the peer's key %x", step, key)
					}
					c.(Ender).End()
				})
			}
		}
	}
}

func TestACertificateThatIsNotTrustedIsRefused(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, has := range []bool{true, false} {
			refused := errors.New("revoked")
			c := NewTLS(TLS{Config: &tls.Config{Certificates: []tls.Certificate{selfSigned(t, "gateway", 0)}}, Verify: func([][]byte, string) (string, error) { return "", refused }})
			config := &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}
			if has {
				config.Certificates = []tls.Certificate{selfSigned(t, "mallory", 0)}
			}
			step, _ := tlsPeer(t, c, "alice", config, 1000)
			if step.Success || step.Err == nil || has != errors.Is(step.Err, refused) || step.MSK != nil {
				t.Errorf("%+v", step)
			}
			if p, err := Parse(step.Packet); err != nil || p.Code != Failure {
				t.Errorf("%x: %v", step.Packet, err)
			}
			c.(Ender).End()
		}
	}
}

// Fragments that bring nothing would have a conversation go on for ever.
func TestAFragmentWithoutDataEndsTheConversation(t *testing.T) {
	for _, fragment := range [][]byte{{tlsMore}, {tlsLength | tlsMore, 0, 0, 1, 0}} {
		c := NewTLS(TLS{Config: &tls.Config{Certificates: []tls.Certificate{selfSigned(t, "gateway", 0)}}})
		answers := make(chan Step, 1)
		done := func(s Step) { answers <- s }
		c.Next(nil, done)
		first, err := Parse((<-answers).Packet)
		if err != nil {
			t.Fatal(err)
		}
		c.Next(Packet{Response, first.Identifier, TypeIdentity, []byte("alice")}.Append(nil), done)
		second, err := Parse((<-answers).Packet)
		if err != nil {
			t.Fatal(err)
		}
		c.Next(Packet{Response, second.Identifier, TypeTLS, fragment}.Append(nil), done)
		step := <-answers
		if p, err := Parse(step.Packet); err != nil || p.Code != Failure || !errors.Is(step.Err, ErrPacket) {
			t.Errorf("%x: %+v", fragment, step)
		}
		c.(Ender).End()
	}
}

// FuzzTLS gives anything to a conversation that expects TLS.
func FuzzTLS(f *testing.F) {
	mine := selfSigned(&testing.T{}, "gateway", 0)
	f.Add([]byte{0}, []byte{0x80, 0, 0, 0, 9, 22, 3, 1})
	f.Add([]byte{0x40, 22, 3, 1}, []byte{0, 0, 5, 1})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		c := NewTLS(TLS{Config: &tls.Config{Certificates: []tls.Certificate{mine}}, Verify: func([][]byte, string) (string, error) { return "", errPipe }})
		answers := make(chan Step, 1)
		done := func(s Step) { answers <- s }
		c.Next(nil, done)
		step := <-answers
		for i, data := range [][]byte{[]byte("alice"), first, second} {
			p, err := Parse(step.Packet)
			if err != nil || step.Err != nil || len(data) > 60000 {
				break
			}
			kind := TypeTLS
			if i == 0 {
				kind = TypeIdentity
			}
			c.Next(Packet{Response, p.Identifier, kind, data}.Append(nil), done)
			if step = <-answers; step.Success {
				t.Fatal("the peer is accepted")
			}
		}
		c.(Ender).End()
	})
}
