// SPDX-License-Identifier: Apache-2.0
// Precedence and sharing between subscribers, on the tests' own clock: priorities, weights and committed rates.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hqos/own_clock.h"

static void
a_lower_class_waits_for_a_higher_one(void **state)
{
	struct rte_mbuf *packets[64];

	(void)state;
	one_group(1);
	for (unsigned i = 0; i < 10; i++)
		for (uint8_t c = HQOS_CLASSES; c-- > 0;)
			put(0, c, 100);
	assert_int_equal(get(packets, 64), 64);
	for (unsigned i = 0; i < 64; i++)
		assert_int_equal(packet_of(packets[i])->qfi, i / 10);
	assert_int_equal(get(packets, 64), 16);
}

static void
classes_of_one_priority_share_by_weight(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(100000000, 3000, HZ);
	for (unsigned c = 1; c < 4; c++) {
		profiles[0].classes[c].equals = 0x0e;
		profiles[0].classes[c].quantum = c * HQOS_QUANTUM;
	}
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 0x1e, 1000, 1000);
	assert_near(sent[0][1], 100e6 / 8 / 6, 0.02);
	assert_near(sent[0][2], 100e6 / 8 / 3, 0.02);
	assert_near(sent[0][3], 100e6 / 8 / 2, 0.02);
	assert_int_equal(sent[0][4], 0);
}

static void
a_class_that_was_alone_owes_its_equals_nothing(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(100000000, 3000, HZ);
	for (unsigned c = 1; c < 3; c++)
		profiles[0].classes[c].equals = 0x06;
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 0x02, 1000, 1000);
	assert_near(sent[0][1], 100e6 / 8, 0.02);
	memset(sent, 0, sizeof(sent));
	run(1, 0x06, 1000, 500);
	assert_near(sent[0][1], 100e6 / 8 / 4, 0.02);
	assert_near(sent[0][2], 100e6 / 8 / 4, 0.02);
}

static void
subscribers_and_groups_share_by_weight(void **state)
{
	(void)state;
	s->peak = pace_of(100000000, 3000, HZ);
	group_profiles[1].quantum = 3 * HQOS_QUANTUM;
	hqos_set_group(s, 0, 0, now);
	hqos_set_group(s, 1, 1, now);
	profiles[1].quantum = 4 * HQOS_QUANTUM;
	for (uint32_t i = 0; i < 4; i++)
		hqos_set_subscriber(s, i, i / 2, (uint16_t)(i % 2), now);
	memset(sent, 0, sizeof(sent));
	run(4, 1, 800, 1000);
	assert_near(of(0), 100e6 / 8 / 4 / 5, 0.02);
	assert_near(of(1), 100e6 / 8 / 4 * 4 / 5, 0.02);
	assert_near(of(2), 100e6 / 8 * 3 / 4 / 5, 0.02);
	assert_near(of(3), 100e6 / 8 * 3 / 4 * 4 / 5, 0.02);
}

static void
a_committed_rate_holds_against_any_weight(void **state)
{
	(void)state;
	s->peak = pace_of(100000000, 3000, HZ);
	for (unsigned i = 1; i < 10; i++)
		profiles[i].quantum = 8 * HQOS_QUANTUM;
	profiles[0].committed = pace_of(40000000, 5000, HZ);
	profiles[0].has_committed = true;
	one_group(10);
	memset(sent, 0, sizeof(sent));
	run(10, 1, 1000, 1000);
	// And beyond it, its share of the rest.
	assert_near(of(0), 40e6 / 8 + 60e6 / 8 / 73, 0.02);
	assert_near(of(1), 60e6 / 8 * 8 / 73, 0.03);
}

static void
a_groups_committed_rate_holds(void **state)
{
	(void)state;
	s->peak = pace_of(100000000, 3000, HZ);
	group_profiles[1].committed = pace_of(70000000, 5000, HZ);
	group_profiles[1].has_committed = true;
	group_profiles[0].quantum = 16 * HQOS_QUANTUM;
	hqos_set_group(s, 0, 0, now);
	hqos_set_group(s, 1, 1, now);
	hqos_set_subscriber(s, 0, 0, 0, now);
	hqos_set_subscriber(s, 1, 1, 0, now);
	memset(sent, 0, sizeof(sent));
	run(2, 1, 1000, 1000);
	assert_near(of(1), 70e6 / 8 + 30e6 / 8 / 17, 0.02);
	assert_near(of(0), 30e6 / 8 * 16 / 17, 0.02);
}

static void
a_classs_committed_rate_holds_against_a_higher_class(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(50000000, 3000, HZ);
	profiles[0].class_committed = 0x80;
	profiles[0].classes[7].committed = pace_of(5000000, 3000, HZ);
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 0x81, 1000, 1000);
	assert_near(sent[0][7], 5e6 / 8, 0.02);
	assert_near(sent[0][0], 45e6 / 8, 0.02);
}

// Its share of the rest applies to packets beyond the committed rate, however often it becomes due in its turn of the
// rest.
static void
the_committed_rate_is_not_part_of_the_share_of_the_rest(void **state)
{
	static const unsigned weights[3] = {4, 3, 4}, committed[3] = {0, 10, 18}; // Mbit/s

	(void)state;
	for (unsigned of_groups = 0; of_groups < 2; of_groups++) {
		end(NULL);
		start(NULL);
		s->peak = pace_of(100000000, 6000, HZ);
		for (uint32_t i = 0; i < 3; i++) {
			struct pace rate = committed[i] > 0 ? pace_of(committed[i] * 1000000ull, 6000, HZ) : PACE_NEVER;

			if (of_groups) {
				group_profiles[i].committed = rate;
				group_profiles[i].has_committed = committed[i] > 0;
				group_profiles[i].quantum = weights[i] * HQOS_QUANTUM;
			} else {
				profiles[i].committed = rate;
				profiles[i].has_committed = committed[i] > 0;
				profiles[i].quantum = weights[i] * HQOS_QUANTUM;
			}
			hqos_set_group(s, i, (uint16_t)i, now);
			hqos_set_subscriber(s, i, of_groups ? i : 0, (uint16_t)i, now);
		}
		memset(sent, 0, sizeof(sent));
		run(3, 1, 800, 1000);
		for (unsigned i = 0; i < 3; i++)
			assert_near(of(i), (committed[i] + 72.0 * weights[i] / 11) * 1e6 / 8, 0.01);
	}
}

static void
equal_classes_share_by_weight_within_their_committed_rates(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(10000000, 3000, HZ);
	profiles[0].class_committed = 0x06;
	for (unsigned c = 1; c < 3; c++) {
		profiles[0].classes[c].equals = 0x06;
		profiles[0].classes[c].committed = pace_of(20000000, 3000, HZ);
	}
	profiles[0].classes[2].quantum = 3 * HQOS_QUANTUM;
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 0x06, 1000, 1000);
	assert_near(sent[0][1], 10e6 / 8 / 4, 0.02);
	assert_near(sent[0][2], 10e6 / 8 * 3 / 4, 0.02);
}

static void
no_subscriber_starves_among_many(void **state)
{
	(void)state;
	s->peak = pace_of(50000000, 3000, HZ);
	one_group(SUBSCRIBERS);
	memset(sent, 0, sizeof(sent));
	run(SUBSCRIBERS, 1, 500, 1000);
	for (unsigned i = 0; i < SUBSCRIBERS; i++)
		assert_near(of(i), 50e6 / 8 / SUBSCRIBERS, 0.05);
}

// The committed rate of one against the weight of all others.
static void
a_committed_rate_that_is_raised_from_almost_nothing_counts_at_once_at_every_level(void **state)
{
	const struct pace slow = pace_of(8000, 100, HZ), fast = pace_of(40000000, 3000, HZ);

	(void)state;
	for (unsigned level = 0; level < 3; level++) {
		end(NULL);
		start(NULL);
		s->peak = pace_of(80000000, 3000, HZ);
		profiles[2].quantum = 16 * HQOS_QUANTUM;
		group_profiles[2].quantum = level == 2 ? 16 * HQOS_QUANTUM : HQOS_QUANTUM;
		if (level == 0)
			profiles[0].class_committed = profiles[1].class_committed = 4;
		profiles[0].classes[2].committed = level == 0 ? slow : PACE_NEVER;
		profiles[1].classes[2].committed = level == 0 ? fast : PACE_NEVER;
		profiles[0].has_committed = profiles[1].has_committed = level == 1;
		profiles[0].committed = level == 1 ? slow : PACE_NEVER;
		profiles[1].committed = level == 1 ? fast : PACE_NEVER;
		group_profiles[0].has_committed = group_profiles[1].has_committed = level == 2;
		group_profiles[0].committed = level == 2 ? slow : PACE_NEVER;
		group_profiles[1].committed = level == 2 ? fast : PACE_NEVER;
		hqos_set_group(s, 0, 0, now);
		hqos_set_group(s, 1, 2, now);
		hqos_set_subscriber(s, 0, 0, 0, now);
		hqos_set_subscriber(s, 1, level == 2 ? 1 : 0, 2, now);
		// Class 1 takes all that class 2 of the same subscriber is not committed.
		run(2, level == 0 ? 6 : 4, 1500, 20);
		hqos_set_subscriber(s, 0, 0, 1, now);
		hqos_set_group(s, 0, 1, now);
		run(2, level == 0 ? 6 : 4, 1500, 20);
		memset(sent, 0, sizeof(sent));
		run(2, level == 0 ? 6 : 4, 1500, 100);
		if (level == 0)
			assert_true((double)sent[0][2] > (double)of(0) * 0.95 && sent[0][2] > 0);
		else
			assert_true((double)of(0) > 40e6 / 80 * 0.98);
	}
}

int
main(void)
{
	const struct CMUnitTest all[] = {
		EACH_WAY(a_lower_class_waits_for_a_higher_one),
		EACH_WAY(classes_of_one_priority_share_by_weight),
		EACH_WAY(a_class_that_was_alone_owes_its_equals_nothing),
		EACH_WAY(subscribers_and_groups_share_by_weight),
		EACH_WAY(a_committed_rate_holds_against_any_weight),
		EACH_WAY(a_groups_committed_rate_holds),
		EACH_WAY(a_classs_committed_rate_holds_against_a_higher_class),
		EACH_WAY(the_committed_rate_is_not_part_of_the_share_of_the_rest),
		EACH_WAY(equal_classes_share_by_weight_within_their_committed_rates),
		EACH_WAY(no_subscriber_starves_among_many),
		EACH_WAY(a_committed_rate_that_is_raised_from_almost_nothing_counts_at_once_at_every_level),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
