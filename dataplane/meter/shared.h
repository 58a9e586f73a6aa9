// SPDX-License-Identifier: Apache-2.0
// Token buckets that several workers use at once, without a lock: a compare and exchange for each packet, or leases.
//
// A lease is a part of the tokens that a worker has taken out of the buckets for the rest of its burst. It colours its packets
// from that, in its own memory, and returns unused tokens when the burst ends. Other workers cannot use leased tokens, so
// that all together never pass more than the contract allows. Unused tokens of a lease are missing to others
// for the length of one burst, and are at most as many as the rest of that burst would need.
#pragma once

#include "meter/bucket.h"

// Ask buckets that several workers share, all of which see each other's packets at once.
enum colour meter_colour_shared(struct meter_state *state, const struct meter_contract *contract,
	const struct meter_moment *now, uint32_t bytes, enum colour incoming);

struct meter_lease {
	struct meter_state held;
	bool dry; // the buckets had less than was asked for: no use to ask again in this burst
};

// Take up to `bytes` more from each bucket that may be needed.
void meter_lease_more(struct meter_lease *lease, struct meter_state *state, const struct meter_contract *contract,
	const struct meter_moment *now, uint64_t bytes);
void meter_lease_end(struct meter_lease *lease, struct meter_state *state, const struct meter_contract *contract);

// The colour of a packet of `bytes`, the first of `left` in this burst that are expected to be about as long.
static inline enum colour
meter_colour_leased(struct meter_lease *lease, struct meter_state *state, const struct meter_contract *contract,
	const struct meter_moment *now, uint32_t bytes, enum colour incoming, unsigned left)
{
	struct meter_state held = lease->held;
	enum colour colour;

	// The time at which tokens were taken is now: nothing flows into a lease.
	held.time = now->time;
	colour = meter_colour(&held, contract, now, bytes, incoming);
	if (__builtin_expect(colour > incoming && !lease->dry, 0)) {
		meter_lease_more(lease, state, contract, now, (uint64_t)bytes * left);
		held = lease->held;
		held.time = now->time;
		colour = meter_colour(&held, contract, now, bytes, incoming);
	}
	lease->held = held;
	return colour;
}
