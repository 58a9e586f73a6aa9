// SPDX-License-Identifier: Apache-2.0
// Common to the nodes of session packets of each version of the PPPoE header: find sessions, and remove the header.
#pragma once

#include "core/node.h"
#include "core/packet.h"
#include "ip/nodes.h"
#include "pppoe/header.h"
#include "pppoe/table.h"
#include "session/session.h"

enum { PPPOE_PART = 64 }; // few packets, so that the second look finds the data of the first in the cache

// The slot of a packet's circuit, on its way from memory.
static inline const _Atomic uint64_t *
pppoe_prefetch_slot(const struct pppoe_table *table, const struct packet *p)
{
	static const _Atomic uint64_t nothing;
	const _Atomic uint64_t *slot = pppoe_slot(table, p->port, p->outer_vlan, p->inner_vlan);

	if (unlikely(slot == NULL))
		slot = &nothing;
	rte_prefetch0((const void *)slot);
	return slot;
}

// The sessions of packets with these ids on their circuits. At most PPPOE_PART.
static inline void
pppoe_find_part(const struct pppoe_table *table, void **packets, const uint16_t *ids,
	const _Atomic uint64_t *const *slots, uint32_t *found, uint16_t count)
{
	uint64_t keys[PPPOE_PART];
	uint32_t sessions[PPPOE_PART];
	bool many[PPPOE_PART], any = false;

	for (uint16_t i = 0; i < count; i++) {
		found[i] = pppoe_of_word(atomic_load_explicit(slots[i], memory_order_acquire), ids[i], &many[i]);
		any |= many[i];
	}
	if (likely(!any))
		return;
	for (uint16_t i = 0; i < count; i++) {
		const struct packet *p = packet_of(packets[i]);

		keys[i] = many[i] ? pppoe_key(p->port, p->outer_vlan, p->inner_vlan, ids[i]) : 0;
	}
	map64_get_bulk(table->many, keys, sessions, count);
	for (uint16_t i = 0; i < count; i++)
		found[i] = many[i] ? sessions[i] : found[i];
}

// An IP packet of a session, without its header, goes on. The header's length was checked.
static inline uint16_t
pppoe_take_off(struct rte_mbuf *m, struct packet *p, uint16_t protocol)
{
	const uint8_t *bytes = rte_pktmbuf_mtod(m, const uint8_t *);
	uint32_t length = (uint32_t)(bytes[4] << 8 | bytes[5]) + PPPOE_HEADER;

	if (likely(m->nb_segs == 1)) {
		m->data_len = (uint16_t)length;
		m->pkt_len = length;
	} else if (length < m->pkt_len) {
		// Padding is within the last segment; if it is not, the IP header's length cuts it.
		rte_pktmbuf_trim(m, (uint16_t)(m->pkt_len - length));
	}
	packet_advance(m, PPPOE_HEADER + PPP_PROTOCOL);
	p->l2_length = (uint8_t)(p->l2_length + PPPOE_HEADER + PPP_PROTOCOL);
	p->chain = protocol == PPP_IP4 ? session_up4_node.id : session_up6_node.id;
	return protocol == PPP_IP4 ? ip4_input_node.id : ip6_input_node.id;
}

static inline uint16_t
pppoe_protocol(const uint8_t *bytes)
{
	return (uint16_t)(bytes[PPPOE_HEADER] << 8 | bytes[PPPOE_HEADER + 1]);
}
