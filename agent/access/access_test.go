// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func tokenFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newToken(t *testing.T, name string, role Role) (token, line string) {
	t.Helper()
	token, line, err := NewToken(name, role)
	if err != nil {
		t.Fatal(err)
	}
	return token, line
}

func TestATokenLetsItsBearerInWithItsRole(t *testing.T) {
	alice, aliceLine := newToken(t, "alice", Operate)
	bob, bobLine := newToken(t, "bob", Read)
	g, err := Section{Listen: "127.0.0.1:0", Tokens: tokenFile(t, "# who", "", aliceLine, bobLine)}.Open("rest", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]Caller{
		alice: {Name: "alice", Role: Operate, From: "here", Owner: "rest"}, bob: {Name: "bob", Role: Read, From: "here", Owner: "rest"},
	} {
		if got, err := g.Caller(nil, []string{"Bearer " + token}, "here"); err != nil || got != want {
			t.Errorf("%v, %v", got, err)
		}
	}
	for name, headers := range map[string][]string{
		"nothing": nil, "an empty token": {"Bearer "}, "another token": {"Bearer " + alice + "x"}, "another scheme": {"Basic " + alice},
		"two": {"Bearer " + alice, "Bearer " + alice}, "the hash": {"Bearer " + strings.Fields(aliceLine)[2]},
	} {
		var unknown *Unknown
		if _, err := g.Caller(nil, headers, "here"); !errors.As(err, &unknown) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), alice) {
			t.Errorf("%s: the error tells the token", name)
		}
	}
}

func TestAChangedFileOfTokensCountsAtOnce(t *testing.T) {
	alice, aliceLine := newToken(t, "alice", Operate)
	bob, bobLine := newToken(t, "bob", Read)
	path := tokenFile(t, aliceLine)
	g, err := Section{Listen: "127.0.0.1:0", Tokens: path}.Open("rest", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	known := func(token string) bool {
		_, err := g.Caller(nil, []string{"Bearer " + token}, "")
		return err == nil
	}
	if !known(alice) || known(bob) {
		t.Error("before")
	}
	// A mistake in one line does not lock out the others, nor keep in whose line is gone.
	if err := os.WriteFile(path, []byte("nonsense\n"+bobLine+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if known(alice) || !known(bob) {
		t.Error("after it was changed")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if known(alice) || known(bob) {
		t.Error("after it was removed")
	}
}

func TestAnErrorInTheTokenFileDoesNotShowTheLine(t *testing.T) {
	token, line := newToken(t, "alice", Admin)
	words := strings.Fields(line)
	for name, text := range map[string]string{
		"the token itself": "alice admin " + token, "no role": "alice " + words[2], "a role that is none": "alice root " + words[2],
		"a name that is none": "a/b admin " + words[2], "a short hash": "alice admin " + words[2][:70],
	} {
		_, err := ParseTokens([]byte("# one\n" + text))
		if err == nil || !strings.HasPrefix(err.Error(), "line 2: ") || strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := NewToken("a b", Read); err == nil {
		t.Error("a name of two words")
	}
}

func TestACertificatesNameDecidesItsRole(t *testing.T) {
	g := &Guard{section: Section{Roles: map[string]string{"controller.example": "operate", "*": "read"}}, owner: "grpc", ca: &file[*x509.CertPool]{}}
	connection := func(common string, names ...string) *tls.ConnectionState {
		return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: common}, DNSNames: names}}}}
	}
	for _, test := range []struct {
		connection *tls.ConnectionState
		want       Caller
	}{
		{connection("controller.example"), Caller{Name: "controller.example", Role: Operate, Owner: "grpc"}},
		{connection("", "other.example", "controller.example"), Caller{Name: "controller.example", Role: Operate, Owner: "grpc"}},
		{connection("somebody"), Caller{Name: "somebody", Role: Read, Owner: "grpc"}},
		{connection("*"), Caller{Name: "*", Role: Read, Owner: "grpc"}},
	} {
		if got, err := g.Caller(test.connection, nil, ""); err != nil || got != test.want {
			t.Errorf("%v, %v; want %v", got, err, test.want)
		}
	}
	if _, err := g.Caller(connection(""), nil, ""); err == nil {
		t.Error("a certificate without a name")
	}
	if _, err := g.Caller(&tls.ConnectionState{}, nil, ""); err == nil {
		t.Error("no certificate")
	}
	delete(g.section.Roles, "*")
	if c, err := g.Caller(connection("somebody"), nil, ""); err != nil || !errors.Is(c.May(Read, "get"), ErrForbidden) {
		t.Errorf("without a role: %v, %v", c, err)
	}
}

func TestOnlyACertificateOfOneOfTheNamesLetsIn(t *testing.T) {
	g := &Guard{section: Section{Roles: map[string]string{"*": "read"}, ClientNames: []string{"agent-*", "*.example"}}, owner: "grpc", ca: &file[*x509.CertPool]{}}
	connection := func(common string, names ...string) *tls.ConnectionState {
		return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: common}, DNSNames: names}}}}
	}
	for _, c := range []*tls.ConnectionState{connection("agent-7"), connection("other", "controller.example")} {
		if caller, err := g.Caller(c, nil, ""); err != nil || caller.Role != Read {
			t.Errorf("%v, %v", caller, err)
		}
	}
	var unknown *Unknown
	if _, err := g.Caller(connection("printer", "printer.lan"), nil, ""); !errors.As(err, &unknown) ||
		unknown.Problem != "clientNames: no name of the certificate (printer, printer.lan) is accepted; accepted: agent-*, *.example" {
		t.Errorf("error %v", err)
	}
}

func TestASectionThatAdmitsAllCallersOrNoneIsRefused(t *testing.T) {
	pair := TLS{Certificate: "c", Key: "k"}
	for field, s := range map[string]Section{
		"listen":             {Listen: "8080", Tokens: "t"},
		"tls: missing":       {Listen: "0.0.0.0:1", Tokens: "t"},
		"tls: certificate":   {Listen: "127.0.0.1:1", Tokens: "t", TLS: TLS{Key: "k"}},
		"tokens":             {Listen: "127.0.0.1:1"},
		"clientCA":           {Listen: "127.0.0.1:1", ClientCA: "ca"},
		"roles: missing":     {Listen: "0.0.0.0:1", TLS: pair, ClientCA: "ca"},
		"roles: roles of":    {Listen: "0.0.0.0:1", TLS: pair, Tokens: "t", Roles: map[string]string{"a": "read"}},
		"clientNames: names": {Listen: "0.0.0.0:1", TLS: pair, Tokens: "t", ClientNames: []string{"a"}},
		"clientNames[1]":     {Listen: "0.0.0.0:1", TLS: pair, ClientCA: "ca", Tokens: "t", ClientNames: []string{"a", ""}},
		"roles.a":            {Listen: "0.0.0.0:1", TLS: pair, ClientCA: "ca", Roles: map[string]string{"a": "root"}},
	} {
		if err := s.Check(); err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, s := range []Section{
		{Listen: "127.0.0.1:1", Tokens: "t"}, {Listen: "[::1]:1", Tokens: "t"}, {Listen: ":1", TLS: pair, Tokens: "t"},
		{Listen: ":1", TLS: pair, ClientCA: "ca", Roles: map[string]string{"*": "read"}},
	} {
		if err := s.Check(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestEachRoleIncludesThoseBeforeIt(t *testing.T) {
	for _, has := range []Role{NoRole, Read, Operate, Admin} {
		for _, needs := range []Role{NoRole, Read, Operate, Admin} {
			err := Caller{Name: "x", Role: has}.May(needs, "apply")
			if (err == nil) != (has >= needs) || err != nil && !errors.Is(err, ErrForbidden) {
				t.Errorf("%s may do what needs %s: %v", has, needs, err)
			}
		}
	}
	if _, err := ParseRole("none"); err == nil {
		t.Error("the configuration may give the role none")
	}
}

func FuzzAFileOfTokensIsReadOrRefused(f *testing.F) {
	f.Add([]byte("alice admin sha256:00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		tokens, _ := ParseTokens(text)
		tokens.find(string(text))
	})
}
