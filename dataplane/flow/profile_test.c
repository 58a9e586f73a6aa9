// SPDX-License-Identifier: Apache-2.0
// Accepted and refused flow profiles, and their effect on packets.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "flow/profile.h"
#include "meter.pb-c.h"
#include "session/all_sessions.h"

enum { OUTER = 20 + UDP, QFI_AT = 14 + OUTER + 14, TOS_AT = 15 };

static const struct subscriber user = {.name = "user",
	.mac = "02:01:00:00:00:09",
	.address4 = "100.64.0.2/32",
	.outer = 100,
	.inner = 2,
	.teid = 20,
	.reflective = true,
	.flows = "home"};

// A profile of up to eight rules of one filter each, and as many flows.
struct words {
	struct {
		uint32_t precedence, qfi;
		Sluice__V1__PacketFilter filter;
		bool none; // no filter
	} rules[8];
	unsigned rule_count;
	Sluice__V1__QosFlow flows[8];
	unsigned flow_count;
	// Meters of packets of no flow; NULL: none.
	char *other_up, *other_down;
};

static Sluice__V1__PacketFilter
filter(void)
{
	return (Sluice__V1__PacketFilter)SLUICE__V1__PACKET_FILTER__INIT;
}

static struct words
empty(void)
{
	struct words w = {0};

	for (unsigned i = 0; i < RTE_DIM(w.rules); i++)
		w.rules[i].filter = filter();
	for (unsigned i = 0; i < RTE_DIM(w.flows); i++)
		w.flows[i] = (Sluice__V1__QosFlow)SLUICE__V1__QOS_FLOW__INIT;
	return w;
}

static int
put_words(struct words *w)
{
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule rules[8], *list[8];
	Sluice__V1__PacketFilter *filters[8];
	Sluice__V1__QosFlow *flows[8];

	for (unsigned i = 0; i < w->rule_count; i++) {
		sluice__v1__qos_rule__init(&rules[i]);
		rules[i].precedence = w->rules[i].precedence;
		rules[i].qfi = w->rules[i].qfi;
		filters[i] = &w->rules[i].filter;
		rules[i].filters = &filters[i];
		rules[i].n_filters = !w->rules[i].none;
		list[i] = &rules[i];
	}
	for (unsigned i = 0; i < w->flow_count; i++)
		flows[i] = &w->flows[i];
	profile.rules = list;
	profile.n_rules = w->rule_count;
	profile.flows = flows;
	profile.n_flows = w->flow_count;
	profile.other_meters_up = &w->other_up;
	profile.n_other_meters_up = w->other_up != NULL;
	profile.other_meters_down = &w->other_down;
	profile.n_other_meters_down = w->other_down != NULL;
	return put("FlowProfile", "home", &profile);
}

static int
start(void **state)
{
	struct words w = empty();

	return all_sessions_start(1) || put_words(&w) || put_session(&user);
}

static void
assert_refused(struct words *w, const char *words)
{
	assert_true(put_words(w) < 0);
	if (!strstr(fault_of_put.text, words))
		fail_msg("\"%s\" does not say %s", fault_of_put.text, words);
}

static void
invalid_profiles_are_refused_in_words(void **state)
{
	struct words w = empty();

	w.rule_count = 2;
	w.rules[0].precedence = w.rules[1].precedence = 7;
	assert_refused(&w, "rule 2, precedence: 7 is rule 1's");
	w.rules[1].precedence = 80;
	assert_refused(&w, "rule 2, precedence: 80");
	w.rules[1].precedence = 8;
	w.rules[1].qfi = 64;
	assert_refused(&w, "rules[1].qfi: 64");
	w.rules[1].qfi = 0;
	w.rules[1].filter.remote_ports = (char *)"1-x";
	assert_refused(&w, "rule 2, filter 1, remotePorts: \"1-x\"");
	w.rules[1].filter.remote_ports = (char *)"";
	w.rules[1].filter.local = (char *)"1.2.3.4/24";
	assert_refused(&w, "rule 2, filter 1, local: \"1.2.3.4/24\"");
	w.rules[1].filter.local = (char *)"1.2.3.0/24";
	w.rules[1].filter.flow_label = 5;
	assert_refused(&w, "rule 2, filter 1, flowLabel: IPv4 has none");
	w.rules[1].filter.local = (char *)"";
	w.rules[1].filter.flow_label = 1 << 20;
	assert_refused(&w, "rules[1].filters[0].flowLabel: 1048576");
	w.rules[1].filter.flow_label = 0;
	w.rules[1].filter.spi = 9;
	w.rules[1].filter.protocol = (char *)"tcp";
	assert_refused(&w, "rule 2, filter 1, spi: ESP");
	w.rule_count = 0;
	w.flow_count = 2;
	assert_refused(&w, "flow 2, qfi: duplicate QFI 0");
	w.flows[1].qfi = 3;
	w.flows[1].class_ = 8;
	assert_refused(&w, "flows[1].class: 8");
	w.flows[1].class_ = 0;
	w.flows[1].dscp = (char *)"zf";
	assert_refused(&w, "flow 2, dscp: \"zf\"");
}

// The QFI of the tunnelled packet of the subscriber.
static unsigned
uplink_qfi(void)
{
	send_up(100, 2, "100.64.0.2");
	assert_int_equal(sent_to("core"), 1);
	return sent[0].bytes[QFI_AT];
}

static void
the_first_rule_by_precedence_decides_and_other_packets_have_the_session_s_qfi(void **state)
{
	struct words w = empty();

	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 9);
	w.rule_count = 3;
	w.rules[0].precedence = 20;
	w.rules[0].qfi = 5;
	w.rules[0].filter.remote = (char *)"203.0.113.0/24";
	w.rules[1].precedence = 10;
	w.rules[1].qfi = 6;
	w.rules[1].filter.protocol = (char *)"udp";
	w.rules[1].filter.local_ports = (char *)"3999-4000";
	w.rules[1].filter.remote_ports = (char *)"5000";
	w.rules[2].precedence = 255;
	w.rules[2].qfi = 7;
	w.rules[2].none = true;
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 6);
	w.rules[1].filter.local_ports = (char *)"1-3999";
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 5);
	w.rules[0].filter.direction = SLUICE__V1__FILTER_DIRECTION__DOWNLINK;
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 7);
}

static void
the_outer_dscp_is_the_flow_s_or_the_inner_one(void **state)
{
	struct words w = empty();
	struct ip4_header outer;

	w.flow_count = 1;
	w.flows[0].qfi = 9;
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 9);
	assert_int_equal(sent[0].bytes[TOS_AT], 0);
	w.flows[0].dscp = (char *)"ef";
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 9);
	assert_int_equal(sent[0].bytes[TOS_AT], 46 << 2);
	// The header's checksum matches its content.
	memcpy(&outer, sent[0].bytes + 14, sizeof(outer));
	assert_int_equal(ip4_checksum(&outer), outer.checksum);
}

// A downlink packet with this QFI and, if `reflective`, the RQI.
static void
send_downlink(uint8_t qfi, bool reflective)
{
	enum { GTPU = 16, INNER = 20 + UDP + PAYLOAD };
	const uint8_t header[GTPU] = {
		0x34, 255, 0, GTPU - 8 + INNER, 0, 0, 0, 20, 0, 0, 0, 0x85, 1, 0, (uint8_t)(qfi | reflective << 6), 0};
	uint8_t frame[256], *at = write_core(frame, 0x0800);

	at = write_udp(write_ip4(at, "192.0.2.2", "192.0.2.1", UDP + GTPU + INNER), 40000, 2152, GTPU + INNER);
	memcpy(at, header, sizeof(header));
	at = write_ip4(at + sizeof(header), "203.0.113.9", "100.64.0.2", UDP + PAYLOAD);
	at = write_udp(at, 5000, 4000, PAYLOAD);
	memset(at, 0, PAYLOAD);
	sent_count = 0;
	receive("core", frame, (size_t)(at + PAYLOAD - frame));
}

static void
send_with_qfi(uint8_t qfi, bool reflective)
{
	send_downlink(qfi, reflective);
	assert_int_equal(sent_to("access"), 1);
}

static void
derived_rules_stand_between_signalled_ones_of_lower_and_of_higher_precedence(void **state)
{
	struct words w = empty();

	w.rule_count = 1;
	w.rules[0].qfi = 5;
	w.rules[0].precedence = 81;
	w.rules[0].filter.direction = SLUICE__V1__FILTER_DIRECTION__UPLINK;
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 5);
	send_with_qfi(33, true);
	assert_int_equal(uplink_qfi(), 33);
	w.rules[0].precedence = 79;
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 5);
	w.rule_count = 0;
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 33);
}

static void
tags_towards_the_subscriber_have_the_priority_of_the_flow(void **state)
{
	struct words w = empty();

	w.flow_count = 2;
	w.flows[0].qfi = 4;
	w.flows[0].priority = 5;
	w.flows[1].qfi = 6;
	w.flows[1].priority = 7;
	assert_int_equal(put_words(&w), 0);
	send_with_qfi(3, false);
	assert_int_equal(sent[0].bytes[14] >> 5, 0);
	send_with_qfi(4, false);
	assert_int_equal(sent[0].bytes[14] >> 5, 5);
	assert_int_equal(sent[0].bytes[18] >> 5, 5);
	assert_int_equal((sent[0].bytes[14] & 0xf) << 8 | sent[0].bytes[15], 100);
	assert_int_equal((sent[0].bytes[18] & 0xf) << 8 | sent[0].bytes[19], 2);
	// A filter goes before the QFI.
	w.rule_count = 1;
	w.rules[0].qfi = 6;
	w.rules[0].filter.protocol = (char *)"udp";
	w.rules[0].filter.remote = (char *)"203.0.113.9/32";
	w.rules[0].filter.remote_ports = (char *)"5000";
	w.rules[0].filter.direction = SLUICE__V1__FILTER_DIRECTION__DOWNLINK;
	assert_int_equal(put_words(&w), 0);
	send_with_qfi(4, false);
	assert_int_equal(sent[0].bytes[14] >> 5, 7);
}

static int
put_meter(const char *name, int scope, uint32_t burst)
{
	Sluice__V1__Meter meter = SLUICE__V1__METER__INIT;

	meter.committed_rate = 8000;
	meter.committed_burst = burst;
	meter.scope = scope;
	return put("Meter", name, &meter);
}

static void
packets_of_a_flow_pass_all_meters_of_the_flow(void **state)
{
	struct words w = empty();
	char *own[] = {(char *)"own"}, *both[] = {(char *)"wide", (char *)"narrow"};

	assert_int_equal(put_meter("own", SLUICE__V1__METER_SCOPE__SESSION, 10000), 0);
	assert_int_equal(put_meter("wide", SLUICE__V1__METER_SCOPE__GLOBAL, 10000), 0);
	assert_int_equal(put_meter("narrow", SLUICE__V1__METER_SCOPE__GLOBAL, 20), 0);
	w.rule_count = w.flow_count = 2;
	w.rules[0].precedence = 10;
	w.rules[0].qfi = w.flows[0].qfi = 6;
	w.rules[0].filter.local_ports = (char *)"3999-4000";
	w.rules[1].precedence = 255;
	w.rules[1].qfi = w.flows[1].qfi = 7;
	w.rules[1].none = true;
	w.flows[0].meters_up = own;
	w.flows[0].n_meters_up = 1;
	assert_refused(&w, "flows.metersUp: meter own of QFI 6: set its scope to global");
	w.flows[0].meters_up = both;
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 6);
	w.flows[0].n_meters_up = 2;
	assert_int_equal(put_words(&w), 0);
	send_up(100, 2, "100.64.0.2");
	assert_int_equal(sent_to("core"), 0);
	assert_int_equal(object_delete("Meter", "narrow", &fault_of_put), -EBUSY);
	// Meters of another flow do not count.
	w.flows[1].meters_up = both;
	w.flows[1].n_meters_up = 2;
	w.flows[0].n_meters_up = 0;
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(uplink_qfi(), 6);
	w.flows[1].n_meters_up = 0;
	assert_int_equal(put_words(&w), 0);
	assert_int_equal(object_delete("Meter", "narrow", &fault_of_put), 0);
	assert_int_equal(object_delete("Meter", "wide", &fault_of_put), 0);
}

static void
packets_of_no_flow_pass_the_meters_of_other_packets(void **state)
{
	struct words w = empty();

	assert_int_equal(put_meter("tight", SLUICE__V1__METER_SCOPE__GLOBAL, 20), 0);
	w.rule_count = w.flow_count = 1;
	w.rules[0].precedence = 10;
	w.rules[0].qfi = w.flows[0].qfi = 6;
	w.rules[0].filter.direction = SLUICE__V1__FILTER_DIRECTION__UPLINK;
	w.rules[0].filter.local_ports = (char *)"3999-4000";
	w.other_down = w.other_up = (char *)"own";
	assert_refused(&w, "otherMetersUp: meter own: set its scope to global");
	w.other_down = w.other_up = (char *)"tight";
	assert_int_equal(put_words(&w), 0);
	// Packets of a flow without meters pass.
	assert_int_equal(uplink_qfi(), 6);
	send_with_qfi(6, false);
	// Downlink, a QFI that is not listed; 0 is also that of a packet without a container.
	send_downlink(0, false);
	assert_int_equal(sent_to("access"), 0);
	send_downlink(63, false);
	assert_int_equal(sent_to("access"), 0);
	// Uplink, no rule matches.
	w.rules[0].filter.local_ports = (char *)"1-3999";
	assert_int_equal(put_words(&w), 0);
	send_up(100, 2, "100.64.0.2");
	assert_int_equal(sent_to("core"), 0);
	assert_int_equal(object_delete("Meter", "tight", &fault_of_put), -EBUSY);
	w.other_up = NULL;
	assert_int_equal(put_words(&w), 0);
	send_up(100, 2, "100.64.0.2");
	assert_int_equal(sent_to("core"), 1);
	w.other_down = NULL;
	assert_int_equal(put_words(&w), 0);
	send_with_qfi(63, false);
	assert_int_equal(object_delete("Meter", "tight", &fault_of_put), 0);
}

static void
a_profile_in_use_cannot_go_and_a_session_can_do_without(void **state)
{
	struct subscriber without = user;

	assert_int_equal(object_delete("FlowProfile", "home", &fault_of_put), -EBUSY);
	without.flows = NULL;
	assert_int_equal(put_session(&without), 0);
	assert_int_equal(object_delete("FlowProfile", "home", &fault_of_put), 0);
	send_up(100, 2, "100.64.0.2");
	assert_int_equal(sent_to("core"), 1);
	assert_int_equal(put_session(&user), -ENOENT);
}

static void
filters_of_all_profiles_are_counted(void **state)
{
	enum { MANY = FLOW_FILTERS / 2 };
	Sluice__V1__FlowProfile profile = SLUICE__V1__FLOW_PROFILE__INIT;
	Sluice__V1__QosRule rule = SLUICE__V1__QOS_RULE__INIT, *rules[] = {&rule};
	Sluice__V1__PacketFilter **filters = calloc(MANY, sizeof(*filters)), one = filter();
	size_t length;
	uint8_t *packed;

	// Alike, so that they take no time to be made ready.
	one.direction = SLUICE__V1__FILTER_DIRECTION__DOWNLINK;
	one.protocol = (char *)"17";
	one.remote = (char *)"192.0.2.1/32";
	one.local = (char *)"192.0.2.2/32";
	one.remote_ports = one.local_ports = (char *)"7";
	for (unsigned i = 0; i < MANY; i++)
		filters[i] = &one;
	rule.filters = filters;
	rule.n_filters = MANY;
	profile.rules = rules;
	profile.n_rules = 1;
	packed = malloc(protobuf_c_message_get_packed_size(&profile.base));
	length = protobuf_c_message_pack(&profile.base, packed);
	assert_int_equal(object_put("FlowProfile", "one", packed, length, &fault_of_put), 0);
	assert_int_equal(object_put("FlowProfile", "two", packed, length, &fault_of_put), 0);
	// In their place, not beside them.
	assert_int_equal(object_put("FlowProfile", "two", packed, length, &fault_of_put), 0);
	assert_int_equal(object_put("FlowProfile", "three", packed, length, &fault_of_put), -ENOSPC);
	assert_non_null(strstr(fault_of_put.text, "flow profile three, rules: with its 131072 downlink filters"));
	assert_int_equal(object_delete("FlowProfile", "one", &fault_of_put), 0);
	assert_int_equal(object_put("FlowProfile", "three", packed, length, &fault_of_put), 0);
	free(packed);
	free(filters);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(invalid_profiles_are_refused_in_words),
		cmocka_unit_test(the_first_rule_by_precedence_decides_and_other_packets_have_the_session_s_qfi),
		cmocka_unit_test(the_outer_dscp_is_the_flow_s_or_the_inner_one),
		cmocka_unit_test(derived_rules_stand_between_signalled_ones_of_lower_and_of_higher_precedence),
		cmocka_unit_test(tags_towards_the_subscriber_have_the_priority_of_the_flow),
		cmocka_unit_test(packets_of_a_flow_pass_all_meters_of_the_flow),
		cmocka_unit_test(packets_of_no_flow_pass_the_meters_of_other_packets),
		cmocka_unit_test(a_profile_in_use_cannot_go_and_a_session_can_do_without),
		cmocka_unit_test(filters_of_all_profiles_are_counted),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
