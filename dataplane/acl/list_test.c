// SPDX-License-Identifier: Apache-2.0
// Lists against a matcher that looks at one rule after the other, with random rules and packets.
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <rte_eal.h>

#include "acl/list.h"
#include "core/fastest.h"

// The fields of a packet that a test wrote.
struct flow {
	uint8_t family;
	uint8_t source[16], destination[16];
	uint8_t protocol, dscp, flags;
	uint32_t label;
	uint16_t source_port, destination_port; // ICMP: type and code in the first
	bool later_fragment;
};

static uint64_t seed = 0x5eed;

static uint32_t
chance(uint32_t limit)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(seed >> 33) % limit;
}

static bool
in_prefix(const uint8_t *address, const uint8_t *prefix, unsigned length)
{
	for (unsigned bit = 0; bit < length; bit++) {
		if ((address[bit / 8] ^ prefix[bit / 8]) & 0x80 >> bit % 8)
			return false;
	}
	return true;
}

static bool
matches(const struct acl_rule *rule, const struct flow *flow)
{
	if (rule->family != 0 && rule->family != flow->family)
		return false;
	if (!in_prefix(flow->source, rule->source, rule->source_length) ||
		!in_prefix(flow->destination, rule->destination, rule->destination_length))
		return false;
	if (rule->protocol >= 0 && rule->protocol != flow->protocol)
		return false;
	if ((flow->dscp & rule->dscp_mask) != rule->dscp)
		return false;
	if (rule->has_label && (flow->family == 4 || flow->label != rule->label))
		return false;
	if (rule->reads != 0 && flow->later_fragment)
		return false;
	if (rule->reads & RULE_READS_ICMP && rule->protocol < 0 &&
		flow->protocol != (flow->family == 4 ? IPPROTO_ICMP : IPPROTO_ICMPV6))
		return false;
	if (rule->reads & RULE_READS_PORTS && !protocol_has_ports(flow->protocol))
		return false;
	if (rule->reads & RULE_READS_FLAGS && (flow->flags & rule->flags_mask) != rule->flags)
		return false;
	if (rule->reads & (RULE_READS_PORTS | RULE_READS_ICMP))
		return flow->source_port >= rule->source_low && flow->source_port <= rule->source_high &&
		       flow->destination_port >= rule->destination_low &&
		       flow->destination_port <= rule->destination_high;
	return true;
}

// The number, from 1, of the first rule that matches, or 0.
static size_t
first_of(const struct acl_rule *rules, size_t count, const struct flow *flow)
{
	for (size_t i = 0; i < count; i++) {
		if (matches(&rules[i], flow))
			return i + 1;
	}
	return 0;
}

// A last rule that equals the default may be left out.
static bool
is_right(const struct acl_list *list, const struct acl_rule *rules, uint32_t verdict, const size_t *expected)
{
	bool permit = *expected != 0 ? rules[*expected - 1].permit : list->otherwise;

	if (verdict == 0)
		return permit == list->otherwise;
	return verdict == ((uint32_t)*expected << 1 | permit);
}

// Few different values, so that rules and packets meet.
static void
random_address(uint8_t family, uint8_t address[16])
{
	memset(address, 0, 16);
	if (family == 4) {
		address[0] = 10;
		address[1] = (uint8_t)chance(2);
		address[2] = (uint8_t)(chance(2) * 128);
		address[3] = (uint8_t)chance(8);
		return;
	}
	address[0] = 0x20;
	address[3] = (uint8_t)chance(2);
	address[6] = (uint8_t)(chance(2) * 64);
	address[9] = (uint8_t)chance(2);
	address[15] = (uint8_t)chance(4);
}

static uint8_t
random_prefix(uint8_t family, uint8_t address[16])
{
	unsigned most = family == 4 ? 32 : 128, length = chance(3) ? most : chance(most + 1);

	random_address(family, address);
	for (unsigned bit = length; bit < 128; bit++)
		address[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
	return (uint8_t)length;
}

static const uint8_t protocols[] = {IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_GRE, IPPROTO_SCTP};

static void
random_rule(struct acl_rule *rule)
{
	uint16_t ports[] = {chance(4), chance(4)};

	*rule = (struct acl_rule){
		.permit = chance(2), .protocol = -1, .source_high = UINT16_MAX, .destination_high = UINT16_MAX};
	rule->family = (uint8_t[]){0, 4, 4, 6, 6}[chance(5)];
	if (rule->family != 0 && chance(2))
		rule->source_length = random_prefix(rule->family, rule->source);
	if (rule->family != 0 && chance(2))
		rule->destination_length = random_prefix(rule->family, rule->destination);
	if (chance(3))
		rule->protocol = protocols[chance(RTE_DIM(protocols))];
	if ((rule->protocol < 0 || protocol_has_ports((uint8_t)rule->protocol)) && chance(2)) {
		rule->reads |= RULE_READS_PORTS;
		rule->source_low = RTE_MIN(ports[0], ports[1]);
		rule->source_high = RTE_MAX(ports[0], ports[1]);
		if (chance(2))
			rule->destination_low = rule->destination_high = (uint16_t)chance(4);
	}
	if (rule->protocol == IPPROTO_TCP && chance(2)) {
		rule->reads |= RULE_READS_FLAGS;
		rule->flags_mask = (uint8_t)(1 + chance(7));
		rule->flags = (uint8_t)(chance(8) & rule->flags_mask);
	}
	if (rule->reads == 0 && chance(2) &&
		(rule->protocol < 0 || rule->protocol == IPPROTO_ICMP || rule->protocol == IPPROTO_ICMPV6)) {
		rule->reads = RULE_READS_ICMP;
		rule->source_low = rule->source_high = (uint16_t)(chance(2) << 8 | chance(4));
		if (chance(2))
			rule->source_high |= 0xff, rule->source_low &= 0xff00;
	}
	if (chance(4) == 0) {
		rule->dscp_mask = 0x3f;
		rule->dscp = (uint8_t)chance(3);
	}
	// As far apart as they can be, and in the same place of the table.
	if (rule->family == 6 && chance(8) == 0) {
		rule->has_label = true;
		rule->label = 1 + chance(3) * 512;
	}
}

// A rule of the kind that goes into the hash table.
static void
random_exact_rule(struct acl_rule *rule)
{
	*rule = (struct acl_rule){.permit = chance(2), .reads = RULE_READS_PORTS};
	rule->family = chance(2) ? 4 : 6;
	random_address(rule->family, rule->source);
	random_address(rule->family, rule->destination);
	rule->source_length = rule->destination_length = rule->family == 4 ? 32 : 128;
	rule->protocol = protocols[chance(2)];
	rule->source_low = rule->source_high = (uint16_t)chance(4);
	rule->destination_low = rule->destination_high = (uint16_t)chance(4);
}

static void
random_flow(struct flow *flow)
{
	*flow = (struct flow){.family = chance(2) ? 4 : 6};
	random_address(flow->family, flow->source);
	random_address(flow->family, flow->destination);
	flow->protocol = protocols[chance(RTE_DIM(protocols))];
	flow->dscp = (uint8_t)chance(3);
	flow->label = chance(2) * (1 + chance(4) * 512);
	flow->later_fragment = chance(8) == 0;
	flow->source_port = (uint16_t)chance(4);
	flow->destination_port = (uint16_t)chance(4);
	if (flow->protocol == IPPROTO_ICMP || flow->protocol == IPPROTO_ICMPV6)
		flow->source_port = (uint16_t)(chance(2) << 8 | chance(4));
	if (flow->protocol == IPPROTO_TCP)
		flow->flags = (uint8_t)chance(8);
}

// The flow's packet as it is on the wire; its length. Now and then a small one, or one with options.
static unsigned
write_packet(const struct flow *flow, uint8_t *ip)
{
	unsigned header = flow->family == 4 ? 20 : 40, behind = chance(2) ? 20 : 40;
	bool longer = chance(4) == 0;
	uint8_t *transport;

	memset(ip, 0, 128);
	if (flow->family == 4) {
		header += longer ? 8 : 0;
		ip[0] = (uint8_t)(0x40 | header / 4);
		ip[1] = (uint8_t)(flow->dscp << 2);
		ip[3] = (uint8_t)(header + behind);
		ip[6] = chance(2) ? 0x40 : 0;
		ip[7] = flow->later_fragment ? 5 : 0;
		ip[9] = flow->protocol;
		memcpy(ip + 12, flow->source, 4);
		memcpy(ip + 16, flow->destination, 4);
	} else {
		uint8_t *next = &ip[6];

		ip[0] = (uint8_t)(0x60 | flow->dscp >> 2);
		ip[1] = (uint8_t)(flow->dscp << 6 | flow->label >> 16);
		ip[2] = (uint8_t)(flow->label >> 8);
		ip[3] = (uint8_t)flow->label;
		memcpy(ip + 8, flow->source, 16);
		memcpy(ip + 24, flow->destination, 16);
		if (longer) {
			*next = IPPROTO_DSTOPTS;
			next = ip + header;
			header += 8;
		}
		if (flow->later_fragment) {
			*next = IPPROTO_FRAGMENT;
			next = ip + header;
			ip[header + 3] = 5 << 3;
			header += 8;
		}
		*next = flow->protocol;
		ip[5] = (uint8_t)(header - 40 + behind);
	}
	transport = ip + header;
	transport[0] = (uint8_t)(flow->source_port >> 8);
	transport[1] = (uint8_t)flow->source_port;
	transport[2] = (uint8_t)(flow->destination_port >> 8);
	transport[3] = (uint8_t)flow->destination_port;
	transport[13] = flow->flags;
	return header + behind;
}

// Decide random packets by the list and by the slow matcher.
static void
compare(const struct acl_rule *rules, size_t count, bool otherwise, unsigned rounds)
{
	struct acl_list *list = NULL;
	struct fault f = {0};

	assert_int_equal(acl_list_create("test", rules, count, otherwise, NULL, &list, &f), 0);
	for (unsigned round = 0; round < rounds; round++) {
		struct acl_key4 keys4[ACL_BURST];
		struct acl_key6 keys6[ACL_BURST];
		size_t wanted4[ACL_BURST], wanted6[ACL_BURST];
		uint32_t verdicts[ACL_BURST];
		unsigned v4 = 0, v6 = 0, burst = 1 + chance(ACL_BURST);

		for (unsigned i = 0; i < burst; i++) {
			struct flow flow;
			uint8_t ip[128];
			unsigned length;

			random_flow(&flow);
			length = write_packet(&flow, ip);
			if (flow.family == 4) {
				assert_true(acl_key4(&list->protocols, ip, length, &keys4[v4]));
				wanted4[v4++] = first_of(rules, count, &flow);
			} else {
				assert_true(acl_key6(&list->protocols, ip, length, &keys6[v6]));
				wanted6[v6++] = first_of(rules, count, &flow);
			}
		}
		acl_list_find4(list, keys4, v4, verdicts);
		for (unsigned i = 0; i < v4; i++)
			assert_true(is_right(list, rules, verdicts[i], &wanted4[i]));
		acl_list_find6(list, keys6, v6, verdicts);
		for (unsigned i = 0; i < v6; i++)
			assert_true(is_right(list, rules, verdicts[i], &wanted6[i]));
	}
	acl_list_destroy(list);
}

static void
random_lists_decide_as_a_walk_over_their_rules_does(void **state)
{
	struct acl_rule rules[64];

	for (unsigned i = 0; i < 300; i++) {
		size_t count = chance(RTE_DIM(rules));

		for (size_t r = 0; r < count; r++)
			random_rule(&rules[r]);
		compare(rules, count, chance(2), 4);
	}
}

static void
lists_of_mostly_exact_rules_decide_as_a_walk_over_their_rules_does(void **state)
{
	struct acl_rule rules[1000];

	for (unsigned i = 0; i < 60; i++) {
		size_t count = 200 + chance(800);

		for (size_t r = 0; r < count; r++) {
			if (chance(100) == 0)
				random_rule(&rules[r]);
			else
				random_exact_rule(&rules[r]);
		}
		compare(rules, count, chance(2), 8);
	}
}

static void
a_list_without_rules_takes_its_default_action(void **state)
{
	compare(NULL, 0, true, 2);
	compare(NULL, 0, false, 2);
}

static void
more_protocols_than_a_list_can_name_are_refused(void **state)
{
	struct acl_rule rules[65];
	struct acl_list *list = NULL;
	struct fault f = {0};

	for (int i = 0; i < 65; i++)
		rules[i] = (struct acl_rule){.permit = true,
			.protocol = (int16_t)(i + 1),
			.source_high = UINT16_MAX,
			.destination_high = UINT16_MAX};
	assert_int_equal(acl_list_create("acl many", rules, 63, false, NULL, &list, &f), 0);
	acl_list_destroy(list);
	assert_int_equal(acl_list_create("acl many", rules, 65, false, NULL, &list, &f), -E2BIG);
	assert_non_null(strstr(f.text, "acl many, rule 64, protocol"));
}

static void
long_lists_decide_as_a_walk_over_their_rules_does(void **state)
{
	static struct acl_rule rules[3000];

	for (unsigned i = 0; i < 12; i++) {
		size_t count = 600 + chance(2400);

		for (size_t r = 0; r < count; r++)
			random_rule(&rules[r]);
		compare(rules, count, chance(2), 20);
	}
}

// Prefixes within prefixes and port ranges across each other: rte_acl would have to make a node for each combination.
static void
tangled_rules_of_any_number_decide_as_a_walk_over_them_does(void **state)
{
	static struct acl_rule rules[20000];
	static const size_t counts[] = {400, 1000, RTE_DIM(rules)};

	for (size_t i = 0; i < RTE_DIM(rules); i++) {
		struct acl_rule *rule = &rules[i];

		random_rule(rule);
		rule->family = chance(2) ? 4 : 6;
		rule->source_length = random_prefix(rule->family, rule->source);
		rule->destination_length = random_prefix(rule->family, rule->destination);
		rule->protocol = -1;
		rule->reads = RULE_READS_PORTS;
		rule->flags_mask = rule->flags = 0;
		rule->source_low = (uint16_t)chance(4);
		rule->source_high = (uint16_t)(rule->source_low + chance(30000));
		rule->destination_low = (uint16_t)chance(4);
		rule->destination_high = (uint16_t)(rule->destination_low + chance(30000));
	}
	for (unsigned i = 0; i < RTE_DIM(counts); i++)
		compare(rules, counts[i], true, 40);
}

static void
indistinguishable_rules_are_refused_in_words(void **state)
{
	static struct acl_rule rules[CUTS_CELL + 1];
	struct acl_list *list = NULL;
	struct fault f = {0};

	for (size_t i = 0; i < RTE_DIM(rules); i++)
		rules[i] = (struct acl_rule){.permit = true,
			.protocol = -1,
			.dscp_mask = 0x3f,
			.dscp = (uint8_t)(i & 0x3f),
			.source_high = UINT16_MAX,
			.destination_high = UINT16_MAX};
	assert_int_equal(acl_list_create("acl alike", rules, CUTS_CELL, false, NULL, &list, &f), 0);
	acl_list_destroy(list);
	list = NULL;
	assert_int_equal(acl_list_create("acl alike", rules, RTE_DIM(rules), false, NULL, &list, &f), -E2BIG);
	assert_null(list);
	assert_string_equal(f.text, "acl alike, rules: the 2049 rules overlap in too many ways, so that more than 2048 "
				    "would have to be tried "
				    "for some packets: make addresses or ports of some narrower, or take some out");
}

static void
all_of_rte_acls_algorithms_decide_as_a_walk_over_the_rules_does(void **state)
{
	enum rte_acl_classify_alg before = acl_algorithm;
	struct fastest *f = fastest_first();

	while (strcmp(f->name, "acl") != 0)
		f = f->next;
	for (unsigned way = 0; way < FASTEST_WAYS; way++) {
		struct acl_rule rules[64];

		if (!fastest_has(f, way))
			continue;
		fastest_use(f, way);
		assert_int_not_equal(acl_algorithm, before);
		for (unsigned i = 0; i < 100; i++) {
			for (size_t r = 0; r < RTE_DIM(rules); r++)
				random_rule(&rules[r]);
			compare(rules, RTE_DIM(rules), chance(2), 4);
		}
	}
	acl_algorithm = before;
}

static void
a_short_list_whose_ranges_cross_is_not_given_to_rte_acl(void **state)
{
	struct acl_rule rules[64];
	struct acl_list *list = NULL;
	struct fault f = {0};

	for (unsigned i = 0; i < RTE_DIM(rules); i++)
		rules[i] = (struct acl_rule){.permit = i % 2,
			.protocol = -1,
			.reads = RULE_READS_PORTS,
			.dscp = (uint8_t)i,
			.dscp_mask = 0x3f,
			.source_low = (uint16_t)(i * 100),
			.source_high = (uint16_t)(i * 100 + 30000),
			.destination_low = (uint16_t)(i * 77),
			.destination_high = (uint16_t)(i * 77 + 30000)};
	assert_int_equal(acl_list_create("crossing", rules, RTE_DIM(rules), true, NULL, &list, &f), 0);
	assert_null(list->v4.tree);
	assert_non_null(list->v4.cuts);
	assert_null(list->v6.tree);
	acl_list_destroy(list);
	compare(rules, RTE_DIM(rules), true, 20);
}

// A block list, which stays with rte_acl.
static void
many_prefixes_decide_as_a_walk_over_them_does(void **state)
{
	static struct acl_rule rules[4000];

	for (size_t i = 0; i < RTE_DIM(rules); i++) {
		rules[i] = (struct acl_rule){.family = chance(2) ? 4 : 6,
			.permit = chance(2),
			.protocol = -1,
			.source_high = UINT16_MAX,
			.destination_high = UINT16_MAX};
		rules[i].source_length = random_prefix(rules[i].family, rules[i].source);
	}
	compare(rules, RTE_DIM(rules), true, 20);
}

static void
a_list_of_a_hundred_thousand_rules_decides_as_a_walk_over_them_does(void **state)
{
	size_t count = 100000;
	struct acl_rule *rules = calloc(count, sizeof(*rules));

	assert_non_null(rules);
	for (size_t i = 0; i < count; i++) {
		random_rule(&rules[i]);
		rules[i].family = 6;
		memcpy(rules[i].source + 4, &i, sizeof(i));
		rules[i].source_length = 128;
	}
	compare(rules, count, true, 2);
	free(rules);
}

static int
start_eal(void **state)
{
	char prefix[32];
	char *arguments[] = {"list_test", "--no-huge", "--no-shconf", "--no-telemetry", "--no-pci", "-m", "128", "-l",
		"0", "--log-level", "error", "--force-max-simd-bitwidth", "512", "--file-prefix", prefix};

	snprintf(prefix, sizeof(prefix), "acl-test-%d", (int)getpid());
	return rte_eal_init((int)RTE_DIM(arguments), arguments) < 0;
}

static int
stop_eal(void **state)
{
	char directory[PATH_MAX];
	int rc;

	snprintf(directory, sizeof(directory), "%s", rte_eal_get_runtime_dir());
	rc = rte_eal_cleanup();
	// rte_eal_init() makes it, and nothing takes it away.
	rmdir(directory);
	return rc;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_lists_decide_as_a_walk_over_their_rules_does),
		cmocka_unit_test(lists_of_mostly_exact_rules_decide_as_a_walk_over_their_rules_does),
		cmocka_unit_test(a_list_without_rules_takes_its_default_action),
		cmocka_unit_test(more_protocols_than_a_list_can_name_are_refused),
		cmocka_unit_test(long_lists_decide_as_a_walk_over_their_rules_does),
		cmocka_unit_test(tangled_rules_of_any_number_decide_as_a_walk_over_them_does),
		cmocka_unit_test(indistinguishable_rules_are_refused_in_words),
		cmocka_unit_test(all_of_rte_acls_algorithms_decide_as_a_walk_over_the_rules_does),
		cmocka_unit_test(a_short_list_whose_ranges_cross_is_not_given_to_rte_acl),
		cmocka_unit_test(many_prefixes_decide_as_a_walk_over_them_does),
		cmocka_unit_test(a_list_of_a_hundred_thousand_rules_decides_as_a_walk_over_them_does),
	};

	return cmocka_run_group_tests(tests, start_eal, stop_eal);
}
