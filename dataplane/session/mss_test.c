// SPDX-License-Identifier: Apache-2.0
// MSS clamping, from tables of segments.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "inet/header.h"
#include "session/mss.h"

enum { IP4 = 20, IP6 = 40, TCP = 20, ROOM = 128 };

// An IPv4 or IPv6 TCP segment with these flags and options, and a right checksum. Its length.
static size_t
segment(uint8_t *room, uint8_t family, uint8_t flags, const uint8_t *options, size_t options_length)
{
	size_t ip_length = family == 4 ? IP4 : IP6, tcp_length = TCP + options_length;
	uint8_t *tcp = room + ip_length;
	uint16_t checksum;
	uint64_t sum;

	memset(room, 0, ROOM);
	if (family == 4) {
		struct ip4_header *ip = (struct ip4_header *)room;

		ip->version_ihl = 0x45;
		ip->protocol = PROTOCOL_TCP;
		ip->total_length = rte_cpu_to_be_16((uint16_t)(ip_length + tcp_length));
		ip->source = RTE_BE32(0x64400007);
		ip->destination = RTE_BE32(0xc0000201);
		sum = checksum_add(0, &ip->source, 8) + rte_cpu_to_be_16((uint16_t)tcp_length) + RTE_BE16(PROTOCOL_TCP);
	} else {
		struct ip6_header *ip = (struct ip6_header *)room;

		ip->version_class_flow = RTE_BE32(6u << 28);
		ip->next_header = PROTOCOL_TCP;
		ip->payload_length = rte_cpu_to_be_16((uint16_t)tcp_length);
		ip->source[0] = ip->destination[0] = 0x20;
		sum = ip6_pseudo_sum(ip->source, ip->destination, (uint32_t)tcp_length, PROTOCOL_TCP);
	}
	tcp[0] = 0x12;
	tcp[3] = 80;
	tcp[12] = (uint8_t)((TCP + options_length) / 4 << 4);
	tcp[13] = flags;
	memcpy(tcp + TCP, options, options_length);
	checksum = (uint16_t)~checksum_fold(checksum_add(sum, tcp, tcp_length));
	memcpy(tcp + 16, &checksum, sizeof(checksum));
	return ip_length + tcp_length;
}

static bool
checksum_right(const uint8_t *packet, size_t length, uint8_t family)
{
	size_t ip_length = family == 4 ? IP4 : IP6;
	const struct ip6_header *ip6 = (const struct ip6_header *)packet;
	uint32_t tcp_length = (uint32_t)(length - ip_length);
	uint64_t sum = family == 4 ? checksum_add(0, packet + 12, 8) + rte_cpu_to_be_16((uint16_t)tcp_length) +
					     RTE_BE16(PROTOCOL_TCP)
				   : ip6_pseudo_sum(ip6->source, ip6->destination, tcp_length, PROTOCOL_TCP);

	return checksum_fold(checksum_add(sum, packet + ip_length, tcp_length)) == 0xffff;
}

struct row {
	const char *what;
	uint8_t family, flags;
	uint8_t options[12];
	uint16_t mss, announced; // 0: unchanged
	uint8_t at;              // of the announced value in the options
};

static const struct row rows[] = {
	{"a SYN that announces more", 4, 0x02, {2, 4, 0x05, 0xb4}, 1400, 1400, 2},
	{"a SYN and ACK that announces more", 4, 0x12, {2, 4, 0x05, 0xb4}, 1400, 1400, 2},
	{"a SYN that announces less", 4, 0x02, {2, 4, 0x05, 0x00}, 1400, 0, 2},
	{"a SYN that announces as much", 4, 0x02, {2, 4, 0x05, 0x78}, 1400, 0, 2},
	{"an ACK with the option", 4, 0x10, {2, 4, 0x05, 0xb4}, 1400, 0, 2},
	{"IPv6 takes 20 bytes less", 6, 0x02, {2, 4, 0x05, 0xb4}, 1400, 1380, 2},
	{"behind another option", 4, 0x02, {3, 3, 7, 1, 2, 4, 0x05, 0xb4}, 1400, 1400, 6},
	{"on an odd offset", 4, 0x02, {1, 2, 4, 0x05, 0xb4, 0, 0, 0}, 1400, 1400, 3},
	{"on an odd offset in IPv6", 6, 0x02, {3, 3, 7, 2, 4, 0x05, 0xb4, 0}, 1300, 1280, 5},
	{"behind the end of options", 4, 0x02, {0, 2, 4, 0x05, 0xb4, 0, 0, 0}, 1400, 0, 3},
	{"behind an option of no length", 4, 0x02, {8, 0, 2, 4, 0x05, 0xb4, 0, 0}, 1400, 0, 4},
	{"behind an option that is longer than the rest", 4, 0x02, {8, 40, 2, 4, 0x05, 0xb4, 0, 0}, 1400, 0, 4},
	{"an option of a wrong length", 4, 0x02, {2, 3, 0x05, 0xb4}, 1400, 0, 2},
};

static void
a_syn_never_announces_more_than_the_mss(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];
		uint8_t packet[ROOM], before[ROOM];
		size_t length = segment(packet, row->family, row->flags, row->options, sizeof(row->options));
		const uint8_t *value = packet + (row->family == 4 ? IP4 : IP6) + TCP + row->at;

		memcpy(before, packet, sizeof(before));
		if (mss_clamp(packet, length, row->family, row->mss) != (row->announced != 0))
			fail_msg("%s", row->what);
		if (row->announced == 0)
			assert_memory_equal(packet, before, sizeof(before));
		else
			assert_int_equal(value[0] << 8 | value[1], row->announced);
		if (!checksum_right(packet, length, row->family))
			fail_msg("%s: checksum", row->what);
	}
}

// Each byte behind the truncation is out of bounds: valgrind and the sanitizers would see a read.
static void
no_truncation_is_read_beyond_its_end_or_changed(void **state)
{
	static const uint8_t options[8] = {1, 1, 2, 4, 0x05, 0xb4, 1, 0};

	for (uint8_t family = 4; family <= 6; family += 2) {
		uint8_t packet[ROOM];
		size_t whole = segment(packet, family, 0x02, options, sizeof(options));

		for (size_t length = 0; length < whole - 2; length++) {
			uint8_t *cut = test_malloc(length + 1);

			memcpy(cut, packet, length);
			assert_false(mss_clamp(cut, length, family, 1400));
			assert_memory_equal(cut, packet, length);
			test_free(cut);
		}
	}
}

static void
fragments_behind_the_first_are_left_alone(void **state)
{
	static const uint8_t options[4] = {2, 4, 0x05, 0xb4};
	uint8_t packet[ROOM];
	size_t length = segment(packet, 4, 0x02, options, sizeof(options));

	((struct ip4_header *)packet)->fragment = RTE_BE16(1);
	assert_false(mss_clamp(packet, length, 4, 1400));
	((struct ip4_header *)packet)->fragment = RTE_BE16(IP4_MF);
	assert_true(mss_clamp(packet, length, 4, 1400));
}

static void
tcp_behind_extension_headers_is_found(void **state)
{
	static const uint8_t options[4] = {2, 4, 0x05, 0xb4};
	uint8_t packet[ROOM], wide[ROOM] = {0};
	size_t length = segment(packet, 6, 0x02, options, sizeof(options));

	memcpy(wide, packet, IP6);
	memcpy(wide + IP6 + 16, packet + IP6, length - IP6);
	((struct ip6_header *)wide)->next_header = PROTOCOL_HOP_BY_HOP;
	wide[IP6] = PROTOCOL_DESTINATION_OPTIONS;
	wide[IP6 + 8] = PROTOCOL_TCP;
	assert_true(mss_clamp(wide, length + 16, 6, 1400));
	assert_int_equal(wide[IP6 + 16 + TCP + 2] << 8 | wide[IP6 + 16 + TCP + 3], 1380);
	for (size_t cut = 0; cut < length + 14; cut++)
		assert_false(mss_clamp(wide, cut, 6, 1000));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_syn_never_announces_more_than_the_mss),
		cmocka_unit_test(no_truncation_is_read_beyond_its_end_or_changed),
		cmocka_unit_test(fragments_behind_the_first_are_left_alone),
		cmocka_unit_test(tcp_behind_extension_headers_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
