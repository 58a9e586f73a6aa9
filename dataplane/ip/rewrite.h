// What both families do to send a packet over an adjacency.
#pragma once

#include <string.h>

#include "ether/interface.h"
#include "ip/hop.h"
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

// Put the hop's header in front of the IP header by two moves that overlap and touch nothing else: what lies before a frame is
// in a cache line that nobody has needed yet.
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
		memcpy(frame, header, 16);
		memcpy(ip - 16, hop->rewrite + sizeof(hop->rewrite) - 16, 16);
	}
	m->data_off = (uint16_t)(m->data_off - length);
	m->data_len = (uint16_t)(m->data_len + length);
	m->pkt_len += length;
	m->port = hop->port;
	p->l2_length = 0;
}
