// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/audit"
	"sluice.dev/sluice/agent/command"
	"sluice.dev/sluice/agent/concepts"
)

type kinds struct {
	api.UnimplementedKindsServer
	err error
}

func (k kinds) GetModuleKinds(context.Context, *api.ModuleKindsQuery) (*api.ModuleKindsList, error) {
	if k.err != nil {
		return nil, k.err
	}
	return &api.ModuleKindsList{}, nil
}

func TestRPCsReachTheServiceThatRunsAndAreAudited(t *testing.T) {
	count := 0
	rpc := NewRPC[api.KindsServer](&api.Kinds_ServiceDesc, map[string]Method{"GetModuleKinds": {Role: access.Operate, Action: "ask",
		Entry: func(e *audit.Entry, request, _ any) {
			e.Why, e.Count = string(request.(*api.ModuleKindsQuery).ProtoReflect().Descriptor().Name()), count
		}}})
	h := New([]Definition{{Name: "toy", RPCs: []RPC{rpc}}})
	var written []audit.Entry
	all := h.RPCs(func(_ context.Context, e audit.Entry) { written = append(written, e) })
	if len(all) != 1 || all[0].FullMethod("GetModuleKinds") != api.Kinds_GetModuleKinds_FullMethodName {
		t.Fatal(all)
	}
	around := 0
	call := func() error {
		_, err := all[0].Desc.Methods[0].Handler(nil, t.Context(), func(any) error { return nil },
			func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				around++
				return handler(ctx, request)
			})
		return err
	}
	if err := call(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "the toy service is not running") {
		t.Error(err)
	}
	if len(written) != 0 {
		t.Errorf("%v although no service ran", written)
	}
	e := Environment{Exchange: h.exchange}
	defer Offer[api.KindsServer](e, kinds{})()
	for _, c := range []struct {
		count int
		err   error
		want  audit.Outcome
	}{{0, nil, audit.Unchanged}, {3, nil, audit.Done}, {0, status.Error(codes.InvalidArgument, "wrong"), audit.Refused}} {
		written, count = nil, c.count
		defer Offer[api.KindsServer](e, kinds{err: c.err})()
		if err := call(); status.Code(err) != status.Code(c.err) {
			t.Error(err)
		}
		if len(written) != 1 || written[0].Outcome != c.want || written[0].Action != "ask" || written[0].Count != c.count || written[0].Why != "ModuleKindsQuery" {
			t.Errorf("%v, not %s", written, c.want)
		}
	}
	if around != 3 {
		t.Errorf("the interceptor saw %d calls", around)
	}
}

func TestEachMethodOfAnRPCNeedsARole(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	start := func(Environment) (Service, error) { return nil, nil }
	for want, r := range map[string]RPC{
		"needs a role":       NewRPC[api.KindsServer](&api.Kinds_ServiceDesc, nil),
		"there is no method": NewRPC[api.KindsServer](&api.Kinds_ServiceDesc, map[string]Method{"GetModuleKinds": {Role: access.Read}, "Guess": {Role: access.Read}}),
		"has a stream":       NewRPC[api.AgentServer](&api.Agent_ServiceDesc, nil),
	} {
		if err := Check(registry, []Definition{{Name: "toy", New: start, RPCs: []RPC{r}}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, not %s", err, want)
		}
	}
	twice := NewRPC[api.KindsServer](&api.Kinds_ServiceDesc, map[string]Method{"GetModuleKinds": {Role: access.Read}})
	if err := Check(registry, []Definition{{Name: "toy", New: start, RPCs: []RPC{twice, twice}}}); err == nil || !strings.Contains(err.Error(), "duplicate gRPC service") {
		t.Error(err)
	}
}

func TestEachFlagForSessionsIsOneServices(t *testing.T) {
	registry, err := concepts.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	start := func(Environment) (Service, error) { return nil, nil }
	sessions := &command.Sessions{Flag: "owner"}
	err = Check(registry, []Definition{{Name: "toy", New: start, Sessions: sessions}, {Name: "doll", New: start, Sessions: sessions}})
	if err == nil || err.Error() != "service doll: another service has the flag --owner for its sessions" {
		t.Error(err)
	}
}
