// SPDX-License-Identifier: Apache-2.0
// Ports with a scheduler: their start and end, and their subscribers.
#include "hqos/shaped.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_mempool.h>

#include "core/drop.h"
#include "core/rcu.h"
#include "core/start.h"
#include "core/worker.h"
#include "hqos/nodes.h"
#include "port/handover.h"

// struct hqos_subscriber's `desired`.
enum { DESIRED_PROFILE = 0, DESIRED_GROUP = 16, DESIRED_LIFE = 40, DESIRED_REST = 62, DESIRED_THERE = 63 };
enum {
	CATCH_UP = 256,      // maximum of changes at a time
	LAST_MIN = 10000000, // nanoseconds for the last packets of a scheduler that is to go
};

struct shaped *shaped_ports[PORT_MAX];
struct shaped *shaped_owned[WORKER_MAX];
uint32_t shaped_ample = UINT32_MAX;
struct qos_binding *qos_bindings[2];

static inline struct hqos_subscriber *
subscriber_at(const struct shaped *shaped, uint32_t subscriber)
{
	return &shaped->scheduler->subscribers[subscriber];
}

// ---- Changes of subscribers.

// Of the subscriber before on the list.
static inline void
set_before(struct hqos_subscriber *sub, uint32_t before)
{
	for (unsigned i = 0; i < sizeof(sub->before); i++)
		sub->before[i] = (uint8_t)(before >> 8 * i);
}

static inline uint32_t
before_of(const struct hqos_subscriber *sub)
{
	uint32_t before = sub->before[0] | (uint32_t)sub->before[1] << 8 | (uint32_t)sub->before[2] << 16;

	return before == (NO_ID & 0xffffff) ? NO_ID : before;
}

// Put one on the list unless he is on it. Main thread and owner.
static void
list(struct shaped *shaped, uint32_t subscriber)
{
	struct hqos_subscriber *sub = subscriber_at(shaped, subscriber);
	uint32_t last = __atomic_load_n(&shaped->changed, __ATOMIC_RELAXED);

	if (__atomic_exchange_n(&sub->listed, 1, __ATOMIC_ACQ_REL))
		return;
	do
		set_before(sub, last);
	while (!__atomic_compare_exchange_n(
		&shaped->changed, &last, subscriber, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

static void
set_desired(struct shaped *shaped, uint32_t subscriber, uint64_t word)
{
	__atomic_store_n(&subscriber_at(shaped, subscriber)->desired, word, __ATOMIC_RELEASE);
	list(shaped, subscriber);
}

// Apply the changes of a subscriber. Its packets are put into `packets` if it goes, or if another has its number now. False: some changes
// are left.
static bool
settle(struct shaped *shaped, uint32_t subscriber, struct rte_mbuf **packets, unsigned room, unsigned *count,
	uint64_t now)
{
	struct hqos_scheduler *s = shaped->scheduler;
	struct hqos_subscriber *sub = subscriber_at(shaped, subscriber);
	uint64_t desired = __atomic_load_n(&sub->desired, __ATOMIC_ACQUIRE);
	bool there = desired >> DESIRED_THERE & 1;
	uint8_t life = (uint8_t)(desired >> DESIRED_LIFE);
	uint32_t group = (uint32_t)(desired >> DESIRED_GROUP) & (HQOS_SUBSCRIBERS - 1);

	// Waiting packets are sent first.
	if (!there && (desired >> DESIRED_REST & 1) && sub->used && sub->owner_life == life && sub->backlog != 0)
		return false;
	if (sub->used && (!there || sub->owner_life != life)) {
		unsigned left = room - *count, gone;

		gone = left ? hqos_flush_subscriber(s, subscriber, packets + *count, left) : 0;
		*count += RTE_MIN(gone, left);
		if (sub->used)
			return false;
	}
	if (!there)
		return true;
	__atomic_store_n(&sub->owner_life, life, __ATOMIC_RELEASE);
	if (!s->groups[group].used)
		hqos_set_group(s, group, (uint16_t)group, now);
	return hqos_set_subscriber(s, subscriber, group, (uint16_t)(desired >> DESIRED_PROFILE), now);
}

bool
shaped_has_settled(const struct shaped *shaped, uint32_t subscriber)
{
	const struct hqos_subscriber *sub = subscriber_at(shaped, subscriber);
	uint8_t life = __atomic_load_n(&sub->owner_life, __ATOMIC_ACQUIRE);

	return life == (uint8_t)(sub->desired >> DESIRED_LIFE) && sub->used;
}

bool
shaped_admit(struct shaped *shaped, uint32_t subscriber, uint64_t now)
{
	unsigned none = 0;

	return subscriber < shaped->scheduler->subscriber_limit && settle(shaped, subscriber, NULL, 0, &none, now) &&
	       subscriber_at(shaped, subscriber)->used;
}

unsigned
shaped_catch_up(struct shaped *shaped, struct rte_mbuf **packets, unsigned room, uint64_t now)
{
	struct shaped_rate *rate = __atomic_load_n(&shaped->rate, __ATOMIC_ACQUIRE);
	unsigned count = 0;

	if (unlikely(rate->number != shaped->has)) {
		struct hqos_scheduler *s = shaped->scheduler;

		shaped->has = rate->number;
		s->peak = rate->peak;
		s->overhead = rate->overhead;
		pace_forgive(&s->peak, &s->paid, ticks_of(now), 2 * HQOS_FRAME_MAX);
	}
	if (likely(shaped->unsettled == NO_ID)) {
		if (likely(__atomic_load_n(&shaped->changed, __ATOMIC_RELAXED) == NO_ID))
			return 0;
		shaped->unsettled = __atomic_exchange_n(&shaped->changed, NO_ID, __ATOMIC_ACQUIRE);
		for (unsigned w = 0; w < worker_count; w++)
			if (shaped->rings[w])
				shaped->before_them = RTE_MAX(shaped->before_them, rte_ring_count(shaped->rings[w]));
	} else {
		// One of each ring since.
		shaped->before_them -= RTE_MIN(shaped->before_them, (uint32_t)BURST);
	}
	if (unlikely(shaped->before_them > 0))
		return 0;
	for (unsigned i = 0; i < CATCH_UP && shaped->unsettled != NO_ID && count < room; i++) {
		uint32_t subscriber = shaped->unsettled;
		struct hqos_subscriber *sub = subscriber_at(shaped, subscriber);

		shaped->unsettled = before_of(sub);
		// Before the change is read: a later change puts the subscriber on the list again.
		__atomic_exchange_n(&sub->listed, 0, __ATOMIC_ACQ_REL);
		if (!settle(shaped, subscriber, packets, room, &count, now))
			list(shaped, subscriber);
	}
	return count;
}

// ---- Sessions. Main thread.

bool
hqos_same_scheduler(uint32_t queue, const struct object *group)
{
	return queue != NO_QUEUE && shaped_ports[queue >> QUEUE_PORT_SHIFT] == qos_group_of(group)->shaped;
}

uint32_t
hqos_take(const struct object *group, const struct object *port, const char *field, struct fault *f)
{
	struct shaped *shaped = qos_group_of(group)->shaped;
	uint32_t number;

	if (port && port_of(port) != shaped->port) {
		fault(f, EINVAL, "%s: %.63s is a group of port %.63s; the session is on port %.63s", field, group->name,
			shaped->port->object->name, port->name);
		return NO_QUEUE;
	}
	number = slab_take(&shaped->subscribers);
	if (number == UINT32_MAX) {
		fault(f, ENOSPC, "%s: the scheduler %.63s has %d subscribers already", field, shaped->object->name,
			QOS_SUBSCRIBERS);
		return NO_QUEUE;
	}
	return (uint32_t)shaped->port->id << QUEUE_PORT_SHIFT | number;
}

void
hqos_use(uint32_t queue, uint32_t session, enum direction direction, const struct object *group,
	const struct object *profile)
{
	struct shaped *shaped = shaped_ports[queue >> QUEUE_PORT_SHIFT];
	uint32_t subscriber = queue & (HQOS_SUBSCRIBERS - 1);
	struct hqos_subscriber *sub = subscriber_at(shaped, subscriber);
	const struct qos_binding now = {.queue = queue, .profile = (uint16_t)qos_profile_of(profile)};
	uint64_t desired = 1ull << DESIRED_THERE | (uint64_t)qos_group_of(group)->number << DESIRED_GROUP | now.profile,
		 word;

	// Another life for another session.
	if (sub->desired >> DESIRED_THERE & 1)
		desired |= sub->desired & 0xffull << DESIRED_LIFE;
	else
		desired |= (sub->desired + (1ull << DESIRED_LIFE)) & 0xffull << DESIRED_LIFE;
	if (desired != sub->desired)
		set_desired(shaped, subscriber, desired);
	memcpy(&word, &now, sizeof(word));
	__atomic_store_n((uint64_t *)(void *)&qos_bindings[direction][session], word, __ATOMIC_RELEASE);
}

void
hqos_use_none(uint32_t session, enum direction direction)
{
	uint64_t *binding = (uint64_t *)(void *)&qos_bindings[direction][session];

	if (*binding)
		__atomic_store_n(binding, 0, __ATOMIC_RELEASE);
}

// Without a subscriber.
static void
go(struct shaped *shaped, uint32_t subscriber, bool drop)
{
	set_desired(shaped, subscriber,
		(subscriber_at(shaped, subscriber)->desired & 0xffull << DESIRED_LIFE) | (uint64_t)!drop
												 << DESIRED_REST);
}

// A deleted subscriber, once no worker has a packet for it.
struct going {
	struct shaped *shaped;
	uint32_t subscriber;
};

static void
go_now(void *memory)
{
	const struct going *going = memory;

	go(going->shaped, going->subscriber, false);
	slab_give_later(&going->shaped->subscribers, going->subscriber);
	free(memory);
}

static void
go_later(struct shaped *shaped, uint32_t subscriber)
{
	struct going *going = malloc(sizeof(*going));

	if (!going) {
		go(shaped, subscriber, false);
		slab_give_later(&shaped->subscribers, subscriber);
		return;
	}
	*going = (struct going){shaped, subscriber};
	rcu_retire(go_now, going);
}

void
hqos_give_back(uint32_t queue, bool drop)
{
	struct shaped *shaped = shaped_ports[queue >> QUEUE_PORT_SHIFT];
	uint32_t subscriber = queue & (HQOS_SUBSCRIBERS - 1);

	if (!drop) {
		go_later(shaped, subscriber);
		return;
	}
	go(shaped, subscriber, true);
	slab_give_later(&shaped->subscribers, subscriber);
}

// ---- Buffers.

void
shaped_look_at_room(struct shaped *shaped)
{
	struct hqos_scheduler *s = shaped->scheduler;
	const uint32_t all_max = shaped_all_max(packet_pool->size), most = shaped_port_max(packet_pool->size),
		       ample = __atomic_load_n(&shaped_ample, __ATOMIC_RELAXED);
	const uint32_t held = hqos_buffers(s);
	uint32_t all = held, left, left_of_all;

	// The shares of the others are set already.
	for (unsigned w = 0; w < worker_count; w++)
		for (const struct shaped *other = __atomic_load_n(&shaped_owned[w], __ATOMIC_ACQUIRE); other;
			other = __atomic_load_n(&other->next, __ATOMIC_ACQUIRE))
			if (other != shaped)
				all += RTE_MAX(hqos_buffers(other->scheduler), ample);
	left = most - RTE_MIN(most, held);
	left_of_all = all_max - RTE_MIN(all_max, all);
	s->room = RTE_MIN(left, left_of_all);
	s->room_reason = left <= left_of_all ? HQOS_PORT_FULL : HQOS_BUFFERS_FULL;
}

// Main thread: there is one more scheduler, or one less.
static void
share_buffers(void)
{
	uint32_t count = 0;

	for (unsigned w = 0; w < worker_count; w++)
		for (const struct shaped *s = shaped_owned[w]; s; s = s->next)
			count++;
	__atomic_store_n(&shaped_ample,
		RTE_MIN(shaped_all_max(packet_pool->size) / (2 * RTE_MAX(count, 1u)),
			shaped_port_max(packet_pool->size) / 2),
		__ATOMIC_RELAXED);
}

// ---- Beginning and end.

static void
look_at_buffers(struct rte_mempool *pool, void *range, struct rte_mempool_memhdr *memory, unsigned index)
{
	uintptr_t *ends = range, first = (uintptr_t)memory->addr, last = first + memory->len;

	ends[0] = RTE_MIN(ends[0], first);
	ends[1] = RTE_MAX(ends[1], last);
}

// The subscribers before any session's. The gateway's own is always within its committed rate.
static const struct hqos_group_profile own_group = {.quantum = 1 << 16, .has_committed = false},
				       other_group = {.quantum = 8 * HQOS_QUANTUM, .committed = PACE_NEVER};

void
shaped_set_group(struct shaped *s, uint32_t group, struct hqos_group_profile *profile)
{
	struct hqos_group_profile *old = s->group_profiles[group];

	__atomic_store_n(&s->group_profiles[group], profile ? profile : (struct hqos_group_profile *)&other_group,
		__ATOMIC_RELEASE);
	if (old && old != &other_group)
		rcu_retire(free, old);
}

static int
make(struct shaped *s)
{
	uintptr_t ends[2] = {UINTPTR_MAX, 0};
	const size_t groups = QOS_GROUPS * sizeof(s->group_profiles[0]);

	rte_mempool_mem_iter(packet_pool, look_at_buffers, ends);
	s->group_profiles = slab_reserve(groups);
	if (!s->group_profiles || slab_create(&s->subscribers, 1, QOS_SUBSCRIBERS) ||
		slab_create(&s->groups, 1, QOS_GROUPS))
		return -ENOMEM;
	for (unsigned i = 0; i < FIRST_SUBSCRIBER; i++)
		slab_take(&s->subscribers);
	for (unsigned i = 0; i < FIRST_GROUP; i++)
		slab_take(&s->groups);
	s->group_profiles[OWN_GROUP] = (struct hqos_group_profile *)&own_group;
	s->group_profiles[OTHER_GROUP] = (struct hqos_group_profile *)&other_group;
	s->scheduler =
		hqos_new(QOS_SUBSCRIBERS, QOS_GROUPS, packet_pool->size, (struct hqos_profile *const *)qos_profiles,
			s->group_profiles, (void *)ends[0], (void *)ends[1], rte_rdtsc());
	if (!s->scheduler)
		return -ENOMEM;
	s->scheduler->reserved = FIRST_SUBSCRIBER - 1;
	for (unsigned w = 0; w < worker_count; w++)
		if (w != s->owner && (s->rings[w] = handover_ring()) == NULL)
			return -ENOMEM;
	return 0;
}

static void
unmake(struct shaped *s)
{
	for (unsigned w = 0; w < worker_count; w++)
		free(s->rings[w]);
	hqos_free(s->scheduler);
	slab_destroy(&s->subscribers);
	slab_destroy(&s->groups);
	slab_unreserve(s->group_profiles, QOS_GROUPS * sizeof(s->group_profiles[0]));
	free(s->rate);
	free(s);
}

static void
unmake_retired(void *memory)
{
	unmake(memory);
}

static void
unmake_later(void *memory)
{
	rcu_retire(unmake_retired, memory);
}

int
shaped_change(struct shaped *s, const struct shaped_rate *rate)
{
	static uint64_t numbers;
	struct shaped_rate *fresh = malloc(sizeof(*fresh)), *old = s->rate;

	if (!fresh)
		return -ENOMEM;
	*fresh = *rate;
	fresh->number = ++numbers;
	__atomic_store_n(&s->rate, fresh, __ATOMIC_RELEASE);
	if (old)
		rcu_retire(free, old);
	return 0;
}

int
shaped_open(struct object *object, struct port *port, const struct shaped_rate *rate, struct fault *f)
{
	struct shaped *s = calloc(1, sizeof(*s));
	uint64_t now = rte_rdtsc();

	if (!s)
		return fault(f, ENOMEM, "QosScheduler %.63s: there is no memory for it", object->name);
	s->object = object;
	s->port = port;
	s->changed = s->unsettled = NO_ID;
	s->owner = port->id % RTE_MIN((unsigned)port->tx_queues, worker_count);
	if (shaped_change(s, rate) || make(s)) {
		unmake(s);
		return fault(f, ENOMEM, "QosScheduler %.63s: there is no memory for its queues", object->name);
	}
	hqos_set_group(s->scheduler, OWN_GROUP, OWN_GROUP, now);
	hqos_set_group(s->scheduler, OTHER_GROUP, OTHER_GROUP, now);
	hqos_set_subscriber(s->scheduler, OWN_SUBSCRIBER, OWN_GROUP, 0, now);
	hqos_set_subscriber(s->scheduler, OTHER_SUBSCRIBER, OTHER_GROUP, 0, now);
	s->next = shaped_owned[s->owner];
	__atomic_store_n(&shaped_ports[port->id], s, __ATOMIC_RELEASE);
	__atomic_store_n(&shaped_owned[s->owner], s, __ATOMIC_RELEASE);
	share_buffers();
	object->state = s;
	port_send_before(port, &hqos_enqueue_node);
	return 0;
}

static bool
has_packets(const void *shaped)
{
	const struct shaped *s = shaped;

	for (unsigned w = 0; w < worker_count; w++)
		if (s->rings[w] && !rte_ring_empty(s->rings[w]))
			return true;
	return __atomic_load_n(&s->scheduler->packets, __ATOMIC_RELAXED) > 0;
}

void
shaped_close(struct shaped *s)
{
	struct rte_mbuf *m[HQOS_BURST];
	unsigned count;

	port_send_before(s->port, NULL);
	// Packets under way arrive, unless they have to wait for longer.
	worker_finish(has_packets, s, LAST_MIN);
	__atomic_store_n(&shaped_ports[s->port->id], NULL, __ATOMIC_RELEASE);
	for (struct shaped **at = &shaped_owned[s->owner]; *at; at = &(*at)->next)
		if (*at == s) {
			__atomic_store_n(at, s->next, __ATOMIC_RELEASE);
			break;
		}
	share_buffers();
	rcu_wait();
	// It is ours now.
	for (unsigned w = 0; w < worker_count; w++)
		while (s->rings[w] && rte_ring_sc_dequeue(s->rings[w], (void **)m) == 0)
			drop_now(m[0], &drop_qos_flushed);
	for (uint32_t i = 0; i < s->subscribers.used && s->scheduler->packets > 0; i++)
		do {
			count = hqos_flush_subscriber(s->scheduler, i, m, RTE_DIM(m));
			for (unsigned n = 0; n < RTE_MIN(count, RTE_DIM(m)); n++)
				drop_now(m[n], &drop_qos_flushed);
		} while (s->scheduler->subscribers[i].backlog != 0);
	// Numbers of groups and subscribers that are on their way back to it come before, also those that take two steps.
	rcu_retire(unmake_later, s);
}
