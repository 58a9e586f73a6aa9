// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
)

// against runs a command against an agent that does this with every request.
func against(t *testing.T, do func(ctx context.Context, g *grpc.Server) error, arguments ...string) (errs string, code int) {
	t.Helper()
	path := strings.TrimSuffix(stale(t), "/s") + "/agent"
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var g *grpc.Server
	g = grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
		return nil, do(ctx, g)
	}))
	api.RegisterAgentServer(g, api.UnimplementedAgentServer{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Serve(listener)
	}()
	var out, output bytes.Buffer
	code = Run(t.Context(), append([]string{"--agent", "unix://" + path}, arguments...), strings.NewReader(""), &out, &output)
	g.Stop()
	<-ended
	return output.String(), code
}

func TestAnErrorOfTheAgentDiffersFromAMissingAnswer(t *testing.T) {
	// The text does not matter: the agent answered.
	for _, words := range []string{"the service for subscribers does not run", "connection error: says the agent", "the agent has no data plane: it is away"} {
		answer := func(context.Context, *grpc.Server) error { return status.Error(codes.Unavailable, words) }
		for _, arguments := range [][]string{{"get", "ports"}, {"confirm"}} {
			if errs, code := against(t, answer, arguments...); errs != "sluice: "+words+"\n" || code != 1 {
				t.Errorf("%s: exit code %d: %s", arguments, code, errs)
			}
		}
	}
	// The agent goes away before it answers: the fate of the change is unknown.
	var stopped sync.WaitGroup
	away := func(ctx context.Context, g *grpc.Server) error {
		stopped.Go(g.Stop)
		<-ctx.Done()
		return ctx.Err()
	}
	if errs, code := against(t, away, "confirm"); !strings.Contains(errs, "the agent went away before it answered") || code != exitUnanswered {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if errs, code := against(t, away, "get", "ports"); !strings.Contains(errs, "no agent answers at unix://") || code != 1 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	stopped.Wait()
}

// distrusted is a server with a self-signed certificate.
func distrusted(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Serve(listener)
	}()
	t.Cleanup(func() {
		g.Stop()
		<-ended
	})
	return "tcp://" + listener.Addr().String()
}

func TestAnUntrustedAgentIsReported(t *testing.T) {
	var out, output bytes.Buffer
	address := distrusted(t)
	code := Run(t.Context(), []string{"--agent", address, "get", "ports"}, strings.NewReader(""), &out, &output)
	if errs := output.String(); code != 1 || !strings.Contains(errs, address+": TLS handshake failed: ") || !strings.Contains(errs, "x509: ") || !strings.Contains(errs, "See --ca") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
