// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ip/fragment.h"

static void
fragments_join_without_gap_and_fit(void **state)
{
	static const unsigned mtus[] = {68, 576, 1280, 1492, 1500, 9000};

	for (unsigned i = 0; i < RTE_DIM(mtus); i++) {
		for (unsigned payload = 1; payload < 12000; payload += 7) {
			struct fragment plan[FRAGMENTS_MAX];
			unsigned count = fragment_plan(payload, mtus[i], 20, 20, plan, FRAGMENTS_MAX), at = 0;

			for (unsigned k = 0; k < count; k++) {
				assert_int_equal(plan[k].offset, at);
				assert_true(plan[k].length > 0 && plan[k].length + 20u <= mtus[i]);
				if (k < count - 1)
					assert_int_equal(plan[k].length % 8, 0);
				at += plan[k].length;
			}
			assert_int_equal(at, payload);
			assert_true(count == 1 || payload + 20 > mtus[i]);
		}
	}
}

static void
later_fragments_have_more_room_where_options_are_not_copied(void **state)
{
	struct fragment plan[8];

	assert_int_equal(fragment_plan(3000, 1500, 60, 20, plan, 8), 3);
	assert_int_equal(plan[0].length, 1440);
	assert_int_equal(plan[1].length, 1480);
	assert_int_equal(plan[2].length, 80);
}

static void
packets_that_cannot_be_fragmented_are_refused(void **state)
{
	struct fragment plan[4];

	assert_int_equal(fragment_plan(100, 27, 20, 20, plan, 4), 0);
	assert_int_equal(fragment_plan(100, 0, 20, 20, plan, 4), 0);
	assert_int_equal(fragment_plan(100, 28, 20, 20, plan, 4), 0);
	assert_int_equal(fragment_plan(32, 28, 20, 20, plan, 4), 4);
}

static void
only_options_with_the_copied_flag_go_into_later_fragments(void **state)
{
	static const struct {
		uint8_t options[12];
		unsigned length, expected_length;
		uint8_t expected[12];
	} cases[] = {
		// Record route stays in the first, a stream identifier (136) goes along.
		{{7, 7, 4, 1, 2, 3, 4, 136, 4, 9, 9, 0}, 32, 24, {136, 4, 9, 9}},
		{{1, 1, 148, 4, 0, 0, 0, 0}, 28, 24, {148, 4, 0, 0}},
		{{130, 3, 5, 0}, 24, 24, {130, 3, 5, 0}},
		{{68, 12, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 32, 20, {0}},
		{{0}, 20, 20, {0}},
		// Malformed ones end the copying.
		{{136, 0, 9, 9}, 24, 20, {0}},
		{{136, 200, 9, 9}, 24, 20, {0}},
		{{1, 1, 1, 136}, 24, 24, {136}},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint8_t header[32] = {(uint8_t)(0x40 | cases[i].length / 4)}, copy[IP4_HEADER_MAX];

		memcpy(header + 20, cases[i].options, sizeof(cases[i].options));
		assert_int_equal(fragment_header(header, cases[i].length, copy), cases[i].expected_length);
		assert_int_equal(copy[0], 0x40 | cases[i].expected_length / 4);
		assert_memory_equal(copy + 20, cases[i].expected, cases[i].expected_length - 20);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fragments_join_without_gap_and_fit),
		cmocka_unit_test(later_fragments_have_more_room_where_options_are_not_copied),
		cmocka_unit_test(packets_that_cannot_be_fragmented_are_refused),
		cmocka_unit_test(only_options_with_the_copied_flag_go_into_later_fragments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
