// SPDX-License-Identifier: Apache-2.0
// Where PPPoE sessions are.
//
// Nearly every circuit has one PPPoE session: a direct table by port, outer and inner VLAN has its id and whose it is, in one
// word. Circuits with several (subscribers that share VLANs) have them in a map, by circuit and id.
#pragma once

#include <stdint.h>

#include "core/map64.h"
#include "core/packet.h"
#include "ether/circuit.h"

enum { PPPOE_VLANS = 4096, PPPOE_SESSION_BITS = 0x3fffffff };

// 0: no session. PPPOE_ONE, session and PPPoE session id (16 bits). PPPOE_MANY and how many there are in the map.
static const uint64_t PPPOE_ONE = 1ull << 62, PPPOE_MANY = 1ull << 63;

struct pppoe_inner {
	_Atomic uint64_t slots[PPPOE_VLANS];
};

struct pppoe_outer {
	struct pppoe_inner *_Atomic inner[PPPOE_VLANS];
};

struct pppoe_table {
	struct pppoe_outer *_Atomic ports[PORT_MAX];
	struct map64 *many;
};

// Of version 1. Another version of the header has a table of its own.
extern struct pppoe_table pppoe_sessions;

// In: the data behind Ethernet type 0x8864. Out: IP of a session, its header not checked yet, with the chain {session-up}.
extern struct node pppoe_session_node;
// In: the data behind Ethernet type 0x8863. Out: packets for the agent.
extern struct node pppoe_discovery_node;

// Key in the map: 56 bits. Never 0, except for session id 0, which no session has.
static inline uint64_t
pppoe_key(uint16_t port, uint16_t outer_vlan, uint16_t inner_vlan, uint16_t pppoe_session)
{
	return (uint64_t)port << 40 | (uint64_t)outer_vlan << 28 | (uint64_t)inner_vlan << 16 | pppoe_session;
}

// The circuit's word, or NULL if nothing was ever bound near it.
static inline const _Atomic uint64_t *
pppoe_slot(const struct pppoe_table *table, uint16_t port, uint16_t outer_vlan, uint16_t inner_vlan)
{
	const struct pppoe_outer *outer = atomic_load_explicit(&table->ports[port % PORT_MAX], memory_order_acquire);
	const struct pppoe_inner *inner =
		outer ? atomic_load_explicit(&outer->inner[outer_vlan % PPPOE_VLANS], memory_order_acquire) : NULL;

	return inner ? &inner->slots[inner_vlan % PPPOE_VLANS] : NULL;
}

// The session of an id by the circuit's word; `*many`: look it up in the map.
static inline uint32_t
pppoe_of_word(uint64_t word, uint16_t pppoe_session, bool *many)
{
	*many = (word & PPPOE_MANY) != 0;
	return (word & PPPOE_ONE) && (uint16_t)word == pppoe_session ? (uint32_t)(word >> 16) & PPPOE_SESSION_BITS
								     : NO_SESSION;
}

// Once, before any worker runs. 0 or -ENOMEM.
int pppoe_table_start(struct pppoe_table *table);
// The session, or NO_SESSION. Any thread.
uint32_t pppoe_find(const struct pppoe_table *table, const struct circuit *c, uint16_t pppoe_session);

// 0, -EEXIST, -ENOMEM.
int pppoe_table_put(struct pppoe_table *table, const struct circuit *c, uint16_t pppoe_session, uint32_t session);
// Of an id that is there: it is another session's.
void pppoe_table_replace(struct pppoe_table *table, const struct circuit *c, uint16_t pppoe_session, uint32_t session);
void pppoe_table_delete(struct pppoe_table *table, const struct circuit *c, uint16_t pppoe_session);
