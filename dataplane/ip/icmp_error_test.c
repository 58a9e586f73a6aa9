// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "inet/header.h"
#include "ip/icmp.h"

struct case4 {
	bool allowed;
	uint32_t source, destination;
	uint16_t fragment;
	uint8_t protocol, first;
};

static void
an_icmp_error_is_sent_only_where_rfc_1812_allows(void **state)
{
	static const struct case4 cases[] = {
		{true, 0xc0000201, 0xc6336401, 0, PROTOCOL_UDP, 0},
		{true, 0xc0000201, 0xc6336401, IP4_DF, PROTOCOL_TCP, 0},
		{true, 0xc0000201, 0xc6336401, IP4_MF, PROTOCOL_UDP, 0},
		{false, 0xc0000201, 0xc6336401, 1, PROTOCOL_UDP, 0},
		{false, 0xc0000201, 0xe0000001, 0, PROTOCOL_UDP, 0},
		{false, 0xc0000201, 0xffffffff, 0, PROTOCOL_UDP, 0},
		{false, 0x00000000, 0xc6336401, 0, PROTOCOL_UDP, 0},
		{false, 0x7f000001, 0xc6336401, 0, PROTOCOL_UDP, 0},
		{false, 0xe0000001, 0xc6336401, 0, PROTOCOL_UDP, 0},
		{false, 0xf0000001, 0xc6336401, 0, PROTOCOL_UDP, 0},
		{true, 0xc0000201, 0xc6336401, 0, PROTOCOL_ICMP, 8},
		{true, 0xc0000201, 0xc6336401, 0, PROTOCOL_ICMP, 0},
		{true, 0xc0000201, 0xc6336401, 0, PROTOCOL_ICMP, 13},
		{false, 0xc0000201, 0xc6336401, 0, PROTOCOL_ICMP, 3},
		{false, 0xc0000201, 0xc6336401, 0, PROTOCOL_ICMP, 4},
		{false, 0xc0000201, 0xc6336401, 0, PROTOCOL_ICMP, 5},
		{false, 0xc0000201, 0xc6336401, 0, PROTOCOL_ICMP, 11},
		{false, 0xc0000201, 0xc6336401, 0, PROTOCOL_ICMP, 12},
		{false, 0xc0000201, 0xc6336401, 0, PROTOCOL_ICMP, 40},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		struct {
			struct ip4_header ip;
			uint8_t payload[8];
		} p = {.ip = {.version_ihl = 0x45,
			       .protocol = cases[i].protocol,
			       .fragment = rte_cpu_to_be_16(cases[i].fragment),
			       .source = rte_cpu_to_be_32(cases[i].source),
			       .destination = rte_cpu_to_be_32(cases[i].destination)},
			.payload = {cases[i].first}};

		assert_int_equal(icmp4_error_allowed((uint8_t *)&p, sizeof(p)), cases[i].allowed);
	}
}

struct case6 {
	bool allowed;
	uint8_t source[2], destination[2]; // how the addresses start
	uint8_t type, code;
	uint8_t next_header;
	uint8_t payload[24];
};

static void
an_icmp6_error_is_sent_only_where_rfc_4443_allows(void **state)
{
	static const struct case6 cases[] = {
		{true, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_UDP, {0}},
		{true, {0xfe, 0x80}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_UDP, {0}},
		{false, {0xff, 2}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_UDP, {0}},
		{false, {0, 0}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_UDP, {0}},
		{false, {0x20, 1}, {0xff, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_UDP, {0}},
		{true, {0x20, 1}, {0xff, 2}, ICMP6_TOO_BIG, 0, PROTOCOL_UDP, {0}},
		{true, {0x20, 1}, {0xff, 2}, ICMP6_PARAMETER, 2, PROTOCOL_UDP, {0}},
		{false, {0x20, 1}, {0xff, 2}, ICMP6_PARAMETER, 1, PROTOCOL_UDP, {0}},
		{true, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_ICMP6, {128}},
		{true, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_ICMP6, {135}},
		{false, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_ICMP6, {1}},
		{false, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_ICMP6, {127}},
		{false, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_ICMP6, {137}},
		// Behind a hop-by-hop header.
		{false, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, 0, {PROTOCOL_ICMP6, 0, 1, 4, 0, 0, 0, 0, 1}},
		{true, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, 0, {PROTOCOL_ICMP6, 0, 1, 4, 0, 0, 0, 0, 128}},
		// A first fragment shows its protocol, another one only that it is no ICMPv6.
		{true, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_FRAGMENT, {PROTOCOL_UDP, 0, 0, 1}},
		{true, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_FRAGMENT, {PROTOCOL_UDP, 0, 0, 8}},
		{false, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_FRAGMENT, {PROTOCOL_ICMP6, 0, 0, 8}},
		{false, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_FRAGMENT, {PROTOCOL_ICMP6, 0, 1, 0}},
		{false, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_FRAGMENT, {PROTOCOL_ROUTING, 0, 1, 0}},
		// A header whose length exceeds the packet.
		{false, {0x20, 1}, {0x20, 2}, ICMP6_TIME_EXCEEDED, 0, PROTOCOL_ROUTING, {PROTOCOL_ICMP6, 200}},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		struct {
			struct ip6_header ip;
			uint8_t payload[24];
		} p = {.ip = {.next_header = cases[i].next_header}};

		memcpy(p.ip.source, cases[i].source, 2);
		memcpy(p.ip.destination, cases[i].destination, 2);
		memcpy(p.payload, cases[i].payload, sizeof(p.payload));
		assert_int_equal(
			icmp6_error_allowed((uint8_t *)&p, sizeof(p), cases[i].type, cases[i].code), cases[i].allowed);
	}
}

static void
no_error_is_sent_about_a_truncated_header(void **state)
{
	uint8_t bytes[60] = {0x45, [9] = PROTOCOL_ICMP, [12] = 192, 0, 2, 1, 198, 51, 100, 1, 8};

	for (size_t length = 0; length <= 20; length++)
		assert_false(icmp4_error_allowed(bytes, length));
	assert_true(icmp4_error_allowed(bytes, 21));
	memset(bytes, 0x20, sizeof(bytes));
	bytes[6] = PROTOCOL_ICMP6;
	bytes[40] = 128;
	for (size_t length = 0; length <= 40; length++)
		assert_false(icmp6_error_allowed(bytes, length, ICMP6_TIME_EXCEEDED, 0));
	assert_true(icmp6_error_allowed(bytes, 41, ICMP6_TIME_EXCEEDED, 0));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_icmp_error_is_sent_only_where_rfc_1812_allows),
		cmocka_unit_test(an_icmp6_error_is_sent_only_where_rfc_4443_allows),
		cmocka_unit_test(no_error_is_sent_about_a_truncated_header),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
