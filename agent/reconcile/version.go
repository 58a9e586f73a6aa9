// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"iter"

	"sluice.dev/sluice/agent/object"
)

// Version is an immutable state of an object.
type Version struct {
	// Its content; nil: the data plane has an object that cannot be decoded.
	*object.StoredObject
	// The first revision of the configuration that has this version, and the number of versions of the object up to it. 0: it was found in the
	// data plane.
	Revision, Generation uint64
	// Where the object comes from; nil: configuration.
	Origin *Origin
}

// Origin is where objects come from that are not configuration.
type Origin struct {
	// The service that produces them, in one of its lives. The data plane keeps the name with each.
	Service string
	// It was found in the data plane, the service has not released unproduced objects, and so it stays.
	retained bool
	// It is builtin, and in no configuration.
	builtin bool
}

var alwaysThere = &Origin{builtin: true}

// owner returns the service that produces the object; empty: none does.
func (v *Version) owner() string {
	if v.Origin == nil {
		return ""
	}
	return v.Origin.Service
}

func (v *Version) builtin() bool { return v.Origin != nil && v.Origin.builtin }

func (v *Version) retained() bool { return v.Origin != nil && v.Origin.retained }

// same reports whether two versions are the same for a data plane. An unreadable version equals none.
func (v *Version) same(other *Version) bool {
	return v.StoredObject != nil && other.StoredObject != nil && v.owner() == other.owner() && v.Spec() == other.Spec()
}

// says reports whether a version has this spec and owner. No version has none.
func (v *Version) says(spec, owner string) bool {
	return v != nil && v.StoredObject != nil && v.owner() == owner && v.Spec() == spec
}

// unread says whether it is not known what it needs and claims.
func (v *Version) unread() bool { return v != nil && v.StoredObject != nil && !v.Examined() }

func (v *Version) needs() iter.Seq[object.Key] {
	if v.StoredObject == nil {
		return func(func(object.Key) bool) {}
	}
	return v.Needs()
}

// named is the same for versions that need the same.
func (v *Version) named() string {
	if v.StoredObject == nil {
		return ""
	}
	return v.Named()
}

func (v *Version) names(k object.Key) bool { return v != nil && v.StoredObject != nil && v.Names(k) }

// Desired is the desired version of an object; nil: it has no owner any more.
type Desired struct {
	Key     object.Key
	Version *Version
}
