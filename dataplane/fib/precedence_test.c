// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fib/precedence.h"
#include "fib/vrf.h"
#include "inet/header.h"

enum { VRF = 7 };

static struct fault f;

static const uint8_t net[16] = {192, 0, 2, 0};
static const uint8_t net6[16] = {0x20, 0x01, 0x0d, 0xb8};

static int
make_vrf(void **state)
{
	vrfs[VRF] = (struct vrf){.fib4 = fib_create(FIB_IP4), .fib6 = fib_create(FIB_IP6)};
	return vrfs[VRF].fib4 && vrfs[VRF].fib6 ? 0 : -1;
}

static int
destroy_vrf(void **state)
{
	fib_destroy(vrfs[VRF].fib4);
	fib_destroy(vrfs[VRF].fib6);
	vrfs[VRF] = (struct vrf){0};
	return 0;
}

static uint32_t
leads(uint32_t last_byte)
{
	uint32_t address = rte_cpu_to_be_32(UINT32_C(0xc0000200) | last_byte), hop;

	fib4_lookup_bulk(vrfs[VRF].fib4, &address, &hop, 1);
	return hop;
}

static int
add(enum route_source source, uint32_t hop)
{
	return route_add(VRF, 4, net, 24, source, hop, &f);
}

static void
drop(enum route_source source)
{
	route_remove(VRF, 4, net, 24, source);
}

static void
the_strongest_source_counts_in_any_order_of_arrival(void **state)
{
	static const enum route_source orders[][4] = {
		{ROUTE_LOCAL, ROUTE_SESSION, ROUTE_STATIC, ROUTE_SPECIAL},
		{ROUTE_SPECIAL, ROUTE_STATIC, ROUTE_SESSION, ROUTE_LOCAL},
		{ROUTE_STATIC, ROUTE_LOCAL, ROUTE_SPECIAL, ROUTE_SESSION},
	};

	for (unsigned i = 0; i < RTE_DIM(orders); i++) {
		enum route_source strongest = ROUTE_SOURCES;

		for (unsigned k = 0; k < 4; k++) {
			assert_int_equal(add(orders[i][k], 100 + orders[i][k]), 0);
			if (orders[i][k] < strongest)
				strongest = orders[i][k];
			assert_int_equal(leads(1), 100 + strongest);
		}
		for (unsigned k = 0; k < 4; k++)
			drop(orders[i][k]);
		assert_int_equal(leads(1), 0);
	}
}

static void
the_next_source_takes_over_when_the_stronger_goes(void **state)
{
	assert_int_equal(add(ROUTE_STATIC, 5), 0);
	assert_int_equal(add(ROUTE_CONNECTED, 2), 0);
	assert_int_equal(add(ROUTE_NEIGHBOR, 4), 0);
	assert_int_equal(leads(9), 2);
	drop(ROUTE_CONNECTED);
	assert_int_equal(leads(9), 4);
	drop(ROUTE_NEIGHBOR);
	assert_int_equal(leads(9), 5);
	drop(ROUTE_STATIC);
	assert_int_equal(leads(9), 0);
}

static void
a_source_that_waits_may_go_unnoticed(void **state)
{
	assert_int_equal(add(ROUTE_STATIC, 5), 0);
	assert_int_equal(add(ROUTE_LOCAL, 1), 0);
	drop(ROUTE_STATIC);
	assert_int_equal(leads(9), 1);
	assert_int_equal(route_find(VRF, 4, net, 24, ROUTE_STATIC), 0);
	assert_int_equal(route_find(VRF, 4, net, 24, ROUTE_LOCAL), 1);
	drop(ROUTE_LOCAL);
	assert_int_equal(leads(9), 0);
}

static void
one_source_has_a_prefix_once(void **state)
{
	for (enum route_source source = ROUTE_LOCAL; source < ROUTE_SOURCES; source++) {
		assert_int_equal(add(source, 3), 0);
		assert_int_equal(add(source, 4), -EEXIST);
		assert_non_null(strstr(f.text, "192.0.2.0/24"));
		assert_int_equal(leads(1), 3);
		drop(source);
	}
}

static void
removing_a_missing_entry_changes_nothing(void **state)
{
	assert_int_equal(add(ROUTE_STATIC, 5), 0);
	drop(ROUTE_LOCAL);
	drop(ROUTE_SESSION);
	route_remove(VRF, 4, net, 25, ROUTE_STATIC);
	route_remove(VRF, 6, net6, 24, ROUTE_STATIC);
	assert_int_equal(leads(1), 5);
	drop(ROUTE_STATIC);
	drop(ROUTE_STATIC);
	assert_int_equal(leads(1), 0);
}

static void
a_change_of_hop_is_seen_at_once_or_waits_with_its_source(void **state)
{
	assert_int_equal(route_change(VRF, 4, net, 24, ROUTE_STATIC, 6, &f), -ENOENT);
	assert_int_equal(add(ROUTE_STATIC, 5), 0);
	assert_int_equal(route_change(VRF, 4, net, 24, ROUTE_STATIC, 6, &f), 0);
	assert_int_equal(leads(1), 6);
	assert_int_equal(add(ROUTE_SESSION, 3), 0);
	assert_int_equal(route_change(VRF, 4, net, 24, ROUTE_STATIC, 7, &f), 0);
	assert_int_equal(leads(1), 3);
	drop(ROUTE_SESSION);
	assert_int_equal(leads(1), 7);
	drop(ROUTE_STATIC);
}

static void
prefixes_of_other_lengths_families_and_vrfs_are_other_prefixes(void **state)
{
	assert_int_equal(add(ROUTE_SESSION, 1), 0);
	assert_int_equal(route_add(VRF, 4, net, 25, ROUTE_SESSION, 2, &f), 0);
	assert_int_equal(route_add(VRF, 6, net6, 32, ROUTE_SESSION, 3, &f), 0);
	assert_int_equal(leads(1), 2);
	assert_int_equal(leads(200), 1);
	assert_int_equal(route_find(VRF, 6, net6, 32, ROUTE_SESSION), 3);
	route_remove(VRF, 4, net, 25, ROUTE_SESSION);
	assert_int_equal(leads(1), 1);
	drop(ROUTE_SESSION);
	assert_int_equal(route_find(VRF, 6, net6, 32, ROUTE_SESSION), 3);
	route_remove(VRF, 6, net6, 32, ROUTE_SESSION);
}

static void
bits_past_the_prefix_do_not_matter(void **state)
{
	const uint8_t host[16] = {192, 0, 2, 77};

	assert_int_equal(route_add(VRF, 4, host, 24, ROUTE_CONNECTED, 9, &f), 0);
	assert_int_equal(route_find(VRF, 4, net, 24, ROUTE_CONNECTED), 9);
	drop(ROUTE_CONNECTED);
	assert_int_equal(leads(77), 0);
}

// The table's expected content, stored the simple way.
static uint32_t model[4096][PRECEDENCE_SOURCES];

static struct precedence_key
key_number(unsigned number)
{
	struct precedence_key key = {.vrf = (uint16_t)(number % 5), .family = number % 2 ? 4 : 6, .length = 32};

	key.address[number % 3] = (uint8_t)(number >> 4);
	key.address[3] = (uint8_t)number;
	key.address[12] = (uint8_t)(number >> 8);
	return key;
}

static uint32_t
count_of(const struct precedence *p)
{
	uint32_t count = 0;

	for (unsigned i = 0; i < PRECEDENCE_TABLES; i++)
		count += p->tables[i].count;
	return count;
}

static void
the_table_holds_entries_that_were_put_and_not_deleted(void **state)
{
	struct precedence table = {0};
	uint32_t random = 1, count = 0;

	for (unsigned step = 0; step < 200000; step++) {
		unsigned number, source;
		struct precedence_key key;

		random = random * 1664525 + 1013904223;
		number = random >> 8 & 4095;
		source = random >> 20 & 7;
		key = key_number(number);
		// First it grows, then it shrinks.
		if ((random >> 24 & 7) < (step < 100000 ? 5 : 2)) {
			count += model[number][source] == 0;
			model[number][source] = step + 1;
			assert_int_equal(precedence_put(&table, &key, source, step + 1), 0);
		} else {
			count -= model[number][source] != 0;
			model[number][source] = 0;
			precedence_delete(&table, &key, source);
		}
		assert_int_equal(count_of(&table), count);
	}
	for (unsigned number = 0; number < 4096; number++) {
		struct precedence_key key = key_number(number);
		uint32_t hops[PRECEDENCE_SOURCES] = {0};
		unsigned found = precedence_find(&table, &key, hops);

		for (unsigned source = 0; source < PRECEDENCE_SOURCES; source++) {
			assert_int_equal(found >> source & 1, model[number][source] != 0);
			assert_int_equal(hops[source], model[number][source]);
		}
	}
	for (unsigned i = 0; i < PRECEDENCE_TABLES; i++)
		free(table.tables[i].slots);
}

static void
a_prefix_is_an_address_a_length_and_no_bit_behind_it(void **state)
{
	static const struct {
		const char *text;
		int result;
		uint8_t family, length;
	} cases[] = {
		{"192.0.2.0/24", 0, 4, 24},
		{"0.0.0.0/0", 0, 4, 0},
		{"192.0.2.1/32", 0, 4, 32},
		{"2001:db8::/32", 0, 6, 32},
		{"::/0", 0, 6, 0},
		{"2001:db8::1/128", 0, 6, 128},
		{"192.0.2.1/24", -EINVAL, 0, 0},
		{"2001:db8::1/127", -EINVAL, 0, 0},
		{"192.0.2.0/33", -EINVAL, 0, 0},
		{"2001:db8::/129", -EINVAL, 0, 0},
		{"192.0.2.0", -EINVAL, 0, 0},
		{"192.0.2.0/", -EINVAL, 0, 0},
		{"192.0.2.0/-1", -EINVAL, 0, 0},
		{"192.0.2.0/24 ", -EINVAL, 0, 0},
		{"192.0.2.0/0000024", -EINVAL, 0, 0},
		{"/24", -EINVAL, 0, 0},
		{"", -EINVAL, 0, 0},
		{"192.0.2/24", -EINVAL, 0, 0},
		{"2001:db8:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0/32", -EINVAL, 0, 0},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		uint8_t address[16], family, length;

		assert_int_equal(prefix_parse(cases[i].text, address, &family, &length), cases[i].result);
		if (cases[i].result)
			continue;
		assert_int_equal(family, cases[i].family);
		assert_int_equal(length, cases[i].length);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_strongest_source_counts_in_any_order_of_arrival),
		cmocka_unit_test(the_next_source_takes_over_when_the_stronger_goes),
		cmocka_unit_test(a_source_that_waits_may_go_unnoticed),
		cmocka_unit_test(one_source_has_a_prefix_once),
		cmocka_unit_test(removing_a_missing_entry_changes_nothing),
		cmocka_unit_test(a_change_of_hop_is_seen_at_once_or_waits_with_its_source),
		cmocka_unit_test(prefixes_of_other_lengths_families_and_vrfs_are_other_prefixes),
		cmocka_unit_test(bits_past_the_prefix_do_not_matter),
		cmocka_unit_test(the_table_holds_entries_that_were_put_and_not_deleted),
		cmocka_unit_test(a_prefix_is_an_address_a_length_and_no_bit_behind_it),
	};

	return cmocka_run_group_tests(tests, make_vrf, destroy_vrf);
}
