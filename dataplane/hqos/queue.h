// The packets of a class: their buffers' numbers, lengths and times in chunks of one cache line. Who takes a packet out reads
// nothing of the packet itself, and sees six packets at the price of one miss.
#pragma once

#include "hqos/scheduler.h"

enum { QUEUE_CHUNK_PACKETS = 6 };

struct queue_chunk {
	uint32_t next;
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

static inline void
queue_append(
	struct hqos_scheduler *s, struct hqos_subscriber *sub, unsigned class, struct rte_mbuf *m, uint32_t arrived)
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
	chunk->numbers[end] = (uint32_t)(((uintptr_t)m - s->buffers) >> 6);
	chunk->arrived[end] = arrived;
	chunk->lengths[end] = (uint16_t)RTE_MIN(m->pkt_len, (uint32_t)HQOS_FRAME_MOST);
	sub->ends[class] = (uint8_t)(first | (end + 1) << 4);
	s->packets++;
}

// The class must have a packet.
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
