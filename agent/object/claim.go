// Claims: what only one object may have, such as a VLAN of a port. They are found again when objects change one by one.
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

// Claims returns what an object, which Check accepts, takes for itself: the fields that its kind calls unique, and what the
// kind's rules say.
func (r *Registry) Claims(o *Object) []Claim {
	k := r.byName[o.Kind]
	if k == nil || !k.describes(o.Spec) {
		return nil
	}
	return k.claims(o.Spec)
}

func (k *Kind) claims(spec proto.Message) []Claim {
	c := claimer{words: true}
	k.claim(spec, &c)
	return c.claims
}

func (k *Kind) claim(spec proto.Message, c *claimer) {
	if len(k.Unique) > 0 {
		claimUnique(k, spec, c)
	}
	if k.rules.claims != nil {
		k.rules.claims(spec, c)
	}
}

// claimer takes down what an object claims: in words, or as marks alone, for which nothing is allocated.
type claimer struct {
	words  bool
	claims []Claim
	marks  []Mark
	// Among it are networks in which there may be no address of ours; of others who share something with it none may have any part.
	wide, apart bool
	// To put words together in.
	room []byte
}

// the is room that begins with some words.
func (c *claimer) the(words string) []byte { return append(c.room[:0], words...) }

// take is told what, which part of it, and by which field; of a list, by which element, or -1.
func (c *claimer) take(what []byte, part, field string, element int) {
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

// Mark is a claim in few bytes: two claims that exclude each other have marks that do. Two marks may do so by a chance that nobody
// will live to see; so whoever finds that asks the objects (Kept.Disputed).
type Mark struct {
	// One bit is free.
	what uint64
	// 0: all of it.
	part uint64
}

var seed = maphash.MakeSeed()

// Mark returns the claim's mark, which is another in each process.
func (c Claim) Mark() Mark {
	return Mark{maphash.String(seed, c.What) >> 1, markOfPart(c.Part)}
}

func markOfPart(part string) uint64 {
	if part == "" {
		return 0
	}
	return max(1, maphash.String(seed, part))
}

// Disputed returns the claim of k that a mark stands for, and whether the other object really claims the same.
func (k *Kept) Disputed(m Mark, other *Kept) (Claim, bool) {
	for _, c := range k.kind.claims(k.message()) {
		if c.Mark() != m {
			continue
		}
		for _, o := range other.kind.claims(other.message()) {
			if o.What == c.What && (o.Part == "" || c.Part == "" || o.Part == c.Part) {
				// Of two, what the other has.
				c.Part = o.Part
				return c, true
			}
		}
	}
	return Claim{}, false
}

// claimUnique claims each combination of values at the kind's unique paths.
func claimUnique(k *Kind, spec proto.Message, c *claimer) {
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
		c.take(append(append(c.the(k.Name), ' '), what...), "", k.Unique[len(k.Unique)-1].Text, -1)
	}
}
