// SPDX-License-Identifier: Apache-2.0
// Captures without a reader, and the buffers that they hold.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "core/trace.h"
#include "core/watch.h"
#include "port/all_nodes.h"

enum { BUFFERS = 4096, FRAMES = 2000 };

static const char *const names[] = {"a"};

static int
start(void **state)
{
	return all_nodes_start(1, BUFFERS, names, RTE_DIM(names));
}

static void
arrive_some(unsigned count)
{
	static const uint8_t frame[60] = {2, 0, 0, 0, 0, 1};

	for (unsigned i = 0; i < count; i++) {
		arrive("a", frame, sizeof(frame));
		if (i % 50 == 49)
			walk_workers(3);
	}
}

static unsigned
read_all(void)
{
	struct sight *s;
	unsigned count = 0;

	for (; (s = sight_next()) != NULL; count++)
		sight_done(s);
	return count;
}

static void
copies_of_an_unread_capture_hold_at_most_an_eighth_of_the_buffers(void **state)
{
	const struct watch wish = {.kind = WATCH_CAPTURE, .node = -1, .session = NO_SESSION, .remaining = 2 * FRAMES};
	char text[128];
	struct watch *w = watch_begin(&wish, text, sizeof(text));

	assert_non_null(w);
	trace_change(&workers[0]);
	arrive_some(FRAMES);
	assert_int_equal(rte_mempool_in_use_count(packet_pool), BUFFERS / 8);
	assert_int_equal(w->lost, FRAMES - BUFFERS / 8);
	assert_int_equal(read_all(), BUFFERS / 8);
	assert_int_equal(rte_mempool_in_use_count(packet_pool), 0);
	arrive_some(50);
	assert_int_equal(read_all(), 50);
	watch_end(w->slot);
}

// The steps are copied with instructions that need the alignment of a packet's state.
static void
steps_before_the_session_is_known_are_kept_apart_until_then(void **state)
{
	const struct watch wish = {.kind = WATCH_TRACE, .node = -1, .session = 1, .remaining = FRAMES};
	char text[128];
	struct watch *w = watch_begin(&wish, text, sizeof(text));

	assert_non_null(w);
	trace_change(&workers[0]);
	arrive_some(50);
	assert_int_equal(read_all(), 0);
	assert_int_equal(w->remaining, FRAMES);
	watch_end(w->slot);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_of_an_unread_capture_hold_at_most_an_eighth_of_the_buffers),
		cmocka_unit_test(steps_before_the_session_is_known_are_kept_apart_until_then),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
