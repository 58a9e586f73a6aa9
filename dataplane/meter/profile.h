// SPDX-License-Identifier: Apache-2.0
// A meter's profile, ready for workers: a contract and the action of each colour.
#pragma once

#include <stdatomic.h>

#include "core/slab.h"
#include "meter.pb-c.h"
#include "meter/bucket.h"
#include "meter/flows.h"
#include "server/object.h"

// Replaced as a whole when the object changes, but for the flows, which it takes over.
struct meter_profile {
	struct meter_contract contract;
	struct meter_flows flows;
	uint8_t verdict[3]; // by enum colour: SLUICE__V1__METER_VERDICT__...
	uint8_t mark[3];    // the code point to write
} __attribute__((aligned(64)));

// The profile that a spec means, or a negative errno with the fault explained. `name` is for that.
int meter_profile_parse(const char *name, const Sluice__V1__Meter *spec, uint64_t tsc_hz, struct meter_profile *profile,
	struct fault *f);

// Buckets of one user, or of all: half a cache line.
struct meter {
	struct meter_state state;
	uint32_t profile;
	uint32_t spare[3];
} __attribute__((aligned(32)));

struct meter_slot {
	struct meter_profile *_Atomic profile;
	uint32_t shared; // scopes global and flow: the handle that all users share; 0: each has its own
};

enum { METER_LIMIT = 1 << 23, PROFILE_LIMIT = 1 << 16 };

extern struct slab meters;         // struct meter
extern struct slab meter_profiles; // struct meter_slot

// A meter's handle, as sessions have it: its index, and whose packets share its buckets. NO_METER has all bits set.
enum { METER_GLOBAL = 1 << 29, METER_FLOWS = 1 << 30, METER_INDEX = METER_GLOBAL - 1 };

static inline struct meter *
meter_at(uint32_t handle)
{
	return (struct meter *)meters.records + (handle & METER_INDEX);
}

static inline const struct meter_profile *
meter_profile_at(uint32_t index)
{
	struct meter_slot *slot = (struct meter_slot *)meter_profiles.records + index;

	return atomic_load_explicit(&slot->profile, memory_order_acquire);
}
