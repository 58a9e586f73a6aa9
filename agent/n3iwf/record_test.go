// SPDX-License-Identifier: Apache-2.0

package n3iwf

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"sluice.dev/sluice/agent/ike"
	"sluice.dev/sluice/agent/tcp"
)

var (
	gateway = netip.MustParseAddrPort("10.200.0.1:20000")
	phone   = netip.MustParseAddrPort("10.201.0.7:40000")
	noon    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func TestANASConnectionGoesOnFromItsRecordInTheMiddleOfMessages(t *testing.T) {
	conn, _ := tcp.Accept(tcp.Segment{Source: phone, Destination: gateway, Sequence: 99, Flags: tcp.SYN, Window: 60000, MSS: 1000}, 7, noon)
	conn.Receive(tcp.Segment{Source: phone, Destination: gateway, Sequence: 100, Ack: 8, Flags: tcp.ACK, Window: 60000}, noon)
	u := &ue{conn: conn}
	var all []byte
	for _, m := range [][]byte{[]byte("first"), []byte("second"), []byte("third")} {
		conn.Send(envelope(m), noon)
		u.sent = append(u.sent, m)
		all = append(all, envelope(m)...)
	}
	// The UE has the first message and a part of the second, and has sent a part of one.
	const has = 10
	data, _ := conn.Receive(tcp.Segment{Source: phone, Destination: gateway, Sequence: 100, Ack: 8 + has, Flags: tcp.ACK, Window: 60000, Payload: []byte{0, 5, 'a', 'b'}}, noon)
	if messages, err := u.reading.take(data); len(messages) != 0 || err != nil {
		t.Fatal(messages, err)
	}
	record, ok := u.nasRecord()
	if !ok {
		t.Fatal("there is nothing to go on with")
	}
	kept, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	var again nasRecord
	if err := json.Unmarshal(kept, &again); err != nil {
		t.Fatal(err)
	}
	next := &ue{sent: again.Sent}
	next.reconnect(&again, noon)
	if send := next.conn.Tick(noon); len(send) != 1 || !bytes.Equal(send[0].Payload, all[has:]) || send[0].Sequence != 8+has {
		t.Errorf("%+v", send)
	}
	data, _ = next.conn.Receive(tcp.Segment{Source: phone, Destination: gateway, Sequence: 104, Ack: uint32(8 + len(all)), Flags: tcp.ACK, Window: 60000, Payload: []byte("cde")}, noon)
	if messages, err := next.reading.take(data); len(messages) != 1 || string(messages[0]) != "abcde" || err != nil {
		t.Error(messages, err)
	}
	if next.acknowledge(); len(next.sent) != 0 {
		t.Errorf("%q", next.sent)
	}
	// One that is over: its messages wait for the next connection.
	u.conn.Close()
	record, _ = u.nasRecord()
	over := &ue{sent: record.Sent, waiting: record.Waiting}
	if over.reconnect(record, noon); over.conn != nil || len(over.waiting) != 2 || string(over.waiting[0]) != "second" {
		t.Errorf("%v %q", over.conn, over.waiting)
	}
}

func TestWhatIsLeftOfAUEIsFoundFromItsChildSAs(t *testing.T) {
	session := &pduSession{id: 1, children: []*childSA{{name: "pdu-1-1"}}}
	for _, c := range []struct {
		has         []string
		closing     bool
		lost        bool
		superfluous []string
	}{
		{[]string{signalling, "pdu-1-1"}, false, false, nil},
		{[]string{"pdu-1-1"}, true, false, nil},
		{[]string{signalling}, false, true, nil},
		{[]string{signalling, "pdu-1-1", "pdu-2-3"}, false, false, []string{"pdu-2-3"}},
	} {
		var children []ike.ChildState
		for _, name := range c.has {
			children = append(children, ike.ChildState{Name: name})
		}
		session.lost = time.Time{}
		u := &ue{sessions: map[uint8]*pduSession{1: session}}
		u.compare(children)
		if (u.closing != "") != c.closing || session.lost.IsZero() == c.lost || len(u.superfluous) != len(c.superfluous) {
			t.Errorf("%v: %q, lost %v, superfluous %v", c.has, u.closing, session.lost, u.superfluous)
		}
	}
}
