// SPDX-License-Identifier: Apache-2.0
// Prefetch of data before its turn comes.
#pragma once

#include <rte_common.h>
#include <rte_prefetch.h>

#include "hqos/queue.h"

enum {
	AHEAD_QUEUE = 8,   // entries of a queue ahead for which a subscriber's queues are fetched,
	AHEAD_PACKETS = 3, // and of their packets
};

static inline struct hqos_subscriber *
subscriber_at(const struct hqos_scheduler *s, uint32_t entry)
{
	return &s->subscribers[entry & (HQOS_SUBSCRIBERS - 1)];
}

// The data of an entry is fetched in steps, because each step has the address of the next. With the first entry of a chunk: the
// records of all in the chunk after the next, the last packets of those in the next, and the ones before of those in this one.
static inline void
look_at_chunk(const struct hqos_scheduler *s, const struct fifo *fifo)
{
	const struct chunk *chunk = &s->chunks.all[fifo->first];
	unsigned here = RTE_MIN(fifo->count, (uint32_t)CHUNK_IDS), left = fifo->count - here;

	for (unsigned i = 0; i < here; i++) {
		const struct hqos_subscriber *sub = subscriber_at(s, chunk->ids[i]);
		uint32_t before = queue_chunk_at(s, sub->chunk)->next;

		rte_prefetch0(queue_chunk_at(s, before == NO_CHUNK ? sub->chunk : before));
	}
	here = RTE_MIN(left, (unsigned)CHUNK_IDS);
	left -= here;
	if (here == 0)
		return;
	chunk = &s->chunks.all[chunk->next];
	for (unsigned i = 0; i < here; i++)
		rte_prefetch0(queue_chunk_at(s, subscriber_at(s, chunk->ids[i])->chunk));
	here = RTE_MIN(left, (unsigned)CHUNK_IDS);
	if (here == 0)
		return;
	chunk = &s->chunks.all[chunk->next];
	for (unsigned i = 0; i < here; i++)
		rte_prefetch0(subscriber_at(s, chunk->ids[i]));
}

// The queues of subscribers with many packets, in two steps.
static inline void
look_at_queues(const struct hqos_scheduler *s, const struct fifo *fifo)
{
	uint32_t entry = fifo_peek(fifo, &s->chunks, AHEAD_QUEUE);
	const struct hqos_subscriber *sub;

	if (entry != NO_ID) {
		sub = subscriber_at(s, entry);
		for (unsigned m = sub->flags & HQOS_FEW ? 0 : (sub->backlog | sub->backlog >> 1) & 0x55u; m != 0;
			m &= m - 1)
			rte_prefetch0(&sub->queues[__builtin_ctz(m)]);
	}
	entry = fifo_peek(fifo, &s->chunks, AHEAD_PACKETS);
	if (entry != NO_ID) {
		sub = subscriber_at(s, entry);
		for (unsigned m = sub->flags & HQOS_FEW ? 0 : sub->backlog; m != 0; m &= m - 1)
			rte_prefetch0(queue_chunk_at(s, sub->queues[__builtin_ctz(m)].first));
	}
}
