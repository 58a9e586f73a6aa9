// Package audit writes down who changed what is wanted, when, from where, and what became of it; also what was refused.
//
// One line for each request: to the agent's log and, if there is one, to a file of JSON lines that is only ever appended to. No
// object's content is in it, so no secret is; `sluice diff` shows what a revision changed.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Outcome is what became of a request.
type Outcome string

const (
	// Done: it is wanted now, as said in Revision.
	Done Outcome = "done"
	// Unchanged: it was wanted already.
	Unchanged Outcome = "unchanged"
	// Undone: data planes refused some of it, or nobody confirmed it in time, and everything is wanted as before.
	Undone Outcome = "undone"
	// InPart: some of it is wanted as before, and the rest is tried again. Problem names that.
	InPart Outcome = "in part"
	// Refused: nothing was changed.
	Refused Outcome = "refused"
	// Forbidden: whoever asked may not do that. Nothing was changed.
	Forbidden Outcome = "forbidden"
	// Interrupted: it is wanted now, and nobody waited for what came of it.
	Interrupted Outcome = "interrupted"
)

// Entry is a line. Its names are stable.
type Entry struct {
	Time time.Time `json:"time"`
	// "apply", "rollback" or "confirm"; "undo" is what the agent does by itself about a revision that does not stand.
	Action string `json:"action"`
	// On whose behalf, who asked, from where, and why; all but the first may be empty.
	Owner string `json:"owner"`
	Who   string `json:"who,omitempty"`
	From  string `json:"from,omitempty"`
	Why   string `json:"why,omitempty"`
	// What became of it, and if it was refused, why.
	Outcome  Outcome `json:"outcome"`
	Problem  string  `json:"problem,omitempty"`
	Revision uint64  `json:"revision,omitempty"`
	// Of a rollback: the revision that was gone back to. Of an undo: the one that does not stand.
	To     uint64 `json:"to,omitempty"`
	Undoes uint64 `json:"undoes,omitempty"`
	// The first of the objects, and how many there are.
	Objects []Change `json:"objects,omitempty"`
	Count   int      `json:"count"`
}

// Change is what a request said of one object.
type Change struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// "put" or "delete" if it was refused, else "keep", "create", "update", "replace" or "delete".
	Step string `json:"step"`
	// How it stood with it then.
	State string `json:"state,omitempty"`
}

const (
	// A line stays readable however much changes at once; the revision says the rest.
	mostObjects = 100
	longestText = 1000
)

// Log is where lines go. A nil Log takes them and does nothing. It is for several goroutines at once.
type Log struct {
	log  *slog.Logger
	path string
	sync bool

	mu   sync.Mutex
	file *os.File
}

// Open appends to a file; an empty path: only to the log. With sync, each line is on the disk before its request is answered.
func Open(path string, sync bool, log *slog.Logger) (*Log, error) {
	l := &Log{log: log, path: path, sync: sync}
	if path == "" {
		return l, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if err := l.Reopen(); err != nil {
		return nil, err
	}
	return l, nil
}

// Reopen begins a file anew, for when another program has moved it away. Write does so by itself, too.
func (l *Log) Reopen() error {
	if l == nil || l.path == "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reopen()
}

func (l *Log) reopen() error {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file = f
	// A line that was cut off, because the machine went down or the disk was full, ends here.
	if end, err := f.Seek(0, 2); err == nil && end > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, end-1); err == nil && last[0] != '\n' {
			_, err = f.Write([]byte("\n"))
			if err != nil {
				return fmt.Errorf("audit: %w", err)
			}
		}
	}
	return nil
}

// Close ends the file.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// Write writes a line. That it cannot be written is told in the log, which has the line all the same.
func (l *Log) Write(e Entry) {
	if l == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC()
	e.Who, e.From, e.Why, e.Problem = short(e.Who), short(e.From), short(e.Why), short(e.Problem)
	if e.Count < len(e.Objects) {
		e.Count = len(e.Objects)
	}
	e.Objects = e.Objects[:min(len(e.Objects), mostObjects)]
	l.tell(e)
	if l.path == "" {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		err = l.append(append(line, '\n'))
	}
	if err != nil {
		l.log.Error("the audit log cannot be written", "file", l.path, "error", err)
	}
}

func short(s string) string {
	if len(s) > longestText {
		return strings.ToValidUTF8(s[:longestText], "") + "..."
	}
	return s
}

func (l *Log) tell(e Entry) {
	var room [11]slog.Attr
	all := append(room[:0], slog.String("action", e.Action), slog.String("outcome", string(e.Outcome)), slog.String("owner", e.Owner),
		slog.Int("objects", e.Count))
	if e.Who != "" {
		all = append(all, slog.String("who", e.Who))
	}
	if e.From != "" {
		all = append(all, slog.String("address", e.From))
	}
	if e.Why != "" {
		all = append(all, slog.String("why", e.Why))
	}
	if e.Problem != "" {
		all = append(all, slog.String("error", e.Problem))
	}
	if e.Revision != 0 {
		all = append(all, slog.Uint64("revision", e.Revision))
	}
	if len(e.Objects) > 0 {
		all = append(all, slog.String("kind", e.Objects[0].Kind), slog.String("name", e.Objects[0].Name))
	}
	level := slog.LevelInfo
	if e.Outcome == Forbidden {
		level = slog.LevelWarn
	}
	l.log.LogAttrs(context.Background(), level, "change", all...)
}

func (l *Log) append(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.current() {
		if err := l.reopen(); err != nil {
			return err
		}
	}
	if _, err := l.file.Write(line); err != nil {
		return err
	}
	if l.sync {
		return l.file.Sync()
	}
	return nil
}

// current says whether the file that is open is the one that has the name.
func (l *Log) current() bool {
	if l.file == nil {
		return false
	}
	named, err := os.Stat(l.path)
	if err != nil {
		return false
	}
	open, err := l.file.Stat()
	return err == nil && os.SameFile(named, open)
}
