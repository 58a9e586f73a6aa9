// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"sync"
	"time"

	"github.com/emmansun/gmsm/smx509"
)

// Lists of revoked certificates (RFC 5280 section 5). A list may be long: it is read without the lock of the service, and shared by the connections.

// The largest file of a list that is read.
const listLimit = 16 << 20

// revocationList is a list. Several goroutines may use it.
type revocationList struct {
	thisUpdate, nextUpdate time.Time
	// Since when certificates are revoked, by the bytes of the serial number without its sign; those of RFC 5280 have none.
	revoked map[string]time.Time
	// A hash of the issuer's name and of the certificates that are revoked.
	hash []byte

	mu   sync.Mutex
	list *smx509.RevocationList
	// Whether an issuer has signed the list, by its certificate: the signature of a long list takes time.
	signed map[string]bool
}

// Certificates of one name, for which the signature of a list is remembered.
const maxSigners = 64

// parseList reads a list from PEM or DER.
func parseList(b []byte) (*revocationList, error) {
	if block, _ := pem.Decode(b); block != nil {
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("holds %s, not a revocation list", pemName(block.Type))
		}
		b = block.Bytes
	} else if len(b) == 0 || b[0] != 0x30 {
		return nil, errors.New("neither PEM nor DER of a revocation list")
	}
	list, err := smx509.ParseRevocationList(b)
	if err != nil {
		return nil, err
	}
	for _, e := range list.Extensions {
		if e.Critical {
			// RFC 5280 section 5.2: a list of changes, or of some certificates only, says nothing about the others.
			return nil, fmt.Errorf("the list has the critical extension %s: only lists of all certificates of an authority are supported", e.Id)
		}
	}
	l := &revocationList{thisUpdate: list.ThisUpdate, nextUpdate: list.NextUpdate, revoked: make(map[string]time.Time, len(list.RevokedCertificateEntries)), list: list, signed: map[string]bool{}}
	h := sha256.New()
	fmt.Fprintf(h, "%x %d\n", list.RawIssuer, len(list.RevokedCertificateEntries))
	for _, entry := range list.RevokedCertificateEntries {
		l.revoked[string(entry.SerialNumber.Bytes())] = entry.RevocationTime
		fmt.Fprintln(h, entry.SerialNumber)
	}
	l.hash = h.Sum(nil)
	list.RevokedCertificateEntries = nil
	// It has them once more.
	list.RevokedCertificates = nil
	return l, nil
}

// of reports whether a list is one of an issuer, and signed by it.
func (l *revocationList) of(issuer *smx509.Certificate) bool {
	if !bytes.Equal(l.list.RawIssuer, issuer.RawSubject) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	signed, known := l.signed[string(issuer.Raw)]
	if !known {
		signed = l.list.CheckSignatureFrom(issuer) == nil
		if len(l.signed) >= maxSigners {
			clear(l.signed)
		}
		l.signed[string(issuer.Raw)] = signed
	}
	return signed
}

// has reports whether a certificate is on a list; nil: there is no list.
func (l *revocationList) has(serial *big.Int) bool {
	if l == nil {
		return false
	}
	_, is := l.revoked[string(serial.Bytes())]
	return is
}

// listFile is a file of a list as it was read.
type listFile struct {
	stamp string
	list  *revocationList
	err   error
}

func readList(path string) *listFile {
	f := &listFile{stamp: stamp(path)}
	b, err := readFile(path, listLimit)
	if err == nil {
		f.list, err = parseList(b)
	}
	f.err = err
	return f
}

// list returns the list of a file, which is read if it has changed since loadLists. s.mu is held.
func (s *serving) list(path string) (*revocationList, error) {
	f := s.lists[path]
	if f == nil || f.stamp != stamp(path) {
		f = readList(path)
		s.lists[path] = f
	}
	s.files[path] = f.stamp
	return f.list, f.err
}

// loadLists reads the lists of all authorities, and of the one that changes, that have changed. s.mu is not held: it may take a while.
func (s *serving) loadLists(more ...string) {
	known := map[string]string{}
	s.mu.Lock()
	for _, path := range more {
		known[path] = ""
	}
	for _, a := range s.authorities {
		for _, path := range a.GetRevocationListFiles() {
			known[path] = ""
		}
	}
	for path, f := range s.lists {
		if _, used := known[path]; used {
			known[path] = f.stamp
		} else {
			delete(s.lists, path)
		}
	}
	s.mu.Unlock()
	loaded := map[string]*listFile{}
	for path, before := range known {
		if before == "" || before != stamp(path) {
			loaded[path] = readList(path)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.lists, loaded)
}
