// SPDX-License-Identifier: Apache-2.0

// Data planes that the store does not know yet.
package intent

import (
	"context"
	"fmt"
	"iter"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// UnknownDataPlane is the error of a data plane that the store does not know, and that has objects that are not in the configuration.
// Another store may have their configuration.
type UnknownDataPlane struct {
	Dataplane string
	// How many objects, and the first of them.
	Objects int
	First   object.Key
}

func (u *UnknownDataPlane) Error() string {
	objects := u.First.String() + ", which is"
	if u.Objects > 1 {
		objects = fmt.Sprintf("%d objects, such as %s, which are", u.Objects, u.First)
	}
	return fmt.Sprintf("data plane %s has %s not in the configuration, and the store does not know this data plane: check that it is the right data plane, "+
		"and that the store's disk is mounted. The agent changes nothing there until the configuration has all its objects, or until the agent starts with --begin-anew",
		u.Dataplane, objects)
}

// AddKnown makes a data plane known to the store, after a check of its objects. The error is *UnknownDataPlane if the check fails; anew: no check.
func (d *Desired) AddKnown(ctx context.Context, dataplane string, anew bool, listed iter.Seq2[[]reconcile.Object, error]) error {
	known, err := d.config.Store.IsKnown(dataplane)
	if known || err != nil {
		return err
	}
	s, err := d.sites.named(dataplane)
	if err != nil {
		return err
	}
	unknown := &UnknownDataPlane{Dataplane: dataplane}
	for page, err := range listed {
		if err != nil {
			return fmt.Errorf("listing objects: %w", err)
		}
		d.mu.RLock()
		for _, o := range page {
			kind := d.registry.Kind(o.Key.Kind)
			untouched := kind != nil && kind.IsBuiltin(o.Key.Name) && len(o.Spec) == 0
			if untouched || s.set.Get(o.Key) != nil {
				continue
			}
			if unknown.Objects++; unknown.Objects == 1 {
				unknown.First = o.Key
			}
		}
		d.mu.RUnlock()
	}
	if unknown.Objects > 0 && !anew {
		return unknown
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.config.Store.AddKnown(dataplane)
}
