// SPDX-License-Identifier: Apache-2.0
// Names: every name that was put is found, and pages of a kind are correct while names come and go.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/names.h"

static int objects[4096];

static const char *
name_of(unsigned i)
{
	static char name[32];

	snprintf(name, sizeof(name), "subscriber-%u", i);
	return name;
}

static void
a_name_belongs_to_its_kind(void **state)
{
	struct names *names = names_create();

	assert_int_equal(names_put(names, 1, "access", &objects[1]), 0);
	assert_int_equal(names_put(names, 2, "access", &objects[2]), 0);
	assert_ptr_equal(names_get(names, 1, "access"), &objects[1]);
	assert_ptr_equal(names_get(names, 2, "access"), &objects[2]);
	assert_null(names_get(names, 3, "access"));
	assert_ptr_equal(names_delete(names, 1, "access"), &objects[1]);
	assert_null(names_delete(names, 1, "access"));
	assert_ptr_equal(names_get(names, 2, "access"), &objects[2]);
	names_destroy(names);
}

static void
names_that_differ_in_one_byte_or_in_length_are_different(void **state)
{
	static const char *const all[] = {"", "a", "ab", "abcdefgh", "abcdefgi", "abcdefgha", "abcdefghabcdefgh"};
	enum { COUNT = sizeof(all) / sizeof(all[0]) };
	struct names *names = names_create();

	for (unsigned i = 0; i < COUNT; i++)
		assert_int_equal(names_put(names, 0, all[i], &objects[i]), 0);
	for (unsigned i = 0; i < COUNT; i++)
		assert_ptr_equal(names_get(names, 0, all[i]), &objects[i]);
	assert_int_equal(names_count(names, 0), COUNT);
	names_destroy(names);
}

static void
a_kind_out_of_range_or_no_value_is_refused(void **state)
{
	struct names *names = names_create();
	uint64_t cursor = 0;

	assert_int_equal(names_put(names, NAMES_KINDS, "a", &objects[0]), -EINVAL);
	assert_int_equal(names_put(names, 0, "a", NULL), -EINVAL);
	assert_null(names_get(names, NAMES_KINDS, "a"));
	assert_null(names_next(names, NAMES_KINDS, &cursor, NULL));
	assert_int_equal(names_count(names, NAMES_KINDS), 0);
	names_destroy(names);
}

static void
names_come_in_the_order_in_which_they_were_first_put(void **state)
{
	struct names *names = names_create();
	const char *name;
	uint64_t cursor = 0;

	assert_int_equal(names_put(names, 5, "c", &objects[0]), 0);
	assert_int_equal(names_put(names, 5, "a", &objects[1]), 0);
	assert_int_equal(names_put(names, 6, "other", &objects[9]), 0);
	assert_int_equal(names_put(names, 5, "b", &objects[2]), 0);
	assert_int_equal(names_put(names, 5, "c", &objects[3]), 0);
	assert_ptr_equal(names_next(names, 5, &cursor, &name), &objects[3]);
	assert_string_equal(name, "c");
	assert_ptr_equal(names_next(names, 5, &cursor, &name), &objects[1]);
	assert_string_equal(name, "a");
	assert_ptr_equal(names_next(names, 5, &cursor, &name), &objects[2]);
	assert_string_equal(name, "b");
	assert_null(names_next(names, 5, &cursor, &name));
	names_destroy(names);
}

static void
pages_meet_every_staying_name_once_while_others_come_and_go(void **state)
{
	enum { NAMES = 4000, PAGE = 7 };
	static unsigned met[NAMES];
	struct names *names = names_create();
	uint64_t cursor = 0;
	void *value;

	for (unsigned i = 0; i < NAMES; i++)
		assert_int_equal(names_put(names, 3, name_of(i), &objects[i]), 0);
	for (unsigned page = 0;; page++) {
		char extra[32];

		value = NULL;
		for (unsigned i = 0; i < PAGE && (value = names_next(names, 3, &cursor, NULL)) != NULL; i++)
			if ((int *)value < objects + NAMES)
				met[(int *)value - objects]++;
		if (value == NULL)
			break;
		// Between pages: the one at the cursor goes if it is odd, and so do some before and behind it.
		for (unsigned i = page % 9; i < NAMES; i += 9)
			if (i % 2 != 0)
				(void)names_delete(names, 3, name_of(i));
		if (page < 200) {
			snprintf(extra, sizeof(extra), "extra-%u", page);
			assert_int_equal(names_put(names, 3, extra, &objects[4095]), 0);
		}
	}
	for (unsigned i = 0; i < NAMES; i++)
		assert_true(i % 2 == 0 ? met[i] == 1 : met[i] <= 1);
	names_destroy(names);
}

static void
a_hundred_thousand_names_come_and_go_and_leave_no_memory_behind(void **state)
{
	enum { NAMES = 100000 };
	struct names *names = names_create();
	size_t empty = names_memory(names);

	for (unsigned i = 0; i < NAMES; i++)
		assert_int_equal(names_put(names, 1, name_of(i), &objects[i % 4096]), 0);
	assert_int_equal(names_count(names, 1), NAMES);
	for (unsigned i = 0; i < NAMES; i++)
		assert_ptr_equal(names_get(names, 1, name_of(i)), &objects[i % 4096]);
	for (unsigned i = 0; i < NAMES; i++) {
		unsigned k = i % 2 != 0 ? i : NAMES - 2 - i;

		assert_ptr_equal(names_delete(names, 1, name_of(k)), &objects[k % 4096]);
		assert_null(names_get(names, 1, name_of(k)));
	}
	assert_int_equal(names_count(names, 1), 0);
	assert_int_equal(names_memory(names), empty);
	names_destroy(names);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_belongs_to_its_kind),
		cmocka_unit_test(names_that_differ_in_one_byte_or_in_length_are_different),
		cmocka_unit_test(a_kind_out_of_range_or_no_value_is_refused),
		cmocka_unit_test(names_come_in_the_order_in_which_they_were_first_put),
		cmocka_unit_test(pages_meet_every_staying_name_once_while_others_come_and_go),
		cmocka_unit_test(a_hundred_thousand_names_come_and_go_and_leave_no_memory_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
