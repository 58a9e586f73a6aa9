// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	_ "google.golang.org/grpc/encoding/proto" // the codec that the bounded one is around
)

// Bounded makes a server refuse messages that would take very much more memory than their length: a message in another takes two bytes on
// the wire, and a hundred when it is read.
func Bounded() grpc.ServerOption {
	return grpc.ForceServerCodecV2(bounded{encoding.GetCodecV2("proto")})
}

const (
	// Of messages in one another, and in lists and maps: freely, and of more one for so many bytes.
	messagesFree    = 10000
	bytesForMessage = 8
	// No message of ours is in so many others.
	maxDepth = 32
)

type bounded struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (b bounded) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(proto.Message); ok && data.Len()/2 > messagesFree {
		whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer whole.Free()
		room := messagesFree + whole.Len()/bytesForMessage
		if countMessages(whole.ReadOnlyData(), m.ProtoReflect().Descriptor(), room, maxDepth) > room {
			return fmt.Errorf("more than %d messages in one of %d bytes", room, whole.Len())
		}
	}
	return b.CodecV2.Unmarshal(data, v)
}

// countMessages counts the messages in another one, up to `most` and one more. It ignores malformed ones; the decoder
// reports them.
func countMessages(text []byte, d protoreflect.MessageDescriptor, most, depth int) int {
	count := 1
	if depth == 0 {
		return count
	}
	fields := d.Fields()
	for len(text) > 0 && count <= most {
		number, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return count
		}
		text = text[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, text); n < 0 {
				return count
			}
			text = text[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(text)
		if n < 0 {
			return count
		}
		text = text[n:]
		if f := fields.ByNumber(number); f != nil && f.Message() != nil {
			count += countMessages(value, f.Message(), most-count, depth-1)
		} else if f != nil && f.IsList() {
			// Strings of a list: each is two words and more.
			count++
		}
	}
	return count
}
