// SPDX-License-Identifier: Apache-2.0

// Package object is the model of objects: the kinds of the contract (api/schema.proto), their spelling, the checks of
// single objects and of all together, and the references between them. It names no kind, except in checks of one kind
// that annotations cannot express; each of those has a file of its own.
package object

import (
	"cmp"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
)

// APIVersion is the apiVersion of every object.
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

// Object is an object of the configuration. It is immutable: a change is another Object.
type Object struct {
	Kind   string
	Name   string
	Labels map[string]string
	// The message that the kind names.
	Spec proto.Message
	// Paths of fields that have their zero value explicitly, in order: "policy.anySource" is false, and overrides owners of a
	// lower priority. A Spec cannot distinguish that from a field that is left out.
	Empty []string
}

// Key returns the object's name.
func (o *Object) Key() Key { return Key{o.Kind, o.Name} }

// Equal reports whether two objects say the same.
func (o *Object) Equal(other *Object) bool {
	return o.Kind == other.Kind && o.Name == other.Name && maps.Equal(o.Labels, other.Labels) && proto.Equal(o.Spec, other.Spec) &&
		slices.Equal(o.Empty, other.Empty)
}

// Pack returns a spec as it is stored and sent: the same bytes for the same spec.
func Pack(spec proto.Message) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(spec)
}
