// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/audit"
)

// RPC is a gRPC service of a Definition. The agent serves it beside its own, on the Unix socket and to remote clients. It has unary methods alone.
type RPC struct {
	Desc *grpc.ServiceDesc
	// By the names of the methods. Each method of Desc has an entry.
	Methods map[string]Method
	// offered returns the implementation, if the service offers one now.
	offered func(*Host) (implementation any, there bool)
}

// Method is a method of an RPC.
type Method struct {
	// The role that a remote client needs.
	Role access.Role
	// The action of its entries in the audit log; empty: it has none.
	Action string
	// Entry adds the subject of a call to its audit entry, and to Count how many were changed. The reply is a nil message after an error.
	Entry func(e *audit.Entry, request, reply any)
}

// NewRPC returns the RPC whose implementation the service offers as a T (Offer), the interface that protoc generated.
func NewRPC[T any](desc *grpc.ServiceDesc, methods map[string]Method) RPC {
	return RPC{desc, methods, func(h *Host) (any, bool) {
		implementation, there := Offered[T](h)
		return implementation, there
	}}
}

// FullMethod is the name of a method in gRPC.
func (r RPC) FullMethod(name string) string { return "/" + r.Desc.ServiceName + "/" + name }

// RPCs returns the RPCs of all services, to be registered without an implementation: a call goes to the implementation that the service offers
// at that moment. write gets the audit entries.
func (h *Host) RPCs(write func(context.Context, audit.Entry)) []RPC {
	var all []RPC
	for _, s := range h.services {
		for _, r := range s.RPCs {
			all = append(all, r.bind(s.Name, h, write))
		}
	}
	return all
}

func (r RPC) bind(name string, h *Host, write func(context.Context, audit.Entry)) RPC {
	bound := *r.Desc
	bound.Methods = slices.Clone(bound.Methods)
	for i := range bound.Methods {
		call, method := bound.Methods[i].Handler, r.Methods[bound.Methods[i].MethodName]
		bound.Methods[i].Handler = func(_ any, ctx context.Context, decode func(any) error, around grpc.UnaryServerInterceptor) (any, error) {
			implementation, there := r.offered(h)
			if !there {
				return nil, status.Errorf(codes.Unavailable, "the %s service is not running; the agent's log has the reason", name)
			}
			return call(implementation, ctx, decode, func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				handler = method.audited(handler, write)
				if around == nil {
					return handler(ctx, request)
				}
				return around(ctx, request, info, handler)
			})
		}
	}
	r.Desc = &bound
	return r
}

// audited writes an audit entry for each call of handler.
func (m Method) audited(handler grpc.UnaryHandler, write func(context.Context, audit.Entry)) grpc.UnaryHandler {
	if m.Action == "" {
		return handler
	}
	return func(ctx context.Context, request any) (any, error) {
		reply, err := handler(ctx, request)
		e := audit.Entry{Action: m.Action}
		if m.Entry != nil {
			m.Entry(&e, request, reply)
		}
		switch {
		case err != nil:
			e.Outcome, e.Problem = audit.Refused, status.Convert(err).Message()
		case e.Count == 0:
			e.Outcome = audit.Unchanged
		default:
			e.Outcome = audit.Done
		}
		write(ctx, e)
		return reply, err
	}
}

// check returns the first error of an RPC.
func (r RPC) check() error {
	if len(r.Desc.Streams) > 0 {
		return fmt.Errorf("gRPC service %s has a stream; accepted: unary methods", r.Desc.ServiceName)
	}
	for _, m := range r.Desc.Methods {
		if method, there := r.Methods[m.MethodName]; !there || method.Role == access.NoRole {
			return fmt.Errorf("method %s needs a role", r.FullMethod(m.MethodName))
		}
	}
	for name := range r.Methods {
		if !slices.ContainsFunc(r.Desc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == name }) {
			return fmt.Errorf("there is no method %s", r.FullMethod(name))
		}
	}
	return nil
}
