// SPDX-License-Identifier: Apache-2.0
// PPPoE headers (RFC 2516).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/cut.h"
#include "pppoe/header.h"

// Session 0x1234: LCP echo request.
static const uint8_t session_packet[] = {
	0x11, 0x00, 0x12, 0x34, 0x00, 0x0a, 0xc0, 0x21, 0x09, 0x01, 0x00, 0x08, 0, 0, 0, 0};
// PADI with an empty Service-Name: as short as there is one.
static const uint8_t padi[] = {0x11, 0x09, 0x00, 0x00, 0x00, 0x04, 0x01, 0x01, 0x00, 0x00};
// PADR: Service-Name "isp", Host-Uniq of four bytes.
static const uint8_t padr[] = {
	0x11, 0x19, 0, 0, 0, 15, 0x01, 0x01, 0, 3, 'i', 's', 'p', 0x01, 0x03, 0, 4, 0xde, 0xad, 0xbe, 0xef};

static void
a_session_packet_is_read_padded_or_not(void **state)
{
	struct pppoe_header header;
	uint8_t padded[46] = {0};

	assert_true(pppoe_parse(session_packet, sizeof(session_packet), sizeof(session_packet), &header));
	assert_int_equal(header.session, 0x1234);
	assert_int_equal(header.length, 10);
	assert_int_equal(header.code, PPPOE_SESSION_DATA);
	memcpy(padded, session_packet, sizeof(session_packet));
	assert_true(pppoe_parse(padded, sizeof(padded), sizeof(padded), &header));
	assert_int_equal(header.length, 10);
}

static void
no_truncation_of_a_packet_passes(void **state)
{
	struct pppoe_header header;

	for (size_t length = 0; length < sizeof(session_packet); length++) {
		uint8_t *packet = cut(session_packet, length);

		assert_false(pppoe_parse(packet, length, length, &header));
		free(packet);
	}
	for (size_t length = 0; length < sizeof(padr); length++) {
		uint8_t *packet = cut(padr, length);

		assert_false(pppoe_discovery_valid(packet, length, length, &header));
		free(packet);
	}
}

static void
another_version_or_type_is_not_pppoe(void **state)
{
	uint8_t packet[sizeof(session_packet)];
	struct pppoe_header header;

	for (unsigned value = 0; value < 256; value++) {
		memcpy(packet, session_packet, sizeof(packet));
		packet[0] = (uint8_t)value;
		assert_int_equal(pppoe_parse(packet, sizeof(packet), sizeof(packet), &header), value == 0x11);
	}
}

static void
the_shortest_padi_is_accepted(void **state)
{
	struct pppoe_header header;

	assert_true(pppoe_discovery_valid(padi, sizeof(padi), sizeof(padi), &header));
	assert_int_equal(header.code, PPPOE_PADI);
	assert_true(pppoe_discovery_valid(padr, sizeof(padr), sizeof(padr), &header));
}

static void
a_tag_that_is_longer_than_the_packet_is_refused(void **state)
{
	uint8_t packet[sizeof(padr)];
	struct pppoe_header header;

	for (unsigned length = 0; length < 64; length++) {
		memcpy(packet, padr, sizeof(packet));
		packet[16] = (uint8_t)length; // of Host-Uniq, which has four bytes
		assert_int_equal(pppoe_discovery_valid(packet, sizeof(packet), sizeof(packet), &header), length == 4);
	}
}

static void
tags_behind_the_end_of_list_tag_are_ignored(void **state)
{
	static const uint8_t packet[] = {0x11, 0x09, 0, 0, 0, 10, 0x01, 0x01, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	struct pppoe_header header;

	assert_true(pppoe_discovery_valid(packet, sizeof(packet), sizeof(packet), &header));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_session_packet_is_read_padded_or_not),
		cmocka_unit_test(no_truncation_of_a_packet_passes),
		cmocka_unit_test(another_version_or_type_is_not_pppoe),
		cmocka_unit_test(the_shortest_padi_is_accepted),
		cmocka_unit_test(a_tag_that_is_longer_than_the_packet_is_refused),
		cmocka_unit_test(tags_behind_the_end_of_list_tag_are_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
