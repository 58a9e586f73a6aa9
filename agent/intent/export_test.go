package intent

// Expire undoes a revision as if its time were over.
func (d *Desired) Expire(revision uint64) {
	d.mu.RLock()
	o := d.open[revision]
	d.mu.RUnlock()
	if o != nil {
		d.overdue(o, unconfirmed)
	}
}
