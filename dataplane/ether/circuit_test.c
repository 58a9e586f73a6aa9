// SPDX-License-Identifier: Apache-2.0
// Circuits without a graph: which bindings can coexist.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/slab.h"
#include "ether/circuit_table.h"

static struct fault f;
static const struct rte_ether_addr mac_a = {{2, 0, 0, 0, 0, 0xa}}, mac_b = {{2, 0, 0, 0, 0, 0xb}};

static uint32_t
slot(const struct circuit *c)
{
	return port_circuits[c->port] ? circuit_slot(port_circuits[c->port], c->outer_vlan, c->inner_vlan) : 0;
}

static uint32_t
session_of_mac(const struct circuit *c, const struct rte_ether_addr *mac)
{
	uint8_t padded[8] = {0};

	memcpy(padded, mac, sizeof(*mac));
	return shared_session(slab_at(&shared_circuits, bound_index(slot(c))), mac_bits(padded));
}

static void
a_circuit_is_found_by_its_port_and_both_its_vlans(void **state)
{
	const struct circuit untagged = {1, 0, 0}, single = {1, 100, 0}, pair = {1, 100, 7}, other = {2, 100, 7};

	assert_int_equal(circuit_bind_session(&untagged, NULL, false, 11, false, &f), 0);
	assert_int_equal(circuit_bind_session(&single, NULL, false, 12, false, &f), 0);
	assert_int_equal(circuit_bind_session(&pair, NULL, false, 13, false, &f), 0);
	assert_int_equal(circuit_bind_interface(&other, 14, &f), 0);
	assert_int_equal(slot(&untagged), bound(BOUND_SESSION, 11));
	assert_int_equal(slot(&single), bound(BOUND_SESSION, 12));
	assert_int_equal(slot(&pair), bound(BOUND_SESSION, 13));
	assert_int_equal(slot(&other), bound(BOUND_INTERFACE, 14));
	circuit_unbind_session(&untagged, NULL);
	circuit_unbind_session(&single, NULL);
	circuit_unbind_session(&pair, NULL);
	circuit_unbind_interface(&other);
	assert_int_equal(slot(&untagged) | slot(&single) | slot(&pair) | slot(&other), 0);
}

static void
two_whole_circuits_on_the_same_vlans_are_refused(void **state)
{
	const struct circuit c = {3, 200, 9};

	assert_int_equal(circuit_bind_session(&c, NULL, false, 1, false, &f), 0);
	assert_int_equal(circuit_bind_session(&c, NULL, false, 2, false, &f), -EEXIST);
	assert_int_equal(circuit_bind_interface(&c, 3, &f), -EEXIST);
	assert_int_equal(circuit_bind_session(&c, &mac_a, false, 4, false, &f), -EEXIST);
	assert_int_equal(slot(&c), bound(BOUND_SESSION, 1));
	circuit_unbind_session(&c, NULL);
}

static void
sessions_with_a_mac_share_a_vlan_with_each_other_and_an_interface(void **state)
{
	const struct circuit c = {4, 300, 0};
	struct shared_circuit *shared;

	assert_int_equal(circuit_bind_interface(&c, 5, &f), 0);
	assert_int_equal(circuit_bind_session(&c, &mac_a, false, 21, false, &f), 0);
	assert_int_equal(circuit_bind_session(&c, &mac_b, false, 22, false, &f), 0);
	assert_int_equal(circuit_bind_session(&c, &mac_b, false, 23, false, &f), -EEXIST);
	assert_int_equal(bound_to(slot(&c)), BOUND_SHARED);
	assert_int_equal(session_of_mac(&c, &mac_a), 21);
	assert_int_equal(session_of_mac(&c, &mac_b), 22);
	shared = slab_at(&shared_circuits, bound_index(slot(&c)));
	assert_int_equal(shared->rest, bound(BOUND_INTERFACE, 5));
	circuit_unbind_session(&c, &mac_a);
	assert_int_equal(session_of_mac(&c, &mac_a), MAP64_NONE);
	assert_int_equal(session_of_mac(&c, &mac_b), 22);
	circuit_unbind_session(&c, &mac_b);
	// The last session gone, the interface has the VLAN for itself again.
	assert_int_equal(slot(&c), bound(BOUND_INTERFACE, 5));
	circuit_unbind_interface(&c);
}

// As where each subscriber has a pair of VLANs and speaks DHCP: its MAC is in its key.
static void
a_hundred_thousand_circuits_have_a_session_with_a_mac_each(void **state)
{
	for (uint32_t i = 0; i < 100000; i++) {
		const struct circuit c = {6, (uint16_t)(100 + i / 4000), (uint16_t)(1 + i % 4000)};

		assert_int_equal(circuit_bind_session(&c, &mac_a, false, i, false, &f), 0);
		assert_int_equal(circuit_session(&c, &mac_a), i);
		assert_int_equal(circuit_session(&c, &mac_b), NO_SESSION);
	}
	for (uint32_t i = 0; i < 100000; i++) {
		const struct circuit c = {6, (uint16_t)(100 + i / 4000), (uint16_t)(1 + i % 4000)};

		circuit_unbind_session(&c, &mac_a);
		assert_int_equal(slot(&c), 0);
	}
}

static void
sessions_of_a_circuit_come_and_go_in_any_order(void **state)
{
	const struct circuit c = {7, 300, 7};
	const struct rte_ether_addr none = {0};

	assert_int_equal(circuit_bind_session(&c, &mac_a, false, 0, false, &f), 0);
	assert_int_equal(circuit_bind_session(&c, &mac_b, false, 2, false, &f), 0);
	assert_int_equal(circuit_bind_session(&c, &none, false, 3, false, &f), 0);
	circuit_unbind_session(&c, &mac_a);
	assert_int_equal(circuit_session(&c, &mac_a), NO_SESSION);
	assert_int_equal(circuit_session(&c, &mac_b), 2);
	circuit_rebind_session(&c, &mac_b, 4);
	assert_int_equal(circuit_session(&c, &mac_b), 4);
	assert_int_equal(circuit_session(&c, &none), 3);
	assert_int_equal(circuit_bind_session(&c, &mac_a, false, 5, false, &f), 0);
	assert_int_equal(circuit_bind_session(&c, &mac_a, false, 6, false, &f), -EEXIST);
	circuit_rebind_session(&c, &mac_a, 7);
	assert_int_equal(circuit_session(&c, &mac_a), 7);
	circuit_unbind_session(&c, &mac_b);
	circuit_unbind_session(&c, &none);
	assert_int_equal(circuit_session(&c, &mac_a), 7);
	circuit_unbind_session(&c, &mac_a);
	assert_int_equal(slot(&c), 0);
}

static void
vlans_that_do_not_exist_are_refused(void **state)
{
	const struct circuit high = {5, 4095, 0}, inner_alone = {5, 0, 7}, inner_high = {5, 7, 4095};

	assert_int_equal(circuit_bind_session(&high, NULL, false, 1, false, &f), -EINVAL);
	assert_int_equal(circuit_bind_session(&inner_alone, NULL, false, 1, false, &f), -EINVAL);
	assert_int_equal(circuit_bind_interface(&inner_high, 1, &f), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_circuit_is_found_by_its_port_and_both_its_vlans),
		cmocka_unit_test(two_whole_circuits_on_the_same_vlans_are_refused),
		cmocka_unit_test(sessions_with_a_mac_share_a_vlan_with_each_other_and_an_interface),
		cmocka_unit_test(a_hundred_thousand_circuits_have_a_session_with_a_mac_each),
		cmocka_unit_test(sessions_of_a_circuit_come_and_go_in_any_order),
		cmocka_unit_test(vlans_that_do_not_exist_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
