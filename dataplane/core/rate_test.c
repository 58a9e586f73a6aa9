// SPDX-License-Identifier: Apache-2.0
// Rate limits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/rate.h"

enum { HZ = 2000000000, A_SECOND = 100, BURST_SIZE = 20 };

static const uint64_t START = 1000ull * HZ;

// How many of `asked` there are at once.
static unsigned
spend(uint64_t *spent, uint64_t now, unsigned asked)
{
	unsigned had = 0;

	for (unsigned i = 0; i < asked; i++)
		had += rate_spend_at(spent, A_SECOND, BURST_SIZE, now, HZ);
	return had;
}

static void
a_burst_is_had_at_once_and_no_more(void **state)
{
	uint64_t spent = 0;

	assert_int_equal(spend(&spent, START, 1000), BURST_SIZE);
	assert_int_equal(spend(&spent, START, 1000), 0);
}

static void
tokens_come_back_one_by_one(void **state)
{
	uint64_t spent = 0, each = HZ / A_SECOND;

	spend(&spent, START, 1000);
	assert_int_equal(spend(&spent, START + each - 1, 10), 0);
	assert_int_equal(spend(&spent, START + each, 10), 1);
	assert_int_equal(spend(&spent, START + 4 * each, 10), 3);
	assert_int_equal(spend(&spent, START + 4 * each, 10), 0);
}

static void
a_long_silence_gives_a_burst_and_no_more(void **state)
{
	uint64_t spent = 0;

	spend(&spent, START, 1000);
	assert_int_equal(spend(&spent, 3 * START, 1000), BURST_SIZE);
}

static void
in_the_long_run_the_rate_is_kept_however_often_it_is_asked(void **state)
{
	uint64_t spent = 0;
	unsigned had = 0;

	for (uint64_t now = START; now < START + 10ull * HZ; now += 777777)
		had += spend(&spent, now, 1);
	assert_in_range(had, 10 * A_SECOND, 10 * A_SECOND + BURST_SIZE);
}

static void
a_rate_or_a_burst_of_nothing_is_none_at_all(void **state)
{
	uint64_t spent = 0;

	for (uint64_t now = START; now < START + 10ull * HZ; now += HZ / 10) {
		assert_false(rate_spend_at(&spent, 0, 1, now, HZ));
		assert_false(rate_spend_at(&spent, 1, 0, now, HZ));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_burst_is_had_at_once_and_no_more),
		cmocka_unit_test(tokens_come_back_one_by_one),
		cmocka_unit_test(a_long_silence_gives_a_burst_and_no_more),
		cmocka_unit_test(in_the_long_run_the_rate_is_kept_however_often_it_is_asked),
		cmocka_unit_test(a_rate_or_a_burst_of_nothing_is_none_at_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
