// SPDX-License-Identifier: Apache-2.0
// The receiving node: polls its worker's queues. The list of queues is replaced as a whole and the old one retired.
#include "port/rx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>

#include "core/rcu.h"
#include "core/worker.h"

struct queue {
	uint16_t port, queue, device;
};

struct queues {
	unsigned count;
	struct queue list[];
};

static struct queues *polled[WORKER_MAX];
static unsigned next_worker;

static inline void
take_in(struct rte_mbuf **packets, uint16_t count, uint16_t port)
{
	const struct packet fresh = {.session = NO_SESSION, .interface = NO_INTERFACE, .port = port};

	for (uint16_t i = 0; i < count; i++) {
		// The device wrote it, and this core has not seen it yet.
		rte_prefetch0(rte_pktmbuf_mtod(packets[i], void *));
		*packet_of(packets[i]) = fresh;
		packets[i]->port = port;
	}
}

static uint16_t
rx_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct worker *self = worker_self();
	const struct queues *q = __atomic_load_n(&polled[self->index], __ATOMIC_ACQUIRE);
	uint16_t total = 0, entry;

	for (unsigned i = 0; q && i < q->count; i++) {
		uint16_t got =
			rte_eth_rx_burst(q->list[i].device, q->list[i].queue, (struct rte_mbuf **)node->objs, BURST);

		if (got == 0)
			continue;
		take_in((struct rte_mbuf **)node->objs, got, q->list[i].port);
		node->idx = got;
		entry = __atomic_load_n(&ports[q->list[i].port].entry, __ATOMIC_ACQUIRE);
		rte_node_next_stream_move(graph, node, likely(entry == 0) ? node_arrival : entry);
		total = (uint16_t)(total + got);
	}
	self->taken += total;
	return total;
}

static struct node rx_node = {.name = "rx", .process = rx_process, .source = true, .edges = NODE_EDGES(&arrival_node)};
NODE_REGISTER(rx_node)

// The worker's list without a port, with room for `more` queues.
static struct queues *
without(unsigned worker, uint16_t port, unsigned more)
{
	const struct queues *old = polled[worker];
	struct queues *q = calloc(1, sizeof(*q) + ((old ? old->count : 0) + more) * sizeof(q->list[0]));

	for (unsigned i = 0; q && old && i < old->count; i++)
		if (old->list[i].port != port)
			q->list[q->count++] = old->list[i];
	return q;
}

static void
publish(unsigned worker, struct queues *q)
{
	struct queues *old = polled[worker];

	__atomic_store_n(&polled[worker], q, __ATOMIC_RELEASE);
	if (old)
		rcu_retire(free, old);
}

int
rx_attach(const struct port *port)
{
	struct queues *fresh[WORKER_MAX] = {0};

	for (unsigned w = 0; w < worker_count; w++) {
		fresh[w] = without(w, port->id, port->rx_queues);
		if (!fresh[w]) {
			while (w > 0)
				free(fresh[--w]);
			return -ENOMEM;
		}
	}
	for (uint16_t i = 0; i < port->rx_queues; i++) {
		struct queues *q = fresh[next_worker++ % worker_count];

		q->list[q->count++] = (struct queue){port->id, i, port->device};
	}
	for (unsigned w = 0; w < worker_count; w++)
		publish(w, fresh[w]);
	return 0;
}

void
rx_detach(const struct port *port)
{
	for (unsigned w = 0; w < worker_count; w++) {
		struct queues *q = without(w, port->id, 0), *old = polled[w];

		if (q) {
			publish(w, q);
			continue;
		}
		// Without memory for another list the port's queues leave the one there is: a worker that reads it meanwhile
		// polls a queue twice or leaves one out, once.
		for (unsigned i = 0; old && i < old->count;)
			if (old->list[i].port == port->id)
				old->list[i] = old->list[--old->count];
			else
				i++;
	}
	rcu_wait();
}
