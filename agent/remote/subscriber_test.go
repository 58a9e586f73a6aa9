// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/service"
	"sluice.dev/sluice/agent/subscriber"
)

func TestOperatorsEndSubscribersAndReadersDoNot(t *testing.T) {
	a := newAuthority(t)
	a.sign("agent", false)
	tokens, lines := map[access.Role]string{}, []string{}
	for _, role := range []access.Role{access.Read, access.Operate} {
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
	rpcs := service.New([]service.Definition{subscriber.Definition}).RPCs(func(context.Context, audit.Entry) {})
	address, written := serveAgent(t, access.Section{Listen: "127.0.0.1:0", Tokens: file,
		TLS: access.TLS{Certificate: filepath.Join(a.dir, "agent.crt"), Key: filepath.Join(a.dir, "agent.key")}}, &northbound.Counters{}, agent{}, rpcs...)
	client := api.NewSubscribersClient(a.connect(address))
	for role, token := range tokens {
		want := codes.Unavailable // the service does not run
		if role == access.Read {
			want = codes.PermissionDenied
		}
		if _, err := client.DisconnectSubscribers(with(t, token), &api.SubscribersDisconnection{All: true}); status.Code(err) != want {
			t.Errorf("%s: %v, not %s", role, err, want)
		}
	}
	text, err := os.ReadFile(written)
	if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), `"action":"disconnect"`) || !strings.Contains(string(text), `"outcome":"forbidden"`) {
		t.Errorf("audit log: %s, %v", text, err)
	}
}
