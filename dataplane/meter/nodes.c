// SPDX-License-Identifier: Apache-2.0
// Nodes that colour packets of sessions and interfaces and apply the profile's action to each colour: pass, drop, or write another code point
// (RFC 2474).
#include <stdio.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_prefetch.h>

#include "core/drop.h"
#include "core/worker.h"
#include "ether/interface.h"
#include "fib/hop.h"
#include "fib/spread.h"
#include "ip/dscp.h"
#include "meter/meter.h"
#include "meter/profile.h"
#include "meter/shared.h"
#include "session/step.h"

DROP(meter_yellow, "meter-yellow", "The packet exceeds its meter's committed rate and burst, and yellow is dropped.")
DROP(meter_red, "meter-red", "The packet exceeds all that its meter lets through, and red is dropped.")
DROP(meter_flows_full, "meter-flows-full",
	"A flow without buckets in a meter's table, whose places belong to other flows: red, and red is dropped.")

// AFx1, AFx2 and AFx3 of RFC 2597 say their colour in the lowest bits but one.
static inline enum colour
colour_of(const uint8_t *ip, uint8_t family)
{
	unsigned dscp = dscp_of(ip, family);
	unsigned class = dscp >> 3, drop = dscp >> 1 & 3;

	return class >= 1 && class <= 4 && drop != 0 && (dscp & 1) == 0 ? (enum colour)(drop - 1) : GREEN;
}

// Apply the action to a packet that may not pass unchanged; whether it passes.
static bool
remark(struct rte_mbuf *m, struct packet *p, const struct meter_profile *profile, enum colour colour)
{
	switch (profile->verdict[colour]) {
	case SLUICE__V1__METER_VERDICT__DROP:
		return false;
	case SLUICE__V1__METER_VERDICT__REMARK:
		// Whole frames have no code point.
		if (p->family != 0 && rte_pktmbuf_data_len(m) >= 20)
			dscp_write(rte_pktmbuf_mtod(m, uint8_t *), p->family, profile->mark[colour]);
		break;
	default:
		break;
	}
	return true;
}

// `reason` is the drop reason.
static uint16_t
act(struct rte_mbuf *m, struct packet *p, const struct meter_profile *profile, enum colour colour,
	const struct drop *reason)
{
	return remark(m, p, profile, colour) ? packet_step(p) : packet_drop(p, reason);
}

// How far ahead of the packet it works on a node has the next meters brought, and how many shared meters it holds leases of.
enum { PREFETCH_DISTANCE = 16, LEASES = 4 };

// The meter of a packet.
struct subject {
	uint32_t meter; // handle, or NO_METER
	uint64_t flow;  // with scope flow: its hash
};

struct leases {
	struct meter_lease of[LEASES];
	uint32_t meter[LEASES];
	unsigned count;
};

// Whose meter a node asks.
enum whose { OF_SESSION_UP, OF_SESSION_DOWN, OF_INTERFACE_IN, OF_INTERFACE_OUT };

static inline uint32_t
meter_of(const struct packet *p, enum whose whose)
{
	return whose == OF_SESSION_UP     ? *session_step_words(&meter_step, p->session, UP)
	       : whose == OF_SESSION_DOWN ? *session_step_words(&meter_step, p->session, DOWN)
	       : whose == OF_INTERFACE_IN ? interface_at(p->interface)->meter_in
					  : interface_at(hop_at(p->hop)->interface)->meter_out;
}

// Packets that the gateway made are not metered; around another's packet, as a tunnel makes them, they are.
static inline struct subject
subject_of(struct rte_mbuf *m, enum whose whose, bool shared)
{
	const struct packet *p = packet_of(m);
	uint32_t meter = meter_of(p, whose);
	const uint8_t *ip = rte_pktmbuf_mtod(m, const uint8_t *);
	uint64_t hash;

	if (unlikely((p->flags & (PACKET_OURS | PACKET_TUNNELLED)) == PACKET_OURS))
		return (struct subject){.meter = NO_METER};
	// Nothing is read at index NO_METER: a prefetch of an address that is none does nothing.
	// From a worker that wrote it last a line is better fetched for writing at once than a second time.
	if (shared)
		rte_prefetch0_write(meter_at(meter));
	else
		rte_prefetch0(meter_at(meter));
	if (likely(!(meter & METER_FLOWS) || meter == NO_METER))
		return (struct subject){.meter = meter};
	// The whole frames of a session are one flow.
	hash = p->family == 4 ? flow_hash4(ip, m->data_len) : p->family == 6 ? flow_hash6(ip, m->data_len) : 0;
	hash ^= p->session * UINT64_C(0x9e3779b97f4a7c15);
	rte_prefetch0(meter_flow_set(&meter_profile_at(meter_at(meter)->profile)->flows, hash));
	return (struct subject){meter, hash};
}

static void
end_lease(struct leases *leases, unsigned which)
{
	struct meter *meter = meter_at(leases->meter[which]);

	meter_lease_end(&leases->of[which], &meter->state, &meter_profile_at(meter->profile)->contract);
}

// The lease of a shared meter that this burst has, or a new and empty one. NULL: there are as many as it may have, and a lease of
// yet another meter, for the few packets of a burst that are its own, would cost more than it saves.
static inline struct meter_lease *
lease_of(struct leases *leases, uint32_t meter)
{
	unsigned which;

	for (which = 0; which < leases->count; which++)
		if (leases->meter[which] == meter)
			return &leases->of[which];
	if (which == LEASES)
		return NULL;
	leases->count++;
	leases->of[which] = (struct meter_lease){0};
	leases->meter[which] = meter;
	return &leases->of[which];
}

// `shared` is a constant where this is inlined.
static __rte_always_inline enum colour
ask(struct meter_state *state, const struct meter_contract *contract, const struct meter_moment *moment, uint32_t bytes,
	enum colour incoming, bool shared)
{
	return shared ? meter_colour_shared(state, contract, moment, bytes, incoming)
		      : meter_colour(state, contract, moment, bytes, incoming);
}

bool
meter_passes(struct rte_mbuf *m, uint32_t handle, uint64_t now, uint16_t *next)
{
	struct packet *p = packet_of(m);
	struct meter *meter = meter_at(handle);
	const struct meter_profile *profile = meter_profile_at(meter->profile);
	struct meter_moment moment = meter_moment(&profile->contract, now);
	enum colour colour = GREEN;

	if (profile->contract.color_aware && p->family != 0)
		colour = colour_of(rte_pktmbuf_mtod(m, const uint8_t *), p->family);
	// With one worker no other thread writes a meter.
	colour = ask(&meter->state, &profile->contract, &moment, rte_pktmbuf_pkt_len(m), colour, worker_count > 1);
	p->colour = (uint8_t)colour;
	if (likely(colour == GREEN) || remark(m, p, profile, colour))
		return true;
	*next = packet_drop(p, colour == RED ? &meter_red : &meter_yellow);
	return false;
}

void
meter_prefetch(uint32_t meter)
{
	rte_prefetch0_write(meter_at(meter));
}

// `whose` and `shared` are constants where this is inlined.
static __rte_always_inline void
meter_burst(
	struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, enum whose whose, bool shared)
{
	const struct meter_profile *profile = NULL;
	uint32_t profile_index = UINT32_MAX;
	struct meter_moment moment = {0};
	struct subject subjects[BURST + PREFETCH_DISTANCE];
	struct leases leases;
	uint64_t now = rte_rdtsc();
	uint16_t next[BURST];

	leases.count = 0;
	for (uint16_t i = 0; i < RTE_MIN(count, (uint16_t)PREFETCH_DISTANCE); i++)
		subjects[i] = subject_of(packets[i], whose, shared);
	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = packets[i];
		struct packet *p = packet_of(m);
		enum colour colour = GREEN;
		struct meter_lease *lease = NULL;
		struct meter_state *state;
		struct meter *meter;
		uint32_t handle = subjects[i].meter;

		if (i + PREFETCH_DISTANCE < count)
			subjects[i + PREFETCH_DISTANCE] = subject_of(packets[i + PREFETCH_DISTANCE], whose, shared);
		if (unlikely(handle == NO_METER)) {
			next[i] = packet_step(p);
			continue;
		}
		meter = meter_at(handle);
		// Most packets have the profile of the packet before.
		if (meter->profile != profile_index) {
			profile_index = meter->profile;
			profile = meter_profile_at(profile_index);
			moment = meter_moment(&profile->contract, now);
		}
		state = &meter->state;
		if (unlikely(handle & METER_FLOWS)) {
			state = meter_flow(&profile->flows, subjects[i].flow, &profile->contract, &moment);
			if (unlikely(!state)) {
				p->colour = RED;
				next[i] = act(m, p, profile, RED, &meter_flows_full);
				continue;
			}
		}
		if (profile->contract.color_aware && p->family != 0)
			colour = colour_of(rte_pktmbuf_mtod(m, const uint8_t *), p->family);
		if (shared && (handle & METER_GLOBAL))
			lease = lease_of(&leases, handle);
		if (lease)
			colour = meter_colour_leased(lease, state, &profile->contract, &moment, rte_pktmbuf_pkt_len(m),
				colour, (unsigned)(count - i));
		else
			colour = ask(state, &profile->contract, &moment, rte_pktmbuf_pkt_len(m), colour, shared);
		p->colour = (uint8_t)colour;
		next[i] = likely(colour == GREEN)
				  ? packet_step(p)
				  : act(m, p, profile, colour, colour == RED ? &meter_red : &meter_yellow);
	}
	for (unsigned i = 0; shared && i < leases.count; i++)
		end_lease(&leases, i);
	node_dispatch(graph, node, packets, next, count);
}

static __rte_always_inline uint16_t
meter_all(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count, enum whose whose)
{
	for (uint16_t start = 0; start < count; start += BURST) {
		uint16_t some = (uint16_t)RTE_MIN(count - start, BURST);

		// With one worker no other thread writes a meter, and plain stores suffice.
		if (worker_count > 1)
			meter_burst(graph, node, packets + start, some, whose, true);
		else
			meter_burst(graph, node, packets + start, some, whose, false);
	}
	return count;
}

static uint16_t
meter_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return meter_all(graph, node, packets, count, OF_SESSION_UP);
}

static uint16_t
meter_down(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return meter_all(graph, node, packets, count, OF_SESSION_DOWN);
}

static uint16_t
meter_in(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return meter_all(graph, node, packets, count, OF_INTERFACE_IN);
}

static uint16_t
meter_out(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	return meter_all(graph, node, packets, count, OF_INTERFACE_OUT);
}

static void
describe(char *text, size_t size, uint32_t index)
{
	if (index == NO_METER)
		snprintf(text, size, "no meter");
	else if (index & METER_FLOWS)
		snprintf(text, size, "buckets of its flow");
	else
		snprintf(text, size, "buckets hold %u and %u bytes", meter_at(index)->state.committed,
			meter_at(index)->state.excess);
}

static void
describe_session(char *text, size_t size, const struct packet *packet, const uint8_t *data, size_t length)
{
	describe(text, size, meter_of(packet, packet->direction == UP ? OF_SESSION_UP : OF_SESSION_DOWN));
}

static void
describe_in(char *text, size_t size, const struct packet *packet, const uint8_t *data, size_t length)
{
	describe(text, size, meter_of(packet, OF_INTERFACE_IN));
}

static void
describe_out(char *text, size_t size, const struct packet *packet, const uint8_t *data, size_t length)
{
	describe(text, size, meter_of(packet, OF_INTERFACE_OUT));
}

struct node meter_up_node = {.name = "meter-up", .process = meter_up, .describe = describe_session, .steps = true};
NODE_REGISTER(meter_up_node)
struct node meter_down_node = {
	.name = "meter-down", .process = meter_down, .describe = describe_session, .steps = true};
NODE_REGISTER(meter_down_node)
struct node meter_in_node = {.name = "meter-in", .process = meter_in, .describe = describe_in, .steps = true};
NODE_REGISTER(meter_in_node)
struct node meter_out_node = {.name = "meter-out", .process = meter_out, .describe = describe_out, .steps = true};
NODE_REGISTER(meter_out_node)
