// SPDX-License-Identifier: Apache-2.0
// The common part of the look-ups of both families. The family is a constant at each use, so that the compiler drops code of the other.
#pragma once

#include <string.h>

#include <rte_prefetch.h>

#include "fib/hop.h"
#include "fib/vrf.h"

// A burst's destinations: IPv4 addresses in network order, or where the IPv6 ones are.
union look_up_addresses {
	uint32_t four[BURST];
	const uint8_t *six[BURST];
};

// ip4-lookup for a node that has the burst's destinations at hand: 1 to BURST packets, checked, their VRFs set. They
// leave by that node's edges.
void ip4_look_up(struct rte_graph *graph, struct rte_node *node, void **packets,
	const union look_up_addresses *addresses, uint16_t count);

// All packets go one way, as most bursts do.
static inline void
look_up_send_all(
	struct rte_graph *graph, struct rte_node *node, void **packets, uint32_t found, uint16_t count, uint8_t family)
{
	const struct hop *hop = hop_at(found);
	struct chain_step step = chain_steps[__atomic_load_n(&hop->chain, __ATOMIC_ACQUIRE)];
	uint32_t session = hop->session;

	for (unsigned i = 0; i < count; i++) {
		struct packet *p = packet_of(packets[i]);

		p->hop = found;
		p->family = family;
		if (session != NO_SESSION)
			p->session = session;
		p->flags |= (uint8_t)(~p->flags >> 1 & PACKET_ROUTED);
		p->chain = step.rest;
	}
	if (likely(packets == node->objs && count == node->idx))
		rte_node_next_stream_move(graph, node, step.node);
	else
		rte_node_enqueue(graph, node, step.node, packets, count);
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
		struct chain_step step = chain_steps[__atomic_load_n(&hop->chain, __ATOMIC_ACQUIRE)];

		p->hop = found[i];
		p->family = family;
		if (hop->session != NO_SESSION)
			p->session = hop->session;
		// The node that sends a forwarded packet decrements its TTL.
		p->flags |= (uint8_t)(~p->flags >> 1 & PACKET_ROUTED);
		p->chain = step.rest;
		next[i] = step.node;
	}
	node_dispatch(graph, node, packets, next, count);
}

static __rte_always_inline void
look_up_find(uint16_t vrf, const union look_up_addresses *addresses, uint32_t *found, unsigned count, uint8_t family)
{
	const struct fib *fib = vrf_fib(vrf, family);

	if (unlikely(!fib))
		memset(found, 0, count * sizeof(found[0]));
	else if (family == 4)
		fib4_lookup_bulk(fib, addresses->four, found, count);
	else
		fib6_lookup_bulk(fib, addresses->six, found, count);
}

// A burst of several VRFs, one VRF at a time.
static inline void
look_up_find_by_vrf(
	void **packets, const union look_up_addresses *addresses, uint32_t *found, unsigned count, uint8_t family)
{
	union look_up_addresses some;
	uint32_t hops[BURST];
	uint16_t at[BURST], left[BURST];
	unsigned rest = count;

	for (unsigned i = 0; i < count; i++)
		left[i] = (uint16_t)i;
	while (rest > 0) {
		uint16_t vrf = packet_of(packets[left[0]])->vrf;
		unsigned taken = 0, kept = 0;

		for (unsigned i = 0; i < rest; i++) {
			if (packet_of(packets[left[i]])->vrf != vrf) {
				left[kept++] = left[i];
				continue;
			}
			at[taken] = left[i];
			if (family == 4)
				some.four[taken++] = addresses->four[left[i]];
			else
				some.six[taken++] = addresses->six[left[i]];
		}
		look_up_find(vrf, &some, hops, taken, family);
		for (unsigned i = 0; i < taken; i++)
			found[at[i]] = hops[i];
		rest = kept;
	}
}

// 1 to BURST packets, checked, their VRFs set.
static __rte_always_inline void
look_up_burst(struct rte_graph *graph, struct rte_node *node, void **packets, const union look_up_addresses *addresses,
	uint16_t count, uint8_t family)
{
	uint32_t found[BURST];
	uint16_t vrf = packet_of(packets[0])->vrf, mixed = 0;

	for (unsigned i = 0; i < count; i++)
		mixed |= packet_of(packets[i])->vrf ^ vrf;
	if (likely(mixed == 0))
		look_up_find(vrf, addresses, found, count, family);
	else
		look_up_find_by_vrf(packets, addresses, found, count, family);
	look_up_send(graph, node, packets, found, count, family);
}

static_assert(PACKET_ROUTED == 1 && PACKET_OURS == 2, "look_up_send() moves one flag's place to the other's");
