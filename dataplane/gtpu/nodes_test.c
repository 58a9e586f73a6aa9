// SPDX-License-Identifier: Apache-2.0
// GTP-U's nodes in the whole graph: refused packets are dropped by name, and answered where TS 29.281 requires it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <rte_ip.h>

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

// A message from the UPF: GTP-U's header as given, and its payload.
struct message {
	uint8_t flags, type;
	uint32_t teid;
	int longer; // the excess of the length field
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
malformed_packets_of_a_tunnel_have_drop_reasons(void **state)
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
	// A correct message.
	send_message(&(struct message){GTPU_VERSION_1, GTPU_G_PDU, TEID, .to = "100.64.0.2"});
	assert_int_equal(sent_to("access"), 1);
}

// A frame whose checksums the device found to be right.
static void
receive_checked(const uint8_t *frame, size_t length)
{
	struct rte_mbuf *m = packet_new();

	memcpy(rte_pktmbuf_append(m, (uint16_t)length), frame, length);
	m->port = packet_of(m)->port = port_number("core");
	m->ol_flags |= RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	node_edge(&inject_node, node_by_id(node_arrival));
	inject(m, node_by_id(node_arrival));
	walk();
}

// Only an inner header with options is checked by the device's flags.
static void
a_wrong_checksum_in_a_tunnel_is_a_named_drop_with_any_flags_of_the_outer_ones(void **state)
{
	enum { OPTIONS = 4, INNER_WITH_OPTIONS = INNER + OPTIONS };
	uint64_t before = dropped("ip4-checksum");
	uint8_t frame[256], *at = write_core(frame, 0x0800), *inner;
	struct ip4_header ip;

	at = write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + GTPU_HEADER + INNER_WITH_OPTIONS);
	at = write_udp(at, 40000, GTPU_PORT, GTPU_HEADER + INNER_WITH_OPTIONS);
	*at++ = GTPU_VERSION_1;
	*at++ = GTPU_G_PDU;
	inner = write_word(write_word(write_word(at, INNER_WITH_OPTIONS), 0), TEID);
	write_packet4(inner, "203.0.113.9", "100.64.0.2", PAYLOAD);
	memmove(inner + sizeof(ip) + OPTIONS, inner + sizeof(ip), INNER - sizeof(ip));
	memset(inner + sizeof(ip), 1, OPTIONS); // no operation
	memcpy(&ip, inner, sizeof(ip));
	ip.version_ihl = 0x46;
	ip.total_length = htons(INNER_WITH_OPTIONS);
	ip.checksum = 0;
	memcpy(inner, &ip, sizeof(ip));
	ip.checksum = (uint16_t)~rte_raw_cksum(inner, sizeof(ip) + OPTIONS);
	for (unsigned wrong = 0; wrong <= 1; wrong++) {
		ip.checksum ^= (uint16_t)wrong;
		memcpy(inner, &ip, sizeof(ip));
		sent_count = 0;
		receive_checked(frame, (size_t)(inner + INNER_WITH_OPTIONS - frame));
		assert_int_equal(dropped("ip4-checksum"), before + wrong);
		assert_int_equal(sent_to("access"), !wrong);
	}
}

static void
a_wrong_checksum_of_a_packet_in_fragments_is_a_named_drop_with_any_flags_of_the_fragments(void **state)
{
	enum { FIRST = 48, ALL = UDP + GTPU_HEADER + INNER };
	uint8_t whole[256], frame[256], *at = write_core(whole, 0x0800), *payload;
	uint64_t before = dropped("gtpu-udp-checksum");

	payload = write_ip4(at, "192.0.2.2", "192.0.2.1", ALL);
	at = write_udp(payload, 40000, GTPU_PORT, GTPU_HEADER + INNER);
	write_word(at - 2, 1);
	*at++ = GTPU_VERSION_1;
	*at++ = GTPU_G_PDU;
	at = write_word(write_word(write_word(at, INNER), 0), TEID);
	write_packet4(at, "203.0.113.9", "100.64.0.2", PAYLOAD);
	sent_count = 0;
	for (unsigned last = 0; last <= 1; last++) {
		unsigned length = last ? ALL - FIRST : FIRST;
		struct ip4_header ip;

		memcpy(&ip, whole + RTE_ETHER_HDR_LEN, sizeof(ip));
		ip.id = htons(7);
		ip.total_length = htons((uint16_t)(sizeof(ip) + length));
		ip.fragment = htons(last ? FIRST / 8 : IP4_MF);
		ip.checksum = 0;
		ip.checksum = ip4_checksum(&ip);
		memcpy(frame, whole, RTE_ETHER_HDR_LEN);
		memcpy(frame + RTE_ETHER_HDR_LEN, &ip, sizeof(ip));
		memcpy(frame + RTE_ETHER_HDR_LEN + sizeof(ip), payload + (last ? FIRST : 0), length);
		receive_checked(frame, RTE_ETHER_HDR_LEN + sizeof(ip) + length);
	}
	assert_int_equal(dropped("gtpu-udp-checksum"), before + 1);
	assert_int_equal(sent_to("access"), 0);
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

enum { INNER6 = 56 };

// A packet in a tunnel from the UPF's end of the PDU session.
static void
send_inner(uint32_t teid, const uint8_t inner[INNER6])
{
	uint8_t frame[256], *at = write_core(frame, 0x0800);

	at = write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + GTPU_HEADER + INNER6);
	at = write_udp(at, 40000, GTPU_PORT, GTPU_HEADER + INNER6);
	*at++ = GTPU_VERSION_1;
	*at++ = GTPU_G_PDU;
	at = write_word(write_word(write_word(at, INNER6), (uint16_t)(teid >> 16)), (uint16_t)teid);
	memcpy(at, inner, INNER6);
	sent_count = 0;
	receive("core", frame, (size_t)(at + INNER6 - frame));
}

// Of PDU sessions that the agent sets up, it gets router advertisements and DHCPv6 answers, perhaps before there is a session.
static void
without_an_agent_what_configures_the_link_is_the_subscribers(void **state)
{
	// A router advertisement to all nodes; a message of a DHCPv6 server to a client.
	static const uint8_t packets[][INNER6] = {
		{0x60, [5] = 16, [6] = PROTOCOL_ICMP6, [7] = 255, [8] = 0xfe, [9] = 0x80, [23] = 1, [24] = 0xff,
			[25] = 2, [39] = 1, [40] = 134},
		{0x60, [5] = 16, [6] = PROTOCOL_UDP, [7] = 64, [8] = 0xfe, [9] = 0x80, [23] = 1, [24] = 0xfe,
			[25] = 0x80, [39] = 7, [40] = 547 >> 8, [41] = 547 & 255, [42] = 546 >> 8, [43] = 546 & 255,
			[45] = 16},
	};
	uint64_t before = dropped("gtpu-unknown-teid");

	for (unsigned i = 0; i < RTE_DIM(packets); i++) {
		send_inner(TEID, packets[i]);
		assert_int_equal(sent_to("access"), 1);
		assert_memory_equal(sent[0].bytes + sent[0].length - 16, packets[i] + 40, 4);
		send_inner(1000, packets[i]);
		assert_int_equal(sent_to("access"), 0);
		assert_int_equal(gtpu_of(&sent[0])[1], GTPU_ERROR_INDICATION);
		assert_int_equal(dropped("gtpu-unknown-teid"), before + 1 + i);
	}
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
	node_edge(&inject_node, &gtpu_input_node);
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
	node_edge(&inject_node, node);
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
a_session_that_stops_deriving_rules_or_ends_leaves_none_to_the_next_with_its_number(void **state)
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
		cmocka_unit_test(malformed_packets_of_a_tunnel_have_drop_reasons),
		cmocka_unit_test(a_wrong_checksum_in_a_tunnel_is_a_named_drop_with_any_flags_of_the_outer_ones),
		cmocka_unit_test(
			a_wrong_checksum_of_a_packet_in_fragments_is_a_named_drop_with_any_flags_of_the_fragments),
		cmocka_unit_test(unknown_teids_at_the_same_moment_are_all_answered),
		cmocka_unit_test(without_an_agent_what_configures_the_link_is_the_subscribers),
		cmocka_unit_test(an_echo_request_is_answered_and_one_without_room_for_the_answer_is_a_named_drop),
		cmocka_unit_test(a_packet_without_room_for_the_tunnel_s_header_is_a_named_drop),
		cmocka_unit_test(a_session_that_is_changed_keeps_its_derived_rules),
		cmocka_unit_test(a_session_that_stops_deriving_rules_or_ends_leaves_none_to_the_next_with_its_number),
		cmocka_unit_test(a_packet_too_large_for_its_way_with_the_header_is_a_named_drop_and_its_sender_is_told),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
