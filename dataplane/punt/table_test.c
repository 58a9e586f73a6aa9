// SPDX-License-Identifier: Apache-2.0
// Specs of Punts, and the Punt of each frame.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "port/all_nodes.h"
#include "punt/circuit.h"
#include "punt/table.h"

enum {
	PUNT_PPPOE_DISCOVERY = SLUICE__V1__PUNT_PROTOCOL__PPPOE_DISCOVERY,
	PUNT_DHCP4 = SLUICE__V1__PUNT_PROTOCOL__DHCP4,
	PUNT_DHCP6 = SLUICE__V1__PUNT_PROTOCOL__DHCP6,
	PUNT_ARP = SLUICE__V1__PUNT_PROTOCOL__ARP,
	PUNT_ND = SLUICE__V1__PUNT_PROTOCOL__ND,
	PUNT_PROTOCOLS = 7,
};

static const char *const names[] = {"a", "b"};

static int
start(void **state)
{
	return all_nodes_start(1, 1024, names, RTE_DIM(names));
}

// Ranges are texts with blanks between; empty: none.
static int
put_punt(const char *name, const char *port, const char *outer, const char *inner, unsigned protocols)
{
	Sluice__V1__Punt spec = SLUICE__V1__PUNT__INIT;
	Sluice__V1__PuntProtocol list[PUNT_PROTOCOLS];
	char text[2][256], *ranges[2][16];
	const char *written[] = {outer, inner};
	size_t counts[2] = {0};

	for (unsigned i = 0; i < 2; i++) {
		char *rest = NULL;

		snprintf(text[i], sizeof(text[i]), "%s", written[i]);
		for (char *word = strtok_r(text[i], " ", &rest); word; word = strtok_r(NULL, " ", &rest))
			ranges[i][counts[i]++] = word;
	}
	for (unsigned protocol = 0; protocol < PUNT_PROTOCOLS; protocol++)
		if (protocols >> protocol & 1)
			list[spec.n_protocols++] = (Sluice__V1__PuntProtocol)protocol;
	spec.port = (char *)port;
	spec.outer_vlans = ranges[0];
	spec.n_outer_vlans = counts[0];
	spec.inner_vlans = ranges[1];
	spec.n_inner_vlans = counts[1];
	spec.protocols = list;
	return put("Punt", name, &spec);
}

static void
delete_punt(const char *name)
{
	assert_int_equal(object_delete("Punt", name, &fault_of_put), 0);
}

static const char *
taker(const char *port, uint16_t outer, uint16_t inner, unsigned protocol)
{
	const struct punt_rule *rule = punt_find(port_number(port), outer, inner, protocol);

	return rule ? rule->object->name : "";
}

static void
a_circuit_and_protocol_have_one_punt(void **state)
{
	assert_int_equal(put_punt("untagged", "a", "", "", 1 << PUNT_DHCP4), 0);
	assert_int_equal(put_punt("single", "a", "100-199 4094", "", 1 << PUNT_DHCP4), 0);
	assert_int_equal(put_punt("double", "a", "100-199", "1-10 20", 1 << PUNT_DHCP4 | 1 << PUNT_ND), 0);
	assert_int_equal(put_punt("pppoe", "a", "1-4094", "1-4094", 1 << PUNT_PPPOE_DISCOVERY), 0);
	assert_string_equal(taker("a", 0, 0, PUNT_DHCP4), "untagged");
	assert_string_equal(taker("a", 0, 0, PUNT_ND), "");
	assert_string_equal(taker("b", 0, 0, PUNT_DHCP4), "");
	assert_string_equal(taker("a", 99, 0, PUNT_DHCP4), "");
	assert_string_equal(taker("a", 100, 0, PUNT_DHCP4), "single");
	assert_string_equal(taker("a", 199, 0, PUNT_DHCP4), "single");
	assert_string_equal(taker("a", 200, 0, PUNT_DHCP4), "");
	assert_string_equal(taker("a", 4094, 0, PUNT_DHCP4), "single");
	assert_string_equal(taker("a", 150, 1, PUNT_DHCP4), "double");
	assert_string_equal(taker("a", 150, 10, PUNT_ND), "double");
	assert_string_equal(taker("a", 150, 11, PUNT_ND), "");
	assert_string_equal(taker("a", 150, 20, PUNT_ND), "double");
	assert_string_equal(taker("a", 150, 0, PUNT_ND), "");
	assert_string_equal(taker("a", 150, 20, PUNT_PPPOE_DISCOVERY), "pppoe");
	assert_string_equal(taker("a", 150, 0, PUNT_PPPOE_DISCOVERY), "");
	// In place.
	assert_int_equal(put_punt("single", "a", "300", "", 1 << PUNT_ARP), 0);
	assert_string_equal(taker("a", 100, 0, PUNT_DHCP4), "");
	assert_string_equal(taker("a", 300, 0, PUNT_ARP), "single");
	assert_int_equal(put_punt("single", "b", "300", "", 1 << PUNT_ARP), -EINVAL);
	assert_string_equal(taker("a", 300, 0, PUNT_ARP), "single");
	delete_punt("single");
	assert_string_equal(taker("a", 300, 0, PUNT_ARP), "");
	assert_string_equal(taker("a", 150, 20, PUNT_ND), "double");
	delete_punt("untagged");
	delete_punt("double");
	delete_punt("pppoe");
	assert_null(punt_tables[port_number("a")]);
	// The port is free again.
	assert_int_equal(object_find(&port_kind, "a")->users, 0);
}

static void
punts_that_overlap_are_refused_and_both_are_named(void **state)
{
	static const struct {
		const char *outer, *inner;
		unsigned protocols;
		const char *where; // NULL: they do not overlap
	} cases[] = {
		{"150-300", "1-10", 1 << PUNT_DHCP4, "VLAN 150.5"},
		{"199", "7", 1 << PUNT_DHCP4 | 1 << PUNT_ARP, "VLAN 199.7"},
		{"200-300", "1-10", 1 << PUNT_DHCP4, NULL},
		{"150-300", "1-4 11-4094", 1 << PUNT_DHCP4, NULL},
		{"150-300", "", 1 << PUNT_DHCP4, NULL},
		{"", "", 1 << PUNT_DHCP4, NULL},
		{"150-300", "1-10", 1 << PUNT_DHCP6, NULL},
	};

	assert_int_equal(put_punt("first", "a", "100-199", "5-10", 1 << PUNT_DHCP4), 0);
	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		int error = put_punt("second", "a", cases[i].outer, cases[i].inner, cases[i].protocols);

		assert_int_equal(error, cases[i].where ? -EEXIST : 0);
		if (!error) {
			delete_punt("second");
			continue;
		}
		assert_non_null(strstr(fault_of_put.text, "Punt first"));
		assert_non_null(strstr(fault_of_put.text, "Punt second"));
		assert_non_null(strstr(fault_of_put.text, cases[i].where));
		assert_string_equal(taker("a", 150, 5, PUNT_DHCP4), "first");
		// Another port is another matter.
		assert_int_equal(put_punt("second", "b", cases[i].outer, cases[i].inner, cases[i].protocols), 0);
		delete_punt("second");
	}
	// It does not stand in its own way.
	assert_int_equal(put_punt("first", "a", "150", "5", 1 << PUNT_DHCP4), 0);
	delete_punt("first");
}

static void
errors_of_a_spec_name_the_field(void **state)
{
	static const struct {
		const char *port, *outer, *inner;
		unsigned protocols;
		int error;
		const char *field;
	} cases[] = {
		{"a", "0", "", 1, -EINVAL, "outerVlans"},
		{"a", "4095", "", 1, -EINVAL, "outerVlans"},
		{"a", "100-99", "", 1, -EINVAL, "outerVlans"},
		{"a", "1-4095", "", 1, -EINVAL, "outerVlans"},
		{"a", "99999999999999999999", "", 1, -EINVAL, "outerVlans"},
		{"a", "1-99999999999999999999", "", 1, -EINVAL, "outerVlans"},
		{"a", "1-", "", 1, -EINVAL, "outerVlans"},
		{"a", "-1", "", 1, -EINVAL, "outerVlans"},
		{"a", "1,2", "", 1, -EINVAL, "outerVlans"},
		{"a", "1 x", "", 1, -EINVAL, "outerVlans"},
		{"a", "1", "0", 1, -EINVAL, "innerVlans"},
		{"a", "", "1", 1, -EINVAL, "innerVlans"},
		{"a", "1", "", 0, -EINVAL, "protocols"},
		{"", "1", "", 1, -EINVAL, "port"},
		{"nowhere", "1", "", 1, -ENOENT, "port"},
	};

	for (unsigned i = 0; i < RTE_DIM(cases); i++) {
		assert_int_equal(put_punt("wrong", cases[i].port, cases[i].outer, cases[i].inner, cases[i].protocols),
			cases[i].error);
		assert_non_null(strstr(fault_of_put.text, cases[i].field));
		assert_null(punt_tables[port_number("a")]);
	}
}

static void
a_vlan_is_in_a_bounded_number_of_punts(void **state)
{
	char name[16], inner[16];

	for (unsigned i = 0; i < PUNTS_OF_VLAN; i++) {
		snprintf(name, sizeof(name), "p%u", i);
		snprintf(inner, sizeof(inner), "%u", i + 1);
		assert_int_equal(put_punt(name, "a", "7", inner, 1 << PUNT_ARP), 0);
	}
	assert_int_equal(put_punt("more", "a", "7", "100", 1 << PUNT_ARP), -ENOSPC);
	assert_non_null(strstr(fault_of_put.text, "VLAN 7"));
	assert_int_equal(put_punt("more", "a", "8", "100", 1 << PUNT_ARP), 0);
	assert_string_equal(taker("a", 7, PUNTS_OF_VLAN, PUNT_ARP), "p15");
	delete_punt("more");
	for (unsigned i = 0; i < PUNTS_OF_VLAN; i++) {
		snprintf(name, sizeof(name), "p%u", i);
		delete_punt(name);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_circuit_and_protocol_have_one_punt),
		cmocka_unit_test(punts_that_overlap_are_refused_and_both_are_named),
		cmocka_unit_test(errors_of_a_spec_name_the_field),
		cmocka_unit_test(a_vlan_is_in_a_bounded_number_of_punts),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
