// SPDX-License-Identifier: Apache-2.0

package ike

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"
)

// everyRecord is the records of IKE SAs with all kinds of fields.
func everyRecord(t *testing.T) map[string][]byte {
	all := map[string][]byte{}
	for _, change := range []func(a, b *Connection){func(_, _ *Connection) {}, resumption, additional(t)} {
		p := newPair(t)
		p.configure(change)
		p.initiate()
		p.pass(time.Second)
		maps.Copy(all, p.a.records)
		maps.Copy(all, p.b.records)
		// A request that waits for its response.
		p.filter = func(*Datagram) bool { return false }
		actions, _ := p.a.m.Rekey("peer", "*", p.now)
		p.do(p.a, actions)
		p.run()
		maps.Copy(all, p.a.records)
		// An IKE SA that ends for its reauthentication.
		p.filter, p.wire = nil, nil
		p.pass(time.Minute)
		for _, s := range p.a.m.sas {
			s.reauthAt = p.now
			s.schedule()
		}
		p.do(p.a, p.a.m.Tick(p.now))
		p.run()
		maps.Copy(all, p.a.records)
		maps.Copy(all, p.b.records)
	}
	maps.DeleteFunc(all, func(key string, _ []byte) bool {
		return !strings.HasPrefix(key, saRecord) && !strings.HasPrefix(key, windowRecord)
	})
	return all
}

func stateOf(key string) interface{ code(c *coder) } {
	if strings.HasPrefix(key, windowRecord) {
		return &windowState{}
	}
	return &saState{}
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	all := everyRecord(t)
	if len(all) < 12 {
		t.Fatalf("%d records", len(all))
	}
	twins := 0
	for key, value := range all {
		read, read2 := stateOf(key), stateOf(key)
		if err := decode(value, read); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if again := encoded(read); !bytes.Equal(again, value) {
			t.Errorf("%s: %x is written again as %x", key, value, again)
		}
		// Records of earlier releases are JSON.
		text := kept(read)
		if err := decode(text, read2); err != nil || !reflect.DeepEqual(json.RawMessage(kept(read2)), json.RawMessage(text)) {
			t.Errorf("%s: %v: %s is read as %s", key, err, text, kept(read2))
		}
		twins += bytes.Count(value[:1], []byte{twinForm})
		if len(value) > 3*len(text)/4 {
			t.Errorf("%s: %d bytes, and %d of JSON", key, len(value), len(text))
		}
	}
	if twins == 0 {
		t.Error("no IKE SA ends for another one")
	}
}

func TestEveryTruncationOfARecordIsMalformed(t *testing.T) {
	for key, value := range everyRecord(t) {
		for n := range value {
			if decode(value[:n], stateOf(key)) == nil {
				t.Fatalf("%s: %d of %d bytes are a record", key, n, len(value))
			}
		}
		if decode(append(bytes.Clone(value), 0), stateOf(key)) == nil {
			t.Errorf("%s: a record with something behind it", key)
		}
	}
}

func TestAnAgentRestoresTheRecordsOfAnEarlierRelease(t *testing.T) {
	p := newPair(t)
	p.configure(resumption)
	p.initiate()
	p.pass(time.Second)
	for key, value := range p.a.records {
		if strings.HasPrefix(key, saRecord) || strings.HasPrefix(key, windowRecord) {
			state := stateOf(key)
			if err := decode(value, state); err != nil {
				t.Fatal(err)
			}
			p.a.records[key] = kept(state)
		}
	}
	p.restart(p.a, func(m *Machine) {
		c := p.connection(p.a, p.b, ikeSuite, espSuite)
		resumption(c, c)
		m.SetConnection("peer", c, p.now)
	})
	p.check(1)
	actions, _ := p.b.m.Rekey("peer", "*", p.now)
	p.do(p.b, actions)
	p.run()
	p.check(1)
}

// FuzzRecord reads anything as a record. A record that it reads is written, and read again as the same.
func FuzzRecord(f *testing.F) {
	for key, value := range everyRecord(&testing.T{}) {
		f.Add(value, strings.HasPrefix(key, windowRecord))
	}
	f.Fuzz(func(t *testing.T, b []byte, window bool) {
		key := saRecord
		if window {
			key = windowRecord
		}
		if len(b) > 0 && b[0] == '{' || decode(b, stateOf(key)) != nil {
			return
		}
		one, other := stateOf(key), stateOf(key)
		if decode(b, one) != nil || decode(encoded(one), other) != nil || !bytes.Equal(encoded(one), encoded(other)) {
			t.Fatalf("%x is read as %+v and then as %+v", b, one, other)
		}
	})
}

// FuzzRestore gives anything that can be read to a new agent as the records of an IKE SA. It takes them over or drops them, and goes on.
func FuzzRestore(f *testing.F) {
	all := everyRecord(&testing.T{})
	for key, value := range all {
		if spi, is := strings.CutPrefix(key, saRecord); is {
			f.Add(value, all[windowRecord+spi])
		}
	}
	f.Fuzz(func(t *testing.T, sa, window []byte) {
		p := newPair(t)
		c := p.connection(p.a, p.b, ikeSuite, espSuite)
		resumption(c, c)
		p.do(p.a, p.a.m.SetConnection("peer", c, p.now))
		spi := "0123456789abcdef"
		actions, count := p.a.m.Restore(map[string][]byte{saRecord + spi: sa, windowRecord + spi: window}, p.now)
		p.do(p.a, actions)
		if count == 0 && len(p.a.m.sas)+len(p.a.m.children)+len(p.a.in) != 0 {
			t.Fatal("something is left of a record that is not taken over")
		}
		for _, child := range []string{"*", ""} {
			actions, _ = p.a.m.Rekey("peer", child, p.now)
			p.do(p.a, actions)
		}
		// No peer answers.
		for range 20 {
			p.wire = nil
			p.now = p.now.Add(10 * time.Second)
			p.do(p.a, p.a.m.Tick(p.now))
		}
		actions, _ = p.a.m.Terminate("peer", "", p.now)
		p.do(p.a, actions)
	})
}
