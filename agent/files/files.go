// Package files is the northbound whose documents are the files of a directory. Statuses are files of another, if there is to be one.
package files

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"sluice.dev/sluice/agent/keyed"
	"sluice.dev/sluice/agent/northbound"
)

// Section is the northbound's part of the configuration.
type Section struct {
	// Its files *.yaml, *.yml and *.json are documents.
	Directory      string `yaml:"directory"`
	Subdirectories bool   `yaml:"subdirectories"`
	// Statuses are here, FILE.status for each FILE; empty: nowhere. May be the same directory.
	StatusDirectory string `yaml:"statusDirectory"`
}

// New returns a section with what is usual.
func New() northbound.Section { return &Section{} }

// Check implements northbound.Section.
func (s *Section) Check() error {
	if s.Directory == "" {
		return errors.New("directory: is missing; accepted: /PATH")
	}
	for _, one := range []struct{ field, path string }{{"directory", s.Directory}, {"statusDirectory", s.StatusDirectory}} {
		if one.path != "" && !filepath.IsAbs(one.path) {
			return fmt.Errorf("%s: found %q; accepted: /PATH", one.field, one.path)
		}
	}
	return nil
}

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return s }

// pace says how long things take.
type pace struct {
	// A file counts when it has not changed for so long; one that went away, when it has been away for so long, and when its directory
	// came back, for longer.
	settle, comeback time.Duration
	// Where the kernel does not tell of changes.
	look time.Duration
	// How long the first list waits for files that are being written.
	patience time.Duration
}

var usual = pace{settle: 200 * time.Millisecond, comeback: 2 * time.Second, look: 2 * time.Second, patience: 5 * time.Second}

// Run implements northbound.Northbound.
func (s *Section) Run(ctx context.Context, e northbound.Environment) error {
	keyed.Run(ctx, e, &driver{section: s, log: e.Log, pace: usual})
	return nil
}
