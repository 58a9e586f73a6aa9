// SPDX-License-Identifier: Apache-2.0

// Claims: things that only one object may have, such as a VLAN of a port. They are computed again when objects change
// one by one.
package object

import (
	"hash/maphash"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Claim is something that an object takes for itself. Two claims to the same thing exclude each other if either is to all of
// it, or both are to the same part.
type Claim struct {
	// In words that follow "has": "port access, VLAN 100.7".
	What string
	// Empty: all of it.
	Part string
	// The field that claims it.
	Field string
}

func (c Claim) String() string {
	if c.Part == "" {
		return c.What
	}
	return c.What + ", " + c.Part
}

// Claims returns the claims of an acceptable object: the fields that its kind calls unique, and those of the kind's
// rules.
func (r *Registry) Claims(o *Object) []Claim {
	k := r.kind(o.Kind)
	if k == nil || !k.describes(o.Spec) {
		return nil
	}
	return k.claims(o.Spec)
}

func (k *Kind) claims(spec proto.Message) []Claim {
	c := Claimer{words: true}
	k.claim(spec, &c)
	return c.claims
}

func (k *Kind) claim(spec proto.Message, c *Claimer) {
	if len(k.Unique) > 0 {
		claimUnique(k, spec, c)
	}
	if k.rules.claims != nil {
		k.rules.claims(spec, c)
	}
}

// Claimer records the claims of an object.
type Claimer struct {
	// Claims are recorded in words, or as marks alone, without allocations.
	words  bool
	claims []Claim
	marks  []Mark
	// The claims include networks in which the gateway must have no address (Rules.Holds).
	Wide bool
	// The object has a part of something, and networks that must not overlap with those of the other parts (Rules.Apart).
	Apart bool
	// To put words together in.
	room []byte
}

// Words returns a buffer that begins with these words, to append the rest of a claim to.
func (c *Claimer) Words(words string) []byte { return append(c.room[:0], words...) }

// Take records a claim to something, in words that begin with Words and follow "has", or to a part of it if part is not empty: by which field
// and, in a list, by which element, or -1.
func (c *Claimer) Take(what []byte, part, field string, element int) {
	c.room = what
	if !c.words {
		c.marks = append(c.marks, Mark{maphash.Bytes(seed, what) >> 1, markOfPart(part)})
		return
	}
	if element >= 0 {
		field += "[" + strconv.Itoa(element) + "]"
	}
	c.claims = append(c.claims, Claim{What: string(what), Part: part, Field: field})
}

// Mark is a claim in few bytes: two claims that exclude each other have marks that do. The reverse may fail for a
// hash collision, so verify a match with the objects (StoredObject.Disputed).
type Mark struct {
	// One bit is free.
	what uint64
	// 0: all of it.
	part uint64
}

var seed = maphash.MakeSeed()

// Mark returns the claim's mark, which differs from process to process.
func (c Claim) Mark() Mark {
	return Mark{maphash.String(seed, c.What) >> 1, markOfPart(c.Part)}
}

func markOfPart(part string) uint64 {
	if part == "" {
		return 0
	}
	return max(1, maphash.String(seed, part))
}

// Disputed returns the claim of k with a mark, and whether the other object really claims the same.
func (k *StoredObject) Disputed(m Mark, other *StoredObject) (Claim, bool) {
	for _, c := range k.kind.claims(k.message()) {
		if c.Mark() != m {
			continue
		}
		for _, o := range other.kind.claims(other.message()) {
			if o.What == c.What && (o.Part == "" || c.Part == "" || o.Part == c.Part) {
				// Of two claims, the part of the other.
				c.Part = o.Part
				return c, true
			}
		}
	}
	return Claim{}, false
}

// claimUnique claims each combination of values at the kind's unique paths.
func claimUnique(k *Kind, spec proto.Message, c *Claimer) {
	whats := []string{""}
	for _, p := range k.Unique {
		var values []string
		p.each(spec.ProtoReflect(), p.steps, func(f *Field, v protoreflect.Value) {
			if f.Desc.Kind() == protoreflect.StringKind {
				values = append(values, f.canonical(v.String()))
			} else {
				values = append(values, f.text(v))
			}
		})
		if f := p.Field(); len(values) == 0 && !f.Desc.IsList() && f.Desc.Kind() == protoreflect.StringKind {
			if name := f.canonical(""); name != "" {
				values = []string{name}
			}
		}
		if len(values) == 0 {
			return
		}
		var longer []string
		for _, what := range whats {
			for _, v := range values {
				longer = append(longer, strings.TrimPrefix(what+", "+p.Text+" "+v, ", "))
			}
		}
		whats = longer
	}
	for _, what := range whats {
		c.Take(append(append(c.Words(k.Name), ' '), what...), "", k.Unique[len(k.Unique)-1].Text, -1)
	}
}
