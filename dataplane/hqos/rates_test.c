// SPDX-License-Identifier: Apache-2.0
// Rates at each level, on a clock of the tests' own: of ports, groups, subscribers and classes, of frames as their lines count them,
// when the worker is late, and when they change.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hqos/own_clock.h"

// In any 100 ms of half a second, from any moment: frames across a window's end count in another one.
static void
assert_rate_in_every_window(unsigned subscribers, uint64_t bits_per_second)
{
	enum { MOMENTS = 2500, WINDOW = 500 }; // of 200 microseconds
	static uint64_t total[MOMENTS + 1], at[MOMENTS + 1];

	run(subscribers, 1, 1000, 20); // the packets of the initial burst
	for (unsigned moment = 0; moment < MOMENTS; moment++) {
		memset(sent, 0, sizeof(sent));
		at[moment] = now;
		run_cycles(subscribers, 1, 64 + (uint32_t)chance(1437), HZ / 5000);
		at[moment + 1] = now;
		total[moment + 1] = total[moment];
		for (unsigned i = 0; i < subscribers; i++)
			total[moment + 1] += of(i);
	}
	for (unsigned from = 0; from + WINDOW <= MOMENTS; from++)
		assert_near(total[from + WINDOW] - total[from],
			(double)bits_per_second / 8 * (double)(at[from + WINDOW] - at[from]) / (double)HZ, 0.01);
}

static void
a_subscriber_gets_its_peak_rate_within_one_percent(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(50000000, 3000, HZ);
	one_group(1);
	assert_rate_in_every_window(1, 50000000);
}

static void
a_group_gets_its_peak_rate_within_one_percent(void **state)
{
	(void)state;
	group_profiles[0].peak = pace_of(80000000, 3000, HZ);
	one_group(5);
	assert_rate_in_every_window(5, 80000000);
}

static void
a_port_gets_its_peak_rate_within_one_percent(void **state)
{
	(void)state;
	s->peak = pace_of(100000000, 3000, HZ);
	one_group(5);
	assert_rate_in_every_window(5, 100000000);
}

// All levels at once: the port has less than its groups, each group less than its subscribers.
static void
every_level_gets_its_rate_within_one_percent_below_the_others(void **state)
{
	(void)state;
	s->peak = pace_of(200000000, 3000, HZ);
	for (unsigned g = 0; g < 2; g++) {
		group_profiles[g].peak = pace_of(g == 0 ? 60000000 : 150000000, 3000, HZ);
		hqos_set_group(s, g, (uint16_t)g, now);
	}
	for (unsigned i = 0; i < 6; i++) {
		profiles[i].peak = pace_of(i == 5 ? 20000000 : 80000000, 3000, HZ);
		hqos_set_subscriber(s, i, i % 2, (uint16_t)i, now);
	}
	run(6, 1, 1000, 20);
	for (unsigned window = 0; window < 10; window++) {
		memset(sent, 0, sizeof(sent));
		run(6, 1, 200 + 130 * window, 100);
		assert_near(of(0) + of(2) + of(4), 60e6 / 80, 0.01);
		assert_near(of(5), 20e6 / 80, 0.01);
		assert_near(of(0) + of(1) + of(2) + of(3) + of(4) + of(5), 200e6 / 80, 0.01);
		// Shares of equals are of whole turns.
		assert_near(of(1), 60e6 / 80, 0.02);
		assert_near(of(3), 60e6 / 80, 0.02);
	}
}

static void
a_class_gets_its_peak_rate_and_leaves_the_rest_to_others(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(50000000, 3000, HZ);
	profiles[0].class_peaks = 1;
	profiles[0].classes[0].peak = pace_of(10000000, 3000, HZ);
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 3, 1000, 500);
	assert_near(sent[0][0], 10e6 / 16, 0.02);
	assert_near(sent[0][1], 40e6 / 16, 0.02);
}

static void
the_lines_overhead_and_cells_count(void **state)
{
	(void)state;
	profiles[0].peak = profiles[1].peak = pace_of(20000000, 3000, HZ);
	profiles[0].overhead = 100;
	profiles[1].overhead = 10;
	profiles[1].cells = true;
	one_group(2);
	memset(sent, 0, sizeof(sent));
	run(2, 1, 900, 500);
	assert_near(of(0), 20e6 / 16 * 900 / 1000, 0.01);
	// 910 bytes are 19 cells.
	assert_near(of(1), 20e6 / 16 * 900 / (19 * 53), 0.01);
}

static void
a_profile_changes_under_traffic(void **state)
{
	(void)state;
	profiles[0].peak = pace_of(10000000, 3000, HZ);
	profiles[1].peak = pace_of(90000000, 3000, HZ);
	one_group(1);
	memset(sent, 0, sizeof(sent));
	run(1, 1, 1000, 200);
	hqos_set_subscriber(s, 0, 0, 1, now);
	memset(sent, 0, sizeof(sent));
	run(1, 1, 1000, 500);
	assert_near(of(0), 90e6 / 16, 0.02);
	hqos_set_subscriber(s, 0, 0, 0, now);
	run(1, 1, 1000, 10);
	memset(sent, 0, sizeof(sent));
	run(1, 1, 1000, 500);
	assert_near(of(0), 10e6 / 16, 0.02);
}

// Debt of a very low rate, such as a bit a microsecond, would last for seconds.
static void
a_rate_that_is_raised_from_almost_nothing_counts_at_once_at_every_level(void **state)
{
	const struct pace slow = pace_of(8000, 100, HZ), fast = pace_of(80000000, 3000, HZ);

	(void)state;
	for (unsigned level = 0; level < 4; level++) {
		end(NULL);
		start(NULL);
		profiles[1].class_peaks = profiles[0].class_peaks = level == 0;
		profiles[0].classes[2].peak = level == 0 ? slow : (struct pace){0};
		profiles[1].classes[2].peak = level == 0 ? fast : (struct pace){0};
		profiles[0].peak = level == 1 ? slow : (struct pace){0};
		profiles[1].peak = level == 1 ? fast : (struct pace){0};
		group_profiles[0].peak = level == 2 ? slow : (struct pace){0};
		group_profiles[1].peak = level == 2 ? fast : (struct pace){0};
		s->peak = level == 3 ? slow : (struct pace){0};
		one_group(1);
		run(1, 4, 1500, 20);
		hqos_set_subscriber(s, 0, 0, 1, now);
		hqos_set_group(s, 0, 1, now);
		if (level == 3) {
			s->peak = fast;
			pace_forgive(&s->peak, &s->paid, ticks_of(now), 2 * HQOS_FRAME_MAX);
		}
		run(1, 4, 1500, 10);
		memset(sent, 0, sizeof(sent));
		run(1, 4, 1500, 100);
		assert_true((double)of(0) > 80e6 / 80 * 0.98);
	}
}

static void
rates_hold_although_the_worker_is_late(void **state)
{
	enum { TICKS = 4000, TENTH = 1000 }; // of 100 microseconds
	static uint64_t total[3][TICKS + 1];
	const double rates[3] = {
		50e6 / 8, 120e6 / 8, 200e6 / 8}; // a subscriber's, a group's, the port's: bytes a second

	(void)state;
	s->peak = pace_of(200000000, 6250, HZ);
	for (unsigned g = 0; g < 2; g++) {
		group_profiles[g].peak = pace_of(120000000, 6250, HZ);
		hqos_set_group(s, g, (uint16_t)g, now);
	}
	for (unsigned i = 0; i < 6; i++) {
		profiles[i].peak = pace_of(50000000, 3125, HZ);
		hqos_set_subscriber(s, i, i % 2, (uint16_t)i, now);
	}
	for (unsigned t = 0; t < TICKS; t++) {
		memset(sent, 0, sizeof(sent));
		// The worker does not come on time.
		for (unsigned steps = 0; steps < 10; steps++) {
			struct rte_mbuf *packets[64];
			unsigned count;

			for (uint32_t i = 0; i < 6; i++)
				while (hqos_waiting(&s->subscribers[i], 0) < 32)
					put(i, 0, 500);
			now += STEP / 2 + chance(STEP);
			while ((count = get(packets, 64)) != 0)
				for (unsigned i = 0; i < count; i++)
					sent[packet_of(packets[i])->session][0] += packets[i]->pkt_len;
		}
		total[0][t + 1] = total[0][t] + of(0);
		total[1][t + 1] = total[1][t] + of(0) + of(2) + of(4);
		total[2][t + 1] = total[2][t];
		for (unsigned i = 0; i < 6; i++)
			total[2][t + 1] += of(i);
	}
	// No subscriber sends more, from any moment on; a subscriber's share is bounded by its group.
	for (unsigned t = TENTH; t + TENTH <= TICKS; t++)
		for (unsigned level = 0; level < 3; level++)
			assert_true((double)(total[level][t + TENTH] - total[level][t]) < rates[level] / 10 * 1.01);
	for (unsigned t = TENTH; t + TENTH <= TICKS; t++)
		assert_near(total[2][t + TENTH] - total[2][t], rates[2] / 10, 0.01);
}

// The shortest frame costs at least a byte, at each level, however the frames come out: alone, in a row, or some of
// one subscriber together.
static void
a_frame_shorter_than_the_line_s_overhead_does_not_delay_others(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 4; i++) {
		profiles[i].overhead = -64;
		profiles[i].peak = pace_of(1000000000, 3000, HZ);
	}
	group_profiles[0].overhead = -64;
	group_profiles[0].peak = pace_of(1000000000, 3000, HZ);
	s->overhead = -64;
	s->peak = pace_of(1000000000, 3000, HZ);
	one_group(4);
	for (unsigned round = 0; round < 200; round++) {
		struct rte_mbuf *packets[64];
		unsigned expected = 0, count = 0, more;

		for (uint32_t i = 0; i < 4; i++)
			for (uint64_t each = 1 + chance(6); each != 0; each--)
				expected += put(i, (uint8_t)chance(HQOS_CLASSES), chance(2) ? 42 : 500);
		// Twelve thousand bytes take a tenth of this.
		for (unsigned wait = 0; wait < 100; wait++) {
			while ((more = get(packets, 64)) != 0)
				count += more;
			now += STEP;
		}
		assert_int_equal(count, expected);
	}
}

int
main(void)
{
	const struct CMUnitTest all[] = {
		EACH_WAY(a_subscriber_gets_its_peak_rate_within_one_percent),
		EACH_WAY(a_group_gets_its_peak_rate_within_one_percent),
		EACH_WAY(a_port_gets_its_peak_rate_within_one_percent),
		EACH_WAY(every_level_gets_its_rate_within_one_percent_below_the_others),
		EACH_WAY(a_class_gets_its_peak_rate_and_leaves_the_rest_to_others),
		EACH_WAY(the_lines_overhead_and_cells_count),
		EACH_WAY(a_frame_shorter_than_the_line_s_overhead_does_not_delay_others),
		EACH_WAY(a_profile_changes_under_traffic),
		EACH_WAY(a_rate_that_is_raised_from_almost_nothing_counts_at_once_at_every_level),
		EACH_WAY(rates_hold_although_the_worker_is_late),
	};

	return cmocka_run_group_tests(all, NULL, NULL);
}
