// SPDX-License-Identifier: Apache-2.0
// Several PDU sessions of one subscriber: packets find theirs by their source, whichever sessions come and go.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "session/all_sessions.h"
#include "session/record.h"

enum { TEID_AT = 14 + 20 + UDP + 4 };

// An access: the VLAN pair alone, with a MAC, or with a PPPoE id.
struct access {
	const char *mac;
	uint16_t inner, pppoe;
};

static const struct access accesses[] = {{NULL, 1, 0}, {"02:01:00:00:00:09", 2, 0}, {NULL, 3, 7}};

static const char *const names[] = {"one", "two", "three"};
static const char *const addresses[] = {"100.64.0.1", "100.64.0.2", "100.64.0.3"};

static int
start(void **state)
{
	return all_sessions_start(1);
}

static int
put_one(const struct access *on, unsigned n)
{
	char address[32];
	struct subscriber s = {.name = names[n],
		.mac = on->mac,
		.address4 = address,
		.outer = 100,
		.inner = on->inner,
		.pppoe = on->pppoe,
		.teid = 20 + 10 * n,
		.pdu_session = n + 1};

	snprintf(address, sizeof(address), "%s/32", addresses[n]);
	return put_session(&s);
}

// A packet from the nth session's address; the TEID that it leaves with, or 0.
static unsigned
leaves_with(const struct access *on, unsigned n)
{
	uint8_t frame[256], *at, *end;

	at = write_access(frame, 100, on->inner, on->pppoe ? 0x8864 : 0x0800);
	if (on->pppoe) {
		at = write_word(write_word(at, 0x1100), on->pppoe);
		at = write_word(write_word(at, 2 + 20 + UDP + PAYLOAD), 0x0021);
	}
	end = write_packet4(at, addresses[n], "203.0.113.9", PAYLOAD);
	sent_count = 0;
	receive("access", frame, (size_t)(end - frame));
	return sent_to("core") == 0 ? 0 : (unsigned)(sent[0].bytes[TEID_AT + 2] << 8 | sent[0].bytes[TEID_AT + 3]);
}

static bool
reaches(unsigned n)
{
	send_tunnelled(20 + 10 * n, addresses[n]);
	return sent_to("access") == 1;
}

static void
try_access(const struct access *on)
{
	static const unsigned orders[][3] = {{0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {1, 2, 0}};

	for (unsigned o = 0; o < RTE_DIM(orders); o++) {
		uint64_t foreign = dropped("session-source");

		for (unsigned n = 0; n < 3; n++)
			assert_int_equal(put_one(on, n), 0);
		for (unsigned round = 0; round < 2; round++)
			for (unsigned n = 0; n < 3; n++)
				assert_int_equal(leaves_with(on, n), 21 + 10 * n);
		for (unsigned n = 0; n < 3; n++)
			assert_true(reaches(n));
		for (unsigned gone = 0; gone < 3; gone++) {
			assert_int_equal(delete_session(names[orders[o][gone]]), 0);
			for (unsigned left = gone + 1; left < 3; left++) {
				unsigned n = orders[o][left];

				assert_int_equal(leaves_with(on, n), 21 + 10 * n);
				assert_true(reaches(n));
			}
			if (gone < 2) {
				assert_int_equal(leaves_with(on, orders[o][gone]), 0);
				assert_int_equal(dropped("session-source"), ++foreign);
			}
		}
		assert_int_equal(leaves_with(on, 0), 0);
	}
}

static void
other_sessions_keep_their_packets_while_one_comes_and_goes(void **state)
{
	for (unsigned i = 0; i < RTE_DIM(accesses); i++)
		try_access(&accesses[i]);
}

static void
packets_are_counted_for_the_session_whose_they_are(void **state)
{
	struct session_totals totals;

	assert_int_equal(put_one(&accesses[0], 0), 0);
	assert_int_equal(put_one(&accesses[0], 1), 0);
	leaves_with(&accesses[0], 1);
	leaves_with(&accesses[0], 1);
	leaves_with(&accesses[0], 0);
	session_totals(session_of(object_find(&session_kind, "one")), &totals);
	assert_int_equal(totals.packets[UP], 1);
	session_totals(session_of(object_find(&session_kind, "two")), &totals);
	assert_int_equal(totals.packets[UP], 2);
	assert_int_equal(delete_session("one"), 0);
	assert_int_equal(delete_session("two"), 0);
}

static void
assert_refused(const struct subscriber *s, int error, const char *words)
{
	assert_int_equal(put_session(s), -error);
	if (!strstr(fault_of_put.text, words))
		fail_msg("\"%s\" does not say %s", fault_of_put.text, words);
}

static void
indistinguishable_sessions_are_refused(void **state)
{
	struct subscriber s = {.name = "two", .address4 = "100.64.0.0/24", .outer = 100, .inner = 1, .teid = 30};

	assert_int_equal(put_one(&accesses[0], 0), 0);
	assert_refused(&s, EEXIST, "access: Session \"one\" has these VLANs already");
	s.pdu_session = 1;
	assert_refused(&s, EEXIST, "access.pduSessionId: 1 is Session \"one\"'s");
	s.pdu_session = 2;
	assert_refused(&s, EEXIST, "addresses[0]: \"100.64.0.0/24\" has addresses of Session \"one\"'s");
	s.pdu_session = 16;
	assert_refused(&s, EINVAL, "access.pduSessionId: 16");
	s.pdu_session = 2;
	s.address4 = "100.64.0.2/32";
	assert_int_equal(put_session(&s), 0);
	// A change, too.
	s.address4 = "100.64.0.0/30";
	assert_refused(&s, EEXIST, "addresses[0]");
	assert_int_equal(leaves_with(&accesses[0], 1), 31);
	s.address4 = "100.64.0.3/32";
	assert_int_equal(put_session(&s), 0);
	assert_int_equal(leaves_with(&accesses[0], 2), 31);
	assert_int_equal(delete_session("one"), 0);
	assert_int_equal(delete_session("two"), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_sessions_keep_their_packets_while_one_comes_and_goes),
		cmocka_unit_test(packets_are_counted_for_the_session_whose_they_are),
		cmocka_unit_test(indistinguishable_sessions_are_refused),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
