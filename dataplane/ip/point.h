// SPDX-License-Identifier: Apache-2.0
// Interfaces with one far end (INTERFACE_POINT): packets that leave by them, and that come in there.
#pragma once

#include <rte_prefetch.h>

#include "ether/interface.h"
#include "ip/nodes.h"

// In: an IP packet whose way out is such an interface, packet->hop. TTL, MTU, counters. Out: the output of the interface's type.
extern struct node ip_point_node;

// The memory of the interface that interface_input() reads.
static inline void
interface_input_prefetch(uint32_t index)
{
	rte_prefetch0(interface_at(index));
	rte_prefetch0((struct interface_counters *)counters_row(&interface_counters) + index);
}

// The edge for a packet that came in by such an interface: the data starts at the IP header, which has at least one byte and is not
// checked otherwise. The state of the outer packet is cleared.
static inline uint16_t
interface_input(struct rte_mbuf *m, struct packet *p, uint32_t index)
{
	const struct interface *i = interface_at(index);
	struct interface_counters *c = (struct interface_counters *)counters_row(&interface_counters) + index;
	bool six = *rte_pktmbuf_mtod(m, const uint8_t *) >> 4 == 6;

	c->rx_packets++;
	c->rx_bytes += m->pkt_len;
	packet_forget_checksums(m);
	p->interface = index;
	p->session = NO_SESSION;
	p->hop = NO_HOP;
	p->vrf = i->vrf;
	p->l2_length = 0;
	p->direction = UP;
	p->flags = 0;
	p->counted = 0;
	p->chain = __atomic_load_n(six ? &i->chain6 : &i->chain4, __ATOMIC_ACQUIRE);
	return six ? ip6_input_node.id : ip4_input_node.id;
}
