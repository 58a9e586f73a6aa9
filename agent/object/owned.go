// SPDX-License-Identifier: Apache-2.0

// Addresses of ours and networks of subscribers: none of the first may be in one of the second. That one contains the other is no claim
// to the same thing, so it is found by looking instead: networks among the claims, addresses in an order of their own.
package object

import (
	"net/netip"
	"slices"

	"github.com/google/btree"
)

// owned are addresses of ours, of each VRF in order.
type owned map[string]*btree.BTreeG[own]

type own struct {
	address netip.Addr
	of      *StoredObject
}

func (a own) before(b own) bool { return a.address.Less(b.address) }

// Of each node of a tree.
const ownedDegree = 32

func (o owned) take(k *StoredObject) {
	for _, h := range k.kind.rules.owns(k.message()) {
		all := o[h.VRF]
		if all == nil {
			all = btree.NewG(ownedDegree, own.before)
			o[h.VRF] = all
		}
		if one := (own{h.Prefix.Addr(), k}); !all.Has(one) {
			all.ReplaceOrInsert(one)
		}
	}
}

func (o owned) release(k *StoredObject) {
	for _, h := range k.kind.rules.owns(k.message()) {
		all := o[h.VRF]
		if all == nil {
			continue
		}
		if one, there := all.Get(own{address: h.Prefix.Addr()}); there && one.of == k {
			all.Delete(one)
		}
		if all.Len() == 0 {
			delete(o, h.VRF)
		}
	}
}

// first returns the lowest address of ours that is not below this one.
func (o owned) first(vrf string, from netip.Addr) (found own, there bool) {
	if all := o[vrf]; all != nil {
		all.AscendGreaterOrEqual(own{address: from}, func(one own) bool {
			found, there = one, true
			return false
		})
	}
	return found, there
}

// intruded reports addresses of the gateway in networks of k.
func (s *Set) intruded(k *StoredObject) (errs Errors) {
	if len(s.owned) == 0 {
		return nil
	}
	for _, h := range k.holds() {
		if first, there := s.owned.first(h.VRF, h.Prefix.Addr()); there && h.Prefix.Contains(first.address) {
			errs = append(errs, &Error{Object: k.Key(), Field: h.Path(), Found: Quote(h.Prefix.String()),
				Problem:  first.of.Key().String() + " has " + first.address.String() + ", which is in it, as our own address in VRF " + h.VRF,
				Accepted: "prefixes without it"})
		}
	}
	return errs
}

// holds returns the networks that are the object's.
func (k *StoredObject) holds() []Held {
	if f := k.kind.rules.holdsPacked; f != nil {
		return f(k.Spec())
	}
	return k.kind.rules.holds(k.message())
}

// intruding reports addresses of k, which has this number, in networks of other objects.
func (s *Set) intruding(k *StoredObject, number Number) (errs Errors) {
	for _, h := range k.kind.rules.owns(k.message()) {
		for bits := h.Prefix.Bits() - 1; bits > 0; bits-- {
			around, err := h.Prefix.Addr().Prefix(bits)
			if err != nil {
				break
			}
			// Of a part that no object has, so that only an object with all of it is found.
			c := Claim{What: destination(h.VRF, around), Part: "what is in it"}
			has, taken := s.holdings.Holder(number, c.Mark())
			if !taken {
				continue
			}
			holder := s.objects.At(has)
			if holder.kind.rules.holds == nil {
				continue
			}
			if slices.ContainsFunc(holder.kind.rules.holds(holder.message()), func(o Held) bool { return o.VRF == h.VRF && o.Prefix == around }) {
				errs = append(errs, &Error{Object: k.Key(), Field: h.Path(), Problem: holder.Key().String() + " already has " + c.What + ", which it is in"})
				break
			}
		}
	}
	return errs
}

// overlapping returns errors for networks of k (with this number) that overlap with networks of others that share the
// same thing. The one that was reported already is left out of those of ranges.
func (s *Set) overlapping(k *StoredObject, number, reported Number) (errs Errors) {
	mine := k.kind.rules.apart(k.message())
	if mine == nil {
		return nil
	}
	var seen []Number
	for _, of := range mine.Of {
		for _, sharer := range s.holdings.Sharers(Claim{What: of}.Mark()) {
			if sharer == number || slices.Contains(seen, sharer) {
				continue
			}
			other := s.objects.At(sharer)
			if other.kind.rules.apart == nil {
				continue
			}
			theirs := other.kind.rules.apart(other.message())
			if theirs == nil || !slices.Contains(theirs.Of, of) {
				continue
			}
			seen = append(seen, sharer)
			errs = append(errs, overlappingNetworks(k, other, mine, theirs)...)
			if sharer != reported {
				errs = append(errs, overlappingRanges(k, other, mine, theirs, of)...)
				errs = append(errs, overlappingAddresses(k, other, mine, theirs)...)
			}
		}
	}
	return errs
}

func overlappingNetworks(k, other *StoredObject, mine, theirs *Shared) Errors {
	for _, h := range mine.Networks {
		if i := slices.IndexFunc(theirs.Networks, func(o Held) bool { return o.Prefix.Overlaps(h.Prefix) }); i >= 0 {
			return Errors{{Object: k.Key(), Field: h.Path(), Found: Quote(h.Prefix.String()),
				Problem:  other.Key().String() + " has " + theirs.Networks[i].Prefix.String() + " on " + mine.Noun + ", and " + mine.Reason,
				Accepted: mine.Accepted}}
		}
	}
	return nil
}

func overlappingRanges(k, other *StoredObject, mine, theirs *Shared, of string) Errors {
	for _, h := range mine.Ranges {
		if i := slices.IndexFunc(theirs.Ranges, func(o HeldRange) bool { return o.First <= h.Last && h.First <= o.Last }); i >= 0 {
			o := theirs.Ranges[i]
			return Errors{{Object: k.Key(), Field: h.Field, Found: Quote(h.Text),
				Problem: other.Key().String() + " has " + o.Field + " " + o.Text + " of " + of, Accepted: mine.Accepted}}
		}
	}
	return nil
}

func overlappingAddresses(k, other *StoredObject, mine, theirs *Shared) Errors {
	for _, h := range mine.Addresses {
		if i := slices.IndexFunc(theirs.Addresses, func(o HeldAddresses) bool { return !h.Last.Less(o.First) && !o.Last.Less(h.First) }); i >= 0 {
			o := theirs.Addresses[i]
			return Errors{{Object: k.Key(), Field: h.Field, Found: Quote(h.Text),
				Problem: "overlaps " + o.Field + " " + o.Text + " of " + other.Key().String() + " in " + mine.Noun, Accepted: mine.Accepted}}
		}
	}
	return nil
}
