// SPDX-License-Identifier: Apache-2.0
// Counters of sent packets, read while the worker that owns the scheduler sends: a later read is never lower, nor
// higher than the number of arrived packets.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "hqos/own_clock.h"

enum { ALL = 0, FOUR = 1, PROFILES, ASKED_FOR = 3, SWEEPS = 500000 }; // profiles: of all classes, and of four

static uint64_t came[ASKED_FOR][HQOS_CLASSES];
static bool over;

static void
put_some(uint32_t subscriber, unsigned count)
{
	unsigned classes = s->subscribers[subscriber].profile == ALL ? HQOS_CLASSES : HQOS_WIDE;

	for (unsigned i = 0; i < count; i++) {
		// Often the same, so that one has many of the few.
		uint8_t class = (uint8_t)(chance(2) ? 1 : chance(classes));

		if (hqos_waiting(&s->subscribers[subscriber], class) == MODEL_QUEUE)
			continue;
		__atomic_fetch_add(&came[subscriber][class], 1, __ATOMIC_RELEASE);
		put(subscriber, class, 100);
	}
}

static void *
work(void *nothing)
{
	(void)nothing;
	for (; !__atomic_load_n(&over, __ATOMIC_RELAXED); now += 1000) {
		struct rte_mbuf *packets[HQOS_BURST];
		unsigned room = chance(3) ? HQOS_BURST : 1 + (unsigned)chance(5);

		// One alone, all that he has, some of it; or so many that they are in queues.
		put_some((uint32_t)chance(ASKED_FOR), 1 + (unsigned)chance(chance(4) ? 8 : 40));
		if (chance(3) == 0)
			put_some((uint32_t)chance(ASKED_FOR), 1);
		while (get(packets, room) == room)
			;
		if (chance(20) == 0)
			hqos_set_subscriber(s, (uint32_t)chance(ASKED_FOR), 0, (uint16_t)chance(PROFILES), now);
	}
	return NULL;
}

static void
a_sent_counter_never_decreases(void **state)
{
	uint64_t last[ASKED_FOR][HQOS_CLASSES] = {0};
	pthread_t worker;

	(void)state;
	hqos_profile_finish(&profiles[ALL], HQOS_CLASSES);
	hqos_profile_finish(&profiles[FOUR], HQOS_WIDE);
	one_group(ASKED_FOR);
	// No subscriber has the third one's profile.
	hqos_set_subscriber(s, 2, 0, ALL, now);
	assert_int_equal(pthread_create(&worker, NULL, work, NULL), 0);
	for (unsigned sweep = 0; sweep < SWEEPS; sweep++)
		for (unsigned i = 0; i < ASKED_FOR; i++)
			for (unsigned c = 0; c < HQOS_CLASSES; c++) {
				uint64_t sent = hqos_sent(&s->subscribers[i], c);

				if (sent < last[i][c])
					fail_msg("subscriber %u, class %u: %lu after %lu", i, c, sent, last[i][c]);
				assert_true(sent <= __atomic_load_n(&came[i][c], __ATOMIC_ACQUIRE));
				last[i][c] = sent;
			}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	pthread_join(worker, NULL);
	for (unsigned i = 0; i < ASKED_FOR; i++)
		for (unsigned c = 0; c < HQOS_CLASSES; c++)
			assert_int_equal(hqos_sent(&s->subscribers[i], c), came[i][c]);
	assert_int_equal(spare_count, BUFFERS);
}

// A worker that stands still in the midst of it.
static void
a_sent_counter_is_read_even_while_counting_never_ends(void **state)
{
	(void)state;
	hqos_profile_finish(&profiles[ALL], HQOS_CLASSES);
	one_group(1);
	s->subscribers[0].flags |= HQOS_RECOUNT;
	assert_int_equal(hqos_sent(&s->subscribers[0], 1), 0);
	s->subscribers[0].flags &= (uint8_t)~HQOS_RECOUNT;
}

// Packets of a queue's own, as fast as they can be counted: between any two loads there are some.
static void *
count_in_queue(void *nothing)
{
	struct hqos_queue *queue = &s->subscribers[0].queues[1];

	(void)nothing;
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
		__atomic_store_n(&queue->sent, queue->sent + 2, __ATOMIC_RELEASE);
	return NULL;
}

static void
who_asks_for_a_class_that_always_sends_is_answered(void **state)
{
	uint64_t last = 0;
	pthread_t worker;

	(void)state;
	hqos_profile_finish(&profiles[FOUR], HQOS_WIDE);
	one_group(1);
	hqos_set_subscriber(s, 0, 0, FOUR, now);
	// So many of the few, counted once anew.
	s->subscribers[0].sent = 0x8500;
	s->subscribers[0].queues[1].sent = 2 * 128 + 1;
	over = false;
	assert_int_equal(pthread_create(&worker, NULL, count_in_queue, NULL), 0);
	for (unsigned i = 0; i < SWEEPS; i++) {
		uint64_t least = __atomic_load_n(&s->subscribers[0].queues[1].sent, __ATOMIC_ACQUIRE) / 2 + 5,
			 sent = hqos_sent(&s->subscribers[0], 1);

		assert_true(sent >= least && sent >= last);
		assert_true(sent <= __atomic_load_n(&s->subscribers[0].queues[1].sent, __ATOMIC_ACQUIRE) / 2 + 5);
		last = sent;
	}
	__atomic_store_n(&over, true, __ATOMIC_RELAXED);
	pthread_join(worker, NULL);
}

int
main(void)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test_setup_teardown(a_sent_counter_never_decreases, start_with_none, end),
		cmocka_unit_test_setup_teardown(
			a_sent_counter_is_read_even_while_counting_never_ends, start_with_none, end),
		cmocka_unit_test_setup_teardown(
			who_asks_for_a_class_that_always_sends_is_answered, start_with_none, end),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
