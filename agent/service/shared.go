// SPDX-License-Identifier: Apache-2.0

package service

import (
	"encoding/hex"
	"hash/fnv"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/object"
)

// Shared makes volatile objects that many users name. Equal specs of one owner are one object, which exists while it has users. Calls of its methods do not
// overlap.
type Shared struct {
	prefix  string
	put     func(*object.Object, func(Result))
	remove  func(object.Key)
	refused func(object.Key, error)
	all     map[object.Key]*sharedObject
}

type sharedObject struct {
	users int
	ready bool
	then  []func()
}

// Writer writes volatile objects: Objects.
type Writer interface {
	Put(one *object.Object, result func(Result))
	Delete(k object.Key, result func(Result))
}

// NewShared makes an empty Shared. Names of its objects begin with prefix. in runs a function so that it does not overlap with a method. Shared calls
// refused for each object that a data plane refuses.
func NewShared(o Writer, prefix string, in func(func()), refused func(object.Key, error)) *Shared {
	return &Shared{prefix: prefix, all: map[object.Key]*sharedObject{}, refused: refused,
		put:    func(one *object.Object, result func(Result)) { o.Put(one, func(r Result) { in(func() { result(r) }) }) },
		remove: func(k object.Key) { o.Delete(k, nil) }}
}

// Name is the name of an object. Equal specs of one owner have the same name; the owner "" is all of them.
func (s *Shared) Name(spec proto.Message, owner string) string {
	return SharedName(s.prefix, spec, owner)
}

// SharedName is Name of a Shared with a prefix.
func SharedName(prefix string, spec proto.Message, owner string) string {
	return prefix + contentName(spec, owner)
}

// Take makes an object, or counts one user more of it. then is called when the data plane has answered, at once if it has already: an object that it
// refuses is reported, and objects that refer to it wait.
func (s *Shared) Take(kind string, spec proto.Message, then func()) object.Key {
	return s.TakeAs(kind, s.Name(spec, ""), spec, then)
}

// TakeAs is Take of an object of which the name is known.
func (s *Shared) TakeAs(kind, name string, spec proto.Message, then func()) object.Key {
	key := object.Key{Kind: kind, Name: name}
	one := s.all[key]
	if one == nil {
		one = &sharedObject{}
		s.all[key] = one
		s.put(&object.Object{Kind: kind, Name: key.Name, Spec: spec}, func(r Result) {
			if r.Err != nil {
				s.refused(key, r.Err)
			}
			waiting := one.then
			one.ready, one.then = true, nil
			for _, f := range waiting {
				f()
			}
		})
	}
	one.users++
	if one.ready {
		then()
	} else {
		one.then = append(one.then, then)
	}
	return key
}

// Release counts one user less, and deletes the object of the last.
func (s *Shared) Release(key object.Key) {
	one := s.all[key]
	if one == nil {
		return
	}
	if one.users--; one.users == 0 {
		delete(s.all, key)
		s.remove(key)
	}
}

// contentName is the same for equal specs of one owner.
func contentName(spec proto.Message, owner string) string {
	// A message of ours can always be packed.
	packed, _ := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	h := fnv.New128a()
	h.Write(packed)
	h.Write([]byte(owner))
	return hex.EncodeToString(h.Sum(nil))
}
