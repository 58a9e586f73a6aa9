// The writer's side of the table of PPPoE sessions. Main thread; each change is one store that workers see.
#include "pppoe/table.h"

#include <errno.h>

#include "core/slab.h"
#include "session/session.h"

static_assert((unsigned)SESSION_LIMIT - 1 <= (unsigned)PPPOE_SESSION_BITS, "a session's index fits into a word");

struct pppoe_outer *_Atomic pppoe_ports[PORT_MAX];
struct map64 *pppoe_sessions;

static uint64_t
key_of(const struct circuit *c, uint16_t pppoe_session)
{
	return pppoe_key(c->port, c->outer_vlan, c->inner_vlan, pppoe_session);
}

static _Atomic uint64_t *
slot_of(const struct circuit *c)
{
	return (_Atomic uint64_t *)pppoe_slot(c->port, c->outer_vlan, c->inner_vlan);
}

// The circuit's slot, in tables made for it. Tables stay: their pages are taken as they are touched, and VLANs come again.
static _Atomic uint64_t *
make_slot(const struct circuit *c)
{
	struct pppoe_outer *outer = atomic_load(&pppoe_ports[c->port]);
	struct pppoe_inner *inner;

	if (!outer) {
		outer = slab_reserve(sizeof(*outer));
		if (!outer)
			return NULL;
		atomic_store(&pppoe_ports[c->port], outer);
	}
	if (!atomic_load(&outer->inner[c->outer_vlan])) {
		inner = slab_reserve(sizeof(*inner));
		if (!inner)
			return NULL;
		atomic_store(&outer->inner[c->outer_vlan], inner);
	}
	return slot_of(c);
}

uint32_t
pppoe_find(const struct circuit *c, uint16_t pppoe_session)
{
	const _Atomic uint64_t *slot = slot_of(c);
	uint32_t session;
	bool many;

	if (!slot)
		return NO_SESSION;
	session = pppoe_of_word(atomic_load(slot), pppoe_session, &many);
	return many ? map64_get(pppoe_sessions, key_of(c, pppoe_session)) : session;
}

int
pppoe_table_put(const struct circuit *c, uint16_t pppoe_session, uint32_t session)
{
	_Atomic uint64_t *slot = make_slot(c);
	uint64_t word, count;

	if (!slot)
		return -ENOMEM;
	if (pppoe_find(c, pppoe_session) != NO_SESSION)
		return -EEXIST;
	word = atomic_load(slot);
	if (word == 0) {
		atomic_store(slot, PPPOE_ONE | (uint64_t)session << 16 | pppoe_session);
		return 0;
	}
	if (map64_put(pppoe_sessions, key_of(c, pppoe_session), session))
		return -ENOMEM;
	count = word & ~PPPOE_MANY;
	if (word & PPPOE_ONE) {
		// The one that was alone moves into the map before the slot says to look there.
		if (map64_put(pppoe_sessions, key_of(c, (uint16_t)word), (uint32_t)(word >> 16) & PPPOE_SESSION_BITS)) {
			map64_delete(pppoe_sessions, key_of(c, pppoe_session));
			return -ENOMEM;
		}
		count = 1;
	}
	atomic_store(slot, PPPOE_MANY | (count + 1));
	return 0;
}

void
pppoe_table_replace(const struct circuit *c, uint16_t pppoe_session, uint32_t session)
{
	_Atomic uint64_t *slot = slot_of(c);

	if (atomic_load(slot) & PPPOE_ONE)
		atomic_store(slot, PPPOE_ONE | (uint64_t)session << 16 | pppoe_session);
	else
		map64_put(pppoe_sessions, key_of(c, pppoe_session), session); // the key is there: this takes no memory
}

void
pppoe_table_delete(const struct circuit *c, uint16_t pppoe_session)
{
	_Atomic uint64_t *slot = slot_of(c);
	uint64_t word;

	if (!slot || pppoe_find(c, pppoe_session) == NO_SESSION)
		return;
	word = atomic_load(slot);
	if (word & PPPOE_ONE) {
		atomic_store(slot, 0);
		return;
	}
	map64_delete(pppoe_sessions, key_of(c, pppoe_session));
	word--;
	atomic_store(slot, word == PPPOE_MANY ? 0 : word);
}
