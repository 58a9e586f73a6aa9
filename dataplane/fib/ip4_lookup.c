// SPDX-License-Identifier: Apache-2.0
// Where an IPv4 packet goes: longest prefix match on its destination (RFC 1812 section 5.2.4).
#include "core/burst.h"
#include "fib/look_up.h"
#include "inet/describe.h"
#include "inet/header.h"

void
ip4_look_up(struct rte_graph *graph, struct rte_node *node, void **packets, const union look_up_addresses *addresses,
	uint16_t count)
{
	look_up_burst(graph, node, packets, addresses, count, 4);
}

static void
look_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	union look_up_addresses addresses;

	for (unsigned i = 0; i < count; i++)
		addresses.four[i] = rte_pktmbuf_mtod((struct rte_mbuf *)packets[i], struct ip4_header *)->destination;
	look_up_burst(graph, node, packets, &addresses, count, 4);
}

static uint16_t
ip4_lookup(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, look_up);
}

struct node ip4_lookup_node = {.name = "ip4-lookup", .process = ip4_lookup, .describe = ip_describe, .steps = true};
NODE_REGISTER(ip4_lookup_node)
