// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
	"golang.org/x/crypto/ocsp"
)

// issuer is a certificate authority of a test.
type issuer struct {
	t           *testing.T
	certificate *smx509.Certificate
	key         crypto.Signer
	serial      int64
}

func makeKey(t *testing.T, kind string) crypto.Signer {
	t.Helper()
	var key crypto.Signer
	var err error
	switch kind {
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ecdsa384":
		key, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case "sm2":
		key, err = sm2.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newIssuer(t *testing.T, kind, name string, under *issuer) *issuer {
	key := makeKey(t, kind)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, SubjectKeyId: []byte(name)}
	i := &issuer{t: t, key: key, serial: 1}
	parent, signer := any(template), key
	if under != nil {
		parent, signer = under.certificate.ToX509(), under.key
	}
	der, err := smx509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if i.certificate, err = smx509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return i
}

func TestACertificateWithASHA1SignatureIsRefused(t *testing.T) {
	for _, algorithm := range []x509.SignatureAlgorithm{x509.SHA256WithRSA, x509.SHA1WithRSA} {
		ca := newIssuer(t, "rsa", "CA", nil)
		one, _ := ca.issue("rsa", "gw.example", func(c *x509.Certificate) { c.SignatureAlgorithm = algorithm })
		if one.SignatureAlgorithm != smx509.SignatureAlgorithm(algorithm) {
			t.Fatalf("the certificate has a signature with %v", one.SignatureAlgorithm)
		}
		_, err := verifyChain([]*Authority{ca.authority(false)}, [][]byte{one.Raw}, mustIdentity(t, "gw.example"), time.Now())
		if (err == nil) != (algorithm == x509.SHA256WithRSA) {
			t.Errorf("%v: %v", algorithm, err)
		}
	}
}

// issue makes a certificate for a DNS name.
func (i *issuer) issue(kind, name string, change ...func(*x509.Certificate)) (certificate *smx509.Certificate, key crypto.Signer) {
	i.t.Helper()
	i.serial++
	key = makeKey(i.t, kind)
	template := &x509.Certificate{SerialNumber: big.NewInt(i.serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature}
	for _, c := range change {
		c(template)
	}
	der, err := smx509.CreateCertificate(rand.Reader, template, i.certificate.ToX509(), key.Public(), i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	if certificate, err = smx509.ParseCertificate(der); err != nil {
		i.t.Fatal(err)
	}
	return certificate, key
}

// revoke makes a list.
func (i *issuer) revoke(next time.Time, serials ...*big.Int) string {
	i.t.Helper()
	i.serial++
	template := &x509.RevocationList{Number: big.NewInt(i.serial), ThisUpdate: time.Now().Add(-2 * time.Hour).Add(time.Duration(i.serial) * time.Second), NextUpdate: next}
	for _, s := range serials {
		template.RevokedCertificateEntries = append(template.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: s, RevocationTime: time.Now().Add(-time.Hour)})
	}
	der, err := smx509.CreateRevocationList(rand.Reader, template, i.certificate, i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}))
}

func pemOf(c *smx509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

func pemOfKey(t *testing.T, key crypto.Signer) string {
	der, err := smx509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func (i *issuer) authority(required bool, lists ...string) *Authority {
	i.t.Helper()
	var parsed []*revocationList
	for _, text := range lists {
		list, err := parseList([]byte(text))
		if err != nil {
			i.t.Fatal(err)
		}
		parsed = append(parsed, list)
	}
	a, err := ParseAuthority(pemOf(i.certificate), parsed, required)
	if err != nil {
		i.t.Fatal(err)
	}
	return a
}

func TestACertificateIsTrustedOrNot(t *testing.T) {
	for _, kind := range []string{"rsa", "ecdsa", "ed25519", "sm2"} {
		ca, other := newIssuer(t, kind, "CA", nil), newIssuer(t, kind, "Other", nil)
		between := newIssuer(t, kind, "Between", ca)
		good, _ := ca.issue(kind, "gw.example")
		address, _ := ca.issue(kind, "x", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP("192.0.2.7")} })
		expired, _ := ca.issue(kind, "gw.example", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
		encipher, _ := ca.issue(kind, "gw.example", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment })
		deep, _ := between.issue(kind, "gw.example")
		foreign, _ := other.issue(kind, "gw.example")
		later, before := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
		for _, c := range []struct {
			name        string
			authorities []*Authority
			chain       []*smx509.Certificate
			identity    string
			problem     string
		}{
			{"good", []*Authority{ca.authority(false)}, []*smx509.Certificate{good}, "gw.example", ""},
			{"by its subject", []*Authority{ca.authority(false)}, []*smx509.Certificate{good}, "CN=gw.example", ""},
			{"by its address", []*Authority{ca.authority(false)}, []*smx509.Certificate{address}, "192.0.2.7", ""},
			{"by a chain", []*Authority{ca.authority(false)}, []*smx509.Certificate{deep, between.certificate}, "gw.example", ""},
			{"one of two authorities", []*Authority{other.authority(false), ca.authority(false)}, []*smx509.Certificate{good}, "gw.example", ""},
			{"another name", []*Authority{ca.authority(false)}, []*smx509.Certificate{good}, "other.example", "is not for other.example"},
			{"another address", []*Authority{ca.authority(false)}, []*smx509.Certificate{address}, "192.0.2.8", "is not for 192.0.2.8"},
			{"expired", []*Authority{ca.authority(false)}, []*smx509.Certificate{expired}, "gw.example", "expired"},
			{"of another authority", []*Authority{ca.authority(false)}, []*smx509.Certificate{foreign}, "gw.example", "unknown authority"},
			{"not for signatures", []*Authority{ca.authority(false)}, []*smx509.Certificate{encipher}, "gw.example", "not for signatures"},
			{"a link is missing", []*Authority{ca.authority(false)}, []*smx509.Certificate{deep}, "gw.example", "unknown authority"},
			{"revoked", []*Authority{ca.authority(false, ca.revoke(later, good.SerialNumber))}, []*smx509.Certificate{good}, "gw.example", "was revoked"},
			{"revoked on an old list", []*Authority{ca.authority(false, ca.revoke(before, good.SerialNumber))}, []*smx509.Certificate{good}, "gw.example", "was revoked"},
			{"not revoked any more", []*Authority{ca.authority(true, ca.revoke(later, good.SerialNumber), ca.revoke(later))}, []*smx509.Certificate{good}, "gw.example", ""},
			{"another is revoked", []*Authority{ca.authority(true, ca.revoke(later, expired.SerialNumber))}, []*smx509.Certificate{good}, "gw.example", ""},
			{"the authority between is revoked", []*Authority{ca.authority(false, ca.revoke(later, between.certificate.SerialNumber))}, []*smx509.Certificate{deep, between.certificate}, "gw.example", "was revoked"},
			{"a list of another authority", []*Authority{ca.authority(false, other.revoke(later, good.SerialNumber))}, []*smx509.Certificate{good}, "gw.example", ""},
			{"no list, and one is required", []*Authority{ca.authority(true)}, []*smx509.Certificate{good}, "gw.example", "no revocation list in force"},
			{"an old list, and one is required", []*Authority{ca.authority(true, ca.revoke(before))}, []*smx509.Certificate{good}, "gw.example", "no revocation list in force"},
			{"no certificate", []*Authority{ca.authority(false)}, nil, "gw.example", "no certificate"},
		} {
			var chain [][]byte
			for _, one := range c.chain {
				chain = append(chain, one.Raw)
			}
			_, err := verifyChain(c.authorities, chain, mustIdentity(t, c.identity), time.Now())
			if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
				t.Errorf("%s, %s: %v", kind, c.name, err)
			}
		}
		for _, junk := range [][]byte{nil, {0x30}, good.Raw[:100]} {
			if _, err := verifyChain([]*Authority{ca.authority(false)}, [][]byte{junk}, mustIdentity(t, "gw.example"), time.Now()); err == nil {
				t.Errorf("%s: %d bytes are a certificate", kind, len(junk))
			}
		}
	}
}

// Two machines with certificates of each kind, SM2 with SM algorithms.
func TestMachinesAuthenticateByCertificates(t *testing.T) {
	for _, kind := range []string{"rsa", "ecdsa", "ed25519", "sm2"} {
		p, ca := newPair(t), newIssuer(t, kind, "CA", nil)
		trust := []*Authority{ca.authority(false)}
		for _, e := range []*end{p.a, p.b} {
			e.answer = func(q any) any {
				v, _ := q.(VerifyChain)
				key, err := verifyChain(trust, v.Chain, v.Identity, time.Now())
				return Verified{key, err}
			}
		}
		p.configure(func(a, b *Connection) {
			for c, name := range map[*Connection]string{a: "a.example", b: "b.example"} {
				certificate, key := ca.issue(kind, name)
				credential, err := ParseCredential(pemOf(certificate), pemOfKey(t, key), kind == "rsa")
				if err != nil {
					t.Fatal(kind, err)
				}
				c.Credential, c.LocalMethod, c.RemoteMethod, c.Authorities = credential, Certificate, Certificate, trust[0].keyHash()
			}
		})
		p.initiate()
		p.check(1)
	}
}

func TestAnOCSPResponderSaysWhatIsRevoked(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	leaf, _ := ca.issue("ecdsa", "there.example")
	other := newIssuer(t, "ecdsa", "CA", nil)
	now := time.Now()
	asked := 0
	for _, c := range []struct {
		name, want string
		status     int
		from       *issuer
		age        time.Duration
		code       int
		required   bool
	}{
		{name: "good", status: ocsp.Good, from: ca, required: true}, {name: "revoked", status: ocsp.Revoked, from: ca, want: "was revoked"},
		{name: "unknown", status: ocsp.Unknown, from: ca}, {name: "unknown and required", status: ocsp.Unknown, from: ca, required: true, want: "does not know"},
		{name: "of another authority", status: ocsp.Good, from: other, required: true, want: "bad OCSP signature"},
		{name: "old", status: ocsp.Good, from: ca, age: 24 * time.Hour, required: true, want: "not valid now"}, {name: "down", code: 500, from: ca, required: true, want: "500"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			if c.code != 0 {
				w.WriteHeader(c.code)
				return
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			request, err := ocsp.ParseRequest(body)
			if err != nil {
				t.Error(err)
			}
			answer, err := ocsp.CreateResponse(c.from.certificate.ToX509(), c.from.certificate.ToX509(), ocsp.Response{Status: c.status, SerialNumber: request.SerialNumber,
				ThisUpdate: now.Add(-time.Minute - c.age), NextUpdate: now.Add(time.Hour - c.age), RevokedAt: now.Add(-time.Hour)}, c.from.key)
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(answer)
		}))
		a := ca.authority(c.required)
		a.responder = newResponder(server.URL)
		for range 2 {
			_, err := verifyChain([]*Authority{a}, [][]byte{leaf.Raw}, mustIdentity(t, "there.example"), now)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		server.Close()
		if c.name == "good" && asked != 1 {
			t.Errorf("it is asked %d times for one certificate", asked)
		}
	}
}

// ocspServer answers for one certificate with what answer says, and counts how often it is asked.
func ocspServer(t *testing.T, issuer *smx509.Certificate, answer func(serial *big.Int) (ocsp.Response, crypto.Signer)) (url string, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		request, err := ocsp.ParseRequest(body)
		if err != nil {
			t.Error(err)
			return
		}
		one, key := answer(request.SerialNumber)
		signer := issuer.ToX509()
		if one.Certificate != nil {
			signer = one.Certificate
		}
		der, err := ocsp.CreateResponse(issuer.ToX509(), signer, one, key)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(der)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// RFC 6960 section 4.2.2.2: the authority delegates the signing of responses by id-kp-OCSPSigning alone.
func TestAnOCSPResponseIsSignedByTheAuthorityOrItsDelegate(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	between := newIssuer(t, "ecdsa", "Between", ca)
	peer, peerKey := ca.issue("ecdsa", "gw.example")
	delegate := func(of *issuer, change func(*x509.Certificate)) (*smx509.Certificate, crypto.Signer) {
		return of.issue("ecdsa", "responder", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageOCSPSigning}
			change(c)
		})
	}
	good, goodKey := delegate(ca, func(*x509.Certificate) {})
	anything, anythingKey := delegate(ca, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageAny} })
	old, oldKey := delegate(ca, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	early, earlyKey := delegate(ca, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
	encipher, encipherKey := delegate(ca, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment })
	below, belowKey := delegate(between, func(*x509.Certificate) {})
	listed, listedKey := delegate(ca, func(*x509.Certificate) {})
	for _, c := range []struct {
		name        string
		certificate *smx509.Certificate
		key         crypto.Signer
		want        string
	}{
		{"the authority", nil, ca.key, ""},
		{"the authority, with its certificate", ca.certificate, ca.key, ""},
		{"a delegate", good, goodKey, ""},
		{"the peer for itself", peer, peerKey, "has not the extended key usage OCSPSigning"},
		{"a certificate for any use", anything, anythingKey, "has not the extended key usage OCSPSigning"},
		{"a delegate whose certificate is over", old, oldKey, "is not valid now"},
		{"a delegate whose certificate begins later", early, earlyKey, "is not valid now"},
		{"a delegate that may not sign", encipher, encipherKey, "is not for signatures"},
		{"a delegate of an authority below", below, belowKey, "bad OCSP signature"},
		{"a delegate that was revoked", listed, listedKey, "whose certificate was revoked"},
	} {
		url, _ := ocspServer(t, ca.certificate, func(serial *big.Int) (ocsp.Response, crypto.Signer) {
			one := ocsp.Response{Status: ocsp.Good, SerialNumber: serial, ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}
			if c.certificate != nil {
				one.Certificate = c.certificate.ToX509()
			}
			return one, c.key
		})
		a := ca.authority(true, ca.revoke(time.Now().Add(-time.Minute), listed.SerialNumber))
		a.responder = newResponder(url)
		_, err := verifyChain([]*Authority{a}, [][]byte{peer.Raw}, mustIdentity(t, "gw.example"), time.Now())
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	// A delegate of two authorities answers for each: the response of one does not count for the other.
	twin := newIssuer(t, "ecdsa", "Twin", nil)
	url, _ := ocspServer(t, twin.certificate, func(serial *big.Int) (ocsp.Response, crypto.Signer) {
		return ocsp.Response{Status: ocsp.Good, SerialNumber: serial, ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour), Certificate: good.ToX509()}, goodKey
	})
	a := ca.authority(true)
	a.responder = newResponder(url)
	if _, err := verifyChain([]*Authority{a}, [][]byte{peer.Raw}, mustIdentity(t, "gw.example"), time.Now()); err == nil || !strings.Contains(err.Error(), "of another issuer") {
		t.Errorf("a response for another issuer: %v", err)
	}
}

func TestAnOCSPResponseHasItsTime(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	peer, _ := ca.issue("ecdsa", "gw.example")
	now := time.Now().Truncate(time.Second)
	for _, c := range []struct {
		name       string
		this, next time.Duration
		later      time.Duration
		want       string
	}{
		{"fresh", -time.Minute, time.Hour, 0, ""},
		{"of a clock that is a little ahead", time.Minute, time.Hour, 0, ""},
		{"of the future", time.Hour, 2 * time.Hour, 0, "not valid now"},
		{"that ends before it begins", time.Minute, -time.Minute, 0, "never valid"},
		{"over", -2 * time.Hour, -time.Hour, 0, "not valid now"},
		{"for years, and old", -30 * 24 * time.Hour, 10 * 365 * 24 * time.Hour, 0, "not valid now"},
		{"for years, and new", -time.Hour, 10 * 365 * 24 * time.Hour, 0, ""},
		{"without nextUpdate", -time.Second, 0, 0, ""},
		{"old, without nextUpdate", -time.Hour, 0, 0, "not valid now"},
	} {
		url, _ := ocspServer(t, ca.certificate, func(serial *big.Int) (ocsp.Response, crypto.Signer) {
			one := ocsp.Response{Status: ocsp.Good, SerialNumber: serial, ThisUpdate: now.Add(c.this)}
			if c.next != 0 {
				one.NextUpdate = now.Add(c.next)
			}
			return one, ca.key
		})
		a := ca.authority(true)
		a.responder = newResponder(url)
		_, err := verifyChain([]*Authority{a}, [][]byte{peer.Raw}, mustIdentity(t, "gw.example"), now)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("a response %s: %v", c.name, err)
		}
	}
}

// Attempts of peers are no way to send HTTP requests, nor to wait for a responder each time.
func TestAResponderThatFailsIsNotAskedEachTime(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	one, _ := ca.issue("ecdsa", "gw.example")
	other, _ := ca.issue("ecdsa", "gw.example")
	now := time.Now()
	try := func(a *Authority, c *smx509.Certificate, at time.Time, want string) {
		t.Helper()
		_, err := verifyChain([]*Authority{a}, [][]byte{c.Raw}, mustIdentity(t, "gw.example"), at)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Error(err)
		}
	}
	// A response that is worth nothing: for one certificate.
	status := ocsp.Good
	this := now.Add(-24 * time.Hour)
	url, asked := ocspServer(t, ca.certificate, func(serial *big.Int) (ocsp.Response, crypto.Signer) {
		return ocsp.Response{Status: status, SerialNumber: serial, ThisUpdate: this, NextUpdate: this.Add(12 * time.Hour)}, ca.key
	})
	a := ca.authority(true)
	a.responder = newResponder(url)
	for range 10 {
		try(a, one, now, "not valid now")
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the responder is asked %d times for one certificate", n)
	}
	this = now.Add(-time.Minute)
	try(a, other, now, "")
	try(a, one, now, "not valid now")
	try(a, one, now.Add(ocspFailed), "")
	// A valid response serves for a while, and not as long as it says.
	status = ocsp.Revoked
	for _, c := range []struct {
		at   time.Duration
		want int
	}{{ocspFresh / 2, ocsp.Good}, {2 * ocspFresh, ocsp.Revoked}} {
		if got, err := a.responder.status(one, ca.certificate, now.Add(c.at)); err != nil || got.Status != c.want {
			t.Errorf("after %v: %+v, %v", c.at, got, err)
		}
	}
	// No responder: for all certificates.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	a.responder = newResponder("http://" + listener.Addr().String())
	try(a, one, now, "does not answer")
	a.responder.client = &http.Client{Transport: refusing{t}}
	try(a, other, now, "does not answer")
}

// refusing is HTTP that must not be used.
type refusing struct{ t *testing.T }

func (r refusing) RoundTrip(*http.Request) (*http.Response, error) {
	r.t.Error("a responder that does not answer is asked again")
	return nil, http.ErrServerClosed
}

// Peers that come at once with one certificate wait for one request.
func TestAResponderIsAskedOnceAtATimeForACertificate(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	peer, _ := ca.issue("ecdsa", "gw.example")
	waiting := make(chan struct{})
	url, asked := ocspServer(t, ca.certificate, func(serial *big.Int) (ocsp.Response, crypto.Signer) {
		<-waiting
		return ocsp.Response{Status: ocsp.Good, SerialNumber: serial, ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour)}, ca.key
	})
	a := ca.authority(true)
	a.responder = newResponder(url)
	var group sync.WaitGroup
	for range 20 {
		group.Add(1)
		go func() {
			defer group.Done()
			if _, err := verifyChain([]*Authority{a}, [][]byte{peer.Raw}, mustIdentity(t, "gw.example"), time.Now()); err != nil {
				t.Error(err)
			}
		}()
	}
	close(waiting)
	group.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the responder is asked %d times", n)
	}
}

// The set of revoked certificates is part of a connection's credentials, on which a ticket of session resumption depends. A new list of the same set changes nothing.
func TestOnlyAnotherSetOfRevokedCertificatesIsAChange(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	later := time.Now().Add(time.Hour)
	first := ca.authority(false, ca.revoke(later, big.NewInt(7)))
	if again := ca.authority(false, ca.revoke(later.Add(time.Hour), big.NewInt(7))); !bytes.Equal(first.revocation(), again.revocation()) {
		t.Error("a new list of the same certificates is a change")
	}
	for name, other := range map[string]*Authority{"more": ca.authority(false, ca.revoke(later, big.NewInt(7), big.NewInt(8))), "none": ca.authority(false), "required": ca.authority(true, ca.revoke(later, big.NewInt(7)))} {
		if bytes.Equal(first.revocation(), other.revocation()) {
			t.Errorf("%s: no change", name)
		}
	}
}

// A list of changes says nothing about certificates that an earlier list has.
func TestAListOfSomeCertificatesIsNotTakenForAListOfAll(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	for name, oid := range map[string]asn1.ObjectIdentifier{"changes": {2, 5, 29, 27}, "some certificates": {2, 5, 29, 28}} {
		template := &x509.RevocationList{Number: big.NewInt(9), ThisUpdate: time.Now().Add(-time.Minute), NextUpdate: time.Now().Add(time.Hour),
			ExtraExtensions: []pkix.Extension{{Id: oid, Critical: true, Value: []byte{2, 1, 1}}}}
		der, err := smx509.CreateRevocationList(rand.Reader, template, ca.certificate, ca.key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parseList(der); err == nil || !strings.Contains(err.Error(), "critical extension") {
			t.Errorf("a list of %s: %v", name, err)
		}
	}
}
