// SPDX-License-Identifier: Apache-2.0
// Ethernet addresses that packets wait for: queues, timers and limits (RFC 4861 sections 7.2.2 and 7.3).
#include "neighbor/resolver.h"

#include <time.h>

#include "core/loop.h"
#include "core/packet.h"
#include "core/punt.h"

enum {
	TICK = 20 * 1000 * 1000, // nanoseconds
	AT_ONCE = 256,           // deadlines looked after in a tick, by state
};

static struct packet_slot next_slot = {.name = "resolver", .size = sizeof(struct rte_mbuf *)};
PACKET_SLOT_REGISTER(next_slot)

static struct rte_mbuf **
next_of(struct rte_mbuf *m)
{
	return packet_slot(m, &next_slot);
}

static uint64_t
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void
leave(struct resolver *resolver, struct resolving *r, uint8_t state)
{
	TAILQ_REMOVE(&resolver->by_state[state], r, by_state);
	resolver->counts[state]--;
}

static void
enter(struct resolver *resolver, struct resolving *r)
{
	TAILQ_INSERT_TAIL(&resolver->by_state[r->entry.state], r, by_state);
	resolver->counts[r->entry.state]++;
}

void
resolver_add(struct resolver *resolver, struct resolving *r)
{
	r->entry.deadline = UINT64_MAX;
	enter(resolver, r);
}

void
resolver_remove(struct resolver *resolver, struct resolving *r)
{
	resolver_fail(resolver, r);
	leave(resolver, r, r->entry.state);
}

void
resolver_set(
	struct resolver *resolver, struct resolving *r, enum neighbor_state state, const struct rte_ether_addr *mac)
{
	leave(resolver, r, r->entry.state);
	r->entry = (struct neighbor_entry){.deadline = UINT64_MAX, .state = (uint8_t)state};
	if (mac)
		r->entry.mac = *mac;
	enter(resolver, r);
	resolver->changed(r);
}

static void
empty(struct resolver *resolver, struct resolving *r, void (*each)(struct resolving *r, struct rte_mbuf *m))
{
	struct rte_mbuf *m = r->first, *next;

	resolver->queued -= r->queued;
	r->queued = 0;
	r->first = r->last = NULL;
	for (; m; m = next) {
		next = *next_of(m);
		each(r, m);
	}
}

void
resolver_send(struct resolver *resolver, struct resolving *r)
{
	empty(resolver, r, resolver->send);
}

void
resolver_fail(struct resolver *resolver, struct resolving *r)
{
	empty(resolver, r, resolver->fail);
}

// Too many entries are unresolved (a scan of a network): drop the oldest.
static void
bound(struct resolver *resolver, enum neighbor_state state)
{
	struct resolving *r;

	if (resolver->counts[state] <= resolver->max_unresolved)
		return;
	r = TAILQ_FIRST(&resolver->by_state[state]);
	if (!resolver->needed(r)) {
		resolver->forget(r);
		return;
	}
	resolver_set(resolver, r, NEIGHBOR_NONE, NULL);
	resolver_fail(resolver, r);
}

void
resolver_event(
	struct resolver *resolver, struct resolving *r, enum neighbor_event event, const struct neighbor_advert *advert)
{
	struct neighbor_entry before = r->entry;
	unsigned actions;
	bool moved;

	// Probe a needed neighbour that did not answer.
	if (event == NEIGHBOR_TIMEOUT && before.state == NEIGHBOR_FAILED && resolver->needed(r))
		event = NEIGHBOR_USED;
	actions = neighbor_next(&r->entry, event, advert, now());
	moved = before.state != r->entry.state;

	// Entries that wait for their first answer are in order of age; the others are by deadline.
	if (moved || (before.deadline != r->entry.deadline && r->entry.state != NEIGHBOR_INCOMPLETE)) {
		leave(resolver, r, before.state);
		enter(resolver, r);
	}
	if (moved || !rte_is_same_ether_addr(&before.mac, &r->entry.mac))
		resolver->changed(r);
	if (actions & NEIGHBOR_ASK_ALL)
		resolver->ask(r, NULL);
	if (actions & NEIGHBOR_ASK_IT)
		resolver->ask(r, &r->entry.mac);
	if (!neighbor_usable(before.state) && neighbor_usable(r->entry.state))
		resolver_send(resolver, r);
	if (actions & NEIGHBOR_FAIL)
		resolver_fail(resolver, r);
	if (actions & NEIGHBOR_FORGET && !resolver->needed(r))
		resolver->forget(r);
	else if (moved && (r->entry.state == NEIGHBOR_INCOMPLETE || r->entry.state == NEIGHBOR_FAILED))
		bound(resolver, r->entry.state);
}

// The newest packets are worth the most (RFC 4861 section 7.2.2).
static void
queue(struct resolver *resolver, struct resolving *r, struct rte_mbuf *m)
{
	if (r->queued == RESOLVER_QUEUE) {
		struct rte_mbuf *oldest = r->first;

		r->first = *next_of(oldest);
		drop_now(oldest, resolver->queue_full);
		r->queued--;
		resolver->queued--;
	}
	if (resolver->queued == resolver->max_queued || !packet_may_wait()) {
		drop_now(m, resolver->queue_full);
		return;
	}
	*next_of(m) = NULL;
	if (r->queued == 0)
		r->first = m;
	else
		*next_of(r->last) = m;
	r->last = m;
	r->queued++;
	resolver->queued++;
}

void
resolver_wait(struct resolver *resolver, struct resolving *r, struct rte_mbuf *m)
{
	if (neighbor_usable(r->entry.state)) {
		resolver->send(r, m);
		return;
	}
	queue(resolver, r, m);
	resolver_event(resolver, r, NEIGHBOR_USED, NULL);
}

static void
expire(struct resolver *resolver, enum neighbor_state state, uint64_t time)
{
	struct resolving *r;

	for (unsigned i = 0; i < AT_ONCE && (r = TAILQ_FIRST(&resolver->by_state[state])) && r->entry.deadline <= time;
		i++)
		resolver_event(resolver, r, NEIGHBOR_TIMEOUT, NULL);
}

static void
tick(void *argument)
{
	struct resolver *resolver = argument;
	uint64_t time = now();
	struct resolving *r, *next;
	unsigned due = 0;

	expire(resolver, NEIGHBOR_REACHABLE, time);
	expire(resolver, NEIGHBOR_STALE, time);
	expire(resolver, NEIGHBOR_DELAY, time);
	expire(resolver, NEIGHBOR_PROBE, time);
	expire(resolver, NEIGHBOR_FAILED, time);
	for (r = TAILQ_FIRST(&resolver->by_state[NEIGHBOR_INCOMPLETE]); r && due < AT_ONCE; r = next) {
		next = TAILQ_NEXT(r, by_state);
		if (r->entry.deadline > time)
			continue;
		resolver_event(resolver, r, NEIGHBOR_TIMEOUT, NULL);
		due++;
	}
}

void
resolver_start(struct resolver *resolver)
{
	for (unsigned i = 0; i < NEIGHBOR_STATES; i++)
		TAILQ_INIT(&resolver->by_state[i]);
	loop_every(TICK, tick, resolver);
}
