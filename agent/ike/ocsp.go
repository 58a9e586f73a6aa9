// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/emmansun/gmsm/smx509"
	"golang.org/x/crypto/ocsp"
)

// OCSP (RFC 6960) over HTTP: whether a certificate is revoked, by the responder of its authority.

const (
	ocspTimeout = 2 * time.Second
	// Validity of a response without nextUpdate: newer ones are there at any time (RFC 6960 section 4.2.2.1).
	ocspAgain = time.Minute
	// A response serves that long at most, whatever its nextUpdate is.
	ocspOldest = 7 * 24 * time.Hour
	// The responder is asked again, although its last response is still valid.
	ocspFresh = time.Hour
	// A responder that gave no valid response for a certificate is not asked for it again, and one that cannot be reached not for any.
	ocspFailed = 15 * time.Second
	ocspLimit  = 64 << 10
	ocspCache  = 65536
	// Requests that wait for responders.
	ocspAtOnce = 64
	// The clock of an issuer may be ahead of ours.
	clockSkew = 5 * time.Minute
)

// errResponder: a responder cannot be reached, or has no response.
var errResponder = errors.New("the OCSP responder does not answer")

// responder asks the OCSP responders of an authority's certificates. Several goroutines may use it.
type responder struct {
	// Replaces the URLs in certificates; empty: it does not.
	url    string
	client *http.Client
	places chan struct{}
	mu     sync.Mutex
	known  map[string]*ocspEntry
	// Until when a URL is not asked, and why.
	down map[string]failedUntil
}

type failedUntil struct {
	until time.Time
	err   error
}

// ocspEntry is the response for a certificate, or the reason why there is none. The fields behind ready are constant once it is closed.
type ocspEntry struct {
	ready  chan struct{}
	answer *ocsp.Response
	err    error
	until  time.Time
}

func newResponder(url string) *responder {
	return &responder{url: url, client: &http.Client{Timeout: ocspTimeout}, places: make(chan struct{}, ocspAtOnce), known: map[string]*ocspEntry{}, down: map[string]failedUntil{}}
}

// status returns the response for a certificate, whose status is ocsp.Good or ocsp.Revoked, or an error: the responder does not know it, or gives no
// valid response.
func (r *responder) status(c, issuer *smx509.Certificate, now time.Time) (*ocsp.Response, error) {
	answer, err := r.response(c, issuer, now)
	if err != nil {
		return nil, err
	}
	if answer.Status != ocsp.Good && answer.Status != ocsp.Revoked {
		return nil, fmt.Errorf("the OCSP responder does not know the certificate of %q", c.Subject.String())
	}
	return answer, nil
}

// response is the last response for a certificate, or a new one. Several callers for one certificate wait for one request.
func (r *responder) response(c, issuer *smx509.Certificate, now time.Time) (*ocsp.Response, error) {
	key := string(issuer.RawSubjectPublicKeyInfo) + string(issuer.RawSubject) + c.SerialNumber.String()
	r.mu.Lock()
	e := r.known[key]
	if e != nil {
		select {
		case <-e.ready:
			if !now.Before(e.until) {
				e = nil
			}
		default:
		}
	}
	if e != nil {
		r.mu.Unlock()
		<-e.ready
		return e.answer, e.err
	}
	if len(r.known) >= ocspCache {
		clear(r.known)
	}
	e = &ocspEntry{ready: make(chan struct{})}
	r.known[key] = e
	r.mu.Unlock()
	defer close(e.ready)
	if e.answer, e.err = r.ask(c, issuer, now); e.err == nil {
		e.err = validAt(e.answer, issuer, now)
	}
	if e.until = now.Add(ocspFailed); e.err == nil {
		e.until = now.Add(ocspFresh)
		if until := validUntil(e.answer); until.Before(e.until) {
			e.until = until
		}
	} else {
		e.answer = nil
	}
	return e.answer, e.err
}

// validAt returns an error if a response is not valid at a time, or if its signer may not answer for the authority.
func validAt(answer *ocsp.Response, issuer *smx509.Certificate, now time.Time) error {
	if !answer.NextUpdate.IsZero() && answer.NextUpdate.Before(answer.ThisUpdate) {
		return fmt.Errorf("the OCSP response is never valid: its nextUpdate %s is before its thisUpdate", answer.NextUpdate.UTC().Format(time.RFC3339))
	}
	if until := validUntil(answer); now.Add(clockSkew).Before(answer.ThisUpdate) || !now.Before(until) {
		return fmt.Errorf("the OCSP response is not valid now: it is valid from %s until %s", answer.ThisUpdate.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
	}
	return maySign(answer.Certificate, issuer, now)
}

// maySign returns an error unless the signer of a response is the issuer of the certificate, or one to whom the issuer has delegated it (RFC 6960 section
// 4.2.2.2). signer: the certificate of the response, of which the signature by the issuer's key has been checked; nil: the issuer has signed itself.
func maySign(signer *x509.Certificate, issuer *smx509.Certificate, now time.Time) error {
	if signer == nil || bytes.Equal(signer.RawSubject, issuer.RawSubject) && bytes.Equal(signer.RawSubjectPublicKeyInfo, issuer.RawSubjectPublicKeyInfo) {
		return nil
	}
	name := signer.Subject.String()
	switch {
	case !bytes.Equal(signer.RawIssuer, issuer.RawSubject):
		return fmt.Errorf("the OCSP response is signed by %q, whose certificate is not issued by %q", name, issuer.Subject.String())
	case !slices.Contains(signer.ExtKeyUsage, x509.ExtKeyUsageOCSPSigning):
		return fmt.Errorf("the OCSP response is signed by %q, whose certificate has not the extended key usage OCSPSigning", name)
	case signer.KeyUsage != 0 && signer.KeyUsage&(x509.KeyUsageDigitalSignature|x509.KeyUsageContentCommitment) == 0:
		return fmt.Errorf("the OCSP response is signed by %q, whose certificate is not for signatures", name)
	case now.Before(signer.NotBefore) || now.After(signer.NotAfter):
		return fmt.Errorf("the OCSP response is signed by %q, whose certificate is not valid now", name)
	}
	return nil
}

func validUntil(answer *ocsp.Response) time.Time {
	if answer.NextUpdate.IsZero() {
		return answer.ThisUpdate.Add(ocspAgain)
	}
	if oldest := answer.ThisUpdate.Add(ocspOldest); oldest.Before(answer.NextUpdate) {
		return oldest
	}
	return answer.NextUpdate
}

// ask sends a request, unless the responder did not answer the last one.
func (r *responder) ask(c, issuer *smx509.Certificate, now time.Time) (*ocsp.Response, error) {
	url := r.url
	if url == "" && len(c.OCSPServer) > 0 {
		url = c.OCSPServer[0]
	}
	if url == "" {
		return nil, fmt.Errorf("the certificate of %q names no OCSP responder", c.Subject.String())
	}
	r.mu.Lock()
	failed := r.down[url]
	r.mu.Unlock()
	if now.Before(failed.until) {
		return nil, failed.err
	}
	answer, err := r.post(url, c, issuer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, errResponder) {
		if len(r.down) >= ocspCache {
			clear(r.down)
		}
		r.down[url] = failedUntil{now.Add(ocspFailed), err}
	} else {
		delete(r.down, url)
	}
	return answer, err
}

// post is one request and its response.
func (r *responder) post(url string, c, issuer *smx509.Certificate) (*ocsp.Response, error) {
	request, err := ocsp.CreateRequest(c.ToX509(), issuer.ToX509(), nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), ocspTimeout)
	defer cancel()
	select {
	case r.places <- struct{}{}:
		defer func() { <-r.places }()
	case <-ctx.Done():
		return nil, errors.New("too many OCSP requests wait for responders")
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	post.Header.Set("Content-Type", "application/ocsp-request")
	reply, err := r.client.Do(post)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errResponder, err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, ocspLimit))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errResponder, err)
	}
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the OCSP responder %s answers %s", url, reply.Status)
	}
	answer, err := ocsp.ParseResponseForCert(body, c.ToX509(), issuer.ToX509())
	if err != nil {
		return nil, fmt.Errorf("the OCSP responder %s: %w", url, err)
	}
	if !isFor(answer, issuer) {
		return nil, fmt.Errorf("the OCSP responder %s answers for a certificate of another issuer", url)
	}
	return answer, nil
}

// isFor reports whether a response, which has the right serial number, is for a certificate of an issuer (RFC 6960 section 4.2.1).
func isFor(answer *ocsp.Response, issuer *smx509.Certificate) bool {
	var all struct {
		Version    int `asn1:"optional,default:0,explicit,tag:0"`
		Responder  asn1.RawValue
		ProducedAt time.Time `asn1:"generalized"`
		Responses  []struct {
			ID struct {
				Hash      pkix.AlgorithmIdentifier
				Name, Key []byte
				Serial    *big.Int
			}
		}
	}
	var info struct {
		Algorithm pkix.AlgorithmIdentifier
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(answer.TBSResponseData, &all); err != nil {
		return false
	}
	if _, err := asn1.Unmarshal(issuer.RawSubjectPublicKeyInfo, &info); err != nil {
		return false
	}
	for _, one := range all.Responses {
		// The first one with the serial number counts.
		if one.ID.Serial != nil && one.ID.Serial.Cmp(answer.SerialNumber) == 0 {
			return bytes.Equal(one.ID.Name, digest(answer.IssuerHash, issuer.RawSubject)) && bytes.Equal(one.ID.Key, digest(answer.IssuerHash, info.Key.RightAlign()))
		}
	}
	return false
}
