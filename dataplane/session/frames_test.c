// SPDX-License-Identifier: Apache-2.0
// Sessions of type Ethernet: frames go into the tunnel and come out of it as they are, but for the tags of their access.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "session/all_sessions.h"

enum { INNER_AT = 14 + 20 + UDP + 16, BODY = 50, ADDRESSES = 12 };

static const struct subscriber
	pair = {.name = "pair", .outer = 100, .inner = 1, .teid = 20, .ethernet = true},
	single = {.name = "single", .outer = 200, .teid = 30, .ethernet = true},
	bare = {.name = "bare", .teid = 40, .ethernet = true},
	by_mac = {.name = "by-mac", .mac = "02:01:00:00:00:77", .outer = 300, .teid = 50, .ethernet = true},
	routed = {.name = "routed", .address4 = "100.64.0.1/32", .outer = 100, .inner = 2, .teid = 60};

static int
start(void **state)
{
	return all_sessions_start(1) || put_session(&pair) || put_session(&single) || put_session(&by_mac) ||
	       put_session(&routed);
}

// A frame between others' addresses: these tags, a type and something. Its length.
static size_t
write_frame(uint8_t *frame, const uint16_t *vlans, unsigned tags, uint16_t type, uint8_t source)
{
	const uint8_t addresses[ADDRESSES] = {2, 9, 9, 9, 9, 9, 2, 1, 0, 0, 0, source};
	uint8_t *at = frame + ADDRESSES;

	memcpy(frame, addresses, sizeof(addresses));
	for (unsigned i = 0; i < tags; i++)
		at = write_word(write_word(at, i == 0 ? 0x88a8 : 0x8100), vlans[i]);
	at = write_word(at, type);
	memset(at, 0x45, BODY);
	return (size_t)(at + BODY - frame);
}

// The frame in the tunnel with this TEID is the sent one without its first `tags` tags.
static void
assert_tunnelled(const uint8_t *frame, size_t length, unsigned tags, uint32_t teid)
{
	const uint8_t *inner = sent[0].bytes + INNER_AT;

	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(sent[0].bytes[INNER_AT - 10] << 8 | sent[0].bytes[INNER_AT - 9], teid);
	assert_int_equal(sent[0].length, INNER_AT + length - 4 * tags);
	assert_memory_equal(inner, frame, ADDRESSES);
	assert_memory_equal(inner + ADDRESSES, frame + ADDRESSES + 4 * tags, length - ADDRESSES - 4 * tags);
}

static void
send_frame(const uint8_t *frame, size_t length)
{
	sent_count = 0;
	receive("access", frame, length);
}

static void
every_frame_of_the_access_goes_into_the_tunnel_without_the_tags_of_the_access_alone(void **state)
{
	static const uint16_t types[] = {0x0800, 0x86dd, 0x0806, 0x8863, 0x8864, 0x88cc, 0x9000};
	const uint16_t vlans[] = {100, 1, 7}, on_single[] = {200, 44, 45};
	uint8_t frame[256];
	size_t length;

	for (unsigned i = 0; i < RTE_DIM(types); i++) {
		length = write_frame(frame, vlans, 2, types[i], 5);
		send_frame(frame, length);
		assert_tunnelled(frame, length, 2, 21);
		// To a group, to broadcast, and to us.
		memcpy(frame, "\x01\x80\xc2\0\0\0", 6);
		send_frame(frame, length);
		assert_tunnelled(frame, length, 2, 21);
		memset(frame, 0xff, 6);
		send_frame(frame, length);
		assert_tunnelled(frame, length, 2, 21);
	}
	length = write_frame(frame, vlans, 2, 0x0800, 5);
	memcpy(frame, "\2\0\0\0\0\1", 6);
	send_frame(frame, length);
	assert_tunnelled(frame, length, 2, 21);
	// With tags of the subscriber's own.
	length = write_frame(frame, vlans, 3, 0x0800, 5);
	send_frame(frame, length);
	assert_tunnelled(frame, length, 2, 21);
	for (unsigned tags = 1; tags <= 3; tags++) {
		length = write_frame(frame, on_single, tags, 0x0800, 5);
		send_frame(frame, length);
		assert_tunnelled(frame, length, 1, 31);
	}
}

static void
a_frame_of_another_circuit_or_another_mac_is_not_the_session_s(void **state)
{
	const uint16_t other[] = {100, 3}, shared[] = {300};
	uint8_t frame[256];
	size_t length = write_frame(frame, other, 2, 0x0806, 5);

	send_frame(frame, length);
	assert_int_equal(sent_count, 0);
	length = write_frame(frame, shared, 1, 0x0806, 0x77);
	send_frame(frame, length);
	assert_tunnelled(frame, length, 1, 51);
	length = write_frame(frame, shared, 1, 0x0806, 0x78);
	send_frame(frame, length);
	assert_int_equal(sent_count, 0);
	send_up(100, 2, "100.64.0.1");
	assert_int_equal(sent_to("core"), 1);
}

// A frame in a tunnel, as its UPF sends it.
static void
send_down_frame(uint32_t teid, const uint8_t *frame, size_t length)
{
	enum { GTPU = 8 };
	uint8_t outer[2048], *at = write_core(outer, 0x0800);

	at = write_udp(write_ip4(at, "192.0.2.2", "192.0.2.1", (unsigned)(UDP + GTPU + length)), 40000, 2152,
		(unsigned)(GTPU + length));
	at = write_word(write_word(at, 0x30ff), (uint16_t)length);
	at = write_word(write_word(at, (uint16_t)(teid >> 16)), (uint16_t)teid);
	memcpy(at, frame, length);
	sent_count = 0;
	receive("core", outer, (size_t)(at + length - outer));
}

static void
a_frame_out_of_the_tunnel_gets_the_tags_of_the_access_with_the_tpids_that_came_last(void **state)
{
	const uint16_t vlans[] = {100, 1}, own[] = {9};
	uint8_t up[256], frame[256];
	size_t length = write_frame(up, vlans, 2, 0x0800, 5);

	send_frame(up, length);
	for (unsigned tags = 0; tags <= 1; tags++) {
		length = write_frame(frame, own, tags, 0x0806, 6);
		send_down_frame(20, frame, length);
		assert_int_equal(sent_to("access"), 1);
		assert_int_equal(sent[0].length, length + 8);
		assert_memory_equal(sent[0].bytes, frame, ADDRESSES);
		assert_memory_equal(sent[0].bytes + ADDRESSES, "\x88\xa8\0\x64\x81\0\0\1", 8);
		assert_memory_equal(sent[0].bytes + ADDRESSES + 8, frame + ADDRESSES, length - ADDRESSES);
	}
}

static void
malformed_and_oversized_frames_are_named_drops(void **state)
{
	uint64_t shorter = dropped("gtpu-inner-not-ethernet"), larger = dropped("session-frame-too-large");
	uint8_t frame[1600] = {2, 9, 9, 9, 9, 9, 2, 1, 0, 0, 0, 6, 8, 0};

	send_down_frame(20, frame, 13);
	assert_int_equal(dropped("gtpu-inner-not-ethernet"), shorter + 1);
	send_down_frame(20, frame, 14 + 1500);
	assert_int_equal(sent_to("access"), 1);
	send_down_frame(20, frame, 14 + 1501);
	assert_int_equal(dropped("session-frame-too-large"), larger + 1);
	// A tag of the subscriber's own does not count.
	memcpy(frame + ADDRESSES, "\x81\0\0\5", 4);
	send_down_frame(20, frame, 14 + 1504);
	assert_int_equal(sent_to("access"), 1);
}

static void
assert_refused(struct subscriber s, int error, const char *words)
{
	assert_int_equal(put_session(&s), -error);
	if (!strstr(fault_of_put.text, words))
		fail_msg("\"%s\" does not say %s", fault_of_put.text, words);
}

static void
invalid_sessions_of_frames_are_refused(void **state)
{
	struct subscriber s = single;

	s.name = "wrong";
	s.teid = 90;
	assert_refused(s, EEXIST, "access: Session \"single\" has these VLANs");
	s.inner = 9;
	s.address4 = "100.64.0.9/32";
	assert_refused(s, EINVAL, "addresses: a session of type Ethernet");
	s.address4 = NULL;
	s.pppoe = 5;
	assert_refused(s, EINVAL, "access.pppoeSessionId: a session of type Ethernet");
	s.pppoe = 0;
	s = single;
	s.ethernet = false;
	assert_refused(s, EINVAL, "gtpu.ethernet: cannot change");
}

static void
sessions_come_and_go_and_leave_nothing(void **state)
{
	const uint16_t vlans[] = {100, 1};
	struct subscriber beside = {
		.name = "beside", .mac = "02:01:00:00:00:09", .address4 = "100.64.0.7/32", .outer = 400};
	struct subscriber rest = {.name = "rest", .outer = 400, .teid = 70, .ethernet = true};
	uint8_t frame[256];
	size_t length;

	// The whole port, with any tags, except for circuits of other sessions.
	assert_int_equal(put_session(&bare), 0);
	length = write_frame(frame, (const uint16_t[]){500, 5}, 2, 0x0806, 5);
	send_frame(frame, length);
	assert_tunnelled(frame, length, 0, 41);
	send_up(100, 2, "100.64.0.1");
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(sent[0].bytes[INNER_AT], 0x45);
	assert_int_equal(delete_session("bare"), 0);
	send_frame(frame, length);
	assert_int_equal(sent_count, 0);
	// Beside a session with a MAC, in either order.
	for (unsigned order = 0; order < 2; order++) {
		assert_int_equal(put_session(order ? &rest : &beside), 0);
		assert_int_equal(put_session(order ? &beside : &rest), 0);
		length = write_frame(frame, (const uint16_t[]){400}, 1, 0x0806, 5);
		send_frame(frame, length);
		assert_tunnelled(frame, length, 1, 71);
		assert_int_equal(delete_session("beside"), 0);
		send_frame(frame, length);
		assert_tunnelled(frame, length, 1, 71);
		assert_int_equal(delete_session("rest"), 0);
		send_frame(frame, length);
		assert_int_equal(sent_count, 0);
	}
	assert_int_equal(delete_session("pair"), 0);
	length = write_frame(frame, vlans, 2, 0x0806, 5);
	send_frame(frame, length);
	assert_int_equal(sent_count, 0);
	send_down_frame(20, frame, length);
	assert_int_equal(sent_to("access"), 0);
	assert_int_equal(put_session(&pair), 0);
	send_frame(frame, length);
	assert_tunnelled(frame, length, 2, 21);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_frame_of_the_access_goes_into_the_tunnel_without_the_tags_of_the_access_alone),
		cmocka_unit_test(a_frame_of_another_circuit_or_another_mac_is_not_the_session_s),
		cmocka_unit_test(a_frame_out_of_the_tunnel_gets_the_tags_of_the_access_with_the_tpids_that_came_last),
		cmocka_unit_test(malformed_and_oversized_frames_are_named_drops),
		cmocka_unit_test(invalid_sessions_of_frames_are_refused),
		cmocka_unit_test(sessions_come_and_go_and_leave_nothing),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
