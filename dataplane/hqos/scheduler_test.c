// SPDX-License-Identifier: Apache-2.0
// Packets in a scheduler, on a clock of the tests' own: their order, how long they wait, where they go when their subscriber moves or
// goes, and which are dropped.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hqos/own_clock.h"

static void
packets_of_a_class_keep_their_order(void **state)
{
	static uint32_t last[SUBSCRIBERS][HQOS_CLASSES], next[SUBSCRIBERS][HQOS_CLASSES];
	unsigned taken = 0;

	(void)state;
	s->peak = pace_of(400000000, 3000, HZ);
	for (unsigned i = 0; i < SUBSCRIBERS; i++)
		profiles[i].peak = pace_of(1000000 * (1 + i), 3000, HZ);
	one_group(SUBSCRIBERS);
	memset(last, 0, sizeof(last));
	memset(next, 0, sizeof(next));
	for (unsigned round = 0; round < 20000; round++) {
		struct rte_mbuf *packets[32];
		unsigned count;

		for (unsigned i = chance(8); i-- > 0 && spare_count > 64;) {
			uint32_t subscriber = (uint32_t)chance(SUBSCRIBERS);
			uint8_t class = (uint8_t)chance(HQOS_CLASSES);
			struct rte_mbuf *m = spare[--spare_count];

			m->pkt_len = 64 + (uint32_t)chance(1400);
			packet_of(m)->session = subscriber;
			packet_of(m)->qfi = class;
			packet_of(m)->detail = ++next[subscriber][class];
			finish(subscriber);
			if (hqos_enqueue(s, &m, &subscriber, &class, 1, now) != 0) {
				next[subscriber][class]--;
				spare[spare_count++] = m;
			}
		}
		count = get(packets, 32);
		taken += count;
		for (unsigned i = 0; i < count; i++) {
			const struct packet *p = packet_of(packets[i]);

			assert_int_equal(p->detail, last[p->session][p->qfi] + 1);
			last[p->session][p->qfi] = p->detail;
		}
		now += chance(100000);
	}
	assert_true(taken > 20000);
}

static void
packets_within_the_rate_are_sent(void **state)
{
	struct rte_mbuf *packets[64];

	(void)state;
	profiles[0].peak = pace_of(8000000, 1000, HZ); // a byte in a microsecond
	one_group(2);
	for (unsigned i = 0; i < 20; i++)
		assert_true(put(0, 0, 1000));
	// Its burst and the packet that uses it up; then one in each millisecond.
	assert_int_equal(get(packets, 64), 2);
	for (unsigned i = 0; i < 18; i++) {
		uint64_t next = hqos_next(s, now);

		assert_true(next > now && next - now <= HZ / 1000 + 2 * (1u << (WHEEL_SLOT_SHIFT - TICK_SHIFT)));
		// Another's packet is not held up meanwhile.
		put(1, 7, 60);
		assert_int_equal(get(packets, 64), 1);
		assert_int_equal(packet_of(packets[0])->session, 1);
		now = next;
		assert_int_equal(get(packets, 64), 1);
	}
	assert_int_equal(s->packets, 0);
	assert_int_equal(hqos_next(s, now), UINT64_MAX);
}

static void
a_packet_of_a_free_class_does_not_wait_for_a_limited_one(void **state)
{
	struct rte_mbuf *packets[64];

	(void)state;
	profiles[0].class_peaks = 1;
	profiles[0].classes[0].peak = pace_of(1000000, 100, HZ);
	one_group(1);
	for (unsigned i = 0; i < 5; i++)
		put(0, 0, 1400);
	assert_int_equal(get(packets, 64), 1);
	assert_int_equal(get(packets, 64), 0);
	put(0, 5, 1400);
	assert_int_equal(get(packets, 64), 1);
	assert_int_equal(packet_of(packets[0])->qfi, 5);
	for (unsigned i = 0; i < 100; i++)
		put(0, 5, 1400);
	now += 10;
	assert_int_equal(get(packets, 64), 64);
}

// As the worker does that owns the scheduler: so many buffers are for its queues.
static bool
put_within(uint32_t most, uint32_t subscriber)
{
	s->room = most - RTE_MIN(most, hqos_buffers(s));
	return put(subscriber, 0, 1000);
}

static void
where_buffers_are_scarce_one_queue_takes_half_of_them_and_others_have_theirs(void **state)
{
	enum { ROOM = 600, OTHERS = 20, EACH = 8 };
	uint64_t flood = 0;

	(void)state;
	one_group(OTHERS + 1);
	group_profiles[0].peak = pace_of(8, 0, HZ);
	for (unsigned i = 0; i <= OTHERS; i++)
		profiles[i].classes[0].limit = HQOS_QUEUE_MAX;
	for (unsigned i = 0; i < 2 * ROOM; i++)
		flood += put_within(ROOM, 0);
	assert_int_equal(flood, ROOM / 2);
	for (unsigned i = 1; i <= OTHERS; i++)
		for (unsigned n = 0; n < EACH; n++)
			assert_true(put_within(ROOM, i));
	assert_false(put_within(ROOM, 0));
	assert_int_equal(s->counters.dropped[HQOS_PORT_FULL], 2 * ROOM - ROOM / 2 + 1);
	assert_int_equal(s->packets, ROOM / 2 + OTHERS * EACH);
	// However many want more, there never are more.
	for (unsigned n = 0; n < ROOM; n++)
		for (unsigned i = 1; i <= OTHERS; i++)
			put_within(ROOM, i);
	assert_in_range(s->packets, ROOM - ROOM / OTHERS - OTHERS, ROOM);
	// And the port's own packets have some more.
	s->reserved = 1;
	assert_false(put_within(0, 1));
	assert_false(put_within(0, 0));
	s->reserved = 2;
	while (hqos_waiting(&s->subscribers[1], 0) < HQOS_RESERVED)
		assert_true(put_within(0, 1));
	assert_false(put_within(0, 1));
}

static void
all_buffers_of_a_packet_count(void **state)
{
	struct rte_mbuf *packets[64];

	(void)state;
	one_group(2);
	for (unsigned i = 0; i < 20; i++) {
		spare[spare_count - 1]->nb_segs = (uint16_t)(i % 4);
		assert_true(put(i % 2, i % 3 == 0, 1000));
	}
	// One at least: 1, 1, 2, 3.
	assert_int_equal(hqos_buffers(s), 5 * 7);
	assert_true(get(packets, 7) == 7);
	assert_true(hqos_buffers(s) < 5 * 7 - 7);
	while (hqos_flush_subscriber(s, 0, packets, 5) == 5)
		;
	assert_in_range(get(packets, 64), 1, 13);
	assert_int_equal(hqos_buffers(s), 0);
}

static void
a_full_queue_refuses_and_recovers(void **state)
{
	struct rte_mbuf *packets[64];

	(void)state;
	one_group(1);
	for (unsigned i = 0; i < MODEL_QUEUE; i++)
		assert_true(put(0, 3, 100));
	assert_false(put(0, 3, 100));
	assert_true(put(0, 4, 100));
	assert_int_equal(get(packets, 64), 64);
	assert_true(put(0, 3, 100));
}

static void
waiting_packets_move_with_their_subscriber(void **state)
{
	struct rte_mbuf *packets[64];
	uint32_t order = 0, stale;

	(void)state;
	group_profiles[0].peak = pace_of(100000, 1000, HZ);
	hqos_set_group(s, 0, 0, now);
	hqos_set_group(s, 1, 1, now);
	hqos_set_subscriber(s, 0, 0, 0, now);
	hqos_set_subscriber(s, 1, 0, 1, now);
	for (unsigned i = 0; i < 40; i++)
		assert_true(put(i % 2, 0, 1000));
	assert_true(get(packets, 64) < 10);
	for (unsigned i = 0; i < 40; i++) {
		// There and back again, and there.
		assert_true(hqos_set_subscriber(s, 0, 1, 0, now));
		assert_true(hqos_set_subscriber(s, 0, 0, 0, now));
	}
	assert_true(hqos_set_subscriber(s, 0, 1, 0, now));
	stale = s->stale;
	assert_true(stale > 0);
	for (unsigned count; s->subscribers[0].backlog != 0; now += STEP) {
		count = get(packets, 64);
		for (unsigned i = 0; i < count; i++)
			order += packet_of(packets[i])->session == 0;
	}
	assert_in_range(order, 15, 20);
	assert_true(s->subscribers[1].backlog != 0);
	// The subscriber's entries in the old group's queue are removed in time.
	while (s->packets + s->stale + s->wheel.waiting != 0) {
		get(packets, 64);
		now += 50 * STEP;
	}
	assert_int_equal(s->stale, 0);
	assert_int_equal(s->wheel.waiting, 0);
}

static void
subscribers_come_and_go_under_traffic(void **state)
{
	(void)state;
	s->peak = pace_of(60000000, 3000, HZ);
	hqos_set_group(s, 0, 0, now);
	hqos_set_group(s, 1, 0, now);
	for (uint32_t i = 0; i < 8; i++)
		hqos_set_subscriber(s, i, 0, 0, now);
	for (unsigned round = 0; round < 200; round++) {
		uint32_t subscriber = (uint32_t)chance(7);
		struct rte_mbuf *packets[16];
		unsigned count;

		memset(sent, 0, sizeof(sent));
		run(8, 3, 500, 2);
		do {
			count = hqos_flush_subscriber(s, subscriber, packets, 16);
			for (unsigned i = 0; i < count; i++)
				spare[spare_count++] = packets[i];
		} while (count == 16);
		assert_int_equal(s->subscribers[subscriber].backlog, 0);
		assert_false(put(subscriber, 0, 100));
		// The same number in another group.
		hqos_set_subscriber(s, subscriber, round & 1, 0, now);
	}
	memset(sent, 0, sizeof(sent));
	run(8, 1, 500, 500);
	for (unsigned i = 0; i < 8; i++)
		assert_true(of(i) > 0);
	while (s->packets != 0) {
		struct rte_mbuf *packets[64];

		get(packets, 64);
		now += STEP;
	}
	assert_int_equal(spare_count, BUFFERS);
	assert_int_equal(s->wheel.waiting, 0);
}

static void
codel_keeps_the_delay_of_a_greedy_queue_short(void **state)
{
	uint64_t until;
	unsigned drops = 0;

	(void)state;
	profiles[0].peak = pace_of(10000000, 3000, HZ);
	profiles[0].classes[0].policy = HQOS_CODEL;
	profiles[0].classes[0].codel_target = (uint32_t)(ticks_of(HZ / 200) >> CODEL_SHIFT);
	profiles[0].classes[0].codel_interval = (uint32_t)(ticks_of(HZ / 10) >> CODEL_SHIFT);
	one_group(1);
	// A source a tenth faster than the line.
	for (until = now + 4 * HZ; now < until; now += HZ * 8 / 11000) {
		struct rte_mbuf *packets[64];

		put(0, 0, 1000);
		get(packets, 64);
		drops += s->dropped_count;
	}
	assert_true(drops > 50);
	assert_true(hqos_waiting(&s->subscribers[0], 0) < MODEL_QUEUE - 10);
}

static void
wred_drops_red_before_green(void **state)
{
	unsigned refused[3] = {0};

	(void)state;
	profiles[0].peak = pace_of(10000000, 3000, HZ);
	profiles[0].classes[0].policy = HQOS_WRED;
	profiles[0].classes[0].wred_shift = 4;
	profiles[0].classes[0].wred_probability = UINT32_MAX / 2;
	for (unsigned colour = 0; colour < 3; colour++) {
		profiles[0].classes[0].wred_min[colour] = 40 - 15 * colour;
		profiles[0].classes[0].wred_max[colour] = 60 - 15 * colour;
	}
	one_group(1);
	for (unsigned i = 0; i < 30000; i++) {
		struct rte_mbuf *m = spare[--spare_count], *packets[64];
		uint32_t subscriber = 0;
		uint8_t class = 0, colour = (uint8_t)(i % 3);

		m->pkt_len = 1000;
		packet_of(m)->colour = colour;
		if (hqos_enqueue(s, &m, &subscriber, &class, 1, now) != 0) {
			refused[colour]++;
			spare[spare_count++] = m;
		}
		get(packets, 64);
		now += HZ * 8 / 11000;
	}
	assert_true(refused[2] > 1000);
	assert_true(refused[1] < refused[2]);
	assert_true(refused[0] < 100);
}

int
main(void)
{
	const struct CMUnitTest all[] = {
		EACH_WAY(packets_of_a_class_keep_their_order),
		EACH_WAY(packets_within_the_rate_are_sent),
		EACH_WAY(a_packet_of_a_free_class_does_not_wait_for_a_limited_one),
		EACH_WAY(where_buffers_are_scarce_one_queue_takes_half_of_them_and_others_have_theirs),
		EACH_WAY(all_buffers_of_a_packet_count),
		EACH_WAY(a_full_queue_refuses_and_recovers),
		EACH_WAY(waiting_packets_move_with_their_subscriber),
		EACH_WAY(subscribers_come_and_go_under_traffic),
		EACH_WAY(codel_keeps_the_delay_of_a_greedy_queue_short),
		EACH_WAY(wred_drops_red_before_green),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
