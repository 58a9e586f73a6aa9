// A meter's profile, ready for workers: a contract and what becomes of each colour.
#pragma once

#include <stdatomic.h>

#include "core/slab.h"
#include "meter.pb-c.h"
#include "core/object.h"
#include "meter/bucket.h"

// Replaced as a whole when the object changes.
struct meter_profile {
	struct meter_contract contract;
	uint8_t verdict[3]; // by enum colour: SLUICE__V1__METER_VERDICT__...
	uint8_t mark[3];    // the code point to write, shifted to where the IPv4 header has it
} __attribute__((aligned(64)));

// The profile that a spec means, or a negative errno with the fault explained. `name` is for that.
int meter_profile_parse(const char *name, const Sluice__V1__Meter *spec, uint64_t tsc_hz, struct meter_profile *profile,
	struct fault *f);

// Buckets of one user: half a cache line.
struct meter {
	struct meter_state state;
	uint32_t profile;
	uint32_t spare[3];
} __attribute__((aligned(32)));

struct meter_slot {
	struct meter_profile *_Atomic profile;
};

enum { METER_LIMIT = 1 << 23, PROFILE_LIMIT = 1 << 16 };

extern struct slab meters;         // struct meter
extern struct slab meter_profiles; // struct meter_slot

static inline struct meter *
meter_at(uint32_t index)
{
	return (struct meter *)meters.records + index;
}

static inline const struct meter_profile *
meter_profile_at(uint32_t index)
{
	struct meter_slot *slot = (struct meter_slot *)meter_profiles.records + index;

	return atomic_load_explicit(&slot->profile, memory_order_acquire);
}

// Ask a meter that several workers share, all of which see each other's packets at once.
enum colour meter_colour_shared(struct meter_state *state, const struct meter_contract *contract,
	const struct meter_moment *now, uint32_t bytes, enum colour incoming);
