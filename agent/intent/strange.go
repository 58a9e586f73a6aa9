// Data planes that the store does not know yet.
package intent

import (
	"context"
	"fmt"
	"iter"

	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/reconcile"
)

// Strange is the error of a data plane that the store does not know, and that has what nobody wants: perhaps it is not the store that
// wanted that.
type Strange struct {
	Dataplane string
	// How many objects, and the first of them.
	Objects int
	First   object.Key
}

func (s *Strange) Error() string {
	what := s.First.String()
	if s.Objects > 1 {
		what = fmt.Sprintf("%d objects, %s among them,", s.Objects, what)
	}
	return fmt.Sprintf("data plane %s has %s that nobody wants, and the store does not know this data plane: is it the right one, and its disk mounted? "+
		"Nothing is changed there until all that it has is wanted, or the agent is started with --begin-anew", s.Dataplane, what)
}

// Meet looks at what a data plane has that may be new to the store, and makes it known. A *Strange is why not; anew: that is no reason.
func (d *Desired) Meet(ctx context.Context, dataplane string, anew bool, listed iter.Seq2[[]reconcile.Object, error]) error {
	known, err := d.config.Store.Knows(dataplane)
	if known || err != nil {
		return err
	}
	s, err := d.sites.named(dataplane)
	if err != nil {
		return err
	}
	strange := &Strange{Dataplane: dataplane}
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
			if strange.Objects++; strange.Objects == 1 {
				strange.First = o.Key
			}
		}
		d.mu.RUnlock()
	}
	if strange.Objects > 0 && !anew {
		return strange
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return d.config.Store.Meet(dataplane)
}
