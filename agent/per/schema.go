// SPDX-License-Identifier: Apache-2.0

package per

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// BitString is a BIT STRING: Count bits, the first is the most significant of the first octet. Bits after the last are zero.
type BitString struct {
	Octets []byte
	Count  int
}

// Null is a NULL.
type Null struct{}

// Extensions marks a SEQUENCE with an extension container (iE-Extensions), or a CHOICE with choice-Extensions. It is the type of a blank field.
type Extensions struct{}

// Container marks a SEQUENCE that is a container of protocol IEs alone. It is the type of a blank field.
type Container struct{}

// Criticality of a protocol IE or an elementary procedure (TS 38.413 section 9.3.1.1).
type Criticality uint8

const (
	Reject Criticality = iota
	Ignore
	Notify
)

func (c Criticality) String() string {
	return [...]string{"reject", "ignore", "notify", "?"}[c&3]
}

type kind uint8

const (
	kindInteger kind = iota
	kindEnumerated
	kindOctets
	kindBits
	kindPrintable
	kindVisible
	kindUTF8
	kindNull
	kindList
	kindSequence
	kindChoice
)

// schema is a type of a component. It comes from its tag `per:"..."`:
//
//	int [LO HI] [ext]         - is no bound
//	enum ROOT KNOWN [ext]     numbers of values without and with extensions
//	octets|bits|printable|visible|utf8 [LO HI] [ext]
//	null
//	list [LO HI] [ext]: ELEMENT
//	seq [ext], choice [ext]
//
// A component with the tag `opt` is OPTIONAL. Components with the tag `ie:"ID CRITICALITY PRESENCE"` are those of a
// Container; with the tag `x` those of the extension container. Optional components are pointers or slices.
type schema struct {
	kind        kind
	lo, hi      *int64
	extensible  bool
	root, known int64
	element     *schema
	structure   *structure
}

type component struct {
	name        string
	index       int
	schema      *schema
	optional    bool
	id          uint16
	criticality Criticality
	mandatory   bool
}

type structure struct {
	// Components without a protocol IE's number.
	plain []component
	// Of the container of protocol IEs, or of the extension container.
	ies       []component
	container bool
	extended  bool
	byID      map[uint16]int
}

// Structures that were compiled from their tags.
var structures sync.Map

var words = map[string]kind{
	"int": kindInteger, "enum": kindEnumerated, "octets": kindOctets, "bits": kindBits, "printable": kindPrintable, "visible": kindVisible,
	"utf8": kindUTF8, "null": kindNull, "list": kindList, "seq": kindSequence, "choice": kindChoice,
}

// compile panics where a tag is wrong: that is a mistake of the program, and a test compiles all types.
func compile(tag string, of reflect.Type) *schema {
	head, rest, isList := strings.Cut(tag, ":")
	parts := strings.Fields(head)
	s := &schema{kind: words[parts[0]]}
	if parts[len(parts)-1] == "ext" {
		s.extensible = true
		parts = parts[:len(parts)-1]
	}
	if len(parts) == 3 {
		s.lo, s.hi = bound(parts[1]), bound(parts[2])
	}
	switch s.kind {
	case kindEnumerated:
		s.root, s.known = *s.lo, *s.hi
	case kindList:
		if !isList || of.Kind() != reflect.Slice {
			panic(fmt.Sprintf("per: %s is no list of %s", of, tag))
		}
		s.element = compile(strings.TrimSpace(rest), of.Elem())
	case kindSequence, kindChoice:
		s.structure = structureOf(of)
	}
	return s
}

func bound(text string) *int64 {
	if text == "-" {
		return nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic("per: " + err.Error())
	}
	return &value
}

func structureOf(of reflect.Type) *structure {
	if known, ok := structures.Load(of); ok {
		return known.(*structure)
	}
	s := &structure{byID: map[uint16]int{}}
	for index := range of.NumField() {
		field := of.Field(index)
		if field.Type == reflect.TypeFor[Extensions]() {
			s.extended = true
			continue
		}
		if field.Type == reflect.TypeFor[Container]() {
			s.container = true
			continue
		}
		c := component{name: field.Name, index: index}
		base := field.Type
		if base.Kind() == reflect.Pointer {
			base = base.Elem()
		}
		c.schema = compile(field.Tag.Get("per"), base)
		_, c.optional = field.Tag.Lookup("opt")
		note := field.Tag.Get("ie") + field.Tag.Get("x")
		if note == "" {
			s.plain = append(s.plain, c)
			continue
		}
		parts := strings.Fields(note)
		c.id = uint16(*bound(parts[0]))
		c.criticality = map[string]Criticality{"reject": Reject, "ignore": Ignore, "notify": Notify}[parts[1]]
		c.mandatory = parts[2] == "mandatory"
		s.byID[c.id] = len(s.ies)
		s.ies = append(s.ies, c)
	}
	structures.Store(of, s)
	return s
}
