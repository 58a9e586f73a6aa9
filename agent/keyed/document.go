// SPDX-License-Identifier: Apache-2.0

package keyed

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"runtime"
	"strings"
	"sync"

	"sluice.dev/sluice/agent/object"
)

// document is the state of one key.
type document struct {
	key string
	// Of its last text.
	sum [sha256.Size]byte
	// The objects in force: of this text or, if it has mistakes, of the last text without them.
	objects map[object.Key]written
	// In this text.
	mistakes object.Errors
	// In this process, a text without mistakes was read: all its earlier objects are known.
	everValid bool
}

// keyText is a key in messages, shortened: a writer of the store may choose a very long one.
func keyText(key string) string {
	const most = 200
	if len(key) <= most {
		return key
	}
	return strings.ToValidUTF8(key[:most], "") + "..."
}

// written is an object and its first line; 0: it is of an earlier text.
type written struct {
	object *object.Object
	line   int
}

// parsed is a text by itself.
type parsed struct {
	key      string
	sum      [sha256.Size]byte
	same     bool
	deleted  bool
	objects  map[object.Key]written
	mistakes object.Errors
}

// parse reads documents on all processors. before returns the checksum of the last text of a key.
func parse(r *object.Registry, documents []Document, before func(key string) ([sha256.Size]byte, bool)) []parsed {
	all := make([]parsed, len(documents))
	part := max(16, (len(documents)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	var group sync.WaitGroup
	for from := 0; from < len(documents); from += part {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := from; i < min(from+part, len(documents)); i++ {
				all[i] = parseOne(r, documents[i], before)
			}
		}()
	}
	group.Wait()
	return all
}

func parseOne(r *object.Registry, d Document, before func(key string) ([sha256.Size]byte, bool)) parsed {
	p := parsed{key: d.Key, deleted: d.Deleted}
	if d.Deleted {
		return p
	}
	if d.Err != nil {
		// Unlike any text's.
		p.sum = sha256.Sum256([]byte("\x00cannot be read: " + d.Err.Error()))
		p.mistakes = object.Errors{{File: keyText(d.Key), Problem: "cannot be read: " + d.Err.Error()}}
		return p
	}
	p.sum = sha256.Sum256(d.Text)
	if sum, known := before(d.Key); known && sum == p.sum {
		p.same = true
		return p
	}
	all, err := r.Decode(bytes.NewReader(d.Text), keyText(d.Key))
	p.mistakes = object.AllErrors(err)
	p.objects = make(map[object.Key]written, len(all))
	for _, w := range all {
		if first, twice := p.objects[w.Key()]; twice {
			p.mistakes = append(p.mistakes, &object.Error{File: keyText(d.Key), Line: w.Line, Object: w.Key(), Problem: "duplicate object",
				Accepted: "one document for each object; the first is in line " + decimal(first.line)})
			continue
		}
		p.objects[w.Key()] = written{w.Object, w.Line}
	}
	return p
}

// over replaces the parsed content, and returns the objects that differ.
func (d *document) over(p parsed) []object.Key {
	var differ []object.Key
	for k, w := range p.objects {
		if old, there := d.objects[k]; there && old.object.Equal(w.object) {
			p.objects[k] = written{old.object, w.line}
			continue
		}
		differ = append(differ, k)
	}
	for k, old := range d.objects {
		if _, there := p.objects[k]; there {
			continue
		}
		if len(p.mistakes) == 0 {
			differ = append(differ, k)
			continue
		}
		if p.objects == nil {
			p.objects = map[object.Key]written{}
		}
		p.objects[k] = written{object: old.object}
	}
	d.sum, d.objects, d.mistakes = p.sum, p.objects, p.mistakes
	d.everValid = d.everValid || len(p.mistakes) == 0
	return differ
}

func byLine(a, b *object.Error) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), a.Object.Compare(b.Object))
}
