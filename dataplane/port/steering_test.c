// SPDX-License-Identifier: Apache-2.0
// A port's steering as rules of rte_flow: exactly which rules, in which order they are made and removed, and which
// remain when the device refuses one. No driver that is at hand without its hardware has such rules that this kernel
// can hold, so the functions of rte_flow are a device's here, which stores its rules; the port and its device
// (net_null) are real.
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_flow.h>

#include "core/start.h"
#include "core/worker.h"
#include "port.pb-c.h"
#include "port/port.h"

enum { FLOWS_MAX = 256, TEXT = 160, STEERING_MAX = 70 };

struct rte_flow {
	char text[TEXT];
};

// ---- The device.

static struct card {
	bool has_rules, isolates, isolated;
	const char *refuses; // rules in whose text this is
	struct rte_flow *flows[FLOWS_MAX];
	unsigned count, made, destroyed, least; // the fewest there were since reset
} card;

static size_t
print_item(char *to, size_t size, const struct rte_flow_item *item)
{
	const uint8_t *a;

	switch ((int)item->type) {
	case RTE_FLOW_ITEM_TYPE_ETH: {
		const struct rte_flow_item_eth *spec = item->spec, *mask = item->mask;

		if (!spec)
			return (size_t)snprintf(to, size, "eth");
		assert_int_equal(mask->hdr.ether_type, 0xffff);
		assert_true(rte_is_zero_ether_addr(&mask->hdr.dst_addr));
		return (size_t)snprintf(to, size, "eth %04x", rte_be_to_cpu_16(spec->hdr.ether_type));
	}
	case RTE_FLOW_ITEM_TYPE_VLAN: {
		const struct rte_flow_item_vlan *spec = item->spec, *mask = item->mask;
		int used = snprintf(to, size, " vlan %u/%03x", rte_be_to_cpu_16(spec->hdr.vlan_tci),
			rte_be_to_cpu_16(mask->hdr.vlan_tci));

		if (mask->hdr.eth_proto)
			used += snprintf(
				to + used, size - (size_t)used, " %04x", rte_be_to_cpu_16(spec->hdr.eth_proto));
		return (size_t)used;
	}
	case RTE_FLOW_ITEM_TYPE_IPV4: {
		const struct rte_flow_item_ipv4 *spec = item->spec, *mask = item->mask;

		if (!spec)
			return (size_t)snprintf(to, size, " ipv4");
		a = (const uint8_t *)&spec->hdr.dst_addr;
		return (size_t)snprintf(to, size, " ipv4 %u.%u.%u.%u/%08x", a[0], a[1], a[2], a[3],
			rte_be_to_cpu_32(mask->hdr.dst_addr));
	}
	case RTE_FLOW_ITEM_TYPE_IPV6: {
		const struct rte_flow_item_ipv6 *spec = item->spec, *mask = item->mask;
		const uint8_t *bits = mask ? (const uint8_t *)&mask->hdr.dst_addr : NULL;

		if (!spec)
			return (size_t)snprintf(to, size, " ipv6");
		a = (const uint8_t *)&spec->hdr.dst_addr;
		return (size_t)snprintf(
			to, size, " ipv6 %02x%02x..%02x/%02x..%02x", a[0], a[1], a[15], bits[0], bits[15]);
	}
	case RTE_FLOW_ITEM_TYPE_UDP: {
		const struct rte_flow_item_udp *spec = item->spec, *mask = item->mask;

		assert_int_equal(mask->hdr.dst_port, 0xffff);
		return (size_t)snprintf(to, size, " udp %u", rte_be_to_cpu_16(spec->hdr.dst_port));
	}
	default:
		fail_msg("an item of type %d", (int)item->type);
		return 0;
	}
}

static void
print_action(char *to, size_t size, const struct rte_flow_action *action)
{
	if (action->type == RTE_FLOW_ACTION_TYPE_QUEUE) {
		snprintf(to, size, ": queue %u", ((const struct rte_flow_action_queue *)action->conf)->index);
	} else if (action->type == RTE_FLOW_ACTION_TYPE_RSS) {
		const struct rte_flow_action_rss *rss = action->conf;

		snprintf(to, size, ": rss %u..%u", rss->queue[0], rss->queue[rss->queue_num - 1]);
	} else {
		assert_int_equal(action->type, RTE_FLOW_ACTION_TYPE_DROP);
		snprintf(to, size, ": drop");
	}
	assert_int_equal(action[1].type, RTE_FLOW_ACTION_TYPE_END);
}

static void
print_flow(char text[TEXT], const struct rte_flow_attr *attributes, const struct rte_flow_item *items,
	const struct rte_flow_action *actions)
{
	size_t used = 0;

	assert_true(attributes->ingress && !attributes->egress && !attributes->transfer && attributes->group == 0);
	if (attributes->priority)
		used = (size_t)snprintf(text, TEXT, "last ");
	for (; items->type != RTE_FLOW_ITEM_TYPE_END; items++)
		used += print_item(text + used, TEXT - used, items);
	print_action(text + used, TEXT - used, actions);
}

int
rte_flow_isolate(uint16_t port, int set, struct rte_flow_error *error)
{
	if (!card.has_rules || !card.isolates)
		return rte_flow_error_set(error, ENOSYS, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL,
			"the device cannot be told to take nothing but what rules say");
	card.isolated = set;
	return 0;
}

int
rte_flow_validate(uint16_t port, const struct rte_flow_attr *attributes, const struct rte_flow_item items[],
	const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	char text[TEXT];

	if (!card.has_rules)
		return rte_flow_error_set(
			error, ENOSYS, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL, "the device takes no rules");
	print_flow(text, attributes, items, actions);
	if (card.refuses && strstr(text, card.refuses))
		return rte_flow_error_set(
			error, EINVAL, RTE_FLOW_ERROR_TYPE_ITEM, NULL, "there is no room in the TCAM");
	return 0;
}

struct rte_flow *
rte_flow_create(uint16_t port, const struct rte_flow_attr *attributes, const struct rte_flow_item items[],
	const struct rte_flow_action actions[], struct rte_flow_error *error)
{
	struct rte_flow *flow = calloc(1, sizeof(*flow));

	print_flow(flow->text, attributes, items, actions);
	// As cards do, with the rules that they have already.
	for (unsigned i = 0; i < card.count; i++)
		assert_string_not_equal(card.flows[i]->text, flow->text);
	card.flows[card.count++] = flow;
	card.made++;
	return flow;
}

int
rte_flow_destroy(uint16_t port, struct rte_flow *flow, struct rte_flow_error *error)
{
	for (unsigned i = 0; i < card.count; i++)
		if (card.flows[i] == flow) {
			memmove(&card.flows[i], &card.flows[i + 1], (card.count - i - 1) * sizeof(flow));
			card.count--;
			card.destroyed++;
			card.least = RTE_MIN(card.least, card.count);
			free(flow);
			return 0;
		}
	fail_msg("a rule is destroyed that is not there");
	return -1;
}

// ---- The port.

static struct fault f;

static Sluice__V1__SteeringRule
vlans(const char *range)
{
	Sluice__V1__SteeringRule rule = SLUICE__V1__STEERING_RULE__INIT;

	rule.outer_vlans = (char *)range;
	return rule;
}

static Sluice__V1__SteeringRule
packets(const char *destination, uint32_t udp_port)
{
	Sluice__V1__SteeringRule rule = SLUICE__V1__STEERING_RULE__INIT;

	rule.destination = (char *)destination;
	rule.udp_port = udp_port;
	return rule;
}

static Sluice__V1__SteeringRule
type(uint32_t ether_type)
{
	Sluice__V1__SteeringRule rule = SLUICE__V1__STEERING_RULE__INIT;

	rule.ether_type = ether_type;
	return rule;
}

static int
put_rules(Sluice__V1__SteeringRule *rules, unsigned count, uint32_t queues)
{
	Sluice__V1__Port spec = SLUICE__V1__PORT__INIT;
	Sluice__V1__SteeringRule *list[STEERING_MAX];
	uint8_t packed[4096];

	for (unsigned i = 0; i < count; i++)
		list[i] = &rules[i];
	spec.device = (char *)"net_null0,no-rx=1";
	spec.steering = list;
	spec.n_steering = count;
	spec.rx_queues = queues;
	card.made = card.destroyed = 0;
	card.least = UINT_MAX;
	return object_put("Port", "in", packed, protobuf_c_message_pack(&spec.base, packed), &f);
}

static int
put_rule(Sluice__V1__SteeringRule rule)
{
	return put_rules(&rule, 1, 1);
}

static void
assert_refused(int result, const char *words)
{
	assert_true(result < 0);
	if (!strstr(f.text, words))
		fail_msg("\"%s\" does not say %s", f.text, words);
}

// These rules, and no others.
#define assert_flows(...) \
	do { \
		static const char *const expected[] = {__VA_ARGS__}; \
		assert_these(expected, RTE_DIM(expected)); \
	} while (0)

static void
assert_these(const char *const *expected, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		bool found = false;

		for (unsigned j = 0; j < card.count; j++)
			found |= strcmp(card.flows[j]->text, expected[i]) == 0;
		if (!found) {
			for (unsigned j = 0; j < card.count; j++)
				fprintf(stderr, "there is: %s\n", card.flows[j]->text);
			fail_msg("there is no rule: %s", expected[i]);
		}
	}
	assert_int_equal(card.count, count);
}

static void
gone(void)
{
	assert_int_equal(object_delete("Port", "in", &f), 0);
	assert_int_equal(card.count, 0);
}

static int
start(void **state)
{
	char prefix[32];
	struct options o = {.workers = 2, .buffers = 4096, .log_level = "error", .prefix = prefix, .memory = 64};

	snprintf(prefix, sizeof(prefix), "steering-test-%d", getpid());
	return core_start(&o);
}

static int
stop(void **state)
{
	return rte_eal_cleanup();
}

static int
with_card(void **state)
{
	card = (struct card){.has_rules = true, .isolates = true};
	return 0;
}

static void
a_device_without_rules_is_reported_with_the_mend_and_works_without(void **state)
{
	struct port *port;

	card.has_rules = false;
	assert_refused(put_rule(vlans("100")), "the driver net_null has no flow rules");
	assert_refused(put_rule(vlans("100")), "virtual function, a macvlan or queues");
	assert_null(object_find(&port_kind, "in"));
	assert_int_equal(put_rules(NULL, 0, 1), 0);
	port = port_of(object_find(&port_kind, "in"));
	assert_refused(put_rule(vlans("100")), "the driver net_null has no flow rules");
	assert_null(port->steering);
	assert_true(port->sends);
	gone();
}

static void
a_port_s_steering_becomes_these_rules_in_an_isolated_device(void **state)
{
	Sluice__V1__SteeringRule rules[] = {vlans("101"), packets("192.0.2.102/32", 2152),
		packets("2001:db8:1::/48", 0), packets("", 500), type(0x0806)};

	assert_int_equal(put_rules(rules, RTE_DIM(rules), 1), 0);
	assert_true(card.isolated);
	assert_flows("eth vlan 101/fff: queue 0", "eth ipv4 192.0.2.102/ffffffff udp 2152: queue 0",
		"eth ipv6 2001..00/ff..00: queue 0", "eth ipv4 udp 500: queue 0", "eth ipv6 udp 500: queue 0",
		"eth 0806: queue 0");
	gone();
}

static void
behind_a_tag_there_may_be_more_to_match(void **state)
{
	Sluice__V1__SteeringRule rules[] = {vlans("7"), vlans("8"), vlans("9")};

	rules[0].ether_type = 0x8863;
	rules[1].destination = (char *)"100.64.0.0/10";
	rules[2].ether_type = 0x86dd;
	rules[2].udp_port = 547;
	assert_int_equal(put_rules(rules, RTE_DIM(rules), 1), 0);
	assert_flows("eth vlan 7/fff 8863: queue 0", "eth vlan 8/fff ipv4 100.64.0.0/ffc00000: queue 0",
		"eth vlan 9/fff ipv6 udp 547: queue 0");
	gone();
}

static void
a_range_of_vlans_is_blocks_that_hold_all_of_it_and_no_other(void **state)
{
	static const unsigned ranges[][2] = {{1, 4094}, {100, 199}, {1, 1}, {4094, 4094}, {1024, 2047}, {7, 9}};

	for (unsigned r = 0; r < RTE_DIM(ranges); r++) {
		uint8_t seen[4096] = {0};
		char text[16];

		snprintf(text, sizeof(text), "%u-%u", ranges[r][0], ranges[r][1]);
		assert_int_equal(put_rule(vlans(text)), 0);
		for (unsigned i = 0; i < card.count; i++) {
			unsigned vlan, mask;

			assert_int_equal(sscanf(card.flows[i]->text, "eth vlan %u/%x: queue 0", &vlan, &mask), 2);
			for (unsigned v = 0; v < 4096; v++)
				seen[v] = (uint8_t)(seen[v] + ((v & mask) == vlan));
		}
		for (unsigned v = 0; v < 4096; v++)
			assert_int_equal(seen[v], v >= ranges[r][0] && v <= ranges[r][1]);
		assert_in_range(card.count, 1, 22);
		gone();
	}
}

static void
several_queues_share_the_frames(void **state)
{
	Sluice__V1__SteeringRule rule = vlans("5");

	assert_int_equal(put_rules(&rule, 1, 2), 0);
	assert_flows("eth vlan 5/fff: rss 0..1");
	gone();
}

static void
a_device_that_cannot_be_isolated_drops_the_rest(void **state)
{
	card.isolates = false;
	assert_int_equal(put_rule(vlans("5")), 0);
	assert_flows("eth vlan 5/fff: queue 0", "last eth: drop");
	assert_int_equal(put_rule(vlans("6")), 0);
	assert_flows("eth vlan 6/fff: queue 0", "last eth: drop");
	assert_int_equal(card.made, 1);
	gone();
}

static void
a_change_makes_new_rules_before_it_removes_old_ones_and_leaves_the_others(void **state)
{
	Sluice__V1__SteeringRule before[] = {vlans("1"), vlans("2")}, after[] = {vlans("2"), vlans("3"), vlans("4")};

	assert_int_equal(put_rules(before, 2, 1), 0);
	assert_int_equal(put_rules(after, 3, 1), 0);
	assert_flows("eth vlan 2/fff: queue 0", "eth vlan 3/fff: queue 0", "eth vlan 4/fff: queue 0");
	assert_int_equal(card.made, 2);
	assert_int_equal(card.destroyed, 1);
	// When the old one went, all of the new ones were there.
	assert_int_equal(card.least, 3);
	// The same in another order is no change.
	after[0] = vlans("4");
	after[2] = vlans("2");
	assert_int_equal(put_rules(after, 3, 1), 0);
	assert_int_equal(card.made + card.destroyed, 0);
	gone();
}

static void
existing_rules_stay_if_the_device_refuses_one_and_its_error_is_reported(void **state)
{
	Sluice__V1__SteeringRule after[] = {vlans("2"), vlans("3"), packets("192.0.2.1/32", 0)};

	assert_int_equal(put_rule(vlans("1")), 0);
	card.refuses = "ipv4";
	assert_refused(
		put_rules(after, 3, 1), "the driver net_null does not take a rule (there is no room in the TCAM)");
	assert_flows("eth vlan 1/fff: queue 0");
	card.refuses = NULL;
	assert_int_equal(put_rules(after, 3, 1), 0);
	assert_int_equal(card.count, 3);
	gone();
	// Nor is there a port of which a rule was refused.
	card.refuses = "ipv4";
	assert_refused(put_rules(after, 3, 1), "TCAM");
	assert_null(object_find(&port_kind, "in"));
	assert_int_equal(card.count, 0);
}

static void
a_port_begins_and_ends_to_have_rules_while_it_is_there(void **state)
{
	assert_int_equal(put_rules(NULL, 0, 1), 0);
	assert_false(card.isolated);
	card.refuses = "vlan 5";
	assert_refused(put_rule(vlans("5")), "TCAM");
	assert_false(card.isolated);
	assert_int_equal(card.count, 0);
	card.refuses = NULL;
	assert_int_equal(put_rule(vlans("5")), 0);
	assert_true(card.isolated);
	assert_flows("eth vlan 5/fff: queue 0");
	assert_int_equal(put_rules(NULL, 0, 1), 0);
	assert_false(card.isolated);
	assert_int_equal(card.count, 0);
	assert_true(port_of(object_find(&port_kind, "in"))->sends);
	gone();
}

static void
invalid_rules_are_refused_in_words(void **state)
{
	Sluice__V1__SteeringRule rule = vlans("5"), many[STEERING_MAX];

	assert_refused(put_rule(vlans("")), "steering, rule 1: it says nothing");
	assert_refused(put_rule(vlans("0")), "steering, rule 1, outerVlans: a VLAN or a range");
	assert_refused(put_rule(vlans("4095")), "rule 1, outerVlans");
	assert_refused(put_rule(vlans("9-8")), "rule 1, outerVlans");
	assert_refused(put_rule(vlans("1-")), "rule 1, outerVlans");
	assert_refused(put_rule(vlans("4294967396")), "rule 1, outerVlans");
	assert_refused(put_rule(vlans("-5")), "rule 1, outerVlans");
	assert_refused(put_rule(vlans("1-5x")), "rule 1, outerVlans");
	assert_refused(put_rule(packets("192.0.2.1/24", 0)), "rule 1, destination: a network like");
	assert_refused(put_rule(packets("x", 0)), "rule 1, destination");
	assert_refused(put_rule(packets("", 65536)), "steering[0].udpPort: 65536");
	assert_refused(put_rule(type(100)), "steering[0].etherType: 100");
	assert_refused(put_rule(type(65536)), "steering[0].etherType: 65536");
	rule.ether_type = 0x0806;
	rule.udp_port = 67;
	assert_refused(put_rule(rule), "rule 1, etherType: 0x0806 is not that of the packets");
	rule.ether_type = 0x0800;
	rule.destination = (char *)"2001:db8::/32";
	assert_refused(put_rule(rule), "rule 1, etherType: 0x0800");
	for (unsigned i = 0; i < STEERING_MAX; i++)
		many[i] = vlans("1");
	assert_refused(put_rules(many, STEERING_MAX, 1), "steering: 70 elements");
	assert_null(object_find(&port_kind, "in"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_device_without_rules_is_reported_with_the_mend_and_works_without, with_card),
		cmocka_unit_test_setup(a_port_s_steering_becomes_these_rules_in_an_isolated_device, with_card),
		cmocka_unit_test_setup(behind_a_tag_there_may_be_more_to_match, with_card),
		cmocka_unit_test_setup(a_range_of_vlans_is_blocks_that_hold_all_of_it_and_no_other, with_card),
		cmocka_unit_test_setup(several_queues_share_the_frames, with_card),
		cmocka_unit_test_setup(a_device_that_cannot_be_isolated_drops_the_rest, with_card),
		cmocka_unit_test_setup(
			a_change_makes_new_rules_before_it_removes_old_ones_and_leaves_the_others, with_card),
		cmocka_unit_test_setup(
			existing_rules_stay_if_the_device_refuses_one_and_its_error_is_reported, with_card),
		cmocka_unit_test_setup(a_port_begins_and_ends_to_have_rules_while_it_is_there, with_card),
		cmocka_unit_test_setup(invalid_rules_are_refused_in_words, with_card),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
