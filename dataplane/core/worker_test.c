// SPDX-License-Identifier: Apache-2.0
// How long a worker that shares its core sleeps, how long is waited for one, and when it looks at the clock.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_eal.h>

#include "core/worker.h"

enum { US = 1000, MS = 1000 * US };

static void
a_packet_after_a_pause_waits_at_most_a_hundredth_of_it(void **state)
{
	assert_int_equal(worker_nap(5 * MS), 50 * US);
	assert_int_equal(worker_nap(10 * MS), 100 * US);
	for (uint64_t idle = 2 * MS; idle < 10000ull * MS; idle += idle / 3)
		assert_in_range(worker_nap(idle), 0, idle / 100);
}

static void
a_sleep_is_neither_too_short_to_be_one_nor_long(void **state)
{
	assert_int_equal(worker_nap(0), 20 * US);
	assert_int_equal(worker_nap(1 * MS), 20 * US);
	assert_int_equal(worker_nap(25 * MS), 250 * US);
	assert_int_equal(worker_nap(26 * MS), 250 * US);
	assert_int_equal(worker_nap(UINT64_MAX), 250 * US);
}

// A worker that has had no core for `away`, and takes the waiting packets in its walk number `takes`.
struct late {
	long away;
	unsigned takes;
	unsigned waiting;
	bool stop;
};

static bool
is_waiting(const void *what)
{
	return __atomic_load_n(&((const struct late *)what)->waiting, __ATOMIC_ACQUIRE) > 0;
}

static int
walk(void *argument)
{
	struct late *late = argument;

	thrd_sleep(&(struct timespec){.tv_nsec = late->away}, NULL);
	for (unsigned n = 1; !__atomic_load_n(&late->stop, __ATOMIC_ACQUIRE); n++) {
		if (n == late->takes)
			__atomic_store_n(&late->waiting, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&workers[0].walks, workers[0].walks + 1, __ATOMIC_RELAXED);
		thrd_sleep(&(struct timespec){.tv_nsec = 100 * US}, NULL);
	}
	return 0;
}

static bool
is_taken(long away, unsigned takes)
{
	struct late late = {.away = away, .takes = takes, .waiting = 1};
	thrd_t thread;
	bool taken;

	worker_count = 1;
	workers[0].walks = 1;
	assert_int_equal(thrd_create(&thread, walk, &late), thrd_success);
	worker_finish(is_waiting, &late, 1 * MS);
	taken = !is_waiting(&late);
	__atomic_store_n(&late.stop, true, __ATOMIC_RELEASE);
	thrd_join(thread, NULL);
	return taken;
}

static void
teardown_waits_for_packets_of_a_worker_without_a_core(void **state)
{
	assert_true(is_taken(0, 1));
	assert_true(is_taken(100 * MS, 10));
}

static void
teardown_does_not_wait_for_packets_without_a_taker(void **state)
{
	struct late late = {.waiting = 1};

	assert_false(is_taken(0, UINT32_MAX));
	// Nor is a worker that does not run.
	workers[0].walks = 0;
	worker_finish(is_waiting, &late, 1 * MS);
}

static void
the_clock_is_read_once_a_walk_and_at_each_call_elsewhere(void **state)
{
	enum { EARLIER = 1 };
	uint32_t now;

	workers[0].walks = 0;
	now = worker_second();
	assert_true(now > EARLIER);
	workers[0].second = EARLIER;
	assert_true(worker_second() >= now);
	workers[0].walks = 7;
	assert_true(worker_second() >= now);
	workers[0].second = EARLIER;
	assert_int_equal(worker_second(), EARLIER);
	workers[0].walks = 8;
	assert_true(worker_second() >= now);
	workers[0].walks = 0;
}

// For the TSC's rate.
static int
begin(void **state)
{
	char prefix[32], *arguments[] = {(char *)"test", (char *)"--no-huge", (char *)"--no-shconf", (char *)"--no-pci",
				 (char *)"--no-telemetry", (char *)"--file-prefix", prefix, (char *)"-m", (char *)"16",
				 (char *)"--log-level", (char *)"*:error"};

	snprintf(prefix, sizeof(prefix), "sluice-test-%d", getpid());
	return rte_eal_init(RTE_DIM(arguments), arguments) < 0 ? -1 : 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_packet_after_a_pause_waits_at_most_a_hundredth_of_it),
		cmocka_unit_test(a_sleep_is_neither_too_short_to_be_one_nor_long),
		cmocka_unit_test(teardown_waits_for_packets_of_a_worker_without_a_core),
		cmocka_unit_test(teardown_does_not_wait_for_packets_without_a_taker),
		cmocka_unit_test(the_clock_is_read_once_a_walk_and_at_each_call_elsewhere),
	};

	return cmocka_run_group_tests(tests, begin, NULL);
}
