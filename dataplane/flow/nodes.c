// SPDX-License-Identifier: Apache-2.0
// Nodes that assign packets to QoS flows (TS 23.501 section 5.7.1.5), and mark them: uplink by the QFI of the access's header or else by
// the rules, downlink by the rules or else by the QFI that they came with.
#include <stdio.h>

#include <rte_cycles.h>

#include "acl/gather.h"
#include "core/burst.h"
#include "flow/cells.h"
#include "flow/profile.h"

struct flow_mark
flow_mark_of(uint32_t session, uint8_t qfi)
{
	const struct flow_profile *profile = flow_profile_at(session_flows[session]);

	return profile ? profile->marks[qfi % QFIS] : (struct flow_mark){.dscp = -1};
}

struct packet_flag packet_flow = {.name = "flow"}, packet_flow_firm = {.name = "flow-firm"};
PACKET_FLAG_REGISTER(packet_flow)
PACKET_FLAG_REGISTER(packet_flow_firm)

static inline void
mark(struct packet *p, const struct flow_profile *profile, uint8_t qfi)
{
	p->class = profile->marks[qfi].class;
	p->priority = profile->marks[qfi].priority;
}

// `rule` NULL: no filter matches.
static inline void
settle(struct packet *p, const struct flow_profile *profile, const struct flow_rule *rule, enum direction direction)
{
	p->flags = (uint16_t)((p->flags & ~packet_flow_firm.mask) | packet_flow.mask);
	// The subscriber's side classified it.
	if (direction == UP && unlikely(p->flags & PACKET_QFI)) {
		mark(p, profile, p->qfi % QFIS);
		return;
	}
	if (!rule) {
		// The session's core has the QFI then, and marks the packet.
		if (direction == UP)
			p->qfi = NO_QFI;
		else
			mark(p, profile, p->qfi % QFIS);
		return;
	}
	p->qfi = rule->qfi;
	if (rule->firm)
		p->flags |= packet_flow_firm.mask;
	mark(p, profile, rule->qfi);
}

static __rte_noinline void
settle_frame(struct rte_mbuf *m, const struct flow_profile *profile, enum direction direction)
{
	int rule = frame_filters_find(profile->frames[direction], profile->frame_count[direction],
		rte_pktmbuf_mtod(m, const uint8_t *), m->data_len);

	settle(packet_of(m), profile, rule < 0 ? NULL : &profile->rules[rule], direction);
}

// Frames are looked at by themselves. How many packets there are besides, moved to the front.
static inline unsigned
sort_frames(
	const struct flow_profile *profile, void **packets, uint16_t *places, unsigned count, enum direction direction)
{
	unsigned left = 0;

	for (unsigned i = 0; i < count; i++) {
		if (unlikely(packet_of(packets[places[i]])->family == 0))
			settle_frame(packets[places[i]], profile, direction);
		else
			places[left++] = places[i];
	}
	return left;
}

// The meters of a packet's flow, or NULL.
static inline const uint32_t *
meters_of(const struct packet *p, enum direction direction)
{
	const struct flow_profile *profile = flow_profile_at(session_flows[p->session]);

	if (!profile || !profile->meters || p->flags & PACKET_OURS)
		return NULL;
	return profile->meters->of[direction][p->qfi < QFIS ? p->qfi : QFIS];
}

// Packets that go on. `counters`: the worker's row.
static inline void
count_flows(
	struct flow_counters *counters, void **packets, const bool *passes, uint16_t count, enum direction direction)
{
	struct flow_counters *of[BURST];

	for (uint16_t i = 0; i < count; i++) {
		const struct packet *p = packet_of(packets[i]);
		unsigned cell = FLOW_CELLS;

		if (p->qfi < QFIS && (!passes || passes[i]))
			cell = flow_cell(__atomic_load_n(&flow_cells[p->session], __ATOMIC_RELAXED), p->qfi);
		of[i] = cell < FLOW_CELLS ? flow_counters_at(counters, p->session, cell) : NULL;
		if (of[i])
			rte_prefetch0(of[i]);
	}
	for (uint16_t i = 0; i < count; i++) {
		if (!of[i])
			continue;
		of[i]->packets[direction]++;
		of[i]->bytes[direction] += ((const struct rte_mbuf *)packets[i])->pkt_len;
	}
}

// Where packets go, some of which have meters.
static __rte_noinline void
meter(void **packets, uint16_t count, uint16_t *next, bool *passed, enum direction direction)
{
	const uint32_t *meters[BURST];
	uint64_t now = rte_rdtsc();

	for (uint16_t i = 0; i < count; i++) {
		meters[i] = meters_of(packet_of(packets[i]), direction);
		for (unsigned n = 0; meters[i] && n < FLOW_METERS && meters[i][n] != NO_METER; n++)
			meter_prefetch(meters[i][n]);
	}
	for (uint16_t i = 0; i < count; i++) {
		bool passes = true;

		for (unsigned n = 0; passes && meters[i] && n < FLOW_METERS && meters[i][n] != NO_METER; n++)
			passes = meter_passes(packets[i], meters[i][n], now, &next[i]);
		passed[i] = passes;
		if (passes)
			next[i] = packet_step(packet_of(packets[i]));
	}
}

// Packets of one profile; whether its flows have meters.
static inline bool
sort(uint32_t index, void **packets, uint16_t *places, unsigned count, enum direction direction)
{
	const struct flow_profile *profile = flow_profile_at(index);
	uint32_t verdicts[BURST];

	// It went away while the packets were on their way to it.
	if (unlikely(!profile))
		return false;
	count = sort_frames(profile, packets, places, count, direction);
	if (profile->lists[direction])
		acl_find(profile->lists[direction], packets, places, count, verdicts);
	for (unsigned i = 0; i < count; i++) {
		uint32_t verdict = profile->lists[direction] ? verdicts[places[i]] : 0;
		const struct flow_rule *rule = NULL;

		if (verdict != 0 && verdict != ACL_UNREADABLE)
			rule = &profile->rules[profile->rule_of[direction][verdict >> 1]];
		settle(packet_of(packets[places[i]]), profile, rule, direction);
	}
	return profile->meters;
}

static __rte_always_inline void
flow_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, enum direction direction)
{
	uint16_t next[BURST], places[BURST], same[BURST];
	uint32_t profiles[BURST];
	unsigned left = count;
	bool metered = false, passed[BURST];

	for (uint16_t i = 0; i < count; i++) {
		profiles[i] = session_flows[packet_of(packets[i])->session];
		places[i] = i;
	}
	while (left > 0) {
		uint32_t index = profiles[places[0]];
		unsigned some = take_same(profiles, places, &left, same);

		metered |= sort(index, packets, same, some, direction);
	}
	if (unlikely(metered))
		meter(packets, count, next, passed, direction);
	else
		for (uint16_t i = 0; i < count; i++)
			next[i] = packet_step(packet_of(packets[i]));
	count_flows(counters_row(&flow_counters), packets, metered ? passed : NULL, count, direction);
	node_dispatch(graph, node, packets, next, count);
}

static void
flow_up_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	flow_burst(graph, node, packets, count, UP);
}

static void
flow_down_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	flow_burst(graph, node, packets, count, DOWN);
}

static uint16_t
flow_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, flow_up_burst);
}

static uint16_t
flow_down(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return by_burst(graph, node, packets, count, flow_down_burst);
}

static void
describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct flow_profile *profile = flow_profile_at(session_flows[p->session]);

	if (!profile)
		snprintf(text, size, "no profile");
	else if (p->direction == UP)
		snprintf(text, size, "%zu filters", profile->filters[UP]);
	else
		snprintf(text, size, "%zu filters, came with QFI %u", profile->filters[DOWN], p->qfi);
}

struct node flow_up_node = {.name = "flow-up", .process = flow_up, .describe = describe, .steps = true};
struct node flow_down_node = {.name = "flow-down", .process = flow_down, .describe = describe, .steps = true};
NODE_REGISTER(flow_up_node)
NODE_REGISTER(flow_down_node)
