// SPDX-License-Identifier: Apache-2.0
// The timing wheel and the queues of ids.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "hqos/wheel.h"

enum { CHUNKS = WHEEL_SLOTS + 2000 };

static struct chunks chunks;
static struct wheel wheel;

static int
start(void **state)
{
	(void)state;
	chunks.all = aligned_alloc(64, CHUNKS * sizeof(struct chunk));
	chunks.free = NO_CHUNK;
	for (uint32_t i = CHUNKS; i-- > 0;)
		chunk_give(&chunks, i);
	wheel_start(&wheel, &chunks, 0);
	return 0;
}

static int
end(void **state)
{
	unsigned count = 0;

	(void)state;
	for (uint32_t i = chunks.free; i != NO_CHUNK; i = chunks.all[i].next)
		count++;
	free(chunks.all);
	return count != CHUNKS; // none was lost
}

static uint64_t
slot_time(uint64_t slot)
{
	return slot << WHEEL_SLOT_SHIFT;
}

static void
an_entry_of_the_wheel_comes_back_when_it_is_due(void **state)
{
	struct place place;

	(void)state;
	for (uint64_t slot = 777; slot < 3 * WHEEL_SLOTS; slot += 777) {
		uint64_t when = slot_time(slot) - 5;

		wheel_insert(&wheel, 42, &place, wheel_slot_of(&wheel, when));
		assert_int_equal(wheel_due(&wheel, when - 1 - slot_time(1)), -1);
		assert_int_equal(wheel_due(&wheel, when + 5), slot % WHEEL_SLOTS);
		assert_int_equal(wheel_pop(&wheel, slot % WHEEL_SLOTS), 42);
		assert_int_equal(wheel_due(&wheel, when + 5), -1);
	}
}

static void
an_entry_beyond_the_wheel_comes_back_at_its_end(void **state)
{
	struct place place;

	(void)state;
	wheel_insert(&wheel, 1, &place, wheel_slot_of(&wheel, slot_time(10 * WHEEL_SLOTS)));
	assert_int_equal(place.slot, WHEEL_SLOTS - 1);
	assert_int_equal(wheel_due(&wheel, slot_time(5)), -1);
	assert_int_equal(wheel_due(&wheel, slot_time(WHEEL_SLOTS)), WHEEL_SLOTS - 1);
	wheel_pop(&wheel, WHEEL_SLOTS - 1);
}

static void
a_moment_that_has_passed_is_the_next_slot(void **state)
{
	struct place place;

	(void)state;
	assert_int_equal(wheel_due(&wheel, slot_time(500)), -1);
	wheel_insert(&wheel, 9, &place, wheel_slot_of(&wheel, slot_time(3)));
	assert_int_equal(wheel_due(&wheel, slot_time(501)), 501);
	wheel_pop(&wheel, 501);
}

static void
everything_is_found_after_a_long_silence(void **state)
{
	struct place place;
	unsigned found = 0;
	int slot;

	(void)state;
	for (uint32_t i = 0; i < 1000; i++)
		wheel_insert(&wheel, i, &place, wheel_slot_of(&wheel, slot_time(i * 7)));
	while ((slot = wheel_due(&wheel, slot_time(100 * WHEEL_SLOTS))) >= 0) {
		wheel_pop(&wheel, (unsigned)slot);
		found++;
	}
	assert_int_equal(found, 1000);
	assert_int_equal(wheel.waiting, 0);
}

static void
a_queue_is_in_order_and_shows_the_next_packets(void **state)
{
	struct fifo fifo = {0};
	uint32_t pushed = 0, popped = 0, seed = 7;

	(void)state;
	for (unsigned round = 0; round < 20000; round++) {
		seed = seed * 1664525 + 1013904223;
		if ((seed >> 16) % 100 < 52 && pushed - popped < 5000) {
			fifo_push(&fifo, &chunks, pushed++);
		} else if (pushed != popped) {
			unsigned ahead = (seed >> 24) % 15; // within two chunks
			uint32_t seen = fifo_peek(&fifo, &chunks, ahead);

			assert_true(seen == popped + ahead || seen == NO_ID);
			assert_int_equal(seen == NO_ID, ahead >= pushed - popped);
			assert_int_equal(fifo_pop(&fifo, &chunks), popped++);
		}
		assert_int_equal(fifo.count, pushed - popped);
	}
	while (fifo.count != 0)
		assert_int_equal(fifo_pop(&fifo, &chunks), popped++);
	assert_int_equal(popped, pushed);
}

int
main(void)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test_setup_teardown(an_entry_of_the_wheel_comes_back_when_it_is_due, start, end),
		cmocka_unit_test_setup_teardown(an_entry_beyond_the_wheel_comes_back_at_its_end, start, end),
		cmocka_unit_test_setup_teardown(a_moment_that_has_passed_is_the_next_slot, start, end),
		cmocka_unit_test_setup_teardown(everything_is_found_after_a_long_silence, start, end),
		cmocka_unit_test_setup_teardown(a_queue_is_in_order_and_shows_the_next_packets, start, end),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
