// GTP-U's nodes in the whole graph: what they do not take is dropped by name, and answered where TS 29.281 says so.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gtpu/gtpu.h"
#include "gtpu/tunnel.h"
#include "session/all_sessions.h"

enum { OUTER = 20 + UDP, INNER = 20 + UDP + PAYLOAD, TEID = 20 };

static const struct subscriber four = {.name = "four",
	.mac = "02:01:00:00:00:09",
	.address4 = "100.64.0.2/32",
	.outer = 100,
	.inner = 2,
	.teid = TEID};
static const struct subscriber six = {.name = "six",
	.mac = "02:01:00:00:00:09",
	.address4 = "100.64.0.3/32",
	.outer = 100,
	.inner = 3,
	.teid = 40,
	.outer6 = true};

static int
start(void **state)
{
	return all_sessions_start(1) || put_session(&four) || put_session(&six) ? -1 : 0;
}

// A message from the UPF: GTP-U's header as given, and what follows it.
struct message {
	uint8_t flags, type;
	uint32_t teid;
	int longer; // than it is, says its length
	uint8_t rest[16];
	unsigned rest_length;
	const char *to; // then a packet to there; NULL: none
	uint16_t checksum;
};

static void
send_message(const struct message *message)
{
	unsigned payload = message->rest_length + (message->to ? INNER : 0);
	uint8_t frame[256], *at = write_core(frame, 0x0800);

	at = write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + GTPU_HEADER + payload);
	at = write_udp(at, 40000, GTPU_PORT, GTPU_HEADER + payload);
	write_word(at - 2, message->checksum);
	*at++ = message->flags;
	*at++ = message->type;
	at = write_word(at, (uint16_t)((int)payload + message->longer));
	at = write_word(write_word(at, (uint16_t)(message->teid >> 16)), (uint16_t)message->teid);
	memcpy(at, message->rest, message->rest_length);
	at += message->rest_length;
	if (message->to)
		at = write_packet4(at, "203.0.113.9", message->to, PAYLOAD);
	sent_count = 0;
	receive("core", frame, (size_t)(at - frame));
}

static void
what_is_wrong_with_a_packet_from_a_tunnel_is_named(void **state)
{
	static const struct {
		const char *drop;
		struct message message;
	} cases[] = {
		{"gtpu-truncated", {GTPU_VERSION_1, GTPU_G_PDU, TEID, 1, .to = "100.64.0.2"}},
		{"gtpu-truncated", {GTPU_VERSION_1 | GTPU_S, GTPU_G_PDU, TEID, 0, {0, 1}, 2}},
		{"gtpu-udp-checksum", {GTPU_VERSION_1, GTPU_G_PDU, TEID, .to = "100.64.0.2", .checksum = 1}},
		{"gtpu-version", {0x50, GTPU_G_PDU, TEID, .to = "100.64.0.2"}},
		{"gtpu-version", {0x20, GTPU_G_PDU, TEID, .to = "100.64.0.2"}},
		// An extension header of no length.
		{"gtpu-extension-malformed", {GTPU_VERSION_1 | GTPU_E, GTPU_G_PDU, TEID, 0,
						     {0, 0, 0, EXTENSION_PDU_SESSION_CONTAINER, 0}, 8, "100.64.0.2"}},
		{"gtpu-message-type", {GTPU_VERSION_1, 99, 0}},
		{"gtpu-inner-not-ip", {GTPU_VERSION_1, GTPU_G_PDU, TEID, 0, {0x20, 1, 2, 3}, 4}},
		{"gtpu-inner-not-ip", {GTPU_VERSION_1, GTPU_G_PDU, TEID}},
		{"gtpu-wrong-destination", {GTPU_VERSION_1, GTPU_G_PDU, TEID, .to = "100.64.0.9"}},
		{"gtpu-unknown-teid", {GTPU_VERSION_1, GTPU_END_MARKER, 77}},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint64_t before = dropped(cases[i].drop);

		send_message(&cases[i].message);
		assert_int_equal(dropped(cases[i].drop), before + 1);
		assert_int_equal(sent_to("access"), 0);
	}
	// And what is right with one.
	send_message(&(struct message){GTPU_VERSION_1, GTPU_G_PDU, TEID, .to = "100.64.0.2"});
	assert_int_equal(sent_to("access"), 1);
}

static const uint8_t *
gtpu_of(const struct sent *frame)
{
	return frame->bytes + 14 + OUTER;
}

static void
unknown_teids_at_the_same_moment_are_all_answered(void **state)
{
	enum { TEIDS = 20 };
	uint64_t before = dropped("gtpu-unknown-teid");
	unsigned answered = 0;

	for (uint32_t teid = 1000; teid < 1000 + TEIDS; teid++) {
		send_message(&(struct message){GTPU_VERSION_1, GTPU_G_PDU, teid, .to = "100.64.0.2"});
		assert_int_equal(sent_count, 1);
		answered += gtpu_of(&sent[0])[1] == GTPU_ERROR_INDICATION;
		// TEID Data I, section 8.3.
		assert_int_equal(gtpu_of(&sent[0])[12], IE_TEID_DATA);
		assert_int_equal(gtpu_of(&sent[0])[15] << 8 | gtpu_of(&sent[0])[16], teid);
	}
	assert_int_equal(answered, TEIDS);
	assert_int_equal(dropped("gtpu-unknown-teid"), before + TEIDS);
}

static void
an_echo_request_is_answered_and_one_without_room_for_the_answer_is_a_named_drop(void **state)
{
	struct message echo = {GTPU_VERSION_1, GTPU_ECHO_REQUEST, 0};
	uint64_t before = dropped("gtpu-echo-unanswerable");
	struct rte_mbuf *m = packet_new();
	uint8_t *at;

	send_message(&echo);
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(gtpu_of(&sent[0])[1], GTPU_ECHO_RESPONSE);
	// The shortest one, at the very end of its buffer.
	m->data_off = (uint16_t)(m->buf_len - OUTER - GTPU_HEADER);
	at = (uint8_t *)rte_pktmbuf_append(m, OUTER + GTPU_HEADER);
	at = write_udp(write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + GTPU_HEADER), 40000, GTPU_PORT, GTPU_HEADER);
	memcpy(at, (uint8_t[GTPU_HEADER]){GTPU_VERSION_1, GTPU_ECHO_REQUEST}, GTPU_HEADER);
	packet_of(m)->family = 4;
	inject(m, &gtpu_input_node);
	sent_count = 0;
	walk();
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("gtpu-echo-unanswerable"), before + 1);
}

// An IPv4 packet of a session for the tunnel.
static void
encapsulate(const char *name, const struct node *node, uint16_t headroom)
{
	struct rte_mbuf *m = packet_new();

	m->data_off = headroom;
	write_packet4((uint8_t *)rte_pktmbuf_append(m, INNER), "100.64.0.2", "203.0.113.9", PAYLOAD);
	packet_of(m)->session = session_of(object_find(&session_kind, name));
	packet_of(m)->family = 4;
	inject(m, node);
	sent_count = 0;
	walk();
}

static void
a_packet_without_room_for_the_tunnel_s_header_is_a_named_drop(void **state)
{
	uint64_t before = dropped("gtpu-no-headroom");

	encapsulate("four", &gtpu_encap_node, GTPU_ENCAP6 - 1);
	assert_int_equal(dropped("gtpu-no-headroom"), before + 1);
	encapsulate("six", &gtpu_encap6_node, GTPU_ENCAP6 - 1);
	assert_int_equal(dropped("gtpu-no-headroom"), before + 2);
	assert_int_equal(sent_count, 0);
	encapsulate("four", &gtpu_encap_node, 128);
	assert_int_equal(sent_to("core"), 1);
	encapsulate("six", &gtpu_encap6_node, 128);
	assert_int_equal(sent_to("core"), 1);
	// In the other node than its own, as while a session changes its tunnel's IP version.
	encapsulate("six", &gtpu_encap_node, 128);
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(sent[0].bytes[12] << 8 | sent[0].bytes[13], 0x86dd);
}

static void
a_packet_too_large_for_its_way_with_the_header_is_a_named_drop_and_its_sender_is_told(void **state)
{
	enum { PACKET = 1480 };
	uint8_t frame[2048], *ip = write_access(frame, 100, 2, 0x0800), *end;
	struct ip4_header header;
	uint64_t before = dropped("gtpu-too-large");

	end = write_packet4(ip, "100.64.0.2", "203.0.113.9", PACKET - 20 - UDP);
	memcpy(&header, ip, sizeof(header));
	header.fragment = htons(IP4_DF);
	header.checksum = ip4_checksum(&header);
	memcpy(ip, &header, sizeof(header));
	sent_count = 0;
	receive("access", frame, (size_t)(end - frame));
	assert_int_equal(dropped("gtpu-too-large"), before + 1);
	assert_int_equal(sent_to("core"), 0);
	assert_int_equal(sent_to("access"), 1);
	// ICMP unreachable, fragmentation needed, and the MTU that is left.
	assert_int_equal(sent[0].bytes[QINQ + 20], 3);
	assert_int_equal(sent[0].bytes[QINQ + 21], 4);
	assert_int_equal(sent[0].bytes[QINQ + 26] << 8 | sent[0].bytes[QINQ + 27], 1500 - GTPU_ENCAP4);
}

// ---- Derived rules.

enum {
	CONTAINER_AT = 14 + OUTER + GTPU_HEADER + 4,
	CONTAINER = 8,
	BEFORE_INNER = GTPU_HEADER + CONTAINER,
	ASKED_FOR = 33
};

static const struct subscriber derives = {.name = "derives",
	.mac = "02:01:00:00:00:09",
	.address4 = "100.64.0.4/32",
	.outer = 100,
	.inner = 4,
	.teid = 60,
	.reflective = true};

// With a PDU session container that has the RQI set. The packet is to the same port that the subscriber's are from, or to another.
static void
send_reflective(bool same)
{
	uint8_t frame[256], *at = write_core(frame, 0x0800), *udp;

	at = write_udp(write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + BEFORE_INNER + INNER), 40000, GTPU_PORT,
		BEFORE_INNER + INNER);
	memcpy(at,
		(uint8_t[]){
			0x34, GTPU_G_PDU, 0, INNER + CONTAINER, 0, 0, 0, 60, 0, 0, 0, 0x85, 1, 0, 0x40 | ASKED_FOR, 0},
		BEFORE_INNER);
	at = write_packet4(at + BEFORE_INNER, "203.0.113.9", "100.64.0.4", PAYLOAD);
	udp = at - PAYLOAD - UDP;
	write_word(write_word(udp, 5000), same ? 4000 : 4001);
	sent_count = 0;
	receive("core", frame, (size_t)(at - frame));
	assert_int_equal(sent_to("access"), 1);
}

// The QFI of a packet of the subscriber's.
static uint8_t
qfi_up(void)
{
	send_up(100, 4, "100.64.0.4");
	assert_int_equal(sent_to("core"), 1);
	return sent[0].bytes[CONTAINER_AT + 2] & 0x3f;
}

static void
a_session_that_is_changed_keeps_its_derived_rules(void **state)
{
	struct subscriber changed = derives;

	assert_int_equal(put_session(&derives), 0);
	assert_int_equal(qfi_up(), 9);
	send_reflective(true);
	assert_int_equal(qfi_up(), ASKED_FOR);
	changed.mtu = 1400;
	assert_int_equal(put_session(&changed), 0);
	assert_int_equal(qfi_up(), ASKED_FOR);
	assert_int_equal(delete_session("derives"), 0);
}

static void
a_session_that_stops_deriving_rules_or_ends_leaves_none_to_who_has_its_number_after(void **state)
{
	struct subscriber without = derives;
	uint32_t index;

	without.reflective = false;
	assert_int_equal(put_session(&derives), 0);
	index = session_of(object_find(&session_kind, "derives"));
	assert_int_equal(qfi_up(), 9);
	send_reflective(true);
	assert_int_equal(qfi_up(), ASKED_FOR);
	assert_int_equal(put_session(&without), 0);
	assert_int_equal(qfi_up(), 9);
	assert_int_equal(put_session(&derives), 0);
	send_reflective(false);
	assert_int_equal(qfi_up(), 9);
	send_reflective(true);
	assert_int_equal(delete_session("derives"), 0);
	assert_int_equal(put_session(&derives), 0);
	while (session_of(object_find(&session_kind, "derives")) != index) {
		assert_int_equal(delete_session("derives"), 0);
		walk();
		// The numbers have rested.
		for (uint32_t i = 0; i < sessions.resting_room; i++)
			sessions.resting[i].since = 0;
		assert_int_equal(put_session(&derives), 0);
	}
	assert_int_equal(qfi_up(), 9);
	send_reflective(false);
	assert_int_equal(qfi_up(), 9);
	send_reflective(true);
	assert_int_equal(qfi_up(), ASKED_FOR);
	assert_int_equal(delete_session("derives"), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_wrong_with_a_packet_from_a_tunnel_is_named),
		cmocka_unit_test(unknown_teids_at_the_same_moment_are_all_answered),
		cmocka_unit_test(an_echo_request_is_answered_and_one_without_room_for_the_answer_is_a_named_drop),
		cmocka_unit_test(a_packet_without_room_for_the_tunnel_s_header_is_a_named_drop),
		cmocka_unit_test(a_session_that_is_changed_keeps_its_derived_rules),
		cmocka_unit_test(a_session_that_stops_deriving_rules_or_ends_leaves_none_to_who_has_its_number_after),
		cmocka_unit_test(a_packet_too_large_for_its_way_with_the_header_is_a_named_drop_and_its_sender_is_told),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
