// SPDX-License-Identifier: Apache-2.0
// Lists of ids in chunks of one cache line. A reader of a list sees fourteen ids ahead at the price of one miss, and can fetch
// their records before it needs them. A linked list through the records would show only one.
#pragma once

#include <stdint.h>

#include <rte_prefetch.h>

enum { CHUNK_IDS = 14, NO_CHUNK = UINT32_MAX, NO_ID = UINT32_MAX };

struct chunk {
	uint32_t next;
	uint32_t previous; // in a stack: the one below
	uint32_t ids[CHUNK_IDS];
} __attribute__((aligned(64)));

struct chunks {
	struct chunk *all;
	uint32_t free;
	uint32_t fresh; // those from here on were never taken: their memory need not be there yet
};

static inline uint32_t
chunk_take(struct chunks *chunks)
{
	uint32_t taken = chunks->free;

	if (taken == NO_CHUNK)
		taken = chunks->fresh++;
	else
		chunks->free = chunks->all[taken].next;
	chunks->all[taken].next = NO_CHUNK;
	return taken;
}

static inline void
chunk_give(struct chunks *chunks, uint32_t index)
{
	chunks->all[index].next = chunks->free;
	chunks->free = index;
}

// First in, first out. Its first and its last chunk may be partly used, all others are full.
struct fifo {
	uint32_t first, last; // chunks; meaningless while it is empty
	uint32_t count;
	uint8_t first_id, last_id; // next to be taken, next to be filled
};

static inline void
fifo_push(struct fifo *fifo, struct chunks *chunks, uint32_t id)
{
	if (fifo->count++ == 0) {
		fifo->first = fifo->last = chunk_take(chunks);
		fifo->first_id = fifo->last_id = 0;
	} else if (fifo->last_id == CHUNK_IDS) {
		uint32_t more = chunk_take(chunks);

		chunks->all[fifo->last].next = more;
		fifo->last = more;
		fifo->last_id = 0;
	}
	chunks->all[fifo->last].ids[fifo->last_id++] = id;
}

// It must not be empty.
static inline uint32_t
fifo_pop(struct fifo *fifo, struct chunks *chunks)
{
	uint32_t index = fifo->first;
	struct chunk *chunk = &chunks->all[index];
	uint32_t id = chunk->ids[fifo->first_id++];

	if (--fifo->count == 0) {
		chunk_give(chunks, index);
	} else if (fifo->first_id == CHUNK_IDS) {
		fifo->first = chunk->next;
		fifo->first_id = 0;
		chunk_give(chunks, index);
		rte_prefetch0(&chunks->all[chunks->all[fifo->first].next == NO_CHUNK ? fifo->first
										     : chunks->all[fifo->first].next]);
	}
	return id;
}

// The id that will be taken after `ahead` others, or NO_ID if that is not known cheaply.
static inline uint32_t
fifo_peek(const struct fifo *fifo, const struct chunks *chunks, unsigned ahead)
{
	const struct chunk *chunk = &chunks->all[fifo->first];
	unsigned at = fifo->first_id + ahead;

	if (ahead >= fifo->count)
		return NO_ID;
	if (at < CHUNK_IDS)
		return chunk->ids[at];
	at -= CHUNK_IDS;
	return at < CHUNK_IDS ? chunks->all[chunk->next].ids[at] : NO_ID;
}
