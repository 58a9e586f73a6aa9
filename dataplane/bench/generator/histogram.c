// SPDX-License-Identifier: Apache-2.0
// Reading a histogram.
#include "histogram.h"

#include <math.h>

static uint64_t
last_of(unsigned bucket)
{
	unsigned shift = bucket / HISTOGRAM_PARTS;

	if (shift < 2)
		return bucket;
	shift--;
	return ((uint64_t)(bucket % HISTOGRAM_PARTS + HISTOGRAM_PARTS + 1) << shift) - 1;
}

uint64_t
histogram_percentile(const struct histogram *h, double share)
{
	uint64_t rank = (uint64_t)ceil(share * (double)h->count), seen = 0;

	for (unsigned b = 0; b < HISTOGRAM_BUCKETS && h->count > 0; b++) {
		seen += h->buckets[b];
		if (seen >= rank && seen > 0)
			return last_of(b) < h->most ? last_of(b) : h->most;
	}
	return h->most;
}
