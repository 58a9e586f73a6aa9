// SPDX-License-Identifier: Apache-2.0
// IP packets in frames to a broadcast or multicast MAC: those with a unicast destination are dropped, without an ICMP error
// (RFC 1122 section 3.3.6, RFC 1812 section 5.3.4). In: as for ip4-input and ip6-input. Out: those nodes.
#include "core/burst.h"
#include "core/drop.h"
#include "fib/hop.h"
#include "fib/vrf.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/nodes.h"
#include "ip/subscriber.h"

DROP(drop_unicast, "unicast-in-group-frame",
	"A packet for one host in a frame to a broadcast or multicast MAC (RFC 1122 section 3.3.6).")

// The broadcast address of a network of ours.
static bool
is_broadcast(const struct packet *p, uint32_t destination)
{
	struct subscriber about = {.vrf = p->vrf};
	const struct fib *fib;

	if (p->session != NO_SESSION)
		subscribers->about(p->session, &about);
	fib = vrf_fib(about.vrf, 4);
	return fib && hop_at(fib4_lookup(fib, destination))->flags & HOP_BROADCAST;
}

static void
check4(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const struct ip4_header *ip = rte_pktmbuf_mtod(m, const struct ip4_header *);

		// ip4-input drops shorter packets.
		if (m->data_len < sizeof(*ip) || *(const uint8_t *)&ip->destination >> 4 == 0xe ||
			ip->destination == UINT32_MAX || is_broadcast(p, ip->destination))
			next[i] = ip4_input_node.id;
		else
			next[i] = packet_drop(p, &drop_unicast);
	}
	node_dispatch(graph, node, packets, next, count);
}

static void
check6(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);

		if (m->data_len < sizeof(*ip) || ip6_is_multicast(ip->destination))
			next[i] = ip6_input_node.id;
		else
			next[i] = packet_drop(packet_of(m), &drop_unicast);
	}
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
ip4_group(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, check4);
}

static uint16_t
ip6_group(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, check6);
}

struct node ip4_group_node = {
	.name = "ip4-group", .process = ip4_group, .describe = ip_describe, .edges = NODE_EDGES(&ip4_input_node)};
struct node ip6_group_node = {
	.name = "ip6-group", .process = ip6_group, .describe = ip_describe, .edges = NODE_EDGES(&ip6_input_node)};
NODE_REGISTER(ip4_group_node)
NODE_REGISTER(ip6_group_node)
