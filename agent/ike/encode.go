// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/netip"
	"time"

	"sluice.dev/sluice/agent/ike/message"
	"sluice.dev/sluice/agent/ike/suite"
)

// The binary form of records: a number of the form, then the fields in their order. The agent holds each record in memory, so that a record of an IKE SA
// with a child is a third as long as its JSON, which earlier releases wrote.

const (
	recordForm = 1
	// A window behind which there is what a request of ours proposes.
	proposedForm = 2
	// An IKE SA behind which there is the one for which it ends.
	twinForm = 3
)

var errRecord = errors.New("the record is malformed")

// coder writes fields or reads them.
type coder struct {
	// The written bytes, or those that are left to be read.
	b       []byte
	reading bool
	failed  bool
	// The form of the record that is read.
	form byte
}

// encoded writes a record.
func encoded(record interface{ code(c *coder) }) []byte {
	c := &coder{b: []byte{recordForm}}
	record.code(c)
	return c.b
}

// decode reads a record, also one in JSON.
func decode(b []byte, record interface{ code(c *coder) }) error {
	if len(b) > 0 && b[0] == '{' {
		return json.Unmarshal(b, record)
	}
	if len(b) == 0 || b[0] < recordForm || b[0] > twinForm {
		return errRecord
	}
	c := &coder{b: b[1:], reading: true, form: b[0]}
	if record.code(c); c.failed || len(c.b) > 0 {
		return errRecord
	}
	return nil
}

func (c *coder) fail() { c.b, c.failed = nil, true }

func integer[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *coder, v *T) {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, uint64(*v))
		return
	}
	n, length := binary.Uvarint(c.b)
	if length <= 0 || uint64(T(n)) != n {
		c.fail()
		return
	}
	c.b, *v = c.b[length:], T(n)
}

// octets are behind their length. Nothing is read as nil.
func octets[T ~[]byte | ~string](c *coder, v *T) {
	length := uint64(len(*v))
	if integer(c, &length); !c.reading {
		c.b = append(c.b, *v...)
		return
	}
	if length > uint64(len(c.b)) {
		c.fail()
		return
	}
	if length > 0 {
		*v = T(string(c.b[:length]))
		c.b = c.b[length:]
	}
}

// list has its length in front.
func list[T any](c *coder, v *[]T, code func(one *T)) {
	count := uint64(len(*v))
	integer(c, &count)
	if c.reading {
		// Each has one byte at least.
		if count > uint64(len(c.b)) {
			c.fail()
			return
		}
		if count > 0 {
			*v = make([]T, count)
		}
	}
	for i := range *v {
		code(&(*v)[i])
	}
}

func (c *coder) flags(all ...*bool) {
	bits := uint64(0)
	for i, one := range all {
		if *one {
			bits |= 1 << i
		}
	}
	integer(c, &bits)
	for i, one := range all {
		*one = bits>>i&1 != 0
	}
}

// time is in nanoseconds; 0: none.
func (c *coder) time(v *time.Time) {
	n := uint64(0)
	if !v.IsZero() {
		n = uint64(v.UnixNano())
	}
	if integer(c, &n); c.reading && n != 0 {
		*v = time.Unix(0, int64(n))
	}
}

func (c *coder) address(v *netip.Addr) {
	var b []byte
	if v.IsValid() {
		b, _ = v.MarshalBinary() // it has no error
	}
	if octets(c, &b); c.reading && v.UnmarshalBinary(b) != nil {
		c.fail()
	}
}

func (c *coder) addressPort(v *netip.AddrPort) {
	a, port := v.Addr(), v.Port()
	c.address(&a)
	if integer(c, &port); c.reading {
		*v = netip.AddrPortFrom(a, port)
	}
}

// text is a rare part of a record: JSON.
func text[T any](c *coder, v **T) {
	var b []byte
	if *v != nil {
		b = kept(*v)
	}
	if octets(c, &b); c.reading && len(b) > 0 {
		if *v = new(T); json.Unmarshal(b, *v) != nil {
			c.fail()
		}
	}
}

func (c *coder) transforms(v *[]message.Transform) {
	list(c, v, func(t *message.Transform) {
		integer(c, &t.Type)
		integer(c, &t.ID)
		integer(c, &t.KeyLength)
	})
}

func (c *coder) selectors(v *[]message.Selector) {
	list(c, v, func(s *message.Selector) {
		integer(c, &s.Protocol)
		integer(c, &s.StartPort)
		integer(c, &s.EndPort)
		c.address(&s.Start)
		c.address(&s.End)
	})
}

func (c *coder) keys(v *suite.Keys) {
	for _, one := range []*[]byte{&v.D, &v.Ai, &v.Ar, &v.Ei, &v.Er} {
		octets(c, one)
	}
}

func (r *saState) code(c *coder) {
	octets(c, &r.Connection)
	c.flags(&r.Initiator, &r.NATHere, &r.NATThere, &r.Fragments, &r.MOBIKE, &r.Collides, &r.Swapped, &r.Rekeyed)
	integer(c, &r.Theirs)
	c.addressPort(&r.Local)
	c.addressPort(&r.Remote)
	integer(c, &r.State)
	c.transforms(&r.Chosen)
	c.keys(&r.Keys)
	integer(c, &r.PeerKind)
	octets(c, &r.Peer)
	octets(c, &r.Method)
	octets(c, &r.Username)
	integer(c, &r.Lease)
	octets(c, &r.Tunnel)
	list(c, &r.Addresses, c.address)
	list(c, &r.Others, c.address)
	c.time(&r.Up)
	c.time(&r.RekeyAt)
	c.time(&r.ReauthAt)
	list(c, &r.Children, func(one *childState) { one.code(c) })
	integer(c, &r.Precedence)
	octets(c, &r.Dataplane)
	octets(c, &r.VRF)
	integer(c, &r.ID)
	text(c, &r.Ticket)
	if !c.reading && r.Twin != 0 {
		c.b[0], c.form = twinForm, twinForm
	}
	if c.form == twinForm {
		integer(c, &r.Twin)
		c.flags(&r.Reauth)
	}
	if r.Collides {
		integer(c, &r.Replaces)
		octets(c, &r.Lowest)
	}
	if r.Rekeyed {
		c.time(&r.First)
	}
}

func (r *childState) code(c *coder) {
	octets(c, &r.Name)
	integer(c, &r.In)
	integer(c, &r.Out)
	c.transforms(&r.Chosen)
	for _, one := range []*[]byte{&r.EncryptionIn, &r.IntegrityIn, &r.EncryptionOut, &r.IntegrityOut} {
		octets(c, one)
	}
	c.selectors(&r.Local)
	c.selectors(&r.Remote)
	c.flags(&r.Transport, &r.Ours, &r.Replaced, &r.Deleting, &r.Half, &r.Collides)
	integer(c, &r.Replaces)
	c.address(&r.At)
	integer(c, &r.Precedence)
	c.time(&r.Since)
	c.time(&r.RekeyAt)
	c.time(&r.Expires)
	text(c, &r.Conf)
	if r.Collides {
		integer(c, &r.Collision)
		octets(c, &r.Lowest)
	}
}

func (r *windowState) code(c *coder) {
	integer(c, &r.Next)
	integer(c, &r.Expected)
	list(c, &r.Response, func(one *[]byte) { octets(c, one) })
	integer(c, &r.Exchange)
	list(c, &r.Request, func(one *[]byte) { octets(c, one) })
	integer(c, &r.SPI)
	if !c.reading && r.Proposed != nil {
		c.b[0], c.form = proposedForm, proposedForm
	}
	if c.form == proposedForm {
		text(c, &r.Proposed)
	}
}
