// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"maps"
	"slices"
	"sync"

	"sluice.dev/sluice/agent/object"
)

// memory stores only history, for the life of the process.
type memory struct {
	mu      sync.Mutex
	commits []*Commit // the oldest first
	open    map[uint64]Open
	undoes  map[uint64]map[object.Key]Undo
}

func newMemory() *memory {
	return &memory{open: map[uint64]Open{}, undoes: map[uint64]map[object.Key]Undo{}}
}

func (m *memory) Load(func(object.Key, *Record) error) (uint64, []Open, error) { return 0, nil, nil }

func (m *memory) IsKnown(string) (bool, error) { return true, nil }

func (m *memory) AddKnown(string) error { return nil }

func (m *memory) Commit(c *Commit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(c.Closes, c.Leaves, c.Revised)
	for _, ended := range c.Ends {
		m.settle(ended, nil, nil)
	}
	if c.Open != nil {
		m.open[c.Revision.Number] = *c.Open
	}
	m.commits = slices.DeleteFunc(append(m.commits, c), func(old *Commit) bool { return m.forgettable(old, c.Oldest) })
	return nil
}

func (m *memory) forgettable(c *Commit, oldest uint64) bool {
	_, open := m.open[c.Revision.Number]
	return !open && (!c.Recorded || c.Revision.Number < oldest)
}

func (m *memory) Settle(revision uint64, open *Open, revised []Undo) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settle(revision, open, revised)
	return nil
}

func (m *memory) settle(revision uint64, open *Open, revised []Undo) {
	for _, u := range revised {
		if m.undoes[u.Revision] == nil {
			m.undoes[u.Revision] = map[object.Key]Undo{}
		}
		m.undoes[u.Revision][u.Key] = u
	}
	if open != nil {
		m.open[revision] = *open
		return
	}
	delete(m.open, revision)
	delete(m.undoes, revision)
}

func (m *memory) Undoes(revision uint64, yield func(Undo) error) error {
	m.mu.Lock()
	found := slices.Collect(maps.Values(m.undoes[revision]))
	m.mu.Unlock()
	for _, u := range found {
		if err := yield(u); err != nil {
			return err
		}
	}
	return nil
}

func (m *memory) History(before uint64, limit int) ([]Revision, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []Revision
	for _, c := range slices.Backward(m.commits) {
		if c.Recorded && (before == 0 || c.Revision.Number < before) && len(found) < limit {
			found = append(found, c.Revision)
		}
	}
	return found, nil
}

func (m *memory) Before(revision uint64, yield func(object.Key, *Record) error) error {
	m.mu.Lock()
	i := slices.IndexFunc(m.commits, func(c *Commit) bool { return c.Revision.Number == revision })
	var edits []Edit
	if i >= 0 {
		edits = m.commits[i].Edits
	}
	m.mu.Unlock()
	for _, e := range edits {
		if err := yield(e.Key, e.Before); err != nil {
			return err
		}
	}
	return nil
}
