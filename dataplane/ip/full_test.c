// SPDX-License-Identifier: Apache-2.0
// Full tables: a new object is refused with the name of the full table, existing ones stay, and there is room again
// after a deletion.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fib/hop.h"
#include "fib/three_ports.h"
#include "fib/vrf.h"
#include "neighbor/neighbor_table.h"

static const char MAC[] = "02:00:00:00:07:07";

// All that is put in these tests leads past, or beside, this neighbour.
static void
assert_forwards(void)
{
	receive4("198.51.100.2", 64);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].bytes[5], 2);
}

static void
a_full_table_of_neighbours_refuses_more_until_one_goes(void **state)
{
	uint64_t before = dropped("neighbor-table-full");
	char address[32] = "";
	unsigned count = 0;
	int error = 0;

	for (; count <= NEIGHBOR_MAX && error == 0; count++) {
		snprintf(address, sizeof(address), "10.%u.%u.%u", count >> 16, count >> 8 & 0xff, count & 0xff);
		error = put_neighbor("out", address, MAC);
	}
	assert_int_equal(error, -ENOSPC);
	assert_string_equal(f.text, "address: there is no room for another neighbour; at most 65536 are held");
	assert_forwards();

	// Nor is there room for a next hop, or for a neighbour.
	assert_int_equal(put_route("", "203.0.113.0/24", 0, &(struct via){"198.51.100.77"}, 1), -ENOSPC);
	assert_memory_equal(f.text, "nextHops: ", 10);
	receive4("198.51.100.77", 64);
	assert_int_equal(dropped("neighbor-table-full"), before + 1);

	assert_int_equal(object_delete("Neighbor", "10.0.0.7", &f), 0);
	assert_int_equal(put_neighbor("out", address, MAC), 0);
	assert_int_equal(put_neighbor("out", "10.0.0.7", MAC), -ENOSPC);
	assert_int_equal(object_delete("Neighbor", address, &f), 0);
	assert_int_equal(put_route("", "203.0.113.0/24", 0, &(struct via){"198.51.100.77"}, 1), 0);
	remove_route("", "203.0.113.0/24");
	assert_forwards();
	for (unsigned i = 0; i + 1 < count; i++) {
		snprintf(address, sizeof(address), "10.%u.%u.%u", i >> 16, i >> 8 & 0xff, i & 0xff);
		object_delete("Neighbor", address, &f);
	}
}

static void
without_free_hops_a_new_object_is_refused_until_one_goes(void **state)
{
	static const struct via two[] = {{"198.51.100.2"}, {"198.51.100.3"}},
				three[] = {{"198.51.100.3"}, {"198.51.100.2"}};
	uint32_t limit = hops.limit;

	assert_int_equal(put_route("", "203.0.113.0/24", 0, two, 2), 0);
	for (uint32_t spare; hops.unused_count > 0 || hops.resting_count > 0;) {
		spare = slab_take(&hops);
		assert_true(spare != UINT32_MAX);
	}
	hops.limit = hops.used;
	assert_int_equal(put_neighbor("out", "198.51.100.9", MAC), -ENOSPC);
	assert_memory_equal(f.text, "address: ", 9);
	assert_int_equal(put_route("", "203.0.112.0/24", 0, three, 2), -ENOMEM);
	assert_memory_equal(f.text, "nextHops: ", 10);
	assert_int_equal(put_interface("other", "other", "", "100.64.1.1/24", ""), -ENOSPC);
	assert_memory_equal(f.text, "addresses: ", 11);
	// A change that is refused changes nothing.
	assert_int_equal(put_route("", "203.0.113.0/24", 0, three, 2), -ENOMEM);
	receive4("203.0.113.5", 64);
	assert_int_equal(sent_count, 1);
	assert_forwards();

	remove_route("", "203.0.113.0/24");
	walk();
	assert_int_equal(put_route("", "203.0.112.0/24", 0, three, 2), 0);
	receive4("203.0.112.5", 64);
	assert_int_equal(sent_count, 1);
	remove_route("", "203.0.112.0/24");
	hops.limit = limit;
}

static void
when_there_are_as_many_vrfs_as_there_may_be_one_more_is_refused_until_one_goes(void **state)
{
	Sluice__V1__Vrf vrf = SLUICE__V1__VRF__INIT;
	char name[16] = "";
	unsigned count = 0;
	int error = 0;

	for (; count <= VRF_LIMIT && error == 0; count++) {
		snprintf(name, sizeof(name), "v%u", count);
		error = put("Vrf", name, &vrf);
	}
	assert_int_equal(error, -ENOSPC);
	assert_int_equal(count, VRF_LIMIT);
	assert_string_equal(f.text, "there are 4096 VRFs already");
	assert_forwards();
	assert_int_equal(object_delete("Vrf", "v7", &f), 0);
	assert_int_equal(put("Vrf", name, &vrf), 0);
	assert_int_equal(object_delete("Vrf", name, &f), 0);
	assert_forwards();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_free_hops_a_new_object_is_refused_until_one_goes),
		cmocka_unit_test(a_full_table_of_neighbours_refuses_more_until_one_goes),
		cmocka_unit_test(when_there_are_as_many_vrfs_as_there_may_be_one_more_is_refused_until_one_goes),
	};

	return cmocka_run_group_tests(tests, three_ports_start, three_ports_stop);
}
