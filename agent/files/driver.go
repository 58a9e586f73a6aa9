// SPDX-License-Identifier: Apache-2.0

package files

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"sluice.dev/sluice/agent/keyed"
)

type driver struct {
	section *Section
	log     *slog.Logger
	pace    pace
}

var (
	_ keyed.Driver = (*driver)(nil)
	_ keyed.Marked = (*watch)(nil)
)

var errBeingWritten = errors.New("it is still being written")

// watch compares the directory with the reported documents. Events of the kernel only trigger the comparison.
type watch struct {
	*driver
	kernel *fsnotify.Watcher
	// Where the kernel looks.
	watched map[string]signature
	// Reported documents, by path.
	reported map[string]signature
	// Files that differ from the known state, and the time of their last change. The zero signature: the file does
	// not exist.
	seen map[string]sighting
	// The directory cannot be read.
	away bool
	// Until then, a missing directory counts as not yet mounted.
	coming time.Time
}

type sighting struct {
	signature signature
	since     time.Time
}

// List implements keyed.Driver. It waits for files that are being written.
func (d *driver) List(ctx context.Context) ([]keyed.Document, keyed.Watch, error) {
	w := &watch{driver: d, watched: map[string]signature{}, reported: map[string]signature{}, seen: map[string]sighting{}}
	kernel, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Warn("the kernel sends no events of changes; the agent polls", "again", d.pace.look, "error", err)
	} else {
		w.kernel = kernel
	}
	if _, err := scan(d.section.Directory, d.section.Subdirectories); err != nil {
		w.Close()
		return nil, nil, err
	}
	var all []keyed.Document
	for end := time.Now().Add(d.pace.patience); ; {
		all = append(all, w.look()...)
		if len(w.seen) == 0 || w.away {
			return all, w, nil
		}
		if time.Now().After(end) {
			for path := range w.seen {
				all = append(all, keyed.Document{Key: path, Err: errBeingWritten})
			}
			return all, w, nil
		}
		if err := w.wait(ctx, d.pace.settle/4); err != nil {
			w.Close()
			return nil, nil, err
		}
	}
}

// Next implements keyed.Watch.
func (w *watch) Next(ctx context.Context) ([]keyed.Document, error) {
	for {
		if changed := w.look(); len(changed) > 0 {
			return changed, nil
		}
		again := w.pace.look
		if len(w.seen) > 0 || !w.coming.IsZero() {
			again = w.pace.settle / 4
		}
		if err := w.wait(ctx, again); err != nil {
			return nil, err
		}
	}
}

// wait returns when something may have changed.
func (w *watch) wait(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	var events chan fsnotify.Event
	var failures chan error
	if w.kernel != nil {
		events, failures = w.kernel.Events, w.kernel.Errors
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	case <-events:
	case err := <-failures:
		// It was too much at once, for instance; to look shows it all the same.
		w.log.Debug("the kernel lost an event of a change", "error", err)
	}
	// Many changes are looked at once.
	pause := time.NewTimer(w.pace.settle / 10)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
			return nil
		case <-events:
		case <-failures:
		}
	}
}

// look returns changed files that have not changed again for some time.
func (w *watch) look() []keyed.Document {
	now := time.Now()
	f, err := scan(w.section.Directory, w.section.Subdirectories)
	if err != nil {
		if !w.away {
			w.log.Warn("the directory cannot be read; its objects stay", "error", err)
		}
		w.away = true
		w.follow(nil)
		clear(w.seen)
		return nil
	}
	if w.away {
		w.log.Info("the directory can be read again")
		w.away, w.coming = false, now.Add(w.pace.comeback)
	}
	if now.After(w.coming) {
		w.coming = time.Time{}
	}
	w.follow(f.directories)
	for path := range w.reported {
		if _, there := f.files[path]; !there {
			f.files[path] = signature{}
		}
	}
	for path := range w.seen {
		if _, there := f.files[path]; !there {
			delete(w.seen, path)
		}
	}
	var changed []keyed.Document
	for path, is := range f.files {
		old, known := w.reported[path]
		if known && old == is {
			delete(w.seen, path)
			continue
		}
		before, was := w.seen[path]
		if !was || before.signature != is {
			w.seen[path] = sighting{is, now}
			continue
		}
		if now.Sub(before.since) < w.pace.settle || is == (signature{}) && !w.coming.IsZero() {
			continue
		}
		if is == (signature{}) {
			delete(w.seen, path)
			delete(w.reported, path)
			changed = append(changed, keyed.Document{Key: path, Deleted: true})
			continue
		}
		text, err := read(filepath.Join(w.section.Directory, path))
		if signatureAt(filepath.Join(w.section.Directory, path)) != is {
			// It changed while it was read.
			continue
		}
		delete(w.seen, path)
		w.reported[path] = is
		changed = append(changed, keyed.Document{Key: path, Text: text, Err: err})
	}
	return changed
}

// follow makes the kernel watch directories, and the parent of ours, because another directory may replace ours.
func (w *watch) follow(directories map[string]signature) {
	if w.kernel == nil {
		return
	}
	expected := map[string]signature{filepath.Dir(w.section.Directory): {}}
	for path, s := range directories {
		expected[path] = s
	}
	for path, s := range w.watched {
		if now, still := expected[path]; !still || now != s {
			// It may have gone away by itself.
			_ = w.kernel.Remove(path)
			delete(w.watched, path)
		}
	}
	for path, s := range expected {
		if _, already := w.watched[path]; already {
			continue
		}
		if err := w.kernel.Add(path); err != nil {
			w.log.Debug("the kernel sends no events of changes", "directory", path, "error", err)
			continue
		}
		w.watched[path] = s
	}
}

// Close implements keyed.Watch.
func (w *watch) Close() {
	if w.kernel != nil {
		w.kernel.Close()
	}
}

// Marked implements keyed.Marked. The mark is in the directory itself, so a replacement does not have it, such as an
// empty mount point.
func (w *watch) Marked(context.Context) (bool, error) {
	if _, err := os.Stat(w.section.Directory); err != nil {
		return false, err
	}
	_, err := os.Stat(filepath.Join(w.section.Directory, keyed.MarkKey))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Mark implements keyed.Marked.
func (w *watch) Mark(context.Context) error {
	return os.WriteFile(filepath.Join(w.section.Directory, keyed.MarkKey), []byte(keyed.MarkText+"\n"), 0o644)
}

const statusSuffix = ".status"

// makeStatusDirectory does not create the documents' directory, which may contain the status directory: an empty
// documents' directory would delete all objects.
func (d *driver) makeStatusDirectory(path string) error {
	if _, err := os.Stat(d.section.Directory); err != nil {
		return err
	}
	return os.MkdirAll(path, 0o755)
}

// Statuses implements keyed.Driver.
func (d *driver) Statuses(context.Context) ([]string, error) {
	root := d.section.StatusDirectory
	if root == "" {
		return nil, nil
	}
	if err := d.makeStatusDirectory(root); err != nil {
		return nil, err
	}
	var keys []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		key, is := strings.CutSuffix(path, statusSuffix)
		if !is || !e.Type().IsRegular() || ignored(filepath.Base(key)) {
			return nil
		}
		if key, err = filepath.Rel(root, key); err == nil {
			keys = append(keys, key)
		}
		return nil
	})
	return keys, err
}

// WriteStatuses implements keyed.Driver. It replaces files as a whole, so that readers never see a partial status.
func (d *driver) WriteStatuses(_ context.Context, updates []keyed.StatusUpdate) error {
	if d.section.StatusDirectory == "" {
		return nil
	}
	for _, t := range updates {
		path := filepath.Join(d.section.StatusDirectory, t.Key+statusSuffix)
		if t.Status == nil {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if err := d.makeStatusDirectory(filepath.Dir(path)); err != nil {
			return err
		}
		hidden := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
		if err := os.WriteFile(hidden, append(t.Status.JSON(), '\n'), 0o644); err != nil {
			return err
		}
		if err := os.Rename(hidden, path); err != nil {
			return err
		}
	}
	return nil
}
