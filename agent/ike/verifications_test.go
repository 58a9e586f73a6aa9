// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emmansun/gmsm/smx509"
	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/service"
)

// emptyServing is a service without objects.
func emptyServing(t *testing.T) *serving {
	t.Helper()
	made, err := newServing(service.Environment{Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := made.(*serving)
	t.Cleanup(s.tasks.end)
	return s
}

// longCertificate has an RSA key with so many bits.
func longCertificate(t *testing.T, ca *issuer, bits int, isCA bool) *smx509.Certificate {
	t.Helper()
	modulus := make([]byte, bits/8)
	if _, err := rand.Read(modulus); err != nil {
		t.Fatal(err)
	}
	modulus[0] |= 0x80
	modulus[len(modulus)-1] |= 1
	template := &x509.Certificate{SerialNumber: big.NewInt(9), Subject: pkix.Name{CommonName: "gw.example"}, DNSNames: []string{"gw.example"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: isCA, BasicConstraintsValid: true}
	der, err := smx509.CreateCertificate(rand.Reader, template, ca.certificate.ToX509(), &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: 65537}, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := smx509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Keys and chains that cost much time are refused before a signature is verified.
func TestTheCertificatesOfAPeerAreBounded(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	good, _ := ca.issue("ecdsa", "gw.example")
	authority := []*Authority{ca.authority(false)}
	for _, c := range []struct {
		name  string
		chain []*smx509.Certificate
		want  string
	}{
		{"4096 bits", []*smx509.Certificate{longCertificate(t, ca, 4096, false)}, ""},
		{"8192 bits", []*smx509.Certificate{longCertificate(t, ca, 8192, false)}, "RSA key of 8192 bits: at most 4096"},
		{"8192 bits above", []*smx509.Certificate{good, longCertificate(t, ca, 8192, true)}, "RSA key of 8192 bits: at most 4096"},
		{"four between", []*smx509.Certificate{good, ca.certificate, ca.certificate, ca.certificate, ca.certificate}, ""},
		{"five between", []*smx509.Certificate{good, ca.certificate, ca.certificate, ca.certificate, ca.certificate, ca.certificate}, "more certificates than its own and 4"},
	} {
		var chain [][]byte
		for _, one := range c.chain {
			chain = append(chain, one.Raw)
		}
		_, err := verifyChain(authority, chain, mustIdentity(t, "gw.example"), time.Now())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Of an authority that has several certificates the valid one counts, and one of them is enough.
func TestAnAuthorityBetweenMaySendSeveralCertificates(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	between := newIssuer(t, "ecdsa", "Between", ca)
	leaf, _ := between.issue("ecdsa", "gw.example")
	again := func(serial int64, end time.Duration) *smx509.Certificate {
		template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "Between"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(end),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte("Between"), DNSNames: []string{"other.example"}}
		der, err := smx509.CreateCertificate(rand.Reader, template, ca.certificate.ToX509(), between.key.Public(), ca.key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := smx509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old, renewed := again(7, -time.Hour), again(8, time.Hour)
	got, err := trust([]*Authority{ca.authority(false)}, [][]byte{leaf.Raw, old.Raw, between.certificate.Raw, renewed.Raw}, mustIdentity(t, "gw.example"), time.Now())
	if err != nil || len(got.chains) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOfManyCertificatesFewAreVerifiedAtOnceAndFewWait(t *testing.T) {
	var group sync.WaitGroup
	v := &verifications{limit: 2, start: func(run func()) bool {
		group.Add(1)
		go func() {
			defer group.Done()
			run()
		}()
		return true
	}}
	var running, most, done atomic.Int32
	hold := make(chan struct{})
	work := func() {
		n := running.Add(1)
		for {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		<-hold
		running.Add(-1)
		done.Add(1)
	}
	// One address floods.
	flood, taken := netip.MustParseAddr("198.51.100.1"), 0
	for range 1000 {
		if v.submit(flood, work) == nil {
			taken++
		}
	}
	if taken != maxVerificationsOfAddress {
		t.Errorf("%d of one address are taken", taken)
	}
	// An honest peer and a peer that we call are served.
	for _, a := range []netip.Addr{netip.MustParseAddr("192.0.2.7"), {}} {
		if err := v.submit(a, work); err != nil {
			t.Errorf("%s: %v", a, err)
		}
		taken++
	}
	// Many addresses of IPv6 in one network are one.
	network := 0
	for i := range 100 {
		a := netip.MustParseAddr("2001:db8::").As16()
		a[15] = byte(i)
		if v.submit(netip.AddrFrom16(a), work) == nil {
			network++
		}
	}
	if taken += network; network != maxVerificationsOfAddress {
		t.Errorf("%d of one network are taken", network)
	}
	// Many addresses flood.
	for i := range 1000 {
		if v.submit(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), work) == nil {
			taken++
		}
	}
	if taken > maxVerifications+v.limit {
		t.Errorf("%d wait", taken)
	}
	if err := v.submit(netip.MustParseAddr("192.0.2.8"), work); !errors.Is(err, errBusy) {
		t.Errorf("above the bound: %v", err)
	}
	if err := v.submit(netip.Addr{}, work); err != nil {
		t.Errorf("a peer that we call: %v", err)
	}
	taken++
	close(hold)
	group.Wait()
	if n := int(done.Load()); n != taken || most.Load() > 2 || v.running != 0 || len(v.of) != 0 {
		t.Errorf("%d of %d are done, %d at once; %d run and %d wait", n, taken, most.Load(), v.running, len(v.of))
	}
}

// A request that is refused as too many wait is served when it comes again, also with a PPK, which is part of the keys.
func TestAPeerWhoseCertificateMustWaitSendsItsRequestAgain(t *testing.T) {
	for _, ppk := range []bool{false, true} {
		p, ca := newPair(t), newIssuer(t, "ecdsa", "CA", nil)
		authority := []*Authority{ca.authority(false)}
		refused := 0
		for _, e := range []*end{p.a, p.b} {
			e.answer = func(q any) any {
				v, _ := q.(VerifyChain)
				if v.Remote.IsValid() != (e == p.b) {
					t.Errorf("%s: the peer at %v calls", e.name, v.Remote)
				}
				if refused < 2 && e == p.b {
					refused++
					return Verified{Err: errBusy}
				}
				key, err := verifyChain(authority, v.Chain, v.Identity, time.Now())
				if err == nil {
					err = v.Proof(key)
				}
				return Verified{key, err}
			}
		}
		p.configure(func(a, b *Connection) {
			for c, name := range map[*Connection]string{a: "a.example", b: "b.example"} {
				certificate, key := ca.issue("ecdsa", name)
				credential, err := ParseCredential(pemOf(certificate), pemOfKey(t, key), false)
				if err != nil {
					t.Fatal(err)
				}
				c.Credential, c.LocalMethod, c.RemoteMethod, c.Authorities = credential, Certificate, Certificate, authority[0].keyHash()
				if ppk {
					c.PPK, c.PPKID, c.PPKMandatory = []byte("quantum"), "ppk1", true
				}
			}
		})
		p.initiate()
		p.pass(20 * time.Second)
		p.check(1)
		if p.b.counts["drop verifications"] != 2 || p.exchanges(message.IKESAInit) != 2 {
			t.Errorf("counts %v, events %q", p.b.counts, p.b.events)
		}
	}
}

// A responder of OCSP is not asked for a peer that has another peer's certificate, and not its key.
func TestNobodyIsAskedAboutACertificateWithoutItsKey(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	certificate, _ := ca.issue("ecdsa", "gw.example")
	url, asked := ocspServer(t, ca.certificate, nil)
	a := ca.authority(true)
	a.responder = newResponder(url)
	s := emptyServing(t)
	answers := make(chan any, 1)
	s.machine.token++
	token := s.machine.token
	s.machine.asked[token] = &question{sa: &ikeSA{m: s.machine, conn: &Connection{}, index: -1}, then: func(answer any, _ time.Time) { answers <- answer }}
	s.ask(Ask{token, VerifyChain{Trust: []*Authority{a}, Chain: [][]byte{certificate.Raw}, Identity: mustIdentity(t, "gw.example"), Remote: netip.MustParseAddr("192.0.2.9"),
		Proof: func(crypto.PublicKey) error { return errAuthentication }}})
	v, _ := (<-answers).(Verified)
	if !errors.Is(v.Err, errAuthentication) || asked.Load() != 0 {
		t.Errorf("%v; the responder was asked %d times", v.Err, asked.Load())
	}
}
