// SPDX-License-Identifier: Apache-2.0

package radius

import (
	"reflect"
	"testing"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/subscriber"
)

// FuzzReply passes any packets to a client with a request under way. It accepts only signed ones, and the request is
// answered afterwards.
func FuzzReply(f *testing.F) {
	fresh := func(t testing.TB) (*bench, transmit) {
		b := newBench(t, 1, nil)
		b.ask()
		return b, b.last()
	}
	b, sent := fresh(f)
	f.Add(answerTo(sent, AccessAccept, nil))
	f.Add(answerTo(sent, CoAACK, attributes{typeFramedIPAddress, 6, 100, 64, 0, 7}))
	_ = b
	f.Fuzz(func(t *testing.T, bytes []byte) {
		b, sent := fresh(t)
		b.reply(sent, bytes)
		if len(b.results) == 0 {
			b.reply(sent, answerTo(sent, AccessReject, nil))
		}
		if len(b.results) != 1 || sent.endpoint.outstanding != 0 {
			t.Fatal(b.results, b.counts)
		}
	})
}

// FuzzAttributes reads any attributes, with any table.
func FuzzAttributes(f *testing.F) {
	f.Add([]byte("\x08\x06\x64\x40\x00\x07\x16\x0f192.0.2.0/24 "), uint8(8), uint8(10), "")
	f.Add(append([]byte{26, 23, 0, 0, 9, 0, 1, 17}, "ip:addr-pool=home"...), uint8(1), uint8(1), "ip:")
	f.Add(append([]byte{26, 15, 0, 0, 0x3a, 0x8c, 8, 9}, "10M/50M"...), uint8(26), uint8(5), "")
	f.Fuzz(func(t *testing.T, all []byte, kind, field uint8, prefix string) {
		p, err := parse(packet(append(make([]byte, headLength), all...)).withLength())
		if err != nil {
			return
		}
		g, err := grantOf(p.attributes(), []*api.RadiusMapping{{Vendor: vendorCisco, Type: uint32(kind), Prefix: prefix, Grant: api.GrantField(field), Scale: 1000}})
		if err != nil {
			return
		}
		if len(g.Routes) > mostRoutes || len(g.Announced) > mostAnnounced || len(g.DNS) > mostDNS || len(g.IPv4Pools) > mostPools || g.RateUp.BitsPerSecond > maxRate*1000 {
			t.Fatal("a grant beyond bounds", g)
		}
		for _, r := range g.Routes {
			if r != r.Masked() {
				t.Fatal(r)
			}
		}
	})
}

// FuzzRecord reads any record of the spool.
func FuzzRecord(f *testing.F) {
	f.Add((&record{policy: "home", session: "a", kind: subscriber.Stop, at: began}).encode(attributes{typeAcctSessionID, 3, 'a'}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, all, err := decodeRecord("a/1", b)
		if err != nil {
			return
		}
		if again, rest, err := decodeRecord("a/1", r.encode(all)); err != nil || !reflect.DeepEqual(again, r) || string(rest) != string(all) {
			t.Fatal(again, r, err)
		}
		if _, errs := newSpool(memory{"a/0000000000000001": b}); len(errs) > 0 {
			t.Fatal(errs)
		}
		w, ok := decodeWords(b)
		if again, same := decodeWords(w.encode()); ok && (!same || again != w) {
			t.Fatal(w)
		}
	})
}
