// SPDX-License-Identifier: Apache-2.0

package n2

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/ngap"
)

// recordedBed has a ready AMF, and records.
func recordedBed(t *testing.T) (*bed, *durable.Table) {
	b, table := newBed(t), records(t)
	b.environment.Records = table
	if err := b.loadRecords(b.now); err != nil {
		t.Fatal(err)
	}
	b.add(t, "one")
	return b, table
}

// add makes an AMF ready that the configuration has.
func (b *bed) add(t *testing.T, name string) {
	t.Helper()
	b.amf(name, &api.Amf{Node: "agf", Addresses: []string{"192.0.2.1"}}, b.now)
	b.Synced()
	b.Tick(b.now)
	b.wireOf(name).handler.Up(8, 8)
	b.wireOf(name).receive(t, response(name, 0, 50))
}

// answered opens a context to which the AMF answers.
func (b *bed) answered(t *testing.T, amf string, u UE) *Context {
	t.Helper()
	c, err := b.Open("agf", nil, nil, u)
	if err != nil {
		t.Fatal(err)
	}
	b.wireOf(amf).receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: ngap.AMFUENGAPID(9000 + c.ranID), RANUENGAPID: ngap.RANUENGAPID(c.ranID), NASPDU: []byte{1}})
	return c
}

func keptAll() *ngap.NGSetupResponse {
	r, retained := response("amf", 0, 50), ngap.UERetentionInformationUesRetained
	r.UERetentionInformation = &retained
	return r
}

// resets are the identifiers of each NG RESET that was sent.
func (w *wire) resets() (all [][]int64) {
	for _, one := range w.sent {
		if m, ok := one.pdu.Value.(*ngap.NGReset); ok {
			var ids []int64
			for _, item := range m.ResetType.PartOfNGInterface {
				ids = append(ids, int64(*item.RANUENGAPID))
			}
			all = append(all, ids)
		}
	}
	return all
}

func blocksOf(table *durable.Table) (keys []string) {
	for _, r := range table.All() {
		if strings.HasPrefix(r.Key, blockPrefix) {
			keys = append(keys, r.Key)
		}
	}
	return keys
}

func TestContextsWithoutARecordAreResetAfterARestart(t *testing.T) {
	b, table := recordedBed(t)
	known := b.answered(t, "one", &owner{})
	// The AMF has both of these, and its answer did not come.
	first, err := b.Open("agf", nil, nil, &owner{})
	if err != nil {
		t.Fatal(err)
	}
	second, _ := b.Open("agf", nil, nil, &owner{})
	next := b.again(t, table)
	if next.Claim(known.ranID, &owner{}) == nil || next.Claim(first.ranID, &owner{}) != nil {
		t.Fatal("other contexts than those with a record")
	}
	w := next.wireOf("one")
	w.handler.Up(8, 8)
	w.receive(t, keptAll())
	var all []int64
	resets := w.resets()
	for _, ids := range resets {
		if len(ids) == 0 || len(ids) > resetSize {
			t.Errorf("a NG RESET of %d connections", len(ids))
		}
		all = append(all, ids...)
	}
	if !slices.Contains(all, first.ranID) || !slices.Contains(all, second.ranID) || slices.Contains(all, known.ranID) {
		t.Fatalf("%d connections are reset", len(all))
	}
	// Until the AMF has answered, no context gets an identifier of before.
	fresh, err := next.Open("agf", nil, nil, &owner{})
	if err != nil || slices.Contains(all, fresh.ranID) {
		t.Fatalf("%v %v", fresh.ranID, err)
	}
	before := len(blocksOf(table))
	for range resets {
		w.receive(t, &ngap.NGResetAcknowledge{})
	}
	if after := len(blocksOf(table)); after != blocksAhead+1 || before <= after {
		t.Errorf("%d blocks, before %d", after, before)
	}
	// The next restart has nothing to do with the first.
	w.receive(t, &ngap.DownlinkNASTransport{AMFUENGAPID: 1, RANUENGAPID: ngap.RANUENGAPID(fresh.ranID), NASPDU: []byte{1}})
	last := next.again(t, table)
	last.wireOf("one").handler.Up(8, 8)
	last.wireOf("one").receive(t, keptAll())
	for _, ids := range last.wireOf("one").resets() {
		if slices.Contains(ids, first.ranID) || slices.Contains(ids, known.ranID) || slices.Contains(ids, fresh.ranID) {
			t.Error(ids)
		}
	}
}

func TestAnAMFThatErasesContextsGetsNoReset(t *testing.T) {
	b, table := recordedBed(t)
	if _, err := b.Open("agf", nil, nil, &owner{}); err != nil {
		t.Fatal(err)
	}
	next := b.again(t, table)
	w := next.wireOf("one")
	w.handler.Up(8, 8)
	w.receive(t, response("amf", 0, 50))
	if len(w.resets()) != 0 || len(blocksOf(table)) != blocksAhead+1 {
		t.Errorf("%d resets, %d blocks", len(w.resets()), len(blocksOf(table)))
	}
}

func TestBlocksOfIdentifiersWhoseContextsHaveRecordsGo(t *testing.T) {
	b, table := recordedBed(t)
	var last *Context
	seen := map[int64]bool{}
	for range 4*blockSize + 1 {
		last = b.answered(t, "one", &owner{})
		if seen[last.ranID] {
			t.Fatalf("twice: %d", last.ranID)
		}
		seen[last.ranID] = true
	}
	if n := len(blocksOf(table)); n != blocksAhead+1 {
		t.Errorf("%d blocks", n)
	}
	// One that the AMF does not answer keeps its block, until it was closed long ago.
	silent, err := b.Open("agf", nil, nil, &owner{})
	if err != nil {
		t.Fatal(err)
	}
	for range blockSize {
		b.answered(t, "one", &owner{})
	}
	if n := len(blocksOf(table)); n != blocksAhead+2 {
		t.Errorf("%d blocks", n)
	}
	silent.Close()
	b.Tick(time.Now().Add(closedTime + time.Second))
	if n := len(blocksOf(table)); n != blocksAhead+1 {
		t.Errorf("%d blocks", n)
	}
}

func TestAContextThatWasClosedHereIsReleasedAfterARestart(t *testing.T) {
	b, table := recordedBed(t)
	c := b.answered(t, "one", &owner{})
	other := b.answered(t, "one", &owner{})
	// The message to the AMF may be lost with the agent.
	c.Release()
	next := b.again(t, table)
	if next.Claim(other.ranID, &owner{}) == nil {
		t.Fatal("the other context is gone")
	}
	w := next.wireOf("one")
	w.handler.Up(8, 8)
	w.receive(t, keptAll())
	next.Tick(next.now.Add(ownerTime + time.Second))
	m, ok := w.last().(*ngap.UEContextReleaseRequest)
	if !ok || int64(m.RANUENGAPID) != c.ranID {
		t.Fatalf("%+v", w.last())
	}
	w.receive(t, &ngap.UEContextReleaseCommand{Cause: miscCause(ngap.CauseMiscUnspecified), UENGAPIDs: ngap.UENGAPIDs{UENGAPIDPair: &ngap.UENGAPIDPair{AMFUENGAPID: m.AMFUENGAPID, RANUENGAPID: m.RANUENGAPID}}})
	if _, ok := w.last().(*ngap.UEContextReleaseComplete); !ok {
		t.Errorf("%+v", w.last())
	}
	for _, r := range table.All() {
		if r.Key == strconv.FormatInt(c.ranID, 10) {
			t.Error("the record is still there")
		}
	}
}

func TestContextsThatEndWhileTheAssociationIsLostAreReset(t *testing.T) {
	b, table := recordedBed(t)
	w := b.wireOf("one")
	kept := b.answered(t, "one", &owner{})
	// A UE that cannot wait, and one to which the AMF's answer is lost.
	impatient, unanswered := &ue{}, &owner{}
	first := b.answered(t, "one", impatient)
	second, err := b.Open("agf", nil, nil, unanswered)
	if err != nil {
		t.Fatal(err)
	}
	w.handler.Down("lost")
	if impatient.lost == "" || len(unanswered.lost) != 1 {
		t.Fatal("they wait")
	}
	b.Tick(time.Now().Add(time.Second))
	w = b.wireOf("one")
	w.handler.Up(8, 8)
	w.receive(t, keptAll())
	if resets := w.resets(); len(resets) != 1 || !slices.Equal(resets[0], []int64{first.ranID, second.ranID}) {
		t.Fatalf("%v", resets)
	}
	w.receive(t, &ngap.NGResetAcknowledge{})
	if len(b.amfs["one"].closed) != 0 || kept.gone {
		t.Errorf("%+v", b.amfs["one"].closed)
	}
	count := 0
	for _, r := range table.All() {
		if !strings.HasPrefix(r.Key, blockPrefix) {
			count++
		}
	}
	if count != 1 {
		t.Errorf("%d records of contexts", count)
	}
}
