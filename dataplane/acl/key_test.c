// SPDX-License-Identifier: Apache-2.0
// Keys of packets that are cut short anywhere, and of headers in every order. A packet lies at the very end of its memory, so
// that reading beyond it is seen (AddressSanitizer).
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "acl/key.h"

static struct acl_protocols protocols;

// A list that reads TCP, UDP and ICMP, and names GRE.
static int
name_protocols(void **state)
{
	protocols.class_of[IPPROTO_TCP] = CLASS_HAS_PORTS | 1;
	protocols.class_of[IPPROTO_UDP] = CLASS_HAS_PORTS | 2;
	protocols.class_of[IPPROTO_ICMP] = 3;
	protocols.class_of[IPPROTO_GRE] = 4;
	protocols.class_of[IPPROTO_SCTP] = CLASS_HAS_PORTS;
	protocols.read[IPPROTO_TCP] = protocols.read[IPPROTO_UDP] = protocols.read[IPPROTO_ICMP] = true;
	protocols.named = true;
	return 0;
}

static bool
key4(const uint8_t *ip, unsigned length, struct acl_key4 *key)
{
	uint8_t *copy = malloc(length + 1);
	bool readable;

	assert_non_null(copy);
	memcpy(copy + 1, ip, length);
	readable = acl_key4(&protocols, copy + 1, length, key);
	free(copy);
	return readable;
}

static bool
key6(const uint8_t *ip, unsigned length, struct acl_key6 *key)
{
	uint8_t *copy = malloc(length + 1);
	bool readable;

	assert_non_null(copy);
	memcpy(copy + 1, ip, length);
	readable = acl_key6(&protocols, copy + 1, length, key);
	free(copy);
	return readable;
}

// An IPv4 packet: header of `header` bytes and `behind` bytes that start with ports 258 and 772.
static unsigned
write4(uint8_t *ip, uint8_t protocol, unsigned header, unsigned behind)
{
	memset(ip, 0, 256);
	ip[0] = (uint8_t)(0x40 | header / 4);
	ip[1] = 46 << 2 | 1;
	ip[3] = (uint8_t)(header + behind);
	ip[9] = protocol;
	memcpy(ip + 12, (uint8_t[]){192, 0, 2, 1, 198, 51, 100, 7}, 8);
	memcpy(ip + header, (uint8_t[]){1, 2, 3, 4}, 4);
	ip[header + 13] = 0x12;
	return header + behind;
}

static unsigned
write6(uint8_t *ip, const uint8_t *chain, unsigned headers, unsigned behind)
{
	uint8_t *next = &ip[6];
	unsigned at = 40;

	memset(ip, 0, 512);
	ip[0] = 0x60 | 46 >> 2;
	ip[1] = (uint8_t)(46 << 6 | 0x1f);
	ip[8] = 0x20;
	ip[39] = 9;
	for (unsigned i = 0; i + 1 < headers; i++) {
		*next = chain[i];
		next = &ip[at];
		if (chain[i] == IPPROTO_AH) {
			ip[at + 1] = 4; // 24 bytes
			at += 24;
		} else if (chain[i] == IPPROTO_FRAGMENT) {
			at += 8;
		} else {
			ip[at + 1] = (uint8_t)(i % 2);
			at += 8 + i % 2 * 8;
		}
	}
	*next = chain[headers - 1];
	memcpy(ip + at, (uint8_t[]){1, 2, 3, 4}, 4);
	ip[at + 13] = 0x12;
	ip[4] = (uint8_t)((at - 40 + behind) >> 8);
	ip[5] = (uint8_t)(at - 40 + behind);
	return at + behind;
}

static void
an_ipv4_key_holds_the_fields_of_the_headers(void **state)
{
	for (unsigned header = 20; header <= 60; header += 4) {
		struct acl_key4 key;
		uint8_t ip[256];
		unsigned length = write4(ip, IPPROTO_TCP, header, 20);

		assert_true(key4(ip, length, &key));
		assert_int_equal(key.class, CLASS_HAS_PORTS | 1);
		assert_memory_equal(&key.source, "\xc0\x00\x02\x01", 4);
		assert_memory_equal(&key.destination, "\xc6\x33\x64\x07", 4);
		assert_memory_equal(&key.source_port, "\x01\x02", 2);
		assert_memory_equal(&key.destination_port, "\x03\x04", 2);
		assert_int_equal(key.dscp, 46);
		assert_int_equal(key.flags, 0x12);
		assert_int_equal(key.zero, 0);
	}
}

static void
a_cut_short_ipv4_packet_has_no_key_if_the_list_reads_missing_fields(void **state)
{
	static const struct {
		uint8_t protocol;
		unsigned needed;
		bool read;
	} cases[] = {{IPPROTO_TCP, 14, true}, {IPPROTO_UDP, 4, true}, {IPPROTO_ICMP, 4, true}, {IPPROTO_GRE, 4, false},
		{IPPROTO_SCTP, 4, false}};

	for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		for (unsigned header = 20; header <= 60; header += 20) {
			uint8_t ip[256];
			unsigned whole = write4(ip, cases[c].protocol, header, 40);

			for (unsigned length = 0; length <= whole; length++) {
				bool shown = length >= header + cases[c].needed;
				bool expected = shown || (length >= 20 && !cases[c].read);
				struct acl_key4 key;

				assert_int_equal(key4(ip, length, &key), expected);
				if (expected)
					assert_int_equal(!(key.class & CLASS_UNREADABLE), shown);
				// The same if the header ends there and padding follows.
				ip[3] = (uint8_t)length;
				if (length >= 20)
					assert_int_equal(key4(ip, whole, &key), expected);
				ip[3] = (uint8_t)whole;
			}
		}
	}
}

static void
a_later_ipv4_fragment_is_known_by_addresses_and_protocol_alone(void **state)
{
	uint8_t ip[256];
	unsigned length = write4(ip, IPPROTO_UDP, 20, 40);
	struct acl_key4 key;

	ip[7] = 1;
	assert_true(key4(ip, length, &key));
	assert_int_equal(key.class, CLASS_UNREADABLE | 2);
	assert_int_equal(key.source_port, 0);
	assert_memory_equal(&key.source, "\xc0\x00\x02\x01", 4);
	ip[6] = 0x20; // the first of several
	ip[7] = 0;
	assert_true(key4(ip, length, &key));
	assert_int_equal(key.class, CLASS_HAS_PORTS | 2);
}

static void
a_fragment_that_could_overwrite_tcp_flags_has_no_key(void **state)
{
	uint8_t ip[512];
	unsigned length = write4(ip, IPPROTO_TCP, 20, 40);
	struct acl_key4 key;
	struct acl_key6 key_6;

	ip[7] = 1;
	assert_false(key4(ip, length, &key));
	ip[7] = 2;
	assert_true(key4(ip, length, &key));
	length = write6(ip, (uint8_t[]){IPPROTO_FRAGMENT, IPPROTO_TCP}, 2, 40);
	ip[43] = 1 << 3;
	assert_false(key6(ip, length, &key_6));
	ip[43] = 2 << 3;
	assert_true(key6(ip, length, &key_6));
	assert_int_equal(key_6.class, CLASS_UNREADABLE | 1);
}

static void
an_ipv4_header_length_below_five_words_has_no_key(void **state)
{
	uint8_t ip[256];
	unsigned length = write4(ip, IPPROTO_UDP, 20, 40);
	struct acl_key4 key;

	for (unsigned words = 0; words < 5; words++) {
		ip[0] = (uint8_t)(0x40 | words);
		assert_false(key4(ip, length, &key));
	}
}

static const uint8_t chains[][9] = {
	{IPPROTO_TCP},
	{IPPROTO_HOPOPTS, IPPROTO_TCP},
	{IPPROTO_HOPOPTS, IPPROTO_DSTOPTS, IPPROTO_ROUTING, IPPROTO_FRAGMENT, IPPROTO_AH, IPPROTO_DSTOPTS, IPPROTO_TCP},
	{IPPROTO_FRAGMENT, IPPROTO_TCP},
	{IPPROTO_AH, IPPROTO_AH, 135, 139, 140, IPPROTO_TCP},
	{60, 60, 60, 60, 60, 60, 60, 60, IPPROTO_TCP},
};

static unsigned
headers_of(const uint8_t chain[9])
{
	unsigned headers = 1;

	while (chain[headers - 1] != IPPROTO_TCP)
		headers++;
	return headers;
}

static void
a_transport_header_is_found_behind_up_to_eight_extension_headers(void **state)
{
	uint8_t nine[10] = {60, 60, 60, 60, 60, 60, 60, 60, 60, IPPROTO_TCP}, ip[512];
	struct acl_key6 key;

	for (unsigned c = 0; c < sizeof(chains) / sizeof(chains[0]); c++) {
		unsigned length = write6(ip, chains[c], headers_of(chains[c]), 20);

		assert_true(key6(ip, length, &key));
		assert_int_equal(key.class, CLASS_HAS_PORTS | 1);
		assert_memory_equal(&key.source_port, "\x01\x02", 2);
		assert_memory_equal(&key.destination_port, "\x03\x04", 2);
		assert_int_equal(key.dscp, 46);
		assert_int_equal(key.flags, 0x12);
		assert_int_equal(key.source[0], 0x20);
		assert_int_equal(key.destination[15], 9);
	}
	assert_false(key6(ip, write6(ip, nine, 10, 20), &key));
	// A list that knows addresses only does not mind.
	protocols.named = false;
	assert_true(key6(ip, write6(ip, nine, 10, 20), &key));
	assert_int_equal(key.class, CLASS_UNREADABLE);
	protocols.named = true;
}

static void
a_cut_short_ipv6_packet_has_no_key(void **state)
{
	for (unsigned c = 0; c < sizeof(chains) / sizeof(chains[0]); c++) {
		uint8_t ip[512];
		unsigned whole = write6(ip, chains[c], headers_of(chains[c]), 20);
		unsigned shown = whole - 20 + 14;

		for (unsigned length = 0; length <= whole; length++) {
			struct acl_key6 key;

			assert_int_equal(key6(ip, length, &key), length >= shown);
			if (length < 40)
				continue;
			ip[4] = (uint8_t)((length - 40) >> 8);
			ip[5] = (uint8_t)(length - 40);
			assert_int_equal(key6(ip, whole, &key), length >= shown);
			ip[4] = (uint8_t)((whole - 40) >> 8);
			ip[5] = (uint8_t)(whole - 40);
		}
	}
}

static void
no_bit_that_is_flipped_makes_a_key_read_beyond_the_packet(void **state)
{
	for (unsigned c = 0; c < sizeof(chains) / sizeof(chains[0]); c++) {
		uint8_t ip[512];
		unsigned length = write6(ip, chains[c], headers_of(chains[c]), 20);

		for (unsigned bit = 0; bit < length * 8; bit++) {
			struct acl_key6 key;

			ip[bit / 8] ^= (uint8_t)(1 << bit % 8);
			(void)key6(ip, length, &key);
			ip[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
	for (unsigned header = 20; header <= 60; header += 4) {
		uint8_t ip[256];
		unsigned length = write4(ip, IPPROTO_TCP, header, 20);

		for (unsigned bit = 0; bit < length * 8; bit++) {
			struct acl_key4 key;

			ip[bit / 8] ^= (uint8_t)(1 << bit % 8);
			(void)key4(ip, length, &key);
			ip[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_ipv4_key_holds_the_fields_of_the_headers),
		cmocka_unit_test(a_cut_short_ipv4_packet_has_no_key_if_the_list_reads_missing_fields),
		cmocka_unit_test(a_later_ipv4_fragment_is_known_by_addresses_and_protocol_alone),
		cmocka_unit_test(a_fragment_that_could_overwrite_tcp_flags_has_no_key),
		cmocka_unit_test(an_ipv4_header_length_below_five_words_has_no_key),
		cmocka_unit_test(a_transport_header_is_found_behind_up_to_eight_extension_headers),
		cmocka_unit_test(a_cut_short_ipv6_packet_has_no_key),
		cmocka_unit_test(no_bit_that_is_flipped_makes_a_key_read_beyond_the_packet),
	};

	return cmocka_run_group_tests(tests, name_protocols, NULL);
}
