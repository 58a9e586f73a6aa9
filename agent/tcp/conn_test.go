// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

var (
	us   = netip.MustParseAddrPort("10.200.0.1:20000")
	them = netip.MustParseAddrPort("10.201.0.7:40000")
	noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func opened(t *testing.T) *Conn {
	t.Helper()
	c, send := Accept(Segment{Source: them, Destination: us, Sequence: 99, Flags: SYN, Window: 60000, MSS: 1000}, 4294967290, noon)
	if len(send) != 1 || send[0].Flags != SYN|ACK || send[0].Ack != 100 || send[0].MSS == 0 {
		t.Fatalf("answer to a SYN: %+v", send)
	}
	if _, send = c.Receive(peer(100, 4294967291, ACK, nil), noon); len(send) != 0 || !c.Established() {
		t.Fatalf("established %v, %+v", c.Established(), send)
	}
	return c
}

func peer(sequence, ack uint32, flags uint8, payload []byte) Segment {
	return Segment{Source: them, Destination: us, Sequence: sequence, Ack: ack, Flags: flags, Window: 60000, Payload: payload}
}

func TestAPacketIsReadAsItWasWritten(t *testing.T) {
	for _, ends := range [][2]string{{"10.0.0.1:1", "10.0.0.2:2"}, {"[2001:db8::1]:1", "[2001:db8::2]:2"}} {
		s := Segment{Source: netip.MustParseAddrPort(ends[0]), Destination: netip.MustParseAddrPort(ends[1]), Sequence: 7, Ack: 8, Flags: SYN | ACK, Window: 9, MSS: 1000, Payload: []byte("odd")}
		b := s.Packet()
		got, ok := Parse(b)
		if !ok || got.Source != s.Source || got.Destination != s.Destination || got.Sequence != 7 || got.Ack != 8 || got.Flags != s.Flags || got.Window != 9 || got.MSS != 1000 || string(got.Payload) != "odd" {
			t.Errorf("%+v", got)
		}
		for n := range b {
			if _, ok := Parse(b[:n]); ok {
				t.Errorf("%d of %d bytes are read", n, len(b))
			}
		}
	}
}

func TestDataIsTakenInOrderOnce(t *testing.T) {
	c := opened(t)
	for _, step := range []struct {
		sequence uint32
		payload  string
		data     string
	}{{105, "later", ""}, {100, "hello", "hello"}, {100, "hello", ""}, {102, "llo you", " you"}, {90, "old", ""}} {
		data, send := c.Receive(peer(step.sequence, 4294967291, ACK, []byte(step.payload)), noon)
		if string(data) != step.data || len(send) != 1 || send[0].Flags != ACK {
			t.Errorf("%+v: %q, %+v", step, data, send)
		}
	}
}

func TestUnacknowledgedDataIsSentAgainAndThenTheConnectionFails(t *testing.T) {
	c := opened(t)
	if send := c.Send([]byte("message"), noon); len(send) != 1 || string(send[0].Payload) != "message" {
		t.Fatalf("%+v", send)
	}
	now := noon
	for n := 1; c.Err() == nil; n++ {
		now = c.Due()
		send := c.Tick(now)
		if len(send) != 1 || c.Err() == nil && string(send[0].Payload) != "message" || n > maxTries+1 {
			t.Fatalf("%d: %+v", n, send)
		}
	}
	if c.Err() != ErrTimeout || now.Sub(noon) < 10*time.Second || c.Unacknowledged() != len("message") {
		t.Errorf("%v after %v, %d bytes unacknowledged", c.Err(), now.Sub(noon), c.Unacknowledged())
	}
}

func TestAResetEndsItOnlyWithTheExactNumber(t *testing.T) {
	c := opened(t)
	if _, send := c.Receive(peer(101, 0, RST, nil), noon); len(send) != 1 || c.Err() != nil {
		t.Errorf("%+v %v", send, c.Err())
	}
	if c.Receive(peer(100, 0, RST, nil), noon); c.Err() != ErrReset {
		t.Error(c.Err())
	}
}

func TestAFINIsAnsweredByOurs(t *testing.T) {
	c := opened(t)
	data, send := c.Receive(peer(100, 4294967291, FIN|ACK, []byte("bye")), noon)
	if string(data) != "bye" || len(send) != 1 || send[0].Flags != FIN|ACK || send[0].Ack != 104 || c.Err() != ErrClosed {
		t.Fatalf("%q %+v %v", data, send, c.Err())
	}
	c.Receive(peer(104, send[0].Sequence+1, ACK, nil), noon)
	if c.state != over {
		t.Error("it is not over")
	}
}

func TestAClosedWindowIsRespectedAndAsked(t *testing.T) {
	c := opened(t)
	closed := peer(100, 4294967291, ACK, nil)
	closed.Window = 0
	c.Receive(closed, noon)
	if send := c.Send([]byte("wait"), noon); len(send) != 0 {
		t.Fatalf("%+v", send)
	}
	if send := c.Tick(c.Due()); len(send) != 1 || string(send[0].Payload) != "w" {
		t.Fatalf("%+v", send)
	}
	if _, send := c.Receive(peer(100, 4294967292, ACK, nil), noon); len(send) != 1 || string(send[0].Payload) != "ait" {
		t.Errorf("%+v", send)
	}
}

// A lossy network between the connection and a simple peer.
func TestAllArrivesThroughLossAndDisorder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := opened(t)
	message := bytes.Repeat([]byte("0123456789abcdef"), 4000)
	var got []byte
	expect, now := uint32(4294967291), noon
	var wire []Segment
	wire = append(wire, c.Send(message, now)...)
	for round := 0; len(got) < len(message); round++ {
		if round > 100000 || c.Err() != nil {
			t.Fatalf("%d of %d bytes after %d rounds: %v", len(got), len(message), round, c.Err())
		}
		if len(wire) == 0 {
			now = c.Due()
			wire = c.Tick(now)
			continue
		}
		at := random.IntN(min(len(wire), 3))
		s := wire[at]
		wire = append(wire[:at:at], wire[at+1:]...)
		if random.IntN(10) == 0 {
			continue
		}
		if skip := int(expect - s.Sequence); skip >= 0 && skip < len(s.Payload) {
			got = append(got, s.Payload[skip:]...)
			expect += uint32(len(s.Payload) - skip)
		}
		_, more := c.Receive(peer(100, expect, ACK, nil), now)
		wire = append(wire, more...)
	}
	if !bytes.Equal(got, message) {
		t.Error("other bytes arrive")
	}
}

func FuzzReceive(f *testing.F) {
	good := peer(100, 4294967291, ACK|PSH, []byte("hello"))
	f.Add(good.Packet())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, ok := Parse(b)
		if !ok {
			return
		}
		s.Source, s.Destination = them, us
		c, _ := Accept(Segment{Source: them, Destination: us, Sequence: 99, Flags: SYN, Window: 60000}, 7, noon)
		c.Receive(peer(100, 8, ACK, nil), noon)
		c.Send([]byte("waiting"), noon)
		for range 3 {
			c.Receive(s, noon)
			c.Tick(noon.Add(time.Hour))
			s.Sequence += uint32(len(s.Payload))
		}
	})
}

// The process of the connection dies again and again, after it has kept the State and before the segments are sent.
func TestAllArrivesOnceThroughConnectionsThatOtherProcessesGoOnWith(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	c := opened(t)
	now := noon
	message, toUs := bytes.Repeat([]byte("0123456789abcdef"), 400), bytes.Repeat([]byte("fedcba9876543210"), 400)
	var theirs, ours []byte
	expect, acknowledged := uint32(4294967291), uint32(100)
	queued := 0
	for round := 0; len(theirs) < len(message) || len(ours) < len(toUs); round++ {
		if round > 100000 || c.Err() != nil {
			t.Fatalf("%d and %d bytes after %d rounds: %v", len(theirs), len(ours), round, c.Err())
		}
		var wire []Segment
		switch random.IntN(3) {
		case 0:
			n := min(random.IntN(300), len(message)-queued)
			wire = c.Send(message[queued:queued+n], now)
			queued += n
		case 1:
			at := int(acknowledged - 100)
			n := min(random.IntN(300), len(toUs)-at)
			var data []byte
			data, wire = c.Receive(peer(acknowledged, expect, ACK, toUs[at:at+n]), now)
			ours = append(ours, data...)
		default:
			if due := c.Due(); !due.IsZero() {
				now = due
				wire = c.Tick(now)
			}
		}
		if random.IntN(4) == 0 {
			state, ok := c.State()
			if !ok {
				t.Fatal("it cannot go on")
			}
			c, wire = Restore(state, now), nil
		}
		for _, s := range wire {
			if skip := int(int32(expect - s.Sequence)); skip >= 0 && skip < len(s.Payload) {
				theirs = append(theirs, s.Payload[skip:]...)
				expect += uint32(len(s.Payload) - skip)
			}
			if before(acknowledged, s.Ack) {
				acknowledged = s.Ack
			}
		}
	}
	if !bytes.Equal(theirs, message) || !bytes.Equal(ours, toUs) {
		t.Error("other bytes arrive")
	}
}

func TestAConnectionThatIsNotEstablishedGoesOnInAnotherProcess(t *testing.T) {
	c, _ := Accept(Segment{Source: them, Destination: us, Sequence: 99, Flags: SYN, Window: 60000, MSS: 1000}, 4294967290, noon)
	state, ok := c.State()
	if !ok || state.Established {
		t.Fatalf("%+v %v", state, ok)
	}
	next := Restore(state, noon)
	if send := next.Tick(noon); len(send) != 1 || send[0].Flags != SYN|ACK || send[0].Sequence != 4294967290 || send[0].Ack != 100 {
		t.Fatalf("%+v", send)
	}
	if data, _ := next.Receive(peer(100, 4294967291, ACK, []byte("first")), noon); !next.Established() || string(data) != "first" {
		t.Errorf("established %v, %q", next.Established(), data)
	}
	next.Close()
	if _, ok := next.State(); ok {
		t.Error("another process would go on with a connection that is being closed")
	}
}
