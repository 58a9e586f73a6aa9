// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// Of one file.
	maxSize = 64 << 20
	// Of directories in one another.
	maxDepth = 32
)

// signature distinguishes contents of a file by its metadata.
type signature struct {
	device, inode uint64
	size          int64
	changed, meta time.Time
}

// unseen is the signature of a file that cannot be examined.
var unseen = signature{size: -1}

func signatureAt(path string) signature {
	info, err := os.Stat(path)
	if err != nil {
		return unseen
	}
	return signatureOf(info)
}

func signatureOf(i fs.FileInfo) signature {
	s := signature{size: i.Size(), changed: i.ModTime()}
	if st, ok := i.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode, s.meta = uint64(st.Dev), st.Ino, time.Unix(st.Ctim.Unix())
	}
	return s
}

// found is the result of a scan.
type found struct {
	// By path below the directory.
	files map[string]signature
	// With the inode, because another may be in a directory's place.
	directories map[string]signature
}

// ignored reports whether a name is none of a document: hidden, an editor's, or of another type.
func ignored(name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") {
		return true
	}
	return !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// scan reads a directory, and its subdirectories. Files that disappear meanwhile are left out.
func scan(root string, deep bool) (*found, error) {
	f := &found{files: map[string]signature{}, directories: map[string]signature{}}
	info, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is no directory", root)
	}
	return f, f.directory(root, "", info, deep, nil)
}

// directory reads one directory; `above` are its parents, so that a link to one of them is not followed for ever.
func (f *found) directory(root, below string, info fs.FileInfo, deep bool, above []signature) error {
	own := signatureOf(info)
	own = signature{device: own.device, inode: own.inode}
	if slices.Contains(above, own) || len(above) == maxDepth {
		return nil
	}
	f.directories[filepath.Join(root, below)] = own
	entries, err := os.ReadDir(filepath.Join(root, below))
	if err != nil {
		if below != "" && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	above = append(slices.Clip(above), own)
	for _, e := range entries {
		path := filepath.Join(below, e.Name())
		if maybe := e.IsDir() || e.Type()&fs.ModeSymlink != 0; ignored(e.Name()) && (!deep || !maybe || strings.HasPrefix(e.Name(), ".")) {
			continue
		}
		// Follow links. A dangling link is no document. A file that cannot be examined is an unreadable document, and
		// does not affect others.
		info, err := os.Stat(filepath.Join(root, path))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR):
		case err != nil && !ignored(e.Name()):
			f.files[path] = unseen
		case err != nil:
		case info.IsDir() && deep:
			if err := f.directory(root, path, info, deep, above); err != nil {
				return err
			}
		case info.Mode().IsRegular() && !ignored(e.Name()):
			f.files[path] = signatureOf(info)
		}
	}
	return nil
}

// read returns a file's text.
func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("more than %d MiB", maxSize>>20)
	}
	return text, err
}
