// SPDX-License-Identifier: Apache-2.0
// The security policy database: which packets it protects, discards and leaves alone. End to end: tests/test_ipsec.py.
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/rcu.h"
#include "ether/interface.h"
#include "fib/three_ports.h"
#include "ipsec.pb-c.h"
#include "ipsec/policy.h"

enum { SPI = 7001 };

static int
put_policy(const char *name, uint32_t priority, Sluice__V1__PolicyAction action, const char *remote, const char *last)
{
	Sluice__V1__SecurityPolicy spec = SLUICE__V1__SECURITY_POLICY__INIT;
	Sluice__V1__TrafficSelector selector = SLUICE__V1__TRAFFIC_SELECTOR__INIT, *selectors[] = {&selector};

	selector.remote = (char *)remote;
	selector.remote_last = (char *)(last ? last : "");
	spec.interface = "out";
	spec.priority = priority;
	spec.action = action;
	spec.selectors = selectors;
	spec.n_selectors = 1;
	return put("SecurityPolicy", name, &spec);
}

static int
put_out(const char *policy)
{
	Sluice__V1__SecurityAssociation sa = SLUICE__V1__SECURITY_ASSOCIATION__INIT;

	sa.direction = SLUICE__V1__SECURITY_DIRECTION__OUTBOUND;
	sa.spi = SPI;
	sa.local_address = "198.51.100.1";
	sa.remote_address = "198.51.100.2";
	sa.encryption_key = "000102030405060708090a0b0c0d0e0f10111213";
	sa.policy = (char *)policy;
	return put("SecurityAssociation", "out", &sa);
}

static int
start_all(void **state)
{
	return three_ports_start(state) ||
	       put_route("", "203.0.113.0/24", SLUICE__V1__ROUTE_ACTION__FORWARD,
		       &(struct via){"198.51.100.2", "out", 0}, 1) ||
	       put_neighbor("out", "198.51.100.2", "02:00:00:00:02:02");
}

static int
stop(void **state)
{
	static const char *const names[] = {"protect", "bypass", "discard"};

	object_delete("SecurityAssociation", "out", &f);
	for (unsigned i = 0; i < RTE_DIM(names); i++)
		object_delete("SecurityPolicy", names[i], &f);
	return 0;
}

// The fate of a packet to this host: the protocol that left by "out", or 0.
static unsigned
leave(const char *to)
{
	struct packet4 p = udp4("192.0.2.9", to, 64, 60);

	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 60);
	return sent_count == 1 ? sent[0].bytes[ETHER + 9] : 0;
}

static void
the_first_entry_by_priority_decides(void **state)
{
	uint64_t discarded = dropped("ipsec-policy-discard");

	assert_int_equal(leave("203.0.113.9"), PROTOCOL_UDP);
	assert_int_equal(put_policy("protect", 20, SLUICE__V1__POLICY_ACTION__PROTECT, "203.0.113.0/24", NULL), 0);
	assert_int_equal(put_out("protect"), 0);
	assert_int_equal(leave("203.0.113.9"), PROTOCOL_ESP);
	assert_int_equal(put_policy("bypass", 10, SLUICE__V1__POLICY_ACTION__BYPASS, "203.0.113.8/29", NULL), 0);
	assert_int_equal(leave("203.0.113.9"), PROTOCOL_UDP);
	assert_int_equal(leave("203.0.113.17"), PROTOCOL_ESP);
	assert_int_equal(put_policy("discard", 5, SLUICE__V1__POLICY_ACTION__DISCARD, "203.0.113.9/32", NULL), 0);
	assert_int_equal(leave("203.0.113.9"), 0);
	assert_int_equal(dropped("ipsec-policy-discard"), discarded + 1);
	assert_int_equal(leave("203.0.113.10"), PROTOCOL_UDP);
	assert_int_equal(put_policy("discard", 5, SLUICE__V1__POLICY_ACTION__BYPASS, "203.0.113.9/32", NULL), 0);
	assert_int_equal(leave("203.0.113.9"), PROTOCOL_UDP);
	assert_int_equal(put_policy("more", 5, SLUICE__V1__POLICY_ACTION__BYPASS, "203.0.113.9/32", NULL), -EEXIST);
	stop(NULL);
	assert_int_equal(leave("203.0.113.9"), PROTOCOL_UDP);
	assert_int_equal(interface_at(interface_of(object_find(&interface_kind, "out")))->features[INTERFACE_OUT], 0);
}

static void
a_range_of_addresses_has_its_ends_and_nothing_beside(void **state)
{
	static const struct {
		const char *first, *last;
		unsigned from, to;
	} ranges[] = {{"203.0.113.3/32", "203.0.113.250", 3, 250}, {"203.0.113.7/32", "203.0.113.7", 7, 7},
		{"203.0.113.0/32", "203.0.113.255", 0, 255}, {"203.0.113.128/32", "203.0.113.191", 128, 191}};

	for (unsigned r = 0; r < RTE_DIM(ranges); r++) {
		assert_int_equal(
			put_policy("protect", 20, SLUICE__V1__POLICY_ACTION__PROTECT, ranges[r].first, ranges[r].last),
			0);
		assert_int_equal(put_out("protect"), 0);
		for (unsigned host = 1; host < 255; host++) {
			char to[16];
			bool inside = host >= ranges[r].from && host <= ranges[r].to;

			snprintf(to, sizeof(to), "203.0.113.%u", host);
			assert_int_equal(leave(to), inside ? PROTOCOL_ESP : PROTOCOL_UDP);
		}
		stop(NULL);
	}
	assert_int_equal(put_policy("protect", 20, SLUICE__V1__POLICY_ACTION__PROTECT, "203.0.113.9/32", "203.0.113.8"),
		-EINVAL);
	assert_int_equal(put_policy("protect", 20, SLUICE__V1__POLICY_ACTION__PROTECT, "203.0.113.0/24", "203.0.113.8"),
		-EINVAL);
}

static void
the_ttl_of_a_packet_that_is_forwarded_is_counted_down_in_front_of_the_tunnel(void **state)
{
	struct packet4 p = udp4("192.0.2.9", "203.0.113.9", 1, 60);

	assert_int_equal(put_policy("protect", 20, SLUICE__V1__POLICY_ACTION__PROTECT, "203.0.113.0/24", NULL), 0);
	assert_int_equal(put_out("protect"), 0);
	sent_count = 0;
	receive("in", (uint8_t *)&p, ETHER + 60);
	assert_int_equal(sent_count, 1);
	assert_int_equal(sent[0].bytes[ETHER + 9], PROTOCOL_ICMP);
	assert_int_equal(sent[0].bytes[ETHER + 20], 11);
}

static void
protected_packets_without_an_association_are_named_drops(void **state)
{
	uint64_t before = dropped("ipsec-no-association"), unprotected = dropped("ipsec-unprotected");
	struct packet4 p = udp4("203.0.113.9", "192.0.2.9", 64, 60);

	assert_int_equal(put_policy("protect", 20, SLUICE__V1__POLICY_ACTION__PROTECT, "203.0.113.0/24", NULL), 0);
	assert_int_equal(leave("203.0.113.9"), 0);
	assert_int_equal(dropped("ipsec-no-association"), before + 1);
	p.ether[5] = 2;
	sent_count = 0;
	receive("out", (uint8_t *)&p, ETHER + 60);
	assert_int_equal(sent_count, 0);
	assert_int_equal(dropped("ipsec-unprotected"), unprotected + 1);
}

// A range whose ends are odd needs 62 prefixes, and a selector of two such ranges 3,844 rules.
static int
put_ranges(const char *name, uint32_t priority)
{
	Sluice__V1__SecurityPolicy spec = SLUICE__V1__SECURITY_POLICY__INIT;
	Sluice__V1__TrafficSelector selector = SLUICE__V1__TRAFFIC_SELECTOR__INIT, *selectors[] = {&selector};

	selector.local = selector.remote = "0.0.0.1/32";
	selector.local_last = selector.remote_last = "255.255.255.254";
	spec.interface = "out";
	spec.priority = priority;
	spec.action = SLUICE__V1__POLICY_ACTION__BYPASS;
	spec.selectors = selectors;
	spec.n_selectors = 1;
	return put("SecurityPolicy", name, &spec);
}

static void
policies_that_need_too_many_rules_are_refused_however_many_there_are(void **state)
{
	enum { CHEAP = 70, COSTLY = 17 }; // 70 + 17 * 3,844 rules are just below the limit
	char name[24];

	for (unsigned i = 0; i < CHEAP + COSTLY; i++) {
		snprintf(name, sizeof(name), "policy-%u", i);
		assert_int_equal(
			i < CHEAP ? put_policy(name, i, SLUICE__V1__POLICY_ACTION__BYPASS, "203.0.113.9/32", NULL)
				  : put_ranges(name, i),
			0);
	}
	assert_int_equal(put_ranges("one-more", 1000), -ENOSPC);
	assert_non_null(strstr(f.text, "fewer or wider address ranges"));
	assert_null(object_find(&security_policy_kind, "one-more"));
	for (unsigned i = CHEAP + COSTLY; i-- > 0;) {
		snprintf(name, sizeof(name), "policy-%u", i);
		assert_int_equal(object_delete("SecurityPolicy", name, &f), 0);
	}
	assert_int_equal(leave("203.0.113.9"), PROTOCOL_UDP);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(the_first_entry_by_priority_decides, stop),
		cmocka_unit_test_teardown(a_range_of_addresses_has_its_ends_and_nothing_beside, stop),
		cmocka_unit_test_teardown(
			the_ttl_of_a_packet_that_is_forwarded_is_counted_down_in_front_of_the_tunnel, stop),
		cmocka_unit_test_teardown(protected_packets_without_an_association_are_named_drops, stop),
		cmocka_unit_test_teardown(policies_that_need_too_many_rules_are_refused_however_many_there_are, stop),
	};

	return cmocka_run_group_tests(tests, start_all, three_ports_stop);
}
