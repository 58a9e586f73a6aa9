// SPDX-License-Identifier: Apache-2.0

// Writes at the opening of a store. On a full disk the store is read as it is, and each change tries again.
package store

import (
	"errors"
	"fmt"
	"io"
	"log"
	"path/filepath"
	"sync"
	"syscall"

	bolt "go.etcd.io/bbolt"

	"sluice.dev/sluice/agent/intent"
)

// noRoom reports whether an error is that of a full disk, or of a used-up quota.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// boltErrors is Bolt's logger. It has the errors that Bolt logged: of some errors, Bolt returns the text alone.
type boltErrors struct {
	bolt.Logger
	mu   sync.Mutex
	errs []error
}

func newBoltErrors() *boltErrors {
	return &boltErrors{Logger: &bolt.DefaultLogger{Logger: log.New(io.Discard, "", 0)}}
}

// Errorf implements bolt.Logger.
func (b *boltErrors) Errorf(_ string, values ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, v := range values {
		if err, ok := v.(error); ok && len(b.errs) < 8 {
			b.errs = append(b.errs, err)
		}
	}
}

// take returns the errors since the last call.
func (b *boltErrors) take() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	errs := b.errs
	b.errs = nil
	return errs
}

// withCauses is an error of Bolt and the errors that it logged before.
type withCauses struct {
	error
	causes []error
}

func (w withCauses) Unwrap() []error { return append([]error{w.error}, w.causes...) }

// change runs a transaction that writes. Its error has its causes.
func (s *Store) change(f func(tx *bolt.Tx) error) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	err := s.db.Update(func(tx *bolt.Tx) error {
		s.logged.take()
		return f(tx)
	})
	if causes := s.logged.take(); err != nil && len(causes) > 0 {
		err = withCauses{err, causes}
	}
	return err
}

// Full returns why the store only reads, or nil. It recovers with the first change that finds room.
func (s *Store) Full() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.full
}

// refuse makes the error of a full disk an intent.ErrDiskFull.
func (s *Store) refuse(err *error) {
	if noRoom(*err) {
		*err = fmt.Errorf("%w: nothing was changed; free some space in %s and try again (%w)", intent.ErrDiskFull, filepath.Dir(s.path), *err)
	}
}

// prepare brings the trees up to date: the format, the buckets, and the entries of a journal that was not closed.
func (s *Store) prepare(tx *bolt.Tx) (state journalState, old bool, err error) {
	if err := s.reform(tx); err != nil {
		return state, false, err
	}
	for _, name := range buckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return state, false, err
		}
	}
	if state, old, err = s.replay(tx); err != nil {
		return state, false, err
	}
	return state, old, beginKnown(tx)
}

// begin makes the store ready for changes.
func (s *Store) begin() error {
	err := s.change(func(tx *bolt.Tx) error {
		state, old, err := s.prepare(tx)
		if err != nil {
			return err
		}
		return s.openJournal(tx, state, old)
	})
	if err == nil {
		err = s.clearJournal()
	}
	if err != nil && s.journal.file != nil {
		err = errors.Join(err, s.journal.file.Close())
		s.journal = journal{}
	}
	return err
}

// beginAgain retries writes that had no room. s.writing is held.
func (s *Store) beginAgain() (err error) {
	if s.Full() == nil {
		return nil
	}
	// There are no readers before the store is begun.
	s.folding.Lock()
	defer s.folding.Unlock()
	if s.Full() == nil {
		return nil
	}
	defer s.explain("opening", &err)
	defer faulty()()
	if err := s.begin(); err != nil {
		return err
	}
	s.mu.Lock()
	s.full = nil
	s.mu.Unlock()
	return nil
}

// viewUnbegun reads as if the writes of the opening had happened, and writes nothing.
func (s *Store) viewUnbegun(f func(tx *bolt.Tx) error) (err error) {
	s.folding.Lock()
	if s.Full() == nil {
		s.folding.Unlock()
		return s.view(f)
	}
	defer s.folding.Unlock()
	tx, err := s.db.Begin(true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	if _, _, err := s.prepare(tx); err != nil {
		return err
	}
	return f(tx)
}
