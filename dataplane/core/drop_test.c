// SPDX-License-Identifier: Apache-2.0
// Drops by reason, by interface and by session.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/all_nodes.h"

enum { REASONS = 4, MANY = 100000 };

DROP(one, "test-one", "The first.")
DROP(two, "test-two", "The second.")
DROP(three, "test-three", "The third.")
DROP(four, "test-four", "The fourth.")

CONSUMED(done, "test-done", "No drop.")

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
a_consumed_packet_is_no_drop_of_its_session(void **state)
{
	uint64_t before = drop_total(done.id);

	lose(9, UP, 100, &done);
	assert_int_equal(drop_total(done.id), before + 1);
	assert_int_equal(drop_of_session(9, done.id), 0);
	assert_int_equal(in_all(9), 0);
}

static void
drops_without_a_slot_are_in_the_session_s_total(void **state)
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
	// Neighbours in the table: a deleted session frees a place that comes first for others.
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

static void
register_drops(void)
{
	static struct drop more = {.name = "test-more"};

	for (unsigned i = 0; i <= DROP_MAX; i++)
		drop_register(&more);
}

static void
register_punts(void)
{
	static struct punt more = {.name = "test-more"};

	for (unsigned i = 0; i <= UINT8_MAX; i++)
		punt_register(&more);
}

static void
never(void *unused)
{
}

static void
register_timers(void)
{
	for (unsigned i = 0; i <= UINT8_MAX; i++)
		loop_every(UINT64_MAX / 4, never, NULL);
}

static void
register_pollers(void)
{
	for (unsigned i = 0; i <= UINT8_MAX; i++)
		loop_poll(never, NULL);
}

static void
a_full_table_says_which_one_and_what_to_raise(void **state)
{
	static const struct {
		void (*fill)(void);
		const char *says;
	} tables[] = {
		{register_drops, "drop reasons: no room for test-more: there are 1024 already; raise DROP_MAX in "
				 "dataplane/core/drop.h"},
		{register_punts, "punt reasons: no room for test-more: there are 64 already; raise PUNT_MAX in "
				 "dataplane/core/punt.c"},
		{register_timers, "raise MAX_TIMERS in dataplane/core/loop.c"},
		{register_pollers, "raise MAX_POLLERS in dataplane/core/loop.c"},
	};

	for (unsigned i = 0; i < RTE_DIM(tables); i++) {
		char text[256] = "";
		int ends[2], status;
		pid_t child;

		assert_int_equal(pipe(ends), 0);
		child = fork();
		if (child == 0) {
			dup2(ends[1], STDERR_FILENO);
			tables[i].fill();
			_exit(0);
		}
		close(ends[1]);
		assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
		close(ends[0]);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_FAILURE);
		assert_non_null(strstr(text, tables[i].says));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_s_drops_are_told_apart_by_reason_and_direction),
		cmocka_unit_test(a_consumed_packet_is_no_drop_of_its_session),
		cmocka_unit_test(drops_without_a_slot_are_in_the_session_s_total),
		cmocka_unit_test(the_room_of_sessions_that_are_no_more_is_others),
		cmocka_unit_test(a_place_that_became_free_before_a_pair_s_own_does_not_make_a_second_pair),
		cmocka_unit_test(a_full_table_says_which_one_and_what_to_raise),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
