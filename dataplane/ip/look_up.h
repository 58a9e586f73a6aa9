// What both families' look-ups do with the hops they found.
#pragma once

#include <rte_prefetch.h>

#include "ip/hop.h"

// What ip4-lookup does, for a node that has the burst's destinations (network order) at hand: 1 to BURST packets, checked, their
// VRFs set. They leave by that node's edges.
void ip4_look_up(
	struct rte_graph *graph, struct rte_node *node, void **packets, const uint32_t *addresses, uint16_t count);

// All packets go one way, as most bursts do.
static inline void
look_up_send_all(
	struct rte_graph *graph, struct rte_node *node, void **packets, uint32_t found, uint16_t count, uint8_t family)
{
	const struct hop *hop = hop_at(found);
	uint64_t chain = __atomic_load_n(&hop->chain, __ATOMIC_ACQUIRE);
	uint32_t session = hop->session;

	for (unsigned i = 0; i < count; i++) {
		struct packet *p = packet_of(packets[i]);

		p->hop = found;
		p->family = family;
		if (session != NO_SESSION)
			p->session = session;
		p->flags |= (uint8_t)(~p->flags >> 1 & PACKET_ROUTED);
		p->chain = chain >> 8;
	}
	if (likely(packets == node->objs && count == node->idx))
		rte_node_next_stream_move(graph, node, chain & 0xff);
	else
		rte_node_enqueue(graph, node, chain & 0xff, packets, count);
}

static inline void
look_up_send(struct rte_graph *graph, struct rte_node *node, void **packets, const uint32_t *found, uint16_t count,
	uint8_t family)
{
	uint16_t next[BURST];
	uint32_t differs = 0;

	for (unsigned i = 0; i < count; i++)
		differs |= found[i] ^ found[0];
	if (differs == 0) {
		look_up_send_all(graph, node, packets, found[0], count, family);
		return;
	}
	for (unsigned i = 0; i < count; i++)
		rte_prefetch0(hop_at(found[i]));
	for (unsigned i = 0; i < count; i++) {
		struct packet *p = packet_of(packets[i]);
		const struct hop *hop = hop_at(found[i]);
		uint64_t chain = __atomic_load_n(&hop->chain, __ATOMIC_ACQUIRE);

		p->hop = found[i];
		p->family = family;
		if (hop->session != NO_SESSION)
			p->session = hop->session;
		// Whoever sends a packet of others' counts its TTL down.
		p->flags |= (uint8_t)(~p->flags >> 1 & PACKET_ROUTED);
		p->chain = chain >> 8;
		next[i] = chain & 0xff;
	}
	node_dispatch(graph, node, packets, next, count);
}

static_assert(PACKET_ROUTED == 1 && PACKET_OURS == 2, "look_up_send() moves one flag's place to the other's");
