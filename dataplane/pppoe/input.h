// SPDX-License-Identifier: Apache-2.0
// Common to the nodes of session packets of each version of the PPPoE header: find sessions, and remove the header.
#pragma once

#include <rte_prefetch.h>

#include "core/burst.h"
#include "core/node.h"
#include "core/packet.h"
#include "ip/nodes.h"
#include "pppoe/header.h"
#include "pppoe/table.h"
#include "session/session.h"

enum { PPPOE_PART = 64 }; // few packets, so that the second look finds the data of the first in the cache

// A version of the header. Its functions are constants where pppoe_input() is called.
struct pppoe_version {
	const struct pppoe_table *table;
	// The first look: the id of a session packet of this version, or 0.
	uint16_t (*session_id)(const struct rte_mbuf *m);
	// The second: the session is known, and the header is right.
	uint16_t (*enter)(struct rte_mbuf *m, struct packet *p);
	// No session has the id, or it is 0.
	uint16_t (*enter_other)(struct rte_mbuf *m, struct packet *p, uint16_t id);
};

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

static __rte_always_inline void
pppoe_input_part(const struct pppoe_version *version, void **packets, uint16_t *next, uint16_t count)
{
	static const _Atomic uint64_t nothing;
	const _Atomic uint64_t *slots[PPPOE_PART];
	uint16_t ids[PPPOE_PART];
	uint32_t found[PPPOE_PART];

	for (uint16_t i = 0; i < count; i++) {
		ids[i] = version->session_id(packets[i]);
		slots[i] = likely(ids[i]) ? pppoe_prefetch_slot(version->table, packet_of(packets[i])) : &nothing;
	}
	pppoe_find_part(version->table, packets, ids, slots, found, count);
	for (uint16_t i = 0; i < count; i++) {
		struct packet *p = packet_of(packets[i]);

		if (likely(found[i] != NO_SESSION)) {
			rte_prefetch0(session_at(found[i]));
			p->session = found[i];
			p->interface = NO_INTERFACE;
			next[i] = version->enter(packets[i], p);
		} else {
			// An IPoE session on the same VLANs has no part in this.
			p->session = NO_SESSION;
			next[i] = version->enter_other(packets[i], p, ids[i]);
		}
	}
}

// A burst of by_burst().
static __rte_always_inline void
pppoe_input(const struct pppoe_version *version, struct rte_graph *graph, struct rte_node *node, void **packets,
	uint16_t count)
{
	uint16_t next[BURST];

	for (uint16_t start = 0; start < count; start += PPPOE_PART)
		pppoe_input_part(version, packets + start, next + start, (uint16_t)RTE_MIN(count - start, PPPOE_PART));
	node_dispatch(graph, node, packets, next, count);
}
