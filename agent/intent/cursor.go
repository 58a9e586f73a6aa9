// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"fmt"
	"strings"
)

// Cursor is a place in the log of events. It can be written down: String and ParseCursor. The zero Cursor is no place.
type Cursor struct {
	// Of the log: different each time that the program starts.
	log uint64
	// The number of the latest event that was read.
	number uint64
}

// IsZero reports whether it is no place.
func (c Cursor) IsZero() bool { return c == Cursor{} }

// String returns "1a2b-17", or "" if it is no place.
func (c Cursor) String() string {
	if c.IsZero() {
		return ""
	}
	return fmt.Sprintf("%x-%x", c.log, c.number)
}

// ParseCursor reads a cursor as String writes it.
func ParseCursor(text string) (Cursor, error) {
	var c Cursor
	if text == "" {
		return c, nil
	}
	if _, err := fmt.Sscanf(text, "%x-%x", &c.log, &c.number); err != nil || c.String() != text {
		return Cursor{}, fmt.Errorf("%q is no cursor", strings.ToValidUTF8(text, "?"))
	}
	return c, nil
}
