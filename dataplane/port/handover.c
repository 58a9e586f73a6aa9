// SPDX-License-Identifier: Apache-2.0
// A device with fewer transmit queues than there are workers: a queue belongs to the worker of its number, and the other
// workers hand their packets to one of those over a ring of their own, without locks. Packets of a worker to a port always
// take the same way: a flow stays in order.
#include "port/handover.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_ring.h>

#include "core/rcu.h"
#include "core/start.h"
#include "core/worker.h"

enum { RING_MAX = 1024, RING_MIN = 64, PARTS = 4 };

struct handover {
	struct handover *next; // of the same owner
	struct port *port;
	struct rte_ring *ring;
};

static struct handover *owned[WORKER_MAX];

// The rings of all workers to one port, or to one scheduler, hold a quarter of the buffers at most.
struct rte_ring *
handover_ring(void)
{
	unsigned desired = rte_align32prevpow2(packet_pool->size / (PARTS * RTE_MAX(worker_count, 1u)));
	unsigned size = RTE_MAX(RTE_MIN(desired, (unsigned)RING_MAX), (unsigned)RING_MIN);
	ssize_t bytes = rte_ring_get_memsize(size);
	struct rte_ring *ring =
		bytes < 0 ? NULL : aligned_alloc(RTE_CACHE_LINE_SIZE, RTE_ALIGN_CEIL((size_t)bytes, 64));

	if (ring && rte_ring_init(ring, "handover", size, RING_F_SP_ENQ | RING_F_SC_DEQ)) {
		free(ring);
		return NULL;
	}
	return ring;
}

unsigned
handover_owner(const struct port *port, unsigned worker)
{
	return worker % port->tx_queues;
}

int
handover_open(struct port *port)
{
	unsigned count = worker_count > port->tx_queues ? worker_count - port->tx_queues : 0;

	if (count == 0)
		return 0;
	port->handovers = calloc(count, sizeof(port->handovers[0]));
	for (unsigned i = 0; port->handovers && i < count; i++) {
		port->handovers[i] = (struct handover){.port = port, .ring = handover_ring()};
		if (!port->handovers[i].ring) {
			while (i > 0)
				free(port->handovers[--i].ring);
			free(port->handovers);
			port->handovers = NULL;
		}
	}
	if (!port->handovers)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++) {
		struct handover *h = &port->handovers[i], **first = &owned[handover_owner(port, port->tx_queues + i)];

		h->next = *first;
		__atomic_store_n(first, h, __ATOMIC_RELEASE);
	}
	return 0;
}

void
handover_close(struct port *port)
{
	unsigned count = worker_count > port->tx_queues ? worker_count - port->tx_queues : 0;
	struct rte_mbuf *m;

	for (unsigned w = 0; w < worker_count && port->handovers; w++)
		for (struct handover **h = &owned[w]; *h;)
			if ((*h)->port == port)
				__atomic_store_n(h, (*h)->next, __ATOMIC_RELEASE);
			else
				h = &(*h)->next;
	rcu_wait();
	for (unsigned i = 0; i < count && port->handovers; i++) {
		while (rte_ring_sc_dequeue(port->handovers[i].ring, (void **)&m) == 0)
			tx_port_gone(m);
		free(port->handovers[i].ring);
	}
	free(port->handovers);
	port->handovers = NULL;
}

uint16_t
handover_give(const struct port *port, struct rte_mbuf **packets, uint16_t count)
{
	const struct handover *h = &port->handovers[worker_self()->index - port->tx_queues];

	return (uint16_t)rte_ring_sp_enqueue_burst(h->ring, (void **)packets, count, NULL);
}

static uint16_t
handover_process(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	struct worker *self = worker_self();
	uint16_t total = 0;

	for (const struct handover *h = __atomic_load_n(&owned[self->index], __ATOMIC_ACQUIRE); h;
		h = __atomic_load_n(&h->next, __ATOMIC_ACQUIRE)) {
		uint16_t got = (uint16_t)rte_ring_sc_dequeue_burst(h->ring, node->objs, BURST, NULL);

		if (got == 0)
			continue;
		tx_send(graph, node, h->port, (struct rte_mbuf **)node->objs, got);
		total = (uint16_t)(total + got);
	}
	self->taken += total;
	return total;
}

static struct node handover_node = {.name = "tx-handover", .process = handover_process, .source = true};
NODE_REGISTER(handover_node)
