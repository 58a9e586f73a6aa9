// SPDX-License-Identifier: Apache-2.0
// The node ether-input by itself: the session or interface of a frame, and the drop reasons of malformed ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/drop.h"
#include "core/one_node.h"
#include "ether/circuit.h"
#include "ether/interface.h"
#include "ether/own_type.h"
#include "fib/hop.h"
#include "ip/nodes.h"
#include "session/session.h"

enum { PORT = 1, IP4 = 3, IP6 = 4, PPPOE = 5, ARP = 6, UP4 = 7, UP6 = 8, LOOKUP = 9, GROUP4 = 10 };
enum { FRAMES = 11, FRAMES_PORT = 2 };
enum { INTERFACE = 0, SESSION = 41, SHARED_SESSION = 42, FRAMES_SESSION = 43 };

static const struct circuit untagged = {PORT, 0, 0}, single = {PORT, 100, 0}, pair = {PORT, 100, 7},
			    shared = {PORT, 200, 0};
// On a port of their own: sessions of type Ethernet without a tag, with one, and with two.
static const struct circuit frames[] = {{FRAMES_PORT, 0, 0}, {FRAMES_PORT, 300, 0}, {FRAMES_PORT, 301, 7}};
static const struct rte_ether_addr subscriber = {{2, 1, 0, 0, 0, 9}};
static struct node pppoe = {.name = "pppoe", .id = PPPOE}, arp = {.name = "arp", .id = ARP};

static int
set_up(void **state)
{
	struct fault f;

	ip4_input_node.id = IP4;
	ip6_input_node.id = IP6;
	session_up4_node.id = UP4;
	session_up6_node.id = UP6;
	session_frames_up_node.id = FRAMES;
	circuit_sessions(&session_up4_node, &session_up6_node, &session_frames_up_node);
	ether_type_register(RTE_ETHER_TYPE_IPV4, &ip4_input_node);
	ether_type_register(RTE_ETHER_TYPE_IPV6, &ip6_input_node);
	ether_own_type_register(RTE_ETHER_TYPE_PPPOE_SESSION, &pppoe);
	ether_type_register(RTE_ETHER_TYPE_ARP, &arp);
	ports[PORT].mac = (struct rte_ether_addr){{2, 0, 0, 0, 0, 1}};
	if (slab_create(&interfaces, sizeof(struct interface), 16) ||
		counters_create(&interface_counters, sizeof(struct interface_counters), 16))
		return -1;
	slab_take(&interfaces);
	for (unsigned i = 0; i < RTE_DIM(frames); i++)
		if (circuit_bind_session(&frames[i], NULL, true, FRAMES_SESSION + i, false, &f))
			return -1;
	*interface_at(INTERFACE) = (struct interface){.chain4 = LOOKUP, .chain6 = LOOKUP, .vrf = 3};
	return circuit_bind_interface(&untagged, INTERFACE, &f) ||
	       circuit_bind_session(&pair, NULL, false, SESSION, false, &f) ||
	       circuit_bind_session(&single, NULL, false, SESSION, false, &f) ||
	       circuit_bind_session(&shared, &subscriber, false, SHARED_SESSION, false, &f);
}

struct tag {
	uint16_t tpid, vlan;
};

static uint16_t
frame(uint8_t *at, const struct tag *tags, unsigned count, uint16_t type)
{
	uint16_t length = 12;

	memcpy(at, &ports[PORT].mac, 6);
	memcpy(at + 6, &subscriber, 6);
	for (unsigned i = 0; i < count; i++) {
		at[length++] = (uint8_t)(tags[i].tpid >> 8);
		at[length++] = (uint8_t)tags[i].tpid;
		at[length++] = (uint8_t)(tags[i].vlan >> 8);
		at[length++] = (uint8_t)tags[i].vlan;
	}
	at[length++] = (uint8_t)(type >> 8);
	at[length++] = (uint8_t)type;
	memset(at + length, 0x45, 20);
	return (uint16_t)(length + 20);
}

// Where one frame goes that comes in on a port; the packet's state is copied out.
static uint16_t
goes_on(uint16_t port, const uint8_t *bytes, uint16_t length, struct packet *seen, uint16_t *data_length)
{
	struct rte_mbuf *m = one_node_packet(bytes, length);
	uint16_t edge;

	packet_of(m)->port = port;
	one_node_run(&ether_input_node, &m, 1, &edge);
	*seen = *packet_of(m);
	*data_length = m->data_len;
	free(m);
	return edge;
}

static uint16_t
goes(const uint8_t *bytes, uint16_t length, struct packet *seen, uint16_t *data_length)
{
	return goes_on(PORT, bytes, length, seen, data_length);
}

static const char *
dropped(const uint8_t *bytes, uint16_t length)
{
	struct packet p;
	uint16_t rest;

	assert_int_equal(goes(bytes, length, &p, &rest), drop_node.id);
	return drop_by_id(p.drop)->name;
}

static void
an_untagged_packet_is_its_interfaces(void **state)
{
	uint8_t bytes[128];
	struct packet p;
	uint16_t rest, length = frame(bytes, NULL, 0, RTE_ETHER_TYPE_IPV4);

	assert_int_equal(goes(bytes, length, &p, &rest), IP4);
	assert_int_equal(p.interface, INTERFACE);
	assert_int_equal(p.session, NO_SESSION);
	assert_int_equal(p.vrf, 3);
	assert_int_equal(p.chain, LOOKUP);
	assert_int_equal(p.l2_length, 14);
	assert_int_equal(rest, 20);
}

static void
two_tags_with_any_two_tpids_find_their_session(void **state)
{
	static const uint16_t tpids[] = {0x8100, 0x88a8, 0x9100};
	uint8_t bytes[128];
	struct packet p;
	uint16_t rest;

	for (unsigned i = 0; i < 9; i++) {
		const struct tag tags[] = {{tpids[i / 3], 100}, {tpids[i % 3], 7 | 5 << 13}};
		uint16_t length = frame(bytes, tags, 2, RTE_ETHER_TYPE_IPV6);

		assert_int_equal(goes(bytes, length, &p, &rest), IP6);
		assert_int_equal(p.session, SESSION);
		assert_int_equal(p.chain, UP6);
		assert_int_equal(p.outer_tpid, rte_cpu_to_be_16(tpids[i / 3]));
		assert_int_equal(p.inner_tpid, rte_cpu_to_be_16(tpids[i % 3]));
		assert_int_equal(p.l2_length, 22);
	}
}

// RFC 1122 section 3.3.6 for IP, RFC 2516 section 5 for PPPoE.
static void
a_frame_to_a_group_goes_to_the_node_of_its_type(void **state)
{
	static struct node group4 = {.name = "group4", .id = GROUP4};
	uint8_t bytes[128];
	struct packet p;
	uint16_t rest, length;

	ether_group_register(RTE_ETHER_TYPE_IPV4, &group4);
	for (uint8_t first = 0x01; first != 0; first = first == 0x01 ? 0xff : 0) {
		length = frame(bytes, NULL, 0, RTE_ETHER_TYPE_IPV4);
		bytes[0] = first;
		assert_int_equal(goes(bytes, length, &p, &rest), GROUP4);
		assert_int_equal(p.interface, INTERFACE);
		assert_int_equal(rest, 20);
		length = frame(bytes, NULL, 0, RTE_ETHER_TYPE_ARP);
		bytes[0] = first;
		assert_int_equal(goes(bytes, length, &p, &rest), ARP);
	}
}

static void
a_single_tag_and_a_priority_tag_find_their_circuits(void **state)
{
	const struct tag one[] = {{0x8100, 100}}, priority[] = {{0x8100, 0}}, both[] = {{0x88a8, 0}, {0x8100, 100}};
	uint8_t bytes[128];
	struct packet p;
	uint16_t rest;

	assert_int_equal(goes(bytes, frame(bytes, one, 1, RTE_ETHER_TYPE_IPV4), &p, &rest), IP4);
	assert_int_equal(p.session, SESSION);
	assert_int_equal(goes(bytes, frame(bytes, priority, 1, RTE_ETHER_TYPE_IPV4), &p, &rest), IP4);
	assert_int_equal(p.interface, INTERFACE);
	assert_int_equal(goes(bytes, frame(bytes, both, 2, RTE_ETHER_TYPE_IPV4), &p, &rest), IP4);
	assert_int_equal(p.session, SESSION);
}

static void
a_packet_has_the_priority_of_its_outer_tag(void **state)
{
	const struct tag one[] = {{0x8100, 100 | 6 << 13}}, two[] = {{0x88a8, 100 | 5 << 13}, {0x8100, 7 | 3 << 13}},
			 priority[] = {{0x8100, 4 << 13}}, both[] = {{0x88a8, 2 << 13}, {0x8100, 100 | 7 << 13}};
	const uint16_t types[] = {
		RTE_ETHER_TYPE_IPV4, RTE_ETHER_TYPE_IPV6, RTE_ETHER_TYPE_PPPOE_SESSION, RTE_ETHER_TYPE_ARP};
	const uint16_t edges[] = {IP4, IP6, PPPOE, ARP};
	uint8_t bytes[128];
	struct packet p;
	uint16_t rest;

	for (unsigned i = 0; i < RTE_DIM(types); i++) {
		assert_int_equal(goes(bytes, frame(bytes, NULL, 0, types[i]), &p, &rest), edges[i]);
		assert_int_equal(p.outer_priority, 0);
		assert_int_equal(goes(bytes, frame(bytes, one, 1, types[i]), &p, &rest), edges[i]);
		assert_int_equal(p.outer_priority, 6);
		assert_int_equal(goes(bytes, frame(bytes, two, 2, types[i]), &p, &rest), edges[i]);
		assert_int_equal(p.outer_priority, 5);
		assert_int_equal(goes(bytes, frame(bytes, priority, 1, types[i]), &p, &rest), edges[i]);
		assert_int_equal(p.outer_priority, 4);
		assert_int_equal(goes(bytes, frame(bytes, both, 2, types[i]), &p, &rest), edges[i]);
		assert_int_equal(p.outer_priority, 2);
	}
}

// The tags behind those of the access are the subscriber's own, and hqos-classify reads them in the frame.
static void
a_frame_of_an_ethernet_session_has_the_priority_of_its_access(void **state)
{
	const struct tag one[] = {{0x8100, 300 | 6 << 13}}, two[] = {{0x88a8, 301 | 5 << 13}, {0x8100, 7 | 3 << 13}},
			 own[] = {{0x8100, 300 | 6 << 13}, {0x8100, 77 | 1 << 13}},
			 only_own[] = {{0x8100, 77 | 4 << 13}}, priority[] = {{0x8100, 4 << 13}};
	const struct {
		const struct tag *tags;
		unsigned count, session, priority;
	} cases[] = {{NULL, 0, 0, 0}, {one, 1, 1, 6}, {two, 2, 2, 5}, {own, 2, 1, 6}, {only_own, 1, 0, 0},
		{priority, 1, 0, 0}};
	uint8_t bytes[128];
	struct packet p;
	uint16_t rest;

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint16_t length = frame(bytes, cases[i].tags, cases[i].count, RTE_ETHER_TYPE_IPV4);

		assert_int_equal(goes_on(FRAMES_PORT, bytes, length, &p, &rest), FRAMES);
		assert_int_equal(p.session, FRAMES_SESSION + cases[i].session);
		assert_int_equal(p.outer_priority, cases[i].priority);
	}
}

static void
sessions_that_share_a_vlan_are_told_apart_by_their_mac(void **state)
{
	const struct tag one[] = {{0x8100, 200}};
	uint8_t bytes[128];
	struct packet p;
	uint16_t rest, length = frame(bytes, one, 1, RTE_ETHER_TYPE_ARP);

	assert_int_equal(goes(bytes, length, &p, &rest), ARP);
	assert_int_equal(p.session, SHARED_SESSION);
	bytes[11]++;
	assert_string_equal(dropped(bytes, length), "unknown-circuit");
}

static void
pppoe_needs_no_circuit(void **state)
{
	const struct tag tags[] = {{0x88a8, 555}, {0x8100, 6}};
	uint8_t bytes[128];
	struct packet p;
	uint16_t rest;

	assert_int_equal(goes(bytes, frame(bytes, tags, 2, RTE_ETHER_TYPE_PPPOE_SESSION), &p, &rest), PPPOE);
	assert_int_equal(p.outer_vlan, 555);
	assert_int_equal(p.inner_vlan, 6);
	assert_int_equal(goes(bytes, frame(bytes, tags, 0, RTE_ETHER_TYPE_PPPOE_SESSION), &p, &rest), PPPOE);
}

static void
malformed_frames_have_drop_reasons(void **state)
{
	const struct tag three[] = {{0x88a8, 100}, {0x8100, 7}, {0x8100, 8}}, unknown[] = {{0x88a8, 100}, {0x8100, 8}};
	uint8_t bytes[128];
	uint16_t length = frame(bytes, three, 3, RTE_ETHER_TYPE_IPV4);

	assert_string_equal(dropped(bytes, length), "too-many-tags");
	assert_string_equal(dropped(bytes, frame(bytes, unknown, 2, RTE_ETHER_TYPE_IPV4)), "unknown-circuit");
	length = frame(bytes, NULL, 0, 0x1234);
	assert_string_equal(dropped(bytes, length), "unknown-ether-type");
	length = frame(bytes, NULL, 0, RTE_ETHER_TYPE_IPV4);
	bytes[5]++;
	assert_string_equal(dropped(bytes, length), "not-our-mac");
	length = frame(bytes, NULL, 0, RTE_ETHER_TYPE_IPV4);
	bytes[6] |= 1;
	assert_string_equal(dropped(bytes, length), "source-mac-multicast");
}

static void
every_truncation_is_taken_or_named(void **state)
{
	const struct tag tags[] = {{0x88a8, 100}, {0x8100, 7}};
	uint8_t bytes[128];
	struct packet p;
	uint16_t rest, length = frame(bytes, tags, 2, RTE_ETHER_TYPE_IPV4);

	for (uint16_t cut = 0; cut < 22; cut++)
		assert_string_equal(dropped(bytes, cut), "frame-too-short");
	for (uint16_t cut = 22; cut <= length; cut++) {
		assert_int_equal(goes(bytes, cut, &p, &rest), IP4);
		assert_int_equal(rest, cut - 22);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_untagged_packet_is_its_interfaces),
		cmocka_unit_test(two_tags_with_any_two_tpids_find_their_session),
		cmocka_unit_test(a_frame_to_a_group_goes_to_the_node_of_its_type),
		cmocka_unit_test(a_single_tag_and_a_priority_tag_find_their_circuits),
		cmocka_unit_test(a_packet_has_the_priority_of_its_outer_tag),
		cmocka_unit_test(a_frame_of_an_ethernet_session_has_the_priority_of_its_access),
		cmocka_unit_test(sessions_that_share_a_vlan_are_told_apart_by_their_mac),
		cmocka_unit_test(pppoe_needs_no_circuit),
		cmocka_unit_test(malformed_frames_have_drop_reasons),
		cmocka_unit_test(every_truncation_is_taken_or_named),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
