// SPDX-License-Identifier: Apache-2.0
// Whose flood a packet would be.
#include "core/fair.h"

#include <string.h>

#include <rte_ether.h>

enum { IP4_SOURCE = 12, IP6_SOURCE = 8, PREFIX = 8 };

// The place of a source. The highest byte is the sort of number.
static const uint64_t OF_SESSION = UINT64_C(1) << 56, OF_INTERFACE = UINT64_C(2) << 56, OF_CIRCUIT = UINT64_C(3) << 56;

// The source address of an IP packet, 0 if there is none. Of IPv6 only the network, because a host chooses its addresses in it; but
// link-local addresses are distinct sources.
static uint64_t
ip_source(const struct rte_mbuf *m, uint8_t family)
{
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	uint32_t word;
	uint64_t source = 0;

	if (family == 4 && m->data_len >= IP4_SOURCE + sizeof(word)) {
		memcpy(&word, ip + IP4_SOURCE, sizeof(word));
		return word;
	}
	if (family == 6 && m->data_len >= IP6_SOURCE + 2 * PREFIX) {
		bool link_local = ip[IP6_SOURCE] == 0xfe && (ip[IP6_SOURCE + 1] & 0xc0) == 0x80;

		memcpy(&source, ip + IP6_SOURCE + (link_local ? PREFIX : 0), sizeof(source));
	}
	return source;
}

static uint64_t
mac_source(const struct rte_mbuf *m, const struct packet *p)
{
	uint64_t source = 0;

	if (p->l2_length >= RTE_ETHER_HDR_LEN && p->l2_length <= m->data_off)
		memcpy(&source, rte_pktmbuf_mtod(m, const uint8_t *) - p->l2_length + RTE_ETHER_ADDR_LEN,
			RTE_ETHER_ADDR_LEN);
	return source;
}

void
fair_source_of(struct rte_mbuf *m, struct fair_source *source)
{
	const struct packet *p = packet_of(m);
	uint64_t who = p->session != NO_SESSION && p->direction == UP ? 0 : ip_source(m, p->family);

	if (p->session != NO_SESSION)
		*source = (struct fair_source){OF_SESSION | p->session, who, p->direction == DOWN};
	else if (who != 0)
		*source = (struct fair_source){OF_INTERFACE | p->interface, who, true};
	else
		*source = (struct fair_source){
			OF_CIRCUIT | (uint64_t)p->port << 32 | (uint32_t)p->outer_vlan << 16 | p->inner_vlan,
			mac_source(m, p), true};
}
