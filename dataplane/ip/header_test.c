// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "inet/header.h"
#include "ip/check.h"

static const uint8_t udp[28] = {
	0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1, 0, 7, 0, 7, 0, 8};

static void
the_checksum_is_that_of_rfc_1071(void **state)
{
	static const uint8_t example[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
	static const uint8_t odd[] = {0x00, 0x01, 0xf2};

	assert_int_equal(checksum_fold(checksum_add(0, example, sizeof(example))), rte_cpu_to_be_16(0xddf2));
	assert_int_equal(checksum_fold(checksum_add(0, odd, sizeof(odd))), rte_cpu_to_be_16(0xf201));
	assert_int_equal(checksum_fold(checksum_add(0, NULL, 0)), 0);
}

static void
counting_the_ttl_down_keeps_the_checksum_right(void **state)
{
	for (uint32_t id = 0; id < 65536; id++) {
		struct ip4_header ip;
		uint32_t word, kept;

		memcpy(&ip, udp, sizeof(ip));
		ip.id = (uint16_t)id;
		ip.ttl = (uint8_t)(2 + id % 254);
		ip.checksum = ip4_checksum(&ip);
		memcpy(&word, &ip.ttl, sizeof(word));
		kept = ip4_age(word, 0);
		word = ip4_age(word, 1);
		memcpy(&ip.ttl, &word, sizeof(word));
		assert_int_equal(ip.ttl, 1 + id % 254);
		assert_int_equal(ip.protocol, 17);
		assert_int_equal(ip.checksum, ip4_checksum(&ip));
		assert_int_equal(kept & 0xffff, (word & 0xffff) + 1);
	}
}

// A packet buffer that holds these bytes and no more: a page's end is behind them for the sanitizers.
struct buffer {
	struct rte_mbuf m;
	uint8_t data[128];
};

static struct rte_mbuf *
holding(struct buffer *b, const void *bytes, size_t length, size_t padding)
{
	memset(b, 0, sizeof(*b));
	b->m.buf_addr = b->data;
	b->m.nb_segs = 1;
	b->m.data_len = (uint16_t)(length + padding);
	b->m.pkt_len = (uint32_t)(length + padding);
	memcpy(b->data, bytes, length);
	return &b->m;
}

static const struct drop *
check4(const uint8_t *bytes, size_t length, size_t padding)
{
	struct buffer b;
	unsigned option;

	return ip4_check(holding(&b, bytes, length, padding), false, &option);
}

// The packet with one byte changed and the checksum right again, unless it is the checksum that is changed.
static const char *
with(unsigned at, uint8_t value)
{
	uint8_t copy[sizeof(udp) + 12] = {0};
	struct ip4_header *ip = (struct ip4_header *)copy;
	const struct drop *reason;

	memcpy(copy, udp, sizeof(udp));
	copy[at] = value;
	if (at != 10)
		ip->checksum = ip4_header_length(ip) <= sizeof(copy) ? ip4_checksum(ip) : 0;
	reason = check4(copy, sizeof(udp), 0);
	return reason ? reason->name : "";
}

static void
each_wrong_ip4_header_has_its_own_name(void **state)
{
	assert_string_equal(with(1, 0), "");
	assert_string_equal(with(0, 0x65), "ip4-version");
	assert_string_equal(with(0, 0x44), "ip4-header-length");
	assert_string_equal(with(0, 0x48), "ip4-header-length");
	assert_string_equal(with(3, 29), "ip4-truncated");
	assert_string_equal(with(3, 19), "ip4-header-length");
	assert_string_equal(with(10, 0x55), "ip4-checksum");
	assert_string_equal(with(12, 0), "ip4-martian-source");
	assert_string_equal(with(12, 127), "ip4-martian-source");
	assert_string_equal(with(12, 224), "ip4-martian-source");
	assert_string_equal(with(12, 240), "ip4-martian-source");
	assert_string_equal(with(12, 255), "ip4-martian-source");
	assert_string_equal(with(12, 223), "");
	assert_string_equal(with(12, 1), "");
}

static void
a_host_without_an_address_may_broadcast_and_nothing_else(void **state)
{
	uint8_t copy[sizeof(udp)];
	struct ip4_header *ip = (struct ip4_header *)copy;

	memcpy(copy, udp, sizeof(udp));
	ip->source = 0;
	ip->checksum = ip4_checksum(ip);
	assert_non_null(check4(copy, sizeof(copy), 0));
	ip->destination = UINT32_MAX;
	ip->checksum = ip4_checksum(ip);
	assert_null(check4(copy, sizeof(copy), 0));
}

static void
every_truncation_of_a_packet_is_dropped(void **state)
{
	uint8_t copy[sizeof(udp)];
	uint8_t v6[60] = {0x60, 0, 0, 0, 0, 20, 17, 64, 0x20, 0x01, [24] = 0x20, 0x01};
	struct ip4_header *ip = (struct ip4_header *)copy;

	memcpy(copy, udp, sizeof(udp));
	ip->checksum = ip4_checksum(ip);
	for (size_t length = 0; length < sizeof(copy); length++)
		assert_non_null(check4(copy, length, 0));
	assert_null(check4(copy, sizeof(copy), 0));
	assert_null(check4(copy, sizeof(copy), 18));
	for (size_t length = 0; length <= sizeof(v6); length++) {
		struct buffer b;
		const struct drop *reason = ip6_check(holding(&b, v6, length, 0));

		assert_int_equal(reason == NULL, length == sizeof(v6));
	}
}

static void
options_are_parsed_to_their_end_and_source_routes_refused(void **state)
{
	static const struct {
		uint8_t options[12];
		const char *reason;
		unsigned option;
	} cases[] = {
		{{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, "", 0},
		{{0, 99, 99, 99}, "", 0},
		{{7, 11, 4}, "", 0},
		{{148, 4, 0, 0}, "", 0},
		{{131, 7, 4, 192, 0, 2, 1}, "ip4-source-route", 0},
		{{1, 137, 7, 4, 192, 0, 2, 1}, "ip4-source-route", 0},
		{{7, 0, 4}, "ip4-bad-options", 20},
		{{7, 1, 4}, "ip4-bad-options", 20},
		{{7, 13, 4}, "ip4-bad-options", 20},
		{{1, 1, 1, 7, 10}, "ip4-bad-options", 23},
		{{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7}, "ip4-bad-options", 31},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint8_t packet[32];
		struct ip4_header *ip = (struct ip4_header *)packet;
		const struct drop *reason;
		struct buffer b;
		unsigned option;

		memcpy(packet, udp, 20);
		memcpy(packet + 20, cases[i].options, 12);
		ip->version_ihl = 0x48;
		ip->total_length = rte_cpu_to_be_16(sizeof(packet));
		ip->checksum = ip4_checksum(ip);
		reason = ip4_check(holding(&b, packet, sizeof(packet), 0), false, &option);
		assert_string_equal(reason ? reason->name : "", cases[i].reason);
		if (cases[i].option)
			assert_int_equal(option, cases[i].option);
	}
}

static void
each_wrong_ip6_header_has_its_own_name(void **state)
{
	static const struct {
		const char *reason;
		uint8_t header[40];
	} cases[] = {
		{"", {0x60, [6] = 59, 64, 0x20, 0x01, [24] = 0x20}},
		{"ip6-version", {0x40, [6] = 59, 64, 0x20, 0x01, [24] = 0x20}},
		{"ip6-truncated", {0x60, [5] = 1, 59, 64, 0x20, 0x01, [24] = 0x20}},
		{"ip6-jumbogram", {0x60, [6] = 0, 64, 0x20, 0x01, [24] = 0x20}},
		{"ip6-martian-source", {0x60, [6] = 59, 64, 0xff, 0x02, [24] = 0x20}},
		{"ip6-martian-source", {0x60, [6] = 59, 64, [23] = 1, 0x20}},
		{"ip6-martian-source", {0x60, [6] = 59, 64, [24] = 0x20}},
		{"", {0x60, [6] = 59, 64, [24] = 0xff, 0x02}},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		struct buffer b;
		const struct drop *reason = ip6_check(holding(&b, cases[i].header, 40, 0));

		assert_string_equal(reason ? reason->name : "", cases[i].reason);
	}
}

static void
padding_is_cut_off(void **state)
{
	struct buffer b;
	struct rte_mbuf *m = holding(&b, udp, sizeof(udp), 18);

	ip_trim(m, sizeof(udp));
	assert_int_equal(m->data_len, sizeof(udp));
	assert_int_equal(m->pkt_len, sizeof(udp));
	assert_int_equal(m->nb_segs, 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_checksum_is_that_of_rfc_1071),
		cmocka_unit_test(counting_the_ttl_down_keeps_the_checksum_right),
		cmocka_unit_test(each_wrong_ip4_header_has_its_own_name),
		cmocka_unit_test(a_host_without_an_address_may_broadcast_and_nothing_else),
		cmocka_unit_test(every_truncation_of_a_packet_is_dropped),
		cmocka_unit_test(options_are_parsed_to_their_end_and_source_routes_refused),
		cmocka_unit_test(each_wrong_ip6_header_has_its_own_name),
		cmocka_unit_test(padding_is_cut_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
