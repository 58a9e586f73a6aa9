// SPDX-License-Identifier: Apache-2.0
// UDP ports 500 and 4500 of the gateway: IKE (RFC 7296 section 2), ESP in UDP, and keepalives of address translators (RFC 3948 section 2).
#include <stdio.h>

#include "core/burst.h"
#include "core/drop.h"
#include "core/punt.h"
#include "inet/header.h"
#include "ip/local.h"
#include "ipsec/esp.h"
#include "ipsec/nodes.h"

DROP(drop_short, "ike-truncated", "A packet for UDP port 500 or 4500 that ends before its payload.")
DROP(drop_checksum, "ike-no-checksum", "An IKE packet over IPv6 without a UDP checksum (RFC 8200 section 8.1).")
CONSUMED(consumed_keepalive, "nat-keepalive",
	"A keepalive of a peer behind an address translator (RFC 3948 section 2.3).")

enum { IKE_A_SECOND = 5000, NON_ESP_MARKER = 4, UDP_CHECKSUM = 6, UDP_DESTINATION = 2 };

// A daemon behind the port's twin may speak IKE instead of the agent.
PUNT(punt_ike, "ike", IKE_A_SECOND, ip_local_watcher_or_twin)

static inline uint16_t
look(struct rte_graph *graph, struct rte_node *node, struct rte_mbuf *m)
{
	struct packet *p = packet_of(m);
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *), *udp;
	unsigned offset =
		p->family == 4 ? ip4_header_length((const struct ip4_header *)ip) : (unsigned)sizeof(struct ip6_header);
	uint8_t marker[NON_ESP_MARKER];
	const uint8_t *start;
	uint32_t payload;

	// The node before has read the port, so the UDP header is whole.
	if (unlikely(m->data_len < offset + ESP_UDP_HEADER || m->pkt_len <= offset + ESP_UDP_HEADER))
		return packet_drop(p, &drop_short);
	udp = ip + offset;
	payload = m->pkt_len - offset - ESP_UDP_HEADER;
	if ((udp[UDP_DESTINATION] << 8 | udp[UDP_DESTINATION + 1]) == ESP_UDP_PORT) {
		start = rte_pktmbuf_read(
			m, offset + ESP_UDP_HEADER, RTE_MIN(payload, (uint32_t)NON_ESP_MARKER), marker);
		if (payload == 1 && start && start[0] == ESP_KEEPALIVE)
			return packet_drop(p, &consumed_keepalive);
		if (payload < NON_ESP_MARKER || !start)
			return packet_drop(p, &drop_short);
		if (likely(esp_read_32(start) != 0))
			return esp_decrypt_node.id;
	}
	if (p->family == 6 && udp[UDP_CHECKSUM] == 0 && udp[UDP_CHECKSUM + 1] == 0)
		return packet_drop(p, &drop_checksum);
	return packet_punt(p, &punt_ike);
}

static uint16_t
ipsec_udp(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_packet(graph, node, packets, count, look);
}

struct node ipsec_udp_node = {
	.name = "ipsec-udp", .process = ipsec_udp, .edges = NODE_EDGES(&esp_decrypt_node, &punt_node)};
NODE_REGISTER(ipsec_udp_node)
