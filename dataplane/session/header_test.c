// SPDX-License-Identifier: Apache-2.0
// Headers of frames to subscribers, byte by byte.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "session/header.h"

static const struct session_header qinq = {
	.destination = {{2, 0, 0, 0, 0, 1}},
	.source = {{2, 0, 0, 0, 0, 2}},
	.outer_tpid = RTE_BE16(0x88a8),
	.inner_tpid = RTE_BE16(0x8100),
	.outer_vlan = 100,
	.inner_vlan = 7,
	.behind = {0x08, 0x06},
	.behind_length = 2,
};

static void
the_header_is_at_the_end_of_its_room(void **state)
{
	static const uint8_t untagged[14] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x06};
	static const uint8_t tagged[18] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xa8, 0, 100, 0x08, 0x06};
	static const uint8_t twice[22] = {
		2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xa8, 0, 100, 0x81, 0x00, 0, 7, 0x08, 0x06};
	struct session_header header = qinq;
	uint8_t room[SESSION_HEADER_ROOM];

	assert_int_equal(session_header_write(&header, room), sizeof(twice));
	assert_memory_equal(room + SESSION_HEADER_ROOM - sizeof(twice), twice, sizeof(twice));
	header.inner_vlan = 0;
	assert_int_equal(session_header_write(&header, room), sizeof(tagged));
	assert_memory_equal(room + SESSION_HEADER_ROOM - sizeof(tagged), tagged, sizeof(tagged));
	header.outer_vlan = 0;
	assert_int_equal(session_header_write(&header, room), sizeof(untagged));
	assert_memory_equal(room + SESSION_HEADER_ROOM - sizeof(untagged), untagged, sizeof(untagged));
}

static void
an_access_s_header_follows_the_tags(void **state)
{
	static const uint8_t expected[30] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xa8, 0, 100, 0x81, 0x00, 0, 7,
		0x88, 0x64, 0x11, 0x00, 0x12, 0x34, 0, 0, 0, 0};
	struct session_header header = qinq;
	uint8_t room[SESSION_HEADER_ROOM];

	memcpy(header.behind, expected + 20, SESSION_BEHIND_TAGS);
	header.behind_length = SESSION_BEHIND_TAGS;
	assert_int_equal(session_header_write(&header, room), SESSION_HEADER_MAX);
	assert_memory_equal(room + SESSION_HEADER_ROOM - sizeof(expected), expected, sizeof(expected));
}

static void
addresses_change_without_touching_neighbouring_bytes(void **state)
{
	static const uint8_t subscriber[6] = {2, 0xaa, 0xbb, 0xcc, 0xdd, 0xee},
			     port[6] = {2, 0x11, 0x22, 0x33, 0x44, 0x55};
	struct session_header header = qinq;
	uint8_t changed[SESSION_HEADER_ROOM], expected[SESSION_HEADER_ROOM];

	for (unsigned tags = 0; tags <= 2; tags++)
		for (unsigned pppoe = 0; pppoe <= 1; pppoe++) {
			unsigned length;

			header = qinq;
			header.outer_vlan = tags > 0 ? 100 : 0;
			header.inner_vlan = tags > 1 ? 7 : 0;
			header.behind_length = pppoe ? SESSION_BEHIND_TAGS : 2;
			length = session_header_write(&header, changed);
			session_header_destination(changed, length, subscriber);
			session_header_source(changed, length, port);
			memcpy(&header.destination, subscriber, 6);
			memcpy(&header.source, port, 6);
			session_header_write(&header, expected);
			assert_memory_equal(changed, expected, sizeof(expected));
		}
}

static void
every_pair_of_tpids_comes_back_as_it_came_in(void **state)
{
	static const uint16_t tpids[] = {RTE_BE16(0x8100), RTE_BE16(0x88a8), RTE_BE16(0x9100)};
	struct session_header header = qinq;
	uint8_t changed[SESSION_HEADER_ROOM], expected[SESSION_HEADER_ROOM];

	for (unsigned o = 0; o < 3; o++)
		for (unsigned i = 0; i < 3; i++) {
			unsigned length = session_header_write(&qinq, changed);

			session_header_tpids(changed, 2, length, session_tpids(tpids[o], tpids[i]));
			header.outer_tpid = tpids[o];
			header.inner_tpid = tpids[i];
			session_header_write(&header, expected);
			assert_memory_equal(changed, expected, sizeof(expected));
		}
}

static void
seen_values_differ_for_any_two_macs_or_tpids(void **state)
{
	static const uint16_t tpids[] = {0, RTE_BE16(0x8100), RTE_BE16(0x88a8), RTE_BE16(0x9100)};
	static const uint8_t macs[][8] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 1, 0xff, 0xff}};
	uint64_t seen[16];

	for (unsigned o = 0; o < 4; o++)
		for (unsigned i = 0; i < 4; i++) {
			seen[o * 4 + i] = session_seen(macs[0], tpids[o], tpids[i]);
			assert_true(seen[o * 4 + i] != session_seen(macs[1], tpids[o], tpids[i]));
			assert_true(seen[o * 4 + i] == session_seen(macs[2], tpids[o], tpids[i]));
			for (unsigned j = 0; j < o * 4 + i; j++)
				assert_true(seen[j] != seen[o * 4 + i]);
		}
}

static void
a_prefix_in_the_record_has_exactly_its_addresses(void **state)
{
	struct session s = {
		.source4 = RTE_BE32(0x64400000), .mask4 = RTE_BE32(0xffffff00), .source6 = {0x20, 1, 0xd, 0xb8}};
	uint8_t address[16] = {0x20, 1, 0xd, 0xb8};

	assert_true(session_first4(&s, RTE_BE32(0x644000ff)));
	assert_false(session_first4(&s, RTE_BE32(0x64400100)));
	for (unsigned length = 0; length <= 128; length++) {
		s.length6 = (uint8_t)length;
		for (unsigned bit = 0; bit < 128; bit++) {
			address[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
			assert_int_equal(session_first6(&s, address), bit >= length);
			address[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
		}
		assert_true(session_first6(&s, address));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_header_is_at_the_end_of_its_room),
		cmocka_unit_test(an_access_s_header_follows_the_tags),
		cmocka_unit_test(addresses_change_without_touching_neighbouring_bytes),
		cmocka_unit_test(every_pair_of_tpids_comes_back_as_it_came_in),
		cmocka_unit_test(seen_values_differ_for_any_two_macs_or_tpids),
		cmocka_unit_test(a_prefix_in_the_record_has_exactly_its_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
