// SPDX-License-Identifier: Apache-2.0
// Annotations are checked, and the fault names the field.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "acl.pb-c.h"
#include "dataplane.pb-c.h"
#include "hqos.pb-c.h"
#include "server/contract.h"
#include "server/object.h"
#include "session.pb-c.h"

static struct fault f;

static void
assert_fault(const void *message, const char *expected)
{
	const ProtobufCMessage *m = message;

	f.text[0] = '\0';
	assert_int_equal(contract_check(contract_of(m->descriptor), m, &f), expected ? -EINVAL : 0);
	assert_string_equal(f.text, expected ? expected : "");
}

static void
a_number_is_within_its_bounds_or_a_zero_with_a_meaning(void **state)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Policy policy = SLUICE__V1__POLICY__INIT;
	Sluice__V1__QosProfile profile = SLUICE__V1__QOS_PROFILE__INIT;

	assert_fault(&session, "access: missing");
	session.access = &access;
	access.port = "access";
	assert_fault(&session, NULL);
	access.outer_vlan = 4095;
	assert_fault(&session, "access.outerVlan: 4095 is out of range; 1 to 4094 or 0 (untagged) are accepted");
	access.outer_vlan = 4094;
	session.policy = &policy;
	policy.mss = 535;
	assert_fault(&session, "policy.mss: 535 is out of range; 536 to 9216 bytes or 0 (unchanged) are accepted");
	policy.mss = 536;
	assert_fault(&session, NULL);
	profile.overhead = -65;
	assert_fault(&profile, "overhead: -65 is out of range; -64 to 256 are accepted");
	profile.overhead = -64;
	assert_fault(&profile, NULL);
}

static void
a_list_has_no_more_elements_than_its_bound_and_none_is_an_empty_text(void **state)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	char *addresses[65];

	access.port = "access";
	session.access = &access;
	session.addresses = addresses;
	for (unsigned i = 0; i < 65; i++)
		addresses[i] = "192.0.2.1/32";
	session.n_addresses = 65;
	assert_fault(&session, "addresses: 65 elements; at most 64 elements are accepted");
	session.n_addresses = 64;
	assert_fault(&session, NULL);
	addresses[7] = "";
	assert_fault(&session, "addresses[7]: empty");
}

static void
an_enum_has_a_value_of_the_contract(void **state)
{
	Sluice__V1__Acl acl = SLUICE__V1__ACL__INIT;
	Sluice__V1__AclRule rule = SLUICE__V1__ACL_RULE__INIT;
	Sluice__V1__AclRule *rules[] = {&rule};

	acl.rules = rules;
	acl.n_rules = 1;
	assert_fault(&acl, NULL);
	rule.action = 99;
	assert_fault(&acl, "rules[0].action: 99 is unknown; DENY, PERMIT are accepted");
}

static void
only_the_member_of_a_oneof_that_is_set_is_checked(void **state)
{
	Sluice__V1__Session session = SLUICE__V1__SESSION__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;
	Sluice__V1__Gtpu gtpu = SLUICE__V1__GTPU__INIT;

	access.port = "access";
	session.access = &access;
	session.gtpu = &gtpu;
	assert_fault(&session, NULL);
	session.core_case = SLUICE__V1__SESSION__CORE_GTPU;
	assert_fault(&session, "gtpu.localAddress: missing; for example \"192.0.2.1\"");
}

static void
texts_of_specs_and_requests_are_utf8(void **state)
{
	static const char *const good[] = {
		"", "plain", "M\xc3\xbcnchen", "\xe2\x82\xac", "\xf0\x9f\x8c\x90", "\xf4\x8f\xbf\xbf"};
	static const char *const bad[] = {"\xff", "\x80", "\xc3", "\xc3(", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80",
		"\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "good and \xe2\x82"};
	Sluice__V1__Request request = SLUICE__V1__REQUEST__INIT;
	Sluice__V1__Hello hello = SLUICE__V1__HELLO__INIT;
	Sluice__V1__Access access = SLUICE__V1__ACCESS__INIT;

	request.hello = &hello;
	request.operation_case = SLUICE__V1__REQUEST__OPERATION_HELLO;
	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		hello.name = (char *)(uintptr_t)good[i];
		assert_int_equal(contract_check_text(&request.base, &f), 0);
	}
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		hello.name = access.port = (char *)(uintptr_t)bad[i];
		assert_int_equal(contract_check_text(&request.base, &f), -EINVAL);
		assert_string_equal(f.text, "hello.name: not valid UTF-8");
		assert_fault(&access, "port: not valid UTF-8");
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_number_is_within_its_bounds_or_a_zero_with_a_meaning),
		cmocka_unit_test(a_list_has_no_more_elements_than_its_bound_and_none_is_an_empty_text),
		cmocka_unit_test(an_enum_has_a_value_of_the_contract),
		cmocka_unit_test(only_the_member_of_a_oneof_that_is_set_is_checked),
		cmocka_unit_test(texts_of_specs_and_requests_are_utf8),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
