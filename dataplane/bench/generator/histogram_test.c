// SPDX-License-Identifier: Apache-2.0
// Percentiles of latencies.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/generator/histogram.h"

static struct histogram h;

static int
empty(void **state)
{
	(void)state;
	memset(&h, 0, sizeof(h));
	return 0;
}

static void
every_value_has_a_bucket_and_greater_ones_have_no_lesser_bucket(void **state)
{
	unsigned before = 0;

	(void)state;
	for (uint64_t value = 0; value < 1u << 20; value++) {
		unsigned bucket = histogram_bucket(value);

		assert_true(bucket == before || bucket == before + 1);
		before = bucket;
	}
	for (unsigned shift = 20; shift < 64; shift++) {
		unsigned bucket = histogram_bucket(UINT64_C(1) << shift);

		assert_true(bucket > before);
		assert_true(bucket < HISTOGRAM_BUCKETS);
		before = bucket;
	}
	assert_int_equal(histogram_bucket(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void
a_percentile_is_known_to_a_thirty_second(void **state)
{
	(void)state;
	for (uint64_t value = 1; value <= 100000; value++)
		histogram_record(&h, value);
	for (unsigned percent = 1; percent <= 100; percent++) {
		uint64_t exact = 1000 * percent, found = histogram_percentile(&h, percent / 100.0);

		assert_true(found >= exact);
		assert_true(found <= exact + exact / 32);
	}
	assert_int_equal(h.least, 1);
	assert_int_equal(histogram_percentile(&h, 1), 100000);
}

static void
one_late_packet_of_a_thousand_is_seen_behind_the_99th_percentile_only(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 999; i++)
		histogram_record(&h, 10);
	histogram_record(&h, 5000000);
	assert_int_equal(histogram_percentile(&h, 0.99), 10);
	assert_int_equal(histogram_percentile(&h, 0.9995), 5000000);
	assert_int_equal(h.most, 5000000);
}

static void
nothing_has_no_latency(void **state)
{
	(void)state;
	assert_int_equal(histogram_percentile(&h, 0.5), 0);
}

int
main(void)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test_setup(every_value_has_a_bucket_and_greater_ones_have_no_lesser_bucket, empty),
		cmocka_unit_test_setup(a_percentile_is_known_to_a_thirty_second, empty),
		cmocka_unit_test_setup(one_late_packet_of_a_thousand_is_seen_behind_the_99th_percentile_only, empty),
		cmocka_unit_test_setup(nothing_has_no_latency, empty),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
