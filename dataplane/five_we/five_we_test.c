// SPDX-License-Identifier: Apache-2.0
// 5WE in the whole graph: QFI from the subscriber's header into the tunnel, QFI and RQI from the tunnel into the header.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "five_we/header.h"
#include "flow.pb-c.h"
#include "gtpu/gtpu.h"
#include "session/all_sessions.h"

enum {
	TYPE = 0x8864,
	ID = 0x1234,
	TEID = 20,
	INNER = 20 + UDP + PAYLOAD,
	INNER6 = 40 + UDP + PAYLOAD,
	DEFAULT_QFI = 9, // of the tunnels of session/all_sessions.h
	ROUTER_ADVERTISEMENT = 134,
	CONTAINER_QFI = 14 + GTPU_ENCAP4 - 2,
};

// The same id in PPPoE of version 1 is another session's.
static const struct subscriber user = {.name = "5we",
				       .mac = "02:01:00:00:00:09",
				       .address4 = "100.64.0.1/32",
				       .address6 = "2001:db8:1::/64",
				       .outer = 100,
				       .inner = 1,
				       .five_we = ID,
				       .teid = TEID},
			       beside = {.name = "pppoe",
				       .mac = "02:01:00:00:00:09",
				       .address4 = "100.64.0.2/32",
				       .outer = 100,
				       .inner = 1,
				       .pppoe = ID},
			       second = {.name = "second",
				       .mac = "02:01:00:00:00:09",
				       .address4 = "100.64.0.3/32",
				       .outer = 100,
				       .inner = 1,
				       .five_we = ID + 1,
				       .flows = "flows",
				       .teid = TEID + 2};

static int
start(void **state)
{
	Sluice__V1__FlowProfile flows = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule rule = SLUICE__V1__QOS_RULE__INIT, *rules[] = {&rule};
	Sluice__V1__QosFlow flow = SLUICE__V1__QOS_FLOW__INIT, *list[] = {&flow};

	rule.precedence = 1;
	rule.qfi = 33;
	flow.qfi = 7;
	flow.dscp = "ef";
	flows.rules = rules;
	flows.n_rules = 1;
	flows.flows = list;
	flows.n_flows = 1;
	return all_sessions_start(1) || put("FlowProfile", "flows", &flows) || put_session(&user) ||
			       put_session(&beside) || put_session(&second)
		       ? -1
		       : 0;
}

static uint8_t *
write_five_we(uint8_t *at, uint8_t qfi_and_rqi, uint16_t id, uint16_t length, uint16_t protocol)
{
	at = write_access(at, 100, 1, TYPE);
	*at++ = FIVE_WE_VERSION_TYPE;
	*at++ = qfi_and_rqi;
	return write_word(write_word(write_word(at, id), length), protocol);
}

static void
send_up5(uint8_t qfi_and_rqi, uint16_t id, const char *from, unsigned cut)
{
	uint8_t frame[256], *at = write_five_we(frame, qfi_and_rqi, id, INNER + 2, PPP_IP4);

	at = write_packet4(at, from, "203.0.113.9", PAYLOAD);
	sent_count = 0;
	receive("access", frame, (size_t)(at - frame) - cut);
}

static const uint8_t *
only_frame(const char *port)
{
	assert_int_equal(sent_to(port), 1);
	return sent[0].bytes;
}

static void
an_uplink_packet_takes_its_qfi_into_the_tunnel(void **state)
{
	send_up5(5 << 2, ID, "100.64.0.1", 0);
	assert_int_equal(only_frame("core")[CONTAINER_QFI], 5);
	// The network ignores RQI and the last bit.
	send_up5(63 << 2 | 3, ID, "100.64.0.1", 0);
	assert_int_equal(only_frame("core")[CONTAINER_QFI], 63);
	// Without one, the tunnel's.
	send_up5(0, ID, "100.64.0.1", 0);
	assert_int_equal(only_frame("core")[CONTAINER_QFI], DEFAULT_QFI);
}

static void
an_uplink_packet_of_ip6_is_taken(void **state)
{
	uint8_t frame[256], *at = write_five_we(frame, 6 << 2, ID, INNER6 + 2, PPP_IP6);

	at = write_packet6(at, "2001:db8:1::5", "2001:db8:99::1", PAYLOAD);
	sent_count = 0;
	receive("access", frame, (size_t)(at - frame));
	assert_int_equal(only_frame("core")[CONTAINER_QFI], 6);
}

static void
the_qfi_of_the_header_goes_before_the_rules_of_a_flow_profile(void **state)
{
	send_up5(7 << 2, ID + 1, "100.64.0.3", 0);
	assert_int_equal(only_frame("core")[CONTAINER_QFI], 7);
	// And its marks are those of the flow: the outer DSCP.
	assert_int_equal(only_frame("core")[15] >> 2, 46);
	send_up5(0, ID + 1, "100.64.0.3", 0);
	assert_int_equal(only_frame("core")[CONTAINER_QFI], 33);
}

// The headers before a packet of `inner` bytes in a tunnel.
static uint8_t *
write_tunnel(uint8_t *frame, uint8_t qfi_and_rqi, uint32_t teid, uint16_t inner)
{
	enum { EXTENDED = 8 };
	uint8_t *at = write_core(frame, 0x0800);

	at = write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + GTPU_HEADER + EXTENDED + inner);
	at = write_udp(at, 40000, GTPU_PORT, GTPU_HEADER + EXTENDED + inner);
	at = write_word(write_word(at, (GTPU_VERSION_1 | GTPU_E) << 8 | GTPU_G_PDU), EXTENDED + inner);
	at = write_word(write_word(at, (uint16_t)(teid >> 16)), (uint16_t)teid);
	at = write_word(write_word(at, 0), EXTENSION_PDU_SESSION_CONTAINER);
	return write_word(write_word(at, 1 << 8 | PDU_DOWNLINK), (uint16_t)(qfi_and_rqi << 8));
}

static void
send_down5(uint8_t qfi_and_rqi, uint32_t teid, const char *to)
{
	uint8_t frame[256], *at = write_tunnel(frame, qfi_and_rqi, teid, INNER);

	at = write_packet4(at, "203.0.113.9", to, PAYLOAD);
	sent_count = 0;
	receive("core", frame, (size_t)(at - frame));
}

static void
a_downlink_packet_has_the_qfi_and_the_rqi_of_its_container(void **state)
{
	static const uint8_t expected[] = {0x88, 0x64, 0x21, 5 << 2, ID >> 8, ID & 0xff, 0, INNER + 2, 0, 0x21, 0x45};
	const uint8_t *frame;

	send_down5(5, TEID, "100.64.0.1");
	frame = only_frame("access");
	assert_memory_equal(frame + 20, expected, sizeof(expected));
	assert_int_equal(sent[0].length, 22 + FIVE_WE_HEADER + INNER);
	send_down5(0x40 | 63, TEID, "100.64.0.1");
	assert_int_equal(only_frame("access")[23], 63 << 2 | FIVE_WE_RQI);
	// No container.
	send_tunnelled(TEID, "100.64.0.1");
	assert_int_equal(only_frame("access")[23], 0);
	// The rules of a flow profile that match go before.
	send_down5(5, TEID + 2, "100.64.0.3");
	assert_int_equal(only_frame("access")[23] & ~3, 5 << 2);
}

static void
pppoe_of_version_1_has_session_ids_of_its_own(void **state)
{
	uint8_t frame[256], *at = write_access(frame, 100, 1, TYPE);

	at = write_word(write_word(write_word(write_word(at, 0x1100), ID), INNER + 2), PPP_IP4);
	at = write_packet4(at, "100.64.0.2", "203.0.113.9", PAYLOAD);
	sent_count = 0;
	receive("access", frame, (size_t)(at - frame));
	// Routed, not tunnelled.
	assert_int_equal(only_frame("core")[14 + 9], PROTOCOL_UDP);
	assert_memory_equal(only_frame("core") + 14 + 12, ((uint8_t[]){100, 64, 0, 2}), 4);
}

static void
malformed_frames_have_drop_reasons(void **state)
{
	static const struct {
		const char *drop;
		uint16_t id, length, protocol;
	} cases[] = {
		{"5we-malformed", ID, INNER + 3, PPP_IP4},
		{"5we-malformed", ID, 1, PPP_IP4},
		{"5we-malformed", ID, 0xffff, PPP_IP4},
		{"5we-malformed", 0, INNER + 2, PPP_IP4},
		{"5we-unknown-session", ID + 2, INNER + 2, PPP_IP4},
		{"5we-protocol", ID, INNER + 2, PPP_LCP},
		{"5we-protocol", ID, INNER + 2, 0x0031},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint8_t frame[256], *at = write_five_we(frame, 0, cases[i].id, cases[i].length, cases[i].protocol);
		uint64_t before = dropped(cases[i].drop);

		at = write_packet4(at, "100.64.0.1", "203.0.113.9", PAYLOAD);
		sent_count = 0;
		receive("access", frame, (size_t)(at - frame));
		if (dropped(cases[i].drop) != before + 1)
			fail_msg("case %u is not %s", i, cases[i].drop);
		assert_int_equal(sent_count, 0);
	}
	// Cut anywhere, nothing is sent, and nothing behind the frame is read.
	for (unsigned cut = 1; cut <= FIVE_WE_HEADER + INNER; cut++) {
		send_up5(5 << 2, ID, "100.64.0.1", cut);
		assert_int_equal(sent_count, 0);
	}
}

// A session without addresses: they are between the residential gateway and the core, and so is the link.
static void
link_traffic_goes_into_the_tunnel_of_a_session_without_addresses(void **state)
{
	static const struct {
		const char *from, *to;
	} packets[] = {
		{"fe80::1", "ff02::2"},
		{"fe80::1", "ff02::1:2"},
		{"fe80::1", "fe80::99"},
		{"::", "ff02::1:ff00:1"},
		{"2001:db8:7::1", "2001:db8:99::1"},
	};
	const struct subscriber open = {.name = "open",
		.mac = "02:01:00:00:00:09",
		.outer = 100,
		.inner = 1,
		.five_we = ID + 5,
		.teid = TEID + 4,
		.any_source = true};
	uint8_t frame[256], *at;

	assert_int_equal(put_session(&open), 0);
	for (unsigned i = 0; i < RTE_DIM(packets); i++) {
		at = write_five_we(frame, 6 << 2, ID + 5, INNER6 + 2, PPP_IP6);
		at = write_packet6(at, packets[i].from, packets[i].to, PAYLOAD);
		sent_count = 0;
		receive("access", frame, (size_t)(at - frame));
		if (sent_to("core") != 1)
			fail_msg("%s to %s does not go into the tunnel", packets[i].from, packets[i].to);
		assert_int_equal(sent[0].bytes[CONTAINER_QFI], 6);
	}
	send_up5(5 << 2, ID + 5, "100.64.77.1", 0);
	assert_int_equal(only_frame("core")[CONTAINER_QFI], 5);
	// And router advertisements out of it.
	at = write_tunnel(frame, 5, TEID + 4, INNER6);
	at = write_packet6(at, "fe80::1", "ff02::1", PAYLOAD);
	at[-(int)INNER6 + 6] = PROTOCOL_ICMP6;
	at[-(int)INNER6 + 40] = ROUTER_ADVERTISEMENT;
	sent_count = 0;
	receive("core", frame, (size_t)(at - frame));
	assert_int_equal(only_frame("access")[23], 5 << 2);
	// Of a session that has addresses, the gateway answers.
	at = write_five_we(frame, 6 << 2, ID, INNER6 + 2, PPP_IP6);
	at = write_packet6(at, "fe80::1", "ff02::2", PAYLOAD);
	sent_count = 0;
	receive("access", frame, (size_t)(at - frame));
	assert_int_equal(sent_to("core"), 0);
	assert_int_equal(delete_session("open"), 0);
}

static const struct subscriber bridge = {.name = "bridge",
	.mac = "02:01:00:00:00:09",
	.outer = 100,
	.inner = 1,
	.five_we = ID + 7,
	.teid = TEID + 6,
	.ethernet = true};

// A frame of two other stations, tagged.
static uint8_t *
write_inner(uint8_t *at)
{
	static const uint8_t head[] = {2, 9, 9, 9, 9, 9, 2, 8, 8, 8, 8, 8, 0x81, 0, 0, 7, 8, 0};

	memcpy(at, head, sizeof(head));
	return write_packet4(at + sizeof(head), "10.0.0.1", "10.0.0.2", PAYLOAD);
}

enum { FRAME = 18 + INNER };

// With this header of RFC 3518 in front of the frame, and padding behind it.
static void
send_frame5(uint16_t header, uint16_t length, unsigned cut)
{
	uint8_t frame[256], *at = write_five_we(frame, 5 << 2, ID + 7, length, PPP_BRIDGED);

	at = write_inner(write_word(at, header));
	memset(at, 0, 4);
	sent_count = 0;
	receive("access", frame, (size_t)(at + 4 - frame) - cut);
}

static void
frames_of_a_session_of_type_ethernet_go_through_the_tunnel_whole(void **state)
{
	static const uint8_t before[] = {
		0x88, 0x64, 0x21, 5 << 2 | 2, (ID + 7) >> 8, (ID + 7) & 0xff, 0, FRAME + 4, 0, 0x31, 0, 1};
	enum { BEFORE = FIVE_WE_HEADER + FIVE_WE_FRAME };
	uint8_t frame[256], inner[FRAME], *at;
	uint64_t count;

	write_inner(inner);
	assert_int_equal(put_session(&bridge), 0);
	send_frame5(FIVE_WE_FRAME_HEADER, FRAME + 4, 0);
	assert_int_equal(only_frame("core")[CONTAINER_QFI], 5);
	assert_int_equal(sent[0].length, 14 + GTPU_ENCAP4 + FRAME);
	assert_memory_equal(sent[0].bytes + 14 + GTPU_ENCAP4, inner, FRAME);
	// And back.
	at = write_tunnel(frame, 0x40 | 5, TEID + 6, FRAME);
	memcpy(at, inner, FRAME);
	sent_count = 0;
	receive("core", frame, (size_t)(at + FRAME - frame));
	assert_memory_equal(only_frame("access"), ((uint8_t[]){2, 1, 0, 0, 0, 9}), 6);
	assert_memory_equal(sent[0].bytes + 20, before, sizeof(before));
	assert_int_equal(sent[0].length, 22 + BEFORE + FRAME);
	assert_memory_equal(sent[0].bytes + 22 + BEFORE, inner, FRAME);
	// A frame with FCS, of another MAC type, and one that is shorter than its header.
	count = dropped("5we-protocol");
	send_frame5(0x8001, FRAME + 4, 0);
	send_frame5(0x0003, FRAME + 4, 0);
	assert_int_equal(dropped("5we-protocol"), count + 2);
	count = dropped("5we-malformed");
	send_frame5(FIVE_WE_FRAME_HEADER, 2 + 2 + 13, 0);
	assert_int_equal(dropped("5we-malformed"), count + 1);
	for (unsigned cut = 5; cut <= BEFORE + FRAME; cut++) {
		send_frame5(FIVE_WE_FRAME_HEADER, FRAME + 4, cut);
		assert_int_equal(sent_count, 0);
	}
	// It takes no packets, and others take no frames (malformed_frames_have_drop_reasons).
	send_up5(5 << 2, ID + 7, "10.0.0.1", 0);
	assert_int_equal(sent_count, 0);
	assert_int_equal(delete_session("bridge"), 0);
}

static void
frames_larger_than_the_mtu_are_dropped(void **state)
{
	enum { MTU = 1280, LARGE = MTU - FIVE_WE_FRAME };
	struct subscriber narrow = bridge;
	uint64_t count = dropped("session-frame-too-large");
	uint8_t frame[1500];

	narrow.mtu = MTU;
	assert_int_equal(put_session(&narrow), 0);
	for (unsigned more = 0; more < 2; more++) {
		uint8_t *at = write_tunnel(frame, 5, TEID + 6, (uint16_t)(LARGE + more));

		write_inner(at);
		memset(at + FRAME, 0, LARGE - FRAME + more);
		sent_count = 0;
		receive("core", frame, (size_t)(at - frame) + LARGE + more);
		assert_int_equal(sent_to("access"), 1 - more);
		assert_int_equal(dropped("session-frame-too-large"), count + more);
	}
	assert_int_equal(delete_session("bridge"), 0);
}

static void
a_session_is_refused_with_the_field(void **state)
{
	struct subscriber both = user, taken = user, learned = user;

	both.name = "both";
	both.pppoe = 5;
	assert_int_equal(put_session(&both), -EINVAL);
	assert_non_null(strstr(fault_of_put.text, "not both"));
	taken.name = "taken";
	taken.teid = 90;
	assert_int_equal(put_session(&taken), -EEXIST);
	assert_non_null(strstr(fault_of_put.text, "access.fiveWeSessionId: 4660 is Session \"5we\"'s"));
	learned.name = "lcp";
	learned.five_we = 77;
	learned.teid = 92;
	learned.lcp_magic = 1;
	assert_int_equal(put_session(&learned), -EINVAL);
	assert_non_null(strstr(fault_of_put.text, "access.lcpMagic"));
	learned = bridge;
	learned.mac = NULL;
	assert_int_equal(put_session(&learned), -EINVAL);
	assert_non_null(strstr(fault_of_put.text, "access.mac: the session is of type Ethernet"));
}

static void
a_session_moves_to_another_id_and_goes(void **state)
{
	struct subscriber moved = user;

	moved.five_we = ID + 9;
	assert_int_equal(put_session(&moved), 0);
	send_up5(5 << 2, ID + 9, "100.64.0.1", 0);
	assert_int_equal(only_frame("core")[CONTAINER_QFI], 5);
	send_down5(5, TEID, "100.64.0.1");
	assert_int_equal(only_frame("access")[25], (ID + 9) & 0xff);
	assert_int_equal(delete_session("5we"), 0);
	send_up5(5 << 2, ID + 9, "100.64.0.1", 0);
	assert_int_equal(sent_count, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_uplink_packet_takes_its_qfi_into_the_tunnel),
		cmocka_unit_test(an_uplink_packet_of_ip6_is_taken),
		cmocka_unit_test(the_qfi_of_the_header_goes_before_the_rules_of_a_flow_profile),
		cmocka_unit_test(a_downlink_packet_has_the_qfi_and_the_rqi_of_its_container),
		cmocka_unit_test(pppoe_of_version_1_has_session_ids_of_its_own),
		cmocka_unit_test(malformed_frames_have_drop_reasons),
		cmocka_unit_test(link_traffic_goes_into_the_tunnel_of_a_session_without_addresses),
		cmocka_unit_test(frames_of_a_session_of_type_ethernet_go_through_the_tunnel_whole),
		cmocka_unit_test(frames_larger_than_the_mtu_are_dropped),
		cmocka_unit_test(a_session_is_refused_with_the_field),
		cmocka_unit_test(a_session_moves_to_another_id_and_goes),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
