// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/service"
)

// A file of a list is PEM or DER, and may be long.
func TestAListOfManyCertificatesIsReadInEitherForm(t *testing.T) {
	ca, directory := newIssuer(t, "ecdsa", "CA", nil), t.TempDir()
	peer, _ := ca.issue("ecdsa", "gw.example")
	var serials []*big.Int
	for i := range int64(40000) {
		serials = append(serials, new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 120), big.NewInt(i)))
	}
	text := ca.revoke(time.Now().Add(time.Hour), append(serials, peer.SerialNumber)...)
	block, _ := pem.Decode([]byte(text))
	if len(block.Bytes) <= fileLimit {
		t.Fatalf("the list has only %d bytes", len(block.Bytes))
	}
	write := func(name string, content []byte) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	certificate := write("ca.pem", []byte(pemOf(ca.certificate)))
	for _, c := range []struct {
		name    string
		content []byte
		problem string
	}{
		{"PEM", []byte(text), ""},
		{"PEM behind text", append([]byte("the list of today\n"), text...), ""},
		{"DER", block.Bytes, ""},
		{"half of DER", block.Bytes[:len(block.Bytes)/2], "revocationListFiles[0]"},
		{"PEM of a certificate", []byte(pemOf(ca.certificate)), "holds a certificate, not a revocation list"},
		{"nothing", nil, "neither PEM nor DER"},
		{"too long", make([]byte, listLimit+1), "at most 16777216 bytes"},
	} {
		s := emptyServing(t)
		path := write("ca.crl", c.content)
		spec := &api.IkeAuthority{CertificateFile: certificate, RevocationListFiles: []string{path}}
		s.Follow(service.Change{Key: object.Key{Kind: "IkeAuthority", Name: "ca"}, Object: &object.Object{Kind: "IkeAuthority", Name: "ca", Spec: spec}})
		if s.lists[path] == nil {
			t.Errorf("%s: the list is not read before the lock", c.name)
		}
		a, err := s.authority("ca", spec)
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil {
			continue
		}
		if again, err := s.authority("ca", spec); err != nil || again.lists[0] != a.lists[0] {
			t.Errorf("%s: connections do not share the list: %v", c.name, err)
		}
		if _, err := verifyChain([]*Authority{a}, [][]byte{peer.Raw}, mustIdentity(t, "gw.example"), time.Now()); err == nil || !strings.Contains(err.Error(), "was revoked") {
			t.Errorf("%s: %v", c.name, err)
		}
		// A file that changes is read again.
		write("ca.crl", []byte(ca.revoke(time.Now().Add(time.Hour))))
		if !s.files.changed() {
			t.Errorf("%s: the change is not seen", c.name)
		}
		s.loadLists()
		if a, err = s.authority("ca", spec); err != nil || len(a.lists[0].revoked) != 0 {
			t.Errorf("%s: the list is not read again: %v", c.name, err)
		}
	}
}

// A list of the future does not take the place of the one in force, and is none by itself.
func TestAListOfTheFutureDoesNotCount(t *testing.T) {
	ca := newIssuer(t, "ecdsa", "CA", nil)
	peer, _ := ca.issue("ecdsa", "gw.example")
	now := time.Now()
	list := func(at time.Duration, serials ...*big.Int) string {
		// The next list of the authority is of this time.
		ca.serial = int64((2*time.Hour+at)/time.Second) - 1
		return ca.revoke(now.Add(100*time.Hour), serials...)
	}
	for _, c := range []struct {
		name     string
		required bool
		lists    []string
		want     string
	}{
		{"in force", true, []string{list(-time.Minute)}, ""},
		{"of a clock that is a little ahead", true, []string{list(time.Minute)}, ""},
		{"of the future, empty, beside the one in force", false, []string{list(-time.Minute, peer.SerialNumber), list(24 * time.Hour)}, "was revoked"},
		{"of the future alone", false, []string{list(24 * time.Hour)}, "is of the future"},
		{"of the future alone, required", true, []string{list(24 * time.Hour)}, "is of the future"},
	} {
		_, err := verifyChain([]*Authority{ca.authority(c.required, c.lists...)}, [][]byte{peer.Raw}, mustIdentity(t, "gw.example"), now)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("a list %s: %v", c.name, err)
		}
	}
}

func TestAPrivateKeyThatEachUserCanReadIsNamedInTheLog(t *testing.T) {
	ca, directory := newIssuer(t, "ecdsa", "CA", nil), t.TempDir()
	certificate, key := ca.issue("ecdsa", "here.example")
	path := func(name string) string { return filepath.Join(directory, name) }
	for name, content := range map[string]string{"here.pem": pemOf(certificate), "here.key": pemOfKey(t, key)} {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	made, err := newServing(service.Environment{Log: slog.New(slog.NewTextHandler(&log, nil)), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := made.(*serving)
	s.synced = true
	s.credentials["here"] = &api.IkeCredential{SharedKey: "a secret", CertificateFile: path("here.pem"), PrivateKeyFile: path("here.key")}
	s.specs["office"] = &object.Object{Kind: "IkeConnection", Name: "office", Spec: &api.IkeConnection{LocalAddress: "192.0.2.1", Credential: "here",
		LocalAuthentication: api.IkeAuthentication_CERTIFICATE, Children: []*api.IkeChild{{Name: "net", Tunnel: "office"}}}}
	warnings := 0
	for _, c := range []struct {
		mode os.FileMode
		more int
	}{{0o600, 0}, {0o640, 0}, {0o644, 1}, {0o604, 0}, {0o600, 0}, {0o644, 1}} {
		if err := os.Chmod(path("here.key"), c.mode); err != nil {
			t.Fatal(err)
		}
		s.refresh(time.Now(), everyConnection)
		if warnings += c.more; strings.Count(log.String(), path("here.key")) != warnings {
			t.Errorf("mode %04o: the log says %s", c.mode, log.String())
		}
	}
}
