// SPDX-License-Identifier: Apache-2.0
// A session gets another access key under traffic: make before break.
//
// Both keys lead to the session before the old one is removed, so packets that arrive by either are its own. To the
// subscriber the header, its length and the port must change as one, and workers read them without a lock. So packets
// leave by a copy with the new values as long as a worker may be reading the record. The gate to the record (an MTU
// of 0; for sessions of frames, a header without a length) sends them there; an open gate costs nothing. When all
// workers have begun a new round (core/rcu.h), the main thread writes the record and opens the gate. Everything else
// of the session stays where it is: counters, token buckets, queues, tunnel.
#include <stdlib.h>
#include <string.h>

#include "core/rcu.h"
#include "session/header.h"
#include "session/record.h"

static const uint64_t MAC_MASK = (1ull << SESSION_MAC_BITS) - 1;

struct session_move *
session_move_new(uint32_t index, const struct session_plan *w)
{
	struct session_detail *d = &session_details[index];
	uint64_t seen = __atomic_load_n(&session_at(index)->seen, __ATOMIC_SEQ_CST);
	struct session_move *move = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*move));
	struct session_key shown = w->spec.key;
	uint16_t tpids = (uint16_t)(seen >> SESSION_MAC_BITS);

	static_assert(sizeof(*move) % RTE_CACHE_LINE_SIZE == 0, "as aligned_alloc() wants it");
	if (!move)
		return NULL;
	*move = (struct session_move){.key = w->spec.key, .session = index};
	// It is the same subscriber: its learned address holds until a packet shows another one.
	if (!shown.has_mac)
		memcpy(&shown.mac, &seen, sizeof(shown.mac));
	if (session_tags(&shown) != session_tags(&d->key))
		tpids = session_usual_tpids(&shown);
	session_write_header(&move->record, &shown, tpids);
	move->macs[0] = seen & MAC_MASK;
	move->macs[1] = move->record.seen & MAC_MASK;
	__atomic_store_n(&d->moving, move, __ATOMIC_SEQ_CST);
	return move;
}

void
session_move_abandon(struct session_move *move)
{
	__atomic_store_n(&session_details[move->session].moving, NULL, __ATOMIC_SEQ_CST);
	session_header_follow(move->session);
	rcu_retire(free, move);
}

static void
shut(struct session *s, bool frames)
{
	if (frames)
		__atomic_store_n(&s->header_length, 0, __ATOMIC_SEQ_CST);
	else
		__atomic_store_n(&s->mtu, 0, __ATOMIC_SEQ_CST);
}

// A thread that learned an Ethernet address while the gate was closed may have opened it again.
static bool
is_shut(const struct session *s, bool frames)
{
	return frames || __atomic_load_n(&s->mtu, __ATOMIC_SEQ_CST) == 0;
}

void
session_move_start(struct session_move *move)
{
	struct session *s = session_at(move->session);
	const struct session_detail *d = &session_details[move->session];
	uint64_t known = __atomic_load_n(&s->seen, __ATOMIC_SEQ_CST), seen;

	do {
		seen = move->key.has_mac ? move->record.seen & MAC_MASK : known & MAC_MASK;
		seen |= session_tags(&move->key) == session_tags(&d->key) ? known & ~MAC_MASK
									  : move->record.seen & ~MAC_MASK;
	} while (!__atomic_compare_exchange_n(&s->seen, &known, seen, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	__atomic_store_n(&move->live, true, __ATOMIC_SEQ_CST);
	shut(s, d->frames);
}

// No worker reads the record now.
static void
arrive(struct session_move *move)
{
	struct session *s = session_at(move->session);
	struct session_detail *d = &session_details[move->session];

	memcpy(s->header, move->record.header, sizeof(s->header));
	s->port = move->record.port;
	s->access = move->record.access;
	d->key = move->key;
	if (move->apart)
		session_apart_ended(move->session);
	__atomic_store_n(&s->header_length, move->record.header_length, __ATOMIC_RELEASE);
	session_header_follow(move->session);
	__atomic_store_n(&d->moving, NULL, __ATOMIC_SEQ_CST);
	// Changes of `seen` in the meantime are applied here.
	session_header_follow(move->session);
}

void
session_move_end(void *memory)
{
	struct session_move *move = memory;
	const struct session_detail *d = &session_details[move->session];

	if (d->moving == move) {
		if (!is_shut(session_at(move->session), d->frames)) {
			shut(session_at(move->session), d->frames);
			rcu_retire(session_move_end, move);
			return;
		}
		arrive(move);
	}
	// Packets may still leave by it.
	rcu_retire(free, move);
}

void
session_settle(uint32_t index)
{
	struct session *s = session_at(index);
	struct session_detail *d = &session_details[index];

	if (!d->moving)
		return;
	rcu_wait();
	while (!is_shut(s, d->frames)) {
		shut(s, d->frames);
		rcu_wait();
	}
	arrive(d->moving);
}

uint16_t
session_port(uint32_t index)
{
	const struct session_move *move = session_leaving(&session_details[index]);

	return move ? move->record.port : session_at(index)->port;
}
