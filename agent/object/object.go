// Package object knows what objects are: the kinds of the contract (api/schema.proto), how people write them, which of
// them are acceptable, alone and together, and what one of them needs of the others. Nothing in it names a kind, except for
// the checks of one kind that annotations cannot say; each of those has a file of its own.
package object

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
)

// APIVersion is what every object says it is written in.
const APIVersion = "sluice.dev/v1"

// Key names an object.
type Key struct {
	Kind, Name string
}

// String returns "Port/access".
func (k Key) String() string { return k.Kind + "/" + k.Name }

// Compare orders keys by kind, then by name.
func (k Key) Compare(other Key) int {
	if c := cmp.Compare(k.Kind, other.Kind); c != 0 {
		return c
	}
	return cmp.Compare(k.Name, other.Name)
}

// Object is something that somebody wants. It is never changed after it was made: a change is another Object.
type Object struct {
	Kind   string
	Name   string
	Labels map[string]string
	// The message that the kind names.
	Spec proto.Message
	// Paths of fields that are said to be what leaving them out means, in order: "policy.anySource" is false, whatever an owner of a
	// lower priority says. A Spec cannot tell that from saying nothing.
	Empty []string
}

// Key returns the object's name.
func (o *Object) Key() Key { return Key{o.Kind, o.Name} }

// Equal says whether two objects say the same.
func (o *Object) Equal(other *Object) bool {
	return o.Kind == other.Kind && o.Name == other.Name && maps.Equal(o.Labels, other.Labels) && proto.Equal(o.Spec, other.Spec) &&
		slices.Equal(o.Empty, other.Empty)
}

// Pack returns a spec as it is stored and sent: the same bytes for the same spec.
func Pack(spec proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(spec)
}
