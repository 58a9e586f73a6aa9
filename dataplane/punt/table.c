// SPDX-License-Identifier: Apache-2.0
// Punts by port and VLANs. A change builds the port's table anew and publishes it by one store.
#include "punt/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/number.h"
#include "core/rcu.h"

enum { RATE = 1000, EACH = 10 };

struct punt_table *punt_tables[PORT_MAX];

// Without ranges, VLAN 0: there is no such tag.
static int
parse_ranges(const char *name, const char *field, char **ranges, size_t count, uint64_t *bits, struct fault *f)
{
	long first, last;

	if (count == 0)
		bits[0] = 1;
	for (size_t i = 0; i < count; i++) {
		if (!range_parse(ranges[i], PUNT_VLAN_LAST, &first, &last) || first == 0)
			return fault(f, EINVAL,
				"Punt %.63s, %s: \"%.32s\" is not a VLAN or a range of VLANs from 1 to 4094", name,
				field, ranges[i]);
		for (long vlan = first; vlan <= last; vlan++)
			bits[vlan / 64] |= UINT64_C(1) << vlan % 64;
	}
	return 0;
}

int
punt_parse(const char *name, const Sluice__V1__Punt *spec, struct punt_rule *rule, struct fault *f)
{
	int error;

	if (spec->n_inner_vlans > 0 && spec->n_outer_vlans == 0)
		return fault(f, EINVAL, "Punt %.63s, innerVlans: they need outerVlans around them", name);
	for (size_t i = 0; i < spec->n_protocols; i++)
		rule->protocols |= 1u << spec->protocols[i] % PUNT_PROTOCOLS_MAX;
	rule->rate = spec->rate ? spec->rate : RATE;
	rule->each = spec->rate_per_mac ? spec->rate_per_mac : EACH;
	rule->circuit = RTE_MIN(spec->rate_per_circuit, rule->rate / 2);
	error = parse_ranges(name, "outerVlans", spec->outer_vlans, spec->n_outer_vlans, rule->outer, f);
	return error ? error : parse_ranges(name, "innerVlans", spec->inner_vlans, spec->n_inner_vlans, rule->inner, f);
}

// The first VLAN in both, or -1.
static int
common(const uint64_t *a, const uint64_t *b)
{
	for (int i = 0; i < PUNT_WORDS; i++)
		if (a[i] & b[i])
			return i * 64 + __builtin_ctzll(a[i] & b[i]);
	return -1;
}

static int
check_overlap(const struct punt_rule *rule, const struct punt_rule *other, struct fault *f)
{
	unsigned both = rule->protocols & other->protocols;
	int outer = common(rule->outer, other->outer), inner = common(rule->inner, other->inner);
	char circuit[32] = "untagged";

	if (both == 0 || outer < 0 || inner < 0)
		return 0;
	if (inner > 0)
		snprintf(circuit, sizeof(circuit), "VLAN %d.%d", outer, inner);
	else if (outer > 0)
		snprintf(circuit, sizeof(circuit), "VLAN %d", outer);
	return fault(f, EEXIST,
		"Punt %.63s: Punt %.63s takes %s from port %.63s, %s already; take the protocol or the VLANs out of "
		"one of "
		"them",
		rule->object->name, other->object->name, punt_protocol_name((unsigned)__builtin_ctz(both)),
		ports[rule->port].object ? ports[rule->port].object->name : "?", circuit);
}

// The rules of a port, each once, but for `old`.
struct rules {
	const struct punt_rule **all;
	unsigned count;
};

static int
collect(const struct punt_table *t, const struct punt_rule *old, struct rules *rules)
{
	unsigned places = t ? t->start[PUNT_VLANS] : 0;

	rules->count = 0;
	rules->all = malloc((places + 1) * sizeof(rules->all[0]));
	if (!rules->all)
		return -ENOMEM;
	// A rule is in the list of each of its outer VLANs: the lowest counts.
	for (int vlan = 0; t && vlan < PUNT_VLANS; vlan++)
		for (uint32_t i = t->start[vlan]; i < t->start[vlan + 1]; i++)
			if (t->rules[i] != old && common(t->rules[i]->outer, t->rules[i]->outer) == vlan)
				rules->all[rules->count++] = t->rules[i];
	return 0;
}

static int
build(const struct rules *rules, const char *name, struct punt_table **built, struct fault *f)
{
	struct punt_table *t;
	uint32_t places = 0, used = 0;

	*built = NULL;
	if (rules->count == 0)
		return 0;
	for (unsigned i = 0; i < rules->count; i++)
		for (unsigned word = 0; word < PUNT_WORDS; word++)
			places += (uint32_t)__builtin_popcountll(rules->all[i]->outer[word]);
	t = calloc(1, sizeof(*t) + places * sizeof(t->rules[0]));
	if (!t)
		return fault(f, ENOMEM, "Punt %.63s: there is no memory for the port's table", name);
	for (unsigned vlan = 0; vlan < PUNT_VLANS; vlan++) {
		t->start[vlan] = used;
		for (unsigned i = 0; i < rules->count; i++)
			if (punt_bit(rules->all[i]->outer, (uint16_t)vlan))
				t->rules[used++] = rules->all[i];
		if (used - t->start[vlan] > PUNTS_OF_VLAN) {
			free(t);
			return fault(f, ENOSPC, "Punt %.63s, outerVlans: VLAN %u is in %d Punts of the port already",
				name, vlan, PUNTS_OF_VLAN);
		}
	}
	t->start[PUNT_VLANS] = used;
	*built = t;
	return 0;
}

int
punt_table_change(const struct punt_rule *old, const struct punt_rule *rule, struct fault *f)
{
	uint16_t port = rule ? rule->port : old->port;
	struct punt_table *before = punt_tables[port], *after;
	struct rules rules;
	int error = collect(before, old, &rules);

	if (error)
		return fault(f, ENOMEM, "Punt: there is no memory for the port's table");
	for (unsigned i = 0; rule && i < rules.count && error == 0; i++)
		error = check_overlap(rule, rules.all[i], f);
	if (rule)
		rules.all[rules.count++] = rule;
	if (error == 0)
		error = build(&rules, rule ? rule->object->name : old->object->name, &after, f);
	free(rules.all);
	if (error)
		return error;
	__atomic_store_n(&punt_tables[port], after, __ATOMIC_RELEASE);
	if (before)
		rcu_retire(free, before);
	return 0;
}
