// PPPoE's nodes in the whole graph: whose a frame is, and what is wrong with one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pppoe/header.h"
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
	return all_sessions_start(1) || put_session(&subscriber) ? -1 : 0;
}

struct frame {
	uint16_t type;
	uint8_t version_type, code;
	uint16_t id;
	uint16_t length; // as it says
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
what_is_wrong_with_a_frame_is_named(void **state)
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
		// PADO and PADS: what access concentrators send.
		{"pppoe-discovery-code", {DISCOVERY, 0x11, 0x07, 0, 4, {1, 1, 0, 0}, 4}},
		{"pppoe-discovery-code", {DISCOVERY, 0x11, 0x65, 1, 4, {1, 1, 0, 0}, 4}},
		// Right, and nobody listens.
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

static void
a_packet_to_a_subscriber_whose_ethernet_address_nobody_knows_is_a_named_drop(void **state)
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
		cmocka_unit_test(what_is_wrong_with_a_frame_is_named),
		cmocka_unit_test(a_session_s_packets_go_on_and_those_of_another_ethernet_address_are_named_drops),
		cmocka_unit_test(a_packet_to_a_subscriber_whose_ethernet_address_nobody_knows_is_a_named_drop),
		cmocka_unit_test(a_session_that_goes_takes_its_id_along_and_leaves_those_beside_it),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
