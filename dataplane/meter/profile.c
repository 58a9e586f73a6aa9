// SPDX-License-Identifier: Apache-2.0
// Reads a meter's spec (api/meter.proto) and checks it against the RFC that its algorithm is of.
#include <errno.h>
#include <inttypes.h>

#include "ip/dscp.h"
#include "meter/profile.h"

static int
need_rate(const char *name, const char *field, uint64_t rate, const char *algorithm, struct fault *f)
{
	return rate ? 0 : fault(f, EINVAL, "meter %.63s, %s: missing; algorithm %s needs it", name, field, algorithm);
}

static int
refuse_rate(const char *name, const char *field, uint64_t rate, const char *algorithm, struct fault *f)
{
	if (rate == 0)
		return 0;
	return fault(f, EINVAL, "meter %.63s, %s: algorithm %s has no such rate; leave it out", name, field, algorithm);
}

// The size of a bucket in bytes, given as such or as the time in nanoseconds that its rate takes to fill it.
static int
parse_burst(const char *name, const char *field, uint64_t bytes, uint64_t time, uint64_t rate, uint32_t *burst,
	struct fault *f)
{
	if (bytes != 0 && time != 0)
		return fault(f, EINVAL, "meter %.63s, %s: give it in bytes or as a time, not both", name, field);
	if (time != 0 && rate == 0)
		return fault(
			f, EINVAL, "meter %.63s, %sTime: there is no rate that could fill it; give bytes", name, field);
	if (time != 0)
		bytes = (uint64_t)((unsigned __int128)rate * time / (8 * UINT64_C(1000000000)));
	if (bytes > UINT32_MAX)
		return fault(
			f, EINVAL, "meter %.63s, %s: %" PRIu64 " bytes are more than 4294967295", name, field, bytes);
	*burst = (uint32_t)bytes;
	return 0;
}

static int
parse_action(const char *name, const char *field, const Sluice__V1__MeterAction *action, uint8_t *verdict,
	uint8_t *mark, struct fault *f)
{
	int dscp;

	if (!action)
		return 0;
	switch (action->verdict) {
	case SLUICE__V1__METER_VERDICT__PASS:
	case SLUICE__V1__METER_VERDICT__DROP:
		if (action->dscp[0] != '\0')
			return fault(f, EINVAL, "meter %.63s, %s.dscp: only with the verdict remark is it written",
				name, field);
		break;
	case SLUICE__V1__METER_VERDICT__REMARK:
		dscp = dscp_parse(action->dscp);
		if (dscp < 0)
			return fault(f, EINVAL,
				"meter %.63s, %s.dscp: \"%.40s\" is not a number below 64 or a name such as af12", name,
				field, action->dscp);
		*mark = (uint8_t)dscp;
		break;
	default:
		break;
	}
	*verdict = (uint8_t)action->verdict;
	return 0;
}

// The rules of each RFC for rates; `*excess` is the rate of the second bucket, in bit/s.
static int
check_rates(const char *name, const Sluice__V1__Meter *spec, uint64_t *excess, struct fault *f)
{
	int rc;

	switch (spec->algorithm) {
	case SLUICE__V1__METER_ALGORITHM__SRTCM:
		*excess = spec->committed_rate;
		rc = need_rate(name, "committedRate", spec->committed_rate, "srtcm", f);
		if (rc == 0)
			rc = refuse_rate(name, "peakRate", spec->peak_rate, "srtcm", f);
		return rc != 0 ? rc : refuse_rate(name, "excessRate", spec->excess_rate, "srtcm", f);
	case SLUICE__V1__METER_ALGORITHM__TRTCM:
		*excess = spec->peak_rate;
		rc = need_rate(name, "committedRate", spec->committed_rate, "trtcm", f);
		if (rc == 0)
			rc = refuse_rate(name, "excessRate", spec->excess_rate, "trtcm", f);
		if (rc == 0)
			rc = need_rate(name, "peakRate", spec->peak_rate, "trtcm", f);
		if (rc == 0 && spec->peak_rate < spec->committed_rate)
			rc = fault(f, EINVAL, "meter %.63s, peakRate: it must not be less than committedRate", name);
		return rc;
	case SLUICE__V1__METER_ALGORITHM__RFC4115:
		*excess = spec->excess_rate;
		rc = refuse_rate(name, "peakRate", spec->peak_rate, "rfc4115", f);
		if (rc == 0 && spec->excess_rate == 0 && spec->committed_rate == 0)
			rc = fault(f, EINVAL, "meter %.63s, committedRate: it or excessRate has to be given", name);
		return rc;
	default:
		return 0;
	}
}

static int
check_scope(const char *name, const Sluice__V1__Meter *spec, struct fault *f)
{
	bool flow = spec->scope == SLUICE__V1__METER_SCOPE__FLOW;

	if (!flow && spec->flows != 0)
		return fault(f, EINVAL, "meter %.63s, flows: only with the scope flow is there a table of them", name);
	return 0;
}

// A bucket that can never hold a packet would colour nothing.
static int
check_bursts(const char *name, const Sluice__V1__Meter *spec, const struct meter_contract *contract, struct fault *f)
{
	bool single = spec->algorithm == SLUICE__V1__METER_ALGORITHM__SRTCM;
	bool need_committed = single ? contract->excess_burst == 0 : spec->committed_rate != 0;
	bool need_excess = !single && (spec->excess_rate != 0 || spec->peak_rate != 0);

	if (need_committed && contract->committed_burst == 0)
		return fault(f, EINVAL, "meter %.63s, committedBurst: it has to be given, in bytes or as a time", name);
	if (need_excess && contract->excess_burst == 0)
		return fault(f, EINVAL, "meter %.63s, excessBurst: it has to be given, in bytes or as a time", name);
	return 0;
}

int
meter_profile_parse(const char *name, const Sluice__V1__Meter *spec, uint64_t tsc_hz, struct meter_profile *profile,
	struct fault *f)
{
	struct meter_contract contract = {
		.overflow = spec->algorithm == SLUICE__V1__METER_ALGORITHM__SRTCM ? UINT64_MAX : 0,
		.both = spec->algorithm == SLUICE__V1__METER_ALGORITHM__TRTCM,
		.color_aware = spec->color_aware,
	};
	uint64_t excess = 0;
	int rc = check_rates(name, spec, &excess, f);

	*profile = (struct meter_profile){.verdict = {[RED] = SLUICE__V1__METER_VERDICT__DROP}};
	if (rc == 0)
		rc = parse_burst(name, "committedBurst", spec->committed_burst, spec->committed_burst_time,
			spec->committed_rate, &contract.committed_burst, f);
	if (rc == 0)
		rc = parse_burst(name, "excessBurst", spec->excess_burst, spec->excess_burst_time, excess,
			&contract.excess_burst, f);
	if (rc == 0)
		rc = check_bursts(name, spec, &contract, f);
	if (rc == 0)
		rc = check_scope(name, spec, f);
	if (rc == 0)
		rc = parse_action(name, "yellow", spec->yellow, &profile->verdict[YELLOW], &profile->mark[YELLOW], f);
	if (rc == 0)
		rc = parse_action(name, "red", spec->red, &profile->verdict[RED], &profile->mark[RED], f);
	if (rc != 0)
		return rc;
	contract.committed_rate = meter_rate(spec->committed_rate, tsc_hz);
	// A bucket that nothing flows into stays empty.
	if (spec->committed_rate == 0)
		contract.committed_burst = 0;
	if (excess == 0)
		contract.excess_burst = 0;
	contract.excess_rate = contract.overflow ? 0 : meter_rate(excess, tsc_hz);
	profile->contract = contract;
	return 0;
}
