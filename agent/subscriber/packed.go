// SPDX-License-Identifier: Apache-2.0
// Sessions in the durable log: api.Subscriber, packed and unpacked without the protobuf library's reflection. A start of the agent unpacks
// hundreds of thousands.

package subscriber

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

// said is text of a subscriber or a back end, which protobuf needs in valid UTF-8; raw is the original where it differs. A field of raw text
// has a higher number than that of the readable text: it is read later.
type (
	said string
	raw  string
)

// readable is text in valid UTF-8.
func readable(s string) string { return strings.ToValidUTF8(s, "\ufffd") }

// fields are pointers to the values of a message, by the numbers of its fields. Fields with zero values are not packed.
type fields []any

// packer packs and unpacks one session after the other. It is not for several goroutines at once.
type packer struct {
	of     session
	fields fields
	room   []byte
}

func newPacker() *packer {
	p := &packer{}
	s := &p.of
	c, l := &s.connection, &s.lease
	line, g := &c.Line, &c.Grant
	rate := func(r *Rate) fields {
		return fields{1: &r.BitsPerSecond, 2: &r.PeakBitsPerSecond, 3: &r.BurstBytes, 4: &r.PeakBurstBytes}
	}
	counters := func(t *traffic) fields {
		return fields{1: &t.upPackets, 2: &t.upBytes, 3: &t.downPackets, 4: &t.downBytes}
	}
	policy := fields{1: (*said)(&g.ACLUp), 2: (*said)(&g.MeterUp), 3: (*said)(&g.ACLDown), 4: (*said)(&g.MeterDown), 5: &g.MSS, 6: &g.MTU,
		8: (*said)(&g.FlowProfile), 9: (*said)(&g.QosProfile), 10: (*said)(&g.QosGroup), 11: (*said)(&g.QosProfileUp), 12: (*said)(&g.QosGroupUp)}
	p.fields = fields{
		1: &c.ID, 2: &c.Protocol, 3: &c.Profile, 4: &l.Session, 5: (*said)(&c.Username),
		6: fields{1: &line.Dataplane, 2: &line.Port, 3: &line.OuterVLAN, 4: &line.InnerVLAN, 5: &line.MAC, 6: &line.CircuitID, 7: &line.RemoteID,
			8: &line.Attributes, 9: &line.Caller},
		7: (*said)(&c.Service), 8: &c.PPPoESessionID, 9: &c.Access,
		10: fields{1: (*said)(&g.Username), 2: (*said)(&g.VRF), 3: &g.IPv4, 4: &g.IPv4Pools, 5: &g.IPv6Prefix, 6: &g.Delegated, 7: &g.IPv6, 8: &g.IPv6Pools,
			9: &g.DelegatedPools, 10: &g.InterfaceID, 11: &g.Routes, 12: &g.DNS, 13: &g.SessionTimeout, 14: &g.IdleTimeout, 15: &g.InterimInterval,
			16: policy, 17: rate(&g.RateUp), 18: rate(&g.RateDown), 19: (*said)(&g.Redirect), 20: &g.Class, 21: &g.State, 22: (*said)(&g.Profile),
			23: (*raw)(&g.Username), 24: &g.Core, 25: &g.Local, 26: &g.Proved, 27: &g.Announced},
		11: fields{1: &l.VRF, 2: &l.IPv4, 3: &l.IPv6, 4: &l.IPv6Prefix, 5: &l.Delegated, 6: &l.DNS, 7: &l.Gateway, 8: &l.SessionTimeout, 9: &l.MTU, 10: &l.Portal},
		12: &c.IPv4, 13: &c.IPv6, 14: &c.State, 15: &s.since, 16: (*uint32)(&s.cause), 17: &s.end,
		18: counters(&s.before), 19: counters(&s.counted), 20: &s.boot, 21: (*raw)(&c.Username), 22: (*raw)(&c.Service), 23: &s.accounting, 24: &c.MTU, 25: &s.addressesDue,
	}
	return p
}

// pack returns the session's record. It is valid until the next call.
func (p *packer) pack(s *session) []byte {
	p.of = *s
	p.room = appendFields(p.room[:0], p.fields)
	return p.room
}

// unpack reads a record.
func (p *packer) unpack(value []byte) (*session, error) {
	p.of = session{state: up}
	if err := readFields(value, p.fields); err != nil {
		return nil, fmt.Errorf("a record of a subscriber: %w", err)
	}
	if p.of.connection.ID == "" || p.of.lease.Session == "" || p.of.connection.Access == nil {
		return nil, fmt.Errorf("a record of a subscriber is not whole: id %q, session %q", p.of.connection.ID, p.of.lease.Session)
	}
	s := p.of
	intern(&s.connection)
	return &s, nil
}

func appendFields(b []byte, all fields) []byte {
	for i, at := range all {
		n := protowire.Number(i)
		text := func(s string) {
			b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
		}
		number := func(v uint64) {
			if v != 0 {
				b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
			}
		}
		message := func(f func(b []byte) []byte) {
			before := len(b)
			b = protowire.AppendTag(b, n, protowire.BytesType)
			start := len(b)
			b = f(b)
			var room [10]byte
			b = slices.Insert(b, start, protowire.AppendVarint(room[:0], uint64(len(b)-start))...)
			if len(b) == start+1 {
				b = b[:before]
			}
		}
		switch at := at.(type) {
		case *string:
			if *at != "" {
				text(*at)
			}
		case *said:
			if *at != "" {
				text(readable(string(*at)))
			}
		case *raw:
			if !utf8.ValidString(string(*at)) {
				text(string(*at))
			}
		case *[]string:
			for _, one := range *at {
				text(readable(one))
			}
		case *[]byte:
			if len(*at) > 0 {
				text(string(*at))
			}
		case *[][]byte:
			for _, one := range *at {
				text(string(one))
			}
		case *MAC:
			text(string(at[:]))
		case *[8]byte:
			if *at != [8]byte{} {
				text(string(at[:]))
			}
		case *netip.Addr:
			if at.IsValid() {
				text(at.String())
			}
		case *[]netip.Addr:
			for _, one := range *at {
				text(one.String())
			}
		case *netip.Prefix:
			if at.IsValid() {
				text(at.String())
			}
		case *[]netip.Prefix:
			for _, one := range *at {
				text(one.String())
			}
		case *map[uint8][]byte:
			for code, value := range *at {
				message(func(b []byte) []byte {
					b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(code))
					return protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), value)
				})
			}
		case *bool:
			if *at {
				number(1)
			}
		case *uint16:
			number(uint64(*at))
		case *uint32:
			number(uint64(*at))
		case *uint64:
			number(*at)
		case *time.Duration:
			number(uint64(*at))
		case *time.Time:
			number(uint64(nanoseconds(*at)))
		case fields:
			message(func(b []byte) []byte { return appendFields(b, at) })
		case **api.Access:
			message(func(b []byte) []byte { return appendMessage(b, *at) })
		case **api.Gtpu:
			message(func(b []byte) []byte { return appendMessage(b, *at) })
		}
	}
	return b
}

// appendMessage appends a message of the library; its texts come from checked objects.
func appendMessage(b []byte, m proto.Message) []byte {
	if packed, err := (proto.MarshalOptions{}).MarshalAppend(b, m); err == nil {
		return packed
	}
	return b
}

var errMalformedRecord = errors.New("malformed")

// readFields reads a message. It skips fields that it does not know.
func readFields(b []byte, all fields) error {
	for len(b) > 0 {
		n, kind, length := protowire.ConsumeTag(b)
		if length < 0 {
			return errMalformedRecord
		}
		b = b[length:]
		if length = protowire.ConsumeFieldValue(n, kind, b); length < 0 {
			return errMalformedRecord
		}
		value := b[:length]
		b = b[length:]
		if int(n) >= len(all) || all[n] == nil {
			continue
		}
		var err error
		switch kind {
		case protowire.VarintType:
			number, _ := protowire.ConsumeVarint(value)
			err = readNumber(number, all[n])
		case protowire.BytesType:
			text, _ := protowire.ConsumeBytes(value)
			err = readText(text, all[n])
		default:
			err = errMalformedRecord
		}
		if err != nil {
			return fmt.Errorf("field %d: %w", n, err)
		}
	}
	return nil
}

func readNumber(v uint64, to any) error {
	switch to := to.(type) {
	case *bool:
		*to = v != 0
	case *uint16:
		*to = uint16(v)
	case *uint32:
		*to = uint32(v)
	case *uint64:
		*to = v
	case *time.Duration:
		*to = time.Duration(v)
	case *time.Time:
		*to = timeOf(int64(v))
	default:
		return errMalformedRecord
	}
	return nil
}

// readText reads text. Addresses that are none are left out, as is text of another length than it must have.
func readText(b []byte, to any) error {
	switch to := to.(type) {
	case *string:
		*to = string(b)
	case *said:
		*to = said(b)
	case *raw:
		*to = raw(b)
	case *[]string:
		*to = append(*to, string(b))
	case *[]byte:
		*to = slices.Clone(b)
	case *[][]byte:
		*to = append(*to, append([]byte{}, b...))
	case *MAC:
		copy(to[:], b)
	case *[8]byte:
		copy(to[:], b)
	case *netip.Addr:
		*to, _ = netip.ParseAddr(string(b))
	case *[]netip.Addr:
		if a, err := netip.ParseAddr(string(b)); err == nil {
			*to = append(*to, a)
		}
	case *netip.Prefix:
		*to, _ = netip.ParsePrefix(string(b))
	case *[]netip.Prefix:
		if p, err := netip.ParsePrefix(string(b)); err == nil {
			*to = append(*to, p)
		}
	case *map[uint8][]byte:
		var code uint32
		var value []byte
		if err := readFields(b, fields{1: &code, 2: &value}); err != nil {
			return err
		}
		if *to == nil {
			*to = map[uint8][]byte{}
		}
		(*to)[uint8(code)] = value
	case fields:
		return readFields(b, to)
	case **api.Access:
		*to = &api.Access{}
		return proto.Unmarshal(b, *to)
	case **api.Gtpu:
		*to = &api.Gtpu{}
		return proto.Unmarshal(b, *to)
	default:
		return errMalformedRecord
	}
	return nil
}
