// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/emmansun/gmsm/sm2"
	"github.com/emmansun/gmsm/smx509"
	"golang.org/x/crypto/ocsp"

	"sluice.dev/sluice/agent/ike/message"
)

// files remembers which files were read, and how they were then.
type files map[string]string

// The largest file of certificates or of a key that is read.
const fileLimit = 1 << 20

func stamp(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %v", info.Size(), info.ModTime())
}

// read reads a file of certificates or of a key.
func (f files) read(path string) (string, error) {
	f[path] = stamp(path)
	b, err := readFile(path, fileLimit)
	return string(b), err
}

// readFile reads a regular file of at most so many bytes.
func readFile(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > limit {
		return nil, fmt.Errorf("%s: not a file of at most %d bytes", path, limit)
	}
	return os.ReadFile(path)
}

// changed reports whether a file has changed since it was read.
func (f files) changed() bool {
	for path, before := range f {
		if stamp(path) != before {
			return true
		}
	}
	return false
}

// Authority is a certificate authority that is trusted for peers.
type Authority struct {
	certificate *smx509.Certificate
	lists       []*revocationList
	// A certificate without a list in force, or an answer of the responder, is refused.
	required bool
	// Nil: none is asked.
	responder *responder
}

// ParseAuthority reads an authority from PEM.
func ParseAuthority(certificate string, lists []*revocationList, required bool) (*Authority, error) {
	block, _ := pem.Decode([]byte(certificate))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("certificateFile is not PEM of a certificate")
	}
	c, err := smx509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificateFile: %w", err)
	}
	// A certificate of X.509 version 1 has no basic constraints.
	if c.Version >= 3 && !(c.BasicConstraintsValid && c.IsCA) {
		return nil, fmt.Errorf("certificateFile: the certificate of %q is not that of an authority (CA:TRUE): name the one of %q, which issued it", c.Subject.String(), c.Issuer.String())
	}
	return &Authority{certificate: c, lists: lists, required: required}, nil
}

// keyHash identifies an authority in CERTREQ: the SHA-1 hash of its public key.
func (a *Authority) keyHash() []byte {
	sum := sha1.Sum(a.certificate.RawSubjectPublicKeyInfo)
	return sum[:]
}

// revocation is a hash of which certificates are revoked, and of whether that has to be known.
func (a *Authority) revocation() []byte {
	h := sha256.New()
	fmt.Fprintln(h, a.required, a.responder != nil)
	for _, list := range a.lists {
		h.Write(list.hash)
	}
	return h.Sum(nil)
}

// Bounds of the chain that a peer sends, whose signatures cost time before the peer is authenticated.
const (
	// Certificates between that of the peer and its authority.
	maxBetween = 4
	maxRSABits = 4096
)

// trusted is a chain of certificates that ends at an authority, for the identity of its owner.
type trusted struct {
	key crypto.PublicKey
	// The name of the certificate that is the identity, as the certificate has it, and all of its names.
	name  string
	names []string
	// Each way to an authority.
	chains [][]*smx509.Certificate
}

// verifyChain checks a chain of certificates, the peer's first, and that it is for an identity. It returns the peer's public key.
func verifyChain(authorities []*Authority, chain [][]byte, id Identity, now time.Time) (crypto.PublicKey, error) {
	t, err := trust(authorities, chain, id, now)
	if err == nil {
		err = t.inForce(authorities, now)
	}
	if err != nil {
		return nil, err
	}
	return t.key, nil
}

// short returns an error if the key of a certificate of a peer costs too much time.
func short(c *smx509.Certificate) error {
	if public, is := c.PublicKey.(*rsa.PublicKey); is && public.N.BitLen() > maxRSABits {
		return fmt.Errorf("the certificate of %q has an RSA key of %d bits: at most %d are accepted", printable(c.Subject.String()), public.N.BitLen(), maxRSABits)
	}
	return nil
}

// trust checks a chain of certificates, and that it is for an identity, except whether it is revoked. It only computes.
func trust(authorities []*Authority, chain [][]byte, id Identity, now time.Time) (*trusted, error) {
	if len(chain) == 0 {
		return nil, errors.New("the peer sends no certificate")
	}
	if len(chain) > 1+maxBetween {
		return nil, fmt.Errorf("the peer sends more certificates than its own and %d between it and its authority", maxBetween)
	}
	roots, between := smx509.NewCertPool(), smx509.NewCertPool()
	for _, a := range authorities {
		roots.AddCert(a.certificate)
	}
	leaf, err := smx509.ParseCertificate(chain[0])
	if err != nil {
		return nil, err
	}
	if err := short(leaf); err != nil {
		return nil, err
	}
	if leaf.KeyUsage != 0 && leaf.KeyUsage&(x509.KeyUsageDigitalSignature|x509.KeyUsageContentCommitment) == 0 {
		return nil, errors.New("the certificate is not for signatures")
	}
	t := &trusted{key: leaf.PublicKey, names: namesOf(leaf)}
	if t.name, err = nameOf(leaf, id); err != nil {
		return nil, err
	}
	// Certificates of one name, key and issuer are one authority: otherwise a few of them make many chains.
	same := map[string]bool{}
	var over error
	for _, der := range chain[1:] {
		c, err := smx509.ParseCertificate(der)
		if err != nil {
			continue
		}
		if err := short(c); err != nil {
			return nil, err
		}
		key := string(slices.Concat(c.RawSubject, c.RawIssuer, c.RawSubjectPublicKeyInfo))
		if now.Before(c.NotBefore) || now.After(c.NotAfter) {
			over = fmt.Errorf("the certificate of %q has expired or is not yet valid", printable(c.Subject.String()))
			continue
		}
		if same[key] {
			continue
		}
		same[key] = true
		between.AddCert(c)
	}
	t.chains, err = leaf.Verify(smx509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []smx509.ExtKeyUsage{smx509.ExtKeyUsageAny}})
	if err != nil {
		return nil, errors.Join(err, over)
	}
	return t, nil
}

// inForce returns an error if each way to an authority has a certificate that is revoked. It may ask responders.
func (t *trusted) inForce(authorities []*Authority, now time.Time) (err error) {
	// One chain without a revoked certificate is enough.
	for _, one := range t.chains {
		if err = revoked(authorities, one, now); err == nil {
			return nil
		}
	}
	return err
}

// namesOf are the e-mail addresses, the DNS names and the subject of a certificate.
func namesOf(c *smx509.Certificate) []string {
	return append(slices.Concat(c.EmailAddresses, c.DNSNames), Identity{message.IDDN, string(c.RawSubject)}.String())
}

// nameOf returns the name of a certificate that is an identity, as the certificate has it, or an error if the certificate is not for that identity
// (RFC 7296 section 3.5, RFC 4945 section 3.1).
func nameOf(c *smx509.Certificate, id Identity) (string, error) {
	switch id.Kind {
	case message.IDDN:
		if sameName([]byte(id.Data), c.RawSubject) {
			return Identity{message.IDDN, string(c.RawSubject)}.String(), nil
		}
	case message.IDFQDN:
		for _, name := range c.DNSNames {
			if strings.EqualFold(name, id.Data) {
				return name, nil
			}
		}
	case message.IDEmail:
		for _, name := range c.EmailAddresses {
			if strings.EqualFold(name, id.Data) {
				return name, nil
			}
		}
	case message.IDIPv4, message.IDIPv6:
		for _, ip := range c.IPAddresses {
			a, _ := netip.AddrFromSlice(ip)
			b, _ := netip.AddrFromSlice([]byte(id.Data))
			if a.Unmap() == b {
				return b.String(), nil
			}
		}
	case message.IDKey:
		if bytes.Equal(c.SubjectKeyId, []byte(id.Data)) {
			return id.String(), nil
		}
	}
	return "", fmt.Errorf("the certificate of %q is not for %s", printable(c.Subject.String()), id)
}

// revoked returns an error if a certificate of a chain is revoked (RFC 5280 section 6.3).
func revoked(authorities []*Authority, chain []*smx509.Certificate, now time.Time) error {
	for i := 0; i+1 < len(chain); i++ {
		c, issuer := chain[i], chain[i+1]
		var newest, early *revocationList
		var said *ocsp.Response
		required := false
		var silent error
		for _, a := range authorities {
			required = required || a.required && a.certificate.Equal(chain[len(chain)-1])
			for _, list := range a.lists {
				switch {
				case !list.of(issuer):
				case list.thisUpdate.After(now.Add(clockSkew)):
					early = list
				case newest == nil || list.thisUpdate.After(newest.thisUpdate):
					newest = list
				}
			}
		}
		for _, a := range authorities {
			if a.responder != nil && said == nil && a.certificate.Equal(chain[len(chain)-1]) {
				said, silent = a.responder.status(c, issuer, now)
			}
			if said != nil && said.Certificate != nil && newest.has(said.Certificate.SerialNumber) {
				said, silent = nil, fmt.Errorf("the OCSP response is signed by %q, whose certificate was revoked", said.Certificate.Subject.String())
			}
		}
		switch {
		case said != nil && said.Status == ocsp.Good:
			continue
		case said != nil:
			return fmt.Errorf("the certificate of %q was revoked, says the OCSP responder", c.Subject.String())
		}
		if newest == nil && early != nil {
			return fmt.Errorf("the revocation list of %q is of the future: its thisUpdate is %s", issuer.Subject.String(), early.thisUpdate.UTC().Format(time.RFC3339))
		}
		if newest == nil || now.After(newest.nextUpdate) && !newest.nextUpdate.IsZero() {
			if required {
				return errors.Join(fmt.Errorf("%q has no revocation list in force", issuer.Subject.String()), silent)
			}
		}
		if newest.has(c.SerialNumber) {
			return fmt.Errorf("the certificate of %q was revoked on %s", c.Subject.String(), newest.revoked[string(c.SerialNumber.Bytes())].UTC().Format(time.DateOnly))
		}
	}
	return nil
}

// ParseCredential reads a certificate with its chain and its private key from PEM.
func ParseCredential(certificate, key string, pss bool) (*Credential, error) {
	c := &Credential{PSS: pss}
	for rest := []byte(certificate); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			c.Chain = append(c.Chain, block.Bytes)
		}
	}
	if len(c.Chain) == 0 {
		return nil, errors.New("certificateFile is not PEM of a certificate")
	}
	leaf, err := smx509.ParseCertificate(c.Chain[0])
	if err != nil {
		return nil, fmt.Errorf("certificateFile: %w", err)
	}
	c.Subject = Identity{message.IDDN, string(leaf.RawSubject)}
	block, _ := pem.Decode([]byte(key))
	for rest := []byte(key); block != nil && block.Type == "EC PARAMETERS"; {
		block, rest = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("privateKeyFile is not PEM")
	}
	var parsed any
	switch block.Type {
	case "RSA PRIVATE KEY":
		parsed, err = smx509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		parsed, err = smx509.ParseTypedECPrivateKey(block.Bytes)
	default:
		parsed, err = smx509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("privateKeyFile: %w", err)
	}
	// A key on the curve of SM2 signs as SM2 does.
	if ec, is := parsed.(*ecdsa.PrivateKey); is && sm2.IsSM2PublicKey(&ec.PublicKey) {
		parsed, err = new(sm2.PrivateKey).FromECPrivateKey(ec)
		if err != nil {
			return nil, fmt.Errorf("privateKeyFile: %w", err)
		}
	}
	signer, is := parsed.(crypto.Signer)
	if !is {
		return nil, fmt.Errorf("privateKeyFile: a key of type %T does not sign", parsed)
	}
	public, comparable := signer.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !comparable || !public.Equal(leaf.PublicKey) {
		return nil, errors.New("privateKeyFile is not the key of the certificate")
	}
	c.Key = signer
	return c, nil
}
