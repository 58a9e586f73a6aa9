// SPDX-License-Identifier: Apache-2.0
// Bursts from ordered queues, and the frames that leave of them.
#include "dispatch/order.h"

#include <rte_prefetch.h>

// The events that a worker took from the device and has not given back yet.
static struct taken {
	uint16_t count, given; // events; how many of them the device has back
	bool ready;            // each has its operation
	struct rte_event events[ORDER_MAX];
	// By place: the frames that leave, linked by order_next(), and the port where their originals came in.
	struct rte_mbuf *first[ORDER_MAX], *last[ORDER_MAX];
	uint16_t port[ORDER_MAX];
} __rte_cache_aligned bursts[WORKER_MAX + 1];

// A frame that leaves has no further steps: the eight bytes of its chain are the link to the next one.
static_assert(offsetof(struct packet, chain) == 0 && offsetof(struct packet, session) == sizeof(struct rte_mbuf *),
	"there is room for a link");

static inline struct rte_mbuf *
order_next(struct rte_mbuf *m)
{
	struct rte_mbuf *next;

	memcpy(&next, (const void *)packet_of(m), sizeof(next));
	return next;
}

static inline void
order_link(struct rte_mbuf *m, struct rte_mbuf *next)
{
	memcpy((void *)packet_of(m), &next, sizeof(next));
}

uint16_t
order_keep(struct rte_mbuf **frames, uint16_t count)
{
	struct taken *b = &bursts[worker_self()->index];
	uint16_t left = 0;

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = frames[i];
		struct packet *p = packet_of(m);
		unsigned place = p->order - 1u;

		if (place >= b->count || b->ready) {
			frames[left++] = m;
			continue;
		}
		p->order = 0;
		order_link(m, NULL);
		if (b->first[place])
			order_link(b->last[place], m);
		else
			b->first[place] = m;
		b->last[place] = m;
	}
	return left;
}

// Set the operation of each event.
static void
decide(const struct dispatch_device *d, struct taken *b)
{
	struct dispatched *counts = &dispatched[worker_self()->index];

	for (uint16_t i = 0; i < b->count; i++) {
		struct rte_event *e = &b->events[i];
		struct rte_mbuf *m = b->first[i];

		e->op = RTE_EVENT_OP_RELEASE;
		if (m) {
			e->op = RTE_EVENT_OP_FORWARD;
			e->sched_type = RTE_SCHED_TYPE_ATOMIC;
			e->queue_id = d->leaving;
			e->flow_id = d->keeps_flow ? e->flow_id : 0;
			e->mbuf = m;
			b->first[i] = NULL;
			// It comes out as that of the first frame, which may be of another port than the incoming
			// frame.
			counts->given[packet_of(m)->port % PORT_MAX]++;
		}
		if (b->port[i] != NO_PORT)
			counts->taken[b->port[i]]++;
	}
	b->ready = true;
}

// Whether the device has all events of the burst back. It takes the others in a later round.
static bool
give_back(const struct dispatch_device *d, struct taken *b)
{
	uint8_t port = (uint8_t)worker_self()->index;

	if (!b->ready)
		decide(d, b);
	while (b->given < b->count) {
		uint16_t some = RTE_MIN((uint16_t)(b->count - b->given), d->max_enqueue);
		uint16_t got = rte_event_enqueue_burst(d->id, port, b->events + b->given, some);

		if (got == 0)
			return false;
		b->given = (uint16_t)(b->given + got);
	}
	b->count = b->given = 0;
	b->ready = false;
	return true;
}

// All frames of an event that leave.
static void
leave(struct rte_mbuf *m, struct rte_graph *graph, struct rte_node *node, struct rte_mbuf **frames, uint16_t *count)
{
	for (struct rte_mbuf *next; m; m = next) {
		next = order_next(m);
		order_link(m, NULL);
		frames[(*count)++] = m;
		if (*count == BURST) {
			tx_send_all(graph, node, frames, *count);
			*count = 0;
		}
	}
}

uint16_t
order_take(const struct dispatch_device *d, struct rte_graph *graph, struct rte_node *node)
{
	struct worker *self = worker_self();
	struct taken *b = &bursts[self->index];
	struct dispatched *counts = &dispatched[self->index];
	struct rte_mbuf *frames[BURST];
	uint16_t leaving = 0, arriving = 0;

	if (b->count > 0 && !give_back(d, b))
		return 0;
	self->ordering = false;
	b->count = rte_event_dequeue_burst(d->id, (uint8_t)self->index, b->events, d->max_dequeue, 0);
	for (uint16_t i = 0; i < b->count; i++) {
		rte_prefetch0(b->events[i].mbuf);
		rte_prefetch0(packet_of(b->events[i].mbuf));
	}
	for (uint16_t i = 0; i < b->count; i++) {
		const struct rte_event *e = &b->events[i];
		struct rte_mbuf *m = e->mbuf;
		uint16_t port = packet_of(m)->port % PORT_MAX;

		b->port[i] = NO_PORT;
		if (e->queue_id == d->leaving) {
			counts->taken[port]++;
			leave(m, graph, node, frames, &leaving);
			continue;
		}
		rte_prefetch0(rte_pktmbuf_mtod(m, void *));
		if (e->queue_id == d->ordered) {
			b->port[i] = port;
			packet_of(m)->order = (uint8_t)(i + 1);
			self->ordering = true;
		} else {
			counts->taken[port]++;
		}
		node->objs[arriving++] = m;
	}
	if (leaving > 0)
		tx_send_all(graph, node, frames, leaving);
	if (arriving > 0) {
		node->idx = arriving;
		rte_node_next_stream_move(graph, node, node_arrival);
	}
	return b->count;
}
