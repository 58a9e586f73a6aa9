// SPDX-License-Identifier: Apache-2.0

package access

import (
	"fmt"
	"os"
	"sync"
)

// file is the parsed content of a file, read again when the file changes.
type file[T any] struct {
	path string
	read func(text []byte) (T, error)

	mu    sync.Mutex
	of    os.FileInfo
	value T
	err   error
}

const largestFile = 16 << 20

// get returns the current content of the file.
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
