// Who may send, who has to wait, and where they stand meanwhile.
#include "hqos/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_prefetch.h>

#include "core/slab.h"
#include "hqos/aqm.h"

// An id in the wheel is a group's if this bit is set, else a subscriber's.
#define GROUP_BIT (1u << 31)

enum {
	AHEAD_RECORD = 8, // entries of a queue ahead for which the record is fetched,
	AHEAD_PACKET = 4, // and its first packet
	WAKE_UPS = 512,   // most that are taken out of the wheel at a time
	LOOKS = 1024,     // most entries of queues that are looked at, at a time
};

static inline struct rte_mbuf *
buffer_of(const struct hqos_scheduler *s, uint32_t number)
{
	return (struct rte_mbuf *)(s->buffers + ((uintptr_t)number << 6));
}

static inline uint32_t
number_of(const struct hqos_scheduler *s, const struct rte_mbuf *m)
{
	return (uint32_t)(((uintptr_t)m - s->buffers) >> 6);
}

static inline struct hqos_link *
link_of(struct rte_mbuf *m)
{
	return (struct hqos_link *)&packet_of(m)->chain;
}

static struct place *
place_of(struct hqos_scheduler *s, uint32_t id)
{
	return id & GROUP_BIT ? &s->groups[id & ~GROUP_BIT].place : &s->subscribers[id].place;
}

static void
stop_waiting(struct hqos_scheduler *s, struct place *place)
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
		stop_waiting(s, place);
	}
	wheel_insert(&s->wheel, id, place, slot);
}

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

static inline bool
has_something(const struct hqos_group *g)
{
	return g->green.count + g->others.count != 0 || g->turns.green != NO_ID || g->turns.other != NO_ID;
}

// A group has to stand where it belongs after anything that may have changed that. Entries that are in a queue and should not be
// are found out when their turn comes.
static void
settle_group(struct hqos_scheduler *s, uint32_t index, uint64_t now)
{
	struct hqos_group *g = &s->groups[index];
	const struct hqos_group_profile *profile = &s->group_profiles[g->profile];
	bool green;

	if (!has_something(g)) {
		if (g->place.chunk != NOT_WAITING)
			stop_waiting(s, &g->place);
		return;
	}
	if (!pace_conforms(&profile->peak, g->peak_paid, now)) {
		wait_until(s, index | GROUP_BIT, &g->place, pace_when(&profile->peak, g->peak_paid));
		return;
	}
	green = pace_conforms(&profile->committed, g->committed_paid, now);
	if (!green && profile->has_committed)
		wait_until(s, index | GROUP_BIT, &g->place, pace_when(&profile->committed, g->committed_paid));
	else if (g->place.chunk != NOT_WAITING)
		stop_waiting(s, &g->place);
	line_up(s, &g->flags, green, &s->green, &s->others, index);
}

// The classes that may send now, within their committed rate if any is. If none may, `when` is the moment from which on one may.
static inline uint8_t
classes_ready(const struct hqos_subscriber *sub, const struct hqos_profile *profile, uint64_t now, uint64_t *when)
{
	uint8_t ready = sub->backlog, green = 0, waiting = 0;

	for (unsigned m = ready & profile->class_peaks; m != 0; m &= m - 1) {
		unsigned i = (unsigned)__builtin_ctz(m);

		if (!pace_conforms(&profile->classes[i].peak, sub->classes[i].peak_paid, now))
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

		if (pace_conforms(&profile->classes[i].committed, sub->classes[i].committed_paid, now))
			green |= (uint8_t)(1u << i);
	}
	return green != 0 ? green : ready;
}

static void
settle_subscriber(struct hqos_scheduler *s, uint32_t index, uint64_t now)
{
	struct hqos_subscriber *sub = &s->subscribers[index];
	const struct hqos_profile *profile = &s->profiles[sub->profile];
	struct hqos_group *g = &s->groups[sub->group];
	uint64_t when = now;
	bool green, idle;

	if (sub->backlog == 0) {
		if (sub->place.chunk != NOT_WAITING)
			stop_waiting(s, &sub->place);
		return;
	}
	if (!pace_conforms(&profile->peak, sub->peak_paid, now)) {
		wait_until(s, index, &sub->place, pace_when(&profile->peak, sub->peak_paid));
		return;
	}
	if (profile->class_peaks && classes_ready(sub, profile, now, &when) == 0) {
		wait_until(s, index, &sub->place, when);
		return;
	}
	green = pace_conforms(&profile->committed, sub->committed_paid, now);
	if (!green && profile->has_committed)
		wait_until(s, index, &sub->place, pace_when(&profile->committed, sub->committed_paid));
	else if (sub->place.chunk != NOT_WAITING)
		stop_waiting(s, &sub->place);
	idle = !has_something(g);
	line_up(s, &sub->flags, green, &g->green, &g->others, index);
	if (idle)
		settle_group(s, sub->group, now);
}

static void
wake_up(struct hqos_scheduler *s, uint64_t now)
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
				settle_group(s, ids[i] & ~GROUP_BIT, now);
			else
				settle_subscriber(s, ids[i], now);
		n += count;
	}
}

struct hqos_scheduler *
hqos_new(uint32_t subscribers, uint32_t groups, struct hqos_profile *profiles,
	struct hqos_group_profile *group_profiles, const void *lowest, const void *highest, uint64_t now)
{
	// Each may stand in two queues and in the wheel. All chunks but the ends of each list are full.
	size_t entries = 3 * ((size_t)subscribers + groups);
	size_t chunks = entries / CHUNK_IDS + 1 + 4 * ((size_t)groups + 1) + WHEEL_SLOTS + 1;
	struct hqos_scheduler *s = NULL;

	if (posix_memalign((void **)&s, 64, sizeof(*s)) != 0)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->subscriber_limit = subscribers;
	s->group_limit = groups;
	s->chunk_limit = chunks;
	s->buffers = ((uintptr_t)lowest & ~(uintptr_t)63) - 64;
	s->subscribers = slab_reserve(subscribers * sizeof(*s->subscribers));
	s->groups = slab_reserve(groups * sizeof(*s->groups));
	s->chunks.all = slab_reserve(chunks * sizeof(struct chunk));
	if (!s->subscribers || !s->groups || !s->chunks.all || ((uintptr_t)highest - s->buffers) >> 6 > UINT32_MAX) {
		hqos_free(s);
		return NULL;
	}
	s->profiles = profiles;
	s->group_profiles = group_profiles;
	s->turns = (struct hqos_turns){NO_ID, NO_ID, 0};
	s->random = 0x9e3779b9;
	s->paid = ticks_of(now);
	s->chunks.free = NO_CHUNK;
	for (size_t i = chunks; i-- > 0;)
		chunk_give(&s->chunks, (uint32_t)i);
	wheel_start(&s->wheel, &s->chunks, ticks_of(now));
	return s;
}

void
hqos_set_group(struct hqos_scheduler *s, uint32_t group, uint16_t profile, uint64_t now)
{
	struct hqos_group *g = &s->groups[group];

	now = ticks_of(now);
	if (!g->used) {
		g->used = true;
		g->turns = (struct hqos_turns){NO_ID, NO_ID, 0};
		g->place.chunk = NOT_WAITING;
		g->peak_paid = g->committed_paid = now;
	}
	g->profile = profile;
	settle_group(s, group, now);
}

void
hqos_set_subscriber(struct hqos_scheduler *s, uint32_t subscriber, uint32_t group, uint16_t profile, uint64_t now)
{
	struct hqos_subscriber *sub = &s->subscribers[subscriber];

	now = ticks_of(now);
	if (!sub->used) {
		uint8_t flags = sub->flags; // its entries may still stand in queues from a life before

		memset(sub, 0, sizeof(*sub));
		sub->flags = flags;
		sub->used = true;
		sub->group = group;
		sub->place.chunk = NOT_WAITING;
		sub->peak_paid = sub->committed_paid = now;
		for (unsigned i = 0; i < HQOS_CLASSES; i++)
			sub->classes[i] = (struct hqos_class_state){now, now};
	}
	sub->profile = profile;
	settle_subscriber(s, subscriber, now);
}

void
hqos_free(struct hqos_scheduler *s)
{
	if (!s)
		return;
	slab_unreserve(s->subscribers, s->subscriber_limit * sizeof(*s->subscribers));
	slab_unreserve(s->groups, s->group_limit * sizeof(*s->groups));
	slab_unreserve(s->chunks.all, s->chunk_limit * sizeof(struct chunk));
	free(s);
}

static inline void
append(struct hqos_scheduler *s, struct hqos_subscriber *sub, unsigned class, struct rte_mbuf *m, uint32_t now)
{
	struct hqos_queue *queue = &sub->queues[class];
	uint32_t number = number_of(s, m);

	*link_of(m) = (struct hqos_link){0, now};
	if (queue->count++ == 0) {
		queue->head = number;
		sub->backlog |= (uint8_t)(1u << class);
	} else {
		link_of(buffer_of(s, queue->tail))->next = number;
	}
	queue->tail = number;
}

unsigned
hqos_enqueue(struct hqos_scheduler *s, struct rte_mbuf **packets, const uint32_t *subscribers, const uint8_t *classes,
	unsigned count, uint64_t cycles)
{
	uint64_t now = ticks_of(cycles);
	unsigned refused = 0;

	for (unsigned i = 0; i < count; i++) {
		rte_prefetch0(&s->subscribers[subscribers[i]]);
		rte_prefetch0(&s->subscribers[subscribers[i]].queues[classes[i]]);
	}
	for (unsigned i = 0; i < count; i++) {
		struct hqos_queue *queue = &s->subscribers[subscribers[i]].queues[classes[i]];

		if (queue->count != 0)
			rte_prefetch0(packet_of(buffer_of(s, queue->tail)));
	}
	for (unsigned i = 0; i < count; i++) {
		struct hqos_subscriber *sub = &s->subscribers[subscribers[i]];
		const struct hqos_class_profile *class = &s->profiles[sub->profile].classes[classes[i]];
		uint32_t waiting = sub->queues[classes[i]].count;
		bool idle = sub->backlog == 0, fresh = waiting == 0;

		if (!sub->used || waiting >= class->limit ||
			(class->policy == HQOS_WRED && hqos_wred_drops(&sub->aqm[classes[i]], class, waiting,
							       packet_of(packets[i])->colour, &s->random))) {
			packets[refused++] = packets[i];
			continue;
		}
		s->packets++;
		append(s, sub, classes[i], packets[i], (uint32_t)(now >> CODEL_SHIFT));
		// A class that had nothing may be allowed to send while the others have to wait.
		if (idle || (fresh && sub->place.chunk != NOT_WAITING))
			settle_subscriber(s, subscribers[i], now);
	}
	return refused;
}

static struct rte_mbuf *
take_first(struct hqos_scheduler *s, struct hqos_subscriber *sub, unsigned class)
{
	struct hqos_queue *queue = &sub->queues[class];
	struct rte_mbuf *m = buffer_of(s, queue->head);

	s->packets--;
	queue->head = link_of(m)->next;
	if (--queue->count == 0) {
		sub->backlog &= (uint8_t) ~(1u << class);
		queue->credit = RTE_MIN(queue->credit, 0);
	} else {
		rte_prefetch0(packet_of(buffer_of(s, queue->head)));
	}
	return m;
}

unsigned
hqos_flush_subscriber(struct hqos_scheduler *s, uint32_t subscriber, struct rte_mbuf **packets, unsigned room)
{
	struct hqos_subscriber *sub = &s->subscribers[subscriber];
	unsigned count = 0;

	sub->used = false;
	while (sub->backlog != 0 && count < room)
		packets[count++] = take_first(s, sub, (unsigned)__builtin_ctz(sub->backlog));
	if (sub->backlog == 0 && sub->place.chunk != NOT_WAITING && count < room)
		stop_waiting(s, &sub->place);
	return count;
}

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
	const struct hqos_profile *profile = &s->profiles[sub->profile];
	const struct hqos_group_profile *group_profile = &s->group_profiles[g->profile];
	uint32_t frame, bytes, age = (uint32_t)(t->now >> CODEL_SHIFT);
	uint64_t when, now = t->now;
	struct rte_mbuf *m;
	unsigned class;
	uint8_t ready;

	if (!pace_conforms(&profile->peak, sub->peak_paid, now))
		return false;
	for (;;) {
		ready = classes_ready(sub, profile, now, &when);
		if (ready == 0)
			return false;
		class = choose(sub, profile, ready);
		m = take_first(s, sub, class);
		if (profile->classes[class].policy != HQOS_CODEL ||
			!hqos_codel_drops(&sub->aqm[class], &profile->classes[class], link_of(m)->arrived, age,
				sub->queues[class].count != 0))
			break;
		s->dropped[s->dropped_count++] = m;
		if (sub->backlog == 0 || s->dropped_count == HQOS_BURST)
			return false;
	}
	frame = m->pkt_len;
	bytes = line_bytes(profile, frame);
	if (profile->class_peaks >> class & 1)
		pace_pay(&profile->classes[class].peak, &sub->classes[class].peak_paid, now, bytes);
	if (profile->class_committed >> class & 1 &&
		pace_conforms(&profile->classes[class].committed, sub->classes[class].committed_paid, now))
		pace_pay(&profile->classes[class].committed, &sub->classes[class].committed_paid, now, bytes);
	else
		sub->queues[class].credit -= (int32_t)bytes;
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
	t->packets[t->sent++] = m;
	return true;
}

static inline bool
turn_goes_on(const struct turn *t)
{
	return t->sent < t->room && t->looks != 0 && t->s->dropped_count < HQOS_BURST &&
	       pace_conforms(&t->s->peak, t->s->paid, t->now);
}

static inline void
look_ahead(const struct hqos_scheduler *s, const struct fifo *fifo)
{
	uint32_t id = fifo_peek(fifo, &s->chunks, AHEAD_RECORD);

	if (id != NO_ID) {
		rte_prefetch0(&s->subscribers[id]);
		rte_prefetch0(&s->subscribers[id].queues[0]);
	}
	id = fifo_peek(fifo, &s->chunks, AHEAD_PACKET);
	if (id != NO_ID) {
		const struct hqos_subscriber *sub = &s->subscribers[id];

		if (sub->backlog != 0) {
			struct rte_mbuf *m = buffer_of(s, sub->queues[__builtin_ctz(sub->backlog)].head);

			rte_prefetch0(m);
			rte_prefetch0(packet_of(m));
		}
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
		uint32_t id = fifo_pop(fifo, &s->chunks);
		struct hqos_subscriber *sub = &s->subscribers[id];
		const struct hqos_profile *profile = &s->profiles[sub->profile];

		look_ahead(s, fifo);
		sub->flags &= (uint8_t) ~(green ? HQOS_IN_GREEN : HQOS_IN_OTHER);
		if (sub->backlog == 0)
			continue;
		// It may have been promoted, or relegated, or moved since it stood here.
		if (sub->group != group || green != pace_conforms(&profile->committed, sub->committed_paid, t->now) ||
			!pace_conforms(&profile->peak, sub->peak_paid, t->now)) {
			settle_subscriber(s, id, t->now);
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
	const struct hqos_profile *profile = &s->profiles[sub->profile];
	int32_t *credit = green ? &g->turns.green_credit : &sub->credit;

	if (sub->backlog != 0 && *credit > 0 &&
		(!green || pace_conforms(&profile->committed, sub->committed_paid, t->now)) && send(t, sub, g, credit))
		return;
	if (s->dropped_count == HQOS_BURST)
		return;
	*turn = NO_ID;
	settle_subscriber(s, id, t->now);
}

// A group's turn: the same. Returns whether it is over.
static bool
serve_group(struct turn *t, uint32_t index, bool green)
{
	struct hqos_scheduler *s = t->s;
	struct hqos_group *g = &s->groups[index];
	const struct hqos_group_profile *profile = &s->group_profiles[g->profile];
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
		const struct hqos_group_profile *profile = &s->group_profiles[g->profile];

		g->flags &= (uint8_t) ~(green ? HQOS_IN_GREEN : HQOS_IN_OTHER);
		if (!has_something(g))
			continue;
		if (green != pace_conforms(&profile->committed, g->committed_paid, t->now) ||
			!pace_conforms(&profile->peak, g->peak_paid, t->now)) {
			settle_group(s, id, t->now);
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
	wake_up(s, t.now);
	while (turn_goes_on(&t)) {
		bool green = s->turns.green != NO_ID || (s->turns.green = next_group(&t, true)) != NO_ID;
		uint32_t *turn = green ? &s->turns.green : &s->turns.other, group = *turn;

		if (group == NO_ID && (group = *turn = next_group(&t, false)) == NO_ID)
			break;
		if (serve_group(&t, group, green)) {
			*turn = NO_ID;
			settle_group(s, group, t.now);
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
	for (uint64_t slot = s->wheel.now; slot < s->wheel.now + WHEEL_SLOTS; slot++)
		if (s->wheel.occupied[slot % WHEEL_SLOTS / 64] >> slot % 64 & 1)
			return RTE_MAX(cycles, slot << (WHEEL_SLOT_SHIFT - TICK_SHIFT));
	return UINT64_MAX;
}
