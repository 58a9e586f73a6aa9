// SPDX-License-Identifier: Apache-2.0
// Which subscribers and groups may send now, which must wait until when, and the place of each meanwhile.
#pragma once

#include "hqos/scheduler.h"

// An id in the wheel is a group's if this bit is set, else a subscriber's.
#define GROUP_BIT (1u << 31)

// An entry in a group's queue is a subscriber and its generation: a subscriber that has moved or gone since has another generation.
enum { LIFE_SHIFT = 24 };
static_assert(HQOS_SUBSCRIBERS == 1u << LIFE_SHIFT, "a subscriber's number and life fit into an entry");

static inline bool
has_something(const struct hqos_group *g)
{
	return g->green.count + g->others.count != 0 || g->turns.green != NO_ID || g->turns.other != NO_ID;
}

// Whether a pace allows a packet now. If not, and the pace became faster meanwhile, it will soon.
static inline bool
may_send(const struct pace *pace, uint64_t *paid, uint64_t now)
{
	if (pace_conforms(pace, *paid, now))
		return true;
	pace_forgive(pace, paid, now, 2 * HQOS_FRAME_MAX);
	return false;
}

// The classes that may send now, within their committed rate if any is. If none may, `when` is the moment from which on one may.
static inline uint8_t
classes_ready(struct hqos_subscriber *sub, const struct hqos_profile *profile, uint64_t now, uint64_t *when)
{
	uint8_t ready = sub->backlog, green = 0, waiting = 0;

	for (unsigned m = ready & profile->class_peaks; m != 0; m &= m - 1) {
		unsigned i = (unsigned)__builtin_ctz(m);

		if (!may_send(&profile->classes[i].peak, &sub->classes[i].peak_paid, now))
			waiting |= (uint8_t)(1u << i);
	}
	ready &= (uint8_t)~waiting;
	if (ready == 0) {
		int64_t least = INT64_MAX;

		for (unsigned m = waiting; m != 0; m &= m - 1) {
			unsigned i = (unsigned)__builtin_ctz(m);
			int64_t wait = (int64_t)(pace_when(&profile->classes[i].peak, sub->classes[i].peak_paid) - now);

			least = RTE_MIN(least, wait);
		}
		*when = now + (uint64_t)least;
		return 0;
	}
	for (unsigned m = ready & profile->class_committed; m != 0; m &= m - 1) {
		unsigned i = (unsigned)__builtin_ctz(m);

		if (may_send(&profile->classes[i].committed, &sub->classes[i].committed_paid, now))
			green |= (uint8_t)(1u << i);
	}
	return green != 0 ? green : ready;
}

// Something has to stand where it belongs after anything that may have changed that. Entries that are in a queue and should not be
// are found out when their turn comes.
void hqos_settle_group(struct hqos_scheduler *s, uint32_t group, uint64_t ticks);
void hqos_settle_subscriber(struct hqos_scheduler *s, uint32_t subscriber, uint64_t ticks);
void hqos_stop_waiting(struct hqos_scheduler *s, struct place *place);
// Settle those whose moment in the wheel has come.
void hqos_wake_up(struct hqos_scheduler *s, uint64_t ticks);

// Put an entry into the queue of those within their committed rate, or else of the others, unless one stands there.
static inline void
line_up(struct hqos_scheduler *s, uint8_t *flags, bool is_green, struct fifo *green, struct fifo *others, uint32_t id)
{
	uint8_t flag = is_green ? HQOS_IN_GREEN : HQOS_IN_OTHER;

	if (*flags & flag)
		return;
	*flags |= flag;
	fifo_push(is_green ? green : others, &s->chunks, id);
}

// The same as hqos_settle_subscriber() for a subscriber without packets until now, in few steps if it may send at once.
static inline void
settle_first(struct hqos_scheduler *s, struct hqos_subscriber *sub, uint32_t index, const struct hqos_profile *profile,
	uint64_t now)
{
	struct hqos_group *g = &s->groups[sub->group];
	bool green = pace_conforms(&profile->committed, sub->committed_paid, now);

	if (unlikely((profile->class_peaks != 0) | (!green & profile->has_committed) |
		     (sub->place.chunk != NOT_WAITING) | !pace_conforms(&profile->peak, sub->peak_paid, now) |
		     (g->green.count + g->others.count == 0))) {
		hqos_settle_subscriber(s, index, now);
		return;
	}
	line_up(s, &sub->flags, green, &g->green, &g->others, index | (uint32_t)sub->life << LIFE_SHIFT);
}
