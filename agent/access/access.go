// Package access is who may do what through the northbounds that serve a network: gRPC over TLS and REST.
//
// A caller is known by the name in a client certificate that our CA signed, or by a bearer token of which we keep only the hash. Its
// role says what it may do; each role may do what those before it may. Whoever reaches the agent's Unix socket owns it, and is an admin.
package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Role is what a caller may do.
type Role int

const (
	// Nobody may ask whether the agent is well, and for the documentation.
	Nobody Role = iota
	// Read: see objects, how it stands with them, history and counters, and what a change would do.
	Read
	// Operate: change what is wanted in the northbound's own name, and see packets' headers.
	Operate
	// Admin: everything, such as to roll back what others did, to take over what is another owner's, and to see whole packets.
	Admin
)

var roleNames = [...]string{"nobody", "read", "operate", "admin"}

func (r Role) String() string { return roleNames[r] }

// ParseRole reads a role by its name.
func ParseRole(text string) (Role, error) {
	for i, name := range roleNames {
		if r := Role(i); r != Nobody && name == text {
			return r, nil
		}
	}
	return Nobody, fmt.Errorf("role: found %q; accepted: %s", text, strings.Join(roleNames[1:], ", "))
}

// Caller is who asks.
type Caller struct {
	Name string
	Role Role
	// Its address.
	From string
	// The northbound that it came through, which owns what the caller puts in.
	Owner string
}

// ErrForbidden: the caller is known, and may not do that.
var ErrForbidden = errors.New("forbidden")

// Unknown is why it is not known who asks. It never holds what was presented.
type Unknown struct{ Problem string }

func (u *Unknown) Error() string { return u.Problem }

// May returns nil, or an error that is ErrForbidden.
func (c Caller) May(needed Role, what string) error {
	if c.Role >= needed {
		return nil
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
