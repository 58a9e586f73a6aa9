// SPDX-License-Identifier: Apache-2.0

// All objects of a data plane: hundreds of thousands of them, so a page is read where it stands, and the next one is on its way meanwhile.
package dataplane

import (
	"context"
	"errors"
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice.dev/sluice/agent/api"
)

// Listing returns all objects, in pages; their texts are parts of the page. A page is not valid after the next was asked for. An error ends it.
func (c *Client) Listing(ctx context.Context) iter.Seq2[[]Packed, error] {
	return func(yield func([]Packed, error) bool) {
		// A page that was there before would never end.
		seen := map[string]bool{"": true}
		var objects []Packed
		for next := c.askPage(ctx, ""); next != nil; {
			text, err := next()
			var following string
			if err == nil {
				objects, following, err = cutPage(objects[:0], text)
				if err != nil {
					err = c.garbled("a page of objects: %w", err)
				}
			}
			if next = nil; err == nil && following != "" {
				if seen[following] {
					err = c.garbled("page %q follows a second time", following)
				} else {
					seen[following] = true
					next = c.askPage(ctx, following)
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(objects, nil) {
				return
			}
		}
	}
}

// askPage asks for a page. The returned function waits for the packed api.Objects.
func (c *Client) askPage(ctx context.Context, page string) func() (string, error) {
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 1)
	conn, err := c.current()
	if err != nil {
		answers <- answer{err: err}
	} else {
		w := &call{objects: new(string)}
		conn.askAs(w, framing(&api.Request{Operation: &api.Request_List{List: &api.List{Limit: listPage, Page: page}}}), func(reply *api.Reply, err error) {
			if err == nil {
				err = Refused(reply.GetResult())
			}
			answers <- answer{*w.objects, err}
		})
	}
	return func() (string, error) {
		select {
		case a := <-answers:
			return a.text, a.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

var errNotUTF8 = errors.New("a text that is not UTF-8")

// cutPage returns the objects of a packed api.Objects, in room that it is given, and the next page.
func cutPage(room []Packed, text string) (objects []Packed, next string, err error) {
	// Many are of one kind and owner.
	var kind, owner string
	err = eachField(text, func(number protowire.Number, value string) error {
		switch number {
		case objectsObjects:
			var o Packed
			err := eachField(value, func(number protowire.Number, value string) error {
				switch number {
				case objectKind:
					o.Kind = value
				case objectName:
					o.Name = value
				case objectSpec:
					o.Spec = value
					return nil
				case objectOwner:
					o.Owner = value
				default:
					return nil
				}
				if !utf8.ValidString(value) {
					return errNotUTF8
				}
				return nil
			})
			if err != nil {
				return err
			}
			// Those outlive the page.
			if o.Kind != kind {
				kind = string([]byte(o.Kind))
			}
			if o.Owner != owner {
				owner = string([]byte(o.Owner))
			}
			o.Kind, o.Owner = kind, owner
			room = append(room, o)
		case objectsNextPage:
			if next = value; !utf8.ValidString(value) {
				return errNotUTF8
			}
		}
		return nil
	})
	return room, next, err
}

// eachField calls f with each text of a packed message, and skips other fields.
func eachField(text string, f func(number protowire.Number, value string) error) error {
	for text != "" {
		tag, n := varint(text)
		number, kind := protowire.DecodeTag(tag)
		if n == 0 || number < protowire.MinValidNumber {
			return errMalformed
		}
		text = text[n:]
		if kind != protowire.BytesType {
			length := protowire.ConsumeFieldValue(number, kind, []byte(text[:min(len(text), longestNumber)]))
			if length < 0 {
				return errMalformed
			}
			text = text[length:]
			continue
		}
		length, n := varint(text)
		if n == 0 || length > uint64(len(text)-n) {
			return errMalformed
		}
		if err := f(number, text[n:n+int(length)]); err != nil {
			return err
		}
		text = text[n+int(length):]
	}
	return nil
}

// longestNumber is the most bytes of a number of any wire type.
const longestNumber = 10

var errMalformed = errors.New("it cannot be read")

// varint returns a number and how many bytes it has; 0: there is none.
func varint(text string) (v uint64, n int) {
	for n < len(text) && n < longestNumber {
		b := text[n]
		v |= uint64(b&0x7f) << (7 * n)
		n++
		if b < 0x80 {
			return v, n
		}
	}
	return 0, 0
}
