// SPDX-License-Identifier: Apache-2.0
// For unit tests: all nodes in one graph over the real tables, on ports whose other end the test holds.
// core/one_node.h is for single nodes.
#pragma once

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>

#include "core/drop.h"
#include "core/loop.h"
#include "core/punt.h"
#include "core/start.h"
#include "core/worker.h"
#include "port.pb-c.h"
#include "port/port.h"

enum { SENT_MAX = 2048, SENT_BYTES = 2048 };

// A frame that was given to a port to send.
struct sent {
	uint16_t port, length;
	uint32_t queue;
	uint8_t bytes[SENT_BYTES];
};

static struct sent sent[SENT_MAX];
static unsigned sent_count;
static struct fault fault_of_put; // why the last object was refused

// In the place of the node that sends.
static uint16_t
sent_capture(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct sent *to = &sent[sent_count % SENT_MAX];

		to->port = m->port;
		to->queue = packet_of(m)->queue;
		to->length = (uint16_t)RTE_MIN(m->pkt_len, (uint32_t)SENT_BYTES);
		memcpy(to->bytes, rte_pktmbuf_read(m, 0, to->length, to->bytes), to->length);
		// Whole before it counts, for a test that looks while a worker runs.
		__atomic_store_n(&sent_count, sent_count + 1, __ATOMIC_RELEASE);
		rte_pktmbuf_free(m);
	}
	return count;
}

static inline int
put(const char *kind, const char *name, const void *message)
{
	uint8_t packed[4096];

	return object_put(kind, name, packed, protobuf_c_message_pack(message, packed), &fault_of_put);
}

// The data plane with as many ports: 02:00:00:00:00:01 is the first's address, and so on. As a test group's set-up.
static inline int
all_nodes_start(unsigned workers, unsigned buffers, const char *const *ports_named, unsigned count)
{
	char prefix[32];
	struct options o = {
		.workers = workers, .buffers = buffers, .log_level = "error", .prefix = prefix, .memory = 128};

	snprintf(prefix, sizeof(prefix), "sluice-test-%d", getpid());
	tx_node.process = sent_capture;
	if (core_start(&o))
		return -1;
	for (unsigned i = 0; i < count; i++) {
		Sluice__V1__Port port = SLUICE__V1__PORT__INIT;
		char device[64], mac[32];

		snprintf(device, sizeof(device), "net_null%u,no-rx=1", i);
		snprintf(mac, sizeof(mac), "02:00:00:00:00:%02x", i + 1);
		port.device = device;
		port.mac = mac;
		if (put("Port", ports_named[i], &port))
			return -1;
	}
	for (unsigned i = 0; i < 20; i++)
		loop_once(1);
	return 0;
}

static inline int
all_nodes_stop(void **state)
{
	return rte_eal_cleanup();
}

// Every worker's graph, as that worker would.
static inline void
walk_workers(unsigned rounds)
{
	struct worker *main_thread = worker_self();

	for (unsigned i = 0; i < rounds; i++)
		for (unsigned w = 0; w < worker_count; w++) {
			RTE_PER_LCORE(worker) = &workers[w];
			rte_graph_walk(workers[w].graph);
		}
	RTE_PER_LCORE(worker) = main_thread;
}

// Wait until all packets given to the graph have left it, including those that the main thread handles.
static inline void
walk(void)
{
	walk_workers(3);
	loop_once(0);
	walk_workers(1);
}

static inline uint16_t
port_number(const char *port)
{
	return port_of(object_find(&port_kind, port))->id;
}

static inline unsigned
sent_to(const char *port)
{
	unsigned count = 0;

	for (unsigned i = 0; i < RTE_MIN(sent_count, (unsigned)SENT_MAX); i++)
		count += sent[i].port == port_number(port);
	return count;
}

// A frame on its way into the graph by a port.
static inline void
arrive(const char *port, const void *bytes, size_t length)
{
	struct rte_mbuf *m = packet_new();

	memcpy(rte_pktmbuf_append(m, (uint16_t)length), bytes, length);
	packet_of(m)->port = port_number(port);
	m->port = packet_of(m)->port;
	node_edge(&inject_node, node_by_id(node_arrival));
	inject(m, node_by_id(node_arrival));
}

static inline void
receive(const char *port, const void *bytes, size_t length)
{
	arrive(port, bytes, length);
	walk();
}

// Packets dropped by this name so far.
static inline uint64_t
dropped(const char *name)
{
	for (uint16_t id = 0; id < drop_count(); id++)
		if (strcmp(drop_by_id(id)->name, name) == 0)
			return drop_total(id);
	fprintf(stderr, "no drop is called %s\n", name);
	abort();
}
