// SPDX-License-Identifier: Apache-2.0
// Accepted rules, and the errors of the others.
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "acl/rule.h"

static struct acl_rule
assert_taken(const Sluice__V1__AclRule *spec)
{
	struct acl_rule rule;
	struct fault f = {0};

	if (acl_rule_parse("web", 7, spec, &rule, &f) != 0)
		fail_msg("%s", f.text);
	return rule;
}

static void
assert_refused(const Sluice__V1__AclRule *spec, const char *field)
{
	struct acl_rule rule;
	struct fault f = {0};

	assert_int_equal(acl_rule_parse("web", 7, spec, &rule, &f), -EINVAL);
	if (!strstr(f.text, "acl web, rule 7, ") || !strstr(f.text, field))
		fail_msg("\"%s\" does not name %s", f.text, field);
}

static void
an_empty_rule_matches_everything(void **state)
{
	Sluice__V1__AclRule spec = SLUICE__V1__ACL_RULE__INIT;
	struct acl_rule rule = assert_taken(&spec);

	assert_false(rule.permit);
	assert_int_equal(rule.family, 0);
	assert_int_equal(rule.protocol, -1);
	assert_int_equal(rule.reads, 0);
	assert_int_equal(rule.source_low, 0);
	assert_int_equal(rule.destination_high, 65535);
	assert_int_equal(rule.dscp_mask, 0);
}

static void
every_field_is_read(void **state)
{
	Sluice__V1__AclRule spec = SLUICE__V1__ACL_RULE__INIT;
	struct acl_rule rule;

	spec.action = SLUICE__V1__ACL_ACTION__PERMIT;
	spec.source = (char *)"198.51.100.0/24";
	spec.destination = (char *)"0.0.0.0/0";
	spec.protocol = (char *)"TCP";
	spec.source_ports = (char *)"1024-65535";
	spec.destination_ports = (char *)"443";
	spec.dscp = (char *)"ef";
	spec.tcp_flags = (char *)"syn,!ack";
	rule = assert_taken(&spec);
	assert_true(rule.permit);
	assert_int_equal(rule.family, 4);
	assert_int_equal(rule.source_length, 24);
	assert_int_equal(rule.source[2], 100);
	assert_int_equal(rule.destination_length, 0);
	assert_int_equal(rule.protocol, IPPROTO_TCP);
	assert_int_equal(rule.source_low, 1024);
	assert_int_equal(rule.source_high, 65535);
	assert_int_equal(rule.destination_low, 443);
	assert_int_equal(rule.destination_high, 443);
	assert_int_equal(rule.dscp, 46);
	assert_int_equal(rule.flags, 0x02);
	assert_int_equal(rule.flags_mask, 0x12);
	assert_int_equal(rule.reads, RULE_READS_PORTS | RULE_READS_FLAGS);
}

static void
tcp_flags_alone_mean_tcp(void **state)
{
	Sluice__V1__AclRule spec = SLUICE__V1__ACL_RULE__INIT;

	spec.tcp_flags = (char *)"rst";
	assert_int_equal(assert_taken(&spec).protocol, IPPROTO_TCP);
}

static void
an_icmp_type_may_have_a_code(void **state)
{
	Sluice__V1__AclRule spec = SLUICE__V1__ACL_RULE__INIT;
	struct acl_rule rule;

	spec.icmp_type = (char *)"3/4";
	rule = assert_taken(&spec);
	assert_int_equal(rule.source_low, 0x304);
	assert_int_equal(rule.source_high, 0x304);
	spec.icmp_type = (char *)"8";
	rule = assert_taken(&spec);
	assert_int_equal(rule.source_low, 0x800);
	assert_int_equal(rule.source_high, 0x8ff);
}

static void
wrong_fields_are_refused_by_rule_and_name(void **state)
{
	static const struct {
		size_t offset;
		const char *field;
		const char *values[12];
	} cases[] = {
		{offsetof(Sluice__V1__AclRule, source), "source",
			{"198.51.100.0", "198.51.100.1/24", "198.51.100.0/33", "198.51.100.0/", "198.51.100.0/24x",
				"198.51.100/24", "2001:db8::1/64", "::/129", "/24", "198.51.100.0/-1"}},
		{offsetof(Sluice__V1__AclRule, destination), "destination", {"x", "10.0.0.0/8/8", "::/ 0"}},
		{offsetof(Sluice__V1__AclRule, protocol), "protocol",
			{"256", "-1", "gre", "6x", "99999999999999999999"}},
		{offsetof(Sluice__V1__AclRule, source_ports), "sourcePorts",
			{"65536", "20-10", "1-", "-1", "1-2-3", "http", "1,2", " 1"}},
		{offsetof(Sluice__V1__AclRule, destination_ports), "destinationPorts", {"0x50", "80-65536"}},
		{offsetof(Sluice__V1__AclRule, dscp), "dscp", {"64", "af51", "-1", "+1", "af1", "1e"}},
		{offsetof(Sluice__V1__AclRule, tcp_flags), "tcpFlags",
			{"syn,", ",syn", "!", "syn ack", "syn,syn", "syn,!syn", "synack", "!!ack", "sy"}},
		{offsetof(Sluice__V1__AclRule, icmp_type), "icmpType",
			{"256", "3/", "3/256", "/4", "echo", "3/4/5", "-3"}},
	};

	for (unsigned c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		for (unsigned v = 0; v < 12 && cases[c].values[v]; v++) {
			Sluice__V1__AclRule spec = SLUICE__V1__ACL_RULE__INIT;

			*(const char **)(void *)((char *)&spec + cases[c].offset) = cases[c].values[v];
			assert_refused(&spec, cases[c].field);
		}
	}
}

static void
fields_that_contradict_each_other_are_refused(void **state)
{
	Sluice__V1__AclRule spec = SLUICE__V1__ACL_RULE__INIT;

	spec.source = (char *)"10.0.0.0/8";
	spec.destination = (char *)"2001:db8::/32";
	assert_refused(&spec, "destination");
	spec.destination = (char *)"";
	spec.protocol = (char *)"icmp";
	spec.destination_ports = (char *)"80";
	assert_refused(&spec, "destinationPorts");
	spec.destination_ports = (char *)"";
	spec.tcp_flags = (char *)"syn";
	assert_refused(&spec, "tcpFlags");
	spec.tcp_flags = (char *)"";
	spec.protocol = (char *)"udp";
	spec.icmp_type = (char *)"8";
	assert_refused(&spec, "icmpType");
	spec.protocol = (char *)"";
	spec.source_ports = (char *)"80";
	assert_refused(&spec, "icmpType");
	spec.source_ports = spec.icmp_type = (char *)"";
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_rule_matches_everything),
		cmocka_unit_test(every_field_is_read),
		cmocka_unit_test(tcp_flags_alone_mean_tcp),
		cmocka_unit_test(an_icmp_type_may_have_a_code),
		cmocka_unit_test(wrong_fields_are_refused_by_rule_and_name),
		cmocka_unit_test(fields_that_contradict_each_other_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
