// SPDX-License-Identifier: Apache-2.0
// ARP messages: which are taken, and that nothing behind their end is read.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "neighbor/arp.h"

static const uint8_t request[] = {0, 1, 8, 0, 6, 4, 0, 1,                // Ethernet, IPv4, request
	2, 0, 0, 0, 0, 7, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1}; // who has 192.0.2.1, tell 192.0.2.7

// The message with the byte at `at` set to `value`.
static enum arp_fault
changed(size_t at, uint8_t value)
{
	uint8_t message[sizeof(request)];

	memcpy(message, request, sizeof(message));
	message[at] = value;
	return arp_check(message, sizeof(message));
}

static void
a_request_and_a_reply_are_taken(void **state)
{
	assert_int_equal(arp_check(request, sizeof(request)), ARP_OK);
	assert_int_equal(changed(7, 2), ARP_OK);
}

static void
every_truncation_is_refused_without_reading_past_its_end(void **state)
{
	for (size_t length = 0; length < sizeof(request); length++) {
		// An allocation of its own, so that a sanitizer sees a byte too many.
		uint8_t *message = malloc(length ? length : 1);

		memcpy(message, request, length);
		assert_int_equal(arp_check(message, length), ARP_TRUNCATED);
		free(message);
	}
}

static void
padding_behind_the_message_does_not_matter(void **state)
{
	uint8_t frame[46] = {0};

	memcpy(frame, request, sizeof(request));
	assert_int_equal(arp_check(frame, sizeof(frame)), ARP_OK);
}

static void
other_hardware_protocols_and_lengths_are_refused(void **state)
{
	assert_int_equal(changed(1, 6), ARP_FORMAT);
	assert_int_equal(changed(2, 0x86), ARP_FORMAT);
	assert_int_equal(changed(4, 8), ARP_FORMAT);
	assert_int_equal(changed(5, 16), ARP_FORMAT);
}

static void
operations_that_are_neither_request_nor_reply_are_refused(void **state)
{
	assert_int_equal(changed(7, 0), ARP_OPERATION);
	assert_int_equal(changed(7, 3), ARP_OPERATION);
	assert_int_equal(changed(6, 1), ARP_OPERATION);
}

static void
senders_that_no_host_can_be_are_refused(void **state)
{
	uint8_t message[sizeof(request)];

	assert_int_equal(changed(8, 3), ARP_SENDER);    // a group's Ethernet address
	assert_int_equal(changed(14, 224), ARP_SENDER); // multicast
	assert_int_equal(changed(14, 255), ARP_SENDER);
	assert_int_equal(changed(14, 127), ARP_SENDER);
	assert_int_equal(changed(14, 0), ARP_SENDER); // 0.0.2.7
	memcpy(message, request, sizeof(message));
	memset(message + 8, 0, 6);
	assert_int_equal(arp_check(message, sizeof(message)), ARP_SENDER);
}

static void
only_a_request_may_have_no_source(void **state)
{
	uint8_t message[sizeof(request)];

	memcpy(message, request, sizeof(message));
	memset(message + 14, 0, 4);
	assert_int_equal(arp_check(message, sizeof(message)), ARP_OK);
	message[7] = 2;
	assert_int_equal(arp_check(message, sizeof(message)), ARP_SENDER);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_request_and_a_reply_are_taken),
		cmocka_unit_test(every_truncation_is_refused_without_reading_past_its_end),
		cmocka_unit_test(padding_behind_the_message_does_not_matter),
		cmocka_unit_test(other_hardware_protocols_and_lengths_are_refused),
		cmocka_unit_test(operations_that_are_neither_request_nor_reply_are_refused),
		cmocka_unit_test(senders_that_no_host_can_be_are_refused),
		cmocka_unit_test(only_a_request_may_have_no_source),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
