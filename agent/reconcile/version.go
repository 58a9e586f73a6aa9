package reconcile

import "sluice.dev/sluice/agent/object"

// Version is what an object says at one time, and what follows from it. It never changes.
type Version struct {
	Object *object.Object // nil: the data plane has something that cannot be read
	Spec   []byte
	// What it names, and what it takes for itself.
	Needs  []object.Key
	Claims []object.Claim
	// Whose it is.
	Owner string
	// The revision of all that is wanted since which it says so, and how many versions of the object there were by then. 0: it was
	// found in the data plane.
	Revision, Generation uint64
	// It stands for a builtin object that nobody wrote down.
	builtin bool
}

// NewVersion returns what an object says, with the facts about it.
func NewVersion(o *object.Object, f object.Facts, revision, generation uint64) *Version {
	return &Version{Object: o, Spec: f.Spec, Needs: f.Needs, Claims: f.Claims, Revision: revision, Generation: generation}
}

// Want is what an object is wanted to say; nil: nobody wants it any more.
type Want struct {
	Key     object.Key
	Version *Version
}
