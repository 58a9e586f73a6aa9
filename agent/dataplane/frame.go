// SPDX-License-Identifier: Apache-2.0

// Package dataplane is the agent's end of api/dataplane.proto: one connection to one data plane, made again whenever it
// breaks.
package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/protobuf/proto"
)

// MaxFrame is the longest frame, in bytes without its length, that either side may send.
const MaxFrame = 16 << 20

// ErrFrameTooLong: a frame is, or claims to be, longer than MaxFrame.
var ErrFrameTooLong = errors.New("the frame is longer than 16 MiB")

// A buffer that has grown past this is not kept for the next frame.
const keptBuffer = 1 << 20

// leastBuffer has room for most frames.
const leastBuffer = 4 << 10

// readFrame returns the contents of the next frame; they are valid until the next call with the same buffer. io.EOF: the
// peer closed between frames.
//
// The buffer grows as bytes arrive: a length alone does not allocate 16 MiB.
func readFrame(r io.Reader, buffer *bytes.Buffer) ([]byte, error) {
	if buffer.Cap() > keptBuffer {
		*buffer = bytes.Buffer{}
	}
	buffer.Reset()
	buffer.Grow(leastBuffer)
	header := buffer.AvailableBuffer()[:4]
	if _, err := io.ReadFull(r, header); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("reading a frame's length: %w", err)
		}
		return nil, err
	}
	length := binary.BigEndian.Uint32(header)
	if length > MaxFrame {
		return nil, fmt.Errorf("%w: it says %d bytes", ErrFrameTooLong, length)
	}
	if contents := buffer.AvailableBuffer(); int(length) <= cap(contents) {
		contents = contents[:length]
		n, err := io.ReadFull(r, contents)
		return contents, unfinished(err, length, int64(n))
	}
	n, err := io.CopyN(buffer, r, int64(length))
	return buffer.Bytes(), unfinished(err, length, n)
}

// unfinished describes an error that ends a frame before its last byte.
func unfinished(err error, length uint32, n int64) error {
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("reading a frame of %d bytes: %w after %d", length, err, n)
	}
	return nil
}

// timed reads a socket. A frame that has begun and does not go on holds memory: each part of it comes in time, or reading fails.
type timed struct {
	socket   net.Conn
	patience time.Duration
	within   bool
	// A time is set, until which so many bytes may come.
	set  bool
	left int
	// Called before each read of the socket; nil: nothing is.
	before func()
}

// timedPart is how much of a frame comes within the patience.
const timedPart = 1 << 20

func (t *timed) begin() { t.within = true }

// end is called after a frame was read, and returns the error to report.
func (t *timed) end(err error) error {
	t.within = false
	if t.set {
		t.set, t.left = false, 0
		if err == nil {
			err = t.socket.SetReadDeadline(time.Time{})
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("part of a frame came, and not the rest in %v", t.patience)
	}
	return err
}

// Read implements io.Reader.
func (t *timed) Read(b []byte) (int, error) {
	if t.before != nil {
		t.before()
	}
	if t.within && (!t.set || t.left <= 0) {
		if err := t.socket.SetReadDeadline(time.Now().Add(t.patience)); err != nil {
			return 0, err
		}
		t.set, t.left = true, timedPart
	}
	n, err := t.socket.Read(b)
	t.left -= n
	return n, err
}

// appendFrame appends m, framed.
func appendFrame(to []byte, m proto.Message) ([]byte, error) {
	start := len(to)
	to, err := proto.MarshalOptions{}.MarshalAppend(append(to, 0, 0, 0, 0), m)
	if err != nil {
		return nil, fmt.Errorf("packing a frame: %w", err)
	}
	return endFrame(to, start)
}

// endFrame sets the length of the frame that begins at start with four bytes for it.
func endFrame(to []byte, start int) ([]byte, error) {
	length := len(to) - start - 4
	if length > MaxFrame {
		return nil, fmt.Errorf("%w: it would have %d bytes", ErrFrameTooLong, length)
	}
	binary.BigEndian.PutUint32(to[start:], uint32(length))
	return to, nil
}
