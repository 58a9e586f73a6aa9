// SPDX-License-Identifier: Apache-2.0
// The anti-replay window against a set of all numbers that were received, and RFC 4303 appendix A2's cases of extended numbers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ipsec/replay.h"

enum { NUMBERS = 100000 };

struct window {
	uint64_t words[256], top;
	unsigned mask, size;
};

static struct window
window_of(unsigned size, uint64_t top)
{
	struct window w = {.top = top, .mask = replay_words(size) - 1, .size = size};

	assert_true(replay_words(size) <= 256);
	if (top)
		replay_start(w.words, w.mask, top);
	return w;
}

static bool
take(struct window *w, uint64_t sequence, bool shared)
{
	bool may = replay_may_be_new(w->words, w->mask, w->size, w->top, sequence);
	bool taken = replay_take(w->words, w->mask, w->size, &w->top, sequence, shared);

	// An accepted number may be new; a number that may not be new is not accepted.
	assert_true(may || !taken);
	return taken;
}

static void
every_number_is_taken_once_and_none_from_before_the_window(void **state)
{
	static uint8_t seen[NUMBERS + 5000];
	static const unsigned sizes[] = {64, 128, 192, 1024, 4096};

	for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		for (unsigned shared = 0; shared <= 1; shared++) {
			struct window w = window_of(sizes[s], 0);
			uint64_t top = 0;
			uint32_t random = 12345 + s;

			memset(seen, 0, sizeof(seen));
			for (unsigned i = 0; i < NUMBERS; i++) {
				uint64_t sequence;
				bool expected;

				random = random * 1664525 + 1013904223;
				// Mostly near the top, now and then far ahead or far behind.
				sequence = top + 2 - (random >> 8) % (sizes[s] + 80) +
					   ((random & 0xff) == 0 ? (random >> 8) % 700 : 0);
				if (sequence == 0 || sequence > top + 5000 || sequence >= sizeof(seen))
					sequence = top < sizeof(seen) - 1 ? top + 1 : top;
				expected = (sequence > top || top - sequence < sizes[s]) && !seen[sequence];
				assert_int_equal(take(&w, sequence, shared), expected);
				seen[sequence] = 1;
				top = sequence > top ? sequence : top;
				assert_int_equal(w.top, top);
			}
		}
	}
}

static void
a_jump_over_any_distance_empties_the_window(void **state)
{
	static const uint64_t jumps[] = {31, 32, 33, 63, 64, 65, 127, 128, 4096, UINT32_MAX, UINT64_C(1) << 36};

	for (unsigned i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
		struct window w = window_of(64, 0);

		for (uint64_t n = 1; n <= 200; n++)
			assert_true(take(&w, n, false));
		assert_true(take(&w, 200 + jumps[i], false));
		assert_false(take(&w, 200 + jumps[i], false));
		for (uint64_t n = 201; n < 200 + jumps[i] && n < 500; n++)
			assert_int_equal(take(&w, n, false), 200 + jumps[i] - n < 64);
		assert_false(take(&w, 200, false));
	}
}

static void
a_window_that_starts_at_a_number_takes_none_up_to_it(void **state)
{
	static const uint64_t tops[] = {1, 30, 31, 32, 63, 64, 100, 4096, UINT64_C(0x123456789)};

	for (unsigned i = 0; i < sizeof(tops) / sizeof(tops[0]); i++) {
		struct window w = window_of(1024, tops[i]);

		for (uint64_t n = 0; n < 2000 && n <= tops[i]; n++)
			assert_false(take(&w, tops[i] - n, false));
		assert_true(take(&w, tops[i] + 2, false));
		assert_true(take(&w, tops[i] + 1, false));
	}
}

static void
number_zero_is_never_taken_at_the_start(void **state)
{
	struct window w = window_of(64, 0);

	assert_false(replay_may_be_new(w.words, w.mask, w.size, w.top, 0));
}

static void
extended_numbers_are_found_on_both_sides_of_a_wrap(void **state)
{
	static const struct {
		uint64_t top;
		uint32_t low;
		uint64_t is;
	} cases[] = {
		{0, 1, 1},
		{1000, 1001, 1001},
		{1000, 990, 990},
		// Appendix A2.2, case A: the window is in one subspace.
		{0xfffffff0, 0xffffffff, 0xffffffff},
		{0xfffffff0, 5, 0x100000005},
		{0x5fffffff0, 5, 0x600000005},
		// Case B: it reaches into the one before.
		{0x100000005, 0xfffffffe, 0xfffffffe},
		{0x100000005, 6, 0x100000006},
		{0x700000000, 0xffffffff, 0x6ffffffff},
		{0x70000003e, 0xffffffff, 0x6ffffffff},
		{0x70000003f, 0xffffffff, 0x7ffffffff},
		// Older than the first number of all.
		{5, 0xffffffff, 0},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(replay_extend(cases[i].top, cases[i].low, 64), cases[i].is);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_number_is_taken_once_and_none_from_before_the_window),
		cmocka_unit_test(a_jump_over_any_distance_empties_the_window),
		cmocka_unit_test(a_window_that_starts_at_a_number_takes_none_up_to_it),
		cmocka_unit_test(number_zero_is_never_taken_at_the_start),
		cmocka_unit_test(extended_numbers_are_found_on_both_sides_of_a_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
