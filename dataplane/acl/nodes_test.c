// SPDX-License-Identifier: Apache-2.0
// Lists as packets of sessions and interfaces meet them. Their trees need the EAL; lists without rules do not, and lists of
// exact rules live in a hash table, so these tests do without it.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "acl/acl.h"
#include "acl/table.h"
#include "core/drop.h"
#include "core/one_node.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "session/step.h"

enum { STEP = 5, RULES = 200, SESSIONS = 16 };

// Lists: permit nothing; permit everything; permit UDP from port 1000 + n of 10.0.0.n or 2001:db8::n to port 53 of 10.9.9.9 or
// 2001:db8::99; deny that and nothing else.
enum { NOTHING, EVERYTHING, SOME, OTHERS, LISTS };
static struct object lists[LISTS];
// Of the lists that are put next.
static bool counted;

static uint32_t *
of_session(uint32_t session, enum direction direction)
{
	return session_step_words(&acl_step, session, direction);
}

static void
put_list(unsigned which, Sluice__V1__AclAction action, unsigned rules, Sluice__V1__AclAction otherwise)
{
	static Sluice__V1__AclRule storage[RULES];
	static Sluice__V1__AclRule *pointers[RULES];
	static char sources[RULES][32], ports[RULES][8];
	Sluice__V1__Acl spec = SLUICE__V1__ACL__INIT;
	struct fault f;

	for (unsigned i = 0; i < rules; i++) {
		storage[i] = (Sluice__V1__AclRule)SLUICE__V1__ACL_RULE__INIT;
		snprintf(sources[i], sizeof(sources[i]), i % 2 ? "10.0.0.%u/32" : "2001:db8::%x/128", i / 2);
		snprintf(ports[i], sizeof(ports[i]), "%u", 1000 + i / 2);
		storage[i].action = action;
		storage[i].source = sources[i];
		storage[i].destination = (char *)(uintptr_t)(i % 2 ? "10.9.9.9/32" : "2001:db8::99/128");
		storage[i].protocol = (char *)"udp";
		storage[i].source_ports = ports[i];
		storage[i].destination_ports = (char *)"53";
		pointers[i] = &storage[i];
	}
	spec.n_rules = rules;
	spec.rules = pointers;
	spec.otherwise = otherwise;
	spec.count_hits = counted;
	lists[which].name = (char *)"list";
	lists[which].kind = &acl_kind;
	if (acl_kind.prepare("list", &spec, NULL, &lists[which].prepared, &f) != 0 ||
		acl_kind.put(&lists[which], NULL, NULL, &f) != 0)
		fail_msg("%s", f.text);
}

static int
make_tables(void **state)
{
	if (acl_kind.start() != 0 || slab_create(&sessions, sizeof(struct session), SESSIONS) != 0 ||
		slab_create(&interfaces, sizeof(struct interface), SESSIONS) != 0 ||
		slab_create(&hops, sizeof(struct hop), SESSIONS) != 0)
		return 1;
	put_list(NOTHING, SLUICE__V1__ACL_ACTION__PERMIT, 0, SLUICE__V1__ACL_ACTION__DENY);
	put_list(EVERYTHING, SLUICE__V1__ACL_ACTION__PERMIT, 0, SLUICE__V1__ACL_ACTION__PERMIT);
	// Half of the rules are of each family: more than enough for a table.
	put_list(SOME, SLUICE__V1__ACL_ACTION__PERMIT, RULES, SLUICE__V1__ACL_ACTION__DENY);
	put_list(OTHERS, SLUICE__V1__ACL_ACTION__DENY, RULES, SLUICE__V1__ACL_ACTION__PERMIT);
	return 0;
}

static int
delete_lists(void **state)
{
	struct fault f;

	for (unsigned list = 0; list < LISTS; list++) {
		if (acl_kind.delete(&lists[list], NULL, &f) != 0)
			return 1;
	}
	return 0;
}

// UDP from host n, port 1000 + n.
static struct rte_mbuf *
packet(uint8_t family, uint8_t n, unsigned length)
{
	uint8_t ip[64] = {0}, *udp = ip + (family == 4 ? 20 : 40);
	struct rte_mbuf *m;

	if (family == 4) {
		memcpy(ip, (uint8_t[]){0x45, 0, 0, 28, 0, 0, 0, 0, 64, IPPROTO_UDP}, 10);
		memcpy(ip + 12, (uint8_t[]){10, 0, 0, n, 10, 9, 9, 9}, 8);
	} else {
		memcpy(ip, (uint8_t[]){0x60, 0, 0, 0, 0, 8, IPPROTO_UDP, 64, 0x20, 1, 0xd, 0xb8}, 12);
		memcpy(ip + 24, (uint8_t[]){0x20, 1, 0xd, 0xb8}, 4);
		ip[23] = n;
		ip[39] = 0x99;
	}
	memcpy(udp, (uint8_t[]){(uint8_t)((1000 + n) >> 8), (uint8_t)(1000 + n), 0, 53, 0, 8}, 6);
	m = one_node_packet(ip, (uint16_t)length);
	packet_of(m)->family = family;
	packet_of(m)->session = 1;
	packet_of(m)->interface = 1;
	packet_of(m)->hop = 1;
	packet_of(m)->chain = STEP;
	return m;
}

static void
assert_dropped(struct rte_mbuf *m, uint16_t edge, const char *name)
{
	assert_int_equal(edge, drop_node.id);
	assert_string_equal(drop_by_id(packet_of(m)->drop)->name, name);
}

static void
each_node_holds_packets_against_the_list_of_its_own(void **state)
{
	struct hop *hop = hop_at(1);
	struct {
		struct node *node;
		uint32_t *acl;
	} cases[] = {{&acl_up_node, of_session(1, UP)}, {&acl_down_node, of_session(1, DOWN)},
		{&acl_in_node, &interface_at(1)->acl_in}, {&acl_out_node, &interface_at(2)->acl_out}};

	hop->interface = 2;
	for (unsigned c = 0; c < RTE_DIM(cases); c++) {
		for (unsigned list = 0; list < LISTS; list++) {
			struct rte_mbuf *packets[4] = {
				packet(4, 7, 28), packet(6, 7, 48), packet(4, 200, 28), packet(6, 200, 48)};
			uint16_t edges[4];

			for (unsigned other = 0; other < RTE_DIM(cases); other++)
				*cases[other].acl = acl_of(&lists[list == EVERYTHING ? NOTHING : EVERYTHING]);
			*cases[c].acl = acl_of(&lists[list]);
			one_node_run(cases[c].node, packets, 4, edges);
			for (unsigned i = 0; i < 4; i++) {
				bool known = i < 2;

				if (list == EVERYTHING || (list == SOME && known) || (list == OTHERS && !known))
					assert_int_equal(edges[i], STEP);
				else
					assert_dropped(packets[i], edges[i], "acl-denied");
				free(packets[i]);
			}
		}
	}
}

static void
a_burst_of_many_lists_has_each_packet_decided_by_its_own(void **state)
{
	enum { MANY = 2 * BURST + 31 };
	static struct rte_mbuf *packets[MANY];
	static uint16_t edges[MANY];

	for (unsigned s = 0; s < SESSIONS; s++)
		*of_session(s, UP) = s % (LISTS + 1) == LISTS ? NO_ACL : acl_of(&lists[s % (LISTS + 1)]);
	for (unsigned i = 0; i < MANY; i++) {
		packets[i] = packet(i % 3 ? 4 : 6, i % 7 ? 9 : 200, i % 3 ? 28 : 48);
		packet_of(packets[i])->session = i * 2654435761u >> 7 & (SESSIONS - 1);
	}
	one_node_run(&acl_up_node, packets, MANY, edges);
	for (unsigned i = 0; i < MANY; i++) {
		unsigned list = packet_of(packets[i])->session % (LISTS + 1);
		bool permitted =
			list == LISTS || list == EVERYTHING || (list == SOME && i % 7) || (list == OTHERS && !(i % 7));

		assert_int_equal(edges[i], permitted ? STEP : drop_node.id);
		free(packets[i]);
	}
}

static void
a_packet_whose_ports_are_cut_off_is_dropped_by_name_if_the_list_reads_them(void **state)
{
	for (unsigned length = 0; length <= 28; length++) {
		struct rte_mbuf *packets[2] = {packet(4, 7, length), packet(6, 7, length + 20)};
		uint16_t edges[2];

		*of_session(1, UP) = acl_of(&lists[OTHERS]);
		one_node_run(&acl_up_node, packets, 2, edges);
		for (unsigned i = 0; i < 2; i++) {
			assert_dropped(packets[i], edges[i], length < 24 ? "acl-unreadable" : "acl-denied");
			free(packets[i]);
		}
	}
}

static void
our_own_packets_are_not_filtered(void **state)
{
	struct rte_mbuf *m = packet(4, 7, 28);
	uint16_t edge;

	*of_session(1, DOWN) = acl_of(&lists[NOTHING]);
	packet_of(m)->flags = PACKET_OURS;
	one_node_run(&acl_down_node, &m, 1, &edge);
	assert_int_equal(edge, STEP);
	free(m);
}

static void
a_list_that_is_replaced_keeps_its_index(void **state)
{
	struct rte_mbuf *m = packet(4, 7, 28);
	uint32_t index = acl_of(&lists[NOTHING]);
	uint16_t edge;

	*of_session(1, UP) = index;
	put_list(NOTHING, SLUICE__V1__ACL_ACTION__PERMIT, RULES, SLUICE__V1__ACL_ACTION__DENY);
	assert_int_equal(acl_of(&lists[NOTHING]), index);
	one_node_run(&acl_up_node, &m, 1, &edge);
	assert_int_equal(edge, STEP);
	put_list(NOTHING, SLUICE__V1__ACL_ACTION__PERMIT, 0, SLUICE__V1__ACL_ACTION__DENY);
	packet_of(m)->chain = STEP;
	one_node_run(&acl_up_node, &m, 1, &edge);
	assert_dropped(m, edge, "acl-denied");
	free(m);
}

static void
a_list_with_a_wrong_rule_is_refused_and_the_one_before_stays(void **state)
{
	Sluice__V1__AclRule rule = SLUICE__V1__ACL_RULE__INIT, *rules[] = {&rule};
	Sluice__V1__Acl spec = SLUICE__V1__ACL__INIT;
	const struct acl_list *before = acl_list_at(acl_of(&lists[EVERYTHING]));
	struct fault f;

	spec.n_rules = 1;
	spec.rules = rules;
	rule.source_ports = (char *)"80-70";
	assert_int_equal(acl_kind.prepare("list", &spec, NULL, &lists[EVERYTHING].prepared, &f), -EINVAL);
	assert_null(lists[EVERYTHING].prepared);
	assert_string_equal(f.text,
		"acl list, rule 1, sourcePorts: \"80-70\" is not a port or a range of ports such as 1024-65535");
	assert_ptr_equal(acl_list_at(acl_of(&lists[EVERYTHING])), before);
}

static void
a_list_counts_the_packets_of_each_rule_if_asked_to(void **state)
{
	const struct acl_list *list;
	uint16_t edges[5];

	counted = true;
	// Rules at the end that change nothing count, too.
	put_list(EVERYTHING, SLUICE__V1__ACL_ACTION__PERMIT, RULES, SLUICE__V1__ACL_ACTION__PERMIT);
	counted = false;
	*of_session(1, UP) = acl_of(&lists[EVERYTHING]);
	for (unsigned round = 1; round <= 3; round++) {
		// Ports that are cut off match no rule and are not "no rule" either.
		struct rte_mbuf *packets[5] = {
			packet(4, 7, 28), packet(4, 7, 28), packet(6, 7, 48), packet(4, 200, 28), packet(4, 7, 22)};

		one_node_run(&acl_up_node, packets, 5, edges);
		list = acl_list_at(acl_of(&lists[EVERYTHING]));
		assert_int_equal(acl_list_hits(list, 16), 2 * round);
		assert_int_equal(acl_list_hits(list, 15), round);
		assert_int_equal(acl_list_hits(list, 14), 0);
		assert_int_equal(acl_list_hits(list, 0), round);
		assert_int_equal(acl_list_hits(list, RULES + 1), 0);
		for (unsigned i = 0; i < 5; i++)
			free(packets[i]);
	}
	put_list(EVERYTHING, SLUICE__V1__ACL_ACTION__PERMIT, 0, SLUICE__V1__ACL_ACTION__PERMIT);
	assert_null(acl_list_at(acl_of(&lists[EVERYTHING]))->hits);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_node_holds_packets_against_the_list_of_its_own),
		cmocka_unit_test(a_burst_of_many_lists_has_each_packet_decided_by_its_own),
		cmocka_unit_test(a_packet_whose_ports_are_cut_off_is_dropped_by_name_if_the_list_reads_them),
		cmocka_unit_test(our_own_packets_are_not_filtered),
		cmocka_unit_test(a_list_that_is_replaced_keeps_its_index),
		cmocka_unit_test(a_list_counts_the_packets_of_each_rule_if_asked_to),
		cmocka_unit_test(a_list_with_a_wrong_rule_is_refused_and_the_one_before_stays),
	};

	return cmocka_run_group_tests(tests, make_tables, delete_lists);
}
