package access

import (
	"fmt"
	"os"
	"sync"
)

// file is what a file says, read again when it changes.
type file[T any] struct {
	path string
	read func(text []byte) (T, error)

	mu    sync.Mutex
	of    os.FileInfo
	value T
	err   error
}

const largestFile = 16 << 20

// get returns what the file says now.
func (f *file[T]) get() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := os.Stat(f.path)
	if err != nil {
		f.of = nil
		var none T
		return none, err
	}
	if f.of != nil && os.SameFile(f.of, now) && f.of.ModTime().Equal(now.ModTime()) && f.of.Size() == now.Size() {
		return f.value, f.err
	}
	var text []byte
	var none T
	f.value = none
	if now.Size() > largestFile {
		err = fmt.Errorf("%s: has %d bytes; accepted: at most %d", f.path, now.Size(), largestFile)
	} else if text, err = os.ReadFile(f.path); err == nil {
		f.value, err = f.read(text)
	}
	f.of, f.err = now, err
	return f.value, f.err
}
