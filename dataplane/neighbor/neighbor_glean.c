// SPDX-License-Identifier: Apache-2.0
// Packets for neighbours that are not resolved: they come up to the main thread, wait, and go down again.
#include <string.h>

#include "core/drop.h"
#include "core/punt.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/icmp.h"
#include "neighbor/neighbor_table.h"
#include "port/port.h"

INJECTED(icmp_error_node)

// Packets a second. One source does not fill the table of neighbours without an address within the seconds that one is asked
// for.
enum { GLEAN_RATE = 50000, GLEAN_EACH = 400 };

DROP(drop_unresolved, "neighbor-unresolved", "No host on the link answers for the next hop or destination.")
DROP(drop_table_full, "neighbor-table-full", "There is no room for another neighbour.")
DROP(drop_gone, "neighbor-gone", "The interface to the next hop went while the packet waited.")

void
neighbor_unreachable(struct resolving *unused, struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);

	if (p->family == 4)
		packet_icmp_error(p, ICMP4_UNREACHABLE, ICMP4_HOST, 0, &drop_unresolved);
	else
		packet_icmp_error(p, ICMP6_UNREACHABLE, ICMP6_ADDRESS, 0, &drop_unresolved);
	inject(m, &icmp_error_node);
}

void
neighbor_learn_from_copy(struct rte_graph *graph, struct rte_node *node, const struct rte_mbuf *m, unsigned length,
	const struct punt *reason)
{
	const struct packet *from = packet_of((struct rte_mbuf *)(uintptr_t)m);
	struct rte_mbuf *copy = rte_pktmbuf_alloc(m->pool);
	uint16_t before = from->l2_length <= m->data_off ? from->l2_length : 0;
	char *data = copy ? rte_pktmbuf_append(copy, (uint16_t)(before + length)) : NULL;
	struct packet *p;

	if (!data) {
		rte_pktmbuf_free(copy);
		return;
	}
	memcpy(data, rte_pktmbuf_mtod(m, const char *) - before, before + length);
	packet_reset(copy);
	p = packet_of(copy);
	p->interface = from->interface;
	p->port = from->port;
	p->vrf = from->vrf;
	p->outer_vlan = from->outer_vlan;
	p->inner_vlan = from->inner_vlan;
	p->family = from->family;
	p->l2_length = (uint8_t)before;
	p->detail = NEIGHBOR_ANSWERED;
	copy->port = m->port;
	packet_advance(copy, before);
	rte_node_enqueue_x1(graph, node, packet_punt(p, reason), copy);
}

// The look-up has been done: the packet goes on as it would have gone.
void
neighbor_send(struct resolving *r, struct rte_mbuf *m)
{
	const struct neighbor *n = neighbor_resolving(r);
	struct packet *p = packet_of(m);

	p->hop = n->hop;
	p->chain = hop_at(n->hop)->chain;
	inject(m, node_by_id(packet_step(p)));
}

static void
glean(struct rte_mbuf *m)
{
	static const uint8_t nothing[16];
	struct packet *p = packet_of(m);
	const struct hop *hop = hop_at(p->hop);
	uint32_t index = neighbor_of_hop(p->hop);
	struct neighbor *n = index == UINT32_MAX ? NULL : slab_at(&neighbors, index);
	uint8_t address[16] = {0};

	if (!n) {
		// By a connected network: unless the hop has become another since the look-up.
		if (hop->kind != HOP_RESOLVE || memcmp(hop->address, nothing, 16) != 0 ||
			hop->interface >= INTERFACE_LIMIT || !interface_at(hop->interface)->present ||
			interface_at(hop->interface)->link != INTERFACE_ETHERNET) {
			drop_now(m, &drop_gone);
			return;
		}
		if (p->family == 4)
			memcpy(address, &rte_pktmbuf_mtod(m, const struct ip4_header *)->destination, 4);
		else
			memcpy(address, rte_pktmbuf_mtod(m, const struct ip6_header *)->destination, 16);
		n = neighbor_get(hop->interface, p->family, address);
		if (!n) {
			drop_now(m, &drop_table_full);
			return;
		}
		if (!n->gleaned) {
			n->gleaned = true;
			neighbor_publish(n);
		}
	}
	if (n->orphan) {
		drop_now(m, &drop_gone);
		return;
	}
	resolver_wait(&neighbor_resolver, &n->resolving, m);
}

PUNT_EACH(punt_glean, "neighbor-glean", GLEAN_RATE, GLEAN_EACH, glean)

static uint16_t
neighbor_glean(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++)
		packet_punt(packet_of(packets[i]), &punt_glean);
	if (packets == node->objs && count == node->idx)
		rte_node_next_stream_move(graph, node, punt_node.id);
	else
		rte_node_enqueue(graph, node, punt_node.id, packets, count);
	return count;
}

struct node neighbor_glean_node = {
	.name = "neighbor-glean", .process = neighbor_glean, .describe = ip_describe, .edges = NODE_EDGES(&punt_node)};
NODE_REGISTER(neighbor_glean_node)
HOP_KIND_REGISTER(HOP_RESOLVE, neighbor_glean_node)
