// SPDX-License-Identifier: Apache-2.0
// Paths on the test's clock: when peers get echo requests, and the packets of peers that no longer answer.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gtpu.pb-c.h"
#include "gtpu/path.h"
#include "session/all_sessions.h"

enum { GTPU_AT = 14 + 20 + UDP };

#define SECOND UINT64_C(1000000000)

static const struct subscriber user = {
	.name = "user", .mac = "02:01:00:00:00:09", .address4 = "100.64.0.2/32", .outer = 100, .inner = 2, .teid = 20};

// Far ahead of the clock that the loop goes by.
static uint64_t now = SECOND << 20;

static int
start(void **state)
{
	return all_sessions_start(1) || put_session(&user);
}

static const struct gtpu_path *
path(void)
{
	uint32_t number = 0;

	return gtpu_path_next(&number) ? gtpu_path_at(number) : NULL;
}

// So much later; how many echo requests were sent by then.
static unsigned
later(uint64_t nanoseconds)
{
	now += nanoseconds;
	sent_count = 0;
	gtpu_paths_turn(now);
	walk();
	for (unsigned i = 0; i < sent_count; i++)
		assert_int_equal(sent[i].bytes[GTPU_AT + 1], GTPU_ECHO_REQUEST);
	return sent_count;
}

static void
answer(const char *from, uint16_t sequence, uint8_t recovery)
{
	const uint8_t message[] = {0x32, GTPU_ECHO_RESPONSE, 0, 6, 0, 0, 0, 0, (uint8_t)(sequence >> 8),
		(uint8_t)sequence, 0, 0, IE_RECOVERY, recovery};
	uint8_t frame[128], *at = write_core(frame, 0x0800);

	at = write_udp(write_ip4(at, from, "192.0.2.1", UDP + sizeof(message)), 2152, 2152, sizeof(message));
	memcpy(at, message, sizeof(message));
	sent_count = 0;
	receive("core", frame, (size_t)(at + sizeof(message) - frame));
}

static void
put_peer(bool silent)
{
	Sluice__V1__GtpuPeer peer = SLUICE__V1__GTPU_PEER__INIT;

	peer.address = (char *)"192.0.2.2";
	peer.echo_interval = 10 * SECOND;
	peer.response_time = SECOND;
	peer.requests = 3;
	peer.no_echo = silent;
	assert_int_equal(put("GtpuPeer", "upf", &peer), 0);
}

static void
a_path_is_asked_after_its_interval_and_a_repeated_request_has_the_same_number(void **state)
{
	uint16_t sequence;

	assert_int_equal(path()->state, PATH_UNKNOWN);
	later(0);
	assert_int_equal(later(59 * SECOND), 0);
	assert_int_equal(later(SECOND), 1);
	assert_memory_equal(sent[0].bytes + 14 + 12, "\xc0\0\2\1\xc0\0\2\2", 8);
	sequence = path()->sequence;
	assert_int_equal(sent[0].bytes[GTPU_AT + 8] << 8 | sent[0].bytes[GTPU_AT + 9], sequence);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(later(3 * SECOND - 1), 0);
		assert_int_equal(later(1), 1);
		assert_int_equal(sent[0].bytes[GTPU_AT + 8] << 8 | sent[0].bytes[GTPU_AT + 9], sequence);
	}
	// It never answered, so it is used all the same.
	assert_int_equal(later(3 * SECOND), 0);
	assert_int_equal(path()->state, PATH_UNANSWERED);
	assert_int_equal(path()->requests, 5);
	assert_int_equal(path()->failures, 1);
	send_up(100, 2, "100.64.0.2");
	assert_int_equal(sent_to("core"), 1);
}

static void
an_echo_response_counts_only_with_a_pending_sequence_number(void **state)
{
	uint64_t before = dropped("gtpu-echo-unexpected");

	put_peer(false);
	later(0);
	assert_int_equal(later(10 * SECOND), 1);
	answer("192.0.2.2", (uint16_t)(path()->sequence + 1), 0);
	answer("192.0.2.9", path()->sequence, 0);
	assert_int_equal(path()->state, PATH_UNANSWERED);
	assert_int_equal(dropped("gtpu-echo-unexpected"), before + 2);
	answer("192.0.2.2", path()->sequence, 0);
	assert_int_equal(path()->state, PATH_UP);
	assert_int_equal(path()->responses, 1);
	// The same again is to nothing.
	answer("192.0.2.2", path()->sequence, 0);
	assert_int_equal(dropped("gtpu-echo-unexpected"), before + 3);
	assert_int_equal(later(9 * SECOND), 0);
	assert_int_equal(later(SECOND), 1);
	answer("192.0.2.2", path()->sequence, 0);
}

static void
a_path_that_no_longer_answers_is_down_until_it_does_again(void **state)
{
	uint64_t before = dropped("gtpu-path-down");

	assert_int_equal(later(10 * SECOND), 1);
	assert_int_equal(later(SECOND), 1);
	assert_int_equal(later(SECOND), 1);
	send_up(100, 2, "100.64.0.2");
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(later(SECOND), 0);
	assert_int_equal(path()->state, PATH_DOWN);
	send_up(100, 2, "100.64.0.2");
	assert_int_equal(sent_to("core"), 0);
	assert_int_equal(dropped("gtpu-path-down"), before + 1);
	// Packets from there are accepted.
	send_tunnelled(20, "100.64.0.2");
	assert_int_equal(sent_to("access"), 1);
	// It answers, though late, and another time in time.
	answer("192.0.2.2", (uint16_t)(path()->sequence - 1), 0);
	assert_int_equal(path()->state, PATH_DOWN);
	answer("192.0.2.2", path()->sequence, 0);
	assert_int_equal(path()->state, PATH_UP);
	assert_int_equal(later(7 * SECOND), 1);
	answer("192.0.2.2", path()->sequence, 0);
	assert_int_equal(path()->state, PATH_UP);
	send_up(100, 2, "100.64.0.2");
	assert_int_equal(sent_to("core"), 1);
}

static void
a_peer_that_counts_another_start_is_told_of(void **state)
{
	assert_int_equal(path()->restarts, 0);
	assert_int_equal(later(10 * SECOND), 1);
	answer("192.0.2.2", path()->sequence, 7);
	assert_int_equal(path()->restarts, 1);
	assert_int_equal(path()->state, PATH_UP);
}

static void
a_peer_that_is_not_asked_is_never_down(void **state)
{
	put_peer(true);
	assert_int_equal(path()->state, PATH_UNKNOWN);
	assert_int_equal(later(1000 * SECOND), 0);
	assert_int_equal(object_delete("GtpuPeer", "upf", &fault_of_put), 0);
	later(0);
	assert_int_equal(later(60 * SECOND), 1);
}

static void
a_path_is_there_for_its_tunnels(void **state)
{
	struct subscriber second = user;

	second.name = "second";
	second.address4 = "100.64.0.3/32";
	second.inner = 3;
	second.teid = 30;
	assert_int_equal(put_session(&second), 0);
	assert_int_equal(path()->tunnels, 2);
	assert_int_equal(delete_session("user"), 0);
	assert_int_equal(path()->tunnels, 1);
	assert_int_equal(put_session(&second), 0);
	assert_int_equal(path()->tunnels, 1);
	assert_int_equal(delete_session("second"), 0);
	assert_null(path());
}

enum { PEERS = 10000, TURNS_A_SECOND = 10 };

static uint32_t crowd[PEERS];

// Paths to so many peers, all in this moment.
static void
use_crowd(void)
{
	for (unsigned i = 0; i < PEERS; i++) {
		struct gtpu_ends ends = {
			.family = 4, .local = {192, 0, 2, 1}, .remote = {10, 0, (uint8_t)(i >> 8), (uint8_t)i}};

		assert_int_equal(gtpu_path_use(0, &ends, &crowd[i], &fault_of_put), 0);
	}
	gtpu_paths_turn(now);
}

// One turn later; how many requests the crowd was sent in it. There is no way to where these are, so no packet is kept. The loop has no
// part in it: its clock is another.
static unsigned
turn_crowd(void)
{
	uint64_t before = 0, after = 0;

	for (unsigned i = 0; i < PEERS; i++)
		before += gtpu_path_at(crowd[i])->requests;
	now += SECOND / TURNS_A_SECOND;
	gtpu_paths_turn(now);
	walk_workers(2);
	for (unsigned i = 0; i < PEERS; i++)
		after += gtpu_path_at(crowd[i])->requests;
	return (unsigned)(after - before);
}

static void
ten_thousand_peers_of_one_moment_are_asked_evenly_and_each_by_its_own_timers(void **state)
{
	enum { EVEN = PEERS / 60 / TURNS_A_SECOND, TRIES = 5, T3_TURNS = 3 * TURNS_A_SECOND, TURNS = 1400 };
	static uint16_t first[PEERS], asked[PEERS];
	unsigned most = 0;

	use_crowd();
	for (unsigned t = 1; t <= TURNS; t++) {
		most = RTE_MAX(most, turn_crowd());
		for (unsigned i = 0; i < PEERS; i++) {
			const struct gtpu_path *p = gtpu_path_at(crowd[i]);

			if (p->requests == asked[i] || asked[i] == TRIES)
				continue;
			assert_int_equal(p->requests, asked[i] + 1);
			if (asked[i]++ == 0)
				first[i] = (uint16_t)t;
			// T3-RESPONSE between two requests.
			assert_int_equal(t - first[i], (asked[i] - 1) * T3_TURNS);
		}
	}
	// No peer answers, so that each gets N3-REQUESTS requests; the fullest turn has a few more than the average.
	assert_in_range(most, EVEN, TRIES * (EVEN + 4));
	for (unsigned i = 0; i < PEERS; i++) {
		assert_in_range(first[i], 60 * TURNS_A_SECOND, 120 * TURNS_A_SECOND + PEERS / PATHS_A_TURN);
		assert_int_equal(asked[i], TRIES);
		assert_int_equal(gtpu_path_at(crowd[i])->state, PATH_UNANSWERED);
	}
}

static void
due_peers_after_a_standstill_are_asked_in_parts_and_none_is_left_out(void **state)
{
	uint64_t before[PEERS];
	unsigned most = 0;

	for (unsigned i = 0; i < PEERS; i++)
		before[i] = gtpu_path_at(crowd[i])->requests;
	now += 500 * SECOND;
	for (unsigned t = 0; t < 2 * PEERS / PATHS_A_TURN; t++)
		most = RTE_MAX(most, turn_crowd());
	assert_in_range(most, 1, PATHS_A_TURN);
	for (unsigned i = 0; i < PEERS; i++)
		assert_true(gtpu_path_at(crowd[i])->requests > before[i] || gtpu_path_at(crowd[i])->tries == 0);
	for (unsigned t = 0; t < 15 * TURNS_A_SECOND; t++)
		turn_crowd();
	for (unsigned i = 0; i < PEERS; i++) {
		assert_true(gtpu_path_at(crowd[i])->requests > before[i]);
		gtpu_path_unuse(crowd[i]);
	}
	// Nothing is asked of paths that are gone.
	assert_int_equal(later(SECOND), 0);
	assert_null(path());
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_path_is_asked_after_its_interval_and_a_repeated_request_has_the_same_number),
		cmocka_unit_test(an_echo_response_counts_only_with_a_pending_sequence_number),
		cmocka_unit_test(a_path_that_no_longer_answers_is_down_until_it_does_again),
		cmocka_unit_test(a_peer_that_counts_another_start_is_told_of),
		cmocka_unit_test(a_peer_that_is_not_asked_is_never_down),
		cmocka_unit_test(a_path_is_there_for_its_tunnels),
		cmocka_unit_test(ten_thousand_peers_of_one_moment_are_asked_evenly_and_each_by_its_own_timers),
		cmocka_unit_test(due_peers_after_a_standstill_are_asked_in_parts_and_none_is_left_out),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
