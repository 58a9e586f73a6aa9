// SPDX-License-Identifier: Apache-2.0
// A node may be given more packets than a burst when several nodes feed it in one round.
#pragma once

#include "core/node.h"

typedef void (*burst_fn)(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count);

// Do `one` burst after the other, each of 1 to BURST packets.
static __rte_always_inline uint16_t
by_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, burst_fn one)
{
	for (unsigned start = 0; start < count; start += BURST) {
		unsigned some = RTE_MIN(count - start, (unsigned)BURST);

		if (some == 0)
			__builtin_unreachable();
		one(graph, node, packets + start, (uint16_t)some);
	}
	return count;
}

typedef uint16_t (*packet_fn)(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf *m);

// Each packet by itself: `one` returns its edge.
static __rte_always_inline uint16_t
by_packet(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, packet_fn one)
{
	for (unsigned start = 0; start < count; start += BURST) {
		unsigned some = RTE_MIN(count - start, (unsigned)BURST);
		uint16_t next[BURST];

		for (unsigned i = 0; i < some; i++)
			next[i] = one(graph, node, packets[start + i]);
		node_dispatch(graph, node, packets + start, next, (uint16_t)some);
	}
	return count;
}
