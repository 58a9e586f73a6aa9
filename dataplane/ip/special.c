// SPDX-License-Identifier: Apache-2.0
// Destinations that are not simply a place to send to: no route, prohibited, broadcast, multicast, link-local.
// RFC 1812 sections 5.2.3, 5.3.5 and 5.3.7, RFC 2644, RFC 4291 section 2.5.6.
#include "core/burst.h"
#include "core/drop.h"
#include "ether/interface.h"
#include "fib/connected.h"
#include "fib/hop.h"
#include "fib/link_local.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/icmp.h"
#include "ip/subscriber.h"
#include "port/port.h"

DROP(drop_no_route, "no-route", "No route leads to the packet's destination.")
DROP(drop_unreachable, "next-hop-gone", "The route's next hop is no longer on a network of ours.")
DROP(drop_prohibited, "prohibited", "A prohibit route leads to the packet's destination.")
DROP(drop_directed_broadcast, "directed-broadcast", "A broadcast to one of our networks from outside of it (RFC 2644).")
DROP(drop_link_local, "link-local-destination",
	"A link-local destination that is not ours; such packets are never forwarded.")
DROP(drop_own_multicast, "own-multicast", "A packet of our own to a multicast address that names no way out.")

static uint16_t
unreachable(struct packet *p, uint8_t code4, uint8_t code6, const struct drop *reason)
{
	if (p->family == 4)
		return packet_icmp_error(p, ICMP4_UNREACHABLE, code4, 0, reason);
	return packet_icmp_error(p, ICMP6_UNREACHABLE, code6, 0, reason);
}

// Whether the packet came in where the interface's addresses count.
static bool
came_from(const struct packet *p, uint32_t interface)
{
	return p->interface != NO_INTERFACE && interface_at(p->interface)->addresses_of == interface;
}

// A packet of our own to a neighbour's link-local address goes out where the one that it answers came in.
static uint16_t
send_link_local(struct packet *p)
{
	uint32_t glean;

	if (p->session != NO_SESSION)
		return packet_to_subscriber(p);
	glean = p->interface == NO_INTERFACE ? 0 : connected_glean(p->interface, 6);
	if (glean == 0)
		return packet_drop(p, &drop_link_local);
	p->hop = glean;
	p->chain = __atomic_load_n(&hop_at(glean)->chain, __ATOMIC_ACQUIRE);
	return packet_step(p);
}

static uint16_t
to_link_local(struct rte_mbuf *m, struct packet *p)
{
	const struct ip6_header *ip = rte_pktmbuf_mtod(m, const struct ip6_header *);
	uint8_t own[16];

	if (p->flags & PACKET_OURS)
		return send_link_local(p);
	if (p->port >= PORT_MAX)
		return packet_drop(p, &drop_link_local);
	link_local_of(&ports[p->port].mac, own);
	if (memcmp(ip->destination, own, sizeof(own)) == 0)
		return packet_step(p);
	if (p->interface != NO_INTERFACE && link_local_is_configured(p->interface, ip->destination))
		return packet_step(p);
	return packet_drop(p, &drop_link_local);
}

static uint16_t
decide(struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const struct hop *hop = hop_at(p->hop);

	switch ((enum hop_kind)hop->kind) {
	case HOP_NONE:
		if (p->hop == NO_HOP)
			return unreachable(p, ICMP4_NET, ICMP6_NO_ROUTE, &drop_no_route);
		return unreachable(p, ICMP4_HOST, ICMP6_ADDRESS, &drop_unreachable);
	case HOP_PROHIBIT:
		return unreachable(p, ICMP4_PROHIBITED, ICMP6_PROHIBITED, &drop_prohibited);
	case HOP_DROP:
		p->drop = hop->drop;
		return drop_node.id;
	default:
		break;
	}
	if (hop->flags & HOP_LINK_LOCAL)
		return to_link_local(m, p);
	if (p->flags & PACKET_OURS)
		return packet_drop(p, &drop_own_multicast);
	if (hop->flags & HOP_BROADCAST && !came_from(p, hop->interface))
		return packet_drop(p, &drop_directed_broadcast);
	return packet_step(p);
}

static void
decide_all(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next[BURST];

	for (unsigned i = 0; i < count; i++)
		next[i] = decide(packets[i]);
	node_dispatch(graph, node, packets, next, count);
}

static uint16_t
ip_special(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, decide_all);
}

static struct node ip_special_node = {.name = "ip-special",
	.process = ip_special,
	.describe = ip_describe,
	.edges = NODE_EDGES(&icmp_error_node),
	.steps = true};
NODE_REGISTER(ip_special_node)
HOP_KIND_REGISTER(HOP_NONE, ip_special_node)
HOP_KIND_REGISTER(HOP_DROP, ip_special_node)
HOP_KIND_REGISTER(HOP_PROHIBIT, ip_special_node)
