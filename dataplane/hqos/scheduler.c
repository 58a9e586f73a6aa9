// SPDX-License-Identifier: Apache-2.0
// The scheduler itself: its memory, its contents, and enqueueing.
#include "hqos/scheduler.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_common.h>
#include <rte_prefetch.h>

#include "core/slab.h"
#include "hqos/aqm.h"
#include "hqos/queue.h"
#include "hqos/standing.h"

// Entries that may be stale because their subscribers moved.
enum { STALE_MAX = 1 << 16 };
// Looks at what is being counted, before a worker that does not go on is no longer waited for.
// A read that takes longer than so many TSC cycles was interrupted: meanwhile everything may have been counted anew as often as the
// flags can tell.
enum { TRIES_MAX = 1000, TRIES_SOON = 16, TRIES_APART_NS = 200 * 1000, READ_CYCLES = 50000 };

void
hqos_profile_finish(struct hqos_profile *profile, unsigned classes)
{
	unsigned most;

	profile->few = profile->codel = 0;
	profile->codel_min_target = UINT32_MAX >> 1;
	profile->narrow = classes > HQOS_WIDE;
	most = profile->narrow ? 8 : 16;
	for (unsigned i = 0; i < HQOS_CLASSES; i++) {
		const struct hqos_class_profile *class = &profile->classes[i];
		uint8_t bit = (uint8_t)(1u << i);

		if (((profile->class_peaks | profile->class_committed) & bit) == 0 && (class->equals & ~bit) == 0 &&
			class->policy != HQOS_WRED && class->limit >= most && (profile->narrow || i < HQOS_WIDE))
			profile->few |= bit;
		if (class->policy == HQOS_CODEL) {
			profile->codel |= bit;
			profile->codel_min_target = RTE_MIN(profile->codel_min_target, class->codel_target);
		}
	}
}

struct hqos_scheduler *
hqos_new(uint32_t subscribers, uint32_t groups, size_t packets, struct hqos_profile *const *profiles,
	struct hqos_group_profile *const *group_profiles, const void *lowest, const void *highest, uint64_t now)
{
	// Each may stand in two queues and in the wheel, and a packet may have a chunk of its own. All other chunks but the ends of
	// each list are full.
	size_t entries = 3 * ((size_t)subscribers + groups) + STALE_MAX;
	size_t chunks = entries / CHUNK_IDS + 1 + 4 * ((size_t)groups + 1) + WHEEL_SLOTS + 1 + packets +
			FEW_CHUNKS * QUEUE_CHUNK_PACKETS;
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
		groups > HQOS_GROUPS || chunks >= 1u << 28 || ((uintptr_t)highest - s->buffers) >> 6 > UINT32_MAX) {
		hqos_free(s);
		return NULL;
	}
	s->profiles = profiles;
	s->group_profiles = group_profiles;
	s->turns = (struct hqos_turns){NO_ID, NO_ID, 0};
	s->random = 0x9e3779b9;
	s->room = HQOS_AMPLE;
	s->room_reason = HQOS_PORT_FULL;
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

// Remove the subscriber's entries from a group's queues and turns.
static bool
leave_group(struct hqos_scheduler *s, uint32_t subscriber)
{
	struct hqos_subscriber *sub = &s->subscribers[subscriber];
	struct hqos_group *g = &s->groups[sub->group];
	unsigned entries = (unsigned)__builtin_popcount(sub->flags & (HQOS_IN_GREEN | HQOS_IN_OTHER));

	if (s->stale + entries > STALE_MAX)
		return false;
	s->stale += entries;
	sub->life++;
	sub->flags &= (uint8_t) ~(HQOS_IN_GREEN | HQOS_IN_OTHER);
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
		memset(sub->queues, 0, sizeof(sub->queues));
		sub->credit = 0;
		sub->places = sub->sent = 0;
		sub->backlog = sub->flags = sub->turn = 0;
		sub->group = (uint16_t)group;
		sub->place.chunk = NOT_WAITING;
		sub->peak_paid = sub->committed_paid = now;
		for (unsigned i = 0; i < HQOS_CLASSES; i++)
			sub->classes[i] = (struct hqos_class_state){now, now};
		// The counters of one subscriber do not show packets of another.
		__atomic_thread_fence(__ATOMIC_RELEASE);
		sub->used = true;
	} else if (sub->group != group) {
		if (!leave_group(s, subscriber))
			return false;
		sub->group = (uint16_t)group;
	}
	sub->profile = profile;
	hqos_settle_subscriber(s, subscriber, now);
	return true;
}

void
hqos_took_out(struct hqos_scheduler *s, struct rte_mbuf *const *packets, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (packets[i]->nb_segs > 1)
			s->chained -= packets[i]->nb_segs - 1u;
}

unsigned
hqos_flush_subscriber(struct hqos_scheduler *s, uint32_t subscriber, struct rte_mbuf **packets, unsigned room)
{
	struct hqos_subscriber *sub = &s->subscribers[subscriber];
	unsigned count = 0;

	if (!sub->used)
		return 0;
	if (sub->flags & HQOS_FEW)
		queue_spread(s, sub);
	while (sub->backlog != 0 && count < room) {
		unsigned class = (unsigned)__builtin_ctz(sub->backlog);

		struct queued taken = queue_take(s, sub, class);

		packets[count++] = taken.m;
		sub->queues[class].dropped++;
		group_dropped(&s->groups[sub->group], taken.length);
	}
	if (unlikely(s->chained != 0))
		hqos_took_out(s, packets, count);
	s->counters.flushed += count;
	if (count == room || !leave_group(s, subscriber))
		return count;
	if (sub->place.chunk != NOT_WAITING)
		hqos_stop_waiting(s, &sub->place);
	sub->used = false;
	return count;
}

// The sum of the counts of a queue and of its subscriber.
static uint64_t
sent_of_class(uint64_t of_queue, uint32_t few, bool narrow, unsigned class)
{
	unsigned bits = narrow ? 4 : 8, at = class * bits;
	uint32_t counted = at < 32 ? few >> at & ((1u << bits) - 1) : 0, highest = 1u << (bits - 1);
	uint64_t sent = of_queue / 2 + (counted & (highest - 1));

	return (of_queue & 1) == (counted >= highest) ? sent : sent - highest;
}

// Between two loads of a queue's count the few did not begin anew. Packets of its own do not touch bit 0; twice anew, which leaves it as it
// was, is twice what the few count.
static bool
short_queue_restarted(uint64_t before, uint64_t after, bool narrow)
{
	return ((before ^ after) & 1) == 0 && after - before < 4u << (narrow ? 3 : 7);
}

uint64_t
hqos_sent(const struct hqos_subscriber *sub, unsigned class)
{
	enum { COUNTED_HOW = (UINT8_MAX & ~(HQOS_RECOUNTED - 1)) | HQOS_NARROW | HQOS_RECOUNT };
	const struct timespec apart = {.tv_nsec = TRIES_APART_NS};
	const struct hqos_queue *queue = &sub->queues[class];
	uint64_t of_queue, later, began;
	uint32_t few;
	uint8_t how;

	for (unsigned tries = 0; tries < TRIES_MAX; tries++) {
		if (tries >= TRIES_SOON)
			nanosleep(&apart, NULL);
		else if (tries > 0)
			sched_yield();
		began = rte_rdtsc();
		how = __atomic_load_n(&sub->flags, __ATOMIC_ACQUIRE) & COUNTED_HOW;
		of_queue = __atomic_load_n(&queue->sent, __ATOMIC_ACQUIRE);
		few = __atomic_load_n(&sub->sent, __ATOMIC_ACQUIRE);
		later = __atomic_load_n(&queue->sent, __ATOMIC_ACQUIRE);
		if (!(how & HQOS_RECOUNT) && short_queue_restarted(of_queue, later, how & HQOS_NARROW) &&
			how == (__atomic_load_n(&sub->flags, __ATOMIC_ACQUIRE) & COUNTED_HOW) &&
			rte_rdtsc() - began < READ_CYCLES)
			break;
	}
	// After the last try, return the last sum, which may be wrong by the count of the subscriber.
	return sent_of_class(of_queue, few, how & HQOS_NARROW, class);
}

void
short_queue_change_width(struct hqos_subscriber *sub)
{
	uint8_t flags = sub->flags;

	__atomic_store_n(&sub->flags, flags | HQOS_RECOUNT, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (unsigned i = 0; i < HQOS_CLASSES; i++) {
		struct hqos_queue *queue = &sub->queues[i];
		uint64_t sent = 2 * sent_of_class(queue->sent, sub->sent, flags & HQOS_NARROW, i);

		// Most subscribers have sent nothing: their memory may not exist yet.
		if (sent != queue->sent)
			__atomic_store_n(&queue->sent, sent, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&sub->sent, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&sub->flags, (uint8_t)((flags ^ HQOS_NARROW) + HQOS_RECOUNTED), __ATOMIC_RELEASE);
}

void
queue_spread(struct hqos_scheduler *s, struct hqos_subscriber *sub)
{
	struct queue_chunk *chunks[FEW_CHUNKS], few[FEW_CHUNKS];
	const unsigned width = hqos_width(sub), mask = (1u << width) - 1;
	uint64_t places = sub->places;

	short_queue_chunks(s, sub, chunks);
	for (unsigned i = 0; i < FEW_CHUNKS; i++)
		few[i] = *chunks[i];
	short_queue_free(s, sub, chunks[0]);
	sub->places = 0;
	for (; places != 0; places &= places - 1) {
		unsigned place = (unsigned)__builtin_ctzll(places), at = (place & mask) % QUEUE_CHUNK_PACKETS;
		const struct queue_chunk *chunk = &few[(place & mask) / QUEUE_CHUNK_PACKETS];

		queue_append(s, sub, place >> width, chunk->numbers[at], chunk->lengths[at], chunk->arrived[at]);
	}
}

// How the loads of a burst's packets are spread out: so many packets ahead.
enum { AHEAD_SUBSCRIBER = 24, AHEAD_QUEUE = 12 };

// Fetch the place of the next packet. Fetch the queue's line only if the subscriber has queues: it is a further cache line.
static inline void
fetch_queue(const struct hqos_scheduler *s, uint32_t subscriber, uint8_t class)
{
	const struct hqos_subscriber *sub = &s->subscribers[subscriber];
	uintptr_t queue = offsetof(struct hqos_subscriber, queues[class]),
		  many = -(uintptr_t)((sub->flags & HQOS_FEW) == 0 && sub->backlog != 0);

	// All ones or none, out of the compiler's sight: it would make a branch of it, and it may be a toss of a coin.
	__asm__("" : "+r"(many), "+r"(queue));
	rte_prefetch0(queue_chunk_at(s, sub->chunk));
	rte_prefetch0((const uint8_t *)sub + (queue & many));
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

// Into the queue of its class. Why not, or TAKEN.
static unsigned
put_in_queue(struct hqos_scheduler *s, struct hqos_subscriber *sub, const struct hqos_profile *profile, unsigned class,
	struct rte_mbuf *m, uint16_t length, uint32_t arrived)
{
	unsigned refuse;

	if (sub->flags & HQOS_FEW)
		queue_spread(s, sub);
	refuse = refusal(s, &sub->queues[class], &profile->classes[class], packet_of(m)->colour);
	if (refuse == TAKEN) {
		queue_append(s, sub, class, number_of(s, m), length, arrived);
		sub->chunk = sub->queues[class].last;
	}
	return refuse;
}

// Where buffers are scarce: whether a queue has its share of them. `left` more packets may wait.
static __rte_noinline bool
has_its_share(const struct hqos_scheduler *s, uint32_t subscriber, unsigned class, uint32_t left)
{
	unsigned waiting = hqos_waiting(&s->subscribers[subscriber], class);

	return waiting >= left && (subscriber >= s->reserved || waiting >= HQOS_RESERVED);
}

unsigned
hqos_enqueue(struct hqos_scheduler *s, struct rte_mbuf **packets, const uint32_t *subscribers, const uint8_t *classes,
	unsigned count, uint64_t cycles)
{
	uint64_t now = ticks_of(cycles);
	const uint32_t arrived = (uint32_t)(now >> CODEL_SHIFT);
	const bool scarce = s->room != HQOS_AMPLE;
	unsigned refused = 0, chained = 0;

	for (unsigned i = 0; i < RTE_MIN(count, (unsigned)AHEAD_SUBSCRIBER); i++)
		rte_prefetch0(&s->subscribers[subscribers[i]]);
	for (unsigned i = 0; i < RTE_MIN(count, (unsigned)AHEAD_QUEUE); i++)
		fetch_queue(s, subscribers[i], classes[i]);
	for (unsigned i = 0; i < count; i++) {
		struct hqos_subscriber *sub = &s->subscribers[subscribers[i]];
		const struct hqos_profile *profile = hqos_profile_of(s, sub);
		unsigned class = classes[i], refuse = TAKEN;
		bool idle = sub->backlog == 0, fresh = !(sub->backlog >> class & 1);
		struct rte_mbuf *m = packets[i];
		uint16_t length = (uint16_t)RTE_MIN(m->pkt_len, (uint32_t)HQOS_FRAME_MAX);

		if (i + AHEAD_SUBSCRIBER < count)
			rte_prefetch0(&s->subscribers[subscribers[i + AHEAD_SUBSCRIBER]]);
		if (i + AHEAD_QUEUE < count)
			fetch_queue(s, subscribers[i + AHEAD_QUEUE], classes[i + AHEAD_QUEUE]);
		if (unlikely(!sub->used))
			refuse = HQOS_UNKNOWN;
		else if (unlikely(scarce) &&
			 has_its_share(s, subscribers[i], class, s->room - RTE_MIN(s->room, i - refused + chained)))
			refuse = s->room_reason;
		else if (!((idle || (sub->flags & HQOS_FEW)) && (profile->few >> class & 1) &&
				 short_queue_append(s, sub, profile, class, number_of(s, m), length, arrived)))
			refuse = put_in_queue(s, sub, profile, class, m, length, arrived);
		if (unlikely(refuse != TAKEN)) {
			if (refuse != HQOS_UNKNOWN) {
				sub->queues[class].dropped++;
				group_dropped(&s->groups[sub->group], length);
			}
			s->counters.dropped[refuse]++;
			packet_of(m)->detail = refuse;
			packets[refused++] = m;
			continue;
		}
		if (unlikely(m->nb_segs > 1))
			chained += m->nb_segs - 1u;
		// A class that had nothing may be allowed to send while the others have to wait.
		if (idle)
			settle_first(s, sub, subscribers[i], profile, now);
		else if (unlikely(sub->place.chunk != NOT_WAITING) && fresh)
			hqos_settle_subscriber(s, subscribers[i], now);
	}
	s->packets += count - refused;
	s->chained += chained;
	return refused;
}
