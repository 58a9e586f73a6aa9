// SPDX-License-Identifier: Apache-2.0
// Accepted Session specs, and the errors of the others.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/contract.h"
#include "session/session.h"
#include "session/spec.h"

static Sluice__V1__Access access_ = SLUICE__V1__ACCESS__INIT;
static Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
static char *addresses[SESSION_PREFIXES + 1];

static Sluice__V1__Session
valid(void)
{
	Sluice__V1__Session spec = SLUICE__V1__SESSION__INIT;

	sluice__v1__access__init(&access_);
	sluice__v1__policy__init(&policy);
	access_.port = "access";
	access_.outer_vlan = 100;
	access_.inner_vlan = 7;
	addresses[0] = "100.64.0.7/32";
	addresses[1] = "2001:db8:7::/56";
	spec.access = &access_;
	spec.policy = &policy;
	spec.addresses = addresses;
	spec.n_addresses = 2;
	return spec;
}

static void
refused(const Sluice__V1__Session *spec, const char *field)
{
	struct session_spec parsed;
	struct fault f = {0};

	assert_true(contract_check(contract_of(spec->base.descriptor), &spec->base, &f) < 0 ||
		    session_spec_parse(spec, &parsed, &f) < 0);
	if (strncmp(f.text, field, strlen(field)) != 0)
		fail_msg("\"%s\" does not start with %s", f.text, field);
}

static void
a_valid_spec_is_taken_as_it_is(void **state)
{
	Sluice__V1__Session spec = valid();
	struct session_spec parsed;
	struct fault f;

	access_.mac = "02:00:00:00:00:01";
	policy.mss = 1400;
	assert_int_equal(session_spec_parse(&spec, &parsed, &f), 0);
	assert_int_equal(parsed.key.circuit.outer_vlan, 100);
	assert_int_equal(parsed.key.circuit.inner_vlan, 7);
	assert_true(parsed.key.has_mac);
	assert_int_equal(parsed.key.mac.addr_bytes[5], 1);
	assert_int_equal(parsed.mss, 1400);
	assert_int_equal(parsed.prefix_count, 2);
	assert_int_equal(parsed.prefixes[0].family, 4);
	assert_int_equal(parsed.prefixes[0].length, 32);
	assert_int_equal(parsed.prefixes[1].family, 6);
	assert_int_equal(parsed.prefixes[1].length, 56);
}

static void
vlans_must_be_valid_and_an_inner_one_needs_an_outer_one(void **state)
{
	Sluice__V1__Session spec = valid();

	access_.outer_vlan = 4095;
	refused(&spec, "access.outerVlan");
	access_.outer_vlan = 0;
	refused(&spec, "access.innerVlan");
	access_.outer_vlan = 1;
	access_.inner_vlan = 4095;
	refused(&spec, "access.innerVlan");
	access_.inner_vlan = 0;
	access_.pppoe_session_id = 65535;
	refused(&spec, "access.pppoeSessionId");
	access_.pppoe_session_id = 65534;
	spec.access = NULL;
	refused(&spec, "access");
}

static void
only_a_unicast_mac_is_a_subscribers(void **state)
{
	static char *const wrong[] = {
		"01:00:00:00:00:01", "00:00:00:00:00:00", "02:00:00:00:00", "x", "02:00:00:00:00:0g"};
	Sluice__V1__Session spec = valid();

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		access_.mac = wrong[i];
		refused(&spec, "access.mac");
	}
}

static void
a_prefix_that_is_not_one_is_refused_with_the_mend(void **state)
{
	static char *const wrong[] = {"", "100.64.0.7", "100.64.0.7/33", "100.64.0.7/24", "2001:db8::1/64",
		"2001:db8::/129", "100.64.0.7/", "100.64.0.7/32x", "100.64.0.7/ 32", "/32", "300.0.0.0/8",
		"224.0.0.0/4", "fe80::/64", "ff00::/8", "100.64.0.7/-1",
		"1111111111111111111111111111111111111111111111111111111111111111111111111111111111111111/32"};
	Sluice__V1__Session spec = valid();
	struct session_spec parsed;
	struct fault f;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		addresses[1] = wrong[i];
		refused(&spec, "addresses[1]");
	}
	addresses[1] = "100.64.9.7/24";
	session_spec_parse(&spec, &parsed, &f);
	assert_non_null(strstr(f.text, "\"100.64.9.0/24\""));
	addresses[1] = addresses[0];
	refused(&spec, "addresses[1]");
	spec.n_addresses = SESSION_PREFIXES + 1;
	refused(&spec, "addresses");
}

static void
a_prefix_that_is_never_forwarded_is_refused_with_its_scope(void **state)
{
	static const struct {
		char *prefix;
		const char *says;
	} cases[] = {
		{"0.0.0.0/8", "\"0.0.0.0/8\" is \"this network\""},
		{"127.0.0.0/8", "\"127.0.0.0/8\" is loopback (RFC 1122), to which nothing is forwarded"},
		{"127.0.0.1/32", "loopback"},
		{"169.254.0.0/16", "link-local (RFC 3927)"},
		{"169.254.1.1/32", "link-local (RFC 3927)"},
		{"224.0.0.0/3", "multicast and reserved"},
		{"239.1.0.0/16", "multicast"},
		{"240.0.0.0/4", "reserved"},
		{"255.255.255.255/32", "reserved"},
		{"::/128", "the unspecified address"},
		{"::1/128", "the loopback address"},
		{"::ffff:0:0/96", "IPv4-mapped"},
		{"::ffff:100.64.0.7/128", "IPv4-mapped"},
		{"fe80::/10", "link-local (RFC 4291)"},
		{"ff0e::/16", "multicast"},
	};
	Sluice__V1__Session spec = valid();
	struct session_spec parsed;
	struct fault f;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		addresses[1] = cases[i].prefix;
		refused(&spec, "addresses[1]: ");
		session_spec_parse(&spec, &parsed, &f);
		if (!strstr(f.text, cases[i].says))
			fail_msg("\"%s\" does not contain %s", f.text, cases[i].says);
	}
}

static void
an_mtu_fits_into_the_port_with_its_encapsulation(void **state)
{
	Sluice__V1__Session spec = valid();
	struct session_spec parsed;
	struct fault f = {0};

	assert_int_equal(session_spec_parse(&spec, &parsed, &f), 0);
	assert_int_equal(session_mtu(&parsed, 1500, &f), 1500);
	parsed.key.access = session_access_named("PPPoE");
	assert_int_equal(session_mtu(&parsed, 1500, &f), 1492);
	assert_int_equal(session_mtu(&parsed, 9000, &f), 8992);
	parsed.mtu = 1492;
	assert_int_equal(session_mtu(&parsed, 1500, &f), 1492);
	parsed.mtu = 1493;
	assert_true(session_mtu(&parsed, 1500, &f) < 0);
	assert_int_equal(session_mtu(&parsed, 1508, &f), 1493);
	policy.mtu = 1279;
	refused(&spec, "policy.mtu");
	policy.mtu = 9601;
	refused(&spec, "policy.mtu");
	policy.mtu = 0;
	policy.mss = 535;
	refused(&spec, "policy.mss");
	policy.mss = 9217;
	refused(&spec, "policy.mss");
}

static void
a_prefix_has_its_own_addresses_and_no_others(void **state)
{
	static const uint8_t in4[4] = {100, 64, 0, 255}, out4[4] = {100, 64, 1, 0};
	static const uint8_t in6[16] = {0x20, 1, 0xd, 0xb8, 0, 7, 0x0f}, out6[16] = {0x20, 1, 0xd, 0xb8, 0, 7, 0x10};
	struct session_prefix four, six, all;
	struct fault f;

	assert_int_equal(session_prefix_parse("100.64.0.0/24", "x", &four, &f), 0);
	assert_int_equal(session_prefix_parse("2001:db8:7::/52", "x", &six, &f), 0);
	assert_int_equal(session_prefix_parse("0.0.0.0/0", "x", &all, &f), 0);
	assert_true(session_prefix_has(&four, 4, in4));
	assert_false(session_prefix_has(&four, 4, out4));
	assert_false(session_prefix_has(&four, 6, in6));
	assert_true(session_prefix_has(&six, 6, in6));
	assert_false(session_prefix_has(&six, 6, out6));
	assert_true(session_prefix_has(&all, 4, out4));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_valid_spec_is_taken_as_it_is),
		cmocka_unit_test(vlans_must_be_valid_and_an_inner_one_needs_an_outer_one),
		cmocka_unit_test(only_a_unicast_mac_is_a_subscribers),
		cmocka_unit_test(a_prefix_that_is_not_one_is_refused_with_the_mend),
		cmocka_unit_test(a_prefix_that_is_never_forwarded_is_refused_with_its_scope),
		cmocka_unit_test(an_mtu_fits_into_the_port_with_its_encapsulation),
		cmocka_unit_test(a_prefix_has_its_own_addresses_and_no_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
