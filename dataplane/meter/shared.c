// SPDX-License-Identifier: Apache-2.0
// Token buckets that several workers use at once.
#include "meter/shared.h"

#include <string.h>

#include <rte_atomic.h>

// Of several workers that ask at once one always succeeds, so that this many failures in a row do not happen to one with few
// enough workers; if they did, no packet would be let out of the contract.
enum { TRIES = 256 };

// The state in one piece, as rte_atomic128_cmp_exchange() has it.
static inline rte_int128_t
read_state(const struct meter_state *state)
{
	rte_int128_t all;

	// The halves may be of different moments; then the exchange fails and reads both.
	all.val[0] = __atomic_load_n(&state->time, __ATOMIC_RELAXED);
	all.val[1] = __atomic_load_n((const uint64_t *)(const void *)&state->committed, __ATOMIC_RELAXED);
	return all;
}

// False: another worker was faster, and *before is the value now.
static inline bool
exchange(struct meter_state *state, rte_int128_t *before, const struct meter_state *desired)
{
	rte_int128_t after;

	memcpy(&after, desired, sizeof(after));
	return rte_atomic128_cmp_exchange(
		(rte_int128_t *)(void *)state, before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

enum colour
meter_colour_shared(struct meter_state *state, const struct meter_contract *contract, const struct meter_moment *now,
	uint32_t bytes, enum colour incoming)
{
	rte_int128_t before = read_state(state);

	for (unsigned i = 0; i < TRIES; i++) {
		struct meter_state mine;
		enum colour colour;

		memcpy(&mine, &before, sizeof(mine));
		colour = meter_colour(&mine, contract, now, bytes, incoming);
		if (exchange(state, &before, &mine))
			return colour;
	}
	return RED;
}

void
meter_lease_more(struct meter_lease *lease, struct meter_state *state, const struct meter_contract *contract,
	const struct meter_moment *now, uint64_t bytes)
{
	rte_int128_t before = read_state(state);

	for (unsigned i = 0; i < TRIES; i++) {
		struct meter_state rest;
		uint64_t committed, excess;
		bool two;

		memcpy(&rest, &before, sizeof(rest));
		meter_fill(&rest, contract, now);
		committed = least(rest.committed, bytes);
		// RFC 2698's green packets take from both buckets, and a packet that comes in yellow from the second.
		two = contract->both || contract->color_aware;
		excess = two || committed < bytes ? least(rest.excess, bytes) : 0;
		rest.committed -= (uint32_t)committed;
		rest.excess -= (uint32_t)excess;
		if (!exchange(state, &before, &rest))
			continue;
		lease->dry = committed < bytes || (two && excess < bytes);
		lease->held.committed += (uint32_t)committed;
		lease->held.excess += (uint32_t)excess;
		return;
	}
	lease->dry = true;
}

void
meter_lease_end(struct meter_lease *lease, struct meter_state *state, const struct meter_contract *contract)
{
	rte_int128_t before;

	if (lease->held.committed == 0 && lease->held.excess == 0)
		return;
	before = read_state(state);
	for (unsigned i = 0; i < TRIES; i++) {
		struct meter_state whole;
		uint64_t committed, kept, excess;

		memcpy(&whole, &before, sizeof(whole));
		committed = (uint64_t)whole.committed + lease->held.committed;
		kept = least(committed, contract->committed_burst);
		excess = (uint64_t)whole.excess + lease->held.excess + ((committed - kept) & contract->overflow);
		whole.committed = (uint32_t)kept;
		whole.excess = (uint32_t)least(excess, contract->excess_burst);
		if (exchange(state, &before, &whole))
			break;
	}
	*lease = (struct meter_lease){0};
}
