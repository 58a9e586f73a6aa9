// SPDX-License-Identifier: Apache-2.0

package northbound

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"sluice.dev/sluice/agent/object"
)

// TLS names files in PEM; absent ones are the system's, or none. They are read for each connection.
type TLS struct {
	// Of the other's certificate.
	CA string `yaml:"ca"`
	// Ours.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// Check reports errors.
func (t *TLS) Check() error {
	if t != nil && (t.Certificate == "") != (t.Key == "") {
		return object.Mistake("tls", "certificate and key go together", "", "both, or neither")
	}
	return nil
}

// Config reads the files; nil: no TLS is configured.
func (t *TLS) Config() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("tls: ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls: ca: no certificate in %s", t.CA)
		}
	}
	if t.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, fmt.Errorf("tls: certificate and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Secret reads a file that holds a password, without the end of its line; "" if there is no such file to read.
func Secret(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("passwordFile: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
