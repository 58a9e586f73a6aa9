// SPDX-License-Identifier: Apache-2.0

// The content of a message: documents to apply, or names of objects to delete.
package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/intent"
	"sluice.dev/sluice/agent/object"
)

// The headers that are looked at.
const (
	operationHeader = "operation"
	revisionHeader  = "revision"
)

// Order is the position of a change among the changes of an object.
type Order struct {
	// From the sender: the higher is the later, for any path of the message. 0: none.
	Revision uint64
	// From the broker.
	Stream string
	Number uint64
}

// before reports whether o is older than known. It is false if the two cannot be compared.
func (o Order) before(known Order) bool {
	if o.Revision != 0 && known.Revision != 0 {
		return o.Revision < known.Revision
	}
	return o.Stream != "" && o.Stream == known.Stream && o.Number < known.Number
}

// parsedMessage is a message that was read.
type parsedMessage struct {
	message *Message
	changes []object.Change
	order   Order
	// Why it cannot be accepted.
	dead *Reason
}

func (p *parsedMessage) refuse(r Reason) { p.dead = &r }

func (m *Message) header(name string) string {
	for _, h := range m.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

// read parses a message.
func read(r *object.Registry, m *Message) *parsedMessage {
	p := &parsedMessage{message: m, order: Order{Stream: m.Stream, Number: m.Number}}
	if text := m.header(revisionHeader); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || n == 0 {
			p.refuse(Reason{Error: fmt.Sprintf("header %s: found %q; accepted: a number from 1", revisionHeader, short(text)), Field: revisionHeader,
				Found: short(text), Accepted: "a number from 1"})
			return p
		}
		p.order.Revision = n
	}
	var err error
	switch operation := m.header(operationHeader); {
	case m.Tombstone:
		var k object.Key
		if k, err = keyOf(r, m.Key); err == nil {
			p.changes = []object.Change{object.Remove(k)}
		}
	case operation == "delete":
		p.changes, err = removals(r, m.Body)
	case operation == "" || operation == "put":
		p.changes, err = puts(r, m.Body)
	default:
		p.refuse(Reason{Error: fmt.Sprintf("header %s: found %q; accepted: put, delete", operationHeader, short(operation)), Field: operationHeader,
			Found: short(operation), Accepted: "put, delete"})
		return p
	}
	if err == nil && len(p.changes) == 0 {
		err = &object.Error{Problem: "there is no object in this message", Accepted: "documents with apiVersion, kind, metadata and spec"}
	}
	if err == nil {
		err = checkUnique(p.changes)
	}
	if err != nil {
		p.refuse(mistakesOf(err).reason())
	}
	return p
}

func checkUnique(changes []object.Change) error {
	if len(changes) == 1 {
		return nil
	}
	seen := make(map[object.Key]struct{}, len(changes))
	for _, c := range changes {
		if _, there := seen[c.Key]; there {
			return &object.Error{Object: c.Key, Problem: "duplicate object in one message", Accepted: "each object once"}
		}
		seen[c.Key] = struct{}{}
	}
	return nil
}

func puts(r *object.Registry, body []byte) ([]object.Change, error) {
	written, err := r.Decode(bytes.NewReader(body), "")
	if err != nil {
		return nil, err
	}
	changes := make([]object.Change, len(written))
	for i, w := range written {
		changes[i] = object.Put(w.Object)
	}
	return changes, nil
}

// removals reads only the names, so that an object that is no longer valid can still be deleted.
func removals(r *object.Registry, body []byte) ([]object.Change, error) {
	var changes []object.Change
	d := yaml.NewDecoder(bytes.NewReader(body))
	for {
		var head *struct {
			Kind     string `yaml:"kind"`
			Metadata struct {
				Name string `yaml:"name"`
			} `yaml:"metadata"`
		}
		err := d.Decode(&head)
		if errors.Is(err, io.EOF) {
			return changes, nil
		}
		if err != nil {
			return nil, &object.Error{Problem: "not YAML: " + strings.TrimPrefix(err.Error(), "yaml: "), Accepted: "documents with kind and metadata.name"}
		}
		if head == nil {
			continue
		}
		k := object.Key{Kind: head.Kind, Name: head.Metadata.Name}
		if err := known(r, k); err != nil {
			return nil, err
		}
		changes = append(changes, object.Remove(k))
	}
}

func known(r *object.Registry, k object.Key) error {
	switch {
	case k.Kind == "":
		return &object.Error{Object: k, Field: "kind", Problem: "is missing"}
	case r.Kind(k.Kind) == nil:
		_, err := r.Lookup(k.Kind)
		if err == nil {
			err = fmt.Errorf("there is no kind %q", short(k.Kind))
		}
		return &object.Error{Field: "kind", Problem: err.Error(), Found: short(k.Kind)}
	}
	if e := object.CheckName(k); e != nil {
		return e
	}
	return nil
}

func keyOf(r *object.Registry, text string) (object.Key, error) {
	kind, name, ok := strings.Cut(text, "/")
	k := object.Key{Kind: kind, Name: name}
	if !ok || known(r, k) != nil {
		return k, &object.Error{Field: "key", Problem: "a message without a body deletes what its key names", Found: fmt.Sprintf("%q", short(text)),
			Accepted: "KIND/NAME"}
	}
	return k, nil
}

// Reason is why a message cannot be accepted.
type Reason struct {
	// All of it, a line for each mistake.
	Error string
	// Of the first mistake, where they are known.
	Object, Field, Found, Accepted string
	// The owner that asked and the owner that holds the object, of a conflict.
	Owner, Holder string
}

// mistakes are all errors of a message.
type mistakes struct {
	conflicts []intent.Conflict
	errors    object.Errors
}

func mistakesOf(err error) *mistakes {
	m := &mistakes{errors: object.AllErrors(err)}
	var conflicts *intent.Conflicts
	if errors.As(err, &conflicts) {
		m.conflicts = conflicts.All
	}
	return m
}

func (m *mistakes) none() bool { return len(m.conflicts) == 0 && len(m.errors) == 0 }

func (m *mistakes) reason() Reason {
	var r Reason
	var lines []string
	if len(m.conflicts) > 0 {
		c := m.conflicts[0]
		r = Reason{Object: c.Key.String(), Field: c.Field, Found: c.Requested, Owner: c.Owner, Holder: c.Holder, Accepted: c.Mend()}
		lines = append(lines, (&intent.Conflicts{All: m.conflicts}).Error())
	}
	for i, e := range m.errors {
		if i == 0 && len(m.conflicts) == 0 {
			r = Reason{Field: e.Field, Found: e.Found, Accepted: e.Accepted}
			if e.Object.Kind != "" && e.Object.Name != "" {
				r.Object = e.Object.String()
			}
		}
		lines = append(lines, e.Error())
	}
	r.Error = strings.Join(lines, "\n")
	return r
}

// The longest headers that are copied from a hostile message.
const headerLimit = 2048

func short(text string) string {
	if len(text) > headerLimit {
		text = text[:headerLimit] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}

var reasonHeaders = []string{"error", "object", "field", "found", "accepted", "owner", "holder", "position"}

// Headers are the message's own, and the reason.
func (d Dead) Headers() []Header {
	all := slices.DeleteFunc(slices.Clone(d.Message.Headers), func(h Header) bool { return slices.Contains(reasonHeaders, h.Name) })
	r := d.Reason
	for i, value := range []string{r.Error, r.Object, r.Field, r.Found, r.Accepted, r.Owner, r.Holder, d.Message.Position} {
		if value != "" {
			all = append(all, Header{reasonHeaders[i], short(value)})
		}
	}
	return all
}
