// SPDX-License-Identifier: Apache-2.0

package object

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error is one mistake in one object.
type Error struct {
	// Where it was written; empty and 0 if it did not come from a file.
	File string
	Line int
	// Either part may be empty where it could not be read.
	Object Key
	// Path in the spec, "access.outerVlan" or "nextHops[2].address"; or "metadata.name" and the like; empty: the object as a whole.
	Field string
	// The problem: "out of range". Never empty.
	Problem string
	// The found text, as written. May be empty.
	Found string
	// The accepted values. May be empty.
	Accepted string
}

// Error names place, problem and mend: "bng.yaml:7: Session/alice: access.outerVlan: out of range: found 5000;
// accepted: 1 to 4094, or 0 (untagged)".
func (e *Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	} else if e.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", e.Line)
	}
	switch {
	case e.Object.Kind != "" && e.Object.Name != "":
		b.WriteString(e.Object.String() + ": ")
	case e.Object.Kind != "":
		b.WriteString(e.Object.Kind + ": ")
	}
	b.WriteString(e.Sentence())
	return oneLine(b.String())
}

// Mistake returns the error of a field, which is not of an object.
func Mistake(field, problem, found, accepted string) error {
	return &Error{Field: field, Problem: problem, Found: found, Accepted: accepted}
}

// oneLine writes control characters as Go does: names and fields that are refused may hold any.
func oneLine(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0 {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if unicode.IsControl(r) || r == utf8.RuneError && size == 1 {
			quoted := strconv.QuoteToASCII(text[i : i+size])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// Sentence is Error without file, line and object.
func (e *Error) Sentence() string {
	var b strings.Builder
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Problem)
	found, accepted := ": found ", "; accepted: "
	if strings.HasSuffix(e.Problem, "?") {
		// After "did you mean Port?" a sentence begins.
		found = " Found "
		if e.Found == "" {
			accepted = " Accepted: "
		}
	}
	if e.Found != "" {
		b.WriteString(found + e.Found)
	}
	if e.Accepted != "" {
		b.WriteString(accepted + e.Accepted)
	}
	return b.String()
}

// MaxMistakes is the largest number of mistakes that are reported at once. It keeps hostile input from filling the memory with its errors.
const MaxMistakes = 1000

// Errors are all the mistakes that were found, in the order in which they were written.
type Errors []*Error

// Error returns one line for each.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find each.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// Or returns the errors as an error, or nil if there are none.
func (e Errors) Or() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// AllErrors returns the mistakes that an error holds, or nil if it is of another sort.
func AllErrors(err error) Errors {
	var all Errors
	if errors.As(err, &all) {
		return all
	}
	var one *Error
	if errors.As(err, &one) {
		return Errors{one}
	}
	return nil
}

// Quote writes a found text for an Error: in quotes, cut after 80 bytes.
func Quote(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}
