// Whose turn it is: by priority, by weight, and within what all above it are allowed.
#include <rte_common.h>
#include <rte_prefetch.h>

#include "hqos/aqm.h"
#include "hqos/queue.h"
#include "hqos/standing.h"

enum {
	AHEAD_RECORD = 13, // entries of a queue ahead for which the record is fetched,
	AHEAD_QUEUE = 8,   // the queue that is first,
	AHEAD_PACKETS = 3, // and what it holds
	LOOKS = 1024,      // most entries of queues that are looked at, at a time
};

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

// Bytes of a frame on a subscriber's line.
static inline uint32_t
line_bytes(const struct hqos_profile *profile, uint32_t frame)
{
	uint32_t bytes = (uint32_t)RTE_MAX((int32_t)frame + profile->overhead, 1);

	return profile->cells ? (bytes + 47) / 48 * 53 : bytes;
}

struct turn {
	struct hqos_scheduler *s;
	struct rte_mbuf **packets;
	unsigned room, sent;
	unsigned looks; // that are left
	uint64_t now;
	int32_t *credit; // of the group
};

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
		// Who has no equals waiting owes them nothing later.
		shares = (ready & profile->classes[class].equals) != 1u << class;
		taken = queue_take(s, sub, class);
		if (profile->classes[class].policy != HQOS_CODEL ||
			!hqos_codel_drops(queue, &s->codels[sub - s->subscribers], class, &profile->classes[class],
				taken.arrived, age))
			break;
		queue->dropped++;
		s->counters.dropped[HQOS_CODEL]++;
		s->dropped[s->dropped_count++] = taken.m;
		if (sub->backlog == 0 || s->dropped_count == HQOS_BURST)
			return false;
	}
	// Whoever sends it needs it soon.
	rte_prefetch0(taken.m);
	frame = taken.length;
	bytes = line_bytes(profile, frame);
	if (profile->class_peaks >> class & 1)
		pace_pay(&profile->classes[class].peak, &sub->classes[class].peak_paid, now, bytes);
	if (profile->class_committed >> class & 1 &&
		pace_conforms(&profile->classes[class].committed, sub->classes[class].committed_paid, now))
		pace_pay(&profile->classes[class].committed, &sub->classes[class].committed_paid, now, bytes);
	else if (shares)
		queue->credit -= (int32_t)bytes;
	*credit -= (int32_t)bytes;
	pace_pay(&profile->peak, &sub->peak_paid, now, bytes);
	if (pace_conforms(&profile->committed, sub->committed_paid, now))
		pace_pay(&profile->committed, &sub->committed_paid, now, bytes);

	bytes = (uint32_t)((int32_t)frame + group_profile->overhead);
	*t->credit -= (int32_t)bytes;
	pace_pay(&group_profile->peak, &g->peak_paid, now, bytes);
	if (pace_conforms(&group_profile->committed, g->committed_paid, now))
		pace_pay(&group_profile->committed, &g->committed_paid, now, bytes);
	pace_pay(&s->peak, &s->paid, now, (uint32_t)((int32_t)frame + s->overhead));
	queue->sent++;
	s->counters.sent_packets++;
	s->counters.sent_bytes += frame;
	t->packets[t->sent++] = taken.m;
	return true;
}

// Whether the packets of the class that is first need nothing that send() does beyond send_run().
static inline bool
is_plain(const struct hqos_profile *profile, unsigned class, uint8_t backlog)
{
	uint8_t equals = backlog & profile->classes[class].equals;

	return (equals & (equals - 1)) == 0 && profile->classes[class].policy != HQOS_CODEL;
}

// Packets of a subscriber one after the other, as long as nothing above them changes its mind: what that depends on stays in
// registers. How many each class has is a toss of a coin, so going from one to the next takes no branch. He must be allowed to
// send, and the class that is first be plain.
static inline void
send_run(struct turn *t, struct hqos_subscriber *sub, struct hqos_group *g, int32_t *credit)
{
	struct hqos_scheduler *s = t->s;
	const struct hqos_profile *profile = hqos_profile_of(s, sub);
	const struct hqos_group_profile *group_profile = hqos_group_profile_of(s, g);
	const struct pace peak = profile->peak, group_peak = group_profile->peak, port = s->peak;
	const uint64_t now = t->now;
	const int32_t group_overhead = group_profile->overhead, port_overhead = s->overhead;
	const bool green = pace_conforms(&profile->committed, sub->committed_paid, now),
		   group_green = pace_conforms(&group_profile->committed, g->committed_paid, now);
	// How far each has paid ahead: a moment in the past is as good as now.
	int64_t peak_ahead = RTE_MAX((int64_t)(sub->peak_paid - now), 0),
		group_ahead = RTE_MAX((int64_t)(g->peak_paid - now), 0), ahead = RTE_MAX((int64_t)(s->paid - now), 0);
	uint64_t all = 0;
	struct rte_mbuf **packets = t->packets + t->sent;
	const unsigned room = t->room - t->sent;
	int32_t own = *credit, groups = *t->credit;
	uint32_t unused = s->chunks.free;
	uint8_t backlog = sub->backlog;
	unsigned sent = 0;
	bool more;

	do {
		unsigned class = (unsigned)__builtin_ctz(backlog), ends = sub->ends[class], at = ends & 15;
		struct hqos_queue *queue = &sub->queues[class];
		uint32_t index = queue->first;
		struct queue_chunk *chunk = queue_chunk_at(s, index);
		struct rte_mbuf *m = buffer_of(s, chunk->numbers[at]);
		uint32_t frame = chunk->lengths[at], bytes = line_bytes(profile, frame), next = chunk->next;
		unsigned left = queue->count - 1u;
		bool done = (left == 0) | (at + 1 == QUEUE_CHUNK_PACKETS);
		uint32_t finished = -(uint32_t)done; // all ones or none: the compiler would make branches of conditions

		if (unlikely(!is_plain(profile, class, backlog)))
			break;
		// Whoever sends it needs it soon.
		rte_prefetch0(m);
		packets[sent++] = m;

		queue->count = (uint16_t)left;
		queue->sent++;
		queue->credit = RTE_MIN(queue->credit, (int32_t)((uint32_t)INT32_MAX & -(uint32_t)(left != 0)));
		queue->first = index ^ ((index ^ next) & finished);
		sub->ends[class] = (uint8_t)((ends + !done) & ~(finished & 15));
		chunk->next = next ^ ((next ^ unused) & finished);
		unused ^= (unused ^ index) & finished;
		backlog &= (uint8_t) ~((left == 0) << class);

		all += frame;
		own -= (int32_t)bytes;
		peak_ahead += (int64_t)pace_cost(&peak, bytes);
		if (green)
			pace_pay(&profile->committed, &sub->committed_paid, now, bytes);
		bytes = (uint32_t)((int32_t)frame + group_overhead);
		groups -= (int32_t)bytes;
		group_ahead += (int64_t)pace_cost(&group_peak, bytes);
		if (group_green)
			pace_pay(&group_profile->committed, &g->committed_paid, now, bytes);
		ahead += (int64_t)pace_cost(&port, (uint32_t)((int32_t)frame + port_overhead));
		// Numbers, so that the compiler makes no branches of them.
		more = ((int)(backlog != 0) & (own > 0) & (groups > 0) & (sent < room) & (peak_ahead <= peak.burst) &
			       (group_ahead <= group_peak.burst) & (ahead <= port.burst) &
			       (int)(!green || pace_conforms(&profile->committed, sub->committed_paid, now)) &
			       (int)(!group_green ||
				       pace_conforms(&group_profile->committed, g->committed_paid, now))) != 0;
	} while (more);
	t->sent += sent;
	s->chunks.free = unused;
	s->packets -= sent;
	s->counters.sent_packets += sent;
	s->counters.sent_bytes += all;
	s->paid = now + (uint64_t)ahead;
	g->peak_paid = now + (uint64_t)group_ahead;
	*t->credit = groups;
	sub->peak_paid = now + (uint64_t)peak_ahead;
	sub->backlog = backlog;
	*credit = own;
}

static inline bool
turn_goes_on(const struct turn *t)
{
	return t->sent < t->room && t->looks != 0 && t->s->dropped_count < HQOS_BURST &&
	       pace_conforms(&t->s->peak, t->s->paid, t->now);
}

static inline struct hqos_subscriber *
subscriber_at(const struct hqos_scheduler *s, uint32_t entry)
{
	return &s->subscribers[entry & (HQOS_SUBSCRIBERS - 1)];
}

// What is read when an entry's turn comes is fetched in three steps, as each says where the next is.
static inline void
look_ahead(const struct hqos_scheduler *s, const struct fifo *fifo)
{
	uint32_t entry = fifo_peek(fifo, &s->chunks, AHEAD_RECORD);
	const struct hqos_subscriber *sub;

	if (entry != NO_ID)
		rte_prefetch0(subscriber_at(s, entry));
	entry = fifo_peek(fifo, &s->chunks, AHEAD_QUEUE);
	if (entry != NO_ID) {
		sub = subscriber_at(s, entry);
		for (unsigned m = (sub->backlog | sub->backlog >> 1) & 0x55u; m != 0; m &= m - 1)
			rte_prefetch0(&sub->queues[__builtin_ctz(m)]);
	}
	entry = fifo_peek(fifo, &s->chunks, AHEAD_PACKETS);
	if (entry != NO_ID) {
		sub = subscriber_at(s, entry);
		for (unsigned m = sub->backlog; m != 0; m &= m - 1)
			rte_prefetch0(queue_chunk_at(s, sub->queues[__builtin_ctz(m)].first));
	}
}

// The next subscriber that stands rightly in one of a group's queues, or NO_ID.
static inline uint32_t
next_subscriber(struct turn *t, uint32_t group, bool green)
{
	struct hqos_scheduler *s = t->s;
	struct hqos_group *g = &s->groups[group];
	struct fifo *fifo = green ? &g->green : &g->others;

	for (; fifo->count != 0 && t->looks != 0; t->looks--) {
		uint32_t entry = fifo_pop(fifo, &s->chunks), id = entry & (HQOS_SUBSCRIBERS - 1);
		struct hqos_subscriber *sub = &s->subscribers[id];
		const struct hqos_profile *profile = hqos_profile_of(s, sub);

		look_ahead(s, fifo);
		if (unlikely(entry >> LIFE_SHIFT != sub->life)) {
			s->stale--;
			continue;
		}
		sub->flags &= (uint8_t) ~(green ? HQOS_IN_GREEN : HQOS_IN_OTHER);
		if (sub->backlog == 0)
			continue;
		// It may have been promoted or relegated since it stood here.
		if (green != pace_conforms(&profile->committed, sub->committed_paid, t->now) ||
			!pace_conforms(&profile->peak, sub->peak_paid, t->now)) {
			hqos_settle_subscriber(s, id, t->now);
			continue;
		}
		if (green)
			g->turns.green_credit = (int32_t)profile->quantum;
		else
			sub->credit = RTE_MIN(sub->credit + (int32_t)profile->quantum, (int32_t)profile->quantum);
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

	if (sub->backlog != 0 && *credit > 0 &&
		(!green || pace_conforms(&profile->committed, sub->committed_paid, t->now))) {
		if (((profile->class_peaks | profile->class_committed) & sub->backlog) != 0 ||
			!is_plain(profile, (unsigned)__builtin_ctz(sub->backlog), sub->backlog)) {
			if (send(t, sub, g, credit))
				return;
		} else if (pace_conforms(&profile->peak, sub->peak_paid, t->now)) {
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

// A group's turn: the same. Returns whether it is over.
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
		if (!green && s->green.count != 0)
			return false;
		t->credit = credit;
		if (g->turns.green != NO_ID || (g->turns.green = next_subscriber(t, index, true)) != NO_ID)
			serve_subscriber(t, g, &g->turns.green, true);
		else if (g->turns.other != NO_ID || (g->turns.other = next_subscriber(t, index, false)) != NO_ID)
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
		if (green != pace_conforms(&profile->committed, g->committed_paid, t->now) ||
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

		if (group == NO_ID && (group = *turn = next_group(&t, false)) == NO_ID)
			break;
		if (serve_group(&t, group, green)) {
			*turn = NO_ID;
			hqos_settle_group(s, group, t.now);
		}
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
