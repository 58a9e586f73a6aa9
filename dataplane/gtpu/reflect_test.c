// Reflective QoS rules.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gtpu/reflect.h"
#include "ip/header.h"

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
uplink_packets_of_a_flow_find_what_its_downlink_packets_asked_for(void **state)
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
			continue; // the checksum says nothing of the flow
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
		uint8_t *bytes = malloc(length ? length : 1);

		memcpy(bytes, up4, length);
		assert_int_equal(reflect_flow(9, bytes, length, false) == 0, length < 20);
		free(bytes);
	}
	for (size_t length = 0; length <= sizeof(up6); length++) {
		uint8_t *bytes = malloc(length ? length : 1);

		memcpy(bytes, up6, length);
		assert_int_equal(reflect_flow(9, bytes, length, false) == 0, length < 40);
		free(bytes);
	}
	memcpy(fragment, up4, sizeof(fragment));
	fragment[6] = 0x20;
	assert_true(reflect_flow(9, fragment, sizeof(fragment), false) == reflect_flow(9, fragment, 20, false));
}

// Its SPI is another in each direction, and nobody but its ends knows which two belong together.
static void
esp_makes_no_rule_so_that_no_association_gets_the_flow_of_another(void **state)
{
	uint8_t esp4[24], esp6[44];

	memcpy(esp4, down4, sizeof(esp4));
	memcpy(esp6, down6, sizeof(esp6));
	esp4[9] = PROTOCOL_ESP;
	esp6[6] = PROTOCOL_ESP;
	for (int downlink = 0; downlink <= 1; downlink++) {
		assert_true(reflect_flow(3, esp4, sizeof(esp4), downlink) == 0);
		assert_true(reflect_flow(3, esp6, sizeof(esp6), downlink) == 0);
	}
	// In UDP (RFC 3948) it is a flow like another, told by its ports.
	assert_true(reflect_flow(3, down4, sizeof(down4), true) != 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(uplink_packets_of_a_flow_find_what_its_downlink_packets_asked_for),
		cmocka_unit_test(other_flows_and_other_sessions_find_nothing),
		cmocka_unit_test(a_rule_ends_with_its_timer_unless_it_is_made_again),
		cmocka_unit_test(more_flows_than_there_is_room_for_push_out_the_oldest),
		cmocka_unit_test(esp_makes_no_rule_so_that_no_association_gets_the_flow_of_another),
		cmocka_unit_test(fragments_and_truncations_are_told_without_ports_or_not_at_all),
	};

	return cmocka_run_group_tests(tests, start, NULL);
}
