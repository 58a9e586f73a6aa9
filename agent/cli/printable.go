// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable is a writer of text to a terminal. Names, messages and packets may hold any characters. Those that would
// move the cursor, change the terminal or turn the direction of text are written as escapes of JSON and Go (\u001b).
type printable struct {
	to io.Writer
	// Of a letter that is not whole yet.
	rest []byte
}

func (w *printable) Write(b []byte) (int, error) {
	text := b
	if len(w.rest) > 0 {
		text = append(w.rest, b...)
		w.rest = nil
	}
	for i := max(0, len(text)-utf8.UTFMax+1); i < len(text); i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			w.rest = append([]byte{}, text[i:]...)
			text = text[:i]
			break
		}
	}
	if _, err := io.WriteString(w.to, escaped(string(text), "\n\t")); err != nil {
		return 0, err
	}
	return len(b), nil
}

// flush writes the bytes of an incomplete character.
func (w *printable) flush() {
	if len(w.rest) > 0 {
		_, _ = io.WriteString(w.to, escaped(string(w.rest), ""))
		w.rest = nil
	}
}

// line is a text in one line.
func line(text string) string { return escaped(text, "") }

// escaped replaces each letter that a terminal would not just show, but for some.
func escaped(text, keep string) string {
	clean := true
	for _, r := range text {
		if unshown(r) && !strings.ContainsRune(keep, r) {
			clean = false
			break
		}
	}
	if clean && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unshown(r) && !strings.ContainsRune(keep, r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// unshown reports control characters, separators of lines and paragraphs, and characters that turn the direction of
// text (Unicode's UAX 9).
func unshown(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}
