// Claims: what only one object may have, such as a VLAN of a port. They are found again when objects change one by one.
package object

import (
	"maps"
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
	var claims []Claim
	if len(k.Unique) > 0 {
		claims = appendUnique(claims, k, o.Spec)
	}
	if k.rules.claims != nil {
		claims = append(claims, k.rules.claims(o.Spec)...)
	}
	return claims
}

// appendUnique claims each combination of values at the kind's unique paths.
func appendUnique(claims []Claim, k *Kind, spec proto.Message) []Claim {
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
			return claims
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
		claims = append(claims, Claim{What: k.Name + " " + what, Field: k.Unique[len(k.Unique)-1].Text})
	}
	return claims
}

// Holdings says who has what.
type Holdings struct {
	all   map[string]Key
	parts map[string]map[string]Key
}

// NewHoldings returns Holdings in which nobody has anything.
func NewHoldings() *Holdings {
	return &Holdings{all: map[string]Key{}, parts: map[string]map[string]Key{}}
}

// Reserve makes room for so many more.
func (h *Holdings) Reserve(more int) {
	if more > len(h.all) && more > 1000 {
		larger := make(map[string]Key, len(h.all)+more)
		maps.Copy(larger, h.all)
		h.all = larger
	}
}

// Holder returns somebody else who has something that the claim excludes.
func (h *Holdings) Holder(claimant Key, c Claim) (Key, bool) {
	if k, taken := h.all[c.What]; taken && k != claimant {
		return k, true
	}
	if c.Part != "" {
		k, taken := h.parts[c.What][c.Part]
		return k, taken && k != claimant
	}
	var first Key
	found := false
	for _, k := range h.parts[c.What] {
		if k != claimant && (!found || k.Compare(first) < 0) {
			first, found = k, true
		}
	}
	return first, found
}

// Take gives the claimant what it claims. Nobody else may have it.
func (h *Holdings) Take(claimant Key, c Claim) {
	if c.Part == "" {
		h.all[c.What] = claimant
		return
	}
	parts := h.parts[c.What]
	if parts == nil {
		parts = map[string]Key{}
		h.parts[c.What] = parts
	}
	parts[c.Part] = claimant
}

// Release takes it away again, if the claimant has it.
func (h *Holdings) Release(claimant Key, c Claim) {
	if c.Part == "" {
		if h.all[c.What] == claimant {
			delete(h.all, c.What)
		}
		return
	}
	if parts := h.parts[c.What]; parts[c.Part] == claimant {
		delete(parts, c.Part)
		if len(parts) == 0 {
			delete(h.parts, c.What)
		}
	}
}
