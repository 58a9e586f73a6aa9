package reconcile

import (
	"iter"

	"sluice.dev/sluice/agent/object"
)

// Version is what an object says at one time. It never changes.
type Version struct {
	// What it says; nil: the data plane has something that cannot be read.
	*object.Kept
	// The revision of all that is wanted since which it says so, and how many versions of the object there were by then. 0: it was
	// found in the data plane.
	Revision, Generation uint64
	// It stands for a builtin object that nobody wrote down.
	builtin bool
}

// same says whether two versions are the same for a data plane. What cannot be read is the same as nothing.
func (v *Version) same(other *Version) bool {
	return v.Kept != nil && other.Kept != nil && v.Spec() == other.Spec()
}

// says: nobody says nothing.
func (v *Version) says(spec []byte) bool {
	return v != nil && v.Kept != nil && v.Spec() == string(spec)
}

func (v *Version) needs() iter.Seq[object.Key] {
	if v.Kept == nil {
		return func(func(object.Key) bool) {}
	}
	return v.Needs()
}

// named is the same for versions that need the same.
func (v *Version) named() string {
	if v.Kept == nil {
		return ""
	}
	return v.Named()
}

func (v *Version) names(k object.Key) bool { return v != nil && v.Kept != nil && v.Names(k) }

func (v *Version) marks() iter.Seq[object.Mark] {
	if v.Kept == nil {
		return func(func(object.Mark) bool) {}
	}
	return v.Marks()
}

// Want is what an object is wanted to say; nil: nobody wants it any more.
type Want struct {
	Key     object.Key
	Version *Version
}
