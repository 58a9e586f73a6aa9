// SPDX-License-Identifier: Apache-2.0
// The table of flows that have token buckets.
#include "meter/flows.h"

#include <errno.h>
#include <stdbool.h>

#include <rte_branch_prediction.h>

#include "core/slab.h"

enum { TRIES = 4 };

int
meter_flows_create(struct meter_flows *flows, uint32_t requested)
{
	flows->count = (uint32_t)(((uint64_t)requested + requested / 2 + FLOW_WAYS - 1) / FLOW_WAYS);
	flows->sets = slab_reserve(flows->count * sizeof(flows->sets[0]));
	return flows->sets ? 0 : -ENOMEM;
}

void
meter_flows_destroy(struct meter_flows *flows)
{
	slab_unreserve(flows->sets, flows->count * sizeof(flows->sets[0]));
}

static inline struct meter_state *
find(struct flow_set *set, uint64_t tag)
{
	unsigned found = 0;

	for (unsigned i = 0; i < FLOW_WAYS; i++)
		found |= (unsigned)(__atomic_load_n(&set->tag[i], __ATOMIC_RELAXED) == tag) << i;
	return found ? &set->state[__builtin_ctz(found)] : NULL;
}

static bool
is_full(const struct meter_state *state, const struct meter_contract *contract, const struct meter_moment *now)
{
	struct meter_state s = {__atomic_load_n(&state->time, __ATOMIC_RELAXED),
		__atomic_load_n(&state->committed, __ATOMIC_RELAXED),
		__atomic_load_n(&state->excess, __ATOMIC_RELAXED)};

	meter_fill(&s, contract, now);
	return s.committed == contract->committed_burst && s.excess == contract->excess_burst;
}

// A bit for each place of a set that can be had: it is free, or whose it is would find the buckets full.
static unsigned
places(const struct flow_set *set, const struct meter_contract *contract, const struct meter_moment *now)
{
	unsigned found = 0;

	for (unsigned i = 0; i < FLOW_WAYS; i++)
		found |= (unsigned)(__atomic_load_n(&set->tag[i], __ATOMIC_RELAXED) == 0 ||
				    is_full(&set->state[i], contract, now))
			 << i;
	return found;
}

// A flow that is not there takes a place in that set where there are more: with two to choose from hardly any fills up before
// the whole table does. Two workers that bring in one flow at the same moment may each take a place; from then on all find the
// same one of them, so that a burst too much is the worst of it.
static __attribute__((noinline)) struct meter_state *
bring_in(struct flow_set *const sets[2], uint64_t tag, const struct meter_contract *contract,
	const struct meter_moment *now)
{
	for (unsigned i = 0; i < TRIES; i++) {
		const unsigned found[2] = {places(sets[0], contract, now), places(sets[1], contract, now)};
		unsigned set = __builtin_popcount(found[1]) > __builtin_popcount(found[0]);
		struct meter_state *state;
		uint64_t *mine, before;

		if (found[set] == 0)
			return NULL;
		mine = &sets[set]->tag[__builtin_ctz(found[set])];
		before = __atomic_load_n(mine, __ATOMIC_RELAXED);
		if (before != tag)
			__atomic_compare_exchange_n(mine, &before, tag, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
		state = find(sets[0], tag);
		if (!state)
			state = find(sets[1], tag);
		if (state)
			return state;
	}
	return NULL;
}

struct meter_state *
meter_flow(const struct meter_flows *flows, uint64_t hash, const struct meter_contract *contract,
	const struct meter_moment *now)
{
	struct flow_set *const sets[2] = {
		meter_flow_set(flows, hash), &flows->sets[(hash & UINT32_MAX) * flows->count >> 32]};
	uint64_t tag = hash | 1;
	struct meter_state *state = find(sets[0], tag);

	if (likely(state))
		return state;
	state = find(sets[1], tag);
	return state ? state : bring_in(sets, tag, contract, now);
}
