// SPDX-License-Identifier: Apache-2.0
// An access and a core that a concept registers, whose headers are long and of different lengths: packets of the access are found by an id
// instead of a circuit, and both ways leave by nodes of the concept's own.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fib/hop.h"
#include "session/all_sessions.h"
#include "session/point.h"
#include "session/record.h"

enum { ID = 77, OTHER_ID = 78, IDS = 100, LINK_MTU = 1300, CORE_MSS = 9000, CORE_HEADER = 300, ACCESS_HEADER = 90 };

static uint32_t by_id[IDS] = {[0 ... IDS - 1] = NO_SESSION};
static uint32_t id_of[8]; // by session, of the output
static uint16_t link_mtu = LINK_MTU;

// ---- The access: a marked header of ACCESS_HEADER bytes and more, with the id in front.

static bool
takes(const Sluice__V1__Access *spec)
{
	return spec->port[0] == '\0';
}

static int
parse(const Sluice__V1__Access *spec, struct session_key *key, struct fault *f)
{
	key->own[0] = spec->lcp_magic;
	return spec->lcp_magic < IDS ? 0 : fault(f, EINVAL, "access.id: %u is too large", spec->lcp_magic);
}

static int
need(const Sluice__V1__Access *spec, struct session_key *key, struct object **under, struct fault *f)
{
	return object_need(&port_kind, "other", "access.id", under, f);
}

static uint16_t
mtu_of(const struct session_key *key, const struct object *under)
{
	return link_mtu;
}

static bool
same(const struct session_key *a, const struct session_key *b)
{
	return a->own[0] == b->own[0];
}

static int
bind_id(const struct session_key *key, uint32_t session, bool frames, bool alone, struct fault *f)
{
	if (by_id[key->own[0]] != NO_SESSION)
		return fault(f, EEXIST, "access.id: another session has it");
	by_id[key->own[0]] = session;
	return 0;
}

static void
unbind(const struct session_key *key)
{
	by_id[key->own[0]] = NO_SESSION;
}

static uint32_t
find(const struct session_key *key)
{
	return by_id[key->own[0]];
}

static void
rebind(const struct session_key *key, uint32_t session)
{
	by_id[key->own[0]] = session;
}

static void
publish(uint32_t session, const struct session_key *key)
{
	id_of[session] = (uint32_t)key->own[0];
}

static uint8_t *
put_header(struct rte_mbuf *m, unsigned length)
{
	assert_true(packet_make_room(m, length));
	packet_advance(m, -(int)length);
	memset(rte_pktmbuf_mtod(m, uint8_t *), 0xee, length);
	return rte_pktmbuf_mtod(m, uint8_t *);
}

static uint16_t
out(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];

		// As long as the packet's length field, as with padding.
		put_header(m, ACCESS_HEADER + m->pkt_len % 8)[0] = (uint8_t)id_of[packet_of(m)->session];
		m->port = port_number("other");
		rte_node_enqueue_x1(graph, node, tx_node.id, m);
	}
	return count;
}

static struct node out_node = {.name = "test-out", .process = out, .edges = NODE_EDGES(&tx_node)};
NODE_REGISTER(out_node)

// Packets behind four bytes of id.
static uint16_t
in(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		uint8_t id = *rte_pktmbuf_mtod(m, uint8_t *);

		packet_advance(m, 4);
		rte_node_enqueue_x1(graph, node, session_input(m, packet_of(m), by_id[id]), m);
	}
	return count;
}

static struct node in_node = {.name = "test-in", .process = in, .edges = NODE_EDGES(&ip4_input_node, &ip6_input_node)};
NODE_REGISTER(in_node)

static struct session_access access_ = {.name = "test tunnel",
	.takes = takes,
	.parse = parse,
	.need = need,
	.mtu = mtu_of,
	.out = &out_node,
	.same = same,
	.bind = bind_id,
	.unbind = unbind,
	.find = find,
	.rebind = rebind,
	.publish = publish};
SESSION_ACCESS_REGISTER(access_)

// ---- The core: a header of CORE_HEADER bytes, longer than the headroom of any buffer.

static uint32_t cores_bound;

static bool
core_takes(const Sluice__V1__Session *spec)
{
	return spec->policy && spec->policy->mss == CORE_MSS;
}

static uint16_t
encap(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];

		put_header(m, CORE_HEADER)[0] = (uint8_t)session_at(packet_of(m)->session)->core;
		m->port = port_number("core");
		rte_node_enqueue_x1(graph, node, tx_node.id, m);
	}
	return count;
}

static struct node encap_node = {.name = "test-encap", .process = encap, .edges = NODE_EDGES(&tx_node)};
NODE_REGISTER(encap_node)

static int
core_put(uint32_t session, const void *spec, uint32_t *core, const struct node **last, struct fault *f)
{
	*core = 42;
	*last = &encap_node;
	return 0;
}

static int
core_bind(uint32_t core, uint32_t old, struct fault *f)
{
	cores_bound++;
	return 0;
}

static void
core_remove(uint32_t core)
{
	cores_bound--;
}

static struct session_core core = {.takes = core_takes, .put = core_put, .bind = core_bind, .remove = core_remove};
RTE_INIT(register_core)
{
	session_core_register(&core);
}

// ---- Tests.

static int
put_tunnelled(const char *name, uint32_t id, bool with_core, const char *address, unsigned mtu)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;

	access.lcp_magic = id;
	policy.mtu = mtu;
	policy.mss = with_core ? CORE_MSS : 0;
	session.access = &access;
	session.policy = &policy;
	session.addresses = (char *[]){(char *)address, "2001:db8:1::/64"};
	session.n_addresses = 2;
	return put("Session", name, &session);
}

static int
all_start(void **state)
{
	return all_sessions_start(1);
}

static int
start(void **state)
{
	link_mtu = LINK_MTU;
	sent_count = 0;
	return put_tunnelled("s", ID, false, "100.64.0.1/32", 0);
}

static int
stop(void **state)
{
	return delete_session("s");
}

static void
come_in(uint8_t id, const uint8_t *packet, size_t length)
{
	struct rte_mbuf *m = packet_new();
	uint8_t *at = (uint8_t *)rte_pktmbuf_append(m, (uint16_t)(4 + length));

	memset(at, id, 4);
	memcpy(at + 4, packet, length);
	packet_of(m)->port = port_number("other");
	sent_count = 0;
	node_edge(&inject_node, &in_node);
	inject(m, &in_node);
	walk();
}

static void
come_in4(uint8_t id, const char *from)
{
	uint8_t packet[256];

	come_in(id, packet, (size_t)(write_packet4(packet, from, "203.0.113.9", PAYLOAD) - packet));
}

static void
packets_are_found_by_an_id_and_their_source_is_checked(void **state)
{
	uint64_t wrong = dropped("session-source");
	uint8_t packet[256];

	come_in4(ID, "100.64.0.1");
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].port, port_number("core"));
	come_in4(ID, "100.64.0.2");
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("session-source"), wrong + 1);
	come_in(ID, packet, (size_t)(write_packet6(packet, "2001:db8:1::5", "2001:db8:ffff::1", PAYLOAD) - packet));
	assert_int_equal(sent_count, 1);
}

static void
packets_to_the_subscriber_get_a_header_of_any_length(void **state)
{
	struct session_totals totals;

	for (unsigned payload = 0; payload < 8; payload++) {
		unsigned length = 20 + UDP + payload;

		send_down("100.64.0.1", payload);
		assert_int_equal(sent_count, 1);
		assert_int_equal(sent[0].port, port_number("other"));
		assert_int_equal(sent[0].length, ACCESS_HEADER + length % 8 + length);
		assert_int_equal(sent[0].bytes[0], ID);
		assert_int_equal(sent[0].bytes[ACCESS_HEADER + length % 8], 0x45);
		assert_int_equal(sent[0].bytes[ACCESS_HEADER + length % 8 + 8], 63); // TTL
	}
	session_totals(session_of(object_find(&session_kind, "s")), &totals);
	assert_int_equal(totals.packets[DOWN], 8);
	assert_false(totals.mac_known);
}

static void
the_mtu_is_the_access_s(void **state)
{
	send_down("100.64.0.1", LINK_MTU - 28);
	assert_int_equal(sent_count, 1);
	send_down("100.64.0.1", LINK_MTU - 27); // no DF: fragments
	assert_int_equal(sent_to("other"), 2);
	link_mtu = 1400;
	session_follow(session_of(object_find(&session_kind, "s")));
	send_down("100.64.0.1", LINK_MTU - 27);
	assert_int_equal(sent_to("other"), 1);
	assert_int_equal(put_tunnelled("s", ID, false, "100.64.0.1/32", 1500), -EINVAL);
	assert_non_null(strstr(fault_of_put.text, "the test tunnel's 1400"));
}

static void
a_session_changes_its_id_and_its_object_stays_in_use(void **state)
{
	assert_int_equal(put_tunnelled("s", OTHER_ID, false, "100.64.0.1/32", 0), 0);
	walk();
	walk();
	assert_int_equal(by_id[ID], NO_SESSION);
	come_in4(OTHER_ID, "100.64.0.1");
	assert_int_equal(sent_count, 1);
	send_down("100.64.0.1", PAYLOAD);
	assert_int_equal(sent[0].bytes[0], OTHER_ID);
	assert_int_equal(object_delete("Port", "other", &fault_of_put), -EBUSY);
}

static void
an_id_belongs_to_one_session_and_the_type_of_access_stays(void **state)
{
	struct subscriber on_a_circuit = {.name = "s", .address4 = "100.64.0.1/32", .outer = 100, .inner = 1};

	assert_int_equal(put_tunnelled("t", ID, false, "100.64.0.9/32", 0), -EEXIST);
	assert_int_equal(put_session(&on_a_circuit), -EINVAL);
	assert_non_null(strstr(fault_of_put.text, "test tunnel cannot become IPoE"));
}

static void
a_core_may_have_a_header_longer_than_the_headroom(void **state)
{
	uint8_t packet[1600];
	size_t length;

	assert_int_equal(put_tunnelled("s", ID, true, "100.64.0.1/32", 0), 0);
	assert_int_equal(cores_bound, 1);
	come_in4(ID, "100.64.0.1");
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].length, CORE_HEADER + 20 + UDP + PAYLOAD);
	assert_int_equal(sent[0].bytes[0], 42);
	assert_int_equal(sent[0].bytes[CORE_HEADER], 0x45);
	length = (size_t)(write_packet4(packet, "100.64.0.1", "203.0.113.9", 1400) - packet);
	come_in(ID, packet, length);
	assert_int_equal(sent[0].length, CORE_HEADER + length);
	assert_memory_equal(sent[0].bytes + CORE_HEADER + 20, packet + 20, length - 20);
}

static void
neighbour_discovery_of_a_subscriber_without_a_link_is_not_answered(void **state)
{
	static const uint8_t solicitation[64] = {0x60, 0, 0, 0, 0, 24, 58, 255, 0xfe, 0x80, [23] = 5, [24] = 0xff,
		2, [35] = 1, 0xff, 0, 0, 1, 135, 0, 0x7a, 0x5d};

	come_in(ID, solicitation, sizeof(solicitation));
	assert_int_equal(sent_count, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(packets_are_found_by_an_id_and_their_source_is_checked, start, stop),
		cmocka_unit_test_setup_teardown(packets_to_the_subscriber_get_a_header_of_any_length, start, stop),
		cmocka_unit_test_setup_teardown(the_mtu_is_the_access_s, start, stop),
		cmocka_unit_test_setup_teardown(a_session_changes_its_id_and_its_object_stays_in_use, start, stop),
		cmocka_unit_test_setup_teardown(an_id_belongs_to_one_session_and_the_type_of_access_stays, start, stop),
		cmocka_unit_test_setup_teardown(a_core_may_have_a_header_longer_than_the_headroom, start, stop),
		cmocka_unit_test_setup_teardown(
			neighbour_discovery_of_a_subscriber_without_a_link_is_not_answered, start, stop),
	};

	return cmocka_run_group_tests(tests, all_start, NULL);
}
