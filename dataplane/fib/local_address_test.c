// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ether/interface.h"
#include "fib/local_address.h"
#include "fib/vrf.h"

enum { VRF = 3 };

static int
make_interfaces(void **state)
{
	if (slab_create(&interfaces, sizeof(struct interface), 16))
		return -1;
	for (uint32_t i = 0; i < 16; i++)
		interface_at(slab_take(&interfaces))->addresses_of = i;
	return 0;
}

static int
destroy_interfaces(void **state)
{
	slab_destroy(&interfaces);
	return 0;
}

static const uint8_t a[16] = {192, 0, 2, 1}, b[16] = {198, 51, 100, 1}, c[16] = {10, 0, 0, 1};
static const uint8_t near_a[16] = {192, 0, 2, 77}, near_b[16] = {198, 51, 200, 1};

static void
the_own_address_nearest_to_the_other_is_chosen(void **state)
{
	uint8_t found[16];

	assert_int_equal(vrf_local_address(VRF, 4, near_a, found), -ENOENT);
	assert_int_equal(local_address_add(VRF, 4, a, 24, 1), 0);
	assert_int_equal(local_address_add(VRF, 4, b, 24, 2), 0);
	assert_int_equal(local_address_add(VRF, 4, c, 32, 3), 0);
	assert_int_equal(vrf_local_address(VRF, 4, near_a, found), 0);
	assert_memory_equal(found, a, 16);
	assert_int_equal(vrf_local_address(VRF, 4, near_b, found), 0);
	assert_memory_equal(found, b, 16);
	assert_int_equal(vrf_local_address(VRF, 6, near_a, found), -ENOENT);
	assert_int_equal(vrf_local_address(VRF + 1, 4, near_a, found), -ENOENT);
	local_address_remove(VRF, 4, a, 1);
	local_address_remove(VRF, 4, b, 2);
	local_address_remove(VRF, 4, c, 3);
	assert_int_equal(vrf_local_address(VRF, 4, near_a, found), -ENOENT);
}

static void
an_interface_s_own_address_comes_first(void **state)
{
	uint8_t found[16];

	local_address_add(VRF, 4, a, 24, 1);
	local_address_add(VRF, 4, b, 24, 2);
	interface_at(5)->addresses_of = 2;
	assert_int_equal(vrf_local_address_at(VRF, 4, 2, near_a, found), 0);
	assert_memory_equal(found, b, 16);
	assert_int_equal(vrf_local_address_at(VRF, 4, 5, near_a, found), 0);
	assert_memory_equal(found, b, 16);
	assert_int_equal(vrf_local_address_at(VRF, 4, 7, near_a, found), 0);
	assert_memory_equal(found, a, 16);
	local_address_remove(VRF, 4, a, 1);
	local_address_remove(VRF, 4, b, 2);
}

static void
a_next_hop_is_on_the_network_that_holds_it_but_never_on_a_loopback(void **state)
{
	const uint8_t other[16] = {10, 0, 0, 2};

	local_address_add(VRF, 4, a, 24, 1);
	local_address_add(VRF, 4, a, 16, 2);
	local_address_add(VRF, 4, c, 32, 3);
	assert_int_equal(vrf_connected(VRF, 4, near_a), 1);
	assert_int_equal(vrf_connected(VRF, 4, other), NO_INTERFACE);
	assert_int_equal(vrf_connected(VRF, 4, c), NO_INTERFACE);
	local_address_remove(VRF, 4, a, 1);
	assert_int_equal(vrf_connected(VRF, 4, near_a), 2);
	local_address_remove(VRF, 4, a, 2);
	local_address_remove(VRF, 4, c, 3);
}

static void
many_addresses_come_and_go_in_any_order(void **state)
{
	uint8_t found[16];

	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 1000; i++) {
			uint8_t address[16] = {0x20, 0x01, [14] = (uint8_t)(i >> 8), [15] = (uint8_t)i};

			assert_int_equal(local_address_add(VRF, 6, address, 64, i % 16), 0);
		}
		for (unsigned i = 0; i < 1000; i++) {
			unsigned n = i * 7 % 1000;
			uint8_t address[16] = {0x20, 0x01, [14] = (uint8_t)(n >> 8), [15] = (uint8_t)n};

			assert_int_equal(vrf_local_address(VRF, 6, address, found), 0);
			assert_memory_equal(found, address, 16);
			local_address_remove(VRF, 6, address, n % 16);
		}
		assert_int_equal(vrf_local_address(VRF, 6, a, found), -ENOENT);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_own_address_nearest_to_the_other_is_chosen),
		cmocka_unit_test(an_interface_s_own_address_comes_first),
		cmocka_unit_test(a_next_hop_is_on_the_network_that_holds_it_but_never_on_a_loopback),
		cmocka_unit_test(many_addresses_come_and_go_in_any_order),
	};

	return cmocka_run_group_tests(tests, make_interfaces, destroy_interfaces);
}
