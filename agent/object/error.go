package object

import (
	"errors"
	"fmt"
	"strings"
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
	// What is wrong: "out of range". Never empty.
	Problem string
	// What was found, as it was written. May be empty.
	Found string
	// What would be right. May be empty.
	Accepted string
}

// Error says where, what, and what would be right: "bng.yaml:7: Session/alice: access.outerVlan: out of range: found 5000;
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

// MistakesMost are as many as are told at once. It keeps a hostile or hopeless input from filling the memory with complaints about it.
const MistakesMost = 1000

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

func quote(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}
