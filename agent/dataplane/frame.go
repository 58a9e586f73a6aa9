// Package dataplane is the agent's end of api/dataplane.proto: one connection to one data plane, made again whenever it
// breaks.
package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

// MaxFrame is the longest frame, in bytes without its length, that either side may send.
const MaxFrame = 16 << 20

// ErrFrameTooLong says that a frame is, or claims to be, longer than MaxFrame.
var ErrFrameTooLong = errors.New("the frame is longer than 16 MiB")

// A buffer that has grown past this is not kept for the next frame.
const keptBuffer = 1 << 20

// readFrame returns the contents of the next frame; they are valid until the next call with the same buffer. io.EOF: the
// peer closed between frames.
//
// The buffer grows as bytes arrive: a length alone makes nobody allocate 16 MiB.
func readFrame(r io.Reader, buffer *bytes.Buffer) ([]byte, error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("reading a frame's length: %w", err)
		}
		return nil, err
	}
	length := binary.BigEndian.Uint32(header[:])
	if length > MaxFrame {
		return nil, fmt.Errorf("%w: it says %d bytes", ErrFrameTooLong, length)
	}
	if buffer.Cap() > keptBuffer {
		*buffer = bytes.Buffer{}
	}
	buffer.Reset()
	if n, err := io.CopyN(buffer, r, int64(length)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("reading a frame of %d bytes: %w after %d", length, err, n)
	}
	return buffer.Bytes(), nil
}

// appendFrame appends m, framed.
func appendFrame(to []byte, m proto.Message) ([]byte, error) {
	start := len(to)
	to = append(to, 0, 0, 0, 0)
	to, err := proto.MarshalOptions{}.MarshalAppend(to, m)
	if err != nil {
		return nil, fmt.Errorf("packing a frame: %w", err)
	}
	length := len(to) - start - 4
	if length > MaxFrame {
		return nil, fmt.Errorf("%w: it would have %d bytes", ErrFrameTooLong, length)
	}
	binary.BigEndian.PutUint32(to[start:], uint32(length))
	return to, nil
}
