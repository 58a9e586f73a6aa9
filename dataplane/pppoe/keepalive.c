// SPDX-License-Identifier: Apache-2.0
// Asks the peers of PPPoE sessions for an LCP echo, on the main thread: sessions hang in the slots of a timing wheel by when they are due.
//
// A packet costs nothing for it. A peer that sent IP packets since the last look, by the session's counters, is there
// and is not asked. A peer that left the session's number of Echo-Requests in a row unanswered is lost: the agent
// gets the Echo-Request, as lcp-peer-lost, and gets it again each time until it ends the session or the peer answers.
// So it need not be there when it happens.
#include "pppoe/keepalive.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_random.h>

#include "core/loop.h"
#include "core/punt.h"
#include "core/slab.h"
#include "port/port.h"
#include "pppoe/echo.h"
#include "pppoe/header.h"
#include "session/record.h"

INJECTED(tx_node)

enum {
	SLOTS = 1024,
	LOST_A_SECOND = 20000,
	FAILURES_DEFAULT = 3,
	NS_PER_MS = 1000000,
	TICKS_BEHIND = 50, // more are left out: the main thread stood still
	ECHO_REQUEST = 9,
	LCP_LENGTH = 8,
	ETHERNET_ROOM = 32,
};

PUNT(punt_lost, "lcp-peer-lost", LOST_A_SECOND, NULL)

// Of a session.
struct peer {
	uint32_t next, previous; // in its slot: sessions, or NO_SESSION
	uint32_t ticks;          // between two looks; 0: it is not asked
	uint32_t rounds;         // of the wheel until it is due
	uint16_t slot;
	uint8_t failures, unanswered, id;
	uint64_t packets; // from the subscriber, when it was looked at last
};

enum { UNASKED, ASKED, HEARD };

bool keepalive_by_hand;

static struct peer *peers;
static _Atomic uint8_t *heard; // by session
static uint32_t slots[SLOTS];
static unsigned hand;
static uint64_t turned; // TSC

// ---- The wheel.

static void
take_out(uint32_t session)
{
	struct peer *p = &peers[session];

	if (p->previous == NO_SESSION)
		slots[p->slot] = p->next;
	else
		peers[p->previous].next = p->next;
	if (p->next != NO_SESSION)
		peers[p->next].previous = p->previous;
}

static void
put_in(uint32_t session, uint32_t ticks)
{
	struct peer *p = &peers[session];

	p->slot = (uint16_t)((hand + ticks) % SLOTS);
	p->rounds = (ticks - 1) / SLOTS;
	p->previous = NO_SESSION;
	p->next = slots[p->slot];
	if (p->next != NO_SESSION)
		peers[p->next].previous = session;
	slots[p->slot] = session;
}

static void
stop(uint32_t session)
{
	if (peers[session].ticks == 0)
		return;
	take_out(session);
	peers[session].ticks = 0;
	atomic_store(&heard[session], UNASKED);
}

static uint64_t
packets_from(uint32_t session)
{
	struct session_counters sum;

	counters_sum(&session_counters, session, &sum);
	return sum.packets[UP];
}

static void
begin(uint32_t session, uint32_t ticks, uint8_t failures)
{
	struct peer *p = &peers[session];

	p->failures = failures;
	if (p->ticks == ticks)
		return;
	stop(session);
	*p = (struct peer){.ticks = ticks, .failures = failures, .packets = packets_from(session)};
	atomic_store(&heard[session], ASKED);
	// Many sessions come up at once.
	put_in(session, ticks / 2 + 1 + (uint32_t)rte_rand_max(ticks / 2 + 1));
}

// ---- Sent packets.

// The Echo-Request as it is on the wire, or NULL: no buffer is free, or the peer's MAC is not known yet.
static struct rte_mbuf *
echo_request(uint32_t session)
{
	const struct session *s = session_at(session);
	const uint64_t *own = session_details[session].key.own;
	uint16_t id = (uint16_t)own[PPPOE_OWN_ID];
	uint32_t magic = (uint32_t)own[PPPOE_OWN_MAGIC];
	uint64_t seen = __atomic_load_n(&s->seen, __ATOMIC_RELAXED);
	uint8_t room[ETHERNET_ROOM], rest[PPPOE_HEADER + PPP_PROTOCOL + LCP_LENGTH];
	struct rte_ether_addr mac;
	struct rte_mbuf *m;
	unsigned length;

	if (!session_mac_known(s))
		return NULL;
	m = packet_new();
	if (!m)
		return NULL;
	memcpy(&mac, &seen, sizeof(mac));
	length = session_header(session, &mac, RTE_ETHER_TYPE_PPPOE_SESSION, room);
	memcpy(rest,
		(uint8_t[]){PPPOE_VERSION_TYPE, PPPOE_SESSION_DATA, (uint8_t)(id >> 8), (uint8_t)id, 0,
			PPP_PROTOCOL + LCP_LENGTH, PPP_LCP >> 8, PPP_LCP & 0xff, ECHO_REQUEST, ++peers[session].id, 0,
			LCP_LENGTH, (uint8_t)(magic >> 24), (uint8_t)(magic >> 16), (uint8_t)(magic >> 8),
			(uint8_t)magic},
		sizeof(rest));
	memcpy(rte_pktmbuf_append(m, (uint16_t)length), room + sizeof(room) - length, length);
	memcpy(rte_pktmbuf_append(m, sizeof(rest)), rest, sizeof(rest));
	packet_of(m)->flags = PACKET_OURS;
	packet_of(m)->session = session;
	packet_of(m)->direction = DOWN;
	m->port = session_port(session);
	packet_of(m)->port = m->port;
	return m;
}

static void
report(uint32_t session)
{
	struct rte_mbuf *m = echo_request(session);

	if (!m)
		return;
	packet_of(m)->punt = punt_lost.id;
	punt_to_watcher(m);
}

static void
look(uint32_t session)
{
	struct peer *p = &peers[session];
	uint64_t packets = packets_from(session);
	bool answered = atomic_exchange(&heard[session], ASKED) == HEARD, talks = packets != p->packets;
	struct rte_mbuf *m;

	p->packets = packets;
	if (answered || talks)
		p->unanswered = 0;
	if (talks)
		return;
	if (p->unanswered >= p->failures)
		report(session);
	m = echo_request(session);
	if (!m)
		return;
	p->unanswered = (uint8_t)RTE_MIN(p->unanswered + 1, UINT8_MAX);
	inject(m, &tx_node);
}

void
keepalive_tick(void)
{
	uint32_t next;

	hand = (hand + 1) % SLOTS;
	for (uint32_t session = slots[hand]; session != NO_SESSION; session = next) {
		struct peer *p = &peers[session];

		next = p->next;
		if (p->rounds > 0) {
			p->rounds--;
			continue;
		}
		take_out(session);
		put_in(session, p->ticks);
		look(session);
	}
}

static void
turn(void *unused)
{
	uint64_t tick = rte_get_tsc_hz() / 1000 * KEEPALIVE_TICK_MS, now = rte_rdtsc();

	if (turned == 0 || now - turned > TICKS_BEHIND * tick)
		turned = now - tick;
	for (; now - turned >= tick && !keepalive_by_hand; turned += tick)
		keepalive_tick();
}

bool
keepalive_answered(uint32_t session)
{
	uint8_t state = atomic_load_explicit(&heard[session], memory_order_relaxed);

	// Unless the main thread has just ended it.
	return state != UNASKED &&
	       (state == HEARD || atomic_compare_exchange_strong(&heard[session], &state, HEARD) || state == HEARD);
}

int
keepalive_start(void)
{
	peers = slab_reserve(sizeof(*peers) * SESSION_LIMIT);
	heard = slab_reserve(sizeof(*heard) * SESSION_LIMIT);
	if (!peers || !heard)
		return -ENOMEM;
	for (unsigned i = 0; i < SLOTS; i++)
		slots[i] = NO_SESSION;
	loop_every((uint64_t)KEEPALIVE_TICK_MS * NS_PER_MS, turn, NULL);
	return 0;
}

// ---- The step of sessions that ask. No chain has a node of it.

struct part {
	uint32_t session; // NO_SESSION: not known yet
	uint32_t ticks;   // 0: it does not ask
	uint8_t failures;
};

static int
need(const Sluice__V1__Session *spec, void *part, struct fault *f)
{
	struct part *p = part;
	uint64_t interval = spec->access ? spec->access->lcp_echo_interval : 0;

	p->session = NO_SESSION;
	if (interval == 0)
		return 0;
	if (spec->access->lcp_magic == 0)
		return fault(f, EINVAL, "access.lcpEchoInterval: it needs access.lcpMagic, which Echo-Requests carry");
	p->ticks = (uint32_t)(interval / ((uint64_t)KEEPALIVE_TICK_MS * NS_PER_MS));
	p->failures = (uint8_t)(spec->access->lcp_echo_failures ? spec->access->lcp_echo_failures : FAILURES_DEFAULT);
	return 0;
}

static const char *
field(const void *part, enum direction direction)
{
	return NULL;
}

static int
prepare(const struct session_step_change *change, const void *had, void *part, struct fault *f)
{
	((struct part *)part)->session = change->session;
	return 0;
}

// A session that was not made after all, though its part was published.
static void
abandon(const void *had, void *part)
{
	const struct part *p = part;

	if (p->session != NO_SESSION && ((const struct part *)had)->ticks == 0)
		stop(p->session);
}

static void
publish(uint32_t session, const void *part)
{
	const struct part *p = part;

	if (p->ticks)
		begin(session, p->ticks, p->failures);
	else
		stop(session);
}

static void
release(uint32_t session, const void *had, const void *now, bool deleted)
{
	if (deleted)
		stop(session);
}

static struct session_step keepalive_step = {
	.order = {.name = "keepalive"},
	.size = sizeof(struct part),
	.need = need,
	.field = field,
	.prepare = prepare,
	.abandon = abandon,
	.publish = publish,
	.release = release,
};
SESSION_STEP_REGISTER(keepalive_step)
