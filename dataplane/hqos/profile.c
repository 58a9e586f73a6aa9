// SPDX-License-Identifier: Apache-2.0
// Reads the specs of api/hqos.proto.
#include "contract_limits.h"
#include "hqos/profile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "acl/acl.h"
#include "ip/dscp.h"

enum {
	QUEUE_LENGTH = 64, // default
	OPEN_QUEUE_LENGTH = 1024,
	TWO_FRAMES = 2 * 1538,
	GROUP_QUANTUM = 8 * HQOS_QUANTUM, // a group's turn is worth several subscribers'
};

static const uint64_t SECOND = UINT64_C(1000000000), BURST_TIME = 500000;

static_assert(CONTRACT_QOS_PROFILE_CLASSES_MAX <= HQOS_CLASSES, "a profile has room for all classes");
static_assert(CONTRACT_QOS_CLASS_QUEUE_LENGTH_MAX <= HQOS_QUEUE_MAX && CONTRACT_WRED_MAX_MAX <= HQOS_QUEUE_MAX,
	"a queue has room for its packets");

// Whose field is wrong: "QosProfile home".
struct where {
	const char *kind, *name;
	const char *in; // "" or "classes[2]."
};

static int
check_rates(const struct where *w, uint64_t committed, uint64_t peak, struct fault *f)
{
	return peak == 0 || peak >= committed
		       ? 0
		       : fault(f, EINVAL, "%s %.63s, %speakRate: it must not be less than committedRate", w->kind,
				 w->name, w->in);
}

// A rate that may be exceeded for so long.
static struct pace
pace_for(uint64_t rate, uint64_t burst_time, uint64_t tsc_hz)
{
	uint64_t time = burst_time ? burst_time : BURST_TIME;
	uint64_t bytes = (uint64_t)((unsigned __int128)rate * time / (8 * SECOND));

	return pace_of(rate, burst_time || bytes > TWO_FRAMES ? bytes : TWO_FRAMES, tsc_hz);
}

static struct pace
committed_for(uint64_t rate, uint64_t burst_time, uint64_t tsc_hz)
{
	return rate ? pace_for(rate, burst_time, tsc_hz) : PACE_NEVER;
}

static uint32_t
quantum_for(uint32_t weight, uint32_t unit)
{
	return (weight ? weight : 1) * unit;
}

int
qos_scheduler_parse(const char *name, const Sluice__V1__QosScheduler *spec, uint64_t tsc_hz, struct pace *peak,
	int16_t *overhead, struct fault *f)
{
	*peak = pace_for(spec->rate, spec->burst_time, tsc_hz);
	*overhead = (int16_t)spec->overhead;
	return 0;
}

int
qos_group_parse(const char *name, const Sluice__V1__QosGroup *spec, uint64_t tsc_hz, struct hqos_group_profile *profile,
	struct fault *f)
{
	const struct where w = {"QosGroup", name, ""};
	int error = check_rates(&w, spec->committed_rate, spec->peak_rate, f);

	if (error)
		return error;
	*profile = (struct hqos_group_profile){
		.peak = pace_for(spec->peak_rate, spec->burst_time, tsc_hz),
		.committed = committed_for(spec->committed_rate, spec->burst_time, tsc_hz),
		.has_committed = spec->committed_rate != 0,
		.quantum = quantum_for(spec->weight, GROUP_QUANTUM),
		.overhead = (int16_t)spec->overhead,
	};
	return 0;
}

// ---- Classes.

static void
open_class(struct hqos_class_profile *class, unsigned number, uint32_t limit)
{
	*class = (struct hqos_class_profile){
		.committed = PACE_NEVER, .quantum = HQOS_QUANTUM, .limit = limit, .equals = (uint8_t)(1u << number)};
}

void
qos_profile_open(struct qos_profile *profile)
{
	*profile = (struct qos_profile){
		.shape = {.committed = PACE_NEVER, .quantum = HQOS_QUANTUM}, .class_count = 1, .names = {"all"}};
	// Unused classes may still have packets from before the profile changed.
	for (unsigned i = 0; i < HQOS_CLASSES; i++) {
		open_class(&profile->shape.classes[i], i, OPEN_QUEUE_LENGTH);
		profile->acl[i] = NO_ACL;
		profile->dscp[i] = -1;
	}
	memset(profile->of_qfi, QOS_ANY_CLASS, sizeof(profile->of_qfi));
	memset(profile->of_dscp, QOS_ANY_CLASS, sizeof(profile->of_dscp));
	memset(profile->of_vlan_priority, QOS_ANY_CLASS, sizeof(profile->of_vlan_priority));
	hqos_profile_finish(&profile->shape, profile->class_count);
}

static int
parse_wred(const struct where *w, const Sluice__V1__Wred *spec, struct hqos_class_profile *class, struct fault *f)
{
	static const Sluice__V1__Wred nothing = SLUICE__V1__WRED__INIT;
	uint32_t min, max, percent;

	spec = spec ? spec : &nothing;
	min = spec->min ? spec->min : RTE_MAX(class->limit / 4, 1u);
	max = spec->max ? spec->max : RTE_MAX(class->limit * 3 / 4, min + 1);
	percent = spec->percent ? spec->percent : 10;
	if (max <= min)
		return fault(f, EINVAL, "QosProfile %.63s, %swred.max: %u is not more than min, %u", w->name, w->in,
			max, min);
	class->wred_shift = 6;
	class->wred_probability = (uint32_t)(UINT64_C(0xffffffff) * percent / 100);
	for (unsigned colour = 0; colour < 3; colour++) {
		class->wred_min[colour] = min * (3 - colour) / 3;
		class->wred_max[colour] = RTE_MAX(max * (3 - colour) / 3, class->wred_min[colour] + 1);
	}
	return 0;
}

static int
parse_codel(const struct where *w, const Sluice__V1__Codel *spec, uint64_t tsc_hz, struct hqos_class_profile *class,
	struct fault *f)
{
	uint64_t target = spec && spec->target ? spec->target : 5000000;
	uint64_t interval = spec && spec->interval ? spec->interval : 100000000;

	if (interval < target)
		return fault(f, EINVAL, "QosProfile %.63s, %scodel.interval: it must not be less than target", w->name,
			w->in);
	class->codel_target =
		(uint32_t)(ticks_of((uint64_t)((unsigned __int128)target * tsc_hz / SECOND)) >> CODEL_SHIFT);
	class->codel_interval =
		(uint32_t)(ticks_of((uint64_t)((unsigned __int128)interval * tsc_hz / SECOND)) >> CODEL_SHIFT);
	return 0;
}

static int
parse_drop_policy(const struct where *w, const Sluice__V1__QosClass *spec, uint64_t tsc_hz,
	struct hqos_class_profile *class, struct fault *f)
{
	if (spec->wred && spec->drop_policy != SLUICE__V1__QOS_DROP_POLICY__WRED)
		return fault(
			f, EINVAL, "QosProfile %.63s, %swred: only with dropPolicy wred is it used", w->name, w->in);
	if (spec->codel && spec->drop_policy != SLUICE__V1__QOS_DROP_POLICY__CODEL)
		return fault(
			f, EINVAL, "QosProfile %.63s, %scodel: only with dropPolicy codel is it used", w->name, w->in);
	switch (spec->drop_policy) {
	case SLUICE__V1__QOS_DROP_POLICY__TAIL:
		class->policy = HQOS_TAIL_DROP;
		return 0;
	case SLUICE__V1__QOS_DROP_POLICY__WRED:
		class->policy = HQOS_WRED;
		return parse_wred(w, spec->wred, class, f);
	case SLUICE__V1__QOS_DROP_POLICY__CODEL:
		class->policy = HQOS_CODEL;
		return parse_codel(w, spec->codel, tsc_hz, class, f);
	default:
		return 0;
	}
}

// A value that leads to a class: by it, once.
static int
claim(const struct where *w, const char *field, uint8_t *table, unsigned size, int value, uint8_t class,
	struct fault *f)
{
	if (value < 0 || (unsigned)value >= size)
		return fault(f, EINVAL, "QosProfile %.63s, %smatch.%s: %d is not from 0 to %u", w->name, w->in, field,
			value, size - 1);
	if (table[value] != QOS_ANY_CLASS)
		return fault(f, EINVAL, "QosProfile %.63s, %smatch.%s: duplicate value %d; a packet has one class",
			w->name, w->in, field, value);
	table[value] = class;
	return 0;
}

static int
parse_match(
	const struct where *w, const Sluice__V1__QosMatch *spec, unsigned place, struct qos_profile *p, struct fault *f)
{
	uint8_t class = p->number_of[place];
	int error = 0;

	if (!spec)
		return 0;
	for (size_t i = 0; i < spec->n_qfis && error == 0; i++)
		error = spec->qfis[i] == 0
				? fault(f, EINVAL, "QosProfile %.63s, %smatch.qfis: 0 is no QFI; 1 to 63 are", w->name,
					  w->in)
				: claim(w, "qfis", p->of_qfi, 64, (int)RTE_MIN(spec->qfis[i], 64u), class, f);
	for (size_t i = 0; i < spec->n_dscp && error == 0; i++) {
		int dscp = dscp_parse(spec->dscp[i]);

		error = dscp < 0 ? fault(f, EINVAL,
					   "QosProfile %.63s, %smatch.dscp: \"%.40s\" is not a number below 64 or a "
					   "name such "
					   "as ef",
					   w->name, w->in, spec->dscp[i])
				 : claim(w, "dscp", p->of_dscp, 64, dscp, class, f);
	}
	for (size_t i = 0; i < spec->n_vlan_priorities && error == 0; i++)
		error = claim(w, "vlanPriorities", p->of_vlan_priority, 8, (int)RTE_MIN(spec->vlan_priorities[i], 8u),
			class, f);
	return error;
}

static int
parse_mark(
	const struct where *w, const Sluice__V1__QosMark *spec, uint8_t class, struct qos_profile *p, struct fault *f)
{
	if (!spec)
		return 0;
	if (spec->dscp[0]) {
		int dscp = dscp_parse(spec->dscp);

		if (dscp < 0)
			return fault(f, EINVAL,
				"QosProfile %.63s, %smark.dscp: \"%.40s\" is not a number below 64 or a name such as "
				"af31",
				w->name, w->in, spec->dscp);
		p->dscp[class] = (int8_t)dscp;
		p->marks_dscp = true;
	}
	p->vlan_priority[class] = (uint8_t)spec->vlan_priority;
	p->qfi[class] = (uint8_t)spec->qfi;
	return 0;
}

static int
parse_class(const char *name, const Sluice__V1__QosProfile *all, unsigned place, uint64_t tsc_hz, struct qos_profile *p,
	struct fault *f)
{
	const Sluice__V1__QosClass *spec = all->classes[place];
	uint8_t number = p->number_of[place];
	struct hqos_class_profile *class = &p->shape.classes[number];
	char in[32];
	const struct where w = {"QosProfile", name, in};
	int error;

	snprintf(in, sizeof(in), "classes[%u].", place);
	if (spec->name[0] == '\0' || strlen(spec->name) >= QOS_NAME)
		return fault(f, EINVAL, "QosProfile %.63s, %sname: it has to have 1 to %d characters", name, in,
			QOS_NAME - 1);
	for (unsigned i = 0; i < place; i++)
		if (strcmp(all->classes[i]->name, spec->name) == 0)
			return fault(f, EINVAL, "QosProfile %.63s, %sname: classes[%u] is called %s, too", name, in, i,
				spec->name);
	error = check_rates(&w, spec->committed_rate, spec->peak_rate, f);
	if (error)
		return error;
	open_class(class, number, spec->queue_length ? spec->queue_length : QUEUE_LENGTH);
	class->quantum = quantum_for(spec->weight, HQOS_QUANTUM);
	class->peak = pace_for(spec->peak_rate, all->burst_time, tsc_hz);
	class->committed = committed_for(spec->committed_rate, all->burst_time, tsc_hz);
	p->shape.class_peaks |= (uint8_t)((spec->peak_rate != 0) << number);
	p->shape.class_committed |= (uint8_t)((spec->committed_rate != 0) << number);
	snprintf(p->names[place], QOS_NAME, "%s", spec->name);
	error = parse_drop_policy(&w, spec, tsc_hz, class, f);
	if (error == 0)
		error = parse_match(&w, spec->match, place, p, f);
	return error ? error : parse_mark(&w, spec->mark, number, p, f);
}

// The scheduler's number of each class: by priority, and in the order in which they are written.
static void
number_classes(const Sluice__V1__QosProfile *spec, struct qos_profile *p)
{
	for (unsigned i = 0; i < spec->n_classes; i++) {
		uint8_t before = 0;

		for (unsigned j = 0; j < i; j++)
			before = (uint8_t)(before + (spec->classes[j]->priority <= spec->classes[i]->priority));
		for (unsigned j = i + 1; j < spec->n_classes; j++)
			before = (uint8_t)(before + (spec->classes[j]->priority < spec->classes[i]->priority));
		p->number_of[i] = before;
	}
}

int
qos_profile_parse(
	const char *name, const Sluice__V1__QosProfile *spec, uint64_t tsc_hz, struct qos_profile *p, struct fault *f)
{
	const struct where w = {"QosProfile", name, ""};
	int error = check_rates(&w, spec->committed_rate, spec->peak_rate, f);

	qos_profile_open(p);
	number_classes(spec, p);
	for (unsigned i = 0; i < spec->n_classes && error == 0; i++)
		error = parse_class(name, spec, i, tsc_hz, p, f);
	if (error)
		return error;
	for (unsigned i = 0; i < spec->n_classes; i++)
		for (unsigned j = 0; j < spec->n_classes; j++)
			if (spec->classes[i]->priority == spec->classes[j]->priority)
				p->shape.classes[p->number_of[i]].equals |= (uint8_t)(1u << p->number_of[j]);
	p->class_count = (uint8_t)RTE_MAX(spec->n_classes, 1u);
	p->rest = p->number_of[0];
	p->shape.peak = pace_for(spec->peak_rate, spec->burst_time, tsc_hz);
	p->shape.committed = committed_for(spec->committed_rate, spec->burst_time, tsc_hz);
	p->shape.has_committed = spec->committed_rate != 0;
	p->shape.quantum = quantum_for(spec->weight, HQOS_QUANTUM);
	p->shape.overhead = (int16_t)spec->overhead;
	p->shape.cells = spec->atm_cells;
	hqos_profile_finish(&p->shape, p->class_count);
	return 0;
}
