// Several PDU sessions of one subscriber (TS 23.501 section 5.6.1): the frames of an access lead to one of them, and the others hang
// on it in a list. Whose an uplink packet is, its source tells.
//
// The main thread changes the list, by one store at a time; workers walk it. A session that has gone still leads on, as long as there
// may be a worker on it (core/rcu.h).
#include "session/record.h"

#include <errno.h>
#include <string.h>

#include "ether/circuit.h"

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

static const struct rte_ether_addr *
mac_of(const struct session_key *key)
{
	return key->has_mac ? &key->mac : NULL;
}

static bool
same_circuit(const struct circuit *a, const struct circuit *b)
{
	return a->port == b->port && a->outer_vlan == b->outer_vlan && a->inner_vlan == b->inner_vlan;
}

// Of a PPPoE session the MAC is no part of what it is found by.
bool
session_same_access(const struct session_key *a, const struct session_key *b)
{
	return same_circuit(&a->circuit, &b->circuit) && a->pppoe_session == b->pppoe_session &&
	       (a->pppoe_session ||
		       (a->has_mac == b->has_mac && (!a->has_mac || rte_is_same_ether_addr(&a->mac, &b->mac))));
}

// The session that frames of the access lead to, or NO_SESSION.
static uint32_t
head_of(const struct session_key *key)
{
	return key->pppoe_session ? session_pppoe->find(&key->circuit, key->pppoe_session)
				  : circuit_session(&key->circuit, mac_of(key));
}

static void
lead_to(const struct session_key *key, uint32_t index)
{
	if (key->pppoe_session)
		session_pppoe->rebind(&key->circuit, key->pppoe_session, index);
	else
		circuit_rebind_session(&key->circuit, mac_of(key), index);
}

// Whoever is on his way to or from the access arrives before others are put beside him.
static void
settle_all(uint32_t head)
{
	for (; head != NO_SESSION; head = next_of(head))
		session_settle(head);
}

uint32_t
session_whose(uint32_t head, uint8_t family, const uint8_t *address)
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
					"packets are told apart by them, so take it out of one of the two",
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

// Names the session that has what was refused, if it is one.
static int
taken(int error, const struct session_key *key, uint32_t index, struct fault *f)
{
	uint32_t other = error == -EEXIST ? circuit_taker(&key->circuit, mac_of(key)) : NO_SESSION;

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
	const struct session_detail *d = &session_details[index];
	bool alone = old && !old->pppoe_session && same_circuit(&old->circuit, &key->circuit) &&
		     head_of(old) == index && next_of(index) == NO_SESSION;

	if (key->pppoe_session)
		return session_pppoe->bind(&key->circuit, key->pppoe_session, index, f);
	return taken(circuit_bind_session(&key->circuit, mac_of(key), d->frames, index, alone, f), key, index, f);
}

int
session_bind(uint32_t index, const struct session_key *key, const struct session_key *old, struct fault *f)
{
	uint32_t head = key->pdu_session ? head_of(key) : NO_SESSION, last;

	if (head == NO_SESSION || session_details[head].key.pdu_session == 0)
		return bind_alone(index, key, old, f);
	// It is the same equipment, as far as is known.
	if (!old && session_mac_known(session_at(head)))
		session_observe(index, session_at(head)->seen);
	// As the last, so that it may still lead on to those whom it leaves.
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

	if (head != index) {
		for (before = head; next_of(before) != index;)
			before = next_of(before);
		set_next(before, next_of(index));
		set_shares(head, next_of(head) != NO_SESSION);
	} else if (next_of(index) != NO_SESSION) {
		set_shares(next_of(index), next_of(next_of(index)) != NO_SESSION);
		lead_to(key, next_of(index));
	} else if (key->pppoe_session) {
		session_pppoe->unbind(&key->circuit, key->pppoe_session);
	} else {
		circuit_unbind_session(&key->circuit, mac_of(key));
	}
}

void
session_apart_ended(uint32_t index)
{
	set_next(index, NO_SESSION);
	set_shares(index, false);
}
