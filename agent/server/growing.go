// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	"sluice.dev/sluice/agent/heap"
	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// growing is an intent.Interface that reports the number of objects under way to the heap.
type growing struct {
	intent.Interface
	heap *heap.Heap
}

// Apply implements intent.Interface.
func (g growing) Apply(ctx context.Context, source intent.Source, changes []object.Change, options intent.Options) (*intent.Outcome, error) {
	defer g.heap.Grow(len(changes))()
	return g.Interface.Apply(ctx, source, changes, options)
}
