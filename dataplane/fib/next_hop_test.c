// SPDX-License-Identifier: Apache-2.0
// A type of next hop that another concept registers: it has a part of its own, here a label that its packets carry in front.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fib/hop.h"
#include "fib/next_hop.h"
#include "fib/three_ports.h"
#include "port/port.h"

// A type has a field of its own in NextHop. These tests have none: a weight from LABEL on means that it is set, and is the label.
enum { LABEL = 100, NO_LABEL = 199, ELSEWHERE = 200, LABEL_LENGTH = 4, LINK = 64 };

struct part {
	struct object *port;
	uint32_t label;
};

static unsigned hops_made, hops_left;

static bool
has(const Sluice__V1__NextHop *spec)
{
	return spec->weight >= LABEL && spec->weight < ELSEWHERE;
}

static bool
has_elsewhere(const Sluice__V1__NextHop *spec)
{
	return spec->weight >= ELSEWHERE;
}

static int
parse(const Sluice__V1__NextHop *spec, uint16_t vrf, uint8_t family, void *part, struct fault *why)
{
	struct part *p = part;

	if (spec->weight == NO_LABEL)
		return fault(why, EINVAL, "nextHops.label: %u is reserved; choose another", spec->weight);
	p->label = spec->weight;
	return object_need(&port_kind, "out", "nextHops.port", &p->port, why);
}

static uint16_t
push(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		uint32_t label = (uint32_t)hop_at(packet_of(m)->hop)->own[0];

		packet_advance(m, -LABEL_LENGTH);
		memcpy(rte_pktmbuf_mtod(m, void *), &label, sizeof(label));
		m->port = hop_at(packet_of(m)->hop)->port;
		rte_node_enqueue_x1(graph, node, tx_node.id, m);
	}
	return count;
}

static struct node push_node = {.name = "test-push", .process = push, .edges = NODE_EDGES(&tx_node)};
NODE_REGISTER(push_node)

static uint32_t
make(uint32_t interface, uint8_t family, const struct next_hop *n)
{
	const struct part *p = n->part;
	uint32_t index = hop_new(HOP_FORWARD);

	assert_int_equal(interface == NO_INTERFACE, n->weight >= ELSEWHERE);
	hop_at(index)->own[0] = p->label;
	hop_at(index)->port = port_of(p->port)->id;
	hop_at(index)->interface = interface;
	hop_at(index)->chain = chain_of((const struct node *const[]){&push_node}, 1);
	hops_made++;
	return index;
}

static void
release(uint32_t hop)
{
	hops_left++;
	hop_retire(hop);
}

static struct next_hop_type label_type = {.name = "label",
	.has = has,
	.size = sizeof(struct part),
	.objects = 1,
	.parse = parse,
	.hop = make,
	.release = release};
NEXT_HOP_TYPE_REGISTER(label_type)

static struct next_hop_type elsewhere_type = {.name = "label elsewhere",
	.has = has_elsewhere,
	.size = sizeof(struct part),
	.objects = 1,
	.parse = parse,
	.elsewhere = true,
	.hop = make,
	.release = release};
NEXT_HOP_TYPE_REGISTER(elsewhere_type)

// The label in front of a packet for the address, or 0.
static uint32_t
label_to(const char *address)
{
	uint32_t label;

	receive4(address, LINK);
	if (sent_count != 1 || sent[0].port != 1 || sent[0].bytes[LABEL_LENGTH] != 0x45)
		return 0;
	memcpy(&label, sent[0].bytes, sizeof(label));
	return label;
}

static int
put_label(const char *prefix, const char *address, unsigned label)
{
	return put_route("", prefix, SLUICE__V1__ROUTE_ACTION__FORWARD, &(struct via){address, NULL, label}, 1);
}

static void
a_type_reads_the_spec_and_its_hop_has_a_part_of_its_own(void **state)
{
	unsigned users = object_find(&port_kind, "out")->users;

	assert_int_equal(put_label("203.0.113.0/25", "198.51.100.2", LABEL), 0);
	assert_int_equal(put_label("203.0.113.128/25", "198.51.100.2", LABEL + 1), 0);
	assert_int_equal(label_to("203.0.113.1"), LABEL);
	assert_int_equal(label_to("203.0.113.129"), LABEL + 1);
	assert_int_equal(object_find(&port_kind, "out")->users, users + 2);
	remove_route("", "203.0.113.0/25");
	remove_route("", "203.0.113.128/25");
	assert_int_equal(object_find(&port_kind, "out")->users, users);
	assert_int_equal(hops_left, hops_made);
}

static void
routes_share_next_hops_whose_parts_are_equal(void **state)
{
	unsigned before = hops_made;

	assert_int_equal(put_label("203.0.113.0/25", "198.51.100.2", LABEL), 0);
	assert_int_equal(put_label("203.0.113.128/25", "198.51.100.2", LABEL), 0);
	assert_int_equal(hops_made, before + 1);
	// A change of the part is a change of the next hop.
	assert_int_equal(put_label("203.0.113.128/25", "198.51.100.2", LABEL + 2), 0);
	assert_int_equal(hops_made, before + 2);
	assert_int_equal(label_to("203.0.113.1"), LABEL);
	assert_int_equal(label_to("203.0.113.129"), LABEL + 2);
	remove_route("", "203.0.113.0/25");
	remove_route("", "203.0.113.128/25");
	assert_int_equal(hops_left, hops_made);
}

static void
a_group_takes_next_hops_of_a_type_with_a_part(void **state)
{
	Sluice__V1__NextHopGroup group = SLUICE__V1__NEXT_HOP_GROUP__INIT;
	Sluice__V1__NextHop hop = SLUICE__V1__NEXT_HOP__INIT, *hops[] = {&hop};
	Sluice__V1__Route route = SLUICE__V1__ROUTE__INIT;

	hop.address = "198.51.100.2";
	hop.weight = LABEL + 3;
	group.next_hops = hops;
	group.n_next_hops = 1;
	assert_int_equal(put("NextHopGroup", "labels", &group), 0);
	route.prefix = "203.0.113.0/24";
	route.next_hop_group = "labels";
	assert_int_equal(put("Route", "-203.0.113.0/24", &route), 0);
	assert_int_equal(label_to("203.0.113.1"), LABEL + 3);
	hop.weight = LABEL + 4;
	assert_int_equal(put("NextHopGroup", "labels", &group), 0);
	assert_int_equal(label_to("203.0.113.1"), LABEL + 4);
	hop.weight = NO_LABEL;
	assert_int_equal(put("NextHopGroup", "labels", &group), -EINVAL);
	assert_int_equal(label_to("203.0.113.1"), LABEL + 4);
	remove_route("", "203.0.113.0/24");
	assert_int_equal(object_delete("NextHopGroup", "labels", &f), 0);
	assert_int_equal(hops_left, hops_made);
}

static void
a_type_names_what_is_wrong_with_its_field(void **state)
{
	unsigned users = object_find(&port_kind, "out")->users;

	assert_int_equal(put_label("203.0.113.0/25", "198.51.100.2", NO_LABEL), -EINVAL);
	assert_string_equal(f.text, "nextHops.label: 199 is reserved; choose another");
	assert_int_equal(object_find(&port_kind, "out")->users, users);
}

static void
only_a_type_that_leads_elsewhere_needs_neither_address_nor_interface(void **state)
{
	assert_int_equal(put_label("203.0.113.0/25", NULL, LABEL), -EINVAL);
	assert_string_equal(f.text, "nextHops: a next hop needs an address, an interface or both");
	assert_int_equal(put_label("203.0.113.0/25", NULL, ELSEWHERE), 0);
	assert_int_equal(label_to("203.0.113.1"), ELSEWHERE);
	remove_route("", "203.0.113.0/25");
	assert_int_equal(hops_left, hops_made);
}

static void
a_next_hop_without_the_field_is_a_neighbour_as_before(void **state)
{
	unsigned before = hops_made;

	assert_int_equal(put_label("203.0.113.0/25", "198.51.100.2", 1), 0);
	receive4("203.0.113.1", LINK);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].bytes[ETHER], 0x45);
	assert_int_equal(hops_made, before);
	remove_route("", "203.0.113.0/25");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_type_reads_the_spec_and_its_hop_has_a_part_of_its_own),
		cmocka_unit_test(routes_share_next_hops_whose_parts_are_equal),
		cmocka_unit_test(a_group_takes_next_hops_of_a_type_with_a_part),
		cmocka_unit_test(a_type_names_what_is_wrong_with_its_field),
		cmocka_unit_test(only_a_type_that_leads_elsewhere_needs_neither_address_nor_interface),
		cmocka_unit_test(a_next_hop_without_the_field_is_a_neighbour_as_before),
	};

	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
