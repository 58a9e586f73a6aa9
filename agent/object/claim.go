// Claims: what only one object may have, such as a VLAN of a port. They are found again when objects change one by one.
package object

import (
	"hash/maphash"
	"maps"
	"slices"
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
		m := Mark{what: maphash.Bytes(seed, what)}
		if part != "" {
			m.part = max(1, maphash.String(seed, part))
		}
		c.marks = append(c.marks, m)
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
	what uint64
	// 0: all of it.
	part uint64
}

var seed = maphash.MakeSeed()

// Mark returns the claim's mark, which is another in each process.
func (c Claim) Mark() Mark {
	m := Mark{what: maphash.String(seed, c.What)}
	if c.Part != "" {
		m.part = max(1, maphash.String(seed, c.Part))
	}
	return m
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

// Holdings says who has what. The zero H is nobody.
type Holdings[H comparable] struct {
	all   holders[H]
	parts map[uint64]shared[H]
	order func(a, b H) int
}

// shared is who has parts of something. Mostly that is one, which is kept without a map of its own.
type shared[H comparable] struct {
	part   uint64
	holder H
	// All of them, as soon as they are several.
	several map[uint64]H
}

func (s shared[H]) of(part uint64) (H, bool) {
	if s.several != nil {
		holder, taken := s.several[part]
		return holder, taken
	}
	if s.part == part {
		return s.holder, true
	}
	var nobody H
	return nobody, false
}

// NewHoldings returns Holdings in which nobody has anything. The order decides who is told of several holders.
func NewHoldings[H comparable](order func(a, b H) int) *Holdings[H] {
	return &Holdings[H]{parts: map[uint64]shared[H]{}, order: order}
}

// Reserve makes room for so many more.
func (h *Holdings[H]) Reserve(more int) { h.all.reserve(more) }

// Holder returns somebody else who has something that the claim excludes.
func (h *Holdings[H]) Holder(claimant H, m Mark) (H, bool) {
	if holder, taken := h.all.get(m.what); taken && holder != claimant {
		return holder, true
	}
	if len(h.parts) == 0 {
		return h.nobody()
	}
	parts, there := h.parts[m.what]
	if m.part != 0 || !there || parts.several == nil {
		part := m.part
		if part == 0 {
			part = parts.part
		}
		holder, taken := parts.of(part)
		return holder, there && taken && holder != claimant
	}
	var first H
	found := false
	for _, holder := range parts.several {
		if holder != claimant && (!found || h.order(holder, first) < 0) {
			first, found = holder, true
		}
	}
	return first, found
}

func (h *Holdings[H]) nobody() (nobody H, taken bool) { return nobody, false }

// Sharers returns who has parts of something.
func (h *Holdings[H]) Sharers(m Mark) []H {
	parts, there := h.parts[m.what]
	switch {
	case !there:
		return nil
	case parts.several == nil:
		return []H{parts.holder}
	}
	return slices.SortedFunc(maps.Values(parts.several), h.order)
}

// Take gives the claimant what it claims. Nobody else may have it.
func (h *Holdings[H]) Take(claimant H, m Mark) {
	if m.part == 0 {
		h.all.put(m.what, claimant)
		return
	}
	parts, there := h.parts[m.what]
	switch {
	case parts.several != nil:
		parts.several[m.part] = claimant
		return
	case there && parts.part != m.part:
		parts.several = map[uint64]H{parts.part: parts.holder, m.part: claimant}
	default:
		parts.part, parts.holder = m.part, claimant
	}
	h.parts[m.what] = parts
}

// Release takes it away again, if the claimant has it.
func (h *Holdings[H]) Release(claimant H, m Mark) {
	if m.part == 0 {
		h.all.delete(m.what, claimant)
		return
	}
	parts, there := h.parts[m.what]
	if holder, taken := parts.of(m.part); !there || !taken || holder != claimant {
		return
	}
	delete(parts.several, m.part)
	if len(parts.several) == 0 {
		delete(h.parts, m.what)
	}
}
