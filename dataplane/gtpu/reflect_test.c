// SPDX-License-Identifier: Apache-2.0
// Reflective QoS rules.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <rte_ether.h>

#include "core/cut.h"
#include "gtpu/reflect.h"
#include "inet/header.h"

// 192.0.2.9 port 443 to 100.64.0.7 port 4242, and back.
static const uint8_t down4[24] = {0x45, [9] = 17, [12] = 192, 0, 2, 9, 100, 64, 0, 7, 0x01, 0xbb, 0x10, 0x92};
static const uint8_t up4[24] = {0x45, [9] = 17, [12] = 100, 64, 0, 7, 192, 0, 2, 9, 0x10, 0x92, 0x01, 0xbb};
static const uint8_t down6[44] = {
	0x60, [6] = 6, [8] = 0x20, 1, [23] = 9, [24] = 0x20, 2, [39] = 7, 0x01, 0xbb, 0x10, 0x92};
static const uint8_t up6[44] = {
	0x60, [6] = 6, [8] = 0x20, 2, [23] = 7, [24] = 0x20, 1, [39] = 9, 0x10, 0x92, 0x01, 0xbb};

static int
start(void **state)
{
	return reflect_start();
}

static void
uplink_packets_of_a_flow_find_the_rule_of_its_downlink_packets(void **state)
{
	uint64_t flow = reflect_flow(3, down4, sizeof(down4), true);

	assert_true(flow == reflect_flow(3, up4, sizeof(up4), false));
	assert_true(reflect_flow(3, down6, sizeof(down6), true) == reflect_flow(3, up6, sizeof(up6), false));
	assert_int_equal(reflect_find(flow, 1000), REFLECT_NONE);
	reflect_learn(flow, 9, 1000);
	assert_int_equal(reflect_find(flow, 1000), 9);
	reflect_learn(flow, 63, 1001);
	assert_int_equal(reflect_find(flow, 1001), 63);
}

static void
other_flows_and_other_sessions_find_nothing(void **state)
{
	uint8_t other[24];

	reflect_learn(reflect_flow(5, down4, sizeof(down4), true), 9, 1000);
	assert_int_equal(reflect_find(reflect_flow(6, up4, sizeof(up4), false), 1000), REFLECT_NONE);
	assert_int_equal(reflect_find(reflect_flow(5, down4, sizeof(down4), false), 1000), REFLECT_NONE);
	for (size_t i = 9; i < sizeof(up4); i++) {
		if (i == 10 || i == 11)
			continue; // the checksum is not part of the flow
		memcpy(other, up4, sizeof(other));
		other[i] ^= 6;
		assert_int_equal(reflect_find(reflect_flow(5, other, sizeof(other), false), 1000), REFLECT_NONE);
	}
}

static void
a_rule_ends_with_its_timer_unless_it_is_made_again(void **state)
{
	uint64_t flow = reflect_flow(7, down4, sizeof(down4), true);

	reflect_learn(flow, 5, 1000);
	assert_int_equal(reflect_find(flow, 1000 + REFLECT_SECONDS), 5);
	assert_int_equal(reflect_find(flow, 1001 + REFLECT_SECONDS), REFLECT_NONE);
	reflect_learn(flow, 5, 1001 + REFLECT_SECONDS);
	assert_int_equal(reflect_find(flow, 1001 + 2 * REFLECT_SECONDS), 5);
}

// Its age is counted modulo 2^18 seconds.
static void
a_rule_that_has_ended_does_not_come_back(void **state)
{
	enum { AROUND = 1 << 18, LATER = 1000 + REFLECT_SECONDS };
	uint64_t ended = reflect_flow(10, down4, sizeof(down4), true), fresh = ended ^ 1ull << 40,
		 ahead = ended ^ 1ull << 41;

	reflect_learn(ended, 5, 1000);
	for (unsigned i = 0; i < REFLECT_SWEEPS; i++)
		reflect_sweep(LATER);
	assert_int_equal(reflect_find(ended, LATER), 5);
	reflect_learn(fresh, 6, LATER);
	// Another worker's second began sooner.
	reflect_learn(ahead, 7, LATER + 2);
	for (unsigned i = 0; i < REFLECT_SWEEPS; i++)
		reflect_sweep(LATER + 1);
	for (unsigned i = 0; i <= REFLECT_SECONDS; i++)
		assert_int_equal(reflect_find(ended, 1000 + AROUND + i), REFLECT_NONE);
	assert_int_equal(reflect_find(fresh, LATER + 2), 6);
	assert_int_equal(reflect_find(ahead, LATER + 2), 7);
}

static void
more_flows_than_there_is_room_for_push_out_the_oldest(void **state)
{
	uint64_t flow = reflect_flow(8, down4, sizeof(down4), true);

	reflect_learn(flow, 5, 1000);
	// The same set, other tags.
	for (uint64_t i = 1; i <= 8; i++)
		reflect_learn(flow ^ i << 40, (uint8_t)i, (uint32_t)(1000 + i));
	assert_int_equal(reflect_find(flow, 1010), REFLECT_NONE);
	for (uint64_t i = 1; i <= 8; i++)
		assert_int_equal(reflect_find(flow ^ i << 40, 1010), i);
}

static void
fragments_and_truncations_are_told_without_ports_or_not_at_all(void **state)
{
	uint8_t fragment[24];

	for (size_t length = 0; length <= sizeof(up4); length++) {
		uint8_t *bytes = cut(up4, length);

		assert_int_equal(reflect_flow(9, bytes, length, false) == 0, length < 20);
		free(bytes);
	}
	for (size_t length = 0; length <= sizeof(up6); length++) {
		uint8_t *bytes = cut(up6, length);

		assert_int_equal(reflect_flow(9, bytes, length, false) == 0, length < 40);
		free(bytes);
	}
	memcpy(fragment, up4, sizeof(fragment));
	fragment[6] = 0x20;
	assert_true(reflect_flow(9, fragment, sizeof(fragment), false) == reflect_flow(9, fragment, 20, false));
}

// Its SPI is no port: it is not another one the other way.
static void
esp_is_told_by_its_spi_and_makes_no_rule_without(void **state)
{
	uint8_t down[24], up[24], down_six[44], up_six[44], fragment[24];
	uint64_t flow;

	memcpy(down, down4, sizeof(down));
	memcpy(up, up4, sizeof(up));
	memcpy(down_six, down6, sizeof(down_six));
	memcpy(up_six, up6, sizeof(up_six));
	down[9] = up[9] = down_six[6] = up_six[6] = PROTOCOL_ESP;
	assert_true(reflect_flow(3, down, 24, true) != reflect_flow(3, up, 24, false));
	memcpy(up + 20, down + 20, 4);
	memcpy(up_six + 40, down_six + 40, 4);
	flow = reflect_flow(3, down, 24, true);
	assert_true(flow != 0 && flow == reflect_flow(3, up, 24, false));
	assert_true(flow != reflect_flow(3, down4, 24, true));
	flow = reflect_flow(3, down_six, 44, true);
	assert_true(flow != 0 && flow == reflect_flow(3, up_six, 44, false));
	for (unsigned i = 20; i < 24; i++) {
		up[i] ^= 1;
		assert_true(reflect_flow(3, down, 24, true) != reflect_flow(3, up, 24, false));
		up[i] ^= 1;
	}
	// It would be a rule for all associations of two hosts.
	for (size_t length = 0; length < 24; length++)
		assert_true(reflect_flow(3, down, length, true) == 0);
	for (size_t length = 0; length < 44; length++)
		assert_true(reflect_flow(3, down_six, length, true) == 0);
	memcpy(fragment, down, sizeof(fragment));
	fragment[6] = 0x20;
	assert_true(reflect_flow(3, fragment, 24, true) == 0);
	fragment[6] = 0;
	fragment[7] = 5;
	assert_true(reflect_flow(3, fragment, 24, true) == 0);
}

// ---- Frames.

enum { FRAME_MAX = 14 + 3 * 4 + 44 };

static const struct {
	const char *bytes;
	unsigned count;
} tagged[] = {
	{"", 0},
	{"\x81\0\x20\7", 1},
	{"\x88\xa8\x90\11", 1},
	{"\x88\xa8\0\11\x81\0\x30\7", 2},
	{"\x91\0\0\11\x81\0\x30\7", 2},
	{"\x81\0\0\7\x81\0\0\10", 2},
	{"\x88\xa8\0\11\x81\0\0\7\x81\0\0\10", 3},
};
// From these on, the tags are more than one of a kind.
enum { OPAQUE = 5 };

// Between ...:07 of the subscriber's and ...:09.
static size_t
write_frame(uint8_t *frame, bool downlink, unsigned tags, uint16_t type, const uint8_t *payload, size_t length)
{
	uint8_t *at = frame + 12;

	memcpy(frame, downlink ? "\2\0\0\0\0\7\2\0\0\0\0\11" : "\2\0\0\0\0\11\2\0\0\0\0\7", 12);
	memcpy(at, tagged[tags].bytes, (size_t)4 * tagged[tags].count);
	at += 4 * tagged[tags].count;
	at[0] = (uint8_t)(type >> 8);
	at[1] = (uint8_t)type;
	memcpy(at + 2, payload, length);
	return (size_t)(at + 2 + length - frame);
}

struct carried {
	uint16_t type;
	const uint8_t *down, *up;
	size_t length;
	size_t least; // of its bytes, for there to be a rule
};

static const uint8_t others[2][20] = {{1, 2, 3}, {4, 5, 6}};

static const struct carried carried[] = {
	{RTE_ETHER_TYPE_IPV4, down4, up4, sizeof(down4), 20}, {RTE_ETHER_TYPE_IPV6, down6, up6, sizeof(down6), 40},
	{RTE_ETHER_TYPE_ARP, others[0], others[1], sizeof(others[0]), 0},
	{20, others[0], others[1], sizeof(others[0]), 0}, // LLC
};

static void
uplink_frames_of_a_flow_find_the_rule_of_its_downlink_frames(void **state)
{
	uint8_t down[FRAME_MAX], up[FRAME_MAX];
	uint64_t flows[RTE_DIM(carried) * RTE_DIM(tagged)];
	unsigned count = 0;

	for (unsigned i = 0; i < RTE_DIM(carried); i++)
		for (unsigned tags = 0; tags < RTE_DIM(tagged); tags++) {
			const struct carried *c = &carried[i];
			size_t length = write_frame(down, true, tags, c->type, c->down, c->length);
			uint64_t flow = reflect_frame(3, down, length, true);

			write_frame(up, false, tags, c->type, c->up, c->length);
			assert_true(flow != 0 && flow == reflect_frame(3, up, length, false));
			assert_true(flow != reflect_frame(4, down, length, true));
			assert_true(flow != reflect_frame(3, down, length, false));
			assert_true(flow != reflect_flow(3, c->down, c->length, true));
			reflect_learn(flow, (uint8_t)(9 + tags), 1000);
			assert_int_equal(reflect_find(reflect_frame(3, up, length, false), 1000), 9 + tags);
			flows[count++] = flow;
		}
	// 0x9100 is an S-TAG like 0x88a8, and bytes behind a second tag of one kind are ignored.
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < i; j++) {
			unsigned a = j % RTE_DIM(tagged), b = i % RTE_DIM(tagged);
			bool same_frame = i / RTE_DIM(tagged) == j / RTE_DIM(tagged) && a == 3 && b == 4;
			bool not_looked_at = a == b && a >= OPAQUE;

			assert_true((flows[i] == flows[j]) == (same_frame || not_looked_at));
		}
}

static void
frames_that_differ_in_a_field_of_the_filter_are_of_other_flows(void **state)
{
	uint8_t down[FRAME_MAX], up[FRAME_MAX];
	size_t length = write_frame(down, true, 3, RTE_ETHER_TYPE_IPV4, down4, sizeof(down4)), ip = 14 + 8;
	uint64_t flow = reflect_frame(5, down, length, true);

	write_frame(up, false, 3, RTE_ETHER_TYPE_IPV4, up4, sizeof(up4));
	for (size_t i = 0; i < length; i++) {
		bool says = i < ip || i == ip + 9 || i >= ip + 12;

		// Other fields of an IP header are not part of the flow; its length and the fragment's place are.
		if (i == ip || i == ip + 6 || i == ip + 7)
			continue;
		up[i] ^= 4;
		assert_true((flow != reflect_frame(5, up, length, false)) == says);
		up[i] ^= 4;
	}
	for (unsigned tci = 0; tci < 16; tci++) {
		up[14 + 4] ^= (uint8_t)(tci << 4);
		assert_true((flow == reflect_frame(5, up, length, false)) == (tci == 0));
		up[14 + 4] ^= (uint8_t)(tci << 4);
	}
}

// An address without a sender.
static void
frames_to_a_group_make_no_rule(void **state)
{
	uint8_t frame[FRAME_MAX];
	size_t length = write_frame(frame, true, 0, RTE_ETHER_TYPE_ARP, others[0], sizeof(others[0]));

	frame[0] |= 1;
	assert_true(reflect_frame(3, frame, length, true) == 0);
	// To a group an uplink frame may be.
	assert_true(reflect_frame(3, frame, length, false) != 0);
}

// In memory that ends where the frame does.
static void
a_cut_frame_has_the_flow_of_the_rest_or_none(void **state)
{
	uint8_t frame[FRAME_MAX];

	for (unsigned i = 0; i < RTE_DIM(carried); i++)
		for (unsigned tags = 0; tags < RTE_DIM(tagged); tags++) {
			const struct carried *c = &carried[i];
			size_t length = write_frame(frame, true, tags, c->type, c->down, c->length),
			       header = length - c->length;
			bool opaque = tags >= OPAQUE;

			for (size_t left = 0; left <= length; left++) {
				uint8_t *exact = cut(frame, left);
				bool told = left >= RTE_ETHER_HDR_LEN &&
					    (left < header || opaque || left >= header + c->least);

				assert_int_equal(reflect_frame(9, exact, left, true) != 0, told);
				assert_int_equal(reflect_frame(9, exact, left, false) != 0, told);
				free(exact);
			}
		}
}

static void
a_frame_whose_type_does_not_match_its_packet_makes_no_rule(void **state)
{
	uint8_t frame[FRAME_MAX];

	for (unsigned version = 0; version < 16; version++) {
		size_t length = write_frame(frame, true, 0, RTE_ETHER_TYPE_IPV4, down4, sizeof(down4));

		frame[14] = (uint8_t)(version << 4 | 5);
		assert_int_equal(reflect_frame(3, frame, length, true) != 0, version == 4);
		length = write_frame(frame, true, 0, RTE_ETHER_TYPE_IPV6, down6, sizeof(down6));
		frame[14] = (uint8_t)(version << 4);
		assert_int_equal(reflect_frame(3, frame, length, true) != 0, version == 6);
	}
}

static void
esp_in_a_frame_is_told_by_its_spi(void **state)
{
	uint8_t frame[FRAME_MAX];
	size_t length = write_frame(frame, true, 1, RTE_ETHER_TYPE_IPV4, down4, sizeof(down4));
	uint64_t flow;

	frame[14 + 4 + 9] = PROTOCOL_ESP;
	flow = reflect_frame(3, frame, length, true);
	frame[length - 1] ^= 1;
	assert_true(flow != 0 && flow != reflect_frame(3, frame, length, true));
	assert_true(reflect_frame(3, frame, length - 1, true) == 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uplink_packets_of_a_flow_find_the_rule_of_its_downlink_packets),
		cmocka_unit_test(other_flows_and_other_sessions_find_nothing),
		cmocka_unit_test(a_rule_ends_with_its_timer_unless_it_is_made_again),
		cmocka_unit_test(a_rule_that_has_ended_does_not_come_back),
		cmocka_unit_test(more_flows_than_there_is_room_for_push_out_the_oldest),
		cmocka_unit_test(fragments_and_truncations_are_told_without_ports_or_not_at_all),
		cmocka_unit_test(esp_is_told_by_its_spi_and_makes_no_rule_without),
		cmocka_unit_test(uplink_frames_of_a_flow_find_the_rule_of_its_downlink_frames),
		cmocka_unit_test(frames_that_differ_in_a_field_of_the_filter_are_of_other_flows),
		cmocka_unit_test(frames_to_a_group_make_no_rule),
		cmocka_unit_test(a_cut_frame_has_the_flow_of_the_rest_or_none),
		cmocka_unit_test(a_frame_whose_type_does_not_match_its_packet_makes_no_rule),
		cmocka_unit_test(esp_in_a_frame_is_told_by_its_spi),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
