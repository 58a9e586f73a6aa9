// SPDX-License-Identifier: Apache-2.0
// A route look-up over the API gives the same result as for packets.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fib/look_up_api.h"
#include "fib/three_ports.h"

static struct route_answer answer;

static void
look_up(const char *vrf, const char *address, const char *prefix, const char *action, unsigned hops)
{
	assert_int_equal(route_look_up(vrf, address, &answer, &f), 0);
	assert_string_equal(answer.answer.prefix, prefix);
	assert_string_equal(answer.answer.action, action);
	assert_int_equal(answer.answer.n_next_hops, hops);
}

static void
assert_hop(unsigned i, const char *address, const char *interface, const char *mac, const char *state, unsigned share)
{
	const Sluice__V1__LookedUpHop *row = answer.answer.next_hops[i];

	assert_string_equal(row->address, address);
	assert_string_equal(row->interface, interface);
	assert_string_equal(row->state, state);
	assert_int_equal(row->share, share);
	if (mac)
		assert_string_equal(row->mac, mac);
	else
		assert_int_equal(strlen(row->mac), 17);
}

static void
the_longest_prefix_and_its_next_hop_are_told(void **state)
{
	const struct via via = {.address = "198.51.100.2"};

	look_up("", "203.0.113.9", "", "unreachable", 0);
	assert_int_equal(put_route("", "203.0.0.0/16", SLUICE__V1__ROUTE_ACTION__FORWARD, &via, 1), 0);
	assert_int_equal(put_route("", "203.0.113.0/24", SLUICE__V1__ROUTE_ACTION__BLACKHOLE, NULL, 0), 0);
	look_up("", "203.0.7.9", "203.0.0.0/16", "forward", 1);
	assert_hop(0, "198.51.100.2", "out", NULL, "static", 1000);
	look_up("default", "203.0.113.9", "203.0.113.0/24", "drop", 0);
	assert_string_equal(answer.answer.drop, "blackhole");
	assert_string_equal(answer.answer.vrf, "default");
	remove_route("", "203.0.113.0/24");
	look_up("", "203.0.113.9", "203.0.0.0/16", "forward", 1);
	remove_route("", "203.0.0.0/16");
}

static void
shares_of_several_next_hops_are_told(void **state)
{
	const struct via via[] = {{.address = "198.51.100.2", .weight = 3}, {.address = "198.51.100.3", .weight = 1}};

	assert_int_equal(put_route("", "203.0.113.0/24", SLUICE__V1__ROUTE_ACTION__FORWARD, via, 2), 0);
	look_up("", "203.0.113.1", "203.0.113.0/24", "forward", 2);
	assert_int_equal(answer.answer.next_hops[0]->share + answer.answer.next_hops[1]->share, 1000);
	assert_true(answer.answer.next_hops[0]->share == 750 || answer.answer.next_hops[0]->share == 250);
	remove_route("", "203.0.113.0/24");
}

static void
addresses_of_ours_and_of_connected_networks_are_told(void **state)
{
	look_up("", "192.0.2.1", "192.0.2.1/32", "local", 1);
	assert_string_equal(answer.answer.next_hops[0]->interface, "in");
	look_up("", "192.0.2.77", "192.0.2.0/24", "forward", 1);
	assert_hop(0, "", "in", "", "unresolved", 1000);
	look_up("", "198.51.100.2", "198.51.100.2/32", "forward", 1);
	assert_hop(0, "198.51.100.2", "out", NULL, "static", 1000);
	look_up("", "2001:db8:1::1", "2001:db8:1::1/128", "local", 1);
	look_up("", "2001:db8:1::77", "2001:db8:1::/64", "forward", 1);
}

static void
a_look_up_that_makes_no_sense_is_refused(void **state)
{
	assert_int_equal(route_look_up("", "203.0.113", &answer, &f), -EINVAL);
	assert_non_null(strstr(f.text, "address: \"203.0.113\" is not an IP address"));
	assert_int_equal(route_look_up("nowhere", "203.0.113.1", &answer, &f), -ENOENT);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_longest_prefix_and_its_next_hop_are_told),
		cmocka_unit_test(shares_of_several_next_hops_are_told),
		cmocka_unit_test(addresses_of_ours_and_of_connected_networks_are_told),
		cmocka_unit_test(a_look_up_that_makes_no_sense_is_refused),
	};

	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
