// SPDX-License-Identifier: Apache-2.0
// Several PDU sessions of one subscriber (TS 23.501 section 5.6.1): the frames of an access lead to one of them, and the others are
// in a list behind it. The source address of an uplink packet decides which session it belongs to.
//
// The main thread changes the list, by one store at a time; workers walk it. A session that has gone still leads on, as long as there
// may be a worker on it (core/rcu.h).
#include "session/record.h"

#include <errno.h>
#include <string.h>

#include "ether/circuit.h"
#include "session/find.h"

static uint32_t
next_of(uint32_t index)
{
	return __atomic_load_n(&session_details[index].sibling, __ATOMIC_ACQUIRE);
}

static void
set_next(uint32_t index, uint32_t next)
{
	__atomic_store_n(&session_details[index].sibling, next, __ATOMIC_RELEASE);
}

static void
set_shares(uint32_t index, bool shares)
{
	struct session *s = session_at(index);

	__atomic_store_n(
		&s->flags, (uint8_t)((s->flags & ~SESSION_SHARES) | (shares ? SESSION_SHARES : 0)), __ATOMIC_RELEASE);
}

bool
session_same_access(const struct session_key *a, const struct session_key *b)
{
	return a->access == b->access && a->access->same(a, b);
}

// The session that frames of the access lead to, or NO_SESSION.
static uint32_t
head_of(const struct session_key *key)
{
	return key->access->find(key);
}

static void
lead_to(const struct session_key *key, uint32_t index)
{
	key->access->rebind(key, index);
}

// A move of the session ends before others share its access.
static void
settle_all(uint32_t head)
{
	for (; head != NO_SESSION; head = next_of(head))
		session_settle(head);
}

uint32_t
session_sibling_of(uint32_t head, uint8_t family, const uint8_t *address)
{
	uint32_t index = head;

	// No longer than there are numbers of PDU sessions, though the list may change meanwhile.
	for (unsigned i = 0; index != NO_SESSION && i <= PDU_SESSION_MAX; i++) {
		if (session_holds(index, family, address))
			return index;
		index = next_of(index);
	}
	return NO_SESSION;
}

static bool
overlap(const struct session_prefix *a, const struct session_prefix *b)
{
	struct session_prefix wide = *a;

	wide.length = RTE_MIN(a->length, b->length);
	return session_prefix_has(&wide, b->family, b->address);
}

// The new session and one of the same access.
static int
check(const Sluice__V1__Session *spec, const struct session_spec *parsed, uint32_t other, struct fault *f)
{
	const struct session_detail *o = &session_details[other];

	if (o->key.pdu_session == parsed->key.pdu_session)
		return fault(f, EEXIST, "access.pduSessionId: %u is Session \"%.64s\"'s on this access; choose another",
			parsed->key.pdu_session, session_name(other));
	for (unsigned i = 0; i < parsed->prefix_count; i++)
		for (unsigned j = 0; o->prefixes && j < o->prefixes->count; j++)
			if (overlap(&parsed->prefixes[i], &o->prefixes->list[j]))
				return fault(f, EEXIST,
					"addresses[%u]: \"%.48s\" has addresses of Session \"%.64s\"'s on the same "
					"access; "
					"the source of a packet selects the session, so remove it from one of the two",
					i, spec->addresses[i], session_name(other));
	return 0;
}

int
session_apart(uint32_t index, const Sluice__V1__Session *spec, const struct session_spec *parsed, struct fault *f)
{
	const struct session_detail *d = &session_details[index];
	uint32_t other = parsed->key.pdu_session ? head_of(&parsed->key) : NO_SESSION;
	int error = 0;

	if (parsed->key.pdu_session == 0 && d->object && d->key.pdu_session &&
		session_same_access(&d->key, &parsed->key)) {
		other = head_of(&d->key) == index ? next_of(index) : head_of(&d->key);
		return other == NO_SESSION ? 0
					   : fault(f, EEXIST,
						     "access.pduSessionId: Session \"%.64s\" is on this access, too; "
						     "choose a number",
						     session_name(other));
	}
	settle_all(other);
	if (other != NO_SESSION && session_details[other].key.pdu_session == 0)
		return 0; // is refused when it is bound
	for (; other != NO_SESSION && error == 0; other = next_of(other))
		if (other != index)
			error = check(spec, parsed, other, f);
	return error;
}

// Name the session that has the refused key, if there is one.
static int
taken(int error, const struct session_key *key, uint32_t index, struct fault *f)
{
	const struct session_access *access = key->access;
	uint32_t other = error == -EEXIST && access->taker ? access->taker(key) : NO_SESSION;

	if (other == NO_SESSION || other == index)
		return error;
	if (session_details[other].key.has_mac)
		return fault(
			f, EEXIST, "access.mac: Session \"%.64s\" has it on these VLANs already", session_name(other));
	return fault(f, EEXIST,
		"access: Session \"%.64s\" has these VLANs already; with a mac or a pduSessionId, sessions can share "
		"them",
		session_name(other));
}

static int
bind_alone(uint32_t index, const struct session_key *key, const struct session_key *old, struct fault *f)
{
	const struct session_access *access = key->access;
	bool alone = old && old->access == access && circuit_same(&old->circuit, &key->circuit) &&
		     head_of(old) == index && next_of(index) == NO_SESSION;

	return taken(access->bind(key, index, session_details[index].frames, alone, f), key, index, f);
}

int
session_bind(uint32_t index, const struct session_key *key, const struct session_key *old, struct fault *f)
{
	uint32_t head = key->pdu_session ? head_of(key) : NO_SESSION, last;
	int error;

	if (head == NO_SESSION || session_details[head].key.pdu_session == 0) {
		error = bind_alone(index, key, old, f);
		if (error == 0)
			session_index_add(index, &key->circuit);
		return error;
	}
	session_index_add(index, &key->circuit);
	// It is the same equipment, as far as is known.
	if (!old && session_mac_known(session_at(head)))
		session_observe(index, session_at(head)->seen);
	// Append, so that the leaving record still leads to the others.
	for (last = head; next_of(last) != NO_SESSION;)
		last = next_of(last);
	set_next(last, index);
	set_shares(head, true);
	return 0;
}

void
session_unbind(uint32_t index, const struct session_key *key)
{
	uint32_t head = key->pdu_session ? head_of(key) : index, before;

	session_index_remove(index, &key->circuit);
	if (head != index) {
		for (before = head; next_of(before) != index;)
			before = next_of(before);
		set_next(before, next_of(index));
		set_shares(head, next_of(head) != NO_SESSION);
	} else if (next_of(index) != NO_SESSION) {
		set_shares(next_of(index), next_of(next_of(index)) != NO_SESSION);
		lead_to(key, next_of(index));
	} else {
		key->access->unbind(key);
	}
}

void
session_apart_ended(uint32_t index)
{
	set_next(index, NO_SESSION);
	set_shares(index, false);
}
