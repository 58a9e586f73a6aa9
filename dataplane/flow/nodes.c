// Nodes that tell which QoS flow packets are of (TS 23.501 section 5.7.1.5), and mark them: uplink by the rules alone, downlink by
// the rules or else by the QFI that they came with.
#include <stdio.h>

#include "acl/gather.h"
#include "core/burst.h"
#include "flow/profile.h"

struct flow_mark
flow_mark_of(uint32_t session, uint8_t qfi)
{
	const struct flow_profile *profile = flow_profile_at(session_flows[session]);

	return profile ? profile->marks[qfi % QFIS] : (struct flow_mark){.dscp = -1};
}

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
	p->flags = (uint8_t)((p->flags & ~PACKET_FLOW_FIRM) | PACKET_FLOW);
	if (!rule) {
		// What the QFI is then, the session's core knows, and marks it so.
		if (direction == UP)
			p->qfi = NO_QFI;
		else
			mark(p, profile, p->qfi % QFIS);
		return;
	}
	p->qfi = rule->qfi;
	if (rule->firm)
		p->flags |= PACKET_FLOW_FIRM;
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

// Packets of one profile.
static inline void
sort(uint32_t index, void **packets, uint16_t *places, unsigned count, enum direction direction)
{
	const struct flow_profile *profile = flow_profile_at(index);
	uint32_t verdicts[BURST];

	// It went away while the packets were on their way to it.
	if (unlikely(!profile))
		return;
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
}

static __rte_always_inline void
flow_burst(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, enum direction direction)
{
	uint16_t next[BURST], places[BURST], same[BURST];
	uint32_t profiles[BURST];
	unsigned left = count;

	for (uint16_t i = 0; i < count; i++) {
		profiles[i] = session_flows[packet_of(packets[i])->session];
		places[i] = i;
	}
	while (left > 0) {
		uint32_t index = profiles[places[0]];
		unsigned some = take_same(profiles, places, &left, same);

		sort(index, packets, same, some, direction);
	}
	for (uint16_t i = 0; i < count; i++)
		next[i] = packet_step(packet_of(packets[i]));
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

struct node flow_up_node = {.name = "flow-up", .process = flow_up, .describe = describe};
struct node flow_down_node = {.name = "flow-down", .process = flow_down, .describe = describe};
NODE_REGISTER(flow_up_node)
NODE_REGISTER(flow_down_node)
