// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flow/cells.h"
#include "flow/flow.h"

#define BIT(qfi) (UINT64_C(1) << (qfi))

static void
add(uint32_t session, uint8_t qfi, uint64_t packets)
{
	unsigned cell = flow_cell(flow_cells[session], qfi);

	assert_true(cell < SESSION_FLOWS);
	flow_counters_at(counters_row(&flow_counters), session, cell)->packets[UP] += packets;
}

// The packets of a QFI, or -1: it is not counted.
static int64_t
packets_of(uint32_t session, uint8_t qfi)
{
	struct session_flow flows[SESSION_FLOWS];
	unsigned count = flow_cells_read(session, flows);

	for (unsigned i = 0; i < count; i++)
		if (flows[i].qfi == qfi)
			return (int64_t)flows[i].packets[UP];
	return -1;
}

static int
start(void **state)
{
	return flow_cells_start();
}

static void
each_flow_of_a_session_has_its_cell(void **state)
{
	for (uint8_t qfi = 0; qfi < 64; qfi++)
		assert_int_equal(flow_cell(flow_cells[1], qfi), FLOW_CELLS);
	flow_cells_follow(1, BIT(0) | BIT(9) | BIT(63));
	flow_cells_follow(2, BIT(9));
	for (uint8_t qfi = 0; qfi < 64; qfi++)
		assert_int_equal(flow_cell(flow_cells[1], qfi) < SESSION_FLOWS, qfi == 0 || qfi == 9 || qfi == 63);
	add(1, 0, 1);
	add(1, 9, 2);
	add(1, 63, 3);
	add(2, 9, 4);
	assert_int_equal(packets_of(1, 0), 1);
	assert_int_equal(packets_of(1, 9), 2);
	assert_int_equal(packets_of(1, 63), 3);
	assert_int_equal(packets_of(2, 9), 4);
	flow_cells_end(1);
	flow_cells_end(2);
	assert_int_equal(packets_of(1, 9), -1);
}

static void
a_flow_that_stays_keeps_its_numbers_and_a_new_one_begins_with_none(void **state)
{
	flow_cells_follow(3, BIT(1) | BIT(9));
	add(3, 1, 10);
	add(3, 9, 20);
	flow_cells_follow(3, BIT(9) | BIT(5));
	assert_int_equal(packets_of(3, 9), 20);
	assert_int_equal(packets_of(3, 5), 0);
	assert_int_equal(packets_of(3, 1), -1);
	flow_cells_follow(3, BIT(9) | BIT(1));
	assert_int_equal(packets_of(3, 1), 0);
	flow_cells_end(3);
	flow_cells_follow(3, BIT(9));
	assert_int_equal(packets_of(3, 9), 0);
}

static void
flows_beyond_the_seventh_are_not_counted(void **state)
{
	struct session_flow flows[SESSION_FLOWS];

	flow_cells_follow(4, UINT64_MAX);
	assert_int_equal(flow_cells_read(4, flows), SESSION_FLOWS);
	assert_int_equal(flow_cell(flow_cells[4], 6), 6);
	assert_int_equal(flow_cell(flow_cells[4], 7), FLOW_CELLS);
}

static void
any_cells_are_searched_as_byte_by_byte(void **state)
{
	for (unsigned i = 0; i < 100000; i++) {
		uint64_t cells = UINT64_C(1) << 56;
		uint8_t qfi = (uint8_t)(rand() % 64);
		unsigned expected = FLOW_CELLS;

		for (unsigned cell = 0; cell < SESSION_FLOWS; cell++) {
			uint64_t value = (uint64_t)(rand() % 65);

			cells |= value << 8 * cell;
			if (value == qfi + 1u && expected == FLOW_CELLS)
				expected = cell;
		}
		assert_int_equal(flow_cell(cells, qfi), expected);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_flow_of_a_session_has_its_cell),
		cmocka_unit_test(a_flow_that_stays_keeps_its_numbers_and_a_new_one_begins_with_none),
		cmocka_unit_test(flows_beyond_the_seventh_are_not_counted),
		cmocka_unit_test(any_cells_are_searched_as_byte_by_byte),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
