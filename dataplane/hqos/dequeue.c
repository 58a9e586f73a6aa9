// Whose turn it is: by priority, by weight, and within what all above it are allowed.
#include <rte_common.h>
#include <rte_prefetch.h>

#include "hqos/aqm.h"
#include "hqos/queue.h"
#include "hqos/standing.h"

enum {
	AHEAD_QUEUE = 8,   // entries of a queue ahead for which a subscriber's queues are fetched,
	AHEAD_PACKETS = 3, // and what they hold
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

// Bytes of so many frames on a line. The line may add to each or, as one does that knows no Ethernet header, take away: but something
// is always left.
static inline uint32_t
on_line(uint32_t bytes, uint32_t frames, int32_t overhead)
{
	return (uint32_t)RTE_MAX((int32_t)bytes + (int32_t)frames * overhead, (int32_t)frames);
}

// Bytes of a frame on a subscriber's line.
static inline uint32_t
line_bytes(const struct hqos_profile *profile, uint32_t frame)
{
	uint32_t bytes = on_line(frame, 1, profile->overhead);

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
		group_dropped(g, taken.length);
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

// Whether the packets of the class that is first need nothing that send() does beyond send_run().
static inline bool
is_plain(const struct hqos_profile *profile, unsigned class, uint8_t backlog)
{
	uint8_t equals = backlog & profile->classes[class].equals;

	return (equals & (equals - 1)) == 0 && profile->classes[class].policy != HQOS_CODEL;
}

// What packets of one subscriber, sent one after the other, pay at each level: how far each has paid ahead, as a moment in the past is
// as good as now. All of it stays in registers while they are sent.
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
		// Whoever sends it needs it soon.
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

// A packet more of a class in struct hqos_subscriber's `sent`, which the caller stores.
static inline uint32_t
count_sent(struct hqos_subscriber *sub, uint32_t counted, unsigned class, unsigned width)
{
	const uint32_t most = few_counted_most(sub);
	unsigned at = class << (width - 1);

	if (likely((counted >> at & most) != most))
		return counted + (1u << at);
	queue_counts(&sub->queues[class], most + 1);
	return (counted & ~(most << at)) ^ (most + 1) << at;
}

// And so many of each. A class has at most as many as are counted before its queue counts them.
static inline uint32_t
count_sent_of_each(struct hqos_subscriber *sub, uint32_t more)
{
	const uint32_t highest = sub->flags & HQOS_NARROW ? 0x88888888 : 0x80808080, before = sub->sent,
		       counted = ((before & ~highest) + more) ^ (before & highest);

	for (uint32_t changed = (before ^ counted) & highest; unlikely(changed != 0); changed &= changed - 1)
		queue_counts(&sub->queues[(unsigned)__builtin_ctz(changed) >> (hqos_width(sub) - 1)],
			few_counted_most(sub) + 1);
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

	few_chunks(s, sub, chunks);
	// If all are as long as one of them, is there room?
	own = count * chunks[0]->lengths[0];
	if (t->sent + count > t->room || *credit <= (int32_t)own || profile->cells || (sub->backlog & ~profile->few) ||
		((sub->backlog & profile->codel) && (int32_t)((uint32_t)(now >> CODEL_SHIFT) - chunks[0]->arrived[0]) >=
							    (int32_t)profile->codel_least))
		return false;
	for (uint64_t places = sub->places; places != 0; places &= places - 1) {
		unsigned place = (unsigned)__builtin_ctzll(places) & mask, at = place % QUEUE_CHUNK_PACKETS;
		const struct queue_chunk *chunk = chunks[place / QUEUE_CHUNK_PACKETS];
		struct rte_mbuf *m;

		m = buffer_of(s, chunk->numbers[at]);
		// Whoever sends it needs it soon.
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
	few_give_back(s, sub, chunks[0]);
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

// The same of a few. False: CoDel has to have a look at the next, or its class is not of those that may be among a few any more.
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
	few_chunks(s, sub, chunks);
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
		// Whoever sends it needs it soon.
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
		few_give_back(s, sub, chunks[0]);
	run_end(&r, t, sub, g, credit);
	return good;
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

// What is read when an entry's turn comes is fetched in steps, as each says where the next is. With the first entry of a chunk: the
// records of all in the chunk after the next, the last packets of those in the next, and the ones before of those in this one.
static inline void
look_at_chunk(const struct hqos_scheduler *s, const struct fifo *fifo)
{
	const struct chunk *chunk = &s->chunks.all[fifo->first];
	unsigned here = RTE_MIN(fifo->count, (uint32_t)CHUNK_IDS), left = fifo->count - here;

	for (unsigned i = 0; i < here; i++) {
		const struct hqos_subscriber *sub = subscriber_at(s, chunk->ids[i]);
		uint32_t before = queue_chunk_at(s, sub->chunk)->next;

		rte_prefetch0(queue_chunk_at(s, before == NO_CHUNK ? sub->chunk : before));
	}
	here = RTE_MIN(left, (unsigned)CHUNK_IDS);
	left -= here;
	if (here == 0)
		return;
	chunk = &s->chunks.all[chunk->next];
	for (unsigned i = 0; i < here; i++)
		rte_prefetch0(queue_chunk_at(s, subscriber_at(s, chunk->ids[i])->chunk));
	here = RTE_MIN(left, (unsigned)CHUNK_IDS);
	if (here == 0)
		return;
	chunk = &s->chunks.all[chunk->next];
	for (unsigned i = 0; i < here; i++)
		rte_prefetch0(subscriber_at(s, chunk->ids[i]));
}

// The queues of who has many, in two steps.
static void
look_at_queues(const struct hqos_scheduler *s, const struct fifo *fifo)
{
	uint32_t entry = fifo_peek(fifo, &s->chunks, AHEAD_QUEUE);
	const struct hqos_subscriber *sub;

	if (entry != NO_ID) {
		sub = subscriber_at(s, entry);
		for (unsigned m = sub->flags & HQOS_FEW ? 0 : (sub->backlog | sub->backlog >> 1) & 0x55u; m != 0;
			m &= m - 1)
			rte_prefetch0(&sub->queues[__builtin_ctz(m)]);
	}
	entry = fifo_peek(fifo, &s->chunks, AHEAD_PACKETS);
	if (entry != NO_ID) {
		sub = subscriber_at(s, entry);
		for (unsigned m = sub->flags & HQOS_FEW ? 0 : sub->backlog; m != 0; m &= m - 1)
			rte_prefetch0(queue_chunk_at(s, sub->queues[__builtin_ctz(m)].first));
	}
}

// Without congestion, who stands in a queue has one packet, and his turn is over with it. As long as that is so of those in a group's
// queue, their packets go one after the other, and what the group and the port have paid stays in registers. Nothing else is done
// here than by a turn of each. Returns how many were sent; what comes next may be no such one.
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
			few_chunks(s, sub, chunks);
		width = hqos_width(sub);
		place = (unsigned)__builtin_ctzll(sub->places);
		at = place & ((1u << width) - 1);
		m = buffer_of(s, chunks[at / QUEUE_CHUNK_PACKETS]->numbers[at % QUEUE_CHUNK_PACKETS]);
		frame = chunks[at / QUEUE_CHUNK_PACKETS]->lengths[at % QUEUE_CHUNK_PACKETS];
		// Whoever sends it needs it soon.
		rte_prefetch0(m);
		packets[sent++] = m;
		__atomic_store_n(&sub->sent, count_sent(sub, sub->sent, place >> width, width), __ATOMIC_RELEASE);
		sub->places = 0;
		sub->backlog = 0;
		few_give_back(s, sub, chunks[0]);
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

	// What he sends within his committed rate is not of his share of the rest.
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
