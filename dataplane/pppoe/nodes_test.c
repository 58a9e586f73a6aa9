// SPDX-License-Identifier: Apache-2.0
// PPPoE's nodes in the whole graph: the session of a frame, and the drop reasons of malformed ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pppoe/header.h"
#include "punt.pb-c.h"
#include "session/all_sessions.h"

enum { SESSION_ID = 0x1234, DISCOVERY = 0x8863, SESSION = 0x8864, INNER = 20 + UDP + PAYLOAD };

static const struct subscriber subscriber = {.name = "pppoe",
	.mac = "02:01:00:00:00:09",
	.address4 = "100.64.0.1/32",
	.outer = 100,
	.inner = 1,
	.pppoe = SESSION_ID};

static int
start(void **state)
{
	Sluice__V1__Punt punt = SLUICE__V1__PUNT__INIT;
	Sluice__V1__PuntProtocol protocols[] = {SLUICE__V1__PUNT_PROTOCOL__PPPOE_DISCOVERY};

	punt.port = "access";
	punt.outer_vlans = punt.inner_vlans = (char *[]){"1-4094"};
	punt.n_outer_vlans = punt.n_inner_vlans = 1;
	punt.protocols = protocols;
	punt.n_protocols = 1;
	return all_sessions_start(1) || put_session(&subscriber) || put("Punt", "pppoe", &punt) ? -1 : 0;
}

struct frame {
	uint16_t type;
	uint8_t version_type, code;
	uint16_t id;
	uint16_t length; // the length field
	uint8_t payload[8];
	unsigned payload_length;
};

static void
send_frame(const struct frame *f)
{
	uint8_t bytes[64], *at = write_access(bytes, 100, 1, f->type);

	*at++ = f->version_type;
	*at++ = f->code;
	at = write_word(write_word(at, f->id), f->length);
	memcpy(at, f->payload, f->payload_length);
	sent_count = 0;
	receive("access", bytes, (size_t)(at - bytes) + f->payload_length);
}

static void
session_data_to_a_group_is_dropped(void **state)
{
	uint64_t before = dropped("pppoe-to-group");
	uint8_t bytes[64] = {0}, *at = write_access(bytes, 100, 1, SESSION);

	write_word(write_word(write_word(at, 0x1100), SESSION_ID), 2);
	memset(bytes, 0xff, RTE_ETHER_ADDR_LEN);
	receive("access", bytes, sizeof(bytes));
	assert_int_equal(dropped("pppoe-to-group"), before + 1);
}

static void
malformed_frames_have_drop_reasons(void **state)
{
	static const struct {
		const char *drop;
		struct frame frame;
	} cases[] = {
		{"pppoe-malformed", {SESSION, 0x11, 0, SESSION_ID, 3, {0, 0x21}, 2}},
		{"pppoe-malformed", {SESSION, 0x12, 0, SESSION_ID, 2, {0, 0x21}, 2}},
		{"pppoe-malformed", {SESSION, 0x11, PPPOE_PADT, SESSION_ID, 2, {0, 0x21}, 2}},
		{"pppoe-malformed", {SESSION, 0x11, 0, SESSION_ID, 1, {0, 0x21}, 2}},
		{"pppoe-unknown-session", {SESSION, 0x11, 0, SESSION_ID + 1, 2, {0, 0x21}, 2}},
		{"pppoe-discovery-malformed", {DISCOVERY, 0x11, PPPOE_PADI, 0, 9, {1, 1, 0, 0}, 4}},
		{"pppoe-discovery-malformed", {DISCOVERY, 0x11, PPPOE_PADI, 0, 4, {1, 1, 0, 9}, 4}},
		{"pppoe-discovery-malformed", {DISCOVERY, 0x11, PPPOE_PADI, 0, 2, {1, 1}, 2}},
		// PADO and PADS: messages of access concentrators.
		{"pppoe-discovery-code", {DISCOVERY, 0x11, 0x07, 0, 4, {1, 1, 0, 0}, 4}},
		{"pppoe-discovery-code", {DISCOVERY, 0x11, 0x65, 1, 4, {1, 1, 0, 0}, 4}},
		// Valid, without a watching client.
		{"punt-not-watched", {DISCOVERY, 0x11, PPPOE_PADI, 0, 4, {1, 1, 0, 0}, 4}},
		{"punt-not-watched", {SESSION, 0x11, 0, SESSION_ID, 6, {0xc0, 0x21, 9, 1, 0, 4}, 6}},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint64_t before = dropped(cases[i].drop);

		send_frame(&cases[i].frame);
		assert_int_equal(dropped(cases[i].drop), before + 1);
		assert_int_equal(sent_count, 0);
	}
}

static void
send_ip(uint8_t mac)
{
	uint8_t bytes[256], *at = write_access(bytes, 100, 1, SESSION);

	bytes[11] = mac;
	*at++ = 0x11;
	*at++ = 0;
	at = write_word(write_word(write_word(at, SESSION_ID), INNER + 2), PPP_IP4);
	at = write_packet4(at, "100.64.0.1", "203.0.113.9", PAYLOAD);
	sent_count = 0;
	receive("access", bytes, (size_t)(at - bytes));
}

static void
a_session_s_packets_go_on_and_those_of_another_ethernet_address_are_named_drops(void **state)
{
	uint64_t before = dropped("session-mac");

	send_ip(9);
	assert_int_equal(sent_to("core"), 1);
	send_ip(8);
	assert_int_equal(sent_to("core"), 0);
	assert_int_equal(dropped("session-mac"), before + 1);
}

enum { MAGIC = 0x01020304, LCP_AT = 22 + 6 + 2 };

// An LCP packet of the session, with this length field.
static unsigned
write_lcp(uint8_t *bytes, uint8_t code, uint16_t said, uint32_t magic, unsigned data)
{
	uint8_t *at = write_access(bytes, 100, 1, SESSION);

	*at++ = 0x11;
	*at++ = 0;
	at = write_word(write_word(at, SESSION_ID), (uint16_t)(2 + 8 + data));
	at = write_word(at, PPP_LCP);
	*at++ = code;
	*at++ = 77;
	at = write_word(at, said);
	at = write_word(write_word(at, (uint16_t)(magic >> 16)), (uint16_t)magic);
	memset(at, 0x5a, data);
	return (unsigned)(at - bytes) + data;
}

static void
assert_up(const uint8_t *bytes, unsigned length)
{
	uint64_t before = dropped("punt-not-watched");

	sent_count = 0;
	receive("access", bytes, length);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("punt-not-watched"), before + 1);
}

static void
an_lcp_echo_of_a_session_with_a_magic_number_is_answered_here(void **state)
{
	struct subscriber with = subscriber;
	uint8_t request[128], expected[128];
	unsigned length = write_lcp(request, 9, 8 + 5, 0x0a0b0c0d, 5);

	request[11] = 9;
	assert_up(request, length);
	with.lcp_magic = MAGIC;
	assert_int_equal(put_session(&with), 0);
	memcpy(expected, request, length);
	memcpy(expected, request + 6, 6);
	memcpy(expected + 6, request, 6);
	expected[LCP_AT] = 10;
	write_word(write_word(expected + LCP_AT + 4, MAGIC >> 16), MAGIC & 0xffff);
	sent_count = 0;
	// Padding is not sent back.
	memset(request + length, 0xee, 10);
	receive("access", request, length + 10);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent_to("access"), 1);
	assert_int_equal(sent[0].length, length);
	assert_memory_equal(sent[0].bytes, expected, length);
	assert_int_equal(put_session(&subscriber), 0);
	assert_up(request, length);
}

static void
all_but_echo_requests_of_the_subscriber_goes_to_the_agent(void **state)
{
	// Few, because the packets of a session to the agent are limited.
	static const uint8_t codes[] = {0, 1, 5, 8, 10, 255};
	static const uint16_t lengths[] = {0, 4, 7, 13, 0xffff};
	struct subscriber with = subscriber;
	uint8_t bytes[128];
	unsigned length;

	with.lcp_magic = MAGIC;
	assert_int_equal(put_session(&with), 0);
	// Other codes, a loop, lengths that do not fit, another host's MAC.
	for (unsigned i = 0; i < RTE_DIM(codes); i++) {
		length = write_lcp(bytes, codes[i], 8, 1, 0);
		bytes[11] = 9;
		assert_up(bytes, length);
	}
	length = write_lcp(bytes, 9, 8, MAGIC, 0);
	bytes[11] = 9;
	assert_up(bytes, length);
	for (unsigned i = 0; i < RTE_DIM(lengths); i++) {
		length = write_lcp(bytes, 9, lengths[i], 1, 4);
		bytes[11] = 9;
		assert_up(bytes, length);
	}
	length = write_lcp(bytes, 9, 8, 1, 0);
	bytes[11] = 8;
	assert_up(bytes, length);
	assert_int_equal(put_session(&subscriber), 0);
}

static void
a_flood_of_lcp_echoes_is_a_named_drop(void **state)
{
	struct subscriber with = subscriber;
	uint8_t request[128], bytes[128];
	unsigned length = write_lcp(request, 9, 8, 1, 0), answers = 0;
	uint64_t before = dropped("lcp-echo-rate-limited");

	request[11] = 9;
	with.lcp_magic = MAGIC;
	assert_int_equal(put_session(&with), 0);
	for (unsigned i = 0; i < 2000; i++) {
		memcpy(bytes, request, length);
		sent_count = 0;
		receive("access", bytes, length);
		answers += sent_count;
	}
	assert_in_range(answers, 1, 400);
	assert_int_equal(dropped("lcp-echo-rate-limited"), before + 2000 - answers);
	assert_int_equal(put_session(&subscriber), 0);
}

static void
a_packet_to_a_subscriber_with_an_unknown_ethernet_address_is_a_named_drop(void **state)
{
	struct subscriber unknown = subscriber;
	uint64_t before = dropped("session-mac-unknown");

	unknown.name = "unknown";
	unknown.mac = NULL;
	unknown.address4 = "100.64.0.2/32";
	unknown.pppoe = SESSION_ID + 2;
	assert_int_equal(put_session(&unknown), 0);
	send_down("100.64.0.2", PAYLOAD);
	assert_int_equal(dropped("session-mac-unknown"), before + 1);
	assert_int_equal(sent_count, 0);
	assert_int_equal(delete_session("unknown"), 0);
}

static void
a_session_that_goes_takes_its_id_along_and_leaves_those_beside_it(void **state)
{
	struct subscriber second = subscriber;
	uint64_t before;

	second.name = "second";
	second.address4 = "100.64.0.3/32";
	second.pppoe = SESSION_ID + 1;
	assert_int_equal(put_session(&second), 0);
	send_ip(9);
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(delete_session("pppoe"), 0);
	before = dropped("pppoe-unknown-session");
	send_ip(9);
	assert_int_equal(sent_to("core"), 0);
	assert_int_equal(dropped("pppoe-unknown-session"), before + 1);
	second.name = "third";
	second.address4 = "100.64.0.4/32";
	assert_int_equal(put_session(&second), -EEXIST);
	assert_non_null(strstr(fault_of_put.text, "\"second\""));
	assert_int_equal(put_session(&subscriber), 0);
	send_ip(9);
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(delete_session("second"), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(malformed_frames_have_drop_reasons),
		cmocka_unit_test(session_data_to_a_group_is_dropped),
		cmocka_unit_test(a_session_s_packets_go_on_and_those_of_another_ethernet_address_are_named_drops),
		cmocka_unit_test(an_lcp_echo_of_a_session_with_a_magic_number_is_answered_here),
		cmocka_unit_test(all_but_echo_requests_of_the_subscriber_goes_to_the_agent),
		cmocka_unit_test(a_flood_of_lcp_echoes_is_a_named_drop),
		cmocka_unit_test(a_packet_to_a_subscriber_with_an_unknown_ethernet_address_is_a_named_drop),
		cmocka_unit_test(a_session_that_goes_takes_its_id_along_and_leaves_those_beside_it),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
