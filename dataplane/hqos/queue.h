// SPDX-License-Identifier: Apache-2.0
// Packets that wait: their buffers' numbers, lengths and times in chunks of one cache line. A dequeue does not read the packet itself,
// and sees six packets at the price of one miss. A subscriber's first few packets are together in up to three
// chunks, in the order in which they came, and a word has the places of each class: its lowest bit is the next packet. With one more packet,
// each class of the subscriber has a list of chunks of its own.
#pragma once

#include "hqos/scheduler.h"

enum { QUEUE_CHUNK_PACKETS = 6, FEW_CHUNKS = 3 };

struct queue_chunk {
	uint32_t next; // or, of a few, the one before
	uint32_t numbers[QUEUE_CHUNK_PACKETS];
	uint32_t arrived[QUEUE_CHUNK_PACKETS]; // in units of CODEL_SHIFT
	uint16_t lengths[QUEUE_CHUNK_PACKETS];
};

static_assert(sizeof(struct queue_chunk) == sizeof(struct chunk), "both kinds of chunks are taken from one place");

struct queued {
	struct rte_mbuf *m;
	uint32_t arrived;
	uint16_t length;
};

static inline struct rte_mbuf *
buffer_of(const struct hqos_scheduler *s, uint32_t number)
{
	return (struct rte_mbuf *)(s->buffers + ((uintptr_t)number << 6));
}

static inline struct queue_chunk *
queue_chunk_at(const struct hqos_scheduler *s, uint32_t index)
{
	return (struct queue_chunk *)(void *)&s->chunks.all[index];
}

static inline uint32_t
number_of(const struct hqos_scheduler *s, const struct rte_mbuf *m)
{
	return (uint32_t)(((uintptr_t)m - s->buffers) >> 6);
}

static inline void
queue_append(struct hqos_scheduler *s, struct hqos_subscriber *sub, unsigned class, uint32_t number, uint16_t length,
	uint32_t arrived)
{
	struct hqos_queue *queue = &sub->queues[class];
	unsigned end = sub->ends[class] >> 4, first = sub->ends[class] & 15;
	struct queue_chunk *chunk;

	if (queue->count++ == 0) {
		queue->first = queue->last = chunk_take(&s->chunks);
		first = end = 0;
		sub->backlog |= (uint8_t)(1u << class);
	} else if (end == QUEUE_CHUNK_PACKETS) {
		uint32_t more = chunk_take(&s->chunks);

		queue_chunk_at(s, queue->last)->next = more;
		queue->last = more;
		end = 0;
	}
	chunk = queue_chunk_at(s, queue->last);
	chunk->numbers[end] = number;
	chunk->arrived[end] = arrived;
	chunk->lengths[end] = length;
	sub->ends[class] = (uint8_t)(first | (end + 1) << 4);
}

// The chunks of a subscriber with few packets, and the number of chunks in use before the last.
static inline void
short_queue_chunks(
	const struct hqos_scheduler *s, const struct hqos_subscriber *sub, struct queue_chunk *chunks[FEW_CHUNKS])
{
	unsigned before = ((sub->filled - 1u) & 15) / QUEUE_CHUNK_PACKETS;
	struct queue_chunk *last = queue_chunk_at(s, sub->chunk);
	uint32_t index = before > 0 ? last->next : sub->chunk;
	struct queue_chunk *middle = queue_chunk_at(s, index);

	chunks[0] = queue_chunk_at(s, before > 1 ? middle->next : index);
	chunks[1] = before > 1 ? middle : last;
	chunks[2] = last;
}

// Half as many classes with twice as many places and bits each, or the other way round. There must be no few.
void short_queue_change_width(struct hqos_subscriber *sub);

// Packets of the few that are counted for each class before its queue counts them, less one: the bits below the highest.
static inline uint32_t
short_queue_max_counted(const struct hqos_subscriber *sub)
{
	return sub->flags & HQOS_NARROW ? 0x7 : 0x7f;
}

// A queue counts packets of the few. Stored before they are gone from the subscriber's `sent`.
static inline void
queue_counts(struct hqos_queue *queue, uint32_t packets)
{
	__atomic_store_n(&queue->sent, (queue->sent + 2 * packets) ^ 1, __ATOMIC_RELEASE);
}

// There are no more of them: the chunks hang together already.
static inline void
short_queue_free(struct hqos_scheduler *s, struct hqos_subscriber *sub, struct queue_chunk *first)
{
	first->next = s->chunks.free;
	s->chunks.free = sub->chunk;
	sub->flags &= (uint8_t)~HQOS_FEW;
}

// One more of a few. False: it does not fit in.
static inline bool
short_queue_append(struct hqos_scheduler *s, struct hqos_subscriber *sub, const struct hqos_profile *profile,
	unsigned class, uint32_t number, uint16_t length, uint32_t arrived)
{
	struct queue_chunk *chunk;
	unsigned at = sub->filled, in = at % QUEUE_CHUNK_PACKETS;

	// The profile may have become another.
	if (unlikely(!(sub->flags & HQOS_NARROW) == profile->narrow)) {
		if (sub->backlog != 0)
			return false;
		short_queue_change_width(sub);
	}
	if (sub->backlog == 0) {
		sub->chunk = chunk_take(&s->chunks);
		sub->places = 0;
		sub->flags |= HQOS_FEW;
		at = in = 0;
	} else if (at == (sub->flags & HQOS_NARROW ? 8 : 0)) {
		return false;
	} else if (in == 0) {
		uint32_t more = chunk_take(&s->chunks);

		queue_chunk_at(s, more)->next = sub->chunk;
		sub->chunk = more;
	}
	sub->filled = (at + 1) & 15;
	chunk = queue_chunk_at(s, sub->chunk);
	chunk->numbers[in] = number;
	chunk->arrived[in] = arrived;
	chunk->lengths[in] = length;
	sub->places |= 1ull << ((class << hqos_width(sub)) + at);
	sub->backlog |= (uint8_t)(1u << class);
	return true;
}

// Packets that are out: the buffers that they hold beside the first of each.
void hqos_took_out(struct hqos_scheduler *s, struct rte_mbuf *const *packets, unsigned count);

// A few are many, or something is to be done that only queues know: each class gets its own.
void queue_spread(struct hqos_scheduler *s, struct hqos_subscriber *sub);

static inline void
frames_sent(struct hqos_scheduler *s, struct hqos_group *g, uint32_t packets, uint64_t bytes)
{
	s->counters.sent_packets += packets;
	s->counters.sent_bytes += bytes;
	g->counters.sent_packets += packets;
	g->counters.sent_bytes += bytes;
}

static inline void
group_dropped(struct hqos_group *g, uint32_t bytes)
{
	g->counters.dropped_packets++;
	g->counters.dropped_bytes += bytes;
}

// The class must have a packet in its own queue.
static inline struct queued
queue_take(struct hqos_scheduler *s, struct hqos_subscriber *sub, unsigned class)
{
	struct hqos_queue *queue = &sub->queues[class];
	uint32_t index = queue->first;
	struct queue_chunk *chunk = queue_chunk_at(s, index);
	unsigned at = sub->ends[class] & 15;
	struct queued taken = {buffer_of(s, chunk->numbers[at]), chunk->arrived[at], chunk->lengths[at]};

	s->packets--;
	sub->ends[class]++;
	if (--queue->count == 0) {
		chunk_give(&s->chunks, index);
		sub->backlog &= (uint8_t) ~(1u << class);
		queue->credit = RTE_MIN(queue->credit, 0);
		if (sub->backlog != 0)
			rte_prefetch0(queue_chunk_at(s, sub->queues[__builtin_ctz(sub->backlog)].first));
	} else if (at + 1 == QUEUE_CHUNK_PACKETS) {
		queue->first = chunk->next;
		sub->ends[class] &= 0xf0;
		chunk_give(&s->chunks, index);
		rte_prefetch0(queue_chunk_at(s, queue->first));
	}
	return taken;
}
