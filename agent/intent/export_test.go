// SPDX-License-Identifier: Apache-2.0

package intent

// Expire undoes a revision as if its time were over.
func (d *Desired) Expire(revision uint64) {
	d.mu.RLock()
	o := d.open
	d.mu.RUnlock()
	if o != nil && o.Revision == revision {
		d.overdue(o, unconfirmed)
	}
}

// Never is a grace time that does not end.
const Never = 1 << 62

// Free reports whether a producer would have its lock at once.
func (d *Desired) Free() bool {
	free := d.mu.TryLock()
	if free {
		d.mu.Unlock()
	}
	return free
}
