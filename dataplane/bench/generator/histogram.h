// SPDX-License-Identifier: Apache-2.0
// Latencies in buckets at most 1/32 of their value wide, as HdrHistogram has them: to record one is an increment, and every
// percentile is known to 3 %.
#pragma once

#include <stdint.h>

enum { HISTOGRAM_PARTS = 32, HISTOGRAM_BUCKETS = (64 - 5 + 1) * HISTOGRAM_PARTS };

struct histogram {
	uint64_t count, least, most;
	uint32_t buckets[HISTOGRAM_BUCKETS];
};

static inline unsigned
histogram_bucket(uint64_t value)
{
	unsigned shift;

	if (value < HISTOGRAM_PARTS)
		return (unsigned)value;
	shift = 63 - (unsigned)__builtin_clzll(value) - 5;
	return shift * HISTOGRAM_PARTS + (unsigned)(value >> shift);
}

static inline void
histogram_record(struct histogram *h, uint64_t value)
{
	h->least = h->count == 0 || value < h->least ? value : h->least;
	h->most = value > h->most ? value : h->most;
	h->count++;
	h->buckets[histogram_bucket(value)]++;
}

// A value that `share` (0 to 1) of all are at most, to the width of its bucket, and never above the greatest; 0 of none.
uint64_t histogram_percentile(const struct histogram *h, double share);
