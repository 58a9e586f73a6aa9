// SPDX-License-Identifier: Apache-2.0

// Package files is the northbound whose documents are the files of a directory. Statuses are files of another
// directory, if one is configured.
package files

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"sluice.dev/sluice/agent/keyed"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// Section is the northbound's part of the configuration.
type Section struct {
	// Its files *.yaml, *.yml and *.json are documents.
	Directory      string `yaml:"directory"`
	Subdirectories bool   `yaml:"subdirectories"`
	// Statuses are here, FILE.status for each FILE; empty: nowhere. May be the same directory.
	StatusDirectory string `yaml:"statusDirectory"`
}

// New returns a section with default values.
func New() northbound.Section { return &Section{} }

// Check implements northbound.Section.
func (s *Section) Check() error {
	if s.Directory == "" {
		return object.Mistake("directory", "missing", "", "/PATH")
	}
	for _, one := range []struct{ field, path string }{{"directory", s.Directory}, {"statusDirectory", s.StatusDirectory}} {
		if one.path != "" && !filepath.IsAbs(one.path) {
			return object.Mistake(one.field, "not an absolute path", strconv.Quote(one.path), "/PATH")
		}
	}
	return nil
}

// Open implements northbound.Section.
func (s *Section) Open() northbound.Northbound { return s }

// pace holds the times of the driver.
type pace struct {
	// A changed file counts after it has been stable for so long; a deleted one, after it has been away for so long,
	// and longer after its directory came back.
	settle, comeback time.Duration
	// Where the kernel sends no events of changes.
	look time.Duration
	// How long the first list waits for files that are being written.
	patience time.Duration
}

var defaultPace = pace{settle: 200 * time.Millisecond, comeback: 2 * time.Second, look: 2 * time.Second, patience: 5 * time.Second}

// Run implements northbound.Northbound.
func (s *Section) Run(ctx context.Context, e northbound.Environment) error {
	keyed.Run(ctx, e, &driver{section: s, log: e.Log, pace: defaultPace})
	return nil
}
