// SPDX-License-Identifier: Apache-2.0
// Filters that do not compile. End-to-end tests cover matches.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/watch_filter.h"

static void
a_wrong_filter_is_explained(void **state)
{
	char text[512] = "";
	struct watch_filter *f = watch_filter_begin("port port", text, sizeof(text));
	struct match match = {0};

	assert_non_null(f);
	while (!watch_filter_ready(f, 100))
		;
	assert_int_equal(watch_filter_take(f, &match, text, sizeof(text)), -EINVAL);
	assert_null(match.program);
	assert_memory_equal(text, "filter: ", 8);
	watch_filter_end(f);
}

static void
a_filter_that_is_too_long_is_refused(void **state)
{
	char filter[FILTER_MAX + 2], text[512] = "";

	memset(filter, ' ', sizeof(filter) - 1);
	filter[sizeof(filter) - 1] = '\0';
	assert_null(watch_filter_begin(filter, text, sizeof(text)));
	assert_int_equal(errno, E2BIG);
	assert_non_null(strstr(text, "2048"));
}

static void
an_abandoned_filter_is_freed(void **state)
{
	char text[512] = "";
	struct watch_filter *f = watch_filter_begin("port port", text, sizeof(text));

	assert_non_null(f);
	watch_filter_end(f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_filter_is_explained),
		cmocka_unit_test(a_filter_that_is_too_long_is_refused),
		cmocka_unit_test(an_abandoned_filter_is_freed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
