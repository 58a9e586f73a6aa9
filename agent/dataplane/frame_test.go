// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/protobuf/proto"

	"sluice.dev/sluice/agent/api"
)

func frameOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	frame, err := appendFrame(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestAFrameIsReadAsItWasWritten(t *testing.T) {
	greeting := &api.Reply{Id: 7, Answer: &api.Reply_Greeting{Greeting: &api.Greeting{Release: "1"}}}
	r := iotest.OneByteReader(bytes.NewReader(append(frameOf(t, greeting), frameOf(t, &api.Reply{})...)))
	var buffer bytes.Buffer
	contents, err := readFrame(r, &buffer)
	if err != nil {
		t.Fatal(err)
	}
	got := &api.Reply{}
	if err := proto.Unmarshal(contents, got); err != nil || !proto.Equal(got, greeting) {
		t.Fatalf("got %v, %v", got, err)
	}
	if contents, err := readFrame(r, &buffer); err != nil || len(contents) != 0 {
		t.Fatalf("an empty frame: got %v, %v", contents, err)
	}
	if _, err := readFrame(r, &buffer); err != io.EOF {
		t.Fatalf("at the end: got %v, want io.EOF", err)
	}
}

func TestAFrameThatClaimsMoreThan16MiBIsRefusedUnread(t *testing.T) {
	var buffer bytes.Buffer
	_, err := readFrame(bytes.NewReader([]byte{1, 0, 0, 1}), &buffer)
	if !errors.Is(err, ErrFrameTooLong) || buffer.Cap() > leastBuffer {
		t.Fatalf("got %v, and a buffer of %d", err, buffer.Cap())
	}
}

func TestALengthAloneAllocatesLittle(t *testing.T) {
	var buffer bytes.Buffer
	_, err := readFrame(bytes.NewReader([]byte{1, 0, 0, 0, 9}), &buffer)
	if !errors.Is(err, io.ErrUnexpectedEOF) || buffer.Cap() > 64<<10 {
		t.Fatalf("got %v, and a buffer of %d", err, buffer.Cap())
	}
}

func TestEveryTruncationOfAFrameIsAnError(t *testing.T) {
	frame := frameOf(t, &api.Reply{Id: 1, Result: &api.Result{Code: 2, Message: "gone"}})
	for n := 1; n < len(frame); n++ {
		var buffer bytes.Buffer
		if _, err := readFrame(bytes.NewReader(frame[:n]), &buffer); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v", n, len(frame), err)
		}
	}
}

// For any bytes of a peer, every call on the connection ends, and nothing panics.
func FuzzAnyBytesFromThePeerEndInAReplyOrAnError(f *testing.F) {
	f.Add(frameOf(f, &api.Reply{Id: 1, Last: true, Answer: &api.Reply_Greeting{Greeting: &api.Greeting{Version: Version}}}))
	f.Add(append(frameOf(f, &api.Reply{Id: 1, Answer: &api.Reply_Greeting{Greeting: &api.Greeting{Version: Version}}}),
		frameOf(f, &api.Reply{Id: 2, Last: true, Answer: &api.Reply_Traced{Traced: &api.TracedPacket{End: "x"}}})...))
	f.Add(frameOf(f, &api.Reply{Id: 1, Result: &api.Result{Code: -2147483648, Message: "?"}}))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 2, 8, 1})
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			_, _ = theirs.Write(sent)
			theirs.Close()
		}()
		c, err := handshake(t.Context(), ours, &api.Hello{Version: Version, Name: "test"}, time.Minute)
		if err == nil {
			s, err := c.stream(t.Context(), &api.Request{Operation: &api.Request_Trace{Trace: &api.Trace{}}}, &call{replies: make(chan *api.Reply, streamDepth)})
			for err == nil {
				_, err = s.Next(t.Context())
			}
			if err := Refused(&api.Result{Code: 1}); err == nil {
				t.Error("a refusal is no error")
			}
			c.close(errors.New("over"))
			<-c.reader
		}
		ours.Close()
		<-done
	})
}
