// SPDX-License-Identifier: Apache-2.0

// Package access is authorization of callers at the northbounds that serve a network: gRPC over TLS and REST.
//
// A caller is identified by the name in a client certificate that our CA signed, or by a bearer token of which we
// store only the hash. Its role sets its permissions; each role includes those before it. Callers at the agent's Unix
// socket are admins.
package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Role is a set of permissions.
type Role int

const (
	// NoRole: no credentials. May read the agent's health and the documentation.
	NoRole Role = iota
	// Read: see objects, their status, history and counters, and plan changes.
	Read
	// Operate: change the configuration as the northbound's own owner, and see packets' headers.
	Operate
	// Admin: everything, such as to roll back changes of others, to take over objects of other owners, and to capture
	// whole packets.
	Admin
)

var roleNames = [...]string{"none", "read", "operate", "admin"}

func (r Role) String() string { return roleNames[r] }

func acceptedRoles() string { return strings.Join(roleNames[1:], ", ") }

// ParseRole reads a role by its name.
func ParseRole(text string) (Role, error) {
	for i, name := range roleNames {
		if r := Role(i); r != NoRole && name == text {
			return r, nil
		}
	}
	return NoRole, fmt.Errorf("role: found %q; accepted: %s", text, acceptedRoles())
}

// Caller is the authenticated origin of a request.
type Caller struct {
	Name string
	Role Role
	// Its address.
	From string
	// The northbound of the request, which owns the objects that the caller applies.
	Owner string
}

// ErrForbidden: the caller is known, and may not do that.
var ErrForbidden = errors.New("forbidden")

// Unknown is the reason why authentication failed. It never holds the presented credentials.
type Unknown struct{ Problem string }

func (u *Unknown) Error() string { return u.Problem }

// May returns nil, or an error that is ErrForbidden.
func (c Caller) May(needed Role, what string) error {
	if c.Role >= needed {
		return nil
	}
	if c.Role == NoRole {
		return fmt.Errorf("%s: %s has no role, and that needs %s (%w)", what, c.Name, needed, ErrForbidden)
	}
	return fmt.Errorf("%s: %s has the role %s, and that needs %s (%w)", what, c.Name, c.Role, needed, ErrForbidden)
}

type key struct{}

// With returns a context that knows the caller.
func With(ctx context.Context, c Caller) context.Context { return context.WithValue(ctx, key{}, c) }

// Of returns the caller of a request that came through one of these northbounds.
func Of(ctx context.Context) (Caller, bool) {
	c, ok := ctx.Value(key{}).(Caller)
	return c, ok
}
