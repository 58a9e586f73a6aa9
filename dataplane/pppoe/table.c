// SPDX-License-Identifier: Apache-2.0
// The writer's side of the table of PPPoE sessions. Main thread; each change is one store that workers see.
#include "pppoe/table.h"

#include <errno.h>

#include "core/slab.h"
#include "session/session.h"

static_assert((unsigned)SESSION_LIMIT - 1 <= (unsigned)PPPOE_SESSION_BITS, "a session's index fits into a word");

struct pppoe_table pppoe_sessions;

static uint64_t
key_of(const struct circuit *c, uint16_t pppoe_session)
{
	return pppoe_key(c->port, c->outer_vlan, c->inner_vlan, pppoe_session);
}

static _Atomic uint64_t *
slot_of(const struct pppoe_table *table, const struct circuit *c)
{
	return (_Atomic uint64_t *)pppoe_slot(table, c->port, c->outer_vlan, c->inner_vlan);
}

// The circuit's slot, in tables made for it. Tables stay: their pages are taken as they are touched, and VLANs come again.
static _Atomic uint64_t *
make_slot(struct pppoe_table *table, const struct circuit *c)
{
	struct pppoe_outer *outer = atomic_load(&table->ports[c->port]);
	struct pppoe_inner *inner;

	if (!outer) {
		outer = slab_reserve(sizeof(*outer));
		if (!outer)
			return NULL;
		atomic_store(&table->ports[c->port], outer);
	}
	if (!atomic_load(&outer->inner[c->outer_vlan])) {
		inner = slab_reserve(sizeof(*inner));
		if (!inner)
			return NULL;
		atomic_store(&outer->inner[c->outer_vlan], inner);
	}
	return slot_of(table, c);
}

int
pppoe_table_start(struct pppoe_table *table)
{
	table->many = map64_create();
	return table->many ? 0 : -ENOMEM;
}

uint32_t
pppoe_find(const struct pppoe_table *table, const struct circuit *c, uint16_t pppoe_session)
{
	const _Atomic uint64_t *slot = slot_of(table, c);
	uint32_t session;
	bool many;

	if (!slot)
		return NO_SESSION;
	session = pppoe_of_word(atomic_load(slot), pppoe_session, &many);
	return many ? map64_get(table->many, key_of(c, pppoe_session)) : session;
}

int
pppoe_table_put(struct pppoe_table *table, const struct circuit *c, uint16_t pppoe_session, uint32_t session)
{
	_Atomic uint64_t *slot = make_slot(table, c);
	uint64_t word, count;

	if (!slot)
		return -ENOMEM;
	if (pppoe_find(table, c, pppoe_session) != NO_SESSION)
		return -EEXIST;
	word = atomic_load(slot);
	if (word == 0) {
		atomic_store(slot, PPPOE_ONE | (uint64_t)session << 16 | pppoe_session);
		return 0;
	}
	if (map64_put(table->many, key_of(c, pppoe_session), session))
		return -ENOMEM;
	count = word & ~PPPOE_MANY;
	if (word & PPPOE_ONE) {
		// The single session moves into the map before the slot refers to the map.
		if (map64_put(table->many, key_of(c, (uint16_t)word), (uint32_t)(word >> 16) & PPPOE_SESSION_BITS)) {
			map64_delete(table->many, key_of(c, pppoe_session));
			return -ENOMEM;
		}
		count = 1;
	}
	atomic_store(slot, PPPOE_MANY | (count + 1));
	return 0;
}

void
pppoe_table_replace(struct pppoe_table *table, const struct circuit *c, uint16_t pppoe_session, uint32_t session)
{
	_Atomic uint64_t *slot = slot_of(table, c);

	if (atomic_load(slot) & PPPOE_ONE)
		atomic_store(slot, PPPOE_ONE | (uint64_t)session << 16 | pppoe_session);
	else
		map64_put(table->many, key_of(c, pppoe_session), session); // the key is there: this takes no memory
}

void
pppoe_table_delete(struct pppoe_table *table, const struct circuit *c, uint16_t pppoe_session)
{
	_Atomic uint64_t *slot = slot_of(table, c);
	uint64_t word;

	if (!slot || pppoe_find(table, c, pppoe_session) == NO_SESSION)
		return;
	word = atomic_load(slot);
	if (word & PPPOE_ONE) {
		atomic_store(slot, 0);
		return;
	}
	map64_delete(table->many, key_of(c, pppoe_session));
	word--;
	atomic_store(slot, word == PPPOE_MANY ? 0 : word);
}
