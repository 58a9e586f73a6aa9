// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// remoteAgent holds the files for a connection to an agent on another host.
type remoteAgent struct {
	ca, certificate, key, token string

	attempts attempts
}

func (f *remoteAgent) flags(set *pflag.FlagSet) {
	set.StringVar(&f.ca, "ca", os.Getenv("SLUICE_CA"), "for tcp: the CA (PEM) of the agent's certificate, if it is not one that this host trusts; also in SLUICE_CA")
	set.StringVar(&f.certificate, "cert", os.Getenv("SLUICE_CERT"), "for tcp: our certificate (PEM); also in SLUICE_CERT")
	set.StringVar(&f.key, "key", os.Getenv("SLUICE_KEY"), "for tcp: its key (PEM); also in SLUICE_KEY")
	set.StringVar(&f.token, "token-file", os.Getenv("SLUICE_TOKEN_FILE"), "for tcp: a file with our token (sluice token); also in SLUICE_TOKEN_FILE")
}

// dial returns where to connect to, and how. Errors name the source of the address: the flag or the variable.
func (f *remoteAgent) dial(source, agent string) (target string, options []grpc.DialOption, err error) {
	if strings.HasPrefix(agent, "unix:///") && !strings.ContainsFunc(agent, unicode.IsControl) {
		return "passthrough:///" + agent, []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("sluice"),
			grpc.WithContextDialer(f.attempts.dialed(dialUnix))}, nil
	}
	u, err := url.Parse(agent)
	if err != nil || u.Scheme != "tcp" || u.Port() == "" || u.Path != "" {
		return "", nil, fmt.Errorf("%s %q: accepted: unix:///PATH, as in %s, or tcp://HOST:PORT", source, agent, DefaultAgent)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: u.Hostname()}
	if f.ca != "" {
		text, err := os.ReadFile(f.ca)
		if err != nil {
			return "", nil, fmt.Errorf("--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return "", nil, fmt.Errorf("--ca: %s: there is no certificate in it", f.ca)
		}
	}
	if (f.certificate == "") != (f.key == "") {
		return "", nil, fmt.Errorf("--cert, --key: they need one another")
	}
	if f.certificate != "" {
		pair, err := tls.LoadX509KeyPair(f.certificate, f.key)
		if err != nil {
			return "", nil, fmt.Errorf("--cert: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	options = append(options, grpc.WithTransportCredentials(observedTLS{credentials.NewTLS(config), &f.attempts}),
		grpc.WithContextDialer(f.attempts.dialed(func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		})))
	if f.token != "" {
		text, err := os.ReadFile(f.token)
		if err != nil {
			return "", nil, fmt.Errorf("--token-file: %w", err)
		}
		token := strings.TrimSpace(string(text))
		if token == "" || strings.ContainsAny(token, " \t\r\n") {
			return "", nil, fmt.Errorf("--token-file: %s: accepted: one token, and nothing else", f.token)
		}
		options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
	}
	return "passthrough:///" + u.Host, options, nil
}

// bearer sends a token with each request, and only over TLS.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }
