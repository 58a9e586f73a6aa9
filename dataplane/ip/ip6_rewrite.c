// SPDX-License-Identifier: Apache-2.0
// Sends IPv6 packets over an adjacency (RFC 8200 section 3, RFC 4443 sections 3.1 to 3.3): counts the hop limit down, sees
// that they are not too large, puts the Ethernet header on. In: packet->hop. Out: tx.
#include "core/drop.h"
#include "fib/hop.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/fragment.h"
#include "ip/icmp.h"
#include "ip/nodes.h"
#include "ip/rewrite.h"

DROP(drop_expired, "hop-limit-expired", "The packet's hop limit ran out here.")
DROP(drop_too_big, "packet-too-big",
	"The packet is larger than the MTU of its way out; only its sender may fragment IPv6.")

// A packet whose hop limit has run out or that is too large. Packets of our own are not routed.
static uint16_t
refuse(struct packet *p, const void *at, uint16_t mtu)
{
	const struct ip6_header *ip = at;

	if (p->flags & PACKET_ROUTED && ip->hop_limit <= 1)
		return packet_icmp_error(p, ICMP6_TIME_EXCEEDED, 0, 0, &drop_expired);
	icmp_too_big_here(p, mtu);
	if (p->flags & PACKET_OURS)
		return packet_fragment(p, mtu, &ip6_rewrite_node);
	return packet_icmp_error(p, ICMP6_TOO_BIG, 0, mtu, &drop_too_big);
}

static __rte_always_inline bool
age(void *at, uint32_t routed, bool too_large)
{
	struct ip6_header *ip = at;

	if (unlikely((routed & (ip->hop_limit <= 1)) | too_large))
		return false;
	ip->hop_limit = (uint8_t)(ip->hop_limit - routed);
	return true;
}

static void
rewrite(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	rewrite_burst(graph, node, packets, count, age, refuse);
}

static uint16_t
ip6_rewrite(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, rewrite);
}

struct node ip6_rewrite_node = {.name = "ip6-rewrite",
	.process = ip6_rewrite,
	.describe = ip_describe,
	.edges = NODE_EDGES(&tx_node, &ip_fragment_node, &icmp_error_node)};
NODE_REGISTER(ip6_rewrite_node)
