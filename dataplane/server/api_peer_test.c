// SPDX-License-Identifier: Apache-2.0
// Names of clients.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/api_peer.h"

static void
stars_in_a_pattern_match_within_their_part(void **state)
{
	static const struct {
		const char *pattern, *name;
		bool is;
	} all[] = {
		{"agent", "agent", true},
		{"agent", "Agent", true},
		{"agent", "agent2", false},
		{"agent2", "agent", false},
		{"agent-*", "agent-", true},
		{"agent-*", "agent-7", true},
		{"agent-*", "an agent-7", false},
		{"*.example.org", "a.b.example.org", true},
		{"*.example.org", "example.org", false},
		{"*.example.org", "a.example.org.evil.net", false},
		{"a*b*c", "aXbXbc", true},
		{"a*b*c", "aXbXcb", false},
		{"**", "", true},
		{"*", "anything", true},
		{"", "", true},
		{"", "a", false},
		{"spiffe://site/*/agent", "spiffe://site/west/agent", true},
		{"a?", "ab", false},
		{"[ab]", "a", false},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (peer_name_matches(all[i].pattern, strlen(all[i].pattern), all[i].name) != all[i].is)
			fail_msg("%s and %s", all[i].pattern, all[i].name);
}

static void
a_pattern_ends_with_its_length(void **state)
{
	assert_true(peer_name_matches("agent,other", 5, "agent"));
	assert_false(peer_name_matches("agent,other", 5, "agent,other"));
	assert_true(peer_name_matches("*,other", 1, "x"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stars_in_a_pattern_match_within_their_part),
		cmocka_unit_test(a_pattern_ends_with_its_length),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
