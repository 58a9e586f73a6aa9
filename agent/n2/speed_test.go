// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/ngap"
)

// sink is an association that takes every message.
type sink struct{ octets int }

func (s *sink) Send(_ uint16, _ uint32, message []byte) error {
	s.octets += len(message)
	return nil
}

func (*sink) Abort() {}
func (*sink) Renew() {}
func (*sink) Close() {}

// crowd counts the messages of a subscriber.
type crowd struct{ messages int }

func (c *crowd) Receive(any) { c.messages++ }
func (c *crowd) Lost(string) {}

// NAS in both directions, of 10,000 subscribers in turn: an operation is a DOWNLINK NAS TRANSPORT from its octets to the subscriber, and an UPLINK NAS TRANSPORT
// to its octets.
func BenchmarkMessages(b *testing.B) {
	const subscribers = 10_000
	bed, out := readyBed(b, "one"), &sink{}
	a := bed.amfs["one"]
	in := a.assoc.(*wire).handler
	a.assoc = out
	var down [][]byte
	var contexts []*Context
	counts := &crowd{}
	pdu := make([]byte, 60)
	for i := range subscribers {
		c, err := bed.Open("agf", &api.Slice{Sst: 1}, nil, counts)
		if err != nil {
			b.Fatal(err)
		}
		_, ran := c.IDs()
		octets, err := ngap.Encode(&ngap.DownlinkNASTransport{AMFUENGAPID: ngap.AMFUENGAPID(i), RANUENGAPID: ran, NASPDU: pdu})
		if err != nil {
			b.Fatal(err)
		}
		contexts, down = append(contexts, c), append(down, octets)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		in.Message(1, payloadProtocol, down[i%subscribers])
		c := contexts[i%subscribers]
		amf, ran := c.IDs()
		c.Send(&ngap.UplinkNASTransport{AMFUENGAPID: amf, RANUENGAPID: ran, NASPDU: pdu})
	}
	b.StopTimer()
	if counts.messages != b.N {
		b.Fatalf("%d of %d messages arrived", counts.messages, b.N)
	}
	b.ReportMetric(2*float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
