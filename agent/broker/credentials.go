package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// TLS is files in PEM; those that are left out are the system's, or none. They are read whenever a connection is made.
type TLS struct {
	// Of the broker's certificate.
	CA string `yaml:"ca"`
	// Ours.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

// Check says what is wrong.
func (t *TLS) Check() error {
	if t != nil && (t.Certificate == "") != (t.Key == "") {
		return errors.New("tls: certificate and key are either both there, or neither")
	}
	return nil
}

// Config reads the files.
func (t *TLS) Config() (*tls.Config, error) {
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

// Secret reads a file that holds a password, without the end of its line.
func Secret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("passwordFile: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
