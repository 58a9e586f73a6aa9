// SPDX-License-Identifier: Apache-2.0
// One trial (RFC 2544 section 26.1): all streams at their rates for a time, then a wait for frames that are still
// under way.
#pragma once

#include <stdint.h>

#include <rte_mempool.h>

#include "stream.h"

struct trial {
	double seconds;            // of sending
	double drain;              // maximum wait for frames under way, in seconds
	double rates[STREAMS_MAX]; // packets a second
};

struct outcome {
	double seconds;     // that sending took, without `stalled`
	double stalled;     // seconds in which this process did not run; they were added to the trial
	uint64_t strangers; // frames that no stream of this trial sent
};

// Frames that wait at the ports are thrown away first.
void trial_run(const struct trial *t, struct stream *streams, unsigned stream_count, uint16_t ports,
	struct rte_mempool *pool, struct outcome *o);
