// SPDX-License-Identifier: Apache-2.0
// Three colour markers as pure functions: RFC 2697 (single rate), RFC 2698 (two rates), RFC 4115 (two rates, the
// second for the excess of the first).
//
// A bucket holds whole bytes. The inflow between two moments is the difference of the total inflows from TSC zero
// until each of them, rounded down: these differences add up without an error, however often and however seldom a
// meter is asked. So the state is a moment and two levels, sixteen bytes, which one compare-and-swap replaces.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum colour { GREEN, YELLOW, RED };

// The levels of committed bucket (C) and of excess or peak bucket (E, P) in bytes, as they were at `time`.
struct meter_state {
	uint64_t time; // TSC
	uint32_t committed;
	uint32_t excess;
} __attribute__((aligned(16)));

enum { RATE_SHIFT = 54 };

// A contract, in units of the TSC.
struct meter_contract {
	// Bytes for each TSC cycle, times 2 to the power of RATE_SHIFT. With RFC 2697, excess_rate is 0.
	uint64_t committed_rate;
	uint64_t excess_rate;
	uint32_t committed_burst; // bytes
	uint32_t excess_burst;
	uint64_t overflow; // RFC 2697: all bits set: tokens beyond the committed bucket flow into the other
	bool both;         // RFC 2698: a green packet takes from both buckets
	bool color_aware;  // else every packet comes in green
};

// Bytes that a rate has yielded since time zero, modulo 2^64.
static inline uint64_t
meter_yield(uint64_t rate, uint64_t time)
{
	return (uint64_t)((unsigned __int128)rate * time >> RATE_SHIFT);
}

// A rate in bit/s, of at most 4 Tbit/s, for a TSC of at least 500 MHz.
static inline uint64_t
meter_rate(uint64_t bits_per_second, uint64_t tsc_hz)
{
	return (uint64_t)(((unsigned __int128)bits_per_second << RATE_SHIFT) / (8 * (unsigned __int128)tsc_hz));
}

// A moment as one contract sees it, worked out once for all packets that come in then.
struct meter_moment {
	uint64_t time; // TSC
	uint64_t committed_yield;
	uint64_t excess_yield;
};

static inline struct meter_moment
meter_moment(const struct meter_contract *contract, uint64_t now)
{
	return (struct meter_moment){
		now, meter_yield(contract->committed_rate, now), meter_yield(contract->excess_rate, now)};
}

static inline uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

// Adds the inflow until now to the buckets. A moment before the state's own, as another worker may still have it,
// counts as the state's. After more than a year of silence at the highest rate, when the inflow exceeds 64 bits, the
// buckets may be found less than full.
static inline void
meter_fill(struct meter_state *state, const struct meter_contract *contract, const struct meter_moment *now)
{
	uint64_t committed = state->committed, excess = state->excess, kept;

	if (__builtin_expect(now->time > state->time, 1)) {
		committed += now->committed_yield - meter_yield(contract->committed_rate, state->time);
		excess += now->excess_yield - meter_yield(contract->excess_rate, state->time);
		state->time = now->time;
	}
	kept = least(committed, contract->committed_burst);
	excess += (committed - kept) & contract->overflow;
	state->committed = (uint32_t)kept;
	state->excess = (uint32_t)least(excess, contract->excess_burst);
}

// The colour of a packet of `bytes` that comes in now with a colour, and the state after it.
static inline enum colour
meter_colour(struct meter_state *state, const struct meter_contract *contract, const struct meter_moment *now,
	uint32_t bytes, enum colour incoming)
{
	bool enough, enough_excess, take, take_excess;

	meter_fill(state, contract, now);
	// Without branches: whether a packet conforms is not predictable.
	enough = (incoming == GREEN) & (state->committed >= bytes);
	enough_excess = (incoming != RED) & (state->excess >= bytes);
	take = enough & (enough_excess | !contract->both);
	take_excess = enough_excess & (!enough | contract->both);
	state->committed -= bytes & -(uint32_t)take;
	state->excess -= bytes & -(uint32_t)take_excess;
	return take ? GREEN : take_excess ? YELLOW : RED;
}
