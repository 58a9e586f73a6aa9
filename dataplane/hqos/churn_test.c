// SPDX-License-Identifier: Apache-2.0
// The scheduler while everything changes at random, with an exact account of each packet: none is lost, none
// overtakes another of its class, everything is counted, no subscriber that may send waits, and in the end no memory
// is held. And how much memory that is.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hqos/queue.h"
#include "hqos/shaped.h"
#include "hqos/standing.h"

enum { BUFFERS = 8192, GROUPS = 4, SUBSCRIBERS = 24, PROFILES = 64, LONGEST = 512 };

static const uint64_t HZ = 2000000000;

struct buffer {
	struct rte_mbuf m;
	struct packet p;
} __attribute__((aligned(64)));

// The expected content of a queue, and the fate of its packets.
struct account {
	uint32_t numbers[LONGEST];
	unsigned first, count;
	uint64_t sent, dropped;
};

static struct buffer *buffers;
static struct rte_mbuf *spare[BUFFERS];
static unsigned spare_count;
static struct hqos_profile profiles[PROFILES];
static struct hqos_group_profile group_profiles[PROFILES];
static struct hqos_profile *profile_slots[PROFILES];
static struct hqos_group_profile *group_profile_slots[PROFILES];
static struct account accounts[SUBSCRIBERS][HQOS_CLASSES];
static struct hqos_scheduler *s;
static uint64_t now, seed;
static uint32_t number;

static uint64_t
chance(uint64_t limit)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (seed >> 20) % limit;
}

static struct pace
some_rate(unsigned one_in)
{
	if (chance(one_in))
		return (struct pace){0};
	return pace_of(1000000 << chance(10), 1000 + chance(20000), HZ);
}

static struct pace
some_committed(bool *has)
{
	*has = chance(3) == 0;
	return *has ? pace_of(1000000 << chance(8), 1000 + chance(20000), HZ) : PACE_NEVER;
}

static void
some_profile(struct hqos_profile *p)
{
	unsigned classes = chance(2) ? HQOS_CLASSES : HQOS_WIDE;
	bool has;

	*p = (struct hqos_profile){.peak = some_rate(2), .quantum = (uint32_t)(1 + chance(4)) * HQOS_QUANTUM};
	p->committed = some_committed(&p->has_committed);
	p->overhead = (int16_t)(chance(60) - 20);
	p->cells = chance(5) == 0;
	for (unsigned c = 0; c < HQOS_CLASSES; c++) {
		struct hqos_class_profile *class = &p->classes[c];

		class->equals = (uint8_t)(1u << c);
		class->quantum = (uint32_t)(1 + chance(3)) * HQOS_QUANTUM;
		class->limit = 1 + (uint32_t)chance(chance(2) ? 20 : LONGEST - 1);
		class->policy = (uint8_t)(chance(2) ? HQOS_TAIL_DROP : chance(3));
		class->wred_min[0] = class->wred_min[1] = class->wred_min[2] = 4;
		class->wred_max[0] = class->wred_max[1] = class->wred_max[2] = 30;
		class->wred_shift = 2;
		class->wred_probability = UINT32_MAX / 4;
		class->codel_target = (uint32_t)(ticks_of(HZ / 1000) >> CODEL_SHIFT);
		class->codel_interval = (uint32_t)(ticks_of(HZ / 100) >> CODEL_SHIFT);
		class->peak = some_rate(6);
		p->class_peaks |= (uint8_t)((class->peak.cost != 0) << c);
		class->committed = some_committed(&has);
		p->class_committed |= (uint8_t)(has << c);
	}
	if (chance(2)) {
		unsigned c = (unsigned)chance(HQOS_CLASSES - 1);

		p->classes[c].equals = p->classes[c + 1].equals = (uint8_t)(3u << c);
	}
	hqos_profile_finish(p, classes);
}

static void
some_group_profile(struct hqos_group_profile *p)
{
	*p = (struct hqos_group_profile){.peak = some_rate(2), .quantum = (uint32_t)(1 + chance(4)) * HQOS_QUANTUM};
	p->committed = some_committed(&p->has_committed);
	p->overhead = (int16_t)(chance(60) - 20);
}

static int
start(void **state)
{
	seed = 0x5eed + (uint64_t)(uintptr_t)*state;
	now = 12345;
	number = 0;
	buffers = aligned_alloc(64, BUFFERS * sizeof(*buffers));
	memset(buffers, 0, BUFFERS * sizeof(*buffers));
	memset(accounts, 0, sizeof(accounts));
	spare_count = 0;
	for (unsigned i = 0; i < BUFFERS; i++)
		spare[spare_count++] = &buffers[i].m;
	for (unsigned i = 0; i < PROFILES; i++) {
		some_profile(&profiles[i]);
		some_group_profile(&group_profiles[i]);
		profile_slots[i] = &profiles[i];
		group_profile_slots[i] = &group_profiles[i];
	}
	s = hqos_new(SUBSCRIBERS, GROUPS, BUFFERS, profile_slots, group_profile_slots, buffers, buffers + BUFFERS, now);
	for (uint32_t g = 0; g < GROUPS; g++)
		hqos_set_group(s, g, (uint16_t)chance(PROFILES), now);
	return 0;
}

static int
end(void **state)
{
	hqos_free(s);
	free(buffers);
	return 0;
}

// It is the next of its class, or, if any may be missing before it, a later one.
static void
took(struct rte_mbuf *m, bool sent)
{
	const struct packet *p = packet_of(m);
	struct account *a = &accounts[p->session][p->qfi];

	assert_true(a->count > 0);
	assert_int_equal(a->numbers[a->first % LONGEST], p->detail);
	a->first++;
	a->count--;
	a->sent += sent;
	a->dropped += !sent;
	spare[spare_count++] = m;
}

static void
put_some(void)
{
	unsigned count = (unsigned)RTE_MIN(chance(64), (uint64_t)spare_count), refused;
	struct rte_mbuf *packets[64];
	uint32_t subscribers[64], of[64], favourite = (uint32_t)chance(SUBSCRIBERS);
	uint8_t classes[64];

	for (unsigned i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i] = spare[--spare_count];
		struct packet *p = packet_of(m);

		subscribers[i] = chance(3) ? (uint32_t)chance(SUBSCRIBERS) : favourite;
		classes[i] = (uint8_t)chance(HQOS_CLASSES);
		m->pkt_len = 60 + (uint32_t)chance(1400);
		of[i] = ++number;
		*p = (struct packet){
			.session = subscribers[i], .qfi = classes[i], .detail = of[i], .colour = (uint8_t)chance(3)};
		p->arrived = of[i];
	}
	refused = hqos_enqueue(s, packets, subscribers, classes, count, now);
	for (unsigned i = 0; i < refused; i++) {
		struct packet *p = packet_of(packets[i]);
		const struct hqos_subscriber *sub = &s->subscribers[p->session];

		assert_int_equal(p->detail == HQOS_UNKNOWN, !sub->used);
		accounts[p->session][p->qfi].dropped += p->detail != HQOS_UNKNOWN;
		for (unsigned k = 0; k < count; k++)
			if (of[k] == (uint32_t)p->arrived)
				of[k] = 0;
		spare[spare_count++] = packets[i];
	}
	for (unsigned i = 0; i < count; i++) {
		struct account *a = &accounts[subscribers[i]][classes[i]];

		if (of[i] != 0)
			a->numbers[(a->first + a->count++) % LONGEST] = of[i];
	}
}

static unsigned
take_some(unsigned room)
{
	struct rte_mbuf *packets[HQOS_BURST];
	unsigned count = hqos_dequeue(s, packets, room, now);

	assert_true(count <= room);
	// Those that CoDel dropped came before those of their class that were sent: each is looked for among them.
	for (unsigned i = 0, d = 0; i < count || d < s->dropped_count;) {
		const struct packet *p = i < count ? packet_of(packets[i]) : NULL;
		const struct account *a = p ? &accounts[p->session][p->qfi] : NULL;

		if (a && a->numbers[a->first % LONGEST] == p->detail)
			took(packets[i++], true);
		else
			took(s->dropped[d++], false);
	}
	return count;
}

static void
assert_counted(void)
{
	uint32_t waiting = 0;

	for (uint32_t i = 0; i < SUBSCRIBERS; i++) {
		const struct hqos_subscriber *sub = &s->subscribers[i];

		for (unsigned c = 0; c < HQOS_CLASSES && sub->used; c++) {
			const struct account *a = &accounts[i][c];

			waiting += a->count;
			assert_int_equal(hqos_waiting(sub, c), a->count);
			assert_int_equal(hqos_sent(sub, c), a->sent);
			assert_int_equal(sub->queues[c].dropped, a->dropped);
			assert_int_equal(sub->backlog >> c & 1, a->count != 0);
		}
	}
	assert_int_equal(s->packets, waiting);
	assert_int_equal(spare_count + waiting, BUFFERS);
}

// From which moment on a subscriber may send, by all that is above and below him.
static int64_t
free_since(uint32_t subscriber, uint64_t ticks)
{
	struct hqos_subscriber *sub = &s->subscribers[subscriber];
	const struct hqos_profile *profile = hqos_profile_of(s, sub);
	const struct hqos_group *g = &s->groups[sub->group];
	const struct hqos_group_profile *group_profile = hqos_group_profile_of(s, g);
	int64_t since = (int64_t)(pace_when(&s->peak, s->paid) - ticks), class_since = INT64_MAX;

	since = RTE_MAX(since, (int64_t)(pace_when(&group_profile->peak, g->peak_paid) - ticks));
	since = RTE_MAX(since, (int64_t)(pace_when(&profile->peak, sub->peak_paid) - ticks));
	for (unsigned c = 0; c < HQOS_CLASSES; c++)
		if (sub->backlog >> c & 1)
			class_since = RTE_MIN(class_since,
				profile->class_peaks >> c & 1
					? (int64_t)(pace_when(&profile->classes[c].peak, sub->classes[c].peak_paid) -
						    ticks)
					: INT64_MIN);
	return RTE_MAX(since, class_since);
}

// Work conservation: when nothing more may be sent, each remaining packet has a reason to wait.
static void
assert_work_conserving(void)
{
	const int64_t slot = 1ll << WHEEL_SLOT_SHIFT;

	for (uint32_t i = 0; i < SUBSCRIBERS; i++)
		if (s->subscribers[i].used && s->subscribers[i].backlog != 0 && free_since(i, ticks_of(now)) < -slot)
			fail_msg("subscriber %u waits although it might send", i);
}

static void
flush(uint32_t subscriber)
{
	struct rte_mbuf *packets[16];
	unsigned count;

	do {
		count = hqos_flush_subscriber(s, subscriber, packets, RTE_DIM(packets));
		for (unsigned i = 0; i < count; i++)
			took(packets[i], false);
	} while (count == RTE_DIM(packets));
	assert_false(s->subscribers[subscriber].used);
	memset(accounts[subscriber], 0, sizeof(accounts[subscriber]));
}

static void
all_that_was_taken_is_given_back(void)
{
	uint32_t unused = 0;

	for (uint32_t i = s->chunks.free; i != NO_CHUNK; i = s->chunks.all[i].next)
		unused++;
	assert_int_equal(unused, s->chunks.fresh);
}

static void
every_packet_is_accounted_for_while_everything_changes(void **state)
{
	unsigned long sent = 0;

	for (unsigned round = 0; round < 20000; round++) {
		uint32_t subscriber = (uint32_t)chance(SUBSCRIBERS);

		switch (chance(8)) {
		case 0:
			hqos_set_subscriber(s, subscriber, (uint32_t)chance(GROUPS), (uint16_t)chance(PROFILES), now);
			break;
		case 1:
			if (chance(10) == 0)
				flush(subscriber);
			break;
		case 2:
			if (chance(10) == 0)
				hqos_set_group(s, (uint32_t)chance(GROUPS), (uint16_t)chance(PROFILES), now);
			break;
		case 3:
			if (chance(50) == 0) {
				s->peak = some_rate(1);
				pace_forgive(&s->peak, &s->paid, ticks_of(now), 2 * HQOS_FRAME_MAX);
			}
			break;
		default:
			put_some();
		}
		if (chance(4)) {
			sent += take_some((unsigned)chance(HQOS_BURST));
		} else {
			unsigned some;

			do
				sent += some = take_some(HQOS_BURST);
			while (some + s->dropped_count > 0);
			assert_work_conserving();
		}
		assert_counted();
		now += chance(200000);
	}
	assert_true(sent > 2000);
	for (uint32_t i = 0; i < SUBSCRIBERS; i++)
		flush(i);
	// Entries of deleted subscribers are found stale when their turn comes.
	s->peak = (struct pace){0};
	s->paid = ticks_of(now);
	for (uint32_t g = 0; g < GROUPS; g++) {
		s->groups[g].peak_paid = ticks_of(now);
		hqos_set_group(s, g, (uint16_t)chance(PROFILES), now);
	}
	for (unsigned i = 0; i < 10000 && s->stale + s->wheel.waiting + s->green.count + s->others.count > 0; i++) {
		take_some(HQOS_BURST);
		now += 1000000;
	}
	all_that_was_taken_is_given_back();
}

static void
a_subscriber_takes_at_most_512_bytes_beside_his_packets(void **state)
{
	enum { MANY = 1 << 14 };
	struct hqos_scheduler *large =
		hqos_new(MANY, GROUPS, BUFFERS, profile_slots, group_profile_slots, buffers, buffers + BUFFERS, now);
	struct hqos_scheduler *one =
		hqos_new(1, GROUPS, BUFFERS, profile_slots, group_profile_slots, buffers, buffers + BUFFERS, now);
	size_t more = (large->chunk_limit - one->chunk_limit) * sizeof(struct chunk) +
		      MANY * (sizeof(large->subscribers[0]) + sizeof(large->codels[0]) + sizeof(struct qos_binding));

	// Beside it, main thread's list of numbers that are free.
	more += MANY * sizeof(uint32_t) / 2;
	assert_in_range(more / MANY, sizeof(struct hqos_subscriber), 512);
	hqos_free(large);
	hqos_free(one);
}

int
main(void)
{
	const struct CMUnitTest all[] = {
#define CHURN(n) \
	{.name = "every_packet_is_accounted_for_while_everything_changes (" #n ")", \
		.test_func = every_packet_is_accounted_for_while_everything_changes, \
		.setup_func = start, \
		.teardown_func = end, \
		.initial_state = (void *)(n)}
		CHURN(1),
		CHURN(2),
		CHURN(3),
		CHURN(4),
		cmocka_unit_test_setup_teardown(a_subscriber_takes_at_most_512_bytes_beside_his_packets, start, end),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
