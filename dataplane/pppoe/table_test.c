// SPDX-License-Identifier: Apache-2.0
// The table of PPPoE sessions.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pppoe/table.h"

static int
start(void **state)
{
	return pppoe_table_start(&pppoe_sessions);
}

static void
no_two_circuits_or_ids_share_a_key(void **state)
{
	static const uint16_t values[] = {0, 1, 4094};
	uint64_t keys[3 * 3 * 3 * 3];
	size_t count = 0;

	for (size_t p = 0; p < 3; p++)
		for (size_t o = 0; o < 3; o++)
			for (size_t i = 0; i < 3; i++)
				for (size_t s = 0; s < 3; s++) {
					uint64_t key = pppoe_key(values[p], values[o], values[i], values[s]);

					for (size_t k = 0; k < count; k++)
						assert_true(keys[k] != key);
					keys[count++] = key;
				}
	assert_true(pppoe_key(UINT8_MAX, 4095, 4095, UINT16_MAX) < 1ull << 56);
}

static void
a_circuit_alone_has_its_own_session_only(void **state)
{
	const struct circuit c = {1, 100, 7},
			     others[] = {{0, 100, 7}, {1, 101, 7}, {1, 100, 8}, {1, 100, 0}, {2, 100, 7}};

	assert_int_equal(pppoe_find(&pppoe_sessions, &c, 5), NO_SESSION);
	assert_int_equal(pppoe_table_put(&pppoe_sessions, &c, 5, 0), 0);
	assert_int_equal(pppoe_find(&pppoe_sessions, &c, 5), 0);
	assert_int_equal(pppoe_find(&pppoe_sessions, &c, 6), NO_SESSION);
	assert_int_equal(pppoe_find(&pppoe_sessions, &c, 0), NO_SESSION);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		assert_int_equal(pppoe_find(&pppoe_sessions, &others[i], 5), NO_SESSION);
	assert_int_equal(pppoe_table_put(&pppoe_sessions, &c, 5, 1), -EEXIST);
	assert_int_equal(pppoe_find(&pppoe_sessions, &c, 5), 0);
	pppoe_table_delete(&pppoe_sessions, &c, 6);
	assert_int_equal(pppoe_find(&pppoe_sessions, &c, 5), 0);
	pppoe_table_delete(&pppoe_sessions, &c, 5);
	assert_int_equal(pppoe_find(&pppoe_sessions, &c, 5), NO_SESSION);
}

static void
sessions_that_share_a_circuit_are_told_apart(void **state)
{
	enum { MANY = 1000, LAST = 4000000 };
	const struct circuit shared = {3, 200, 0}, beside = {3, 200, 1};

	assert_int_equal(pppoe_table_put(&pppoe_sessions, &beside, 1, 77), 0);
	for (uint16_t id = 1; id <= MANY; id++)
		assert_int_equal(pppoe_table_put(&pppoe_sessions, &shared, id, LAST - id), 0);
	for (uint16_t id = 1; id <= MANY; id++) {
		assert_int_equal(pppoe_find(&pppoe_sessions, &shared, id), LAST - id);
		assert_int_equal(pppoe_table_put(&pppoe_sessions, &shared, id, 1), -EEXIST);
	}
	assert_int_equal(pppoe_find(&pppoe_sessions, &shared, MANY + 1), NO_SESSION);
	for (uint16_t id = 1; id < MANY; id++)
		pppoe_table_delete(&pppoe_sessions, &shared, id);
	assert_int_equal(pppoe_find(&pppoe_sessions, &shared, MANY), LAST - MANY);
	assert_int_equal(pppoe_find(&pppoe_sessions, &shared, 1), NO_SESSION);
	pppoe_table_delete(&pppoe_sessions, &shared, MANY);
	assert_int_equal(pppoe_find(&pppoe_sessions, &shared, MANY), NO_SESSION);
	assert_int_equal(map64_count(pppoe_sessions.many), 0);
	assert_int_equal(pppoe_table_put(&pppoe_sessions, &shared, 9, 4), 0);
	assert_int_equal(pppoe_find(&pppoe_sessions, &shared, 9), 4);
	assert_int_equal(pppoe_find(&pppoe_sessions, &beside, 1), 77);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_two_circuits_or_ids_share_a_key),
		cmocka_unit_test(a_circuit_alone_has_its_own_session_only),
		cmocka_unit_test(sessions_that_share_a_circuit_are_told_apart),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
