// SPDX-License-Identifier: Apache-2.0
// The nodes that give a port's frames to the event device and take them from it.
//
// A worker that receives enqueues each frame by its flow. Every worker dequeues its own frames, and finishes them before it
// dequeues again, which releases them in the device. So frames of one flow are never at two
// workers (atomic), and are sent in order; or they are at any worker (ordered), and are put in order
// again before they are sent.
#include "dispatch/dispatch.h"

#include <stdatomic.h>

#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/rcu.h"
#include "core/worker.h"
#include "dispatch/event.h"
#include "dispatch/flow.h"
#include "dispatch/order.h"
#include "port.pb-c.h"
#include "port/port.h"

DROP(drop_dispatch_full, "dispatch-full", "The workers did not take the event device's packets fast enough.")

enum { FLOW_BITS = 20, DRAIN_MIN = 100000000 /* ns */ };

// By port: where its frames go.
static _Atomic struct dispatch_queue queues[PORT_MAX];

struct dispatched dispatched[WORKER_MAX + 1];

// How many of these frames the device has taken: the first ones.
static inline uint16_t
enqueue(const struct dispatch_device *d, const struct rte_event *events, uint16_t count)
{
	uint8_t port = (uint8_t)worker_self()->index;
	uint16_t given = 0, got;

	do {
		uint16_t some = RTE_MIN((uint16_t)(count - given), d->max_enqueue);

		got = rte_event_enqueue_new_burst(d->id, port, events + given, some);
		given = (uint16_t)(given + got);
	} while (got > 0 && given < count);
	return given;
}

// Frames for one of the devices. Frames that it does not take are dropped.
static void
give_device(
	struct rte_graph *graph, struct rte_node *node, unsigned device, const struct rte_event *events, uint16_t count)
{
	const struct dispatch_device *d = atomic_load_explicit(&dispatch_devices[device], memory_order_acquire);
	uint16_t given = enqueue(d, events, count);

	for (uint16_t i = given; i < count; i++) {
		struct packet *p = packet_of(events[i].mbuf);

		dispatched[worker_self()->index].given[p->port % PORT_MAX]--;
		rte_node_enqueue_x1(graph, node, packet_drop(p, &drop_dispatch_full), events[i].mbuf);
	}
}

static void
give(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct dispatched *counts = &dispatched[worker_self()->index];
	const uint8_t behind = (uint8_t)((worker_self()->index + 1) % worker_count);
	struct rte_event events[DISPATCH_DEVICES][BURST];
	uint16_t counted[DISPATCH_DEVICES] = {0};

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		const struct dispatch_queue queue =
			atomic_load_explicit(&queues[packet_of(m)->port % PORT_MAX], memory_order_acquire);
		uint64_t flow = flow_of_frame(rte_pktmbuf_mtod(m, const uint8_t *), m->data_len);

		events[queue.device][counted[queue.device]++] = (struct rte_event){
			.flow_id = (uint32_t)(flow >> (64 - FLOW_BITS)) & 0xfffff,
			.event_type = RTE_EVENT_TYPE_CPU,
			.op = RTE_EVENT_OP_NEW,
			.sched_type = queue.schedule & 3,
			.queue_id = queue.queue == QUEUE_DIRECTED ? (uint8_t)(QUEUE_DIRECTED + behind) : queue.queue,
			.priority = RTE_EVENT_DEV_PRIORITY_NORMAL,
			.mbuf = m};
		// Before it is given away: then it may have been taken already.
		counts->given[packet_of(m)->port % PORT_MAX]++;
	}
	for (unsigned d = 0; d < DISPATCH_DEVICES; d++)
		if (counted[d] > 0)
			give_device(graph, node, d, events[d], counted[d]);
}

static uint16_t
give_all(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, give);
}

static struct node give_node = {.name = "dispatch", .process = give_all};
NODE_REGISTER(give_node)

// Once in a round: a second dequeue would release the frames of the first.
static inline uint16_t
take_from(const struct dispatch_device *d, uint8_t port, struct rte_graph *graph, struct rte_node *node)
{
	struct dispatched *counts = &dispatched[worker_self()->index];
	struct rte_event events[BURST];
	uint16_t count = rte_event_dequeue_burst(d->id, port, events, d->max_dequeue, 0);

	if (count == 0)
		return 0;
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = events[i].mbuf;

		rte_prefetch0(m);
		rte_prefetch0(packet_of(m));
		node->objs[i] = m;
	}
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = node->objs[i];

		rte_prefetch0(rte_pktmbuf_mtod(m, void *));
		counts->taken[packet_of(m)->port % PORT_MAX]++;
	}
	node->idx = count;
	rte_node_next_stream_move(graph, node, node_arrival);
	return count;
}

static uint16_t
take(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct worker *self = worker_self();
	const struct dispatch_device *d;
	uint16_t total = 0;

	for (unsigned i = 0; i < DISPATCH_DEVICES; i++) {
		d = atomic_load_explicit(&dispatch_devices[i], memory_order_acquire);
		if (likely(!d))
			continue;
		dispatch_schedule(d);
		total = (uint16_t)(total + (d->orders ? order_take(d, graph, node)
						      : take_from(d, (uint8_t)self->index, graph, node)));
		if (unlikely(d->directed))
			total = (uint16_t)(total + take_from(d, (uint8_t)(d->directed + self->index), graph, node));
	}
	self->taken += total;
	return total;
}

static struct node take_node = {
	.name = "dispatch-taken", .process = take, .source = true, .edges = NODE_EDGES(&arrival_node)};
NODE_REGISTER(take_node)

static int
open_port(const struct port *port, int spread, uint16_t *entry, struct fault *f)
{
	struct dispatch_queue queue;
	int error = dispatch_open(spread, &queue, f);

	if (error)
		return error;
	atomic_store(&queues[port->id], queue);
	*entry = give_node.id;
	node_edge(node_by_name("rx"), &give_node);
	return 0;
}

static bool
are_on_their_way(const void *of)
{
	const struct port *port = of;
	uint64_t given = 0, taken = 0;

	for (unsigned w = 0; w < worker_count; w++)
		taken += __atomic_load_n(&dispatched[w].taken[port->id], __ATOMIC_ACQUIRE);
	for (unsigned w = 0; w < worker_count; w++)
		given += __atomic_load_n(&dispatched[w].given[port->id], __ATOMIC_ACQUIRE);
	return given != taken;
}

// No worker enqueues now.
static void
drain(const struct port *port)
{
	worker_finish(are_on_their_way, port, DRAIN_MIN);
}

static const struct port_spreader spreader = {
	.open = open_port, .drain = drain, .keep = order_keep, .sends = &take_node};

RTE_INIT(dispatch_register)
{
	port_spreader_register(&spreader);
}
