// SPDX-License-Identifier: Apache-2.0
// Selects the next packet: by priority, by weight, and within the rates of all levels above.
#include <rte_common.h>
#include <rte_prefetch.h>

#include "hqos/ahead.h"
#include "hqos/aqm.h"
#include "hqos/short_queue.h"
#include "hqos/queue.h"
#include "hqos/run.h"
#include "hqos/standing.h"
#include "hqos/turn.h"

enum { LOOKS = 1024 }; // maximum of entries of queues that are looked at, at a time

// The class whose turn it is, of those that are ready.
static inline unsigned
choose(struct hqos_subscriber *sub, const struct hqos_profile *profile, uint8_t ready)
{
	unsigned first = (unsigned)__builtin_ctz(ready), class;
	uint8_t equals = ready & profile->classes[first].equals;

	if ((equals & (equals - 1)) == 0)
		return first;
	class = sub->turn;
	// A credit is never below one packet's bytes, so a few rounds always do.
	for (unsigned tries = 0; tries < 64 && (!(equals >> class & 1) || sub->queues[class].credit <= 0); tries++) {
		uint8_t above = equals & (uint8_t) ~((2u << class) - 1);

		class = (unsigned)__builtin_ctz(above ? above : equals);
		if (sub->queues[class].credit <= 0)
			sub->queues[class].credit += (int32_t)profile->classes[class].quantum;
	}
	sub->turn = (uint8_t) class;
	return class;
}

// One packet of a subscriber, if it may send one. It pays at each level.
static inline bool
send(struct turn *t, struct hqos_subscriber *sub, struct hqos_group *g, int32_t *credit)
{
	struct hqos_scheduler *s = t->s;
	const struct hqos_profile *profile = hqos_profile_of(s, sub);
	const struct hqos_group_profile *group_profile = hqos_group_profile_of(s, g);
	uint32_t frame, bytes, age = (uint32_t)(t->now >> CODEL_SHIFT);
	uint64_t when, now = t->now;
	struct hqos_queue *queue;
	struct queued taken;
	unsigned class;
	uint8_t ready;
	bool shares;

	if (!pace_conforms(&profile->peak, sub->peak_paid, now))
		return false;
	for (;;) {
		ready = classes_ready(sub, profile, now, &when);
		if (ready == 0)
			return false;
		class = choose(sub, profile, ready);
		queue = &sub->queues[class];
		// A class without equals that wait has no debt to them later.
		shares = (ready & profile->classes[class].equals) != 1u << class;
		taken = queue_take(s, sub, class);
		if (profile->classes[class].policy != HQOS_CODEL ||
			!hqos_codel_drops(queue, &s->codels[sub - s->subscribers], class, &profile->classes[class],
				taken.arrived, age))
			break;
		queue->dropped++;
		group_dropped(g, taken.length);
		s->counters.dropped[HQOS_CODEL]++;
		s->dropped[s->dropped_count++] = taken.m;
		if (sub->backlog == 0 || s->dropped_count == HQOS_BURST)
			return false;
	}
	// The sending node needs it soon.
	rte_prefetch0(taken.m);
	frame = taken.length;
	bytes = line_bytes(profile, frame);
	if (profile->class_peaks >> class & 1)
		pace_pay(&profile->classes[class].peak, &sub->classes[class].peak_paid, now, bytes);
	if (profile->class_committed >> class & 1 &&
		pace_conforms(&profile->classes[class].committed, sub->classes[class].committed_paid, now))
		pace_pay(&profile->classes[class].committed, &sub->classes[class].committed_paid, now, bytes);
	if (shares)
		queue->credit -= (int32_t)bytes;
	*credit -= (int32_t)bytes;
	pace_pay(&profile->peak, &sub->peak_paid, now, bytes);
	if (pace_conforms(&profile->committed, sub->committed_paid, now))
		pace_pay(&profile->committed, &sub->committed_paid, now, bytes);

	bytes = on_line(frame, 1, group_profile->overhead);
	*t->credit -= (int32_t)bytes;
	pace_pay(&group_profile->peak, &g->peak_paid, now, bytes);
	if (pace_conforms(&group_profile->committed, g->committed_paid, now))
		pace_pay(&group_profile->committed, &g->committed_paid, now, bytes);
	pace_pay(&s->peak, &s->paid, now, on_line(frame, 1, s->overhead));
	queue->sent += 2;
	frames_sent(s, g, 1, frame);
	t->packets[t->sent++] = taken.m;
	return true;
}

// The next subscriber that stands rightly in one of a group's queues, or NO_ID.
static inline uint32_t
next_subscriber(struct turn *t, uint32_t group, bool green)
{
	struct hqos_scheduler *s = t->s;
	struct hqos_group *g = &s->groups[group];
	struct fifo *fifo = green ? &g->green : &g->others;

	for (; fifo->count != 0 && t->looks != 0; t->looks--) {
		uint32_t entry, id;
		struct hqos_subscriber *sub;
		const struct hqos_profile *profile;

		if (fifo->first_id == 0)
			look_at_chunk(s, fifo);
		entry = fifo_pop(fifo, &s->chunks);
		id = entry & (HQOS_SUBSCRIBERS - 1);
		sub = &s->subscribers[id];
		profile = hqos_profile_of(s, sub);
		if (unlikely(entry >> LIFE_SHIFT != sub->life)) {
			s->stale--;
			continue;
		}
		sub->flags &= (uint8_t) ~(green ? HQOS_IN_GREEN : HQOS_IN_OTHER);
		if (sub->backlog == 0)
			continue;
		// It may have been relegated since it stood here. If it was promoted, its turn begins all the same.
		if ((green && !pace_conforms(&profile->committed, sub->committed_paid, t->now)) ||
			!pace_conforms(&profile->peak, sub->peak_paid, t->now)) {
			hqos_settle_subscriber(s, id, t->now);
			continue;
		}
		if (green)
			g->turns.green_credit = (int32_t)profile->quantum;
		else
			sub->credit = RTE_MIN(sub->credit + (int32_t)profile->quantum, (int32_t)profile->quantum);
		if (!(sub->flags & HQOS_FEW))
			look_at_queues(s, fifo);
		return id;
	}
	return NO_ID;
}

// A subscriber's turn. It is over when it has to wait, or has nothing left, or has used up its credit; a turn of those beyond
// their committed rate pauses while others are within theirs.
static inline void
serve_subscriber(struct turn *t, struct hqos_group *g, uint32_t *turn, bool green)
{
	struct hqos_scheduler *s = t->s;
	uint32_t id = *turn;
	struct hqos_subscriber *sub = &s->subscribers[id];
	const struct hqos_profile *profile = hqos_profile_of(s, sub);
	int32_t *credit = green ? &g->turns.green_credit : &sub->credit;

	// Packets within the committed rate are not part of the subscriber's share of the rest.
	if (!green && sub->backlog != 0 && *credit > 0 &&
		pace_conforms(&profile->committed, sub->committed_paid, t->now)) {
		hqos_settle_subscriber(s, id, t->now);
		if (g->green.count != 0)
			return;
	}
	if (sub->backlog != 0 && *credit > 0 && pace_conforms(&profile->peak, sub->peak_paid, t->now) &&
		(!green || pace_conforms(&profile->committed, sub->committed_paid, t->now))) {
		if (likely(sub->flags & HQOS_FEW)) {
			if (!send_all(t, sub, profile, g, credit) && !send_few(t, sub, g, credit))
				queue_spread(s, sub);
			if ((sub->backlog != 0 && *credit > 0) || t->sent == t->room)
				return;
		} else if (((profile->class_peaks | profile->class_committed) & sub->backlog) != 0 ||
			   !is_plain(profile, (unsigned)__builtin_ctz(sub->backlog), sub->backlog)) {
			if (send(t, sub, g, credit))
				return;
		} else {
			send_run(t, sub, g, credit);
			if ((sub->backlog != 0 && *credit > 0) || t->sent == t->room)
				return;
		}
	}
	if (s->dropped_count == HQOS_BURST)
		return;
	*turn = NO_ID;
	if (sub->backlog != 0 || sub->place.chunk != NOT_WAITING)
		hqos_settle_subscriber(s, id, t->now);
}

// A group's turn: all the same. Returns whether it is over.
static bool
serve_group(struct turn *t, uint32_t index, bool green)
{
	struct hqos_scheduler *s = t->s;
	struct hqos_group *g = &s->groups[index];
	const struct hqos_group_profile *profile = hqos_group_profile_of(s, g);
	int32_t *credit = green ? &s->turns.green_credit : &g->credit;

	while (turn_goes_on(t)) {
		if (*credit <= 0 || !pace_conforms(&profile->peak, g->peak_paid, t->now) ||
			(green && !pace_conforms(&profile->committed, g->committed_paid, t->now)))
			return true;
		if (!green && pace_conforms(&profile->committed, g->committed_paid, t->now))
			hqos_settle_group(s, index, t->now);
		if (!green && s->green.count != 0)
			return false;
		t->credit = credit;
		if (g->turns.green == NO_ID && g->green.count != 0 && send_onlies(t, g, &g->green, true, green))
			continue;
		if (g->turns.green != NO_ID || (g->turns.green = next_subscriber(t, index, true)) != NO_ID) {
			serve_subscriber(t, g, &g->turns.green, true);
			continue;
		}
		if (g->turns.other == NO_ID && g->others.count != 0 && send_onlies(t, g, &g->others, false, green))
			continue;
		if (g->turns.other != NO_ID || (g->turns.other = next_subscriber(t, index, false)) != NO_ID)
			serve_subscriber(t, g, &g->turns.other, false);
		else
			return true;
	}
	return false;
}

static inline uint32_t
next_group(struct turn *t, bool green)
{
	struct hqos_scheduler *s = t->s;
	struct fifo *fifo = green ? &s->green : &s->others;

	for (; fifo->count != 0 && t->looks != 0; t->looks--) {
		uint32_t id = fifo_pop(fifo, &s->chunks);
		struct hqos_group *g = &s->groups[id];
		const struct hqos_group_profile *profile = hqos_group_profile_of(s, g);

		g->flags &= (uint8_t) ~(green ? HQOS_IN_GREEN : HQOS_IN_OTHER);
		if (!has_something(g))
			continue;
		if ((green && !pace_conforms(&profile->committed, g->committed_paid, t->now)) ||
			!pace_conforms(&profile->peak, g->peak_paid, t->now)) {
			hqos_settle_group(s, id, t->now);
			continue;
		}
		if (green)
			s->turns.green_credit = (int32_t)profile->quantum;
		else
			g->credit = RTE_MIN(g->credit + (int32_t)profile->quantum, (int32_t)profile->quantum);
		return id;
	}
	return NO_ID;
}

unsigned
hqos_dequeue(struct hqos_scheduler *s, struct rte_mbuf **packets, unsigned room, uint64_t cycles)
{
	struct turn t = {s, packets, room, 0, LOOKS, ticks_of(cycles)};

	s->dropped_count = 0;
	hqos_wake_up(s, t.now);
	while (turn_goes_on(&t)) {
		bool green = s->turns.green != NO_ID || (s->turns.green = next_group(&t, true)) != NO_ID;
		uint32_t *turn = green ? &s->turns.green : &s->turns.other, group = *turn;

		if (group == NO_ID && (group = *turn = next_group(&t, false)) == NO_ID) {
			// One of the others may have been found to be within its committed rate again.
			if (s->green.count == 0)
				break;
			continue;
		}
		if (serve_group(&t, group, green)) {
			*turn = NO_ID;
			hqos_settle_group(s, group, t.now);
		}
	}
	if (unlikely(s->chained != 0)) {
		hqos_took_out(s, packets, t.sent);
		hqos_took_out(s, s->dropped, s->dropped_count);
	}
	return t.sent;
}

uint64_t
hqos_next(const struct hqos_scheduler *s, uint64_t cycles)
{
	uint64_t now = ticks_of(cycles);

	if (s->turns.green != NO_ID || s->turns.other != NO_ID || s->green.count + s->others.count != 0)
		return pace_conforms(&s->peak, s->paid, now) ? cycles : pace_when(&s->peak, s->paid) >> TICK_SHIFT;
	if (s->wheel.waiting == 0)
		return UINT64_MAX;
	for (uint64_t slot = s->wheel.now; slot < s->wheel.now + WHEEL_SLOTS; slot = (slot | 63) + 1) {
		uint64_t word = s->wheel.occupied[slot % WHEEL_SLOTS / 64] >> slot % 64;

		if (word != 0)
			return RTE_MAX(
				cycles, (slot + (unsigned)__builtin_ctzll(word)) << (WHEEL_SLOT_SHIFT - TICK_SHIFT));
	}
	return UINT64_MAX;
}
