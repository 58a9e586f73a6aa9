// SPDX-License-Identifier: Apache-2.0

// Objects and results as they are on the wire: there are very many of them, and the library makes several allocations of each.
package dataplane

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice.dev/sluice/agent/api"
)

// Fields of api/dataplane.proto.
const (
	requestID         = 1
	requestPut        = 3
	requestDelete     = 4
	requestPacketsOut = 25

	packetsPackets     = 1
	packetOutPort      = 1
	packetOutInterface = 2
	packetOutSession   = 3
	packetOutPacket    = 4
	packetOutVRF       = 5

	// Of a Put, and of a Delete.
	changeObjects = 1

	replyID      = 1
	replyResults = 5
	replyObjects = 6

	resultsResults = 1
	resultCode     = 1
	resultMessage  = 2
	resultFinal    = 3

	objectsObjects  = 1
	objectsNextPage = 2

	objectKind  = 1
	objectName  = 2
	objectSpec  = 3
	objectOwner = 4
)

// Packed is an api.Object. With a kind and a name alone it is an api.ObjectName.
type Packed struct{ Kind, Name, Spec, Owner string }

// Result is an api.Result of one object.
type Result struct {
	// 0, or a Linux errno.
	Code    int32
	Message string
	// The last counters of an object that was deleted.
	Final []byte
}

// bytes is the length of the object's message.
func (o *Packed) bytes() int {
	return textBytes(o.Kind) + textBytes(o.Name) + textBytes(o.Spec) + textBytes(o.Owner)
}

// textBytes is the length that appendText appends. Fields up to 15 have a tag of one byte.
func textBytes(s string) int {
	if s == "" {
		return 0
	}
	return 1 + protowire.SizeBytes(len(s))
}

func appendText(to []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return to
	}
	return protowire.AppendString(protowire.AppendTag(to, field, protowire.BytesType), s)
}

// changing returns the framer of a request to put or delete objects, whose messages with their prefixes have so many
// bytes in all.
func changing(operation protowire.Number, objects []Packed, bytes int) framer {
	return func(to []byte, id uint64) ([]byte, error) {
		start := len(to)
		to = protowire.AppendVarint(protowire.AppendTag(append(to, 0, 0, 0, 0), requestID, protowire.VarintType), id)
		to = protowire.AppendVarint(protowire.AppendTag(to, operation, protowire.BytesType), uint64(bytes))
		for i := range objects {
			o := &objects[i]
			to = protowire.AppendVarint(protowire.AppendTag(to, changeObjects, protowire.BytesType), uint64(o.bytes()))
			to = appendText(appendText(to, objectKind, o.Kind), objectName, o.Name)
			to = appendText(appendText(to, objectSpec, o.Spec), objectOwner, o.Owner)
		}
		return endFrame(to, start)
	}
}

// packetsOut returns the framer of a request without an id that sends packets.
func packetsOut(packets []*api.PacketOut) framer {
	return func(to []byte, _ uint64) ([]byte, error) {
		bytes := 0
		for _, p := range packets {
			bytes += 1 + protowire.SizeBytes(packetOutBytes(p))
		}
		start := len(to)
		to = protowire.AppendVarint(protowire.AppendTag(append(to, 0, 0, 0, 0), requestPacketsOut, protowire.BytesType), uint64(bytes))
		for _, p := range packets {
			to = protowire.AppendVarint(protowire.AppendTag(to, packetsPackets, protowire.BytesType), uint64(packetOutBytes(p)))
			if len(p.Packet) > 0 {
				to = protowire.AppendBytes(protowire.AppendTag(to, packetOutPacket, protowire.BytesType), p.Packet)
			}
			if field, name := wayOf(p); field != 0 {
				to = protowire.AppendString(protowire.AppendTag(to, field, protowire.BytesType), name)
			}
		}
		return endFrame(to, start)
	}
}

// packetOutBytes is the length of the packet's message.
func packetOutBytes(p *api.PacketOut) (bytes int) {
	// A field of a oneof is there although it is empty.
	if field, name := wayOf(p); field != 0 {
		bytes = 1 + protowire.SizeBytes(len(name))
	}
	if len(p.Packet) > 0 {
		bytes += 1 + protowire.SizeBytes(len(p.Packet))
	}
	return bytes
}

// wayOf returns the field that says how a packet leaves; 0: none does.
func wayOf(p *api.PacketOut) (field protowire.Number, name string) {
	switch way := p.Way.(type) {
	case *api.PacketOut_Port:
		return packetOutPort, way.Port
	case *api.PacketOut_Interface:
		return packetOutInterface, way.Interface
	case *api.PacketOut_Session:
		return packetOutSession, way.Session
	case *api.PacketOut_Vrf:
		return packetOutVRF, way.Vrf
	}
	return 0, ""
}

// cut removes the packed part of a reply for its call, and returns the rest of the reply. Other replies, and
// unreadable ones, are returned as they are.
func (c *conn) cut(reply []byte) []byte {
	if c.cutting.Load() == 0 {
		return reply
	}
	var id uint64
	var answer protowire.Number
	var packed []byte
	rest := make([]byte, 0, 64)
	for text := reply; len(text) > 0; {
		number, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return reply
		}
		length := protowire.ConsumeFieldValue(number, kind, text[n:])
		if length < 0 {
			return reply
		}
		value := text[n : n+length]
		if (number == replyObjects || number == replyResults) && kind == protowire.BytesType && (answer == 0 || answer == number) {
			// The parts of a message that is there in parts are one message.
			part, _ := protowire.ConsumeBytes(value)
			if answer == 0 {
				answer, packed = number, part
			} else {
				packed = append(packed[:len(packed):len(packed)], part...)
			}
		} else {
			if number == replyID && kind == protowire.VarintType {
				id, _ = protowire.ConsumeVarint(value)
			}
			rest = append(rest, text[:n+length]...)
		}
		text = text[n+length:]
	}
	// A connection that is closed meanwhile has its calls answered by another goroutine.
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.calls[id]
	switch {
	case w != nil && answer == replyObjects && w.objects != nil:
		*w.objects = string(packed)
		packed = nil
	case w != nil && answer == replyResults && w.results != nil:
		var ok bool
		if *w.results, packed, ok = cutResults((*w.results)[:0], packed); !ok {
			return reply
		}
	default:
		return reply
	}
	// The answer stays in the reply, with its other fields.
	return protowire.AppendBytes(protowire.AppendTag(rest, answer, protowire.BytesType), packed)
}

// cutResults takes the results out of a packed api.Results, into room that it is given, and returns the rest of it.
func cutResults(room []Result, packed []byte) (results []Result, rest []byte, ok bool) {
	for len(packed) > 0 {
		number, kind, n := protowire.ConsumeTag(packed)
		if n < 0 {
			return room[:0], nil, false
		}
		length := protowire.ConsumeFieldValue(number, kind, packed[n:])
		if length < 0 {
			return room[:0], nil, false
		}
		if number == resultsResults && kind == protowire.BytesType {
			one, _ := protowire.ConsumeBytes(packed[n:])
			r, readable := cutResult(one)
			if !readable {
				return room[:0], nil, false
			}
			room = append(room, r)
		} else {
			rest = append(rest, packed[:n+length]...)
		}
		packed = packed[n+length:]
	}
	return room, rest, true
}

// cutResult reads a packed api.Result. Most are empty: the object is as it should be.
func cutResult(packed []byte) (r Result, ok bool) {
	for len(packed) > 0 {
		number, kind, n := protowire.ConsumeTag(packed)
		if n < 0 {
			return r, false
		}
		length := protowire.ConsumeFieldValue(number, kind, packed[n:])
		if length < 0 {
			return r, false
		}
		value := packed[n : n+length]
		switch {
		case number == resultCode && kind == protowire.VarintType:
			code, _ := protowire.ConsumeVarint(value)
			r.Code = int32(code)
		case number == resultMessage && kind == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(value)
			if !utf8.Valid(text) {
				return r, false
			}
			r.Message = string(text)
		case number == resultFinal && kind == protowire.BytesType:
			final, _ := protowire.ConsumeBytes(value)
			r.Final = append([]byte(nil), final...)
		}
		packed = packed[n+length:]
	}
	return r, true
}
