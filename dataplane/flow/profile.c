// SPDX-License-Identifier: Apache-2.0
// Makes flow profiles ready: the filters of all rules become a list for each direction, in the order of the rules' precedence.
#include "contract_limits.h"
#include "flow/profile.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ip/dscp.h"

enum { PRECEDENCE_MAX = CONTRACT_QOS_RULE_PRECEDENCE_MAX };
static_assert(CONTRACT_QOS_RULE_QFI_MAX < QFIS && CONTRACT_QOS_FLOW_QFI_MAX < QFIS, "a profile has room for every QFI");

// The profile under construction.
struct making {
	const char *name;
	const Sluice__V1__FlowProfile *spec;
	struct flow_profile *profile;
	struct acl_rule *filters[2]; // by enum direction
	struct fault *f;
};

static bool
is_of(const Sluice__V1__PacketFilter *filter, enum direction direction)
{
	return filter->direction == SLUICE__V1__FILTER_DIRECTION__BIDIRECTIONAL ||
	       filter->direction == (direction == UP ? SLUICE__V1__FILTER_DIRECTION__UPLINK
						     : SLUICE__V1__FILTER_DIRECTION__DOWNLINK);
}

static int
check_filter(const struct making *m, const Sluice__V1__PacketFilter *filter, size_t rule, size_t number)
{
	if (filter->spi != 0 && filter->protocol[0] != '\0' && strcmp(filter->protocol, "50") != 0)
		return fault(m->f, EINVAL,
			"flow profile %.63s, rule %zu, filter %zu, spi: ESP (protocol 50) has one, not \"%.40s\"",
			m->name, rule, number, filter->protocol);
	if (filter->spi != 0 && (filter->remote_ports[0] != '\0' || filter->local_ports[0] != '\0'))
		return fault(m->f, EINVAL,
			"flow profile %.63s, rule %zu, filter %zu, spi: ESP has no ports; leave one or the other out",
			m->name, rule, number);
	return 0;
}

// The fields of a filter in a direction.
static int
parse_filter(const struct making *m, const Sluice__V1__PacketFilter *filter, size_t rule, size_t number,
	enum direction direction, struct acl_rule *to)
{
	struct acl_place at = {
		"flow profile", m->name, rule, number, "local", "remote", "localPorts", "remotePorts", m->f};
	Sluice__V1__AclRule match = SLUICE__V1__ACL_RULE__INIT;
	int error;

	match.protocol = filter->protocol;
	match.dscp = filter->dscp;
	match.source = direction == UP ? filter->local : filter->remote;
	match.destination = direction == UP ? filter->remote : filter->local;
	match.source_ports = direction == UP ? filter->local_ports : filter->remote_ports;
	match.destination_ports = direction == UP ? filter->remote_ports : filter->local_ports;
	if (direction == DOWN) {
		at.source = "remote";
		at.destination = "local";
		at.source_ports = "remotePorts";
		at.destination_ports = "localPorts";
	}
	*to = (struct acl_rule){.permit = true};
	error = acl_match_parse(&at, &match, to);
	if (error)
		return error;
	if (filter->flow_label != 0) {
		if (to->family == 4)
			return fault(m->f, EINVAL,
				"flow profile %.63s, rule %zu, filter %zu, flowLabel: IPv4 has none; leave it or the "
				"addresses out",
				m->name, rule, number);
		to->family = 6;
		to->label = filter->flow_label;
		to->has_label = true;
	}
	if (filter->spi != 0) {
		// It is where ports would be (RFC 4303 section 2).
		to->protocol = IPPROTO_ESP;
		to->reads |= RULE_READS_PORTS;
		to->source_low = to->source_high = (uint16_t)(filter->spi >> 16);
		to->destination_low = to->destination_high = (uint16_t)filter->spi;
	}
	return 0;
}

static void
add_filter(struct making *m, enum direction direction, const struct acl_rule *filter, size_t rule)
{
	size_t number = m->profile->filters[direction]++;

	m->filters[direction][number] = *filter;
	m->profile->rule_of[direction][number + 1] = (uint8_t)rule;
}

// The same for frames; the fields of the packet in the frame are in `packet`.
static int
add_frame_filter(struct making *m, const Sluice__V1__PacketFilter *filter, size_t rule, size_t number,
	enum direction direction, const struct acl_rule *packet)
{
	struct frame_filter *to = &m->profile->frames[direction][m->profile->frame_count[direction]++];
	char where[128];

	snprintf(where, sizeof(where), "flow profile %.63s, rule %zu, filter %zu", m->name, rule + 1, number);
	*to = (struct frame_filter){.rule = (uint8_t)rule, .packet = *packet};
	to->reads_packet = filter->protocol[0] || filter->remote[0] || filter->local[0] || filter->remote_ports[0] ||
			   filter->local_ports[0] || filter->dscp[0] || filter->flow_label || filter->spi;
	return frame_filter_parse(filter, direction, where, to, m->f);
}

// The rule of this index, and its filters.
static int
add_rule(struct making *m, size_t index)
{
	static const struct acl_rule any = {
		.permit = true, .protocol = -1, .source_high = UINT16_MAX, .destination_high = UINT16_MAX};
	const Sluice__V1__QosRule *rule = m->spec->rules[index];

	m->profile->rules[index] =
		(struct flow_rule){.qfi = (uint8_t)rule->qfi, .firm = rule->precedence < PRECEDENCE_DERIVED};
	if (rule->n_filters == 0) {
		static const Sluice__V1__PacketFilter nothing = SLUICE__V1__PACKET_FILTER__INIT;

		add_filter(m, UP, &any, index);
		add_frame_filter(m, &nothing, index, 1, UP, &any);
	}
	for (size_t i = 0; i < rule->n_filters; i++) {
		int error = check_filter(m, rule->filters[i], index + 1, i + 1);

		for (enum direction d = UP; d <= DOWN && error == 0; d++) {
			struct acl_rule filter;

			if (!is_of(rule->filters[i], d))
				continue;
			error = parse_filter(m, rule->filters[i], index + 1, i + 1, d, &filter);
			if (error == 0 && frame_filter_is(rule->filters[i]))
				error = add_frame_filter(m, rule->filters[i], index, i + 1, d, &filter);
			else if (error == 0)
				add_filter(m, d, &filter, index);
		}
		if (error)
			return error;
	}
	return 0;
}

// All rules, by precedence.
static int
add_rules(struct making *m, const atomic_bool *unwanted)
{
	int16_t at[PRECEDENCE_MAX + 1];
	int error = 0;

	memset(at, 0xff, sizeof(at));
	for (size_t i = 0; i < m->spec->n_rules; i++) {
		const Sluice__V1__QosRule *rule = m->spec->rules[i];

		if (rule->precedence == PRECEDENCE_DERIVED)
			return fault(m->f, EINVAL,
				"flow profile %.63s, rule %zu, precedence: %d is that of derived rules; choose another",
				m->name, i + 1, PRECEDENCE_DERIVED);
		if (at[rule->precedence] >= 0)
			return fault(m->f, EINVAL,
				"flow profile %.63s, rule %zu, precedence: %u is rule %d's; choose another", m->name,
				i + 1, rule->precedence, at[rule->precedence] + 1);
		at[rule->precedence] = (int16_t)i;
	}
	for (unsigned precedence = 0; precedence <= PRECEDENCE_MAX && error == 0; precedence++) {
		if (unwanted && atomic_load(unwanted))
			return fault(m->f, ECANCELED, "flow profile %.63s: the change was cancelled", m->name);
		if (at[precedence] >= 0)
			error = add_rule(m, (size_t)at[precedence]);
	}
	return error;
}

static int
set_marks(struct making *m)
{
	uint64_t there = 0;

	for (unsigned qfi = 0; qfi < QFIS; qfi++)
		m->profile->marks[qfi] = (struct flow_mark){.dscp = -1};
	for (size_t i = 0; i < m->spec->n_flows; i++) {
		const Sluice__V1__QosFlow *flow = m->spec->flows[i];
		int dscp = flow->dscp[0] == '\0' ? -1 : dscp_parse(flow->dscp);

		if (there & 1ull << flow->qfi)
			return fault(m->f, EINVAL, "flow profile %.63s, flow %zu, qfi: duplicate QFI %u", m->name,
				i + 1, flow->qfi);
		if (flow->dscp[0] != '\0' && dscp < 0)
			return fault(m->f, EINVAL,
				"flow profile %.63s, flow %zu, dscp: \"%.40s\" is not a number below 64 or a name such "
				"as "
				"ef, af41 or cs6",
				m->name, i + 1, flow->dscp);
		there |= 1ull << flow->qfi;
		m->profile->listed = there;
		m->profile->marks[flow->qfi] = (struct flow_mark){
			.dscp = (int8_t)dscp, .class = (uint8_t)flow->class_, .priority = (uint8_t)flow->priority};
	}
	return 0;
}

// `where` names the meters' field.
static int
name_meters(
	struct making *m, char *const *names, size_t count, uint32_t qfi, enum direction direction, const char *where)
{
	struct flow_meters *meters = m->profile->meters;

	if (count > FLOW_METERS)
		return fault(m->f, EINVAL, "flow profile %.63s, %s: %zu are more than %d", m->name, where, count,
			FLOW_METERS);
	for (size_t i = 0; i < count; i++) {
		struct flow_meter *one = &meters->sources[meters->count++];

		*one = (struct flow_meter){.direction = direction, .qfi = (uint8_t)qfi, .place = (uint8_t)i};
		if (names[i][0] == '\0' || strlen(names[i]) >= sizeof(one->name))
			return fault(m->f, EINVAL, "flow profile %.63s, %s: \"%.80s\" is not a name", m->name, where,
				names[i]);
		memcpy(one->name, names[i], strlen(names[i]) + 1);
	}
	return 0;
}

static int
name_meters_of_flow(struct making *m, const Sluice__V1__QosFlow *flow)
{
	char where[32];
	int error;

	m->profile->meters->listed |= 1ull << flow->qfi;
	snprintf(where, sizeof(where), "QFI %u, metersUp", flow->qfi);
	error = name_meters(m, flow->meters_up, flow->n_meters_up, flow->qfi, UP, where);
	if (error)
		return error;
	snprintf(where, sizeof(where), "QFI %u, metersDown", flow->qfi);
	return name_meters(m, flow->meters_down, flow->n_meters_down, flow->qfi, DOWN, where);
}

static int
set_meters(struct making *m)
{
	const Sluice__V1__FlowProfile *spec = m->spec;
	size_t count = spec->n_other_meters_up + spec->n_other_meters_down;
	int error = 0;

	for (size_t i = 0; i < spec->n_flows; i++)
		count += spec->flows[i]->n_meters_up + spec->flows[i]->n_meters_down;
	if (count == 0)
		return 0;
	m->profile->meters = calloc(1, sizeof(*m->profile->meters) + count * sizeof(m->profile->meters->sources[0]));
	if (!m->profile->meters)
		return fault(m->f, ENOMEM, "flow profile %.63s: there is no memory left for it", m->name);
	memset(m->profile->meters->of, 0xff, sizeof(m->profile->meters->of));
	for (size_t i = 0; i < spec->n_flows && error == 0; i++)
		error = name_meters_of_flow(m, spec->flows[i]);
	if (error == 0)
		error = name_meters(m, spec->other_meters_up, spec->n_other_meters_up, QFIS, UP, "otherMetersUp");
	if (error == 0)
		error = name_meters(
			m, spec->other_meters_down, spec->n_other_meters_down, QFIS, DOWN, "otherMetersDown");
	return error;
}

// Filters of packets, or of frames.
static size_t
count_filters(const Sluice__V1__FlowProfile *spec, enum direction direction, bool frames)
{
	size_t count = 0;

	for (size_t i = 0; i < spec->n_rules; i++) {
		const Sluice__V1__QosRule *rule = spec->rules[i];

		count += rule->n_filters == 0 && direction == UP;
		for (size_t j = 0; j < rule->n_filters; j++)
			count += is_of(rule->filters[j], direction) && frame_filter_is(rule->filters[j]) == frames;
	}
	return count;
}

static int
make_room(struct making *m)
{
	for (enum direction d = UP; d <= DOWN; d++) {
		size_t count = count_filters(m->spec, d, false), frames = count_filters(m->spec, d, true);

		if (count > FLOW_FILTERS)
			return fault(m->f, ENOSPC,
				"flow profile %.63s, rules: %zu filters of a direction are more than %d", m->name,
				count, FLOW_FILTERS);
		if (frames > FRAME_FILTERS)
			return fault(m->f, ENOSPC,
				"flow profile %.63s, rules: %zu filters of frames of a direction are more than %d",
				m->name, frames, FRAME_FILTERS);
		m->profile->frames[d] = calloc(frames + 1, sizeof(*m->profile->frames[d]));
		m->filters[d] = calloc(count + 1, sizeof(*m->filters[d]));
		m->profile->rule_of[d] = calloc(count + 1, sizeof(*m->profile->rule_of[d]));
		if (!m->filters[d] || !m->profile->rule_of[d] || !m->profile->frames[d])
			return fault(m->f, ENOMEM, "flow profile %.63s, rules: there is no memory left for %zu filters",
				m->name, count);
	}
	return 0;
}

static int
make_lists(struct making *m, const atomic_bool *unwanted)
{
	static const char *const directions[2] = {"uplink", "downlink"};
	int error = 0;

	for (enum direction d = UP; d <= DOWN && error == 0; d++) {
		char whose[112];

		snprintf(whose, sizeof(whose), "flow profile %.63s, %s", m->name, directions[d]);
		if (m->profile->filters[d] > 0)
			error = acl_list_create(whose, m->filters[d], m->profile->filters[d], false, unwanted,
				&m->profile->lists[d], m->f);
	}
	return error;
}

int
flow_profile_create(const char *name, const Sluice__V1__FlowProfile *spec, const atomic_bool *unwanted,
	struct flow_profile **made, struct fault *f)
{
	struct making m = {.name = name, .spec = spec, .profile = calloc(1, sizeof(*m.profile)), .f = f};
	int error;

	if (!m.profile)
		return fault(f, ENOMEM, "flow profile %.63s: there is no memory left for it", name);
	if (spec->n_rules > FLOW_RULES)
		error = fault(
			f, EINVAL, "flow profile %.63s, rules: %zu are more than %d", name, spec->n_rules, FLOW_RULES);
	else
		error = set_marks(&m);
	if (error == 0)
		error = set_meters(&m);
	if (error == 0)
		error = make_room(&m);
	if (error == 0)
		error = add_rules(&m, unwanted);
	if (error == 0)
		error = make_lists(&m, unwanted);
	free(m.filters[UP]);
	free(m.filters[DOWN]);
	if (error)
		flow_profile_destroy(m.profile);
	else
		*made = m.profile;
	return error;
}

void
flow_profile_destroy(struct flow_profile *profile)
{
	if (!profile)
		return;
	for (enum direction d = UP; d <= DOWN; d++) {
		acl_list_destroy(profile->lists[d]);
		free(profile->rule_of[d]);
		free(profile->frames[d]);
	}
	free(profile->meters);
	free(profile);
}
