// SPDX-License-Identifier: Apache-2.0
// Sends IPv4 packets over an adjacency (RFC 1812 sections 5.2.1.2, 5.3.1 and 4.2.2.7): counts the TTL down, sees that they
// are not too large, puts the Ethernet header on. In: packet->hop. Out: tx.
#include "core/drop.h"
#include "fib/hop.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/fragment.h"
#include "ip/icmp.h"
#include "ip/nodes.h"
#include "ip/rewrite.h"

DROP(drop_expired, "ttl-expired", "The packet's TTL or hop limit ran out here.")
DROP(drop_needs_fragmentation, "fragmentation-needed",
	"The packet is larger than the MTU of its way out and must not be fragmented.")

// A packet whose TTL has run out or that is too large.
static uint16_t
refuse(struct packet *p, const void *at, uint16_t mtu)
{
	const struct ip4_header *ip = at;

	if (p->flags & PACKET_ROUTED && ip->ttl <= 1)
		return packet_icmp_error(p, ICMP4_TIME_EXCEEDED, 0, 0, &drop_expired);
	if (ip->fragment & RTE_BE16(IP4_DF)) {
		icmp_too_big_here(p, mtu);
		return packet_icmp_error(
			p, ICMP4_UNREACHABLE, ICMP4_FRAGMENTATION_NEEDED, mtu, &drop_needs_fragmentation);
	}
	return packet_fragment(p, mtu, &ip4_rewrite_node);
}

// A TTL that is decremented must be 2 at least.
static __rte_always_inline bool
age(void *at, uint32_t routed, bool too_large)
{
	struct ip4_header *ip = at;
	uint32_t word;

	memcpy(&word, &ip->ttl, sizeof(word));
	if (unlikely(((word & 0xff) < 2 * routed) | too_large))
		return false;
	word = ip4_age(word, routed);
	memcpy(&ip->ttl, &word, sizeof(word));
	return true;
}

static void
rewrite(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	rewrite_burst(graph, node, packets, count, age, refuse);
}

static uint16_t
ip4_rewrite(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, rewrite);
}

struct node ip4_rewrite_node = {.name = "ip4-rewrite",
	.process = ip4_rewrite,
	.describe = ip_describe,
	.edges = NODE_EDGES(&tx_node, &ip_fragment_node, &icmp_error_node)};
NODE_REGISTER(ip4_rewrite_node)
