// SPDX-License-Identifier: Apache-2.0
// Memory in equal units from one reserved range of addresses, for tables that are searched at random: in huge pages
// where the kernel gives them, as a look-up in small ones would miss the TLB at every level, and reached by an index.
// Beside each unit there may be a shadow, which only the writer looks at. Main thread only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena {
	size_t unit, shadow_unit; // bytes
	size_t limit;             // units
	char *base, *shadow;
	size_t used;                // units that were ever given out
	size_t ready, shadow_ready; // units whose memory is there
	uint32_t *spare;            // units that were given back
	size_t spares, room;
};

// Addresses without memory behind them, at the start of a huge page; NULL when there are none.
char *arena_reserve(size_t bytes);

// Make sure that the next `units` calls of arena_take succeed. False when there is no memory.
bool arena_ready(struct arena *arena, size_t units);

// A unit as it was left, or zero if it was never used. Only after arena_ready.
uint32_t arena_take(struct arena *arena);

void arena_give(struct arena *arena, uint32_t index);

static inline void *
arena_at(const struct arena *arena, uint32_t index)
{
	return arena->base + index * arena->unit;
}

static inline void *
arena_shadow(const struct arena *arena, uint32_t index)
{
	return arena->shadow + index * arena->shadow_unit;
}

static inline uint32_t
arena_index(const struct arena *arena, const void *memory)
{
	return (uint32_t)((size_t)((const char *)memory - arena->base) / arena->unit);
}
