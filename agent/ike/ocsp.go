// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/emmansun/gmsm/smx509"
	"golang.org/x/crypto/ocsp"
)

// OCSP (RFC 6960) over HTTP: whether a certificate is revoked, by the responder of its authority.

const (
	ocspTimeout = 2 * time.Second
	// Validity of a response without nextUpdate.
	ocspAgain = time.Minute
	ocspLimit = 64 << 10
	ocspCache = 65536
)

// responder asks the OCSP responders of an authority's certificates. Several goroutines may use it.
type responder struct {
	// Replaces the URLs in certificates; empty: it does not.
	url    string
	client *http.Client
	mu     sync.Mutex
	known  map[string]*ocsp.Response
}

func newResponder(url string) *responder {
	return &responder{url: url, client: &http.Client{Timeout: ocspTimeout}, known: map[string]*ocsp.Response{}}
}

// status returns the status of a certificate, ocsp.Good or ocsp.Revoked, or an error: the responder does not know it, or gives no valid response.
func (r *responder) status(c, issuer *smx509.Certificate, now time.Time) (int, error) {
	key := issuer.Subject.String() + "\x00" + c.SerialNumber.String()
	r.mu.Lock()
	answer := r.known[key]
	r.mu.Unlock()
	if answer == nil || now.After(validUntil(answer)) {
		var err error
		if answer, err = r.ask(c, issuer); err != nil {
			return ocsp.Unknown, err
		}
		if now.Before(answer.ThisUpdate.Add(-ocspAgain)) || now.After(validUntil(answer)) {
			return ocsp.Unknown, fmt.Errorf("the OCSP response is not valid now: it is valid from %s", answer.ThisUpdate.UTC().Format(time.RFC3339))
		}
		r.mu.Lock()
		if len(r.known) >= ocspCache {
			clear(r.known)
		}
		r.known[key] = answer
		r.mu.Unlock()
	}
	if answer.Status != ocsp.Good && answer.Status != ocsp.Revoked {
		return ocsp.Unknown, fmt.Errorf("the OCSP responder does not know the certificate of %q", c.Subject.String())
	}
	return answer.Status, nil
}

func validUntil(answer *ocsp.Response) time.Time {
	if answer.NextUpdate.IsZero() {
		return answer.ThisUpdate.Add(ocspAgain)
	}
	return answer.NextUpdate
}

func (r *responder) ask(c, issuer *smx509.Certificate) (*ocsp.Response, error) {
	url := r.url
	if url == "" && len(c.OCSPServer) > 0 {
		url = c.OCSPServer[0]
	}
	if url == "" {
		return nil, fmt.Errorf("the certificate of %q names no OCSP responder", c.Subject.String())
	}
	request, err := ocsp.CreateRequest(c.ToX509(), issuer.ToX509(), nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), ocspTimeout)
	defer cancel()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	post.Header.Set("Content-Type", "application/ocsp-request")
	reply, err := r.client.Do(post)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, ocspLimit))
	if err != nil {
		return nil, err
	}
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the OCSP responder %s answers %s", url, reply.Status)
	}
	answer, err := ocsp.ParseResponseForCert(body, c.ToX509(), issuer.ToX509())
	if err != nil {
		return nil, fmt.Errorf("the OCSP responder %s: %w", url, err)
	}
	return answer, nil
}
