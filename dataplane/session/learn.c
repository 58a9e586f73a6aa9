// SPDX-License-Identifier: Apache-2.0
// Which Ethernet address and which TPIDs a subscriber uses.
//
// Workers compare each packet with the record's `seen`; only a difference comes here. Several threads may change it: a thread that changes
// `seen` then updates the header and reads `seen` again, so that the header ends with the last change.
#include <string.h>

#include "ip/subscriber.h"
#include "session/header.h"
#include "session/record.h"

static const uint64_t MAC_MASK = (1ull << SESSION_MAC_BITS) - 1;

void
session_header_follow(uint32_t index)
{
	struct session *s = session_at(index);
	const struct session_detail *detail = &session_details[index];
	uint16_t length = __atomic_load_n(&s->header_length, __ATOMIC_SEQ_CST), mtu;
	uint64_t seen;

	// A session of frames is closed while it gets another header. The thread that writes the header uses `seen`.
	if (length == 0)
		return;
	do {
		seen = __atomic_load_n(&s->seen, __ATOMIC_SEQ_CST);
		session_header_destination(s->header, length, (const uint8_t *)&seen);
		session_header_tpids(
			s->header, session_tags(&detail->key), length, (uint16_t)(seen >> SESSION_MAC_BITS));
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	} while (seen != __atomic_load_n(&s->seen, __ATOMIC_SEQ_CST));
	if ((seen & MAC_MASK) == 0)
		return;
	do {
		mtu = __atomic_load_n(&detail->mtu, __ATOMIC_SEQ_CST);
		__atomic_store_n(&s->mtu, mtu, __ATOMIC_SEQ_CST);
	} while (mtu != __atomic_load_n(&detail->mtu, __ATOMIC_SEQ_CST));
}

// Whether a subscriber can have this address: it is that of a single station, and not of our port on its access.
static bool
is_a_stations(const struct session *s, uint64_t mac)
{
	uint64_t own = 0;

	memcpy(&own, &ports[s->port].mac, RTE_ETHER_ADDR_LEN);
	return mac != 0 && !(mac & 1) && mac != own;
}

// Packets with either of its Ethernet addresses are on their way while a session gets another.
static bool
may_have(const struct session_move *move, uint64_t mac)
{
	return move && (mac == move->macs[0] || mac == move->macs[1]);
}

bool
session_observe(uint32_t index, uint64_t seen)
{
	struct session *s = session_at(index);
	struct session_detail *detail = &session_details[index];
	uint64_t known = __atomic_load_n(&s->seen, __ATOMIC_SEQ_CST);

	do {
		if (!(__atomic_load_n(&s->flags, __ATOMIC_ACQUIRE) & SESSION_LEARNS_MAC) &&
			((seen ^ known) & MAC_MASK) != 0)
			return may_have(__atomic_load_n(&detail->moving, __ATOMIC_ACQUIRE), seen & MAC_MASK);
		if (seen == known)
			return true;
		if (((seen ^ known) & MAC_MASK) != 0 && !is_a_stations(s, seen & MAC_MASK))
			return false;
	} while (!__atomic_compare_exchange_n(&s->seen, &known, seen, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
	// The end of the move reads `seen` after that.
	if (!__atomic_load_n(&detail->moving, __ATOMIC_SEQ_CST))
		session_header_follow(index);
	return true;
}

void
session_learn(uint32_t index, const uint8_t mac[6])
{
	const struct session *s = session_at(index);
	uint64_t word = 0;

	memcpy(&word, mac, RTE_ETHER_ADDR_LEN);
	if (!is_a_stations(s, word) || !session_details[index].object)
		return;
	word |= __atomic_load_n(&s->seen, __ATOMIC_RELAXED) & ~MAC_MASK;
	if (session_observe(index, word) && worker_self()->index == worker_count)
		session_resolved(index);
}

static bool
may_have_mac(uint32_t index, const uint8_t mac[6])
{
	const struct session *s = session_at(index);
	uint64_t word = 0;

	memcpy(&word, mac, RTE_ETHER_ADDR_LEN);
	if (__atomic_load_n(&s->flags, __ATOMIC_ACQUIRE) & SESSION_LEARNS_MAC)
		return is_a_stations(s, word);
	return word == (__atomic_load_n(&s->seen, __ATOMIC_RELAXED) & MAC_MASK) ||
	       may_have(__atomic_load_n(&session_details[index].moving, __ATOMIC_ACQUIRE), word);
}

static void
about(uint32_t index, struct subscriber *s)
{
	const struct session *record = session_at(index);

	*s = (struct subscriber){
		.vrf = record->vrf,
		.any_source = record->flags & SESSION_ANY_SOURCE,
		.proxied = record->flags & SESSION_PROXY_ARP,
		.point_to_point = record->flags & SESSION_POINT,
		.tunnelled = session_details[index].has_core,
	};
}

static uint32_t
chain_up(uint32_t index, uint8_t family)
{
	return family == 4 ? session_at(index)->up4 : session_at(index)->up6;
}

static const struct subscribers our_subscribers = {
	.about = about,
	.whose = session_sibling_of,
	.learn = session_learn,
	.may_have = may_have_mac,
	.chain_up = chain_up,
	.down = &session_down_node,
};
RTE_INIT(register_subscribers)
{
	subscribers = &our_subscribers;
}

unsigned
session_header(uint32_t index, const struct rte_ether_addr *destination, uint16_t type, uint8_t room[32])
{
	const struct session_detail *detail = &session_details[index];
	const struct session_move *move = session_leaving(detail);
	const struct session *s = move ? &move->record : session_at(index);
	const struct session_key *key = move ? &move->key : &detail->key;
	struct session_header header = {
		.destination = *destination,
		.outer_tpid = RTE_BE16(0x8100),
		.inner_tpid = RTE_BE16(0x8100),
		.outer_vlan = key->circuit.outer_vlan,
		.inner_vlan = key->circuit.inner_vlan,
		.behind = {(uint8_t)(type >> 8), (uint8_t)type},
		.behind_length = sizeof(type),
	};
	unsigned length;

	memcpy(&header.source, s->header + SESSION_HEADER_ROOM - s->header_length + RTE_ETHER_ADDR_LEN,
		RTE_ETHER_ADDR_LEN);
	length = session_header_write(&header, room);
	session_header_tpids(room, session_tags(key), length, (uint16_t)(s->seen >> SESSION_MAC_BITS));
	return length;
}
