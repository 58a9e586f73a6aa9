// Packets for neighbours that are not resolved: they come up to the main thread, wait, and go down again.
#include <string.h>

#include "core/drop.h"
#include "core/punt.h"
#include "ether/interface.h"
#include "ip/describe.h"
#include "ip/header.h"
#include "ip/hop.h"
#include "ip/icmp.h"
#include "ip/neighbor_table.h"
#include "port/port.h"

enum { GLEAN_RATE = 50000 }; // packets a second

DROP(drop_unresolved, "neighbor-unresolved", "Nobody on the link answers for the next hop or destination.")
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
		if (hop->kind != HOP_GLEAN || memcmp(hop->address, nothing, 16) != 0 ||
			hop->interface >= INTERFACE_LIMIT || !interface_at(hop->interface)->present ||
			interface_at(hop->interface)->circuit.port == NO_PORT) {
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

PUNT(punt_glean, "neighbor-glean", GLEAN_RATE, glean)

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

struct node neighbor_glean_node = {.name = "neighbor-glean", .process = neighbor_glean, .describe = ip_describe};
NODE_REGISTER(neighbor_glean_node)
