// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/service"
)

// authority signs certificates.
type authority struct {
	t           *testing.T
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.sign("ca", true)
	return a
}

// sign leaves NAME.crt and NAME.key.
func (a *authority) sign(name string, ca bool) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.serial++
	template := &x509.Certificate{SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	parent, signer := a.certificate, a.key
	if ca {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	if ca {
		a.key = key
		if a.certificate, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	for path, text := range map[string][]byte{name + ".crt": crt, name + ".key": secret} {
		if err := os.WriteFile(filepath.Join(a.dir, path), text, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(crt, secret)
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// agent records the caller, and holds a plan until it is released.
type agent struct {
	api.UnimplementedAgentServer
	planning, goOn chan struct{}
}

func (a agent) Plan(ctx context.Context, _ *api.Changes) (*api.Planned, error) {
	a.planning <- struct{}{}
	select {
	case <-a.goOn:
		return &api.Planned{}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (agent) GetVersion(ctx context.Context, _ *api.VersionQuery) (*api.Version, error) {
	c, _ := access.Of(ctx)
	return &api.Version{Release: c.Name + " " + c.Role.String() + " " + c.Owner}, nil
}

func (agent) Apply(context.Context, *api.Changes) (*api.Applied, error) { return &api.Applied{}, nil }

func (agent) Rollback(context.Context, *api.RollbackRequest) (*api.Applied, error) {
	panic("a mistake")
}

func (agent) Watch(_ *api.ObjectsQuery, stream api.Agent_WatchServer) error {
	c, _ := access.Of(stream.Context())
	return stream.Send(&api.ObjectChange{Cursor: c.Name})
}

// serve returns where an agent listens, and its audit log.
func serve(t *testing.T, s access.Section, counters *northbound.Counters) (address, written string) {
	t.Helper()
	return serveAgent(t, s, counters, agent{})
}

func serveAgent(t *testing.T, s access.Section, counters *northbound.Counters, a agent, rpcs ...service.RPC) (address, written string) {
	t.Helper()
	written = filepath.Join(t.TempDir(), "audit")
	log, err := audit.Open(written, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	listening, ended := make(chan net.Addr, 1), make(chan struct{})
	r := &remote{section: Section{s}, ready: func(a net.Addr) { listening <- a }}
	go func() {
		defer close(ended)
		if err := r.Run(ctx, northbound.Environment{Name: "far", Log: slog.New(slog.DiscardHandler), Audit: log, Counters: counters, Agent: northbound.Agent{Service: a, RPCs: rpcs}}); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		log.Close()
	})
	select {
	case a := <-listening:
		return a.String(), written
	case <-ended:
		t.FailNow()
	}
	return "", ""
}

func (a *authority) connect(address string, own ...tls.Certificate) *grpc.ClientConn {
	a.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	c, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "127.0.0.1", Certificates: own, MinVersion: tls.VersionTLS12})))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { c.Close() })
	return c
}

func with(t *testing.T, token string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
}

func TestEveryMethodHasARole(t *testing.T) {
	d := api.Agent_ServiceDesc
	count := 0
	for _, m := range d.Methods {
		if needs["/"+d.ServiceName+"/"+m.MethodName] == access.NoRole {
			t.Errorf("%s needs none", m.MethodName)
		}
		count++
	}
	for _, s := range d.Streams {
		if needs["/"+d.ServiceName+"/"+s.StreamName] == access.NoRole {
			t.Errorf("%s needs none", s.StreamName)
		}
		count++
	}
	if count < 12 {
		t.Errorf("%d methods", count)
	}
}

func TestATokenIsLetInAsFarAsItsRoleGoes(t *testing.T) {
	a := newAuthority(t)
	a.sign("agent", false)
	tokens := map[access.Role]string{}
	var lines []string
	for _, role := range []access.Role{access.Read, access.Operate, access.Admin} {
		token, line, err := access.NewToken("a-"+role.String(), role)
		if err != nil {
			t.Fatal(err)
		}
		tokens[role], lines = token, append(lines, line)
	}
	file := filepath.Join(a.dir, "tokens")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	counters := &northbound.Counters{}
	address, written := serve(t, access.Section{Listen: "127.0.0.1:0", Tokens: file,
		TLS: access.TLS{Certificate: filepath.Join(a.dir, "agent.crt"), Key: filepath.Join(a.dir, "agent.key")}}, counters)
	client := api.NewAgentClient(a.connect(address))
	for role, token := range tokens {
		ctx := with(t, token)
		v, err := client.GetVersion(ctx, &api.VersionQuery{})
		if want := "a-" + role.String() + " " + role.String() + " far"; err != nil || v.GetRelease() != want {
			t.Errorf("%v, %v; want %s", v, err, want)
		}
		if stream, err := client.Watch(ctx, &api.ObjectsQuery{}); err != nil {
			t.Error(err)
		} else if c, err := stream.Recv(); err != nil || c.GetCursor() != "a-"+role.String() {
			t.Errorf("%v, %v", c, err)
		}
		for _, test := range []struct {
			needs access.Role
			ask   func() error
		}{
			{access.Operate, func() error { _, err := client.Apply(ctx, &api.Changes{}); return err }},
			{access.Operate, func() error { _, err := client.Apply(ctx, &api.Changes{Owner: "far"}); return err }},
			{access.Admin, func() error { _, err := client.Apply(ctx, &api.Changes{Owner: "api"}); return err }},
			{access.Admin, func() error { _, err := client.Apply(ctx, &api.Changes{Force: true}); return err }},
		} {
			want := codes.OK
			if role < test.needs {
				want = codes.PermissionDenied
			}
			if err := test.ask(); status.Code(err) != want {
				t.Errorf("%s: %v; want %s", role, err, want)
			}
		}
		want := codes.PermissionDenied
		if role == access.Admin {
			want = codes.Internal // and the agent goes on
		}
		if _, err := client.Rollback(ctx, &api.RollbackRequest{}); status.Code(err) != want {
			t.Errorf("%s: %v; want %s", role, err, want)
		}
	}
	for name, ctx := range map[string]context.Context{"no token": t.Context(), "another token": with(t, "sluice_x"),
		"two": metadata.AppendToOutgoingContext(with(t, tokens[access.Read]), "authorization", "Bearer x")} {
		if _, err := client.Apply(ctx, &api.Changes{}); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	text, err := os.ReadFile(written)
	if err != nil {
		t.Fatal(err)
	}
	// Four of the reader, two of the operator and their rollbacks, three of strangers.
	if n := strings.Count(string(text), `"outcome":"forbidden"`); n != 4+2+2+3 {
		t.Errorf("%d were written down: %s", n, text)
	}
	// Seven of each role and three unauthenticated; the forbidden ones, and the mistake.
	if n := counters.Read(); n.Received != 3*7+3 || n.Failed != 4+2+2+3+1 {
		t.Errorf("%+v", n)
	}
	for _, token := range tokens {
		if strings.Contains(string(text), token) {
			t.Error("a token was written down")
		}
	}
}

func TestHealthIsForEverybodyAndReflectionForReaders(t *testing.T) {
	a := newAuthority(t)
	a.sign("agent", false)
	token, line, err := access.NewToken("reader", access.Read)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(a.dir, "tokens")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	address, _ := serve(t, access.Section{Listen: "127.0.0.1:0", Tokens: file,
		TLS: access.TLS{Certificate: filepath.Join(a.dir, "agent.crt"), Key: filepath.Join(a.dir, "agent.key")}}, nil)
	c := a.connect(address)
	well, err := grpc_health_v1.NewHealthClient(c).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "sluice.v1.Agent"})
	if err != nil || well.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", well, err)
	}
	services := func(ctx context.Context) (string, error) {
		stream, err := grpc_reflection_v1.NewServerReflectionClient(c).ServerReflectionInfo(ctx)
		if err != nil {
			return "", err
		}
		_ = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
		reply, err := stream.Recv()
		return reply.String(), err
	}
	if _, err := services(t.Context()); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	if text, err := services(with(t, token)); err != nil || !strings.Contains(text, "sluice.v1.Agent") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestAClientCertificateIsLetInByItsName(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	a.sign("agent", false)
	operator, somebody, stranger := a.sign("operator", false), a.sign("somebody", false), other.sign("operator", false)
	address, _ := serve(t, access.Section{Listen: "127.0.0.1:0", ClientCA: filepath.Join(a.dir, "ca.crt"), Roles: map[string]string{"operator": "operate"},
		TLS: access.TLS{Certificate: filepath.Join(a.dir, "agent.crt"), Key: filepath.Join(a.dir, "agent.key")}}, nil)
	apply := func(own ...tls.Certificate) error {
		_, err := api.NewAgentClient(a.connect(address, own...)).Apply(t.Context(), &api.Changes{})
		return err
	}
	if err := apply(operator); err != nil {
		t.Error(err)
	}
	if err := apply(somebody); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a name without a role: %v", err)
	}
	if err := apply(stranger); status.Code(err) != codes.Unavailable {
		t.Errorf("a certificate of another CA: %v", err)
	}
	if err := apply(); status.Code(err) != codes.Unavailable {
		t.Errorf("no certificate: %v", err)
	}
	// A renewed certificate is used for the next connection.
	other.sign("agent", false)
	for _, name := range []string{"agent.crt", "agent.key"} {
		text, err := os.ReadFile(filepath.Join(other.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(a.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := apply(operator); status.Code(err) != codes.Unavailable {
		t.Errorf("the old certificate is still shown: %v", err)
	}
}

func TestASectionWithoutACertificateIsRefused(t *testing.T) {
	if err := (&Section{access.Section{Listen: "127.0.0.1:1", Tokens: "t"}}).Check(); err == nil || !strings.HasPrefix(err.Error(), "tls: ") {
		t.Error(err)
	}
}

func TestOfEachCallerSomeRequestsWithChangesAreWorkedOnAtATime(t *testing.T) {
	a := newAuthority(t)
	a.sign("agent", false)
	token, line, err := access.NewToken("reader", access.Read)
	if err != nil {
		t.Fatal(err)
	}
	another, second, err := access.NewToken("operator", access.Operate)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(a.dir, "tokens")
	if err := os.WriteFile(file, []byte(line+"\n"+second), 0o600); err != nil {
		t.Fatal(err)
	}
	slow := agent{planning: make(chan struct{}), goOn: make(chan struct{})}
	address, _ := serveAgent(t, access.Section{Listen: "127.0.0.1:0", Tokens: file,
		TLS: access.TLS{Certificate: filepath.Join(a.dir, "agent.crt"), Key: filepath.Join(a.dir, "agent.key")}}, &northbound.Counters{}, slow)
	client := api.NewAgentClient(a.connect(address))
	answers := make(chan error, changesAtOnce)
	for range changesAtOnce {
		go func() {
			_, err := client.Plan(with(t, token), &api.Changes{})
			answers <- err
		}()
		<-slow.planning
	}
	if _, err := client.Plan(with(t, token), &api.Changes{}); status.Code(err) != codes.ResourceExhausted {
		t.Error("one more:", err)
	}
	if _, err := client.GetVersion(with(t, token), &api.VersionQuery{}); err != nil {
		t.Error("another request:", err)
	}
	if _, err := client.Apply(with(t, another), &api.Changes{}); err != nil {
		t.Error("another caller:", err)
	}
	close(slow.goOn)
	for range changesAtOnce {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	for end := time.Now().Add(10 * time.Second); ; {
		answer := make(chan error, 1)
		go func() {
			_, err := client.Plan(with(t, token), &api.Changes{})
			answer <- err
		}()
		select {
		case <-slow.planning:
			err = <-answer
		case err = <-answer:
		}
		if err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		t.Error("when they have their answers:", err)
	}
}
