// SPDX-License-Identifier: Apache-2.0
// Sessions are found by circuit, Ethernet address and address, while they come, move and go.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/loop.h"
#include "session/all_sessions.h"
#include "session/find.h"
#include "session/record.h"

static int
start(void **state)
{
	return all_sessions_start(1);
}

static struct session_found found;
static struct fault fault_of_search;

static int
search(Sluice__V1__SessionSearch query)
{
	found.count = 0;
	return session_search(&query, &found, &fault_of_search);
}

static int
compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

// The names that a search finds, in their order, with spaces between.
static const char *
names(Sluice__V1__SessionSearch query)
{
	static char text[256];

	assert_int_equal(search(query), 0);
	qsort(found.names, found.count, sizeof(found.names[0]), compare);
	text[0] = '\0';
	for (size_t i = 0; i < found.count; i++) {
		strcat(text, i ? " " : "");
		strcat(text, found.names[i]);
	}
	return text;
}

static const char *
at_circuit(uint16_t outer, uint16_t inner)
{
	Sluice__V1__SessionSearch query = SLUICE__V1__SESSION_SEARCH__INIT;

	query.port = "access";
	query.outer_vlan = outer;
	query.inner_vlan = inner;
	return names(query);
}

static const char *
with_mac(const char *mac)
{
	Sluice__V1__SessionSearch query = SLUICE__V1__SESSION_SEARCH__INIT;

	query.mac = (char *)mac;
	return names(query);
}

static const char *
with_address(const char *address)
{
	Sluice__V1__SessionSearch query = SLUICE__V1__SESSION_SEARCH__INIT;

	query.address = (char *)address;
	return names(query);
}

static void
sessions_are_found_by_their_circuit_while_they_come_move_and_go(void **state)
{
	struct subscriber a = {.name = "a", .address4 = "100.64.0.1/32", .outer = 100, .inner = 1};
	struct subscriber b = {.name = "b", .address4 = "100.64.0.2/32", .outer = 100, .inner = 2, .pppoe = 7};
	struct subscriber c = {.name = "c", .address4 = "100.64.0.3/32", .outer = 100, .inner = 2, .pppoe = 8};
	struct subscriber d = {
		.name = "d", .address4 = "100.64.0.4/32", .outer = 100, .inner = 2, .mac = "02:01:00:00:00:0d"};

	assert_string_equal(at_circuit(100, 1), "");
	assert_int_equal(put_session(&a), 0);
	assert_int_equal(put_session(&b), 0);
	assert_int_equal(put_session(&c), 0);
	assert_int_equal(put_session(&d), 0);
	assert_string_equal(at_circuit(100, 1), "a");
	assert_string_equal(at_circuit(100, 2), "b c d");
	a.inner = 3;
	assert_int_equal(put_session(&a), 0);
	assert_string_equal(at_circuit(100, 3), "a");
	assert_string_equal(at_circuit(100, 1), "");
	// A refused change has no effect.
	a.inner = 2;
	a.pppoe = 7;
	assert_int_equal(put_session(&a), -EEXIST);
	assert_string_equal(at_circuit(100, 3), "a");
	assert_string_equal(at_circuit(100, 2), "b c d");
	assert_int_equal(delete_session("c"), 0);
	assert_string_equal(at_circuit(100, 2), "b d");
	assert_int_equal(delete_session("a"), 0);
	assert_int_equal(delete_session("b"), 0);
	assert_int_equal(delete_session("d"), 0);
	assert_string_equal(at_circuit(100, 2), "");
	assert_string_equal(at_circuit(100, 3), "");
}

static void
a_session_is_found_by_its_ethernet_address_configured_or_learned(void **state)
{
	struct subscriber a = {
		.name = "a", .address4 = "100.64.0.1/32", .outer = 100, .inner = 1, .mac = "02:01:00:00:00:0a"};
	struct subscriber b = {.name = "b", .address4 = "100.64.0.2/32", .outer = 100, .inner = 2};
	uint8_t frame[256], *end;

	assert_int_equal(put_session(&a), 0);
	assert_int_equal(put_session(&b), 0);
	assert_string_equal(with_mac("02:01:00:00:00:0a"), "a");
	assert_string_equal(with_mac("02:01:00:00:00:09"), "");
	// write_access() sends from this one.
	end = write_packet4(write_access(frame, 100, 2, 0x0800), "100.64.0.2", "203.0.113.9", PAYLOAD);
	receive("access", frame, (size_t)(end - frame));
	assert_string_equal(with_mac("02:01:00:00:00:09"), "b");
	assert_int_equal(delete_session("b"), 0);
	assert_string_equal(with_mac("02:01:00:00:00:09"), "");
	assert_int_equal(delete_session("a"), 0);
}

static void
a_session_is_found_by_any_address_of_its_prefixes_routed_or_tunnelled(void **state)
{
	struct subscriber a = {
		.name = "a", .address4 = "100.64.0.1/32", .address6 = "2001:db8:a::/56", .outer = 100, .inner = 1};
	struct subscriber b = {.name = "b", .address4 = "100.64.0.2/32", .outer = 100, .inner = 2, .teid = 30};

	assert_int_equal(put_session(&a), 0);
	assert_int_equal(put_session(&b), 0);
	assert_string_equal(with_address("100.64.0.1"), "a");
	assert_string_equal(with_address("2001:db8:a:12::9"), "a");
	assert_string_equal(with_address("100.64.0.2"), "b");
	assert_string_equal(with_address("100.64.0.3"), "");
	assert_string_equal(with_address("2001:db8:a:100::9"), "");
	assert_int_equal(delete_session("a"), 0);
	assert_int_equal(delete_session("b"), 0);
	assert_string_equal(with_address("100.64.0.1"), "");
}

static void
a_search_that_makes_no_sense_is_refused(void **state)
{
	Sluice__V1__SessionSearch query = SLUICE__V1__SESSION_SEARCH__INIT;

	assert_int_equal(search(query), -EINVAL);
	query.address = "100.64.0";
	assert_int_equal(search(query), -EINVAL);
	assert_non_null(strstr(fault_of_search.text, "address: \"100.64.0\" is not an IP address"));
	query.address = "100.64.0.1";
	query.vrf = "nowhere";
	assert_int_equal(search(query), -ENOENT);
	query.mac = "02:01:00:00:00:0a";
	assert_int_equal(search(query), -EINVAL);
	query.address = "";
	query.mac = "02:01:00:00:00";
	assert_int_equal(search(query), -EINVAL);
	query.mac = "";
	query.port = "nowhere";
	assert_int_equal(search(query), -ENOENT);
	query.port = "access";
	query.outer_vlan = 70000;
	assert_int_equal(search(query), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sessions_are_found_by_their_circuit_while_they_come_move_and_go),
		cmocka_unit_test(a_session_is_found_by_its_ethernet_address_configured_or_learned),
		cmocka_unit_test(a_session_is_found_by_any_address_of_its_prefixes_routed_or_tunnelled),
		cmocka_unit_test(a_search_that_makes_no_sense_is_refused),
	};

	return cmocka_run_group_tests(tests, start, all_nodes_stop);
}
