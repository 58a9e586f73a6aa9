// SPDX-License-Identifier: Apache-2.0
// For unit tests: one node by itself, with somewhere for its packets to go. Needs neither the EAL nor a graph.
#pragma once

#include <stdlib.h>
#include <string.h>

#include "core/node.h"

enum { ONE_NODE_PACKETS = 4 * BURST };

static inline struct rte_node *
one_node_new(unsigned edges)
{
	size_t size = RTE_ALIGN_CEIL(sizeof(struct rte_node) + edges * sizeof(struct rte_node *), RTE_CACHE_LINE_SIZE);
	struct rte_node *node = aligned_alloc(RTE_CACHE_LINE_SIZE, size);

	memset(node, 0, size);
	node->fence = RTE_GRAPH_FENCE;
	node->size = ONE_NODE_PACKETS;
	node->objs = aligned_alloc(RTE_CACHE_LINE_SIZE, ONE_NODE_PACKETS * sizeof(void *));
	node->nb_edges = (rte_edge_t)edges;
	return node;
}

// Give `count` packets to a node; edges[i] is the edge of packet i.
static inline void
one_node_run(const struct node *node, struct rte_mbuf **packets, uint16_t count, uint16_t *edges)
{
	struct rte_graph *graph = calloc(1, sizeof(*graph));
	struct rte_node *it = one_node_new(NODE_MAX), *others[NODE_MAX];
	rte_graph_off_t ring[256] = {0};

	strncpy(it->name, node->name, sizeof(it->name) - 1);
	graph->cir_start = ring;
	graph->cir_mask = RTE_DIM(ring) - 1;
	for (unsigned edge = 0; edge < NODE_MAX; edge++)
		it->nodes[edge] = others[edge] = one_node_new(0);
	memcpy(it->objs, packets, count * sizeof(packets[0]));
	it->idx = count;
	node->process(graph, it, it->objs, count);
	for (uint16_t i = 0; i < count; i++)
		edges[i] = UINT16_MAX;
	for (unsigned edge = 0; edge < NODE_MAX; edge++) {
		for (uint16_t taken = 0; taken < others[edge]->idx; taken++) {
			for (uint16_t i = 0; i < count; i++)
				edges[i] = others[edge]->objs[taken] == packets[i] ? (uint16_t)edge : edges[i];
		}
		free(others[edge]->objs);
		free(others[edge]);
	}
	free(it->objs);
	free(it);
	free(graph);
}

// A packet whose data is `length` bytes at the very end of its memory. Freed with free().
static inline struct rte_mbuf *
one_node_packet(const void *bytes, uint16_t length)
{
	enum { HEADROOM = 128 };
	size_t size = sizeof(struct rte_mbuf) + PACKET_SIZE + HEADROOM + length;
	struct rte_mbuf *m;
	void *memory;

	if (posix_memalign(&memory, RTE_CACHE_LINE_SIZE, size) != 0)
		abort();
	memset(memory, 0, size);
	m = memory;
	m->buf_addr = (char *)(m + 1) + PACKET_SIZE;
	m->buf_len = (uint16_t)(HEADROOM + length);
	m->data_off = HEADROOM;
	m->data_len = length;
	m->pkt_len = length;
	m->nb_segs = 1;
	rte_mbuf_refcnt_set(m, 1);
	packet_reset(m);
	memcpy(rte_pktmbuf_mtod(m, void *), bytes, length);
	return m;
}
