// Addresses of ours and networks of subscribers: none of the first may be in one of the second. That one contains the other is no claim
// to the same thing, so it is found by looking instead: networks among the claims, addresses in an order of their own.
package object

import (
	"net/netip"
	"slices"
	"strconv"
)

// held is a network of a VRF, or an address in it.
type held struct {
	vrf    string
	prefix netip.Prefix
	// The field that says so; of a list, which element.
	field   string
	element int
}

func (h held) said() string { return h.field + "[" + strconv.Itoa(h.element) + "]" }

// owned are addresses of ours, of each VRF in order. There are few of them, and many networks to look them up in.
type owned map[string][]own

type own struct {
	address netip.Addr
	of      *Kept
}

func (o owned) find(vrf string, a netip.Addr) (int, bool) {
	return slices.BinarySearchFunc(o[vrf], a, func(x own, a netip.Addr) int { return x.address.Compare(a) })
}

func (o owned) take(k *Kept) {
	for _, h := range k.kind.rules.owns(k.message()) {
		if at, there := o.find(h.vrf, h.prefix.Addr()); !there {
			o[h.vrf] = slices.Insert(o[h.vrf], at, own{h.prefix.Addr(), k})
		}
	}
}

func (o owned) release(k *Kept) {
	for _, h := range k.kind.rules.owns(k.message()) {
		if at, there := o.find(h.vrf, h.prefix.Addr()); there && o[h.vrf][at].of == k {
			o[h.vrf] = slices.Delete(o[h.vrf], at, at+1)
		}
	}
}

// intruded tells of addresses of ours in networks of k.
func (s *Set) intruded(k *Kept) (errs Errors) {
	if len(s.owned) == 0 {
		return nil
	}
	for _, h := range k.kind.rules.holds(k.message()) {
		all := s.owned[h.vrf]
		// The first that is not below the network.
		at, _ := s.owned.find(h.vrf, h.prefix.Addr())
		if at < len(all) && h.prefix.Contains(all[at].address) {
			errs = append(errs, &Error{Object: k.Key(), Field: h.said(), Found: quote(h.prefix.String()),
				Problem:  all[at].of.Key().String() + " has " + all[at].address.String() + ", which is in it, as our own address in VRF " + h.vrf,
				Accepted: "prefixes without it"})
		}
	}
	return errs
}

// intruding tells of addresses of k, whose number is told, in networks of others.
func (s *Set) intruding(k *Kept, number Number) (errs Errors) {
	for _, h := range k.kind.rules.owns(k.message()) {
		for bits := h.prefix.Bits() - 1; bits > 0; bits-- {
			around, err := h.prefix.Addr().Prefix(bits)
			if err != nil {
				break
			}
			// Of a part that nobody has, so that only he is found who has all.
			c := Claim{What: destination(h.vrf, around), Part: "what is in it"}
			has, taken := s.holdings.Holder(number, c.Mark())
			if !taken {
				continue
			}
			holder := s.objects.At(has)
			if holder.kind.rules.holds == nil {
				continue
			}
			if slices.ContainsFunc(holder.kind.rules.holds(holder.message()), func(o held) bool { return o.vrf == h.vrf && o.prefix == around }) {
				errs = append(errs, &Error{Object: k.Key(), Field: h.said(), Problem: holder.Key().String() + " already has " + c.What + ", which it is in"})
				break
			}
		}
	}
	return errs
}

// overlapping tells of networks of k, whose number is told, that others have, too, who have a part of the same.
func (s *Set) overlapping(k *Kept, number Number) (errs Errors) {
	of, mine := k.kind.rules.apart(k.message())
	for _, sharer := range s.holdings.Sharers(Claim{What: of}.Mark()) {
		other := s.objects.At(sharer)
		if sharer == number || other.kind.rules.apart == nil {
			continue
		}
		theirOf, theirs := other.kind.rules.apart(other.message())
		if theirOf != of {
			continue
		}
		for _, h := range mine {
			if i := slices.IndexFunc(theirs, func(o held) bool { return o.prefix.Overlaps(h.prefix) }); i >= 0 {
				errs = append(errs, &Error{Object: k.Key(), Field: h.said(), Found: quote(h.prefix.String()),
					Problem:  other.Key().String() + " has " + theirs[i].prefix.String() + " on the same access, and packets are told apart by it",
					Accepted: "what no other PDU session of the subscriber has"})
				break
			}
		}
	}
	return errs
}
