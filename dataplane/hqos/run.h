// SPDX-License-Identifier: Apache-2.0
// Packets from the queues of one subscriber's classes, one after the other.
#pragma once

#include <rte_prefetch.h>

#include "hqos/standing.h"
#include "hqos/turn.h"

// Whether the packets of the class that is first need nothing that send() does beyond send_run().
static inline bool
is_plain(const struct hqos_profile *profile, unsigned class, uint8_t backlog)
{
	uint8_t equals = backlog & profile->classes[class].equals;

	return (equals & (equals - 1)) == 0 && profile->classes[class].policy != HQOS_CODEL;
}

// The payment of packets of one subscriber, sent one after the other, at each level: how far each has paid ahead, as
// a moment in the past is as good as now. All of it stays in registers while they are sent.
struct run {
	const struct hqos_profile *profile;
	const struct hqos_group_profile *group_profile;
	struct pace peak, group_peak, port;
	uint64_t now;
	int64_t peak_ahead, group_ahead, ahead;
	int32_t own, groups; // credits
	int32_t group_overhead, port_overhead;
	bool green, group_green;
	uint64_t bytes;
	unsigned sent, room;
};

static __rte_always_inline struct run
run_begin(const struct turn *t, const struct hqos_subscriber *sub, const struct hqos_group *g, int32_t credit)
{
	const struct hqos_scheduler *s = t->s;
	const struct hqos_profile *profile = hqos_profile_of(s, sub);
	const struct hqos_group_profile *group_profile = hqos_group_profile_of(s, g);

	return (struct run){.profile = profile,
		.group_profile = group_profile,
		.peak = profile->peak,
		.group_peak = group_profile->peak,
		.port = s->peak,
		.now = t->now,
		.peak_ahead = RTE_MAX((int64_t)(sub->peak_paid - t->now), 0),
		.group_ahead = RTE_MAX((int64_t)(g->peak_paid - t->now), 0),
		.ahead = RTE_MAX((int64_t)(s->paid - t->now), 0),
		.own = credit,
		.groups = *t->credit,
		.group_overhead = group_profile->overhead,
		.port_overhead = s->overhead,
		.green = pace_conforms(&profile->committed, sub->committed_paid, t->now),
		.group_green = pace_conforms(&group_profile->committed, g->committed_paid, t->now),
		.room = t->room - t->sent};
}

// One frame is paid for. Whether another may be sent; no branches, and so numbers instead of conditions.
static __rte_always_inline bool
run_pay(struct run *r, struct hqos_subscriber *sub, struct hqos_group *g, uint32_t frame)
{
	uint32_t bytes = line_bytes(r->profile, frame);

	r->bytes += frame;
	r->own -= (int32_t)bytes;
	r->peak_ahead += (int64_t)pace_cost(&r->peak, bytes);
	if (r->green)
		pace_pay(&r->profile->committed, &sub->committed_paid, r->now, bytes);
	bytes = on_line(frame, 1, r->group_overhead);
	r->groups -= (int32_t)bytes;
	r->group_ahead += (int64_t)pace_cost(&r->group_peak, bytes);
	if (r->group_green)
		pace_pay(&r->group_profile->committed, &g->committed_paid, r->now, bytes);
	r->ahead += (int64_t)pace_cost(&r->port, on_line(frame, 1, r->port_overhead));
	return ((r->own > 0) & (r->groups > 0) & (r->sent < r->room) & (r->peak_ahead <= r->peak.burst) &
		       (r->group_ahead <= r->group_peak.burst) & (r->ahead <= r->port.burst) &
		       (int)(!r->green || pace_conforms(&r->profile->committed, sub->committed_paid, r->now)) &
		       (int)(!r->group_green ||
			       pace_conforms(&r->group_profile->committed, g->committed_paid, r->now))) != 0;
}

static __rte_always_inline void
run_end(const struct run *r, struct turn *t, struct hqos_subscriber *sub, struct hqos_group *g, int32_t *credit)
{
	struct hqos_scheduler *s = t->s;

	t->sent += r->sent;
	s->packets -= r->sent;
	frames_sent(s, g, r->sent, r->bytes);
	s->paid = t->now + (uint64_t)r->ahead;
	g->peak_paid = t->now + (uint64_t)r->group_ahead;
	*t->credit = r->groups;
	sub->peak_paid = t->now + (uint64_t)r->peak_ahead;
	*credit = r->own;
}

// Packets of a subscriber one after the other, as long as nothing above them changes its mind. How many each class has is a toss of a
// coin, so going from one to the next takes no branch. He must be allowed to send, and the class that is first be plain.
static inline void
send_run(struct turn *t, struct hqos_subscriber *sub, struct hqos_group *g, int32_t *credit)
{
	struct hqos_scheduler *s = t->s;
	struct run r = run_begin(t, sub, g, *credit);
	struct rte_mbuf **packets = t->packets + t->sent;
	uint32_t unused = s->chunks.free;
	uint8_t backlog = sub->backlog;
	bool more;

	do {
		unsigned class = (unsigned)__builtin_ctz(backlog), ends = sub->ends[class], at = ends & 15;
		struct hqos_queue *queue = &sub->queues[class];
		uint32_t index = queue->first;
		struct queue_chunk *chunk = queue_chunk_at(s, index);
		struct rte_mbuf *m = buffer_of(s, chunk->numbers[at]);
		uint32_t frame = chunk->lengths[at], next = chunk->next;
		unsigned left = queue->count - 1u;
		bool done = (left == 0) | (at + 1 == QUEUE_CHUNK_PACKETS);
		uint32_t finished = -(uint32_t)done; // all ones or none: the compiler would make branches of conditions

		if (unlikely(!is_plain(r.profile, class, backlog)))
			break;
		// The sending node needs it soon.
		rte_prefetch0(m);
		packets[r.sent++] = m;

		queue->count = (uint16_t)left;
		queue->sent += 2;
		queue->credit = RTE_MIN(queue->credit, (int32_t)((uint32_t)INT32_MAX & -(uint32_t)(left != 0)));
		queue->first = index ^ ((index ^ next) & finished);
		sub->ends[class] = (uint8_t)((ends + !done) & ~(finished & 15));
		chunk->next = next ^ ((next ^ unused) & finished);
		unused ^= (unused ^ index) & finished;
		backlog &= (uint8_t) ~((left == 0) << class);
		more = run_pay(&r, sub, g, frame) & (backlog != 0);
	} while (more);
	s->chunks.free = unused;
	sub->backlog = backlog;
	run_end(&r, t, sub, g, credit);
}
