// SPDX-License-Identifier: Apache-2.0
// The places of subscribers and groups: in a queue of the group or of the port, in the wheel, or none.
#include "hqos/standing.h"

#include <rte_common.h>

enum { WAKE_UPS = 512 }; // maximum taken out of the wheel at a time

static struct place *
place_of(struct hqos_scheduler *s, uint32_t id)
{
	return id & GROUP_BIT ? &s->groups[id & ~GROUP_BIT].place : &s->subscribers[id].place;
}

void
hqos_stop_waiting(struct hqos_scheduler *s, struct place *place)
{
	struct place at = *place;
	uint32_t id = s->chunks.all[at.chunk].ids[at.at], last;

	last = wheel_pop(&s->wheel, at.slot);
	if (last != id) {
		s->chunks.all[at.chunk].ids[at.at] = last;
		*place_of(s, last) = at;
	}
	place->chunk = NOT_WAITING;
}

static inline void
wait_until(struct hqos_scheduler *s, uint32_t id, struct place *place, uint64_t when)
{
	unsigned slot = wheel_slot_of(&s->wheel, when);

	if (place->chunk != NOT_WAITING) {
		if (place->slot == slot)
			return;
		hqos_stop_waiting(s, place);
	}
	wheel_insert(&s->wheel, id, place, slot);
}

void
hqos_settle_group(struct hqos_scheduler *s, uint32_t index, uint64_t now)
{
	struct hqos_group *g = &s->groups[index];
	const struct hqos_group_profile *profile = hqos_group_profile_of(s, g);
	bool green;

	if (!has_something(g)) {
		if (g->place.chunk != NOT_WAITING)
			hqos_stop_waiting(s, &g->place);
		return;
	}
	if (!may_send(&profile->peak, &g->peak_paid, now)) {
		wait_until(s, index | GROUP_BIT, &g->place, pace_when(&profile->peak, g->peak_paid));
		return;
	}
	green = may_send(&profile->committed, &g->committed_paid, now);
	if (!green && profile->has_committed)
		wait_until(s, index | GROUP_BIT, &g->place, pace_when(&profile->committed, g->committed_paid));
	else if (g->place.chunk != NOT_WAITING)
		hqos_stop_waiting(s, &g->place);
	line_up(s, &g->flags, green, &s->green, &s->others, index);
}

void
hqos_settle_subscriber(struct hqos_scheduler *s, uint32_t index, uint64_t now)
{
	struct hqos_subscriber *sub = &s->subscribers[index];
	const struct hqos_profile *profile = hqos_profile_of(s, sub);
	struct hqos_group *g = &s->groups[sub->group];
	uint64_t when = now;
	bool green, idle;

	if (sub->backlog == 0) {
		if (sub->place.chunk != NOT_WAITING)
			hqos_stop_waiting(s, &sub->place);
		return;
	}
	if (!may_send(&profile->peak, &sub->peak_paid, now)) {
		wait_until(s, index, &sub->place, pace_when(&profile->peak, sub->peak_paid));
		return;
	}
	if (profile->class_peaks && classes_ready(sub, profile, now, &when) == 0) {
		wait_until(s, index, &sub->place, when);
		return;
	}
	green = may_send(&profile->committed, &sub->committed_paid, now);
	if (!green && profile->has_committed)
		wait_until(s, index, &sub->place, pace_when(&profile->committed, sub->committed_paid));
	else if (sub->place.chunk != NOT_WAITING)
		hqos_stop_waiting(s, &sub->place);
	idle = !has_something(g);
	line_up(s, &sub->flags, green, &g->green, &g->others, index | (uint32_t)sub->life << LIFE_SHIFT);
	if (idle)
		hqos_settle_group(s, sub->group, now);
}

void
hqos_wake_up(struct hqos_scheduler *s, uint64_t now)
{
	int slot;

	for (unsigned n = 0; n < WAKE_UPS && (slot = wheel_due(&s->wheel, now)) >= 0;) {
		const struct chunk *chunk = &s->chunks.all[s->wheel.slots[slot].top];
		unsigned count = (s->wheel.slots[slot].count - 1) % CHUNK_IDS + 1;
		uint32_t ids[CHUNK_IDS];

		rte_prefetch0(&s->chunks.all[chunk->previous == NO_CHUNK ? 0 : chunk->previous]);
		for (unsigned i = 0; i < count; i++)
			if (!(chunk->ids[i] & GROUP_BIT))
				rte_prefetch0(&s->subscribers[chunk->ids[i]]);
		for (unsigned i = 0; i < count; i++) {
			ids[i] = wheel_pop(&s->wheel, (unsigned)slot);
			place_of(s, ids[i])->chunk = NOT_WAITING;
		}
		for (unsigned i = 0; i < count; i++)
			if (ids[i] & GROUP_BIT)
				hqos_settle_group(s, ids[i] & ~GROUP_BIT, now);
			else
				hqos_settle_subscriber(s, ids[i], now);
		n += count;
	}
}
