// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/emmansun/gmsm/smx509"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// Files of credentials and authorities: texts that name field and path, and conditions of IkeCredential and IkeAuthority.

// Contents of files: the type of the PEM block, and its usual name.
const (
	pemCertificate = "CERTIFICATE"
	pemKey         = "PRIVATE KEY"
)

var pemNames = map[string]string{pemCertificate: "a certificate", pemKey: "a private key", "X509 CRL": "a revocation list", "CERTIFICATE REQUEST": "a certificate request",
	"NEW CERTIFICATE REQUEST": "a certificate request", "PUBLIC KEY": "a public key", "ENCRYPTED PRIVATE KEY": "an encrypted private key"}

// readField reads the file of a field and checks that it holds PEM of a kind.
func readField(read func(path string) (string, error), field, path, kind string) (string, error) {
	if path == "" {
		return "", errors.New(field + " is missing")
	}
	text, err := read(path)
	if err != nil {
		if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
			return "", fmt.Errorf("%s %s: %w", field, path, failed.Err)
		}
		return "", fmt.Errorf("%s %w", field, err)
	}
	rest, first := []byte(text), ""
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == kind || kind == pemKey && block.Type != "ENCRYPTED PRIVATE KEY" && strings.HasSuffix(block.Type, pemKey) {
			return text, nil
		}
		if first == "" && block.Type != "EC PARAMETERS" {
			first = block.Type
		}
	}
	if first == "" {
		return "", fmt.Errorf("%s %s: is not PEM", field, path)
	}
	return "", fmt.Errorf("%s %s: holds %s, not %s", field, path, pemName(first), pemNames[kind])
}

// pemName is how people call a type of PEM.
func pemName(kind string) string {
	switch name := pemNames[kind]; {
	case name != "":
		return name
	case strings.HasSuffix(kind, pemKey):
		return pemNames[pemKey]
	}
	return fmt.Sprintf("PEM of %q", printable(kind))
}

// located names the file in an error that begins with a field.
func located(err error, paths map[string]string) error {
	if err == nil {
		return nil
	}
	for field, path := range paths {
		if rest, is := strings.CutPrefix(err.Error(), field); is && path != "" {
			return errors.New(field + " " + path + ":" + strings.TrimPrefix(rest, ":"))
		}
	}
	return err
}

// certificateOf reads the certificate of a credential with its private key; nil: it has none.
func certificateOf(name string, spec *api.IkeCredential, read func(path string) (string, error)) (*Credential, error) {
	if spec.GetCertificateFile() == "" {
		return nil, nil
	}
	c, err := func() (*Credential, error) {
		certificate, err := readField(read, "certificateFile", spec.GetCertificateFile(), pemCertificate)
		if err != nil {
			return nil, err
		}
		key, err := readField(read, "privateKeyFile", spec.GetPrivateKeyFile(), pemKey)
		if err != nil {
			return nil, err
		}
		c, err := ParseCredential(certificate, key, spec.GetRsaPss())
		return c, located(err, map[string]string{"certificateFile": spec.GetCertificateFile(), "privateKeyFile": spec.GetPrivateKeyFile()})
	}()
	if err != nil {
		return nil, fmt.Errorf("IkeCredential/%s: %w", name, err)
	}
	c.From = fmt.Sprintf("IkeCredential/%s: certificateFile %s", name, spec.GetCertificateFile())
	return c, nil
}

// authority reads an authority. s.mu is held.
func (s *serving) authority(name string, spec *api.IkeAuthority) (*Authority, error) {
	a, err := func() (*Authority, error) {
		certificate, err := readField(s.files.read, "certificateFile", spec.GetCertificateFile(), pemCertificate)
		if err != nil {
			return nil, err
		}
		var lists []*revocationList
		for i, path := range spec.GetRevocationListFiles() {
			list, err := s.list(path)
			if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
				err = failed.Err
			}
			if err != nil {
				return nil, fmt.Errorf("revocationListFiles[%d] %s: %w", i, path, err)
			}
			lists = append(lists, list)
		}
		a, err := ParseAuthority(certificate, lists, spec.GetRevocation() == api.IkeRevocation_REQUIRED)
		return a, located(err, map[string]string{"certificateFile": spec.GetCertificateFile()})
	}()
	if err != nil {
		return nil, fmt.Errorf("IkeAuthority/%s: %w", name, err)
	}
	if spec.GetOcsp() {
		// The response of a responder outlives a change of the configuration.
		if s.responders[spec.GetOcspUrl()] == nil {
			s.responders[spec.GetOcspUrl()] = newResponder(spec.GetOcspUrl())
		}
		a.responder = s.responders[spec.GetOcspUrl()]
	}
	return a, nil
}

// material is what the files of an object have.
type material struct {
	// Why they cannot be used; nil: they can.
	err error
	// Of its certificate, which is in this file.
	valid       validity
	certificate *smx509.Certificate
	path        string
	// The present fault.
	shown intent.NotReady
}

// readMaterial reads the files of a credential or an authority for its condition; spec nil: it is gone. s.mu is held.
func (s *serving) readMaterial(k object.Key, now time.Time) {
	if !s.synced {
		return // Synced does it
	}
	m := &material{}
	if before := s.materials[k]; before != nil {
		m.shown = before.shown
	}
	var certificate *smx509.Certificate
	if k.Kind == "IkeCredential" {
		spec := s.credentials[k.Name]
		if spec.GetCertificateFile() == "" {
			delete(s.materials, k)
			return
		}
		var c *Credential
		if c, m.err = certificateOf(k.Name, spec, s.files.read); c != nil {
			certificate, _ = smx509.ParseCertificate(c.Chain[0]) // ParseCredential has read it
		}
		m.path = spec.GetCertificateFile()
	} else {
		spec := s.authorities[k.Name]
		if spec == nil {
			delete(s.materials, k)
			return
		}
		var a *Authority
		if a, m.err = s.authority(k.Name, spec); a != nil {
			certificate = a.certificate
		}
		m.path = spec.GetCertificateFile()
	}
	if certificate != nil {
		m.certificate, m.valid = certificate, validity{certificate.NotBefore, certificate.NotAfter}
	}
	s.materials[k] = m
	s.judge(k, now)
}

// judge sets the condition of a credential or an authority. s.mu is held.
func (s *serving) judge(k object.Key, now time.Time) {
	m, why := s.materials[k], intent.NotReady{}
	switch fault := m.valid.fault(now); {
	case m.err != nil:
		why = intent.NotReady{Reason: notConfigured, Message: strings.TrimPrefix(m.err.Error(), k.String()+": ")}
	case fault != "":
		why = intent.NotReady{Reason: invalidCertificate, Message: "certificateFile " + m.path + ": " + fault}
	}
	if why.Reason == m.shown.Reason && why.Message == m.shown.Message {
		return
	}
	why.Since = now
	m.shown = why
	switch {
	case why.Reason != "":
		s.Log.Warn("a certificate or key of IKE cannot be used", "kind", k.Kind, "name", k.Name, "why", why.Message)
	default:
		s.Log.Info("the certificates and keys of an object of IKE can be used", "kind", k.Kind, "name", k.Name)
	}
	if s.Intent != nil {
		s.later = append(s.later, func() { s.Intent.Touched(k) })
	}
}

// readMaterials reads the files of all credentials and authorities. s.mu is held.
func (s *serving) readMaterials(now time.Time) {
	for name := range s.credentials {
		s.readMaterial(object.Key{Kind: "IkeCredential", Name: name}, now)
	}
	for name := range s.authorities {
		s.readMaterial(object.Key{Kind: "IkeAuthority", Name: name}, now)
	}
}

// judgeMaterials looks for certificates that have expired, or are valid now. Those connections are configured anew. s.mu is held.
func (s *serving) judgeMaterials(now time.Time) (actions []Action) {
	for _, k := range slices.SortedFunc(maps.Keys(s.materials), object.Key.Compare) {
		before := s.materials[k].shown
		if s.judge(k, now); before != s.materials[k].shown && k.Kind == "IkeCredential" {
			actions = append(actions, s.refresh(now, func(spec *api.IkeConnection) bool { return spec.GetCredential() == k.Name })...)
		}
	}
	return actions
}

// contents answers IkeCredentialStatesQuery.
func (q query) contents(_ context.Context, asked *api.IkeCredentialStatesQuery) (*api.IkeCredentialStates, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	set := func(text string) string {
		if text == "" {
			return "not set"
		}
		return "set"
	}
	answer := &api.IkeCredentialStates{}
	for _, name := range slices.Sorted(maps.Keys(q.credentials)) {
		if asked.GetCredential() != "" && asked.GetCredential() != name {
			continue
		}
		c := q.credentials[name]
		one := &api.IkeCredentialState{Credential: name, SharedKey: set(c.GetSharedKey()), Ppk: set(c.GetPpk())}
		if m := q.materials[object.Key{Kind: "IkeCredential", Name: name}]; m != nil && m.certificate != nil {
			one.Identities, one.Issuer = certified(m.certificate), Identity{message.IDDN, string(m.certificate.RawIssuer)}.String()
			one.Expires = nanoseconds(m.valid.to)
		}
		answer.Credentials = append(answer.Credentials, one)
	}
	return answer, nil
}
