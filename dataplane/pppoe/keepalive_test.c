// SPDX-License-Identifier: Apache-2.0
// LCP Echo-Requests to subscribers: their interval, and reports of lost peers.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pppoe/header.h"
#include "pppoe/keepalive.h"
#include "session/all_sessions.h"

enum {
	SESSION_ID = 0x1234,
	SESSION = 0x8864,
	MAGIC = 0x01020304,
	TICKS = 10,
	FAILURES = 3,
	INNER = 20 + UDP + PAYLOAD
};
#define SECOND UINT64_C(1000000000)

static int
put_peer(uint64_t interval, uint32_t magic, uint32_t failures)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;

	access.port = "access";
	access.outer_vlan = 100;
	access.inner_vlan = 1;
	access.mac = "02:01:00:00:00:09";
	access.pppoe_session_id = SESSION_ID;
	access.lcp_magic = magic;
	access.lcp_echo_interval = interval;
	access.lcp_echo_failures = failures;
	session.access = &access;
	session.addresses = (char *[]){"100.64.0.1/32"};
	session.n_addresses = 1;
	return put("Session", "peer", &session);
}

static int
start(void **state)
{
	keepalive_by_hand = true;
	return all_sessions_start(1);
}

// Each test has a new session.
static int
up(void **state)
{
	return put_peer(SECOND, MAGIC, FAILURES);
}

static int
down(void **state)
{
	if (object_find(&session_kind, "peer"))
		delete_session("peer");
	return 0;
}

// Echo-Requests that were sent in so many ticks.
static unsigned
asked_in(unsigned ticks)
{
	sent_count = 0;
	for (unsigned i = 0; i < ticks; i++) {
		keepalive_tick();
		walk();
	}
	return sent_to("access");
}

static void
until_asked(void)
{
	unsigned ticks = 0;

	while (asked_in(1) == 0)
		assert_true(++ticks <= TICKS + 1);
}

static void
send_reply(uint32_t magic, uint8_t mac)
{
	uint8_t bytes[64], *at = write_access(bytes, 100, 1, SESSION);

	bytes[11] = mac;
	*at++ = 0x11;
	*at++ = 0;
	at = write_word(write_word(at, SESSION_ID), 2 + 8);
	at = write_word(at, PPP_LCP);
	*at++ = 10;
	*at++ = 1;
	at = write_word(at, 8);
	at = write_word(write_word(at, (uint16_t)(magic >> 16)), (uint16_t)magic);
	receive("access", bytes, (size_t)(at - bytes));
}

static void
send_ip(void)
{
	uint8_t bytes[256], *at = write_access(bytes, 100, 1, SESSION);

	*at++ = 0x11;
	*at++ = 0;
	at = write_word(write_word(write_word(at, SESSION_ID), INNER + 2), PPP_IP4);
	at = write_packet4(at, "100.64.0.1", "203.0.113.9", PAYLOAD);
	receive("access", bytes, (size_t)(at - bytes));
}

static void
a_peer_is_asked_at_its_interval_with_our_magic_number(void **state)
{
	static const uint8_t request[] = {2, 1, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 100, 0x81, 0, 0, 1, 0x88,
		0x64, 0x11, 0, 0x12, 0x34, 0, 10, 0xc0, 0x21, 9, 1, 0, 8, 1, 2, 3, 4};
	uint64_t noted = dropped("lcp-echo-noted"), ignored = dropped("punt-not-watched");

	until_asked();
	assert_int_equal(sent[0].length, sizeof(request));
	assert_memory_equal(sent[0].bytes, request, sizeof(request));
	for (unsigned i = 0; i < 3 * FAILURES; i++) {
		send_reply(0x55667788, 9);
		assert_int_equal(asked_in(TICKS), 1);
	}
	assert_int_equal(dropped("lcp-echo-noted"), noted + 3 * FAILURES);
	assert_int_equal(dropped("punt-not-watched"), ignored);
}

static void
a_peer_that_sends_packets_is_not_asked(void **state)
{
	until_asked();
	for (unsigned i = 0; i < 2 * FAILURES; i++) {
		send_ip();
		assert_int_equal(asked_in(TICKS), 0);
	}
	assert_int_equal(asked_in(TICKS), 1);
}

static void
a_peer_that_does_not_answer_is_reported_until_it_does(void **state)
{
	uint64_t before = dropped("punt-not-watched");

	until_asked();
	asked_in((FAILURES - 1) * TICKS);
	assert_int_equal(dropped("punt-not-watched"), before);
	asked_in(TICKS);
	assert_int_equal(dropped("punt-not-watched"), before + 1);
	asked_in(2 * TICKS);
	assert_int_equal(dropped("punt-not-watched"), before + 3);
	send_reply(0, 9);
	asked_in(FAILURES * TICKS);
	assert_int_equal(dropped("punt-not-watched"), before + 3);
}

static void
a_reply_of_a_loop_or_of_another_host_is_none(void **state)
{
	uint64_t before = dropped("lcp-echo-noted");

	until_asked();
	send_reply(MAGIC, 9);
	send_reply(0x55667788, 8);
	assert_int_equal(dropped("lcp-echo-noted"), before);
}

static void
the_interval_of_a_session_changes_and_ends(void **state)
{
	until_asked();
	assert_int_equal(put_peer(3600 * SECOND, MAGIC, 0), 0);
	assert_int_equal(asked_in(3 * TICKS), 0);
	// Several rounds of the wheel.
	assert_int_equal(asked_in(3600 * TICKS), 1);
	assert_int_equal(put_peer(SECOND, MAGIC, 0), 0);
	until_asked();
	assert_int_equal(put_peer(0, MAGIC, 0), 0);
	assert_int_equal(asked_in(3 * TICKS), 0);
	send_reply(0x55667788, 9);
	assert_int_equal(put_peer(SECOND, MAGIC, 0), 0);
	until_asked();
	down(state);
	assert_int_equal(asked_in(3 * TICKS), 0);
}

static void
a_session_that_is_not_made_is_not_asked(void **state)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;

	// It has the id of a session that is there, which is found last.
	access.port = "access";
	access.outer_vlan = 100;
	access.inner_vlan = 1;
	access.mac = "02:01:00:00:00:0a";
	access.pppoe_session_id = SESSION_ID;
	access.lcp_magic = MAGIC;
	access.lcp_echo_interval = SECOND;
	session.access = &access;
	assert_int_equal(put_peer(0, MAGIC, 0), 0);
	assert_int_equal(put("Session", "other", &session), -EEXIST);
	assert_int_equal(asked_in(3 * TICKS), 0);
	assert_int_equal(put_peer(SECOND, 0, 0), -EINVAL);
	assert_int_equal(put_peer(SECOND - 1, MAGIC, 0), -EINVAL);
	assert_int_equal(put_peer(SECOND, MAGIC, 300), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_peer_is_asked_at_its_interval_with_our_magic_number, up, down),
		cmocka_unit_test_setup_teardown(a_peer_that_sends_packets_is_not_asked, up, down),
		cmocka_unit_test_setup_teardown(a_peer_that_does_not_answer_is_reported_until_it_does, up, down),
		cmocka_unit_test_setup_teardown(a_reply_of_a_loop_or_of_another_host_is_none, up, down),
		cmocka_unit_test_setup_teardown(the_interval_of_a_session_changes_and_ends, up, down),
		cmocka_unit_test_setup_teardown(a_session_that_is_not_made_is_not_asked, up, down),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
