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
)

// toy is a gRPC service of a service that does not run.
func toy() []service.RPC {
	desc := api.Kinds_ServiceDesc
	desc.ServiceName = "test.Toy"
	return service.New([]service.Definition{{Name: "toy", RPCs: []service.RPC{service.NewRPC[api.KindsServer](&desc,
		map[string]service.Method{"GetModuleKinds": {Role: access.Operate, Action: "play"}})}}}).RPCs(func(context.Context, audit.Entry) {})
}

func TestMethodsOfServicesNeedTheirRole(t *testing.T) {
	a := newAuthority(t)
	a.sign("agent", false)
	tokens, lines := map[access.Role]string{}, []string{}
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
	address, written := serveAgent(t, access.Section{Listen: "127.0.0.1:0", Tokens: file,
		TLS: access.TLS{Certificate: filepath.Join(a.dir, "agent.crt"), Key: filepath.Join(a.dir, "agent.key")}}, &northbound.Counters{}, agent{}, toy()...)
	connection := a.connect(address)
	for role, token := range tokens {
		want := codes.Unavailable
		if role < access.Operate {
			want = codes.PermissionDenied
		}
		err := connection.Invoke(with(t, token), "/test.Toy/GetModuleKinds", &api.ModuleKindsQuery{}, &api.ModuleKindsList{})
		if status.Code(err) != want {
			t.Errorf("%s: %v, not %s", role, err, want)
		}
	}
	text, err := os.ReadFile(written)
	if line := string(text); err != nil || strings.Count(line, "\n") != 1 || !strings.Contains(line, `"action":"play"`) || !strings.Contains(line, `"outcome":"forbidden"`) {
		t.Errorf("audit log: %s, %v", text, err)
	}
}
