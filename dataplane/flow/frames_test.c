// SPDX-License-Identifier: Apache-2.0
// Filters of frames: the matches of each field, refused profiles, and the QFI of a session's frames.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flow/profile.h"
#include "session/all_sessions.h"

enum { QFI_AT = 14 + 20 + UDP + 14, RULES_MAX = 8 };

static const struct subscriber user = {
	.name = "user", .outer = 100, .inner = 1, .teid = 20, .ethernet = true, .reflective = true, .flows = "lan"};

typedef Sluice__V1__PacketFilter filter_t;

static filter_t
filter(void)
{
	return (filter_t)SLUICE__V1__PACKET_FILTER__INIT;
}

// Filter `i` is a rule of its own, of QFI i + 1. Marks of all: 802.1p is the QFI.
static int
put_filters(filter_t *filters, unsigned count)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule rules[RULES_MAX], *list[RULES_MAX];
	Sluice__V1__QosFlow flows[RULES_MAX], *flow_list[RULES_MAX];
	filter_t *one[RULES_MAX];

	for (unsigned i = 0; i < count; i++) {
		sluice__v1__qos_rule__init(&rules[i]);
		sluice__v1__qos_flow__init(&flows[i]);
		one[i] = &filters[i];
		rules[i].precedence = 10 + i;
		rules[i].qfi = flows[i].qfi = flows[i].priority = i + 1;
		rules[i].filters = &one[i];
		rules[i].n_filters = 1;
		list[i] = &rules[i];
		flow_list[i] = &flows[i];
	}
	profile.rules = list;
	profile.flows = flow_list;
	profile.n_rules = profile.n_flows = count;
	return put("FlowProfile", "lan", &profile);
}

static int
start(void **state)
{
	filter_t one = filter();

	one.ether_type = 0x88cc;
	return all_sessions_start(1) || put_filters(&one, 1) || put_session(&user);
}

// A frame from ...:02 to ...:01 with these tags of the subscriber's own and an IPv4 packet of UDP.
static size_t
write_frame(uint8_t *frame, const uint32_t *tags, unsigned count, uint16_t type)
{
	uint8_t *at = frame + 12;

	memcpy(frame, "\2\0\0\0\0\1\2\0\0\0\0\2", 12);
	for (unsigned i = 0; i < count; i++)
		at = write_word(write_word(at, (uint16_t)(tags[i] >> 16)), (uint16_t)tags[i]);
	at = write_word(at, type);
	at = write_udp(write_ip4(at, "100.64.0.2", "203.0.113.9", UDP + 8), 4000, 5000, 8);
	memset(at, 0, 8);
	return (size_t)(at + 8 - frame);
}

static unsigned
uplink_qfi(const uint32_t *tags, unsigned count, uint16_t type)
{
	uint8_t frame[256], whole[256];
	size_t length = write_frame(frame, tags, count, type);

	memcpy(whole, frame, 12);
	memcpy(whole + 12, "\x88\xa8\0\x64\x81\0\0\1", 8);
	memcpy(whole + 20, frame + 12, length - 12);
	sent_count = 0;
	receive("access", whole, length + 8);
	assert_int_equal(sent_to("core"), 1);
	return sent[0].bytes[QFI_AT];
}

enum { C = 0x81000000, S = 0x88a80000, DEI = 0x1000, PCP = 0x2000, NONE = 9 /* the session's own QFI */ };

static void
each_field_of_a_frame_is_matched_alone(void **state)
{
	const uint32_t c7[] = {C | 7}, c7_5[] = {C | 5 * PCP | 7}, c7_dei[] = {C | DEI | 7}, s9[] = {S | 9},
		       s9_c7[] = {S | 3 * PCP | 9, C | 7};
	uint32_t priorities[] = {5, 6}, zero[] = {0};
	filter_t one = filter();

	one.remote_mac = (char *)"02:00:00:00:00:01";
	assert_int_equal(put_filters(&one, 1), 0);
	assert_int_equal(uplink_qfi(NULL, 0, 0x0800), 1);
	one.remote_mac = (char *)"02:00:00:00:00:02";
	assert_int_equal(put_filters(&one, 1), 0);
	assert_int_equal(uplink_qfi(NULL, 0, 0x0800), NONE);
	one = filter();
	one.local_mac = (char *)"02:00:00:00:00:02";
	assert_int_equal(put_filters(&one, 1), 0);
	assert_int_equal(uplink_qfi(c7, 1, 0x0800), 1);
	one = filter();
	one.ether_type = 0x86dd;
	assert_int_equal(put_filters(&one, 1), 0);
	assert_int_equal(uplink_qfi(s9_c7, 2, 0x86dd), 1);
	assert_int_equal(uplink_qfi(s9_c7, 2, 0x0800), NONE);
	one = filter();
	one.c_vlan = 7;
	assert_int_equal(put_filters(&one, 1), 0);
	assert_int_equal(uplink_qfi(c7, 1, 0x0800), 1);
	assert_int_equal(uplink_qfi(s9_c7, 2, 0x0800), 1);
	assert_int_equal(uplink_qfi(s9, 1, 0x0800), NONE);
	assert_int_equal(uplink_qfi(NULL, 0, 0x0800), NONE);
	one.s_vlan = 9;
	assert_int_equal(put_filters(&one, 1), 0);
	assert_int_equal(uplink_qfi(s9_c7, 2, 0x0800), 1);
	assert_int_equal(uplink_qfi(c7, 1, 0x0800), NONE);
	one = filter();
	one.c_priorities = priorities;
	one.n_c_priorities = 2;
	assert_int_equal(put_filters(&one, 1), 0);
	assert_int_equal(uplink_qfi(c7_5, 1, 0x0800), 1);
	assert_int_equal(uplink_qfi(c7, 1, 0x0800), NONE);
	one.c_priorities = zero;
	one.n_c_priorities = 1;
	assert_int_equal(put_filters(&one, 1), 0);
	assert_int_equal(uplink_qfi(c7, 1, 0x0800), 1);
	// Without a tag there is no priority of it.
	assert_int_equal(uplink_qfi(NULL, 0, 0x0800), NONE);
	one = filter();
	one.c_drop_eligible = SLUICE__V1__DROP_ELIGIBLE__SET;
	assert_int_equal(put_filters(&one, 1), 0);
	assert_int_equal(uplink_qfi(c7_dei, 1, 0x0800), 1);
	assert_int_equal(uplink_qfi(c7, 1, 0x0800), NONE);
	one.c_drop_eligible = SLUICE__V1__DROP_ELIGIBLE__CLEAR;
	assert_int_equal(put_filters(&one, 1), 0);
	assert_int_equal(uplink_qfi(c7_dei, 1, 0x0800), NONE);
	assert_int_equal(uplink_qfi(c7, 1, 0x0800), 1);
}

static void
a_filter_may_look_into_the_packet_in_the_frame_too(void **state)
{
	const uint32_t tags[] = {S | 9, C | 7};
	filter_t filters[3] = {filter(), filter(), filter()};

	filters[0].ether_type = 0x0800;
	filters[0].remote_ports = (char *)"5001";
	filters[1].c_vlan = 7;
	filters[1].protocol = (char *)"udp";
	filters[1].remote = (char *)"203.0.113.0/24";
	filters[1].local_ports = (char *)"3999-4000";
	filters[2].ether_type = 0x0800;
	assert_int_equal(put_filters(filters, 3), 0);
	assert_int_equal(uplink_qfi(tags, 2, 0x0800), 2);
	assert_int_equal(uplink_qfi(tags, 1, 0x0800), 3);
	// A frame of another type is not parsed as IPv4.
	assert_int_equal(uplink_qfi(tags, 2, 0x9000), NONE);
	// A filter of packets alone is not for frames.
	filters[2] = filter();
	filters[2].protocol = (char *)"udp";
	assert_int_equal(put_filters(filters, 3), 0);
	assert_int_equal(uplink_qfi(tags, 1, 0x0800), NONE);
}

enum { RQI = 0x40 };

// A frame in the session's tunnel, its container with this QFI and perhaps the RQI.
static void
send_down_frame(const uint8_t *frame, size_t length, uint8_t qfi)
{
	enum { GTPU = 16 };
	const uint8_t container[8] = {0, 0, 0, 0x85, 1, 0, qfi, 0};
	uint8_t outer[512], *at = write_core(outer, 0x0800);

	at = write_udp(write_ip4(at, "192.0.2.2", "192.0.2.1", (unsigned)(UDP + GTPU + length)), 40000, 2152,
		(unsigned)(GTPU + length));
	at = write_word(write_word(at, 0x34ff), (uint16_t)(length + 8));
	at = write_word(write_word(at, 0), 20);
	memcpy(at, container, sizeof(container));
	memcpy(at + sizeof(container), frame, length);
	sent_count = 0;
	receive("core", outer, (size_t)(at + sizeof(container) + length - outer));
}

static void
downlink_frames_are_marked_in_the_tags_of_the_access_alone(void **state)
{
	const uint32_t own[] = {C | 7};
	filter_t filters[2] = {filter(), filter()};
	uint8_t frame[256];
	size_t length = write_frame(frame, own, 1, 0x0800);

	// Downlink the destination is the subscriber's end.
	filters[0].local_mac = (char *)"02:00:00:00:00:01";
	filters[1].remote_mac = (char *)"02:00:00:00:00:01";
	assert_int_equal(put_filters(filters, 2), 0);
	for (unsigned round = 0; round < 2; round++) {
		send_down_frame(frame, length, 2);
		assert_int_equal(sent_to("access"), 1);
		// By the filter; and, where none matches, by the QFI that it came with.
		assert_int_equal(sent[0].bytes[14] >> 5, round == 0 ? 1 : 2);
		assert_int_equal(sent[0].bytes[18] >> 5, round == 0 ? 1 : 2);
		assert_int_equal((sent[0].bytes[14] & 0xf) << 8 | sent[0].bytes[15], 100);
		assert_memory_equal(sent[0].bytes + 20, frame + 12, 4);
		filters[0].local_mac = (char *)"02:00:00:00:00:77";
		assert_int_equal(put_filters(filters, 2), 0);
	}
}

// The reverse of write_frame(). Returns the length.
static size_t
write_answer(uint8_t *frame, const uint32_t *tags, unsigned count)
{
	size_t length = write_frame(frame, tags, count, 0x0800), ip = 14 + 4 * count;

	memcpy(frame, "\2\0\0\0\0\2\2\0\0\0\0\1", 12);
	write_udp(write_ip4(frame + ip, "203.0.113.9", "100.64.0.2", UDP + 8), 5000, 4000, 8);
	return length;
}

static void
derived_rules_for_frames_stand_between_signalled_ones_of_lower_and_of_higher_precedence(void **state)
{
	const uint32_t own[] = {C | 3 * PCP | 7}, other[] = {C | 2 * PCP | 7};
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule rule = SLUICE__V1__QOS_RULE__INIT, *rules[] = {&rule};
	filter_t one = filter(), *filters[] = {&one};
	uint8_t frame[256];
	size_t length = write_answer(frame, own, 1);

	one.local_mac = (char *)"02:00:00:00:00:02";
	one.direction = SLUICE__V1__FILTER_DIRECTION__UPLINK;
	rule.filters = filters;
	rule.n_filters = 1;
	rule.qfi = 5;
	rule.precedence = 81;
	profile.rules = rules;
	profile.n_rules = 1;
	assert_int_equal(put("FlowProfile", "lan", &profile), 0);
	assert_int_equal(uplink_qfi(own, 1, 0x0800), 5);
	send_down_frame(frame, length, 32);
	assert_int_equal(sent_to("access"), 1);
	assert_int_equal(uplink_qfi(own, 1, 0x0800), 5);
	send_down_frame(frame, length, RQI | 33);
	assert_int_equal(sent_to("access"), 1);
	assert_int_equal(uplink_qfi(own, 1, 0x0800), 33);
	assert_int_equal(uplink_qfi(other, 1, 0x0800), 5);
	assert_int_equal(uplink_qfi(own, 1, 0x86dd), 5);
	assert_int_equal(uplink_qfi(NULL, 0, 0x0800), 5);
	rule.precedence = 79;
	assert_int_equal(put("FlowProfile", "lan", &profile), 0);
	assert_int_equal(uplink_qfi(own, 1, 0x0800), 5);
	profile.n_rules = 0;
	assert_int_equal(put("FlowProfile", "lan", &profile), 0);
	assert_int_equal(uplink_qfi(own, 1, 0x0800), 33);
	assert_int_equal(uplink_qfi(other, 1, 0x0800), NONE);
	// The later rule takes the place of the earlier.
	send_down_frame(frame, length, RQI | 34);
	assert_int_equal(uplink_qfi(own, 1, 0x0800), 34);
}

// Each is delivered as it is, or dropped where it is no frame at all.
static void
a_downlink_frame_that_asks_for_a_rule_may_be_cut_anywhere(void **state)
{
	const uint32_t own[] = {S | 9, C | 7};
	uint8_t frame[256];

	for (unsigned count = 0; count <= 2; count++) {
		size_t length = write_answer(frame, own, count);

		for (size_t cut = 0; cut <= length; cut++) {
			send_down_frame(frame, cut, RQI | 11);
			assert_int_equal(sent_to("access"), cut >= 14);
		}
		assert_int_equal(uplink_qfi(own, count, 0x0800), 11);
	}
}

static void
assert_refused(filter_t *one, const char *words)
{
	assert_true(put_filters(one, 1) < 0);
	if (!strstr(fault_of_put.text, words))
		fail_msg("\"%s\" does not say %s", fault_of_put.text, words);
}

static void
invalid_filters_of_frames_are_refused_in_words(void **state)
{
	uint32_t priorities[] = {8};
	filter_t one = filter();

	one.remote_mac = (char *)"02:00:00:00:00";
	assert_refused(&one, "remoteMac: an Ethernet address");
	one = filter();
	one.local_mac = (char *)"x";
	assert_refused(&one, "localMac");
	one = filter();
	one.ether_type = 1500;
	assert_refused(&one, "etherType: 1500");
	one.ether_type = 65536;
	assert_refused(&one, "etherType: 65536");
	one = filter();
	one.c_vlan = 4095;
	assert_refused(&one, "cVlan: 4095");
	one = filter();
	one.s_vlan = 70000;
	assert_refused(&one, "sVlan: 70000");
	one = filter();
	one.s_priorities = priorities;
	one.n_s_priorities = 1;
	assert_refused(&one, "sPriorities: 8");
	one = filter();
	one.s_drop_eligible = (Sluice__V1__DropEligible)3;
	assert_refused(&one, "sDropEligible: 3");
}

static void
more_filters_of_frames_than_can_be_gone_through_are_refused(void **state)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule rule = SLUICE__V1__QOS_RULE__INIT, *rules[] = {&rule};
	filter_t one = filter(), *filters[FRAME_FILTERS + 1];

	one.c_vlan = 7;
	for (unsigned i = 0; i < RTE_DIM(filters); i++)
		filters[i] = &one;
	rule.filters = filters;
	rule.n_filters = FRAME_FILTERS;
	profile.rules = rules;
	profile.n_rules = 1;
	assert_int_equal(put("FlowProfile", "lan", &profile), 0);
	rule.n_filters = FRAME_FILTERS + 1;
	assert_int_equal(put("FlowProfile", "lan", &profile), -ENOSPC);
	assert_non_null(strstr(fault_of_put.text, "257 filters of frames of a direction are more than 256"));
}

// In memory that ends where the frame does.
static void
a_frame_may_be_cut_anywhere(void **state)
{
	const uint32_t tags[] = {S | 9, C | 7};
	struct frame_filter any = {.reads_packet = true,
		.packet = {.protocol = 17,
			.reads = RULE_READS_PORTS,
			.source_high = UINT16_MAX,
			.destination_high = UINT16_MAX}};
	uint8_t frame[256];

	for (unsigned count = 0; count <= 2; count++) {
		size_t length = write_frame(frame, tags, count, 0x0800), ports = length - 8 - UDP + 4;

		for (size_t cut = 0; cut <= length; cut++) {
			uint8_t *exact = malloc(cut + 1);

			memcpy(exact + 1, frame, cut);
			assert_int_equal(frame_filters_find(&any, 1, exact + 1, cut), cut >= ports ? 0 : -1);
			free(exact);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_field_of_a_frame_is_matched_alone),
		cmocka_unit_test(a_filter_may_look_into_the_packet_in_the_frame_too),
		cmocka_unit_test(downlink_frames_are_marked_in_the_tags_of_the_access_alone),
		cmocka_unit_test(
			derived_rules_for_frames_stand_between_signalled_ones_of_lower_and_of_higher_precedence),
		cmocka_unit_test(a_downlink_frame_that_asks_for_a_rule_may_be_cut_anywhere),
		cmocka_unit_test(invalid_filters_of_frames_are_refused_in_words),
		cmocka_unit_test(more_filters_of_frames_than_can_be_gone_through_are_refused),
		cmocka_unit_test(a_frame_may_be_cut_anywhere),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
