// SPDX-License-Identifier: Apache-2.0
// A rate as a pace: the moment up to which sent packets use the rate (the generic cell rate algorithm of ITU-T I.371, virtual
// scheduling). It equals a token bucket, in one number that changes only when a packet is sent.
//
// Moments are in ticks, 16 to a TSC cycle, so that the smallest frame at 100 Gbit/s still costs 160 of them: rounding stays
// below one in 200. Only differences count: a subscriber that sends nothing for nine years (at 2 GHz) may have to wait.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { TICK_SHIFT = 4, COST_SHIFT = 16 };

// The cost of sending. All zero: nothing, there is no limit.
struct pace {
	uint64_t cost; // ticks a byte, times 2 to the power of COST_SHIFT
	int64_t burst; // ticks that one may be ahead of one's payments
};

// No committed rate: no packet conforms to it.
#define PACE_NEVER ((struct pace){.burst = INT64_MIN})

static inline uint64_t
ticks_of(uint64_t cycles)
{
	return cycles << TICK_SHIFT;
}

static inline uint64_t
pace_cost(const struct pace *pace, uint32_t bytes)
{
	return pace->cost * bytes >> COST_SHIFT;
}

// Whether a packet may be sent now. It depends on the packets sent before, not on the next one: with any credit left,
// one packet of any size may be sent.
static inline bool
pace_conforms(const struct pace *pace, uint64_t paid, uint64_t now)
{
	return (int64_t)(paid - now) <= pace->burst;
}

// When something may be sent again.
static inline uint64_t
pace_when(const struct pace *pace, uint64_t paid)
{
	return paid - (uint64_t)pace->burst;
}

static inline void
pace_pay(const struct pace *pace, uint64_t *paid, uint64_t now, uint32_t bytes)
{
	uint64_t from = (int64_t)(*paid - now) > 0 ? *paid : now;

	*paid = from + pace_cost(pace, bytes);
}

// After a change to a faster pace, limit the debt to the cost of so many bytes. Without a committed rate there is no debt.
static inline void
pace_forgive(const struct pace *pace, uint64_t *paid, uint64_t now, uint32_t bytes)
{
	uint64_t most = (uint64_t)pace->burst + pace_cost(pace, bytes);

	if (__builtin_expect(pace->burst >= 0 && (int64_t)(*paid - now) > (int64_t)most, 0))
		*paid = now + most;
}

// A rate in bit/s (0: no limit) that may be exceeded by so many bytes, for a TSC of that many Hz.
static inline struct pace
pace_of(uint64_t bits_per_second, uint64_t burst_bytes, uint64_t tsc_hz)
{
	struct pace pace = {0};

	if (bits_per_second == 0)
		return pace;
	pace.cost = (uint64_t)(((unsigned __int128)tsc_hz * 8 << (TICK_SHIFT + COST_SHIFT)) / bits_per_second);
	pace.burst = (int64_t)((unsigned __int128)pace.cost * burst_bytes >> COST_SHIFT);
	return pace;
}
