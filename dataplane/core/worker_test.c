// How long a worker that shares its core sleeps.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/worker.h"

enum { US = 1000, MS = 1000 * US };

static void
what_comes_after_a_pause_waits_a_hundredth_of_it(void **state)
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_comes_after_a_pause_waits_a_hundredth_of_it),
		cmocka_unit_test(a_sleep_is_neither_too_short_to_be_one_nor_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
