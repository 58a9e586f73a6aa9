// SPDX-License-Identifier: Apache-2.0
// Neighbour discovery messages: which are valid (RFC 4861 sections 6.1 and 7.1), and that nothing behind their end is read.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inet/header.h"
#include "neighbor/nd.h"
#include "neighbor/neighbor.h"

enum {
	IP = 40,
	SOLICITATION = 32,
	ICMP = IP,
	FLAGS = IP + 4,
	TARGET = IP + 8,
	OPTION = IP + 24,
	MESSAGE_MAX = IP + 64
};

static const uint8_t router[16] = {0xfe, 0x80, [15] = 1}, host[16] = {0xfe, 0x80, [15] = 2},
		     group[16] = {0xff, 0x02, [11] = 1, [12] = 0xff, [15] = 1}, nobody[16];

struct sample {
	uint8_t bytes[MESSAGE_MAX];
	size_t length;
};

static void
set_checksum(struct sample *s)
{
	uint8_t *icmp = s->bytes + ICMP;
	uint32_t length = (uint32_t)s->length - IP;
	uint16_t sum;

	icmp[2] = icmp[3] = 0;
	sum = (uint16_t)~checksum_fold(
		checksum_add(ip6_pseudo_sum(s->bytes + 8, s->bytes + 24, length, PROTOCOL_ICMP6), icmp, length));
	memcpy(icmp + 2, &sum, 2);
}

// A message of `payload` bytes, its target the router, with a link-layer address if there is room.
static struct sample
make(uint8_t type, const uint8_t source[16], const uint8_t destination[16], size_t payload)
{
	struct sample s = {.length = IP + payload};

	s.bytes[0] = 0x60;
	s.bytes[5] = (uint8_t)payload;
	s.bytes[6] = PROTOCOL_ICMP6;
	s.bytes[7] = 255;
	memcpy(s.bytes + 8, source, 16);
	memcpy(s.bytes + 24, destination, 16);
	s.bytes[ICMP] = type;
	if (payload >= 24)
		memcpy(s.bytes + TARGET, router, 16);
	if (payload == SOLICITATION)
		memcpy(s.bytes + OPTION, (uint8_t[]){type == ND_ADVERTISEMENT ? 2 : 1, 1, 2, 0, 0, 0, 0, 7}, 8);
	set_checksum(&s);
	return s;
}

// As the sample is, in an allocation of its own, so that a sanitizer sees a byte too many.
static enum nd_fault
check(const struct sample *s)
{
	uint8_t *bytes = malloc(s->length ? s->length : 1);
	struct nd_message said;
	enum nd_fault wrong;

	memcpy(bytes, s->bytes, s->length);
	wrong = nd_check(bytes, s->length, &said);
	free(bytes);
	return wrong;
}

static enum nd_fault
changed(struct sample s, size_t at, uint8_t value)
{
	s.bytes[at] = value;
	set_checksum(&s);
	return check(&s);
}

static void
a_solicitation_has_source_and_target(void **state)
{
	struct sample s = make(ND_SOLICITATION, host, group, SOLICITATION);
	struct nd_message said;

	assert_int_equal(nd_check(s.bytes, s.length, &said), ND_OK);
	assert_int_equal(said.type, ND_SOLICITATION);
	assert_memory_equal(said.target, router, 16);
	assert_memory_equal(said.link_layer, ((uint8_t[]){2, 0, 0, 0, 0, 7}), 6);
}

static void
each_kind_of_message_is_taken(void **state)
{
	struct sample s = make(ND_ADVERTISEMENT, host, router, SOLICITATION);

	assert_int_equal(check(&s), ND_OK);
	s = make(ND_ADVERTISEMENT, host, router, 24);
	assert_int_equal(check(&s), ND_OK);
	s = make(ND_SOLICITATION, nobody, group, 24);
	assert_int_equal(check(&s), ND_OK);
	s = make(ND_ROUTER_SOLICITATION, host, group, 8);
	assert_int_equal(check(&s), ND_OK);
	s = make(ND_ROUTER_ADVERTISEMENT, host, group, 16);
	assert_int_equal(check(&s), ND_OK);
	s = make(ND_REDIRECT, host, router, 40);
	assert_int_equal(check(&s), ND_OK);
}

static void
every_truncation_is_refused_without_reading_past_its_end(void **state)
{
	const uint8_t types[] = {
		ND_ROUTER_SOLICITATION, ND_ROUTER_ADVERTISEMENT, ND_SOLICITATION, ND_ADVERTISEMENT, ND_REDIRECT};
	const size_t payloads[] = {8, 16, 32, 32, 40};

	for (size_t i = 0; i < sizeof(types); i++) {
		struct sample s = make(types[i], host, router, payloads[i]);

		// As if the frame had been cut ...
		for (; s.length-- > 0;)
			assert_int_equal(check(&s), ND_TRUNCATED);
		// ... and as if the sender had left the end off.
		for (size_t payload = 0; payload < payloads[i]; payload++) {
			s = make(types[i], host, router, payloads[i]);
			s.length = IP + payload;
			s.bytes[5] = (uint8_t)payload;
			if (payload >= 4)
				set_checksum(&s);
			if (payload != 24 || payloads[i] != 32)
				assert_int_not_equal(check(&s), ND_OK);
		}
	}
}

static void
every_flipped_bit_of_a_message_is_noticed(void **state)
{
	struct sample s = make(ND_SOLICITATION, host, group, SOLICITATION);

	for (size_t bit = 8 * 8; bit < s.length * 8; bit++) {
		s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(check(&s), ND_OK);
		s.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	assert_int_equal(check(&s), ND_OK);
}

static void
a_message_that_passed_a_router_is_refused(void **state)
{
	struct sample s = make(ND_SOLICITATION, host, group, SOLICITATION);

	assert_int_equal(changed(s, 7, 254), ND_HOP_LIMIT);
	assert_int_equal(changed(s, 7, 64), ND_HOP_LIMIT);
}

static void
a_code_that_is_not_zero_is_refused(void **state)
{
	assert_int_equal(changed(make(ND_SOLICITATION, host, group, SOLICITATION), ICMP + 1, 1), ND_CODE);
}

static void
options_of_no_length_or_past_the_end_are_refused(void **state)
{
	struct sample s = make(ND_SOLICITATION, host, group, SOLICITATION);

	assert_int_equal(changed(s, OPTION + 1, 0), ND_OPTION);
	assert_int_equal(changed(s, OPTION + 1, 2), ND_OPTION);
	assert_int_equal(changed(s, OPTION + 1, 255), ND_OPTION);
	assert_int_equal(changed(s, OPTION + 2, 1), ND_OPTION); // a group's Ethernet address
}

static void
options_that_are_not_known_are_passed_over(void **state)
{
	struct sample s = make(ND_SOLICITATION, host, group, SOLICITATION);

	assert_int_equal(changed(s, OPTION, 14), ND_OK); // a nonce (RFC 3971)
}

static void
a_target_must_be_one_host(void **state)
{
	assert_int_equal(changed(make(ND_SOLICITATION, host, group, SOLICITATION), TARGET, 0xff), ND_TARGET);
	assert_int_equal(changed(make(ND_ADVERTISEMENT, host, router, SOLICITATION), TARGET, 0xff), ND_TARGET);
}

static void
a_host_without_an_address_asks_the_group_and_does_not_say_where_it_is(void **state)
{
	struct sample s = make(ND_SOLICITATION, nobody, group, SOLICITATION);

	assert_int_equal(check(&s), ND_SOURCE);
	s = make(ND_SOLICITATION, nobody, router, 24);
	assert_int_equal(check(&s), ND_SOURCE);
}

static void
an_advertisement_to_all_is_unsolicited(void **state)
{
	struct sample s = make(ND_ADVERTISEMENT, host, group, SOLICITATION);

	assert_int_equal(changed(s, FLAGS, ND_SOLICITED), ND_FLAGS);
	assert_int_equal(changed(s, FLAGS, ND_OVERRIDE), ND_OK);
}

static void
the_link_local_address_is_made_of_the_mac(void **state)
{
	const struct rte_ether_addr mac = {{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}};
	const uint8_t expected[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55};
	uint8_t address[16];

	link_local_of(&mac, address);
	assert_memory_equal(address, expected, 16);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_solicitation_has_source_and_target),
		cmocka_unit_test(each_kind_of_message_is_taken),
		cmocka_unit_test(every_truncation_is_refused_without_reading_past_its_end),
		cmocka_unit_test(every_flipped_bit_of_a_message_is_noticed),
		cmocka_unit_test(a_message_that_passed_a_router_is_refused),
		cmocka_unit_test(a_code_that_is_not_zero_is_refused),
		cmocka_unit_test(options_of_no_length_or_past_the_end_are_refused),
		cmocka_unit_test(options_that_are_not_known_are_passed_over),
		cmocka_unit_test(a_target_must_be_one_host),
		cmocka_unit_test(a_host_without_an_address_asks_the_group_and_does_not_say_where_it_is),
		cmocka_unit_test(an_advertisement_to_all_is_unsolicited),
		cmocka_unit_test(the_link_local_address_is_made_of_the_mac),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
