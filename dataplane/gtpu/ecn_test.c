// SPDX-License-Identifier: Apache-2.0
// ECN into and out of a tunnel (RFC 6040, RFC 9601): all fields, both IP versions outside and inside, and frames.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flow.pb-c.h"
#include "gtpu/gtpu.h"
#include "ip/ecn.h"
#include "session/all_sessions.h"

enum { ETHER = 14, TAGGED = 22, DSCP = 0x50, N = ECN_NOT_ECT, E0 = ECN_ECT_0, E1 = ECN_ECT_1, CE = ECN_CE };

// RFC 6040 figure 4: by inner and outer field. ECN_ILLEGAL: dropped.
static const uint8_t fields[4] = {N, E0, E1, CE};
static const uint8_t figure[4][4] = {{N, N, N, ECN_ILLEGAL}, {E0, E0, E1, CE}, {E1, E1, E1, CE}, {CE, CE, CE, CE}};

static const struct subscriber subscribers_of[2] = {
	{.name = "four",
		.mac = "02:01:00:00:00:09",
		.address4 = "100.64.0.2/32",
		.address6 = "2001:db8:1:2::/64",
		.outer = 100,
		.inner = 2,
		.teid = 20},
	{.name = "six",
		.mac = "02:01:00:00:00:09",
		.address4 = "100.64.0.3/32",
		.address6 = "2001:db8:1:3::/64",
		.outer = 100,
		.inner = 3,
		.teid = 40,
		.outer6 = true},
};
static const struct subscriber frames = {.name = "frames", .outer = 100, .inner = 4, .teid = 60, .ethernet = true};

static int
start(void **state)
{
	return all_sessions_start(1) || put_session(&subscribers_of[0]) || put_session(&subscribers_of[1]) ||
			       put_session(&frames)
		       ? -1
		       : 0;
}

// Its traffic class.
static void
write_class(uint8_t *ip, uint8_t class)
{
	struct ip4_header *ip4 = (struct ip4_header *)ip;

	if (ip[0] >> 4 == 6) {
		ip[0] = (uint8_t)(0x60 | class >> 4);
		ip[1] = (uint8_t)(class << 4);
		return;
	}
	ip4->tos = class;
	ip4->checksum = ip4_checksum(ip4);
}

static uint8_t
class_of(const uint8_t *ip)
{
	const struct ip4_header *ip4 = (const struct ip4_header *)ip;

	if (ip[0] >> 4 == 4)
		assert_int_equal(ip4->checksum, ip4_checksum(ip4));
	return ip_traffic_class(ip, ip[0] >> 4);
}

// A packet for the subscriber, or from him.
static uint8_t *
write_inner(uint8_t *at, const struct subscriber *s, unsigned family, uint8_t class, bool down)
{
	char own[32];
	uint8_t *end;

	if (family == 4) {
		snprintf(own, sizeof(own), "100.64.0.%u", s->inner);
		end = down ? write_packet4(at, "203.0.113.9", own, PAYLOAD)
			   : write_packet4(at, own, "203.0.113.9", PAYLOAD);
	} else {
		snprintf(own, sizeof(own), "2001:db8:1:%u::5", s->inner);
		end = down ? write_packet6(at, "2001:db8:9::9", own, PAYLOAD)
			   : write_packet6(at, own, "2001:db8:9::9", PAYLOAD);
	}
	write_class(at, class);
	return end;
}

// A payload, in a tunnel to the session.
static void
send_inside(const struct subscriber *s, const uint8_t *inside, size_t length, uint8_t class)
{
	uint8_t frame[512], *at = write_core(frame, s->outer6 ? 0x86dd : 0x0800), *ip = at;
	unsigned payload = (unsigned)length + GTPU_HEADER;

	at = s->outer6 ? write_ip6(at, "2001:db8:c::2", "2001:db8:c::1", UDP + payload)
		       : write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + payload);
	write_class(ip, class);
	at = write_udp(at, 40000, GTPU_PORT, payload);
	at = write_word(write_word(at, 0x30ff), (uint16_t)length);
	at = write_word(write_word(at, 0), (uint16_t)s->teid);
	memcpy(at, inside, length);
	sent_count = 0;
	receive("core", frame, (size_t)(at + length - frame));
}

static void
send_down_ecn(const struct subscriber *s, unsigned family, uint8_t outer, uint8_t inner)
{
	uint8_t packet[256], *end = write_inner(packet, s, family, DSCP | inner, true);

	send_inside(s, packet, (size_t)(end - packet), outer);
}

static void
a_packet_out_of_a_tunnel_has_the_congestion_mark_of_the_outer_header(void **state)
{
	for (unsigned i = 0; i < 4 * 16; i++) {
		const struct subscriber *s = &subscribers_of[i & 1];
		unsigned family = i & 2 ? 6 : 4, inner = i >> 2 & 3, outer = i >> 4;
		uint64_t before = dropped("gtpu-ecn-illegal");

		send_down_ecn(s, family, fields[outer], fields[inner]);
		if (figure[inner][outer] == ECN_ILLEGAL) {
			assert_int_equal(sent_count, 0);
			assert_int_equal(dropped("gtpu-ecn-illegal"), before + 1);
			continue;
		}
		assert_int_equal(sent_to("access"), 1);
		assert_int_equal(sent[0].bytes[TAGGED] >> 4, family);
		assert_int_equal(class_of(sent[0].bytes + TAGGED), DSCP | figure[inner][outer]);
		assert_int_equal(dropped("gtpu-ecn-illegal"), before);
	}
}

// The outer traffic class of a packet of this one.
static uint8_t
class_up(const struct subscriber *s, unsigned family, uint8_t class)
{
	uint8_t frame[256], *at = write_access(frame, s->outer, s->inner, family == 4 ? 0x0800 : 0x86dd);

	at = write_inner(at, s, family, class, false);
	sent_count = 0;
	receive("access", frame, (size_t)(at - frame));
	assert_int_equal(sent_to("core"), 1);
	return class_of(sent[0].bytes + ETHER);
}

static void
the_outer_header_has_the_field_of_the_packet(void **state)
{
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(
			class_up(&subscribers_of[i & 1], i & 2 ? 6 : 4, (uint8_t)(DSCP | i >> 2)), DSCP | i >> 2);
}

static void
the_outer_header_of_a_session_that_clears_it_has_none(void **state)
{
	for (unsigned i = 0; i < 16; i++) {
		struct subscriber s = subscribers_of[i & 1];

		s.clear_ecn = true;
		assert_int_equal(put_session(&s), 0);
		assert_int_equal(class_up(&s, i & 2 ? 6 : 4, (uint8_t)(DSCP | i >> 2)), DSCP);
		// Out of the tunnel it is the same.
		send_down_ecn(&s, i & 2 ? 6 : 4, CE, E0);
		assert_int_equal(class_of(sent[0].bytes + TAGGED), DSCP | CE);
		assert_int_equal(put_session(&subscribers_of[i & 1]), 0);
	}
}

static void
a_qos_flow_s_dscp_leaves_the_field_alone(void **state)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosFlow flow = SLUICE__V1__QOS_FLOW__INIT, *flows[] = {&flow};

	flow.qfi = 9;
	flow.dscp = "ef";
	profile.flows = flows;
	profile.n_flows = 1;
	assert_int_equal(put("FlowProfile", "marks", &profile), 0);
	for (unsigned i = 0; i < 16; i++) {
		struct subscriber s = subscribers_of[i & 1];

		s.flows = "marks";
		assert_int_equal(put_session(&s), 0);
		assert_int_equal(class_up(&s, i & 2 ? 6 : 4, (uint8_t)(DSCP | i >> 2)), 46 << 2 | i >> 2);
		assert_int_equal(put_session(&subscribers_of[i & 1]), 0);
	}
}

// In a frame with a tag of the subscriber's own; family 0: no IP.
static void
send_frame_ecn(unsigned family, uint8_t outer, uint8_t inner)
{
	uint8_t frame[256] = {2, 0, 0, 0, 0, 1, 2, 9, 9, 9, 9, 9, 0x81, 0, 0, 77}, *at = frame + 16;

	at = write_word(at, family == 4 ? 0x0800 : family == 6 ? 0x86dd : 0x9000);
	at = family ? write_inner(at, &subscribers_of[0], family, DSCP | inner, true) : at + 60;
	send_inside(&frames, frame, (size_t)(at - frame), outer);
}

static void
a_frame_out_of_a_tunnel_has_the_mark_in_the_packet_that_it_carries(void **state)
{
	for (unsigned i = 0; i < 3 * 16; i++) {
		unsigned family = i % 3 == 0 ? 0 : i % 3 == 1 ? 4 : 6, inner = i / 3 & 3, outer = i / 12;
		uint8_t expected = figure[family ? inner : 0][outer];
		uint64_t before = dropped("gtpu-ecn-illegal");

		send_frame_ecn(family, fields[outer], fields[inner]);
		assert_int_equal(dropped("gtpu-ecn-illegal"), before + (expected == ECN_ILLEGAL));
		assert_int_equal(sent_to("access"), expected != ECN_ILLEGAL);
		if (family && sent_count)
			assert_int_equal(class_of(sent[0].bytes + TAGGED + 4), DSCP | expected);
	}
	// An IPv4 packet that is shorter than its header.
	uint64_t before = dropped("gtpu-ecn-illegal");
	uint8_t cut[14 + 19] = {2, 0, 0, 0, 0, 1, 2, 9, 9, 9, 9, 9, 8, 0, 0x45, E0};

	send_inside(&frames, cut, sizeof(cut), CE);
	assert_int_equal(dropped("gtpu-ecn-illegal"), before + 1);
}

// From the core: a packet of the session's tunnel in two fragments, with these outer fields. Over IPv6 with a fragment header.
static void
send_fragments(const struct subscriber *s, uint8_t first, uint8_t second)
{
	enum { CUT = 48 };
	uint8_t inside[256], udp[256], frame[512];
	uint8_t *end = write_inner(inside, s, 4, DSCP | E0, true), *at;
	unsigned length = (unsigned)(end - inside), total = length + GTPU_HEADER + UDP;
	static uint16_t id;

	at = write_udp(udp, 40000, GTPU_PORT, length + GTPU_HEADER);
	at = write_word(write_word(at, 0x30ff), (uint16_t)length);
	at = write_word(write_word(at, 0), (uint16_t)s->teid);
	memcpy(at, inside, length);
	id++;
	sent_count = 0;
	for (unsigned part = 0; part < 2; part++) {
		unsigned from = part ? CUT : 0, size = part ? total - CUT : CUT;
		uint8_t *ip = write_core(frame, s->outer6 ? 0x86dd : 0x0800);

		if (s->outer6) {
			at = write_ip6(ip, "2001:db8:c::2", "2001:db8:c::1", 8 + size);
			ip[6] = PROTOCOL_FRAGMENT;
			at = write_word(write_word(at, PROTOCOL_UDP << 8), (uint16_t)(from | !part));
			at = write_word(write_word(at, 0), id);
		} else {
			at = write_ip4(ip, "192.0.2.2", "192.0.2.1", size);
			write_word(ip + 4, id);
			write_word(ip + 6, (uint16_t)(from / 8 | (part ? 0 : IP4_MF)));
		}
		write_class(ip, part ? second : first);
		memcpy(at, udp + from, size);
		receive("core", frame, (size_t)(at + size - frame));
	}
	walk();
}

// RFC 3168 section 5.3.
static void
a_mark_on_one_fragment_is_the_packet_s(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		uint64_t before = dropped("fragment-ecn");

		send_fragments(&subscribers_of[i], E0, E0);
		assert_int_equal(class_of(sent[0].bytes + TAGGED), DSCP | E0);
		send_fragments(&subscribers_of[i], E0, CE);
		assert_int_equal(sent_to("access"), 1);
		assert_int_equal(class_of(sent[0].bytes + TAGGED), DSCP | CE);
		send_fragments(&subscribers_of[i], CE, E0);
		assert_int_equal(class_of(sent[0].bytes + TAGGED), DSCP | CE);
		assert_int_equal(dropped("fragment-ecn"), before);
		send_fragments(&subscribers_of[i], CE, N);
		assert_int_equal(sent_count, 0);
		send_fragments(&subscribers_of[i], N, CE);
		assert_int_equal(sent_count, 0);
		assert_int_equal(dropped("fragment-ecn"), before + 4);
	}
}

// Messages of our own are Not-ECT (RFC 3168 section 6.1.1): no flow control reacts to a mark on them.
static void
an_echo_response_is_not_ect(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		uint8_t frame[128], *at = write_core(frame, i ? 0x86dd : 0x0800), *ip = at;

		at = i ? write_ip6(at, "2001:db8:c::2", "2001:db8:c::1", UDP + GTPU_HEADER)
		       : write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + GTPU_HEADER);
		write_class(ip, CE);
		at = write_udp(at, GTPU_PORT, GTPU_PORT, GTPU_HEADER);
		memcpy(at, (uint8_t[GTPU_HEADER]){GTPU_VERSION_1, GTPU_ECHO_REQUEST}, GTPU_HEADER);
		if (i) {
			uint16_t sum = (uint16_t)~checksum_fold(
				checksum_add(ip6_pseudo_sum(ip + 8, ip + 24, UDP + GTPU_HEADER, PROTOCOL_UDP), at - UDP,
					UDP + GTPU_HEADER));

			memcpy(at - 2, &sum, sizeof(sum));
		}
		sent_count = 0;
		receive("core", frame, (size_t)(at + GTPU_HEADER - frame));
		assert_int_equal(sent_to("core"), 1);
		assert_int_equal(class_of(sent[0].bytes + ETHER), 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_packet_out_of_a_tunnel_has_the_congestion_mark_of_the_outer_header),
		cmocka_unit_test(the_outer_header_has_the_field_of_the_packet),
		cmocka_unit_test(the_outer_header_of_a_session_that_clears_it_has_none),
		cmocka_unit_test(a_qos_flow_s_dscp_leaves_the_field_alone),
		cmocka_unit_test(a_frame_out_of_a_tunnel_has_the_mark_in_the_packet_that_it_carries),
		cmocka_unit_test(a_mark_on_one_fragment_is_the_packet_s),
		cmocka_unit_test(an_echo_response_is_not_ect),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
