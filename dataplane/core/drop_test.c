// Drops by reason, by interface and by session.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "port/all_nodes.h"

enum { REASONS = 4, MANY = 100000 };

DROP(one, "test-one", "The first.")
DROP(two, "test-two", "The second.")
DROP(three, "test-three", "The third.")
DROP(four, "test-four", "The fourth.")

static const struct drop *const reasons[REASONS] = {&one, &two, &three, &four};

static int
start(void **state)
{
	return all_nodes_start(1, 1024, NULL, 0);
}

static void
lose(uint32_t session, enum direction direction, uint16_t counted, const struct drop *reason)
{
	struct rte_mbuf *m = packet_new();

	packet_of(m)->session = session;
	packet_of(m)->direction = (uint8_t)direction;
	packet_of(m)->counted = counted;
	drop_now(m, reason);
}

static uint64_t
told_apart(uint32_t session)
{
	uint64_t sum = 0;

	for (unsigned r = 0; r < REASONS; r++)
		sum += drop_of_session(session, reasons[r]->id);
	return sum;
}

static uint64_t
in_all(uint32_t session)
{
	struct drop_totals t;

	drop_session_totals(session, &t);
	return t.packets;
}

static void
a_session_s_drops_are_told_apart_by_reason_and_direction(void **state)
{
	struct drop_totals t;

	lose(7, UP, 100, &one);
	lose(7, UP, 0, &one);
	lose(7, DOWN, 50, &two);
	lose(8, DOWN, 60, &two);
	assert_int_equal(drop_of_session(7, one.id), 2);
	assert_int_equal(drop_of_session(7, two.id), 1);
	assert_int_equal(drop_of_session(7, three.id), 0);
	drop_session_totals(7, &t);
	assert_int_equal(t.packets, 3);
	assert_int_equal(t.counted[UP], 1);
	assert_int_equal(t.counted_bytes[UP], 100);
	assert_int_equal(t.counted[DOWN], 1);
	assert_int_equal(t.counted_bytes[DOWN], 50);
	drop_forget_session(7);
	assert_int_equal(told_apart(7), 0);
	assert_int_equal(in_all(7), 0);
	assert_int_equal(told_apart(8), 1);
	drop_forget_session(8);
}

static void
what_there_is_no_room_to_tell_apart_is_in_the_session_s_total(void **state)
{
	uint64_t together = 0;

	for (uint32_t session = 0; session < MANY; session++)
		for (unsigned r = 0; r < REASONS; r++)
			lose(session, UP, 0, reasons[r]);
	for (uint32_t session = 0; session < MANY; session++) {
		assert_int_equal(in_all(session), REASONS);
		together += told_apart(session);
	}
	assert_in_range(together, 65536, MANY * REASONS - 1);
}

static void
the_room_of_sessions_that_are_no_more_is_others(void **state)
{
	for (uint32_t session = 0; session < MANY; session++)
		drop_forget_session(session);
	// None of these was there before, and a quarter of the places is enough for all of them.
	for (uint32_t session = MANY; session < MANY + 10000; session++)
		for (unsigned r = 0; r < REASONS - 1; r++)
			lose(session, UP, 0, reasons[r]);
	for (uint32_t session = MANY; session < MANY + 10000; session++)
		assert_int_equal(told_apart(session), REASONS - 1);
}

static void
a_place_that_became_free_before_a_pair_s_own_does_not_make_a_second_pair(void **state)
{
	// Neighbours in the table: whoever goes leaves a place that comes first for others.
	for (uint32_t session = 1 << 20; session < (1 << 20) + 50000; session++)
		lose(session, UP, 0, &one);
	for (uint32_t session = 1 << 20; session < (1 << 20) + 50000; session += 2)
		drop_forget_session(session);
	for (uint32_t session = (1 << 20) + 1; session < (1 << 20) + 50000; session += 2)
		lose(session, UP, 0, &one);
	for (uint32_t session = (1 << 20) + 1; session < (1 << 20) + 50000; session += 2)
		drop_forget_session(session);
	for (uint32_t session = 1 << 20; session < (1 << 20) + 50000; session++)
		assert_int_equal(told_apart(session), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_s_drops_are_told_apart_by_reason_and_direction),
		cmocka_unit_test(what_there_is_no_room_to_tell_apart_is_in_the_session_s_total),
		cmocka_unit_test(the_room_of_sessions_that_are_no_more_is_others),
		cmocka_unit_test(a_place_that_became_free_before_a_pair_s_own_does_not_make_a_second_pair),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
