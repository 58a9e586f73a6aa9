// SPDX-License-Identifier: Apache-2.0
// Token buckets by flow: a table of bounded size that workers fill as packets come, without a lock.
//
// A flow's key is 64 bits of a secret hash of its session, addresses, protocol and ports. Its place is one of eight
// in either of two sets that the hash leads to. A flow whose buckets would be full by now is like a new one, so its
// place is free: there is no other aging, and no state is lost.
#pragma once

#include <stddef.h>

#include "meter/bucket.h"

enum { FLOW_WAYS = 8, FLOWS_DEFAULT = 1 << 16 };

struct flow_set {
	uint64_t tag[FLOW_WAYS]; // 0: free. A cache line
	struct meter_state state[FLOW_WAYS];
};

struct meter_flows {
	struct flow_set *sets;
	uint32_t count;
};

// Make room for so many flows at once: there are half as many more places, so that almost every flow finds a place. -ENOMEM.
int meter_flows_create(struct meter_flows *flows, uint32_t requested);
void meter_flows_destroy(struct meter_flows *flows);

// The buckets of a flow, full if it has not been seen for long; NULL: all its places belong to others.
struct meter_state *meter_flow(const struct meter_flows *flows, uint64_t hash, const struct meter_contract *contract,
	const struct meter_moment *now);

// The first set that a hash leads to.
static inline struct flow_set *
meter_flow_set(const struct meter_flows *flows, uint64_t hash)
{
	return &flows->sets[(hash >> 32) * flows->count >> 32];
}
