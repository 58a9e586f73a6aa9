// SPDX-License-Identifier: Apache-2.0
// Record route and timestamp (RFC 791 section 3.1).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ip/options.h"

enum { HEADER = 20, OPTIONS = 16 };

static bool
ends_in_one(uint16_t vrf, const uint8_t *address)
{
	return address[3] == 1;
}

struct case4 {
	const char *what;
	uint8_t before[OPTIONS], after[OPTIONS];
	bool written;
	unsigned wrong; // from the start of the header
};

static void
options_get_our_address_and_a_time_where_they_have_room(void **state)
{
	static const struct case4 cases[] = {
		{"no options", {0}, {0}, false, 0},
		{"others", {1, 148, 4, 0, 0}, {1, 148, 4, 0, 0}, false, 0},
		{"record route", {7, 11, 4}, {7, 11, 8, 192, 0, 2, 1}, true, 0},
		{"with one address", {7, 11, 8, 9, 9, 9, 9}, {7, 11, 12, 9, 9, 9, 9, 192, 0, 2, 1}, true, 0},
		{"full", {7, 7, 8, 9, 9, 9, 9}, {7, 7, 8, 9, 9, 9, 9}, false, 0},
		{"full from the start", {7, 3, 4}, {7, 3, 4}, false, 0},
		{"behind others", {1, 1, 7, 7, 4}, {1, 1, 7, 7, 8, 192, 0, 2, 1}, true, 0},
		{"behind the end", {0, 7, 7, 4}, {0, 7, 7, 4}, false, 0},
		{"a pointer before the addresses", {7, 11, 3}, {7, 11, 3}, false, 22},
		{"no whole address", {7, 10, 8}, {7, 10, 8}, false, 22},
		{"without a pointer", {7, 2}, {7, 2}, false, 21},
		{"times", {68, 12, 5, 0}, {68, 12, 9, 0, 0x80, 1, 2, 3}, true, 0},
		{"times with addresses", {68, 12, 5, 1}, {68, 12, 13, 1, 192, 0, 2, 1, 0x80, 1, 2, 3}, true, 0},
		{"an address of ours", {68, 12, 5, 3, 9, 9, 9, 1}, {68, 12, 13, 3, 9, 9, 9, 1, 0x80, 1, 2, 3}, true, 0},
		{"an address of another's", {68, 12, 5, 3, 9, 9, 9, 2}, {68, 12, 5, 3, 9, 9, 9, 2}, false, 0},
		{"no room counts", {68, 8, 9, 0x10}, {68, 8, 9, 0x20}, true, 0},
		{"up to fifteen", {68, 8, 9, 0xf0}, {68, 8, 9, 0xf0}, false, 23},
		{"not with given addresses", {68, 8, 9, 0xf3}, {68, 8, 9, 0xf3}, false, 0},
		{"half a time", {68, 10, 9, 0}, {68, 10, 9, 0}, false, 22},
		{"half an address and time", {68, 8, 5, 1}, {68, 8, 5, 1}, false, 22},
		{"a pointer before the times", {68, 8, 4, 0}, {68, 8, 4, 0}, false, 22},
		{"without a flag", {68, 3, 5}, {68, 3, 5}, false, 21},
		{"an unknown flag", {68, 8, 5, 2}, {68, 8, 5, 2}, false, 0},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t header[HEADER + OPTIONS] = {0x49};
		unsigned wrong;
		bool written;

		memcpy(header + HEADER, cases[i].before, OPTIONS);
		written = ip4_options_record(
			header, sizeof(header), (const uint8_t[4]){192, 0, 2, 1}, 0x00010203, ends_in_one, 0, &wrong);
		if (written != cases[i].written || wrong != cases[i].wrong ||
			memcmp(header + HEADER, cases[i].after, OPTIONS) != 0)
			fail_msg("%s: written %d, wrong at %u", cases[i].what, written, wrong);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(options_get_our_address_and_a_time_where_they_have_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
