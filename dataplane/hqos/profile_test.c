// SPDX-License-Identifier: Apache-2.0
// Reading QosProfiles: the numbers of classes, the class of each value, and refused profiles.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/contract.h"
#include "hqos/profile.h"

static const uint64_t HZ = 2000000000;

static Sluice__V1__QosProfile spec;
static Sluice__V1__QosClass classes[HQOS_CLASSES + 1], *list[HQOS_CLASSES + 1];
static Sluice__V1__QosMatch match;
static struct qos_profile parsed;
static struct fault f;

static int
fresh(void **state)
{
	static char *names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};

	(void)state;
	sluice__v1__qos_profile__init(&spec);
	sluice__v1__qos_match__init(&match);
	for (unsigned i = 0; i <= HQOS_CLASSES; i++) {
		sluice__v1__qos_class__init(&classes[i]);
		classes[i].name = names[i];
		list[i] = &classes[i];
	}
	spec.classes = list;
	memset(f.text, 0, sizeof(f.text));
	return 0;
}

static void
assert_refused(const char *words)
{
	assert_true(contract_check(contract_of(spec.base.descriptor), &spec.base, &f) ||
		    qos_profile_parse("home", &spec, HZ, &parsed, &f));
	if (!strstr(f.text, words))
		fail_msg("\"%s\" does not say \"%s\"", f.text, words);
}

static void
classes_are_numbered_by_priority_and_in_the_order_in_which_they_are_written(void **state)
{
	static const uint32_t priorities[] = {2, 0, 1, 1};
	static const uint8_t numbers[] = {3, 0, 1, 2};

	(void)state;
	spec.n_classes = 4;
	for (unsigned i = 0; i < 4; i++)
		classes[i].priority = priorities[i];
	classes[3].weight = 3;
	assert_int_equal(qos_profile_parse("home", &spec, HZ, &parsed, &f), 0);
	assert_memory_equal(parsed.number_of, numbers, sizeof(numbers));
	assert_int_equal(parsed.rest, 3);
	assert_int_equal(parsed.shape.classes[0].equals, 1);
	assert_int_equal(parsed.shape.classes[1].equals, 6);
	assert_int_equal(parsed.shape.classes[2].equals, 6);
	assert_int_equal(parsed.shape.classes[2].quantum, 3 * HQOS_QUANTUM);
	assert_string_equal(parsed.names[1], "b");
}

static void
a_profile_without_classes_has_one_for_everything(void **state)
{
	(void)state;
	assert_int_equal(qos_profile_parse("home", &spec, HZ, &parsed, &f), 0);
	assert_int_equal(parsed.class_count, 1);
	assert_int_equal(parsed.rest, 0);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(parsed.of_dscp[i], QOS_ANY_CLASS);
}

static void
values_lead_to_their_class_and_each_to_one(void **state)
{
	char *dscp[] = {"ef", "26"};
	uint32_t qfis[] = {9, 63}, priorities[] = {7};

	(void)state;
	spec.n_classes = 2;
	classes[0].priority = 1;
	classes[1].match = &match;
	match.dscp = dscp;
	match.n_dscp = 2;
	match.qfis = qfis;
	match.n_qfis = 2;
	match.vlan_priorities = priorities;
	match.n_vlan_priorities = 1;
	assert_int_equal(qos_profile_parse("home", &spec, HZ, &parsed, &f), 0);
	assert_int_equal(parsed.of_dscp[46], 0);
	assert_int_equal(parsed.of_dscp[26], 0);
	assert_int_equal(parsed.of_qfi[63], 0);
	assert_int_equal(parsed.of_vlan_priority[7], 0);
	assert_int_equal(parsed.of_qfi[0], QOS_ANY_CLASS);
	dscp[1] = "46";
	assert_refused("classes[1].match.dscp: duplicate value 46");
	match.n_dscp = 0;
	qfis[0] = 0;
	assert_refused("classes[1].match.qfis: 0 is no QFI");
	qfis[0] = 64;
	assert_refused("classes[1].match.qfis: 64 is not from 0 to 63");
	match.n_qfis = 0;
	priorities[0] = 4000000000;
	assert_refused("classes[1].match.vlanPriorities");
}

static void
invalid_schedulers_are_refused_with_the_field(void **state)
{
	Sluice__V1__Wred wred = SLUICE__V1__WRED__INIT;
	Sluice__V1__Codel codel = SLUICE__V1__CODEL__INIT;
	Sluice__V1__QosMark mark = SLUICE__V1__QOS_MARK__INIT;

	(void)state;
	spec.n_classes = HQOS_CLASSES + 1;
	assert_refused("classes: 9 elements");
	spec.n_classes = 1;
	spec.committed_rate = 2000000;
	spec.peak_rate = 1000000;
	assert_refused("peakRate");
	spec.peak_rate = 0;
	spec.overhead = -65;
	assert_refused("overhead");
	spec.overhead = 0;
	spec.weight = 256;
	assert_refused("weight");
	spec.weight = 0;
	classes[0].priority = 8;
	assert_refused("classes[0].priority");
	classes[0].priority = 0;
	classes[0].queue_length = HQOS_QUEUE_MAX + 1;
	assert_refused("classes[0].queueLength");
	classes[0].queue_length = 0;
	classes[0].codel = &codel;
	assert_refused("classes[0].codel: only with dropPolicy codel");
	classes[0].drop_policy = SLUICE__V1__QOS_DROP_POLICY__CODEL;
	codel.target = 1000000000;
	assert_refused("classes[0].codel.interval");
	classes[0].codel = NULL;
	classes[0].wred = &wred;
	assert_refused("classes[0].wred: only with dropPolicy wred");
	classes[0].drop_policy = SLUICE__V1__QOS_DROP_POLICY__WRED;
	wred.min = 30;
	wred.max = 30;
	assert_refused("classes[0].wred.max");
	classes[0].wred = NULL;
	classes[0].drop_policy = (Sluice__V1__QosDropPolicy)3;
	assert_refused("classes[0].dropPolicy: 3");
	classes[0].drop_policy = SLUICE__V1__QOS_DROP_POLICY__TAIL;
	classes[0].mark = &mark;
	mark.dscp = "ee";
	assert_refused("classes[0].mark.dscp");
	mark.dscp = "";
	mark.vlan_priority = 8;
	assert_refused("classes[0].mark.vlanPriority");
	mark.vlan_priority = 0;
	mark.qfi = 64;
	assert_refused("classes[0].mark.qfi");
	mark.qfi = 0;
	spec.n_classes = 2;
	classes[1].name = "a";
	assert_refused("classes[1].name: classes[0] is called a");
	classes[1].name = "";
	assert_refused("classes[1].name");
}

static void
early_drops_begin_at_the_spec_s_thresholds_and_for_red_first(void **state)
{
	(void)state;
	spec.n_classes = 1;
	classes[0].drop_policy = SLUICE__V1__QOS_DROP_POLICY__WRED;
	classes[0].queue_length = 120;
	assert_int_equal(qos_profile_parse("home", &spec, HZ, &parsed, &f), 0);
	assert_int_equal(parsed.shape.classes[0].wred_min[0], 30);
	assert_int_equal(parsed.shape.classes[0].wred_max[0], 90);
	assert_int_equal(parsed.shape.classes[0].wred_min[2], 10);
	assert_int_equal(parsed.shape.classes[0].wred_max[2], 30);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			classes_are_numbered_by_priority_and_in_the_order_in_which_they_are_written, fresh),
		cmocka_unit_test_setup(a_profile_without_classes_has_one_for_everything, fresh),
		cmocka_unit_test_setup(values_lead_to_their_class_and_each_to_one, fresh),
		cmocka_unit_test_setup(invalid_schedulers_are_refused_with_the_field, fresh),
		cmocka_unit_test_setup(early_drops_begin_at_the_spec_s_thresholds_and_for_red_first, fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
