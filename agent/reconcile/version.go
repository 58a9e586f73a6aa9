package reconcile

import "sluice.dev/sluice/agent/object"

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

func (v *Version) needs() []object.Key {
	if v.Kept == nil {
		return nil
	}
	return v.Needs
}

func (v *Version) marks() []object.Mark {
	if v.Kept == nil {
		return nil
	}
	return v.Marks
}

// Want is what an object is wanted to say; nil: nobody wants it any more.
type Want struct {
	Key     object.Key
	Version *Version
}
