// SPDX-License-Identifier: Apache-2.0

package object

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strings"
)

// scanner cuts a stream at its document markers (YAML 1.2.2 section 9.1.2): lines that begin with "---" or "...".
type scanner struct {
	in   *bufio.Reader
	line int
	end  bool
	// The rest of the line of the marker that ended the document before.
	rest []byte
}

// next returns the next document that is not empty, and its first line.
func (s *scanner) next() (text []byte, first int, err error) {
	text, first, s.rest = s.rest, s.line, nil
	if text == nil {
		first++
	}
	for !s.end {
		line, err := s.readLine(documentLimit - len(text))
		if err != nil && err != io.EOF {
			return nil, s.line, err
		}
		s.end = err == io.EOF
		marker := markerOf(line)
		if marker == "" {
			text = append(text, line...)
			continue
		}
		rest := []byte("\n")
		if marker == "---" {
			rest = line[len(marker):]
		}
		if len(bytes.TrimSpace(text)) > 0 {
			s.rest = append([]byte{}, rest...)
			return text, first, nil
		}
		text, first = append(text[:0], rest...), s.line
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, 0, io.EOF
	}
	return text, first, nil
}

func markerOf(line []byte) string {
	for _, marker := range []string{"---", "..."} {
		if rest, found := bytes.CutPrefix(line, []byte(marker)); found && (len(rest) == 0 || strings.IndexByte(" \t\r\n", rest[0]) >= 0) {
			return marker
		}
	}
	return ""
}

// elements are the elements of a document that is a JSON array (RFC 8259 section 5), each with its first line; of any
// other, the document itself.
func elements(text []byte, first int) iter.Seq2[[]byte, int] {
	return func(yield func([]byte, int) bool) {
		if !bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("[")) || !json.Valid(text) {
			yield(text, first)
			return
		}
		array := json.NewDecoder(bytes.NewReader(text))
		_, err := array.Token()
		for line, behind := first, int64(0); err == nil && array.More(); {
			var element json.RawMessage
			if err = array.Decode(&element); err != nil {
				return // no: it is valid
			}
			end := array.InputOffset()
			begin := end - int64(len(element))
			line += bytes.Count(text[behind:begin], []byte("\n"))
			if !yield(text[begin:end:end], line) {
				return
			}
			line, behind = line+bytes.Count(element, []byte("\n")), end
		}
	}
}

func (s *scanner) readLine(room int) ([]byte, error) {
	var line []byte
	s.line++
	for {
		part, err := s.in.ReadSlice('\n')
		if len(line)+len(part) > room {
			return nil, fmt.Errorf("a document of more than %d MiB", documentLimit>>20)
		}
		line = append(line, part...)
		if err != bufio.ErrBufferFull {
			if err != nil && err != io.EOF {
				return nil, fmt.Errorf("reading: %w", err)
			}
			return line, err
		}
	}
}
