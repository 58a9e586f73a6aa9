// SPDX-License-Identifier: Apache-2.0
// Accepted specs, and the errors of the others.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/contract.h"
#include "meter/profile.h"

static const uint64_t HZ = 2000000000;

static Sluice__V1__Meter
srtcm(void)
{
	Sluice__V1__Meter spec = SLUICE__V1__METER__INIT;

	spec.committed_rate = 100000000;
	spec.committed_burst = 65536;
	return spec;
}

static void
assert_refused(const Sluice__V1__Meter *spec, const char *words)
{
	struct meter_profile profile;
	struct fault f = {0};

	assert_true(contract_check(contract_of(spec->base.descriptor), &spec->base, &f) ||
		    meter_profile_parse("gold", spec, HZ, &profile, &f));
	if (!strstr(f.text, words))
		fail_msg("\"%s\" does not say \"%s\"", f.text, words);
}

static struct meter_profile
assert_taken(const Sluice__V1__Meter *spec)
{
	struct meter_profile profile;
	struct fault f = {0};

	if (meter_profile_parse("gold", spec, HZ, &profile, &f) != 0)
		fail_msg("%s", f.text);
	return profile;
}

static void
red_is_dropped_and_yellow_passes_by_default(void **state)
{
	Sluice__V1__Meter spec = srtcm();
	struct meter_profile profile = assert_taken(&spec);

	assert_int_equal(profile.verdict[GREEN], SLUICE__V1__METER_VERDICT__PASS);
	assert_int_equal(profile.verdict[YELLOW], SLUICE__V1__METER_VERDICT__PASS);
	assert_int_equal(profile.verdict[RED], SLUICE__V1__METER_VERDICT__DROP);
}

static void
a_burst_as_a_time_is_the_rate_times_that_time(void **state)
{
	Sluice__V1__Meter spec = srtcm();
	struct meter_profile profile;

	spec.committed_burst = 0;
	spec.committed_burst_time = 10000000; // 10 ms
	spec.excess_burst_time = 20000000;
	profile = assert_taken(&spec);
	assert_int_equal(profile.contract.committed_burst, 125000);
	assert_int_equal(profile.contract.excess_burst, 250000);
	spec.committed_rate = 4000000000000;
	spec.committed_burst_time = 10000000000;
	assert_refused(&spec, "committedBurst: 5000000000000 bytes");
}

static void
a_burst_in_bytes_and_as_a_time_is_refused(void **state)
{
	Sluice__V1__Meter spec = srtcm();

	spec.committed_burst_time = 1000000;
	assert_refused(&spec, "committedBurst");
	spec.committed_burst_time = 0;
	spec.excess_burst = spec.excess_burst_time = 5;
	assert_refused(&spec, "excessBurst");
}

static void
a_meter_without_a_burst_is_refused(void **state)
{
	Sluice__V1__Meter spec = srtcm();

	spec.committed_burst = 0;
	assert_refused(&spec, "committedBurst");
	spec.algorithm = SLUICE__V1__METER_ALGORITHM__TRTCM;
	spec.committed_burst = 1500;
	spec.peak_rate = 200000000;
	assert_refused(&spec, "excessBurst");
}

static void
rates_out_of_range_are_refused(void **state)
{
	Sluice__V1__Meter spec = srtcm();

	spec.committed_rate = 7999;
	assert_refused(&spec, "committedRate");
	spec.committed_rate = 4000000000001;
	assert_refused(&spec, "committedRate");
	spec.committed_rate = 0;
	assert_refused(&spec, "committedRate");
}

static void
a_peak_rate_below_the_committed_rate_is_refused(void **state)
{
	Sluice__V1__Meter spec = srtcm();

	spec.algorithm = SLUICE__V1__METER_ALGORITHM__TRTCM;
	spec.excess_burst = 65536;
	assert_refused(&spec, "peakRate");
	spec.peak_rate = 99999999;
	assert_refused(&spec, "peakRate");
	spec.peak_rate = 100000000;
	assert_taken(&spec);
}

static void
a_rate_of_another_algorithm_is_refused(void **state)
{
	Sluice__V1__Meter spec = srtcm();

	spec.peak_rate = 200000000;
	assert_refused(&spec, "peakRate: algorithm srtcm");
	spec.peak_rate = 0;
	spec.excess_rate = 200000000;
	assert_refused(&spec, "excessRate: algorithm srtcm");
	spec.algorithm = SLUICE__V1__METER_ALGORITHM__TRTCM;
	assert_refused(&spec, "excessRate: algorithm trtcm");
	spec.algorithm = SLUICE__V1__METER_ALGORITHM__RFC4115;
	spec.peak_rate = 1000000;
	assert_refused(&spec, "peakRate: algorithm rfc4115");
}

static void
either_rate_of_rfc_4115_may_be_left_out_but_not_both(void **state)
{
	Sluice__V1__Meter spec = srtcm();
	struct meter_profile profile;

	spec.algorithm = SLUICE__V1__METER_ALGORITHM__RFC4115;
	profile = assert_taken(&spec);
	assert_int_equal(profile.contract.excess_burst, 0);
	spec.committed_rate = 0;
	assert_refused(&spec, "committedRate");
	spec.excess_rate = 1000000;
	assert_refused(&spec, "excessBurst");
	spec.excess_burst = 3000;
	profile = assert_taken(&spec);
	assert_int_equal(profile.contract.committed_burst, 0);
	assert_int_equal(profile.contract.excess_burst, 3000);
}

static void
a_code_point_goes_with_remark_and_with_nothing_else(void **state)
{
	Sluice__V1__Meter spec = srtcm();
	Sluice__V1__MeterAction action = SLUICE__V1__METER_ACTION__INIT;

	spec.yellow = &action;
	action.dscp = (char *)"af12";
	assert_refused(&spec, "yellow.dscp");
	action.verdict = SLUICE__V1__METER_VERDICT__REMARK;
	assert_int_equal(assert_taken(&spec).mark[YELLOW], 12);
	action.dscp = (char *)"af15";
	assert_refused(&spec, "yellow.dscp: \"af15\"");
	action.dscp = (char *)"64";
	assert_refused(&spec, "yellow.dscp");
	action.dscp = (char *)"";
	assert_refused(&spec, "yellow.dscp");
	action.verdict = 7;
	assert_refused(&spec, "yellow.verdict");
}

static void
a_table_of_flows_goes_with_their_scope_and_within_its_bounds(void **state)
{
	Sluice__V1__Meter spec = srtcm();

	spec.flows = 4096;
	assert_refused(&spec, "flows: only with the scope flow");
	spec.scope = SLUICE__V1__METER_SCOPE__FLOW;
	assert_taken(&spec);
	spec.flows = 1023;
	assert_refused(&spec, "flows: 1023 is out of range; 1024 to 16777216");
	spec.flows = (1 << 24) + 1;
	assert_refused(&spec, "flows");
	spec.flows = 0;
	spec.scope = 3;
	assert_refused(&spec, "scope: 3 is unknown");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(red_is_dropped_and_yellow_passes_by_default),
		cmocka_unit_test(a_burst_as_a_time_is_the_rate_times_that_time),
		cmocka_unit_test(a_burst_in_bytes_and_as_a_time_is_refused),
		cmocka_unit_test(a_meter_without_a_burst_is_refused),
		cmocka_unit_test(rates_out_of_range_are_refused),
		cmocka_unit_test(a_peak_rate_below_the_committed_rate_is_refused),
		cmocka_unit_test(a_rate_of_another_algorithm_is_refused),
		cmocka_unit_test(either_rate_of_rfc_4115_may_be_left_out_but_not_both),
		cmocka_unit_test(a_code_point_goes_with_remark_and_with_nothing_else),
		cmocka_unit_test(a_table_of_flows_goes_with_their_scope_and_within_its_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
