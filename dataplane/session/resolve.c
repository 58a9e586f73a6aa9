// SPDX-License-Identifier: Apache-2.0
// Subscribers whose Ethernet address is not known yet: packets wait on the main thread while we ask by ARP (RFC 826) or
// neighbour solicitation (RFC 4861 section 7.2.2) on the session's circuit. Any packet from the subscriber answers.
#include <errno.h>
#include <string.h>

#include "core/loop.h"
#include "core/punt.h"
#include "fib/vrf.h"
#include "inet/header.h"
#include "neighbor/neighbor.h"
#include "neighbor/resolver.h"
#include "session/record.h"

INJECTED(session_out_node)

enum {
	UNRESOLVED_MAX = 4096, // sessions
	QUEUED_MAX = 8 * 4096, // packets
	POLL_NS = 10 * 1000 * 1000,
	PACKETS_A_SECOND = 20000,
	PACKETS_EACH = 200,
};

struct subscriber {
	struct resolving resolving;
	uint32_t session;
	bool gone; // the session is being deleted
};

static struct slab subscribers; // struct subscriber: as many as wait, and as many as did not answer
static uint16_t *place_of;      // by session: its place in `subscribers` plus 1, or 0

DROP(drop_session_unresolved, "session-unresolved", "The subscriber's Ethernet address could not be found out.")
DROP(drop_session_queue, "session-resolver-full", "Too many packets wait for a subscriber's Ethernet address.")
DROP(drop_session_gone, "session-gone", "The packet's session was deleted while it waited.")
DROP(drop_session_mac_unknown, "session-mac-unknown",
	"The subscriber's Ethernet address is not known, and its access has no protocol to resolve it: none is "
	"configured, and no packet came "
	"from the subscriber.")

static void wait_for(struct rte_mbuf *m);

PUNT_EACH(punt_unresolved, "session-unresolved", PACKETS_A_SECOND, PACKETS_EACH, wait_for)

uint16_t
session_resolve(struct packet *p)
{
	const struct session *s = session_at(p->session);

	if ((s->flags & SESSION_POINT) && !session_mac_known(s))
		return packet_drop(p, &drop_session_mac_unknown);
	return packet_punt(p, &punt_unresolved);
}

static struct subscriber *
subscriber_of(const struct resolving *r)
{
	return (struct subscriber *)((char *)r - offsetof(struct subscriber, resolving));
}

static void
ask_for(uint32_t session, uint8_t family, const uint8_t *address)
{
	const struct session *s = session_at(session);
	const struct link link = {.header = session_header, .index = session, .port = session_port(session)};
	uint8_t near[16] = {0}, own[16] = {0};

	if (family != 4) {
		nd_send_solicitation(&link, address, NULL);
		return;
	}
	memcpy(near, address, 4);
	// Without an address of ours it is a probe (RFC 5227 section 1.1), which is answered as well.
	vrf_local_address(s->vrf, 4, near, own);
	arp_send_request(&link, own, address, NULL);
}

// Ask for the packet's destination. A host behind a delegated prefix does not answer, so ask also for the first single address
// that the session has of each family: that is the subscriber's own equipment.
static void
ask(const struct resolving *r, const struct rte_ether_addr *mac)
{
	uint32_t session = subscriber_of(r)->session;
	const struct session_prefixes *prefixes = session_details[session].prefixes;
	const uint8_t *target = NULL;
	uint8_t family = 0, asked = 0;

	if (r->first) {
		const uint8_t *first = rte_pktmbuf_mtod(r->first, const uint8_t *);

		family = packet_of(r->first)->family;
		target = first + (family == 4 ? offsetof(struct ip4_header, destination)
					      : offsetof(struct ip6_header, destination));
		ask_for(session, family, target);
	}
	for (unsigned i = 0; prefixes && i < prefixes->count; i++) {
		const struct session_prefix *prefix = &prefixes->list[i];
		bool four = prefix->family == 4;

		if (prefix->length != (four ? 32 : 128) || (asked & 1u << prefix->family))
			continue;
		asked |= (uint8_t)(1u << prefix->family);
		if (prefix->family != family || memcmp(prefix->address, target, four ? 4 : 16) != 0)
			ask_for(session, prefix->family, prefix->address);
	}
}

static bool
needed(const struct resolving *r)
{
	return false;
}

// A subscriber's Ethernet address is in the session's record, and nowhere else.
static void
changed(struct resolving *r)
{
}

static void
send(struct resolving *r, struct rte_mbuf *m)
{
	inject(m, &session_out_node);
}

static void
fail(struct resolving *r, struct rte_mbuf *m)
{
	drop_now(m, subscriber_of(r)->gone ? &drop_session_gone : &drop_session_unresolved);
}

static void forget(struct resolving *r);

static struct resolver resolver = {
	.max_unresolved = UNRESOLVED_MAX,
	.max_queued = QUEUED_MAX,
	.queue_full = &drop_session_queue,
	.needed = needed,
	.ask = ask,
	.changed = changed,
	.send = send,
	.fail = fail,
	.forget = forget,
};

static void
forget(struct resolving *r)
{
	struct subscriber *s = subscriber_of(r);

	resolver_remove(&resolver, r);
	slab_give(&subscribers, place_of[s->session] - 1u);
	place_of[s->session] = 0;
}

static void
wait_for(struct rte_mbuf *m)
{
	uint32_t session = packet_of(m)->session, place;
	struct subscriber *s;

	if (session == NO_SESSION || !session_details[session].object) {
		drop_now(m, &drop_session_gone);
		return;
	}
	if (session_mac_known(session_at(session))) {
		inject(m, &session_out_node);
		return;
	}
	if (place_of[session] == 0) {
		place = slab_take(&subscribers);
		if (place == UINT32_MAX) {
			drop_now(m, &drop_session_queue);
			return;
		}
		s = slab_at(&subscribers, place);
		s->session = session;
		place_of[session] = (uint16_t)(place + 1);
		resolver_add(&resolver, &s->resolving);
	}
	s = slab_at(&subscribers, place_of[session] - 1u);
	resolver_wait(&resolver, &s->resolving, m);
}

static void
resolved(struct resolving *r)
{
	resolver_send(&resolver, r);
	forget(r);
}

// Workers that learn an Ethernet address from a packet send no notification.
static void
poll_waiting(void *unused)
{
	struct resolving *r, *next;

	for (r = TAILQ_FIRST(&resolver.by_state[NEIGHBOR_INCOMPLETE]); r; r = next) {
		next = TAILQ_NEXT(r, by_state);
		if (session_mac_known(session_at(subscriber_of(r)->session)))
			resolved(r);
	}
}

void
session_resolved(uint32_t index)
{
	if (place_of[index] != 0)
		resolved(&((struct subscriber *)slab_at(&subscribers, place_of[index] - 1u))->resolving);
}

void
session_unresolvable(uint32_t index)
{
	struct subscriber *s;

	if (place_of[index] == 0)
		return;
	s = slab_at(&subscribers, place_of[index] - 1u);
	s->gone = true;
	forget(&s->resolving);
}

int
session_resolve_start(void)
{
	place_of = slab_reserve(sizeof(place_of[0]) * SESSION_LIMIT);
	// One more of each kind is there until the oldest of it is given up.
	if (!place_of || slab_create(&subscribers, sizeof(struct subscriber), 2 * (UNRESOLVED_MAX + 1)))
		return -ENOMEM;
	resolver_start(&resolver);
	loop_every(POLL_NS, poll_waiting, NULL);
	return 0;
}
