// SPDX-License-Identifier: Apache-2.0
// The node hqos-classify by itself: the class of packets and frames, and the marks that it writes into them.
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <rte_ip.h>

#include "acl.pb-c.h"
#include "acl/acl.h"
#include "core/one_node.h"
#include "hqos/hqos.h"
#include "hqos/shaped.h"

enum { STEP = 5, SESSION = 3, QUEUE = 7 << QUEUE_PORT_SHIFT | 9, TCP_LENGTH = 40, SOURCE_PORT = 1000 };

// Configured places of the one profile's classes. The last goes before all others, so a class's number is one more than its place.
enum { REST, BY_ACL, BY_FLOW, BY_QFI, BY_DSCP, BY_TAG, URGENT, PLACES };
enum { QFI = 9, DSCP = 46, TAG = 6, PROFILE = 1 };

static const uint64_t HZ = 1000000000;

static Sluice__V1__QosMatch matches[PLACES];
static Sluice__V1__QosMark marks[PLACES];
static struct object list = {.name = (char *)"list", .kind = &acl_kind};

// A list that permits TCP to port 22. One of exact rules alone is a hash table, which does without the EAL.
static int
put_list(void)
{
	enum { RULES = 200 };
	static Sluice__V1__AclRule storage[RULES];
	static char ports[RULES][8];
	Sluice__V1__AclRule *rules[RULES];
	Sluice__V1__Acl spec = SLUICE__V1__ACL__INIT;
	struct fault f;

	for (unsigned i = 0; i < RULES; i++) {
		sluice__v1__acl_rule__init(&storage[i]);
		snprintf(ports[i], sizeof(ports[i]), "%u", SOURCE_PORT + i / 2);
		storage[i].action = SLUICE__V1__ACL_ACTION__PERMIT;
		storage[i].protocol = (char *)"tcp";
		storage[i].source = (char *)(uintptr_t)(i % 2 ? "10.0.0.1/32" : "2001:db8::/128");
		storage[i].destination = (char *)(uintptr_t)(i % 2 ? "203.0.113.9/32" : "::1/128");
		storage[i].source_ports = ports[i];
		storage[i].destination_ports = (char *)"22";
		rules[i] = &storage[i];
	}
	spec.n_rules = RULES;
	spec.rules = rules;
	spec.otherwise = SLUICE__V1__ACL_ACTION__DENY;
	return acl_kind.prepare("list", &spec, NULL, &list.prepared, &f) || acl_kind.put(&list, NULL, NULL, &f);
}

static void
put_profile(void)
{
	static char *names[PLACES] = {"rest", "acl", "flow", "qfi", "dscp", "tag", "urgent"};
	Sluice__V1__QosProfile spec = SLUICE__V1__QOS_PROFILE__INIT;
	Sluice__V1__QosClass classes[PLACES], *pointers[PLACES];
	struct qos_profile *profile = aligned_alloc(64, RTE_ALIGN_CEIL(sizeof(*profile), 64));
	struct fault f;

	for (unsigned i = 0; i < PLACES; i++) {
		sluice__v1__qos_class__init(&classes[i]);
		classes[i].name = names[i];
		classes[i].priority = i != URGENT;
		classes[i].match = &matches[i];
		classes[i].mark = &marks[i];
		pointers[i] = &classes[i];
	}
	spec.classes = pointers;
	spec.n_classes = PLACES;
	if (qos_profile_parse("home", &spec, HZ, profile, &f))
		fail_msg("%s", f.text);
	profile->acl[BY_ACL] = acl_of(&list);
	profile->by_acl = true;
	free(qos_profiles[PROFILE]);
	qos_profiles[PROFILE] = profile;
}

static int
make_tables(void **state)
{
	(void)state;
	return acl_kind.start() || qos_profile_kind.start() || put_list();
}

static int
fresh(void **state)
{
	static uint32_t qfi = QFI, tag = TAG;
	static char *dscp = (char *)"ef";
	struct qos_binding binding = {.queue = QUEUE, .profile = PROFILE};

	(void)state;
	for (unsigned i = 0; i < PLACES; i++) {
		sluice__v1__qos_match__init(&matches[i]);
		sluice__v1__qos_mark__init(&marks[i]);
	}
	matches[BY_QFI].qfis = &qfi;
	matches[BY_DSCP].dscp = &dscp;
	matches[BY_TAG].vlan_priorities = &tag;
	matches[BY_QFI].n_qfis = matches[BY_DSCP].n_dscp = matches[BY_TAG].n_vlan_priorities = 1;
	put_profile();
	memset(&qos_bindings[UP][SESSION], 0, sizeof(binding));
	qos_bindings[DOWN][SESSION] = binding;
	return 0;
}

static int
delete_tables(void **state)
{
	struct fault f;

	(void)state;
	free(qos_profiles[PROFILE]);
	return acl_kind.delete(&list, NULL, &f);
}

// A TCP packet to a port, with the ECN bits 01.
static unsigned
write_ip(uint8_t *at, uint8_t family, uint8_t dscp, uint16_t port)
{
	unsigned length = family == 4 ? 20 : 40;

	memset(at, 0, length + 20);
	if (family == 4) {
		struct rte_ipv4_hdr header = {.version_ihl = 0x45,
			.type_of_service = (uint8_t)(dscp << 2 | 1),
			.total_length = htons(TCP_LENGTH),
			.packet_id = htons((uint16_t)(port * 1031u + dscp)),
			.time_to_live = 64,
			.next_proto_id = IPPROTO_TCP,
			.src_addr = htonl(0x0a000001),
			.dst_addr = htonl(0xcb007109)};

		header.hdr_checksum = rte_ipv4_cksum(&header);
		memcpy(at, &header, sizeof(header));
	} else {
		// Behind the traffic class a flow label.
		memcpy(at, (uint8_t[]){(uint8_t)(0x60 | dscp >> 2), (uint8_t)(dscp << 6 | 0x1a), 0xbc, 0xde, 0, 20}, 6);
		memcpy(at + 6, (uint8_t[]){IPPROTO_TCP, 64, 0x20, 1, 0xd, 0xb8}, 6);
		at[39] = 1;
	}
	memcpy(at + length, (uint8_t[]){SOURCE_PORT >> 8, SOURCE_PORT & 0xff, (uint8_t)(port >> 8), (uint8_t)port}, 4);
	at[length + 12] = 0x50;
	return length + 20;
}

static struct rte_mbuf *
of_session(struct rte_mbuf *m, uint8_t family)
{
	struct packet *p = packet_of(m);

	p->family = family;
	p->session = SESSION;
	p->direction = DOWN;
	p->chain = STEP;
	p->qfi = NO_QFI;
	return m;
}

static struct rte_mbuf *
packet(uint8_t family, uint8_t dscp, uint16_t port)
{
	uint8_t bytes[64];

	return of_session(one_node_packet(bytes, (uint16_t)write_ip(bytes, family, dscp, port)), family);
}

// To the next step, into the queue of its session.
static void
run(struct rte_mbuf *m)
{
	uint16_t edge;

	one_node_run(&hqos_classify_node, &m, 1, &edge);
	assert_int_equal(edge, STEP);
	assert_int_equal(packet_of(m)->queue, QUEUE);
}

// The configured place of the class that the packet got. Frees it.
static unsigned
place_of(struct rte_mbuf *m)
{
	const struct qos_profile *profile = qos_profile_at(PROFILE);
	unsigned place = PLACES;

	run(m);
	for (unsigned i = 0; i < PLACES; i++)
		if (profile->number_of[i] == packet_of(m)->class)
			place = i;
	free(m);
	return place;
}

static void
the_list_goes_before_the_flow_that_before_the_qfi_the_dscp_and_the_tag_and_the_rest_is_the_first_class(void **state)
{
	static const struct {
		unsigned place;
		uint16_t port;
		uint8_t flow, qfi, dscp, tag;
	} cases[] = {
		{BY_ACL, 22, BY_FLOW, QFI, DSCP, TAG},
		{BY_FLOW, 80, BY_FLOW, QFI, DSCP, TAG},
		{BY_QFI, 80, 0, QFI, DSCP, TAG},
		{BY_DSCP, 80, 0, NO_QFI, DSCP, TAG},
		{BY_TAG, 80, 0, NO_QFI, DSCP - 1, TAG},
		{REST, 80, 0, NO_QFI, DSCP - 1, TAG - 1},
		// Values that no class asks for lead to the next question,
		{BY_DSCP, 80, 0, QFI + 1, DSCP, TAG},
		{BY_TAG, 80, 0, QFI + 1, 0, TAG},
		// and so does a flow's class that the profile does not have.
		{URGENT, 80, URGENT, QFI, DSCP, TAG},
		{BY_QFI, 80, PLACES, QFI, DSCP, TAG},
		{REST, 80, 7, NO_QFI, 0, 0},
	};

	(void)state;
	for (unsigned i = 0; i < RTE_DIM(cases); i++)
		for (uint8_t family = 4; family <= 6; family += 2) {
			struct rte_mbuf *m = packet(family, cases[i].dscp, cases[i].port);

			packet_of(m)->class = cases[i].flow;
			packet_of(m)->qfi = cases[i].qfi;
			packet_of(m)->outer_priority = cases[i].tag;
			assert_int_equal(place_of(m), cases[i].place);
		}
}

static void
a_packet_whose_tcp_header_is_cut_off_is_of_no_list_that_reads_ports(void **state)
{
	(void)state;
	for (unsigned length = 20; length <= TCP_LENGTH; length++) {
		uint8_t bytes[64];

		write_ip(bytes, 4, DSCP, 22);
		assert_int_equal(place_of(of_session(one_node_packet(bytes, (uint16_t)length), 4)),
			length < 34 ? BY_DSCP : BY_ACL);
	}
}

static void
each_direction_of_a_session_has_a_profile_and_a_queue_and_others_use_the_open_one(void **state)
{
	enum { MANY = 2 * BURST + 31 };
	static struct rte_mbuf *packets[MANY];
	static uint16_t edges[MANY];

	(void)state;
	for (unsigned i = 0; i < MANY; i++) {
		packets[i] = packet(4, DSCP, 80);
		packet_of(packets[i])->direction = i % 3 ? DOWN : UP;
	}
	one_node_run(&hqos_classify_node, packets, MANY, edges);
	for (unsigned i = 0; i < MANY; i++) {
		const struct packet *p = packet_of(packets[i]);

		assert_int_equal(edges[i], STEP);
		assert_int_equal(p->queue, i % 3 ? QUEUE : NO_QUEUE);
		assert_int_equal(p->class, i % 3 ? qos_profile_at(PROFILE)->number_of[BY_DSCP] : 0);
		free(packets[i]);
	}
}

// A frame with as many tags of its own: the first has the priority, the second another.
static unsigned
write_frame(uint8_t *at, const uint16_t *tpids, unsigned tags, uint8_t priority, uint16_t type, unsigned *ip)
{
	unsigned length = 12;

	memset(at, 2, length);
	for (unsigned i = 0; i < tags; i++) {
		uint16_t tag = (uint16_t)((i == 0 ? priority : 1) << 13 | 77);

		memcpy(at + length,
			(uint8_t[]){(uint8_t)(tpids[i] >> 8), (uint8_t)tpids[i], (uint8_t)(tag >> 8), (uint8_t)tag}, 4);
		length += 4;
	}
	at[length++] = (uint8_t)(type >> 8);
	at[length++] = (uint8_t)type;
	*ip = length;
	return length + (type == 0x86dd ? write_ip(at + length, 6, DSCP, 80) : write_ip(at + length, 4, DSCP, 80));
}

static void
a_frame_is_classed_by_the_ip_header_behind_up_to_two_tags_if_all_of_it_is_there_else_by_its_own_tag(void **state)
{
	static const struct {
		uint16_t tpids[2];
		unsigned tags;
	} cases[] = {
		{{0}, 0}, {{0x8100}, 1}, {{0x88a8}, 1}, {{0x9100}, 1}, {{0x88a8, 0x8100}, 2}, {{0x8100, 0x8100}, 2}};

	(void)state;
	for (unsigned c = 0; c < RTE_DIM(cases); c++)
		for (unsigned v6 = 0; v6 < 2; v6++) {
			unsigned tags = cases[c].tags, ip, whole;
			uint8_t bytes[128];

			whole = write_frame(bytes, cases[c].tpids, tags, TAG, v6 ? 0x86dd : 0x0800, &ip);
			for (unsigned length = 0; length <= whole; length++) {
				struct rte_mbuf *m = of_session(one_node_packet(bytes, (uint16_t)length), 0);
				unsigned place = length >= ip + (v6 ? 40 : 20) ? BY_DSCP
						 : tags > 0 && length >= 16    ? BY_TAG
									       : REST;

				assert_int_equal(place_of(m), place);
			}
		}
}

static void
a_frame_without_a_tag_of_its_own_is_classed_by_the_one_that_it_came_in_with(void **state)
{
	uint8_t bytes[128];
	unsigned ip, whole = write_frame(bytes, NULL, 0, 0, 0x0806, &ip);

	(void)state;
	for (unsigned length = 0; length <= whole; length++) {
		struct rte_mbuf *m = of_session(one_node_packet(bytes, (uint16_t)length), 0);

		packet_of(m)->outer_priority = TAG;
		assert_int_equal(place_of(m), BY_TAG);
	}
	// Its own goes before that.
	write_frame(bytes, (uint16_t[]){0x8100}, 1, 0, 0x0806, &ip);
	for (unsigned length = 12; length <= whole; length++) {
		struct rte_mbuf *m = of_session(one_node_packet(bytes, (uint16_t)length), 0);

		packet_of(m)->outer_priority = TAG;
		assert_int_equal(place_of(m), length < 16 ? BY_TAG : REST);
	}
}

static void
false_ip_and_ip_behind_three_tags_is_not_read_as_ip(void **state)
{
	static const uint16_t tpids[] = {0x88a8, 0x8100, 0x8100};
	uint8_t bytes[128];
	unsigned ip, whole = write_frame(bytes, tpids, 3, TAG, 0x0800, &ip);

	(void)state;
	assert_int_equal(place_of(of_session(one_node_packet(bytes, (uint16_t)whole), 0)), BY_TAG);
	whole = write_frame(bytes, tpids, 1, TAG, 0x86dd, &ip);
	bytes[ip] = 0x45;
	assert_int_equal(place_of(of_session(one_node_packet(bytes, (uint16_t)whole), 0)), BY_TAG);
	whole = write_frame(bytes, tpids, 1, TAG, 0x0800, &ip);
	bytes[ip] = 0x60;
	assert_int_equal(place_of(of_session(one_node_packet(bytes, (uint16_t)whole), 0)), BY_TAG);
}

static void
the_list_reads_the_ip_packet_in_a_frame(void **state)
{
	static const uint16_t tpids[] = {0x88a8, 0x8100};
	uint8_t bytes[128];

	(void)state;
	for (unsigned tags = 0; tags <= 2; tags++) {
		unsigned ip, whole = write_frame(bytes, tpids, tags, TAG, 0x0800, &ip);

		write_ip(bytes + ip, 4, DSCP, 22);
		assert_int_equal(place_of(of_session(one_node_packet(bytes, (uint16_t)whole), 0)), BY_ACL);
	}
}

// Only the DSCP has changed, and an IPv4 checksum with it.
static void
assert_marked(const uint8_t *ip, const uint8_t *before, unsigned length, uint8_t family, uint8_t dscp)
{
	uint8_t expected[64];

	memcpy(expected, before, length);
	if (family == 4) {
		struct rte_ipv4_hdr header;

		memcpy(&header, expected, sizeof(header));
		header.type_of_service = (uint8_t)(dscp << 2 | (header.type_of_service & 3));
		header.hdr_checksum = 0;
		header.hdr_checksum = rte_ipv4_cksum(&header);
		memcpy(expected, &header, sizeof(header));
	} else {
		expected[0] = (uint8_t)(0x60 | dscp >> 2);
		expected[1] = (uint8_t)(dscp << 6 | (expected[1] & 0x3f));
	}
	assert_memory_equal(ip, expected, length);
}

static void
a_class_writes_its_dscp_and_the_rest_of_the_header_stays_right(void **state)
{
	char text[8];

	(void)state;
	for (unsigned to = 0; to < 64; to++) {
		snprintf(text, sizeof(text), "%u", to);
		marks[REST].dscp = text;
		put_profile();
		for (unsigned from = 0; from < 64; from++)
			for (uint8_t family = 4; family <= 6; family += 2) {
				struct rte_mbuf *m;
				uint8_t before[64];
				unsigned length = write_ip(before, family, (uint8_t)from, (uint16_t)(1000 + to));

				if (from == DSCP)
					continue;
				m = of_session(one_node_packet(before, (uint16_t)length), family);
				run(m);
				assert_marked(rte_pktmbuf_mtod(m, uint8_t *), before, length, family, (uint8_t)to);
				free(m);
			}
	}
}

static void
classes_without_marks_leave_packets_as_they_are_beside_one_that_has(void **state)
{
	struct rte_mbuf *m = packet(4, DSCP, 80);
	uint8_t before[TCP_LENGTH];

	(void)state;
	marks[REST] =
		(Sluice__V1__QosMark){.base = marks[REST].base, .dscp = (char *)"af31", .vlan_priority = 5, .qfi = 7};
	put_profile();
	memcpy(before, rte_pktmbuf_mtod(m, void *), sizeof(before));
	packet_of(m)->priority = 3;
	run(m);
	assert_memory_equal(rte_pktmbuf_mtod(m, void *), before, sizeof(before));
	assert_int_equal(packet_of(m)->priority, 3);
	assert_int_equal(packet_of(m)->qfi, NO_QFI);
	assert_int_equal(packet_of(m)->flags & PACKET_QFI, 0);
	free(m);
}

static void
a_class_sets_the_priority_of_the_tags_and_the_qfi(void **state)
{
	struct rte_mbuf *m = packet(6, 0, 80);

	(void)state;
	marks[REST].vlan_priority = 5;
	marks[REST].qfi = 7;
	put_profile();
	packet_of(m)->qfi = QFI + 1;
	packet_of(m)->priority = 3;
	run(m);
	assert_int_equal(packet_of(m)->priority, 5);
	assert_int_equal(packet_of(m)->qfi, 7);
	assert_true(packet_of(m)->flags & PACKET_QFI);
	free(m);
}

static void
a_frame_s_ip_header_is_marked_in_its_place_and_a_frame_without_one_is_left_alone(void **state)
{
	static const uint16_t tpids[] = {0x88a8, 0x8100};

	(void)state;
	marks[BY_DSCP].dscp = marks[BY_TAG].dscp = marks[REST].dscp = (char *)"af31";
	put_profile();
	for (unsigned tags = 0; tags <= 2; tags++)
		for (uint8_t family = 4; family <= 6; family += 2) {
			uint8_t before[128];
			unsigned ip, whole;

			whole = write_frame(before, tpids, tags, TAG, family == 4 ? 0x0800 : 0x86dd, &ip);
			for (unsigned length = 0; length <= whole; length++) {
				struct rte_mbuf *m = of_session(one_node_packet(before, (uint16_t)length), 0);
				const uint8_t *after = rte_pktmbuf_mtod(m, uint8_t *);

				run(m);
				if (length >= ip + (family == 4 ? 20 : 40)) {
					assert_memory_equal(after, before, ip);
					assert_marked(after + ip, before + ip, length - ip, family, 26);
				} else {
					assert_memory_equal(after, before, length);
				}
				free(m);
			}
		}
}

static void
the_description_of_a_packet_has_its_qfi_and_priority(void **state)
{
	const struct packet p = {.qfi = QFI, .outer_priority = TAG};
	char text[80];

	(void)state;
	hqos_classify_node.describe(text, sizeof(text), &p, NULL, 0);
	assert_string_equal(text, "QFI 9, priority of its tag 6");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			the_list_goes_before_the_flow_that_before_the_qfi_the_dscp_and_the_tag_and_the_rest_is_the_first_class,
			fresh),
		cmocka_unit_test_setup(a_packet_whose_tcp_header_is_cut_off_is_of_no_list_that_reads_ports, fresh),
		cmocka_unit_test_setup(
			each_direction_of_a_session_has_a_profile_and_a_queue_and_others_use_the_open_one, fresh),
		cmocka_unit_test_setup(
			a_frame_is_classed_by_the_ip_header_behind_up_to_two_tags_if_all_of_it_is_there_else_by_its_own_tag,
			fresh),
		cmocka_unit_test_setup(
			a_frame_without_a_tag_of_its_own_is_classed_by_the_one_that_it_came_in_with, fresh),
		cmocka_unit_test_setup(false_ip_and_ip_behind_three_tags_is_not_read_as_ip, fresh),
		cmocka_unit_test_setup(the_list_reads_the_ip_packet_in_a_frame, fresh),
		cmocka_unit_test_setup(a_class_writes_its_dscp_and_the_rest_of_the_header_stays_right, fresh),
		cmocka_unit_test_setup(classes_without_marks_leave_packets_as_they_are_beside_one_that_has, fresh),
		cmocka_unit_test_setup(a_class_sets_the_priority_of_the_tags_and_the_qfi, fresh),
		cmocka_unit_test_setup(
			a_frame_s_ip_header_is_marked_in_its_place_and_a_frame_without_one_is_left_alone, fresh),
		cmocka_unit_test_setup(the_description_of_a_packet_has_its_qfi_and_priority, fresh),
	};

	return cmocka_run_group_tests(tests, make_tables, delete_tables);
}
