// SPDX-License-Identifier: Apache-2.0
// Where an IPv6 packet goes: longest prefix match on its destination (RFC 8200, RFC 4291 section 2.5).
#include "core/burst.h"
#include "fib/look_up.h"
#include "inet/describe.h"
#include "inet/header.h"

static void
look_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	union look_up_addresses addresses;

	for (unsigned i = 0; i < count; i++)
		addresses.six[i] = rte_pktmbuf_mtod((struct rte_mbuf *)packets[i], struct ip6_header *)->destination;
	look_up_burst(graph, node, packets, &addresses, count, 6);
}

static uint16_t
ip6_lookup(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, look_up);
}

struct node ip6_lookup_node = {.name = "ip6-lookup", .process = ip6_lookup, .describe = ip_describe, .steps = true};
NODE_REGISTER(ip6_lookup_node)
