// SPDX-License-Identifier: Apache-2.0

// Package audit logs changes of the configuration: user, time, address and result. It also logs refused changes.
//
// Each request writes one line to the agent's log and, if configured, to an append-only file of JSON lines. The lines
// hold no content of objects, and so no secrets; `sluice diff` shows the changes of a revision.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Outcome is the result of a request.
type Outcome string

const (
	// Done: the change is part of the configuration, as Revision.
	Done Outcome = "done"
	// Unchanged: the configuration was like that already.
	Unchanged Outcome = "unchanged"
	// Undone: a data plane refused a part of the change, or it was not confirmed in time. The configuration before it is restored.
	Undone Outcome = "undone"
	// InPart: a part of the change is undone, and the agent tries the rest again. Problem names the rest.
	InPart Outcome = "in part"
	// Refused: nothing was changed.
	Refused Outcome = "refused"
	// Forbidden: the client lacks the rights. Nothing was changed.
	Forbidden Outcome = "forbidden"
	// Interrupted: the change is part of the configuration, and the client left before the result.
	Interrupted Outcome = "interrupted"
)

// Entry is a line. Its names are stable.
type Entry struct {
	Time time.Time `json:"time"`
	// "apply", "delete", "rollback" or "confirm"; "undo": the agent undoes an unconfirmed revision; or the action of a service's RPC.
	Action string `json:"action"`
	// The owner, the caller, its address and its reason. All but the owner may be empty.
	Owner string `json:"owner"`
	Who   string `json:"who,omitempty"`
	From  string `json:"from,omitempty"`
	Why   string `json:"why,omitempty"`
	// The outcome and, if the request was refused, the reason.
	Outcome  Outcome `json:"outcome"`
	Problem  string  `json:"problem,omitempty"`
	Revision uint64  `json:"revision,omitempty"`
	// Of a rollback: the target revision. Of an undo: the undone revision.
	To     uint64 `json:"to,omitempty"`
	Undoes uint64 `json:"undoes,omitempty"`
	// The first of the objects, and how many there are.
	Objects []Change `json:"objects,omitempty"`
	Count   int      `json:"count"`
	// Further fields of a service's action, such as `subscribers` of a disconnect: "username=alice". Their values are texts.
	Attributes []slog.Attr `json:"-"`
}

// MarshalJSON implements json.Marshaler: the attributes are at the end of the line.
func (e Entry) MarshalJSON() ([]byte, error) {
	type plain Entry
	line, err := json.Marshal(plain(e))
	if err != nil || len(e.Attributes) == 0 {
		return line, err
	}
	for _, a := range e.Attributes {
		field, err := json.Marshal(map[string]string{a.Key: a.Value.String()})
		if err != nil {
			return nil, err
		}
		line = append(append(line[:len(line)-1], ','), field[1:]...)
	}
	return line, nil
}

// Change is a request's change of one object.
type Change struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// "put" or "delete" if it was refused, else "keep", "create", "update", "replace" or "delete".
	Step string `json:"step"`
	// How it stood with it then.
	State string `json:"state,omitempty"`
}

const (
	// Limits the length of a line; the revision has all changes.
	maxObjects  = 100
	longestText = 1000
)

// Log is where lines go. A nil Log takes them and does nothing. It is for several goroutines at once.
type Log struct {
	log  *slog.Logger
	path string
	sync bool

	mu   sync.Mutex
	file *os.File
	// The last line in the file is incomplete, after a crash or on a full disk: the next entry begins a new line.
	cut bool
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
	if err := l.Reopen(); errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		// Write tries again.
		log.Error("the audit log cannot be written", "file", path, "error", err)
	} else if err != nil {
		return nil, err
	}
	return l, nil
}

// Reopen opens a new file after another program has moved the old one away. Write does so by itself, too.
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
	l.cut = false
	if end, err := f.Seek(0, 2); err == nil && end > 0 {
		last := make([]byte, 1)
		_, err := f.ReadAt(last, end-1)
		l.cut = err == nil && last[0] != '\n'
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

// Write writes a line. If that fails, the log has the error and the line.
func (l *Log) Write(e Entry) {
	if l == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = e.Time.UTC()
	e.Who, e.From, e.Why, e.Problem = short(e.Who), short(e.From), short(e.Why), short(e.Problem)
	for i, a := range e.Attributes {
		e.Attributes[i].Value = slog.StringValue(short(a.Value.String()))
	}
	if e.Count < len(e.Objects) {
		e.Count = len(e.Objects)
	}
	e.Objects = e.Objects[:min(len(e.Objects), maxObjects)]
	l.logLine(e)
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

func (l *Log) logLine(e Entry) {
	var room [12]slog.Attr
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
	all = append(all, e.Attributes...)
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
	if l.cut {
		line = append([]byte("\n"), line...)
	}
	n, err := l.file.Write(line)
	if n > 0 {
		l.cut = line[n-1] != '\n'
	}
	if err != nil {
		return err
	}
	if l.sync {
		return l.file.Sync()
	}
	return nil
}

// current reports whether the open file is still the one at the path.
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
