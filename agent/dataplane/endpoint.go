// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"sluice.dev/sluice/agent/certificate"
)

// Credentials are the PEM files for mutual TLS; TCP needs them.
type Credentials struct {
	Certificate, Key, CA string
	// Of the data plane's certificate, which is also for the host that the endpoint names.
	Names certificate.Names
}

// An Endpoint is where a data plane listens.
type Endpoint struct {
	network, address, text string
	tls                    *tls.Config
}

// ParseEndpoint takes "unix:///run/sluice/dataplane.sock" or, with credentials, "tcp://192.0.2.1:7700".
func ParseEndpoint(text string, c Credentials) (Endpoint, error) {
	network, u := parse(text)
	switch network {
	case "unix":
		return Endpoint{network: network, address: u.Path, text: text}, nil
	case "tcp":
		config, err := c.config(u.Hostname())
		if err != nil {
			return Endpoint{}, fmt.Errorf("data plane %s: %w", text, err)
		}
		return Endpoint{network: network, address: u.Host, text: text, tls: config}, nil
	}
	return Endpoint{}, fmt.Errorf("data plane %q: accepted: unix:///PATH or tcp://HOST:PORT", text)
}

// Local reports whether the data plane runs on this host.
func (e Endpoint) Local() bool { return e.network == "unix" }

// Network returns the network of an endpoint, "unix" or "tcp"; false: it is no endpoint.
func Network(text string) (network string, ok bool) {
	network, _ = parse(text)
	return network, network != ""
}

func parse(text string) (network string, u *url.URL) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
	case u.Scheme == "unix" && u.Host == "" && u.Path != "":
		return "unix", u
	case u.Scheme == "tcp" && u.Port() != "" && u.Hostname() != "" && u.Path == "":
		return "tcp", u
	}
	return "", nil
}

func (c Credentials) config(host string) (*tls.Config, error) {
	if c.Certificate == "" || c.Key == "" || c.CA == "" {
		return nil, errors.New("TCP needs a certificate, its key and a CA, because it is mutual TLS")
	}
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return nil, fmt.Errorf("loading certificate and key: %w", err)
	}
	pem, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, fmt.Errorf("loading the CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("loading the CA: no certificate in %s", c.CA)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		RootCAs:      roots,
		ServerName:   host,
		MinVersion:   tls.VersionTLS12,
		VerifyConnection: func(s tls.ConnectionState) error {
			if err := c.Names.Accept(s.PeerCertificates[0]); err != nil {
				return fmt.Errorf("the data plane's certificate: serverNames: %w", err)
			}
			return nil
		},
	}, nil
}

func (e Endpoint) String() string { return e.text }

// dial connects and, for TLS, has finished the handshake when it returns.
func (e Endpoint) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{KeepAlive: 5 * time.Second}
	if e.tls != nil {
		return (&tls.Dialer{NetDialer: &d, Config: e.tls}).DialContext(ctx, e.network, e.address)
	}
	return d.DialContext(ctx, e.network, e.address)
}
