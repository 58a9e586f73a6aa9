// SPDX-License-Identifier: Apache-2.0

// Rules of kinds beyond their annotations. Each concept has its own in agent/CONCEPT/rules; agent/concepts lists them.
package object

import (
	"errors"
	"net/netip"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Rules are rules of the kind with the message M. Each function may be nil. They get specs whose fields are acceptable, each by itself.
//
// Several concepts may have rules of one kind: a core of sessions has rules of Session. Check, Warn, Claims, Owns, Local and Networks are then those
// of all of them; each other function may be one concept's only.
type Rules[M proto.Message] struct {
	// Check reports mistakes of fields together, or of a text that no format describes.
	Check func(spec M, report Report)
	// Warn reports what is acceptable but is of no use.
	Warn func(spec M, report Report)
	// Claims takes what only one object may have.
	Claims func(spec M, c *Claimer)
	// Holds returns networks of subscribers, in which the gateway must have no address. Claims takes them too, and sets Claimer.Wide.
	Holds func(spec M) []Held
	// HoldsPacked is Holds of a packed spec (see Texts), for kinds with very many objects.
	HoldsPacked func(spec string) []Held
	// Owns returns addresses of the gateway. Claims takes them too.
	Owns func(spec M) []Held
	// Local returns addresses to which the object's packets are sent. A warning tells that no object Owns them.
	Local func(spec M) []Held
	// Apart returns what the object shares with others; nil: nothing. Claims takes a part of it, and sets Claimer.Apart.
	Apart func(spec M) *Shared
	// Networks returns the networks that the gateway directly reaches by the object.
	Networks func(spec M) []Network
	// NextHops returns the VRF and the next hops whose interface is found by their address, and whether there are others, or none is needed.
	NextHops func(spec M) (vrf string, floating []NextHop, others bool)
	// Interrupts reports whether a change of an object that only services see interrupts traffic of subscribers for a moment.
	Interrupts func(before, after M) bool
}

// KindRules are the Rules of any kind.
type KindRules interface {
	untyped() (protoreflect.FullName, rules)
}

// Report reports a mistake in a field. The field's path, the found text and the accepted values may be empty, as in Error.
type Report func(field, problem, found, accepted string)

// Held is a network of a VRF, or an address in it, and the field that has it.
type Held struct {
	VRF    string
	Prefix netip.Prefix
	// In a list, Element is the index; else it is less than 0.
	Field   string
	Element int
}

// Path returns the field's path: "addresses[1]".
func (h Held) Path() string {
	if h.Element < 0 {
		return h.Field
	}
	return h.Field + "[" + strconv.Itoa(h.Element) + "]"
}

// Shared are things of which several objects have a part each. Their networks, and their ranges of numbers or addresses, must not overlap.
type Shared struct {
	// As in the claim of each part (Claim.What).
	Of       []string
	Networks []Held
	Ranges   []HeldRange
	// In any order.
	Addresses []HeldAddresses
	// For the error: what two objects share ("the same access"), why overlaps are a mistake, and what is accepted. Of ranges, Of is what they share;
	// of addresses, Noun, without a reason.
	Noun, Reason, Accepted string
}

// HeldRange is a range of numbers, and the field that has it: "innerVlans[0]".
type HeldRange struct {
	First, Last int
	Text, Field string
}

// HeldAddresses are those from one to another, and the field that has them: "ranges[0]".
type HeldAddresses struct {
	First, Last netip.Addr
	Text, Field string
}

// Network is a network that the gateway directly reaches.
type Network struct {
	VRF    string
	Prefix netip.Prefix
}

// NextHop is a next hop whose interface is found by its address, and its field.
type NextHop struct {
	Address netip.Addr
	Field   string
}

// rules are Rules of a kind that is not known to the compiler.
type rules struct {
	check, warn func(spec proto.Message, report Report)
	claims      func(spec proto.Message, c *Claimer)
	holds, owns func(spec proto.Message) []Held
	local       func(spec proto.Message) []Held
	holdsPacked func(spec string) []Held
	apart       func(spec proto.Message) *Shared
	networks    func(spec proto.Message) []Network
	nextHops    func(spec proto.Message) (vrf string, floating []NextHop, others bool)
	interrupts  func(before, after proto.Message) bool
}

func (r Rules[M]) untyped() (protoreflect.FullName, rules) {
	var none M
	u := rules{check: reporting(r.Check), warn: reporting(r.Warn), holds: listed(r.Holds), owns: listed(r.Owns), local: listed(r.Local), holdsPacked: r.HoldsPacked, networks: listed(r.Networks)}
	if claims := r.Claims; claims != nil {
		u.claims = func(spec proto.Message, c *Claimer) {
			if m, ok := spec.(M); ok {
				claims(m, c)
			}
		}
	}
	if apart := r.Apart; apart != nil {
		u.apart = func(spec proto.Message) *Shared {
			if m, ok := spec.(M); ok {
				return apart(m)
			}
			return nil
		}
	}
	if nextHops := r.NextHops; nextHops != nil {
		u.nextHops = func(spec proto.Message) (vrf string, floating []NextHop, others bool) {
			if m, ok := spec.(M); ok {
				return nextHops(m)
			}
			return "", nil, true
		}
	}
	if interrupts := r.Interrupts; interrupts != nil {
		u.interrupts = func(before, after proto.Message) bool {
			b, is := before.(M)
			a, too := after.(M)
			return is && too && interrupts(b, a)
		}
	}
	return none.ProtoReflect().Descriptor().FullName(), u
}

// and returns the rules of two concepts together.
func (r rules) and(more rules) (rules, error) {
	switch {
	case r.holds != nil && more.holds != nil, r.holdsPacked != nil && more.holdsPacked != nil:
		return r, errors.New("two concepts have Holds")
	case r.apart != nil && more.apart != nil:
		return r, errors.New("two concepts have Apart")
	case r.nextHops != nil && more.nextHops != nil:
		return r, errors.New("two concepts have NextHops")
	case r.interrupts != nil && more.interrupts != nil:
		return r, errors.New("two concepts have Interrupts")
	}
	if more.holds != nil {
		r.holds = more.holds
	}
	if more.holdsPacked != nil {
		r.holdsPacked = more.holdsPacked
	}
	if more.apart != nil {
		r.apart = more.apart
	}
	if more.nextHops != nil {
		r.nextHops = more.nextHops
	}
	if more.interrupts != nil {
		r.interrupts = more.interrupts
	}
	r.check, r.warn, r.claims = inTurn(r.check, more.check), inTurn(r.warn, more.warn), inTurn(r.claims, more.claims)
	r.owns, r.local, r.networks = together(r.owns, more.owns), together(r.local, more.local), together(r.networks, more.networks)
	return r, nil
}

// inTurn calls f and then g. Either may be nil.
func inTurn[T any](f, g func(spec proto.Message, to T)) func(spec proto.Message, to T) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(spec proto.Message, to T) {
		f(spec, to)
		g(spec, to)
	}
}

// together returns what f and g return. Either may be nil.
func together[E any](f, g func(spec proto.Message) []E) func(spec proto.Message) []E {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(spec proto.Message) []E { return append(f(spec), g(spec)...) }
}

// reporting is f for a message that is not known to the compiler; nil if f is nil.
func reporting[M proto.Message](f func(spec M, report Report)) func(spec proto.Message, report Report) {
	if f == nil {
		return nil
	}
	return func(spec proto.Message, report Report) {
		if m, ok := spec.(M); ok {
			f(m, report)
		}
	}
}

// listed is f for a message that is not known to the compiler; nil if f is nil.
func listed[M proto.Message, E any](f func(spec M) []E) func(spec proto.Message) []E {
	if f == nil {
		return nil
	}
	return func(spec proto.Message) []E {
		if m, ok := spec.(M); ok {
			return f(m)
		}
		return nil
	}
}

// Warn reports what is acceptable in an object, but is of no use.
func (r *Registry) Warn(o *Object, report Report) {
	if k := r.kind(o.Kind); k != nil && k.rules.warn != nil {
		k.rules.warn(o.Spec, report)
	}
}

// Local returns the addresses to which packets for an object are sent.
func (r *Registry) Local(o *Object) []Held {
	if k := r.kind(o.Kind); k != nil && k.rules.local != nil {
		return k.rules.local(o.Spec)
	}
	return nil
}

// Owns returns the addresses of the gateway that an object has.
func (r *Registry) Owns(o *Object) []Held {
	if k := r.kind(o.Kind); k != nil && k.rules.owns != nil {
		return k.rules.owns(o.Spec)
	}
	return nil
}

// Owners returns the names of the kinds whose objects have addresses of the gateway.
func (r *Registry) Owners() []string {
	var names []string
	for _, k := range r.Kinds() {
		if k.rules.owns != nil {
			names = append(names, k.Name)
		}
	}
	return names
}

// Networks returns the networks that the gateway directly reaches by the object; of most kinds, none.
func (k *StoredObject) Networks() []Network {
	if k.kind.rules.networks == nil {
		return nil
	}
	return k.kind.rules.networks(k.message())
}

// HasNetworks reports whether objects of the kind may have Networks; nil has none.
func (k *Kind) HasNetworks() bool { return k != nil && k.rules.networks != nil }

// HasNextHops reports whether objects of the kind may have NextHops; nil has none.
func (k *Kind) HasNextHops() bool { return k != nil && k.rules.nextHops != nil }

// Interrupts reports whether a change of an object that only services see interrupts traffic of subscribers for a moment; of most kinds, none does.
func (k *StoredObject) Interrupts(after *StoredObject) bool {
	return k.kind.rules.interrupts != nil && k.kind.rules.interrupts(k.message(), after.message())
}

// NextHops returns the next hops whose interface is found by their addresses, and whether there are others, or the object
// needs none, as most kinds.
func (k *StoredObject) NextHops() (vrf string, floating []NextHop, others bool) {
	if k.kind.rules.nextHops == nil {
		return "", nil, true
	}
	return k.kind.rules.nextHops(k.message())
}
