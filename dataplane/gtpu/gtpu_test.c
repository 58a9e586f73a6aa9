// SPDX-License-Identifier: Apache-2.0
// GTP-U on the wire: known bytes, every truncation, every extension header.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/cut.h"
#include "gtpu/gtpu.h"
#include "inet/header.h"

static const struct gtpu_ends ends4 = {.family = 4, .local = {192, 0, 2, 1}, .remote = {192, 0, 2, 2}};
static const struct gtpu_ends ends6 = {
	.family = 6, .local = {0x20, 1, 0xd, 0xb8, [15] = 1}, .remote = {0x20, 1, 0xd, 0xb8, [15] = 2}};

static void
a_header_over_ipv4_has_the_bytes_of_the_specification(void **state)
{
	static const uint8_t bare[36] = {0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 0,
		0x08, 0x68, 0, 0, 0, 0, 0x30, 0xff, 0, 0, 0x12, 0x34, 0x56, 0x78};
	static const uint8_t contained[44] = {0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2, 0, 0,
		0x08, 0x68, 0, 0, 0, 0, 0x34, 0xff, 0, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0x85, 1, 0x10, 9, 0};
	uint8_t room[GTPU_ENCAP4];

	assert_int_equal(gtpu_write_header(room, &ends4, 0x12345678, false, 0), sizeof(bare));
	assert_memory_equal(room + sizeof(room) - sizeof(bare), bare, sizeof(bare));
	assert_int_equal(gtpu_write_header(room, &ends4, 0x12345678, true, 9), sizeof(contained));
	assert_memory_equal(room, contained, sizeof(contained));
}

static void
a_header_over_ipv6_has_the_bytes_of_the_specification(void **state)
{
	static const uint8_t contained[64] = {0x60, 0, 0, 0, 0, 0, 17, 64, 0x20, 1, 0xd, 0xb8, [23] = 1, [24] = 0x20, 1,
		0xd, 0xb8, [39] = 2, [42] = 0x08, 0x68, [48] = 0x34, 0xff, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0x85, 1, 0x10, 63,
		0};
	uint8_t room[GTPU_ENCAP6];

	assert_int_equal(gtpu_write_header(room, &ends6, 7, true, 63), sizeof(contained));
	assert_memory_equal(room, contained, sizeof(contained));
}

static void
an_echo_response_echoes_the_sequence_number_and_has_a_recovery_element(void **state)
{
	static const uint8_t expected[42] = {0x45, 0, 0, 42, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
		0x08, 0x68, 0x30, 0x39, 0, 22, 0, 0, 0x32, 2, 0, 6, 0, 0, 0, 0, 0xab, 0xcd, 0, 0, 14, 0};
	uint8_t room[GTPU_MESSAGE_MAX], elements[2];
	unsigned length = gtpu_write_message(
		room, &ends4, 12345, GTPU_ECHO_RESPONSE, 0xabcd, elements, gtpu_echo_response(elements));

	assert_int_equal(length, sizeof(expected));
	assert_int_equal(checksum_fold(checksum_add(0, room, 20)), 0xffff);
	assert_int_equal(
		checksum_fold(checksum_add(checksum_add(0, room + 12, 8) + RTE_BE16(22) + RTE_BE16(17), room + 20, 22)),
		0xffff);
	memset(room + 10, 0, 2);
	memset(room + 26, 0, 2);
	assert_memory_equal(room, expected, sizeof(expected));
}

static void
an_error_indication_names_the_teid_and_our_address(void **state)
{
	static const uint8_t wanted4[] = {16, 0x12, 0x34, 0x56, 0x78, 133, 0, 4, 192, 0, 2, 1};
	static const uint8_t wanted6[] = {16, 0, 0, 0, 9, 133, 0, 16, 0x20, 1, 0xd, 0xb8, [23] = 1};
	uint8_t elements[32], room[GTPU_MESSAGE_MAX];
	const struct ip6_header *ip = (const struct ip6_header *)room;
	unsigned length;

	assert_int_equal(gtpu_error_indication(elements, 0x12345678, &ends4), sizeof(wanted4));
	assert_memory_equal(elements, wanted4, sizeof(wanted4));
	length = gtpu_error_indication(elements, 9, &ends6);
	assert_int_equal(length, sizeof(wanted6));
	assert_memory_equal(elements, wanted6, sizeof(wanted6));
	length = gtpu_write_message(room, &ends6, GTPU_PORT, GTPU_ERROR_INDICATION, 0, elements, length);
	assert_int_equal(length, 40 + 8 + 12 + sizeof(wanted6));
	assert_int_equal(rte_be_to_cpu_16(ip->payload_length), length - 40);
	assert_int_equal(checksum_fold(checksum_add(
				 ip6_pseudo_sum(ip->source, ip->destination, length - 40, 17), room + 40, length - 40)),
		0xffff);
}

static void
the_extension_headers_we_know_are_listed(void **state)
{
	static const uint8_t expected[] = {141, 1, 0x85};
	uint8_t elements[8];

	assert_int_equal(gtpu_supported_extensions(elements), sizeof(expected));
	assert_memory_equal(elements, expected, sizeof(expected));
}

struct row {
	const char *what;
	uint8_t bytes[32];
	size_t length;
	enum gtpu_verdict verdict;
	uint16_t offset, payload;
	uint8_t qfi;
	bool container, reflect;
	bool usual; // the common path takes it, too
};

static const struct row rows[] = {
	{"a bare G-PDU", {0x30, 255, 0, 2, 0, 0, 0, 1, 0x45, 0}, 10, GTPU_FINE, 8, 2, .usual = true},
	{"with bytes behind its length", {0x30, 255, 0, 2, 0, 0, 0, 1, 0x45, 0, 9, 9}, 12, GTPU_FINE, 8, 2,
		.usual = true},
	{"empty", {0x30, 255, 0, 0, 0, 0, 0, 1}, 8, GTPU_FINE, 8, 0, .usual = true},
	{"longer than it is", {0x30, 255, 0, 3, 0, 0, 0, 1, 0x45, 0}, 10, GTPU_SHORT},
	{"with a sequence number", {0x32, 255, 0, 5, 0, 0, 0, 1, 0, 9, 0, 0, 0x45}, 13, GTPU_FINE, 12, 1},
	{"with an N-PDU number", {0x31, 255, 0, 5, 0, 0, 0, 1, 0, 0, 7, 0x85, 0x45}, 13, GTPU_FINE, 12, 1},
	{"optional fields that do not fit", {0x32, 255, 0, 3, 0, 0, 0, 1, 0, 9, 0}, 11, GTPU_SHORT},
	{"downlink container", {0x34, 255, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0x00, 0x09, 0, 0x45}, 17, GTPU_FINE, 16,
		1, 9, true, false, true},
	{"with the RQI", {0x34, 255, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0x00, 0x49, 0, 0x45}, 17, GTPU_FINE, 16, 1, 9,
		true, true, true},
	{"uplink container, no RQI there", {0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0x10, 0x49, 0}, 16,
		GTPU_FINE, 16, 0, 9, true, false},
	{"a container of a type to come", {0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0x70, 0x49, 0}, 16, GTPU_FINE,
		16, 0},
	{"paging policy in a longer container",
		{0x34, 255, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0x85, 2, 0, 0x89, 0x20, 0, 0, 0, 0}, 20, GTPU_FINE, 20, 0, 9,
		true},
	{"paging policy without room for it", {0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 0x89, 0}, 16,
		GTPU_BAD_EXTENSION},
	{"E without an extension", {0x34, 255, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0}, 12, GTPU_FINE, 12, 0},
	{"an unknown one that may be skipped", {0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x40, 1, 0x12, 0x34, 0}, 16,
		GTPU_FINE, 16, 0},
	{"skipped, then a container", {0x34, 255, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0x20, 1, 0, 0, 0x85, 1, 0, 5, 0}, 20,
		GTPU_FINE, 20, 0, 5, true},
	{"an unknown one that must be understood", {0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0xc0, 1, 0, 0, 0}, 16,
		GTPU_UNKNOWN_EXTENSION},
	{"the same by the endpoint", {0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x81, 1, 0, 0, 0}, 16,
		GTPU_UNKNOWN_EXTENSION},
	{"of no length", {0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x40, 0, 0, 0, 0}, 16, GTPU_BAD_EXTENSION},
	{"longer than the packet", {0x34, 255, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x85, 2, 0, 9, 0}, 16, GTPU_SHORT},
	{"that is not there", {0x34, 255, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0x85}, 12, GTPU_SHORT},
	{"version 2", {0x50, 255, 0, 0, 0, 0, 0, 1}, 8, GTPU_OTHER_VERSION},
	{"GTP'", {0x20, 255, 0, 0, 0, 0, 0, 1}, 8, GTPU_OTHER_VERSION},
};

static void
a_g_pdu_is_read_with_its_extension_headers(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];
		uint8_t *bytes = cut(row->bytes, row->length);
		struct gtpu_packet packet, usual;
		enum gtpu_verdict verdict = gtpu_parse(bytes, row->length, row->length, &packet);

		if (verdict != row->verdict)
			fail_msg("%s: %d", row->what, verdict);
		if (verdict == GTPU_FINE) {
			assert_int_equal(packet.teid, 1);
			if (packet.offset != row->offset || packet.length != row->payload || packet.qfi != row->qfi ||
				packet.container != row->container || packet.reflect != row->reflect)
				fail_msg("%s: offset %u length %u qfi %u", row->what, packet.offset, packet.length,
					packet.qfi);
		}
		memset(&usual, 0, sizeof(usual));
		if (gtpu_parse_usual(bytes, row->length, row->length, &usual) != row->usual)
			fail_msg("%s: by the common path", row->what);
		if (row->usual)
			assert_memory_equal(&usual, &packet, sizeof(packet));
		free(bytes);
	}
}

static void
no_truncation_of_a_packet_passes_or_is_read_beyond_its_end(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (size_t length = 0; length < rows[i].length; length++) {
			uint8_t *bytes = cut(rows[i].bytes, length);
			size_t whole = 8u + (size_t)(rows[i].bytes[2] << 8 | rows[i].bytes[3]);
			struct gtpu_packet packet;
			enum gtpu_verdict verdict = gtpu_parse(bytes, length, length, &packet);

			// Bytes behind the length may be missing.
			if (length < whole && verdict == GTPU_FINE)
				fail_msg("%s: %zu bytes", rows[i].what, length);
			if (length >= 8)
				gtpu_parse_usual(bytes, length, length, &packet);
			free(bytes);
		}
}

static void
extension_headers_come_to_an_end(void **state)
{
	uint8_t bytes[12 + 4 * (EXTENSIONS_MAX + 1)] = {0x34, 255, 0, sizeof(bytes) - 8, 0, 0, 0, 1, 0, 0, 0, 0x40};
	struct gtpu_packet packet;

	for (size_t at = 12; at < sizeof(bytes); at += 4) {
		bytes[at] = 1;
		bytes[at + 3] = 0x40;
	}
	assert_int_equal(gtpu_parse(bytes, sizeof(bytes), sizeof(bytes), &packet), GTPU_BAD_EXTENSION);
}

static void
udp_is_found_only_where_it_is_whole(void **state)
{
	uint8_t four[20 + 8 + 8] = {0x45, [9] = 17, [25] = 16},
			      six[40 + 8 + 8 + 4] = {0x60, [6] = 0, [40] = 17, [53] = 12};
	uint16_t length;

	assert_int_equal(gtpu_find_udp(four, sizeof(four), sizeof(four), &length), 20);
	assert_int_equal(length, 8);
	assert_int_equal(gtpu_find_udp(six, sizeof(six), sizeof(six), &length), 48);
	assert_int_equal(length, 4);
	for (size_t n = 0; n < sizeof(four); n++) {
		uint8_t *bytes = cut(four, n);

		assert_int_equal(gtpu_find_udp(bytes, n, n, &length), 0);
		free(bytes);
	}
	for (size_t n = 0; n < sizeof(six); n++) {
		uint8_t *bytes = cut(six, n);

		assert_int_equal(gtpu_find_udp(bytes, n, n, &length), 0);
		free(bytes);
	}
	four[25] = 7;
	assert_int_equal(gtpu_find_udp(four, sizeof(four), sizeof(four), &length), 0);
	four[25] = 16;
	four[9] = 6;
	assert_int_equal(gtpu_find_udp(four, sizeof(four), sizeof(four), &length), 0);
	four[9] = 17;
	four[0] = 0x44;
	assert_int_equal(gtpu_find_udp(four, sizeof(four), sizeof(four), &length), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_header_over_ipv4_has_the_bytes_of_the_specification),
		cmocka_unit_test(a_header_over_ipv6_has_the_bytes_of_the_specification),
		cmocka_unit_test(an_echo_response_echoes_the_sequence_number_and_has_a_recovery_element),
		cmocka_unit_test(an_error_indication_names_the_teid_and_our_address),
		cmocka_unit_test(the_extension_headers_we_know_are_listed),
		cmocka_unit_test(a_g_pdu_is_read_with_its_extension_headers),
		cmocka_unit_test(no_truncation_of_a_packet_passes_or_is_read_beyond_its_end),
		cmocka_unit_test(extension_headers_come_to_an_end),
		cmocka_unit_test(udp_is_found_only_where_it_is_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
