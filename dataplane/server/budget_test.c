// SPDX-License-Identifier: Apache-2.0
// Budgets: the memory of unpacked messages.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "server/budget.h"

static uint8_t memory[256 << 10] __attribute__((aligned(16)));

static bool
in_scratch(const void *piece)
{
	return (const uint8_t *)piece >= memory && (const uint8_t *)piece < memory + sizeof(memory);
}

static void
pieces_of_scratch_memory_are_apart_and_aligned(void **state)
{
	struct scratch scratch = {.bytes = memory, .size = 4096};
	struct budget budget = {.left = 1 << 20, .scratch = &scratch};
	uint8_t *pieces[64];

	for (unsigned i = 0; i < 64; i++) {
		pieces[i] = budget_take(&budget, i);
		assert_non_null(pieces[i]);
		assert_int_equal((uintptr_t)pieces[i] % 16, 0);
		memset(pieces[i], (int)i, i);
	}
	for (unsigned i = 0; i < 64; i++)
		for (unsigned at = 0; at < i; at++)
			assert_int_equal(pieces[i][at], i);
	assert_int_equal(budget.beside, BUDGET_SANITIZED);
	for (unsigned i = 0; i < 64; i++)
		budget_give(&budget, pieces[i]);
}

static void
large_pieces_and_pieces_without_room_are_from_malloc(void **state)
{
	struct scratch small = {.bytes = memory, .size = 64}, ample = {.bytes = memory, .size = sizeof(memory)};
	struct scratch none = {0};

	for (unsigned i = 0; i < 3; i++) {
		struct budget budget = {.left = 1 << 20, .scratch = (struct scratch *[]){&small, &ample, &none}[i]};
		size_t size = i == 1 ? UNPACKED_LARGE : 64;
		uint8_t *piece = budget_take(&budget, size);

		assert_non_null(piece);
		assert_false(in_scratch(piece));
		assert_true(budget.beside);
		memset(piece, 1, size);
		budget_give(&budget, piece);
	}
	// To the last byte that there is, and no further.
	for (size_t size = 1; size < 300; size++) {
		struct scratch exact = {.bytes = memory, .size = 160};
		struct budget budget = {.left = 1 << 20, .scratch = &exact};

		for (unsigned i = 0; i < 20; i++) {
			uint8_t *piece = budget_take(&budget, size);

			assert_true(!in_scratch(piece) || piece + size <= memory + 160);
			budget_give(&budget, piece);
		}
		assert_true(exact.used <= exact.size);
	}
}

static void
more_than_the_budget_is_refused(void **state)
{
	struct scratch scratch = {.bytes = memory, .size = sizeof(memory)};
	struct budget budget = {.left = 100, .scratch = &scratch};
	void *piece = budget_take(&budget, 50);

	assert_non_null(piece);
	assert_false(budget.spent);
	assert_null(budget_take(&budget, 50));
	assert_true(budget.spent);
	budget_give(&budget, piece);
}

static void
kept_memory_outlives_the_unpacked_message(void **state)
{
	struct scratch scratch = {.bytes = memory, .size = sizeof(memory)};
	struct budget budget = {.left = 1 << 20, .scratch = &scratch};
	size_t sizes[] = {0, 1, 1000, UNPACKED_LARGE - 1, UNPACKED_LARGE, 2 * UNPACKED_LARGE};

	for (unsigned i = 0; i < 6; i++) {
		uint8_t *piece = budget_take(&budget, sizes[i]), *kept;
		ProtobufCBinaryData spec = {.data = piece, .len = sizes[i]};

		memset(spec.data, 7, spec.len);
		kept = budget_keep(&spec);
		assert_non_null(kept);
		if (spec.data)
			memset(spec.data, 0, spec.len);
		budget_give(&budget, spec.data);
		for (size_t at = 0; at < sizes[i]; at++)
			assert_int_equal(kept[at], 7);
		free(kept);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_of_scratch_memory_are_apart_and_aligned),
		cmocka_unit_test(large_pieces_and_pieces_without_room_are_from_malloc),
		cmocka_unit_test(more_than_the_budget_is_refused),
		cmocka_unit_test(kept_memory_outlives_the_unpacked_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
