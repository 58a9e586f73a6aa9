// SPDX-License-Identifier: Apache-2.0
// Dequeueing from short queues: all packets of a subscriber that has few, some of them, or the packets of many subscribers with one each.
#pragma once

#include <rte_prefetch.h>

#include "hqos/ahead.h"
#include "hqos/run.h"

// A packet more of a class in struct hqos_subscriber's `sent`, which the caller stores.
static inline uint32_t
count_sent(struct hqos_subscriber *sub, uint32_t counted, unsigned class, unsigned width)
{
	const uint32_t most = short_queue_max_counted(sub);
	unsigned at = class << (width - 1);

	if (likely((counted >> at & most) != most))
		return counted + (1u << at);
	queue_counts(&sub->queues[class], most + 1);
	return (counted & ~(most << at)) ^ (most + 1) << at;
}

// Counts by class. A class has at most as many as are counted before its queue counts them.
static inline uint32_t
count_sent_of_each(struct hqos_subscriber *sub, uint32_t more)
{
	const uint32_t highest = sub->flags & HQOS_NARROW ? 0x88888888 : 0x80808080, before = sub->sent,
		       counted = ((before & ~highest) + more) ^ (before & highest);

	for (uint32_t changed = (before ^ counted) & highest; unlikely(changed != 0); changed &= changed - 1)
		queue_counts(&sub->queues[(unsigned)__builtin_ctz(changed) >> (hqos_width(sub) - 1)],
			short_queue_max_counted(sub) + 1);
	return counted;
}

// How many places of each class, as struct hqos_subscriber's `sent` counts.
static inline uint32_t
count_places(uint64_t places, bool narrow)
{
	places -= places >> 1 & 0x5555555555555555;
	places = (places & 0x3333333333333333) + (places >> 2 & 0x3333333333333333);
	places = (places + (places >> 4)) & 0x0f0f0f0f0f0f0f0f;
	if (narrow)
		places = (places | places >> 4) & 0x00ff00ff00ff00ff;
	else
		places = (places + (places >> 8)) & 0x00ff00ff00ff00ff;
	places = (places | places >> 8) & 0x0000ffff0000ffff;
	return (uint32_t)(places | places >> 16);
}

// All of a few, if they may be sent in one go: then no packet is looked at twice. False: they may not, and nothing has changed.
static inline bool
send_all(struct turn *t, struct hqos_subscriber *sub, const struct hqos_profile *profile, struct hqos_group *g,
	int32_t *credit)
{
	struct hqos_scheduler *s = t->s;
	const struct hqos_group_profile *group_profile = hqos_group_profile_of(s, g);
	struct queue_chunk *chunks[FEW_CHUNKS];
	const unsigned width = hqos_width(sub), mask = (1u << width) - 1,
		       count = (unsigned)__builtin_popcountll(sub->places);
	const uint64_t now = t->now;
	struct rte_mbuf **to = t->packets + t->sent;
	int64_t ahead, group_ahead, port_ahead, committed_ahead, group_committed_ahead;
	bool green, group_green;
	uint32_t bytes = 0, own, groups;

	short_queue_chunks(s, sub, chunks);
	// If all are as long as one of them, is there room?
	own = count * chunks[0]->lengths[0];
	if (t->sent + count > t->room || *credit <= (int32_t)own || profile->cells || (sub->backlog & ~profile->few) ||
		((sub->backlog & profile->codel) && (int32_t)((uint32_t)(now >> CODEL_SHIFT) - chunks[0]->arrived[0]) >=
							    (int32_t)profile->codel_min_target))
		return false;
	for (uint64_t places = sub->places; places != 0; places &= places - 1) {
		unsigned place = (unsigned)__builtin_ctzll(places) & mask, at = place % QUEUE_CHUNK_PACKETS;
		const struct queue_chunk *chunk = chunks[place / QUEUE_CHUNK_PACKETS];
		struct rte_mbuf *m;

		m = buffer_of(s, chunk->numbers[at]);
		// The sending node needs it soon.
		rte_prefetch0(m);
		*to++ = m;
		bytes += chunk->lengths[at];
	}
	own = on_line(bytes, count, profile->overhead);
	groups = on_line(bytes, count, group_profile->overhead);
	ahead = RTE_MAX((int64_t)(sub->peak_paid - now), 0) + (int64_t)pace_cost(&profile->peak, own);
	group_ahead = RTE_MAX((int64_t)(g->peak_paid - now), 0) + (int64_t)pace_cost(&group_profile->peak, groups);
	port_ahead =
		RTE_MAX((int64_t)(s->paid - now), 0) + (int64_t)pace_cost(&s->peak, on_line(bytes, count, s->overhead));
	committed_ahead = (int64_t)(sub->committed_paid - now);
	green = committed_ahead <= profile->committed.burst;
	if (green)
		committed_ahead = RTE_MAX(committed_ahead, 0) + (int64_t)pace_cost(&profile->committed, own);
	group_committed_ahead = (int64_t)(g->committed_paid - now);
	group_green = group_committed_ahead <= group_profile->committed.burst;
	if (group_green)
		group_committed_ahead =
			RTE_MAX(group_committed_ahead, 0) + (int64_t)pace_cost(&group_profile->committed, groups);
	if (((*credit < (int32_t)own) | (*t->credit < (int32_t)groups) | (ahead > profile->peak.burst) |
		    (group_ahead > group_profile->peak.burst) | (port_ahead > s->peak.burst) |
		    (green & (committed_ahead > profile->committed.burst)) |
		    (group_green & (group_committed_ahead > group_profile->committed.burst))) != 0)
		return false;
	__atomic_store_n(&sub->sent, count_sent_of_each(sub, count_places(sub->places, sub->flags & HQOS_NARROW)),
		__ATOMIC_RELEASE);
	sub->places = 0;
	sub->backlog = 0;
	short_queue_free(s, sub, chunks[0]);
	*credit -= (int32_t)own;
	*t->credit -= (int32_t)groups;
	sub->peak_paid = now + (uint64_t)ahead;
	sub->committed_paid = now + (uint64_t)committed_ahead;
	g->peak_paid = now + (uint64_t)group_ahead;
	g->committed_paid = now + (uint64_t)group_committed_ahead;
	s->paid = now + (uint64_t)port_ahead;
	t->sent += count;
	s->packets -= count;
	frames_sent(s, g, count, bytes);
	return true;
}

// The same for a subscriber with few packets. False: CoDel must check the next packet, or its class may not be in a short queue now.
static inline bool
send_few(struct turn *t, struct hqos_subscriber *sub, struct hqos_group *g, int32_t *credit)
{
	struct hqos_scheduler *s = t->s;
	struct run r = run_begin(t, sub, g, *credit);
	struct rte_mbuf **packets = t->packets + t->sent;
	const uint32_t age = (uint32_t)(t->now >> CODEL_SHIFT);
	struct queue_chunk *chunks[FEW_CHUNKS];
	const unsigned width = hqos_width(sub);
	const uint64_t mask = (1u << (1u << width)) - 1;
	uint64_t places = sub->places;
	uint32_t counted = sub->sent;
	uint8_t backlog = 0;
	bool more, good = true;

	if (unlikely(sub->backlog & ~r.profile->few))
		return false;
	short_queue_chunks(s, sub, chunks);
	do {
		unsigned place = (unsigned)__builtin_ctzll(places), class = place >> width,
			 of_class = place & ((1u << width) - 1), at = of_class % QUEUE_CHUNK_PACKETS;
		const struct queue_chunk *chunk = chunks[of_class / QUEUE_CHUNK_PACKETS];
		struct rte_mbuf *m = buffer_of(s, chunk->numbers[at]);

		if (unlikely(r.profile->codel >> class & 1) &&
			(int32_t)(age - chunk->arrived[at]) >= (int32_t)r.profile->classes[class].codel_target &&
			(places & (places - 1)) >> (class << width) & mask) {
			good = false;
			break;
		}
		// The sending node needs it soon.
		rte_prefetch0(m);
		packets[r.sent++] = m;
		places &= places - 1;
		counted = count_sent(sub, counted, class, width);
		more = run_pay(&r, sub, g, chunk->lengths[at]) & (places != 0);
	} while (more);
	for (uint64_t rest = places; rest != 0;) {
		unsigned class = (unsigned)__builtin_ctzll(rest) >> width;

		backlog |= (uint8_t)(1u << class);
		rest &= ~(mask << (class << width));
	}
	sub->places = places;
	__atomic_store_n(&sub->sent, counted, __ATOMIC_RELEASE);
	sub->backlog = backlog;
	if (places == 0)
		short_queue_free(s, sub, chunks[0]);
	run_end(&r, t, sub, g, credit);
	return good;
}

// Without congestion, a subscriber in a queue has one packet, and its turn ends with it. As long as all in a group's
// queue are like that, their packets go one after the other, and the paces of the group and the port stay in registers. The result is
// that of a turn of each. Returns the number of sent packets; the next subscriber may have more.
static inline unsigned
send_onlies(struct turn *t, struct hqos_group *g, struct fifo *fifo, bool green, bool group_green)
{
	struct hqos_scheduler *s = t->s;
	const struct hqos_group_profile *group_profile = hqos_group_profile_of(s, g);
	const struct pace peak = group_profile->peak, committed = group_profile->committed, port = s->peak;
	const int32_t overhead = group_profile->overhead, port_overhead = s->overhead;
	const uint64_t now = t->now;
	int64_t group_ahead = RTE_MAX((int64_t)(g->peak_paid - now), 0), ahead = RTE_MAX((int64_t)(s->paid - now), 0),
		committed_ahead = (int64_t)(g->committed_paid - now);
	struct rte_mbuf **packets = t->packets + t->sent;
	const unsigned room = RTE_MIN(RTE_MIN(t->room - t->sent, t->looks), fifo->count);
	int32_t credit = *t->credit;
	uint64_t all = 0;
	unsigned sent = 0;
	bool more;

	do {
		uint32_t entry;
		struct hqos_subscriber *sub;
		const struct hqos_profile *profile;
		struct queue_chunk *chunks[FEW_CHUNKS];
		unsigned width, place, at, frame, bytes;
		struct rte_mbuf *m;

		if (fifo->first_id == 0)
			look_at_chunk(s, fifo);
		entry = s->chunks.all[fifo->first].ids[fifo->first_id];
		sub = subscriber_at(s, entry);
		profile = hqos_profile_of(s, sub);
		if (unlikely(((entry >> LIFE_SHIFT != sub->life) | !(sub->flags & HQOS_FEW) |
				     ((sub->places & (sub->places - 1)) != 0) | (sub->backlog & ~profile->few) |
				     (green != pace_conforms(&profile->committed, sub->committed_paid, now)) |
				     !pace_conforms(&profile->peak, sub->peak_paid, now)) != 0))
			break;
		if (!green) {
			int32_t quantum = (int32_t)profile->quantum;

			if (unlikely(sub->credit + quantum <= 0))
				break;
			sub->credit = RTE_MIN(sub->credit + quantum, quantum);
		}
		fifo_pop(fifo, &s->chunks);
		if (likely(((sub->filled - 1u) & 15) < QUEUE_CHUNK_PACKETS))
			chunks[0] = queue_chunk_at(s, sub->chunk);
		else
			short_queue_chunks(s, sub, chunks);
		width = hqos_width(sub);
		place = (unsigned)__builtin_ctzll(sub->places);
		at = place & ((1u << width) - 1);
		m = buffer_of(s, chunks[at / QUEUE_CHUNK_PACKETS]->numbers[at % QUEUE_CHUNK_PACKETS]);
		frame = chunks[at / QUEUE_CHUNK_PACKETS]->lengths[at % QUEUE_CHUNK_PACKETS];
		// The sending node needs it soon.
		rte_prefetch0(m);
		packets[sent++] = m;
		__atomic_store_n(&sub->sent, count_sent(sub, sub->sent, place >> width, width), __ATOMIC_RELEASE);
		sub->places = 0;
		sub->backlog = 0;
		short_queue_free(s, sub, chunks[0]);
		sub->flags &= (uint8_t) ~(green ? HQOS_IN_GREEN : HQOS_IN_OTHER);

		bytes = line_bytes(profile, frame);
		pace_pay(&profile->peak, &sub->peak_paid, now, bytes);
		if (green)
			pace_pay(&profile->committed, &sub->committed_paid, now, bytes);
		else
			sub->credit -= (int32_t)bytes;
		if (unlikely(sub->place.chunk != NOT_WAITING))
			hqos_stop_waiting(s, &sub->place);
		bytes = on_line(frame, 1, overhead);
		credit -= (int32_t)bytes;
		group_ahead += (int64_t)pace_cost(&peak, bytes);
		if (committed_ahead <= committed.burst)
			committed_ahead = RTE_MAX(committed_ahead, 0) + (int64_t)pace_cost(&committed, bytes);
		ahead += (int64_t)pace_cost(&port, on_line(frame, 1, port_overhead));
		all += frame;
		more = ((sent < room) & (credit > 0) & (group_ahead <= peak.burst) & (ahead <= port.burst) &
			       (!group_green | (committed_ahead <= committed.burst))) != 0;
	} while (more);
	if (sent == 0)
		return 0;
	t->sent += sent;
	t->looks -= sent;
	s->packets -= sent;
	frames_sent(s, g, sent, all);
	s->paid = now + (uint64_t)ahead;
	g->peak_paid = now + (uint64_t)group_ahead;
	g->committed_paid = now + (uint64_t)committed_ahead;
	*t->credit = credit;
	return sent;
}
