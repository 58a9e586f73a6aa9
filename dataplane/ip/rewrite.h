// SPDX-License-Identifier: Apache-2.0
// Common to both families: sending packets over an adjacency.
#pragma once

#include <string.h>

#include "core/burst.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "port/port.h"

// Packets that leave, counted by runs of the same interface.
struct tx_run {
	struct interface_counters *row;
	uint32_t interface;
	uint32_t packets;
	uint64_t bytes;
};

static inline struct tx_run
tx_run_start(void)
{
	return (struct tx_run){.row = counters_row(&interface_counters), .interface = 0};
}

static inline void
tx_run_end(const struct tx_run *run)
{
	run->row[run->interface].tx_packets += run->packets;
	run->row[run->interface].tx_bytes += run->bytes;
}

static inline void
tx_run_add(struct tx_run *run, uint32_t interface, uint32_t bytes)
{
	if (unlikely(interface != run->interface)) {
		tx_run_end(run);
		run->interface = interface;
		run->packets = 0;
		run->bytes = 0;
	}
	run->packets++;
	run->bytes += bytes;
}

// Put the hop's header in front of the IP header by two moves that overlap and touch nothing else: the bytes before a
// frame are in a cache line that is not loaded yet. Each Ethernet address comes out of one load, because it may be
// changing.
static inline void
rewrite_header(struct rte_mbuf *m, struct packet *p, const struct hop *hop, uint8_t *ip)
{
	unsigned length = hop->rewrite_length;
	const uint8_t *header = hop->rewrite + sizeof(hop->rewrite) - length;
	uint8_t *frame = ip - length;

	if (likely(length < 16)) {
		memcpy(frame, header, 8);
		memcpy(ip - 8, hop->rewrite + sizeof(hop->rewrite) - 8, 8);
	} else {
		memcpy(ip - 16, hop->rewrite + sizeof(hop->rewrite) - 16, 16);
		memcpy(frame, header, 16);
	}
	m->data_off = (uint16_t)(m->data_off - length);
	m->data_len = (uint16_t)(m->data_len + length);
	m->pkt_len += length;
	m->port = hop->port;
	p->l2_length = 0;
}

// A family's part, inlined: count the packet down if it is routed, unless that is not for it to be, or it is too large: false.
typedef bool (*rewrite_age)(void *ip, uint32_t routed, bool too_large);
// The fate of that packet: the next node.
typedef uint16_t (*rewrite_refuse)(struct packet *p, const void *ip, uint16_t mtu);

static __rte_always_inline void
rewrite_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, rewrite_age age,
	rewrite_refuse refuse)
{
	uint16_t next[BURST], tx = tx_node.id;
	struct tx_run run = tx_run_start();

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		const struct hop *hop = hop_at(p->hop);
		uint8_t *ip = rte_pktmbuf_mtod(m, uint8_t *);

		if (unlikely(!age(ip, p->flags & PACKET_ROUTED, m->pkt_len > hop->mtu))) {
			next[i] = refuse(p, ip, hop->mtu);
			continue;
		}
		rewrite_header(m, p, hop, ip);
		tx_run_add(&run, hop->interface, m->pkt_len);
		next[i] = tx;
	}
	tx_run_end(&run);
	node_dispatch(graph, node, packets, next, count);
}
