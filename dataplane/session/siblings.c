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
mac_of(const struct session_detail *d)
{
	return d->has_mac ? &d->mac : NULL;
}

// The session that frames of this one's access lead to, or NO_SESSION.
static uint32_t
head_of(const struct session_detail *d)
{
	return d->pppoe_session ? session_pppoe->find(&d->circuit, d->pppoe_session)
				: circuit_session(&d->circuit, mac_of(d));
}

static void
lead_to(const struct session_detail *d, uint32_t index)
{
	if (d->pppoe_session)
		session_pppoe->rebind(&d->circuit, d->pppoe_session, index);
	else
		circuit_rebind_session(&d->circuit, mac_of(d), index);
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

	if (o->pdu_session == parsed->pdu_session)
		return fault(f, EEXIST, "access.pduSessionId: %u is Session \"%.64s\"'s on this access; choose another",
			parsed->pdu_session, session_name(other));
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
	uint32_t other = parsed->pdu_session ? head_of(&session_details[index]) : NO_SESSION;
	int error = 0;

	if (other != NO_SESSION && session_details[other].pdu_session == 0)
		return 0; // is refused when it is bound
	for (; other != NO_SESSION && error == 0; other = next_of(other))
		if (other != index)
			error = check(spec, parsed, other, f);
	return error;
}

int
session_bind(uint32_t index, struct fault *f)
{
	const struct session_detail *d = &session_details[index];
	uint32_t head = d->pdu_session ? head_of(d) : NO_SESSION;

	if (head == NO_SESSION || session_details[head].pdu_session == 0) {
		if (d->pppoe_session)
			return session_pppoe->bind(&d->circuit, d->pppoe_session, index, f);
		return circuit_bind_session(&d->circuit, mac_of(d), d->frames, index, f);
	}
	// It is the same equipment, as far as is known.
	if (session_mac_known(session_at(head)))
		session_observe(index, session_at(head)->seen);
	set_next(index, next_of(head));
	set_next(head, index);
	set_shares(head, true);
	return 0;
}

void
session_unbind(uint32_t index)
{
	const struct session_detail *d = &session_details[index];
	uint32_t head = d->pdu_session ? head_of(d) : index, before;

	if (head != index) {
		for (before = head; next_of(before) != index;)
			before = next_of(before);
		set_next(before, next_of(index));
		set_shares(head, next_of(head) != NO_SESSION);
	} else if (next_of(index) != NO_SESSION) {
		set_shares(next_of(index), next_of(next_of(index)) != NO_SESSION);
		lead_to(d, next_of(index));
	} else if (d->pppoe_session) {
		session_pppoe->unbind(&d->circuit, d->pppoe_session);
	} else {
		circuit_unbind_session(&d->circuit, mac_of(d));
	}
}
