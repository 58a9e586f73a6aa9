// SPDX-License-Identifier: Apache-2.0
// Routes by a NextHopGroup, through the whole graph between three ports.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/loop.h"
#include "fib/next_hop_group.h"
#include "fib/path.h"
#include "fib/three_ports.h"

enum { FLOWS = 200 };

static int
put_group(const char *name, const char *vrf, const struct via *via, unsigned count)
{
	Sluice__V1__NextHopGroup g = SLUICE__V1__NEXT_HOP_GROUP__INIT;
	Sluice__V1__NextHop hops[8], *list[8];

	for (unsigned i = 0; i < count; i++) {
		sluice__v1__next_hop__init(&hops[i]);
		hops[i].address = (char *)(via[i].address ? via[i].address : "");
		hops[i].interface = (char *)(via[i].interface ? via[i].interface : "");
		hops[i].weight = via[i].weight;
		list[i] = &hops[i];
	}
	g.vrf = (char *)vrf;
	g.next_hops = list;
	g.n_next_hops = count;
	return put("NextHopGroup", name, &g);
}

static int
put_group_route(const char *vrf, const char *prefix, const char *group)
{
	Sluice__V1__Route r = SLUICE__V1__ROUTE__INIT;
	char name[64];

	r.vrf = (char *)vrf;
	r.prefix = (char *)prefix;
	r.next_hop_group = (char *)group;
	snprintf(name, sizeof(name), "%s-%s", vrf, prefix);
	return put("Route", name, &r);
}

// The last byte of the MAC that packets for each of some destinations are sent to; 0: nothing is sent.
static void
ways(uint8_t ways[FLOWS])
{
	for (unsigned i = 0; i < FLOWS; i++) {
		char to[32];

		snprintf(to, sizeof(to), "203.0.113.%u", i + 1);
		receive4(to, 64);
		ways[i] = sent_count == 1 && sent[0].port == 1 ? sent[0].bytes[5] : 0;
	}
}

static unsigned
by(const uint8_t ways[FLOWS], uint8_t mac)
{
	unsigned count = 0;

	for (unsigned i = 0; i < FLOWS; i++)
		count += ways[i] == mac;
	return count;
}

static void
packets_follow_their_route_s_group(void **state)
{
	receive4("203.0.113.9", 64);
	assert_int_equal(put_group("g", "", &(struct via){"198.51.100.2"}, 1), 0);
	assert_int_equal(put_group_route("", "203.0.113.0/24", "g"), 0);
	receive4("203.0.113.9", 64);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].bytes[5], 2);
	assert_int_equal(put_group("g", "", &(struct via){"198.51.100.3"}, 1), 0);
	receive4("203.0.113.9", 64);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].bytes[5], 3);
}

static void
flows_keep_a_next_hop_that_stays_in_the_group(void **state)
{
	static const struct via two[] = {{"198.51.100.2"}, {"198.51.100.3"}},
				turned[] = {{"198.51.100.3"}, {"198.51.100.2"}};
	uint8_t first[FLOWS], then[FLOWS];

	assert_int_equal(put_group("g", "", two, 2), 0);
	ways(first);
	assert_int_equal(by(first, 2) + by(first, 3), FLOWS);
	assert_true(by(first, 2) > FLOWS / 4 && by(first, 3) > FLOWS / 4);
	assert_int_equal(put_group("g", "", turned, 2), 0);
	ways(then);
	assert_memory_equal(first, then, FLOWS);
	// All by one of them, and back.
	assert_int_equal(put_group("g", "", turned, 1), 0);
	ways(then);
	assert_int_equal(by(then, 3), FLOWS);
	assert_int_equal(put_group("g", "", two, 2), 0);
	ways(then);
	assert_int_equal(by(then, 2) + by(then, 3), FLOWS);
	assert_true(by(then, 2) > FLOWS / 4);
}

static void
a_group_s_table_grows_with_its_weights_and_keeps_flows(void **state)
{
	static const struct via even[] = {{"198.51.100.2", NULL, 1}, {"198.51.100.3", NULL, 1}},
				uneven[] = {{"198.51.100.2", NULL, 200}, {"198.51.100.3", NULL, 55}};
	uint8_t first[FLOWS], then[FLOWS];

	assert_int_equal(put_group("g", "", even, 2), 0);
	ways(first);
	assert_int_equal(put_group("g", "", uneven, 2), 0);
	ways(then);
	assert_int_equal(by(then, 2) + by(then, 3), FLOWS);
	assert_true(by(then, 2) > FLOWS / 2);
	for (unsigned i = 0; i < FLOWS; i++)
		if (first[i] == 2)
			assert_int_equal(then[i], 2);
	assert_int_equal(put_group("g", "", even, 2), 0);
	ways(then);
	assert_true(by(then, 3) > FLOWS / 4);
}

static void
a_group_that_routes_refer_to_stays(void **state)
{
	assert_int_equal(object_delete("NextHopGroup", "g", &f), -EBUSY);
	assert_int_equal(put_group("g", "", &(struct via){"2001:db8:2::2"}, 1), -EBUSY);
	assert_non_null(strstr(f.text, "routes of IPv4"));
	receive4("203.0.113.9", 64);
	assert_int_equal(sent_count, 1);
}

static void
invalid_arguments_are_refused(void **state)
{
	static const struct via mixed[] = {{"198.51.100.2"}, {"2001:db8:2::2"}};
	Sluice__V1__NextHop hop = SLUICE__V1__NEXT_HOP__INIT, *hops[] = {&hop};
	Sluice__V1__Route both = SLUICE__V1__ROUTE__INIT;

	assert_int_equal(put_group("x", "", mixed, 2), -EINVAL);
	assert_int_equal(put_group("x", "", mixed, 0), -EINVAL);
	assert_int_equal(put_group("x", "", &(struct via){"198.51.100.1"}, 1), -EEXIST);
	assert_int_equal(put_group_route("", "2001:db8:f::/48", "g"), -EINVAL);
	assert_non_null(strstr(f.text, "are not IPv6 addresses"));
	assert_int_equal(put_group_route("", "100.64.0.0/10", "x"), -ENOENT);
	hop.address = "198.51.100.2";
	both.prefix = "100.64.0.0/10";
	both.next_hops = hops;
	both.n_next_hops = 1;
	both.next_hop_group = "g";
	assert_int_equal(put("Route", "both", &both), -EINVAL);
	both.n_next_hops = 0;
	both.action = SLUICE__V1__ROUTE_ACTION__BLACKHOLE;
	assert_int_equal(put("Route", "both", &both), -EINVAL);
}

static void
a_route_changes_from_its_own_next_hops_to_a_group_and_back(void **state)
{
	assert_int_equal(put_group("g", "", &(struct via){"198.51.100.3"}, 1), 0);
	assert_int_equal(put_route("", "203.0.113.0/24", 0, &(struct via){"198.51.100.2"}, 1), 0);
	receive4("203.0.113.9", 64);
	assert_int_equal(sent[0].bytes[5], 2);
	// Nothing refers to the group any more.
	assert_int_equal(object_delete("NextHopGroup", "g", &f), 0);
	assert_int_equal(put_group("g", "", &(struct via){"198.51.100.3"}, 1), 0);
	assert_int_equal(put_group_route("", "203.0.113.0/24", "g"), 0);
	receive4("203.0.113.9", 64);
	assert_int_equal(sent[0].bytes[5], 3);
	remove_route("", "203.0.113.0/24");
	assert_int_equal(object_delete("NextHopGroup", "g", &f), 0);
}

static void
a_group_whose_next_hops_no_network_holds_waits_for_one(void **state)
{
	assert_int_equal(put_group("far", "", &(struct via){"10.9.9.2"}, 1), 0);
	assert_int_equal(put_group_route("", "203.0.113.0/24", "far"), 0);
	receive4("203.0.113.9", 64);
	// The sender gets "host unreachable".
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].port, 0);
	assert_int_equal(put_interface("other", "other", "", "10.9.9.1/24", ""), 0);
	assert_int_equal(put_neighbor("other", "10.9.9.2", "02:00:00:00:03:07"), 0);
	receive4("203.0.113.9", 64);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].port, 2);
	assert_int_equal(sent[0].bytes[5], 7);
	assert_int_equal(object_delete("Neighbor", "10.9.9.2", &f), 0);
	assert_int_equal(object_delete("Interface", "other", &f), 0);
	receive4("203.0.113.9", 64);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].port, 0);
	remove_route("", "203.0.113.0/24");
	assert_int_equal(object_delete("NextHopGroup", "far", &f), 0);
}

static void
a_group_without_addresses_serves_both_families(void **state)
{
	assert_int_equal(put_group("link", "", &(struct via){NULL, "out"}, 1), 0);
	assert_int_equal(put_group_route("", "203.0.113.0/24", "link"), 0);
	assert_int_equal(put_group_route("", "2001:db8:f::/48", "link"), 0);
	assert_int_equal(object_delete("Interface", "out", &f), -EBUSY);
	// IPv4 alone from now on: not as long as an IPv6 route is there.
	assert_int_equal(put_group("link", "", &(struct via){"198.51.100.2"}, 1), -EBUSY);
	remove_route("", "2001:db8:f::/48");
	assert_int_equal(put_group("link", "", &(struct via){"198.51.100.2"}, 1), 0);
	receive4("203.0.113.9", 64);
	assert_int_equal(sent[0].bytes[5], 2);
	assert_int_equal(put_group("link", "", &(struct via){NULL, "out"}, 1), 0);
	assert_int_equal(put_group_route("", "2001:db8:f::/48", "link"), 0);
	remove_route("", "2001:db8:f::/48");
	remove_route("", "203.0.113.0/24");
	assert_int_equal(object_delete("NextHopGroup", "link", &f), 0);
}

static void
a_group_is_of_its_routes_vrf(void **state)
{
	Sluice__V1__Vrf vrf = SLUICE__V1__VRF__INIT;

	assert_int_equal(put("Vrf", "red", &vrf), 0);
	assert_int_equal(put_group("r", "red", &(struct via){"10.0.0.2"}, 1), 0);
	assert_int_equal(put_group_route("", "100.64.0.0/10", "r"), -EINVAL);
	assert_non_null(strstr(f.text, "is in VRF \"red\""));
	assert_int_equal(object_delete("Vrf", "red", &f), -EBUSY);
	assert_int_equal(object_delete("NextHopGroup", "r", &f), 0);
	assert_int_equal(object_delete("Vrf", "red", &f), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_follow_their_route_s_group),
		cmocka_unit_test(flows_keep_a_next_hop_that_stays_in_the_group),
		cmocka_unit_test(a_group_s_table_grows_with_its_weights_and_keeps_flows),
		cmocka_unit_test(a_group_that_routes_refer_to_stays),
		cmocka_unit_test(invalid_arguments_are_refused),
		cmocka_unit_test(a_route_changes_from_its_own_next_hops_to_a_group_and_back),
		cmocka_unit_test(a_group_whose_next_hops_no_network_holds_waits_for_one),
		cmocka_unit_test(a_group_without_addresses_serves_both_families),
		cmocka_unit_test(a_group_is_of_its_routes_vrf),
	};

	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
