// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <rte_common.h>

#include "fib/spread.h"
#include "inet/header.h"

static void
count_slots(const uint8_t *owners, unsigned slots, unsigned *counts, unsigned members)
{
	memset(counts, 0, members * sizeof(counts[0]));
	for (unsigned i = 0; i < slots; i++) {
		assert_true(owners[i] < members);
		counts[owners[i]]++;
	}
}

static void
slots_are_given_by_weight(void **state)
{
	static const uint8_t weights[][8] = {{1, 1}, {3, 1}, {1, 1, 1}, {255, 1}, {10, 20, 30, 40}, {7, 0, 7}, {5}};

	for (unsigned i = 0; i < RTE_DIM(weights); i++) {
		uint8_t owners[1 << SPREAD_BITS_MAX];
		unsigned bits = spread_bits(weights[i], 8), slots = 1u << bits, counts[8], sum = 0;

		memset(owners, SPREAD_NOBODY, sizeof(owners));
		spread_assign(owners, NULL, slots, weights[i], 8);
		count_slots(owners, slots, counts, 8);
		for (unsigned k = 0; k < 8; k++)
			sum += weights[i][k];
		for (unsigned k = 0; k < 8; k++) {
			double share = (double)slots * weights[i][k] / sum;

			assert_true(counts[k] >= share - 1.0 && counts[k] <= share + 1.0);
			assert_int_equal(counts[k] > 0, weights[i][k] > 0);
		}
	}
}

static void
sixty_four_next_hops_of_any_weights_all_get_a_slot(void **state)
{
	uint8_t weights[64], owners[1 << SPREAD_BITS_MAX];
	unsigned counts[64], slots;

	for (unsigned i = 0; i < 64; i++)
		weights[i] = i % 2 ? 255 : 1;
	slots = 1u << spread_bits(weights, 64);
	memset(owners, SPREAD_NOBODY, sizeof(owners));
	spread_assign(owners, NULL, slots, weights, 64);
	count_slots(owners, slots, counts, 64);
	for (unsigned i = 0; i < 64; i++)
		assert_true(counts[i] > 0);
}

static void
only_the_slots_of_a_next_hop_that_goes_change_hands(void **state)
{
	uint8_t weights[4] = {1, 2, 3, 4}, owners[256], before[256];
	unsigned counts[4];

	memset(owners, SPREAD_NOBODY, sizeof(owners));
	spread_assign(owners, NULL, 256, weights, 4);
	memcpy(before, owners, sizeof(owners));
	weights[2] = 0;
	spread_assign(owners, NULL, 256, weights, 4);
	count_slots(owners, 256, counts, 4);
	assert_int_equal(counts[2], 0);
	for (unsigned i = 0; i < 256; i++)
		if (before[i] != 2)
			assert_int_equal(owners[i], before[i]);
}

static void
a_next_hop_that_comes_back_takes_no_more_than_its_share(void **state)
{
	uint8_t weights[4] = {1, 1, 0, 1}, owners[256], before[256];
	unsigned counts[4], moved = 0;

	memset(owners, SPREAD_NOBODY, sizeof(owners));
	spread_assign(owners, NULL, 256, weights, 4);
	memcpy(before, owners, sizeof(owners));
	weights[2] = 1;
	spread_assign(owners, NULL, 256, weights, 4);
	count_slots(owners, 256, counts, 4);
	for (unsigned i = 0; i < 256; i++) {
		moved += owners[i] != before[i];
		if (owners[i] != before[i])
			assert_int_equal(owners[i], 2);
	}
	assert_int_equal(moved, counts[2]);
	assert_int_equal(counts[2], 64);
}

static void
a_next_hop_that_comes_back_gets_the_slots_it_had(void **state)
{
	static const uint8_t all[4] = {3, 1, 2, 2};
	uint8_t homes[256], owners[256];
	unsigned counts[4];

	memset(homes, SPREAD_NOBODY, sizeof(homes));
	spread_assign(homes, NULL, 256, all, 4);
	memcpy(owners, homes, sizeof(owners));
	// Any of them, and any two, go and come back one after the other.
	for (unsigned gone = 1; gone < 15; gone++) {
		uint8_t weights[4];

		for (unsigned i = 0; i < 4; i++)
			weights[i] = gone & 1u << i ? 0 : all[i];
		spread_assign(owners, homes, 256, weights, 4);
		count_slots(owners, 256, counts, 4);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(counts[i] > 0, weights[i] > 0);
		for (unsigned i = 0; i < 256; i++)
			if (weights[homes[i]] > 0)
				assert_int_equal(owners[i], homes[i]);
	}
	spread_assign(owners, homes, 256, all, 4);
	assert_memory_equal(owners, homes, sizeof(owners));
}

struct packet4 {
	struct ip4_header ip;
	uint8_t payload[24];
};

static struct packet4
udp4(void)
{
	struct packet4 p = {.ip = {.version_ihl = 0x45,
				    .protocol = PROTOCOL_UDP,
				    .source = rte_cpu_to_be_32(0xc0000201),
				    .destination = rte_cpu_to_be_32(0xc6336401)},
		.payload = {0x30, 0x39, 0x00, 0x35}};

	return p;
}

static void
packets_of_one_flow_have_one_hash(void **state)
{
	struct packet4 a = udp4(), b = udp4();

	b.ip.ttl = 3;
	b.ip.id = 99;
	b.payload[9] = 7;
	assert_int_equal(flow_hash4((uint8_t *)&a, sizeof(a)), flow_hash4((uint8_t *)&b, sizeof(b)));
	b.payload[1]++;
	assert_int_not_equal(flow_hash4((uint8_t *)&a, sizeof(a)), flow_hash4((uint8_t *)&b, sizeof(b)));
}

static void
all_fragments_of_a_datagram_have_one_hash(void **state)
{
	struct packet4 first = udp4(), later = udp4();

	first.ip.fragment = rte_cpu_to_be_16(IP4_MF);
	later.ip.fragment = rte_cpu_to_be_16(185);
	memset(later.payload, 0xaa, sizeof(later.payload));
	assert_int_equal(flow_hash4((uint8_t *)&first, sizeof(first)), flow_hash4((uint8_t *)&later, sizeof(later)));
}

static void
ports_behind_options_and_extension_headers_count(void **state)
{
	struct packet4 a = udp4(), b;
	struct {
		struct ip6_header ip;
		uint8_t payload[24];
	} x = {.ip = {.next_header = PROTOCOL_HOP_BY_HOP}, .payload = {PROTOCOL_UDP, 0, 1, 4}}, y;

	a.ip.version_ihl = 0x46;
	b = a;
	b.payload[4]++;
	assert_int_not_equal(flow_hash4((uint8_t *)&a, sizeof(a)), flow_hash4((uint8_t *)&b, sizeof(b)));
	y = x;
	y.payload[8]++;
	assert_int_not_equal(flow_hash6((uint8_t *)&x, sizeof(x)), flow_hash6((uint8_t *)&y, sizeof(y)));
	x.payload[0] = y.payload[0] = PROTOCOL_FRAGMENT;
	assert_int_equal(flow_hash6((uint8_t *)&x, sizeof(x)), flow_hash6((uint8_t *)&y, sizeof(y)));
}

static void
no_truncation_of_a_packet_is_read_past(void **state)
{
	struct packet4 a = udp4();
	uint8_t v6[128] = {0x60};

	for (unsigned header = 5; header < 16; header++) {
		a.ip.version_ihl = (uint8_t)(0x40 | header);
		for (size_t length = sizeof(a.ip); length <= sizeof(a); length++)
			flow_hash4((uint8_t *)&a, length);
	}
	for (size_t length = 40; length <= sizeof(v6); length++)
		for (unsigned next = 0; next < 256; next++) {
			v6[6] = (uint8_t)next;
			v6[41] = (uint8_t)length;
			flow_hash6(v6, length);
		}
}

static void
many_flows_are_spread_evenly(void **state)
{
	unsigned slots[256] = {0};

	for (unsigned i = 0; i < 256 * 256; i++) {
		struct packet4 p = udp4();

		p.ip.source = rte_cpu_to_be_32(0x0a000000 + i);
		slots[flow_hash4((uint8_t *)&p, sizeof(p)) & 255]++;
	}
	for (unsigned i = 0; i < 256; i++)
		assert_in_range(slots[i], 150, 370);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_are_given_by_weight),
		cmocka_unit_test(sixty_four_next_hops_of_any_weights_all_get_a_slot),
		cmocka_unit_test(only_the_slots_of_a_next_hop_that_goes_change_hands),
		cmocka_unit_test(a_next_hop_that_comes_back_takes_no_more_than_its_share),
		cmocka_unit_test(a_next_hop_that_comes_back_gets_the_slots_it_had),
		cmocka_unit_test(packets_of_one_flow_have_one_hash),
		cmocka_unit_test(all_fragments_of_a_datagram_have_one_hash),
		cmocka_unit_test(ports_behind_options_and_extension_headers_count),
		cmocka_unit_test(no_truncation_of_a_packet_is_read_past),
		cmocka_unit_test(many_flows_are_spread_evenly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
