// SPDX-License-Identifier: Apache-2.0

// RAN UE NGAP IDs come from blocks with a record on disk. An AMF may have a context with an identifier of which the agent has no record: the AMF's answer, or the record, was
// on its way when the agent died. After a restart the AMF releases contexts with such identifiers by NG RESET (TS 38.413 section 8.7.4).

package n2

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/durable"
	"sluice.dev/sluice/agent/ngap"
)

const (
	// Identifiers of a block.
	blockSize = 256
	blocks    = (math.MaxUint32 + 1) / blockSize
	// So many blocks have their record before they are needed.
	blocksAhead = 2
	blockPrefix = "block "
	// At most so many connections are in one NG RESET.
	resetSize = blockSize
)

// block of identifiers.
type block struct {
	number int64
	record durable.Pending
	// The next identifier.
	next int64
	// Those that an AMF may know, while no record of a context has them.
	open [blockSize / 64]uint64
}

func (b *block) unsettled() bool { return b.open != [blockSize / 64]uint64{} }

// identifiers hands out RAN UE NGAP IDs.
type identifiers struct {
	records *durable.Table // nil: no context outlives the agent
	// The first one is in use; the others are ready.
	ready []*block
	// All blocks of this process with a record, by number.
	made map[int64]*block
	// Blocks of before a restart.
	stale []int64
	last  int64
}

func (i *identifiers) taken(number int64) bool {
	return i.made[number] != nil || slices.Contains(i.stale, number)
}

// prepare writes the records of the next blocks.
func (i *identifiers) prepare() {
	for len(i.ready) <= blocksAhead {
		i.last = (i.last + 1) % blocks
		if i.taken(i.last) {
			continue
		}
		b := &block{number: i.last}
		if i.records != nil {
			b.record = i.records.Put(durable.Record{Key: blockKey(b.number), Value: []byte("{}")})
		}
		i.made[b.number] = b
		i.ready = append(i.ready, b)
	}
}

// take returns an identifier whose block has its record on disk.
func (i *identifiers) take(log *slog.Logger) int64 {
	i.prepare()
	b := i.ready[0]
	if b.next == 0 && i.records != nil {
		// The record was put when an earlier block began: this waits only if very many contexts begin at once.
		if err := b.record.Wait(); err != nil {
			// The log writes it before the next record. New subscribers do not wait for the disk.
			log.Warn("the disk refuses the record of RAN UE NGAP IDs: if the agent dies now, the AMF may keep contexts", "error", err)
		}
	}
	id := b.number*blockSize + b.next
	b.open[b.next/64] |= 1 << (b.next % 64)
	if b.next++; b.next == blockSize {
		i.ready = i.ready[1:]
		i.prepare()
	}
	return id
}

// settle: a record of a context has the identifier, or no AMF has it. A block that is used up needs no record then. The log keeps the order: the record of the context is on
// disk before that of the block is removed.
func (i *identifiers) settle(id int64) {
	b := i.made[id/blockSize]
	if b == nil {
		return
	}
	at := id % blockSize
	b.open[at/64] &^= 1 << (at % 64)
	if b.next == blockSize && !b.unsettled() {
		i.remove(b.number)
		delete(i.made, b.number)
	}
}

func (i *identifiers) remove(number int64) {
	if i.records != nil {
		i.records.Put(durable.Record{Key: blockKey(number)})
	}
}

func blockKey(number int64) string { return blockPrefix + strconv.FormatInt(number, 10) }

// load takes the record of a block of before a restart; false: the record is not of a block.
func (i *identifiers) load(key string) (bool, error) {
	text, is := strings.CutPrefix(key, blockPrefix)
	if !is {
		return false, nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 0 || number >= blocks {
		return true, fmt.Errorf("record %q of RAN UE NGAP IDs: malformed", key)
	}
	i.stale = append(i.stale, number)
	i.last = max(i.last, number)
	return true, nil
}

// ---- NG RESET

// sweepAll sends NG RESET for contexts that the AMF may have and the gateway has not.
func (s *Service) sweepAll(a *amf) {
	a.sweeps = nil
	var ids []int64
	for id, one := range a.closed {
		if !one.confirmed {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for part := range slices.Chunk(ids, resetSize) {
		s.sweep(a, part)
	}
	if !a.swept {
		for _, number := range s.ids.stale {
			part := make([]int64, 0, blockSize)
			for id := number * blockSize; id < (number+1)*blockSize; id++ {
				if a.ues[id] == nil {
					part = append(part, id)
				}
			}
			if len(part) > 0 {
				s.sweep(a, part)
			}
		}
	}
	if len(a.sweeps) == 0 {
		s.swept(a)
	}
}

func (s *Service) sweep(a *amf, ids []int64) {
	m := &ngap.NGReset{Cause: miscCause(ngap.CauseMiscUnspecified)}
	for _, id := range ids {
		ran := ngap.RANUENGAPID(id)
		m.ResetType.PartOfNGInterface = append(m.ResetType.PartOfNGInterface, ngap.UEAssociatedLogicalNGConnectionItem{RANUENGAPID: &ran})
	}
	a.sweeps = append(a.sweeps, ids)
	s.send(a, 0, m)
}

// resetDone takes NG RESET ACKNOWLEDGE: the AMF answers in order.
func (s *Service) resetDone(a *amf) {
	if len(a.sweeps) == 0 {
		return
	}
	for _, id := range a.sweeps[0] {
		s.reopen(a, id)
	}
	if a.sweeps = a.sweeps[1:]; len(a.sweeps) == 0 {
		s.swept(a)
	}
}

// erased: the AMF has no context of before.
func (s *Service) erased(a *amf) {
	a.sweeps = nil
	for id := range a.closed {
		s.reopen(a, id)
	}
	s.swept(a)
}

// swept: no AMF has a context of an earlier block when this is so of all.
func (s *Service) swept(a *amf) {
	a.swept = true
	s.forgetStale()
}

func (s *Service) forgetStale() {
	if !s.synced || len(s.ids.stale) == 0 {
		return
	}
	for _, a := range s.amfs {
		if !a.swept {
			return
		}
	}
	for _, number := range s.ids.stale {
		s.ids.remove(number)
	}
	s.ids.stale = nil
}

// remembered: the AMF may have contexts.
func (a *amf) remembered() bool { return len(a.ues) > 0 || len(a.closed) > 0 || !a.swept }

// reopen: the identifier of a context that was closed here may be used again.
func (s *Service) reopen(a *amf, id int64) {
	one, is := a.closed[id]
	if !is {
		return
	}
	delete(a.closed, id)
	s.ids.settle(id)
	if one.recorded {
		s.forget(id)
	}
}
