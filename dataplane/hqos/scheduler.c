// The scheduler itself: its memory, what is in it, and what comes in.
#include "hqos/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_prefetch.h>

#include "core/slab.h"
#include "hqos/aqm.h"
#include "hqos/queue.h"
#include "hqos/standing.h"

// Entries that may stand for nobody any more because their subscribers moved.
enum { STALE_MOST = 1 << 16 };

struct hqos_scheduler *
hqos_new(uint32_t subscribers, uint32_t groups, size_t packets, struct hqos_profile *const *profiles,
	struct hqos_group_profile *const *group_profiles, const void *lowest, const void *highest, uint64_t now)
{
	// Each may stand in two queues and in the wheel, and a packet may have a chunk of its own. All other chunks but the ends of
	// each list are full.
	size_t entries = 3 * ((size_t)subscribers + groups) + STALE_MOST;
	size_t chunks = entries / CHUNK_IDS + 1 + 4 * ((size_t)groups + 1) + WHEEL_SLOTS + 1 + packets;
	struct hqos_scheduler *s = NULL;

	if (posix_memalign((void **)&s, 64, sizeof(*s)) != 0)
		return NULL;
	memset(s, 0, sizeof(*s));
	s->subscriber_limit = subscribers;
	s->group_limit = groups;
	s->chunk_limit = chunks;
	s->buffers = ((uintptr_t)lowest & ~(uintptr_t)63) - 64;
	s->subscribers = slab_reserve(subscribers * sizeof(*s->subscribers));
	s->codels = slab_reserve(subscribers * sizeof(*s->codels));
	s->groups = slab_reserve(groups * sizeof(*s->groups));
	s->chunks.all = slab_reserve(chunks * sizeof(struct chunk));
	if (!s->subscribers || !s->codels || !s->groups || !s->chunks.all || subscribers > HQOS_SUBSCRIBERS ||
		((uintptr_t)highest - s->buffers) >> 6 > UINT32_MAX) {
		hqos_free(s);
		return NULL;
	}
	s->profiles = profiles;
	s->group_profiles = group_profiles;
	s->turns = (struct hqos_turns){NO_ID, NO_ID, 0};
	s->random = 0x9e3779b9;
	s->paid = ticks_of(now);
	s->chunks.free = NO_CHUNK;
	wheel_start(&s->wheel, &s->chunks, ticks_of(now));
	return s;
}

void
hqos_free(struct hqos_scheduler *s)
{
	if (!s)
		return;
	slab_unreserve(s->subscribers, s->subscriber_limit * sizeof(*s->subscribers));
	slab_unreserve(s->codels, s->subscriber_limit * sizeof(*s->codels));
	slab_unreserve(s->groups, s->group_limit * sizeof(*s->groups));
	slab_unreserve(s->chunks.all, s->chunk_limit * sizeof(struct chunk));
	free(s);
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
	hqos_settle_group(s, group, now);
}

// What stands for the subscriber in a group's queues and turns does so no more.
static bool
leave_group(struct hqos_scheduler *s, uint32_t subscriber)
{
	struct hqos_subscriber *sub = &s->subscribers[subscriber];
	struct hqos_group *g = &s->groups[sub->group];
	unsigned entries = (unsigned)__builtin_popcount(sub->flags);

	if (s->stale + entries > STALE_MOST)
		return false;
	s->stale += entries;
	sub->life++;
	sub->flags = 0;
	if (g->turns.green == subscriber)
		g->turns.green = NO_ID;
	if (g->turns.other == subscriber)
		g->turns.other = NO_ID;
	return true;
}

bool
hqos_set_subscriber(struct hqos_scheduler *s, uint32_t subscriber, uint32_t group, uint16_t profile, uint64_t now)
{
	struct hqos_subscriber *sub = &s->subscribers[subscriber];

	now = ticks_of(now);
	if (!sub->used) {
		memset(&s->codels[subscriber], 0, sizeof(s->codels[subscriber]));
		memset(sub->ends, 0, sizeof(sub->ends));
		memset(sub->queues, 0, sizeof(sub->queues));
		sub->credit = 0;
		sub->backlog = sub->flags = sub->turn = 0;
		sub->used = true;
		sub->group = group;
		sub->place.chunk = NOT_WAITING;
		sub->peak_paid = sub->committed_paid = now;
		for (unsigned i = 0; i < HQOS_CLASSES; i++)
			sub->classes[i] = (struct hqos_class_state){now, now};
	} else if (sub->group != group) {
		if (!leave_group(s, subscriber))
			return false;
		sub->group = group;
	}
	sub->profile = profile;
	hqos_settle_subscriber(s, subscriber, now);
	return true;
}

unsigned
hqos_flush_subscriber(struct hqos_scheduler *s, uint32_t subscriber, struct rte_mbuf **packets, unsigned room)
{
	struct hqos_subscriber *sub = &s->subscribers[subscriber];
	unsigned count = 0;

	if (!sub->used)
		return 0;
	while (sub->backlog != 0 && count < room) {
		unsigned class = (unsigned)__builtin_ctz(sub->backlog);

		packets[count++] = queue_take(s, sub, class).m;
		sub->queues[class].dropped++;
	}
	s->counters.flushed += count;
	if (count == room || !leave_group(s, subscriber))
		return count;
	if (sub->place.chunk != NOT_WAITING)
		hqos_stop_waiting(s, &sub->place);
	sub->used = false;
	return count;
}

// How the loads of a burst's packets are spread out: so many packets ahead.
enum { AHEAD_SUBSCRIBER = 24, AHEAD_LAST = 10 };

static inline void
fetch_subscriber(const struct hqos_scheduler *s, uint32_t subscriber, uint8_t class)
{
	const struct hqos_subscriber *sub = &s->subscribers[subscriber];

	rte_prefetch0(sub);
	rte_prefetch0(&sub->queues[class]);
}

static inline void
fetch_last(const struct hqos_scheduler *s, uint32_t subscriber, uint8_t class)
{
	const struct hqos_queue *queue = &s->subscribers[subscriber].queues[class];

	// By a mask: the compiler would make a branch of a condition, and it is a toss of a coin.
	uintptr_t waiting = -(uintptr_t)(queue->count != 0), chunk = (uintptr_t)queue_chunk_at(s, queue->last);

	rte_prefetch0((const void *)((uintptr_t)queue ^ (((uintptr_t)queue ^ chunk) & waiting)));
}

enum { TAKEN = UINT8_MAX };

static inline unsigned
refusal(struct hqos_scheduler *s, struct hqos_queue *queue, const struct hqos_class_profile *class, unsigned colour)
{
	if (queue->count >= class->limit)
		return HQOS_TAIL_DROP;
	if (class->policy == HQOS_WRED && hqos_wred_drops(queue, class, colour, &s->random))
		return HQOS_WRED;
	return TAKEN;
}

unsigned
hqos_enqueue(struct hqos_scheduler *s, struct rte_mbuf **packets, const uint32_t *subscribers, const uint8_t *classes,
	unsigned count, uint64_t cycles)
{
	uint64_t now = ticks_of(cycles);
	unsigned refused = 0;

	for (unsigned i = 0; i < RTE_MIN(count, (unsigned)AHEAD_SUBSCRIBER); i++)
		fetch_subscriber(s, subscribers[i], classes[i]);
	for (unsigned i = 0; i < RTE_MIN(count, (unsigned)AHEAD_LAST); i++)
		fetch_last(s, subscribers[i], classes[i]);
	for (unsigned i = 0; i < count; i++) {
		struct hqos_subscriber *sub = &s->subscribers[subscribers[i]];
		const struct hqos_class_profile *class = &hqos_profile_of(s, sub)->classes[classes[i]];
		struct hqos_queue *queue = &sub->queues[classes[i]];
		bool idle = sub->backlog == 0, fresh = queue->count == 0;
		struct packet *p = packet_of(packets[i]);
		unsigned refuse;

		if (i + AHEAD_SUBSCRIBER < count)
			fetch_subscriber(s, subscribers[i + AHEAD_SUBSCRIBER], classes[i + AHEAD_SUBSCRIBER]);
		if (i + AHEAD_LAST < count)
			fetch_last(s, subscribers[i + AHEAD_LAST], classes[i + AHEAD_LAST]);
		refuse = likely(sub->used) ? refusal(s, queue, class, p->colour) : HQOS_UNKNOWN;
		if (unlikely(refuse != TAKEN)) {
			queue->dropped += refuse != HQOS_UNKNOWN;
			s->counters.dropped[refuse]++;
			p->detail = refuse;
			packets[refused++] = packets[i];
			continue;
		}
		queue_append(s, sub, classes[i], packets[i], (uint32_t)(now >> CODEL_SHIFT));
		// A class that had nothing may be allowed to send while the others have to wait.
		if (idle || (fresh && sub->place.chunk != NOT_WAITING))
			hqos_settle_subscriber(s, subscribers[i], now);
	}
	return refused;
}
