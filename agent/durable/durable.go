// SPDX-License-Identifier: Apache-2.0

// Package durable keeps small records of services over restarts: leases, accounting records, message counters. There is one log for all
// services. A record is a value under a key of a service's table; the latest value of a key counts.
//
// The log is a segment. Appends that arrive while one is written form a batch, which is written to the segment and
// synced as a whole (group commit), with one length and one CRC-32C. A batch that no caller waits for gathers appends for some milliseconds. When most of the entries are
// superseded, the current values are written to a new segment, each with its own checksum, which replaces the old one (compaction). The newest segment is the log: one
// before it, which a kill has left, counts no more. A batch at the end of the segment that is not whole is
// cut off: its write was never confirmed. Damage elsewhere is an error with the file and the offset. Segments of earlier releases have
// entries with a checksum each, and no batches.
package durable

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits of a service's records.
const (
	TableLimit = 63
	KeyLimit   = 1024
	ValueLimit = 1 << 20
)

const (
	headLength = 8 // length and CRC-32C of the body
	suffix     = ".log"
	// A batch's head, and the kind that its body begins with.
	batchHead = headLength + 1
	batchKind = 2
	// A log is compacted when it has this much, and at least half of it is superseded.
	compactAt = 4 << 20
	// So much may wait for a disk that is full, or does not answer.
	refusedLimit = 64 << 20
	// A disk that has not answered for so long does not take records.
	slowTime = 5 * time.Second
	// While so many appends come at once, batches begin this long after each other: to sync costs as much as to write many entries. A batch that no caller waits for is written
	// after this time, too.
	muchAtOnce = 8
	gather     = 10 * time.Millisecond
	// A batch that took more room does not give it to the next one.
	keptRoom = 1 << 20
	// A disk that refused entries gets them again after this time.
	retryTime = 500 * time.Millisecond
	// A compaction that failed, as there is no room for it, is tried again after this time.
	compactPause = 10 * time.Second
)

// Errors to be tested with errors.Is.
var (
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("the log is closed")
	// ErrDamaged: an entry before the end of the log does not have its checksum.
	ErrDamaged = errors.New("the log is damaged")
	// ErrLimit: a table's name, a key or a value is too long, or empty where it may not be.
	ErrLimit = errors.New("beyond the limits of the log")
	// ErrFull: the disk refuses entries, and no more may wait for it.
	ErrFull = errors.New("the disk refuses entries, and too many wait for it")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Log is the durable log. All methods may be called by several goroutines.
type Log struct {
	directory string

	mu     sync.Mutex
	tables map[string]map[string][]byte
	// The table of the latest entry that was read.
	latest string
	// Of the batch that is being read.
	parsed []entry
	// For tests: called while a compaction packs the records.
	packing func()
	// How long appends are gathered.
	gather time.Duration
	// Bytes of entries that count, and of all entries in the segments.
	live, size int64
	segment    uint64
	file       *os.File
	// The batch that is being filled, whether another is being written, how long that is, and since when.
	open    *batch
	writing bool
	flying  int
	since   time.Time
	closed  bool
	writers sync.WaitGroup
	// The length of the whole entries of the newest segment, and whether a failed write left more behind them.
	whole int64
	torn  bool
	// The disk may not have the newest segment in the directory.
	unlisted bool
	// Entries whose write failed: they are written before the next batch, or alone after a while. quit ends the wait.
	refused []byte
	retry   time.Duration
	// slowTime, but for tests.
	slow time.Duration
	quit chan struct{}
	// A compaction that failed is not tried again before.
	compactAfter time.Time
	// Room for the next batch: that of one that was written.
	room []byte
}

// batch is appends that are written and synced together.
type batch struct {
	log     *Log
	bytes   []byte
	appends int
	done    chan struct{}
	err     error
	// Closed when a caller waits for the batch.
	urgent chan struct{}
	urged  bool
}

// urge has the batch written at once. log.mu is held.
func (b *batch) urge() {
	if !b.urged {
		b.urged = true
		close(b.urgent)
	}
}

// Open reads the log in a directory, which is made if it is missing. The newest segment has all records; older ones are removed.
func Open(directory string) (*Log, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("durable log: %w", err)
	}
	l := &Log{directory: directory, tables: map[string]map[string][]byte{}, gather: gather, retry: retryTime, slow: slowTime, quit: make(chan struct{})}
	segments, err := l.segments()
	if err != nil {
		return nil, err
	}
	newest := uint64(1)
	if last := len(segments) - 1; last >= 0 {
		newest = segments[last]
		if err := l.read(newest); err != nil {
			return nil, err
		}
		for _, number := range segments[:last] {
			if err := os.Remove(l.path(number)); err != nil {
				return nil, fmt.Errorf("durable log: %w", err)
			}
		}
	}
	if err := l.use(newest); err != nil {
		return nil, err
	}
	return l, nil
}

// segments returns the numbers of the segments, the oldest first. It removes files of an unfinished compaction.
func (l *Log) segments() ([]uint64, error) {
	entries, err := os.ReadDir(l.directory)
	if err != nil {
		return nil, fmt.Errorf("durable log: %w", err)
	}
	var all []uint64
	for _, e := range entries {
		name, ours := strings.CutSuffix(e.Name(), suffix)
		if !ours {
			if strings.HasSuffix(e.Name(), suffix+".new") {
				if err := os.Remove(filepath.Join(l.directory, e.Name())); err != nil {
					return nil, fmt.Errorf("durable log: %w", err)
				}
			}
			continue
		}
		number, err := strconv.ParseUint(name, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("durable log: %s is not a segment", filepath.Join(l.directory, e.Name()))
		}
		all = append(all, number)
	}
	slices.Sort(all)
	return all, nil
}

func (l *Log) path(number uint64) string {
	return filepath.Join(l.directory, fmt.Sprintf("%020d%s", number, suffix))
}

// use opens a segment to append to.
func (l *Log) use(number uint64) error {
	f, err := os.OpenFile(l.path(number), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("durable log: %w", err)
	}
	err = syncDirectory(l.directory)
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr); err != nil {
		f.Close()
		return err
	}
	l.file, l.segment, l.whole = f, number, info.Size()
	return nil
}

func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("durable log: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("durable log: %s: %w", path, err)
	}
	return nil
}

// read takes the entries of a segment. It may end within an entry, which is cut off.
func (l *Log) read(number uint64) error {
	path := l.path(number)
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("durable log: %w", err)
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<20)
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("durable log: %w", err)
	}
	at := int64(0)
	var room []byte
	for {
		body, err := readBody(r, room, info.Size()-at)
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = l.take(body)
		}
		if err != nil {
			if l.lastEntry(f, at) {
				return os.Truncate(path, at)
			}
			return fmt.Errorf("%w: %s at byte %d: %w", ErrDamaged, path, at, err)
		}
		at += int64(headLength + len(body))
		room = body
	}
}

// lastEntry reports whether nothing whole follows what is at `at`.
func (l *Log) lastEntry(f *os.File, at int64) bool {
	rest, err := io.ReadAll(io.NewSectionReader(f, at, math.MaxInt64-at))
	if err != nil {
		return false
	}
	for i := 1; i+headLength < len(rest); i++ {
		if rest[i+headLength] > batchKind {
			continue
		}
		if wholeBody(rest[i:]) {
			return false
		}
	}
	return true
}

// wholeBody reports whether b begins with a body that has its checksum.
func wholeBody(b []byte) bool {
	length := int(binary.LittleEndian.Uint32(b))
	if length == 0 || length > len(b)-headLength || b[headLength] != batchKind && length > maxEntry {
		return false
	}
	return crc32.Checksum(b[headLength:headLength+length], castagnoli) == binary.LittleEndian.Uint32(b[4:])
}

const maxEntry = 3*binary.MaxVarintLen64 + 1 + TableLimit + KeyLimit + ValueLimit

var errNotWhole = errors.New("the entry is not whole")

// readBody returns the next body, of a batch or of an entry, in the room that it is given if that is enough. left is how many bytes the
// file has from here on. io.EOF: there is none.
func readBody(r io.Reader, room []byte, left int64) ([]byte, error) {
	var head [headLength]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if err == io.EOF {
			return nil, err
		}
		return nil, errNotWhole
	}
	length := binary.LittleEndian.Uint32(head[:])
	if length == 0 || int64(length) > left-headLength {
		return nil, fmt.Errorf("the entry claims %d bytes", length)
	}
	body := slices.Grow(room[:0], int(length))[:length]
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, errNotWhole
	}
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errors.New("the checksum is another")
	}
	return body, nil
}

// A batch: a head, batchKind, and the entries, whose heads have no checksum: none of them counts without the others.
func (l *Log) newBatch() *batch {
	b := &batch{log: l, bytes: append(l.room[:0], make([]byte, batchHead)...), done: make(chan struct{}), urgent: make(chan struct{})}
	l.room = nil
	return b
}

// seal fills in the head of a batch.
func seal(b []byte) {
	b[headLength] = batchKind
	sealBody(b)
}

// sealBody fills in a head.
func sealBody(b []byte) {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-headLength))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[headLength:], castagnoli))
}

// An entry's body: 1 (put) or 0 (delete), the table, the key, each behind its length, and the value.
// appendEntry leaves the checksum of the entry out.
func appendEntry(b []byte, table, key string, value []byte, put bool) []byte {
	at := len(b)
	b = append(b, make([]byte, headLength)...)
	kind := byte(0)
	if put {
		kind = 1
	}
	b = append(b, kind)
	b = append(binary.AppendUvarint(b, uint64(len(table))), table...)
	b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
	b = append(b, value...)
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-headLength))
	return b
}

// take makes a batch count, or an entry that stands by itself.
func (l *Log) take(body []byte) error {
	if body[0] != batchKind {
		e, err := parse(body)
		if err == nil {
			l.count(e)
		}
		return err
	}
	l.size += batchHead
	l.parsed = l.parsed[:0]
	for rest := body[1:]; len(rest) > 0; {
		if len(rest) < headLength {
			return errNotWhole
		}
		length := binary.LittleEndian.Uint32(rest)
		if length == 0 || int64(length) > int64(len(rest)-headLength) {
			return errNotWhole
		}
		e, err := parse(rest[headLength : headLength+length])
		if err != nil {
			return err
		}
		l.parsed = append(l.parsed, e)
		rest = rest[headLength+length:]
	}
	for _, e := range l.parsed {
		l.count(e)
	}
	return nil
}

// entry is one that was read.
type entry struct {
	table, key, value []byte
	put               bool
	size              int
}

func parse(body []byte) (entry, error) {
	if body[0] > 1 {
		return entry{}, errors.New("the entry is of no known kind")
	}
	table, rest, ok := cut(body[1:])
	if !ok {
		return entry{}, errNotWhole
	}
	key, value, ok := cut(rest)
	if !ok {
		return entry{}, errNotWhole
	}
	return entry{table, key, value, body[0] == 1, headLength + len(body)}, nil
}

// count makes an entry count.
func (l *Log) count(e entry) {
	l.size += int64(e.size)
	name := l.latest
	if name != string(e.table) {
		name = string(e.table)
		l.latest = name
	}
	l.set(name, string(e.key), slices.Clone(e.value), e.put)
}

// cut takes a length and as many bytes off b.
func cut(b []byte) (word, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, nil, false
	}
	return b[n : n+int(length)], b[n+int(length):], true
}

// set changes the current value. l.mu is held, except while the log is opened.
func (l *Log) set(table, key string, value []byte, put bool) {
	t := l.tables[table]
	if old, there := t[key]; there {
		l.live -= entrySize(table, key, old)
	}
	if !put {
		delete(t, key)
		if len(t) == 0 {
			delete(l.tables, table)
		}
		return
	}
	if t == nil {
		t = map[string][]byte{}
		l.tables[table] = t
	}
	t[key] = value
	l.live += entrySize(table, key, value)
}

func entrySize(table, key string, value []byte) int64 {
	return int64(headLength + 1 + uvarintLength(len(table)) + len(table) + uvarintLength(len(key)) + len(key) + len(value))
}

func uvarintLength(n int) int {
	var b [binary.MaxVarintLen64]byte
	return binary.PutUvarint(b[:], uint64(n))
}

// Table is the records of one service.
type Table struct {
	log  *Log
	name string
}

// Table returns the records under a name.
func (l *Log) Table(name string) (*Table, error) {
	if name == "" || len(name) > TableLimit {
		return nil, fmt.Errorf("table %q: %w: 1 to %d bytes are accepted", name, ErrLimit, TableLimit)
	}
	return &Table{l, name}, nil
}

// Record is a value under a key; a nil Value deletes it.
type Record struct {
	Key   string
	Value []byte
}

// Pending is appends on their way to the disk.
type Pending struct {
	batch *batch
	err   error
}

// Wait returns when the disk has the records, or why it does not.
func (p Pending) Wait() error {
	if p.batch == nil {
		return p.err
	}
	select {
	case <-p.batch.done:
	default:
		p.batch.log.mu.Lock()
		p.batch.urge()
		p.batch.log.mu.Unlock()
		<-p.batch.done
	}
	return p.batch.err
}

// Refused returns why the records do not count; nil: they do.
func (p Pending) Refused() error { return p.err }

// Put makes the records count, and returns while they are written. All of one call are kept, or none. Get and All have them at once. A disk that
// refuses them gets them again, in order: a Put without records is on the disk when all of the log's earlier ones are.
func (t *Table) Put(records ...Record) Pending {
	for _, r := range records {
		if r.Key == "" || len(r.Key) > KeyLimit || len(r.Value) > ValueLimit {
			return Pending{err: fmt.Errorf("table %s: %w: keys have 1 to %d bytes, values at most %d", t.name, ErrLimit, KeyLimit, ValueLimit)}
		}
	}
	l := t.log
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return Pending{err: ErrClosed}
	case l.unwritten() > refusedLimit && slices.ContainsFunc(records, func(r Record) bool { return r.Value != nil }):
		return Pending{err: fmt.Errorf("table %s: %w: %d bytes", t.name, ErrFull, l.unwritten())}
	}
	if l.open == nil {
		l.open = l.newBatch()
	}
	for _, r := range records {
		before := len(l.open.bytes)
		l.open.bytes = appendEntry(l.open.bytes, t.name, r.Key, r.Value, r.Value != nil)
		l.size += int64(len(l.open.bytes) - before)
		l.set(t.name, r.Key, slices.Clone(r.Value), r.Value != nil)
	}
	b := l.open
	b.appends++
	if !l.writing {
		l.writing = true
		l.writers.Add(1)
		go l.write()
	}
	return Pending{batch: b}
}

// Get returns a value, or nil.
func (t *Table) Get(key string) []byte {
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	return slices.Clone(t.log.tables[t.name][key])
}

// All returns all records, in the order of their keys. Their values must not be changed.
func (t *Table) All() []Record {
	all := t.Unsorted()
	slices.SortFunc(all, func(a, b Record) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// Unsorted returns all records, in no order. Their values must not be changed.
func (t *Table) Unsorted() []Record {
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	all := make([]Record, 0, len(t.log.tables[t.name]))
	for key, value := range t.log.tables[t.name] {
		all = append(all, Record{key, value})
	}
	return all
}

// write writes batches until there is none.
func (l *Log) write() {
	defer l.writers.Done()
	l.mu.Lock()
	gathered := false
	for l.open != nil || len(l.refused) > 0 && !l.closed {
		if l.open == nil {
			l.open = l.newBatch()
		}
		if b := l.open; len(l.refused) > 0 {
			// Each attempt writes all that waits.
			l.mu.Unlock()
			patience := time.NewTimer(l.retry)
			select {
			case <-l.quit:
			case <-patience.C:
			}
			patience.Stop()
			l.mu.Lock()
		} else if !b.urged && !gathered {
			l.mu.Unlock()
			patience := time.NewTimer(l.gather)
			select {
			case <-b.urgent:
			case <-patience.C:
			}
			patience.Stop()
			l.mu.Lock()
		}
		b, began := l.open, time.Now()
		l.open = nil
		entries := b.bytes
		if len(l.refused) > 0 {
			entries = slices.Concat(b.bytes[:batchHead], l.refused, b.bytes[batchHead:])
		}
		var all []current
		compact := l.size > compactAt && l.size > 2*l.live && !began.Before(l.compactAfter)
		if compact {
			all = l.current()
		}
		file := l.file
		l.flying, l.since = len(b.bytes), time.Now()
		l.mu.Unlock()
		if compact && l.compact(l.packed(all)) != nil {
			// There may be room for less.
			compact, l.compactAfter, file = false, began.Add(compactPause), l.file
		}
		if !compact {
			seal(entries)
			b.err = l.append(file, entries)
		}
		l.mu.Lock()
		l.flying, l.refused = 0, nil
		if b.err != nil {
			b.err = fmt.Errorf("durable log: %w", b.err)
			l.refused = entries[batchHead:]
		} else if cap(b.bytes) <= keptRoom {
			l.room = b.bytes[:0]
		}
		close(b.done)
		gathered = b.appends >= muchAtOnce && !l.closed
		if gathered {
			l.mu.Unlock()
			time.Sleep(l.gather - time.Since(began))
			l.mu.Lock()
		}
	}
	l.writing = false
	l.mu.Unlock()
}

// append writes behind the last whole entry; it first truncates the rest of a failed write.
func (l *Log) append(to *os.File, b []byte) error {
	if l.unlisted {
		if err := l.list(); err != nil {
			return err
		}
	}
	if l.torn {
		if err := to.Truncate(l.whole); err != nil {
			return err
		}
	}
	l.torn = true
	if err := appendTo(to, b); err != nil {
		return err
	}
	l.torn = false
	l.whole += int64(len(b))
	return nil
}

func appendTo(file *os.File, b []byte) error {
	if _, err := file.Write(b); err != nil {
		return err
	}
	return datasync(file)
}

func datasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// current is a record that counts. Its value does not change: a Put replaces it.
type current struct {
	table, key string
	value      []byte
}

// current returns all records that count, including those of the batch that is being written. l.mu is held.
func (l *Log) current() []current {
	count := 0
	for _, records := range l.tables {
		count += len(records)
	}
	all := make([]current, 0, count)
	for table, records := range l.tables {
		for key, value := range records {
			all = append(all, current{table, key, value})
		}
	}
	return all
}

func (l *Log) packed(all []current) []byte {
	if l.packing != nil {
		l.packing()
	}
	return packed(all)
}

// packed returns the entries of records, each with its checksum. It takes long: l.mu is not held.
func packed(all []current) []byte {
	size := 0
	for i := range all {
		size += int(entrySize(all[i].table, all[i].key, all[i].value))
	}
	b := make([]byte, 0, size)
	for i := range all {
		at := len(b)
		b = appendEntry(b, all[i].table, all[i].key, all[i].value, true)
		sealBody(b[at:])
	}
	return b
}

// compact replaces the segment by one with all that counts. Once the new one has its name it is the log, whatever fails then.
func (l *Log) compact(all []byte) error {
	old := l.segment
	path := l.path(old + 1)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = appendTo(f, all)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		// It takes room that appends need.
		return errors.Join(err, f.Close(), os.Remove(path+".new"))
	}
	l.mu.Lock()
	before := l.file
	l.file, l.segment, l.whole = f, old+1, int64(len(all))
	l.torn, l.unlisted = false, true
	// Entries of the next batch are counted again when they are written.
	l.size = int64(len(all))
	if l.open != nil {
		l.size += int64(len(l.open.bytes))
	}
	l.mu.Unlock()
	before.Close()
	return l.list()
}

// list has the disk keep the newest segment in the directory, and removes the one before it.
func (l *Log) list() error {
	if err := syncDirectory(l.directory); err != nil {
		return err
	}
	l.unlisted = false
	// One that remains is removed when the log is opened.
	_ = os.Remove(l.path(l.segment - 1))
	return nil
}

// unwritten is how many bytes of records the disk does not have. l.mu is held.
func (l *Log) unwritten() int {
	n := len(l.refused) + l.flying
	if l.open != nil {
		n += len(l.open.bytes)
	}
	return n
}

// Waiting returns how many bytes of records the disk has refused, which are tried again, or has not taken for some seconds.
func (l *Log) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refused) > 0 || l.flying > 0 && time.Since(l.since) > l.slow {
		return l.unwritten()
	}
	return 0
}

// Close waits for the write in progress, and tries refused entries once more.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.closed {
		close(l.quit)
	}
	l.closed = true
	if l.open != nil {
		l.open.urge()
	}
	l.mu.Unlock()
	l.writers.Wait()
	var err error
	if len(l.refused) > 0 {
		last := slices.Concat(make([]byte, batchHead), l.refused)
		seal(last)
		err = l.append(l.file, last)
	}
	return errors.Join(err, l.file.Close())
}
