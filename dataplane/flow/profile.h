// SPDX-License-Identifier: Apache-2.0
// A flow profile ready for workers. Made beside the main thread, then only read.
#pragma once

#include <stdatomic.h>

#include "acl/list.h"
#include "core/slab.h"
#include "flow.pb-c.h"
#include "flow/flow.h"
#include "flow/frames.h"
#include "meter/meter.h"

enum {
	FLOW_PROFILES = 1 << 20,
	FLOW_RULES = 255,
	FLOW_FILTERS = 1 << 18, // of a direction, over all profiles
	QFIS = 64,
	FLOW_METERS = 2,
	PRECEDENCE_DERIVED = 80, // TS 24.501 section 6.2.5.1.4.1
};

struct flow_rule {
	uint8_t qfi;
	bool firm; // before derived rules
};

// The meters of QoS flows.
struct flow_meters {
	// By enum direction, QFI and number; or NO_METER. Row QFIS is of packets without a QFI.
	uint32_t of[2][QFIS + 1][FLOW_METERS];
	uint64_t listed; // QFIs of the profile's flows: all others have the meters of row QFIS
	unsigned count;
	// Their sources on the main thread.
	struct flow_meter {
		struct object *object;
		uint8_t direction, qfi, place;
		char name[64];
	} sources[];
};

struct flow_profile {
	// By enum direction. NULL: no filter is of this direction.
	struct acl_list *lists[2];
	uint8_t *rule_of[2]; // by a filter's number in the list, from 1
	size_t filters[2];
	struct frame_filter *frames[2]; // of frames, in order
	unsigned frame_count[2];
	struct flow_rule rules[FLOW_RULES];
	struct flow_mark marks[QFIS];
	struct flow_meters *meters; // NULL: no flow has one
	uint64_t listed;            // QFIs of its flows
};

struct flow_slot {
	struct flow_profile *_Atomic profile; // NULL: unused
};

extern struct slab flow_slots;

static inline const struct flow_profile *
flow_profile_at(uint32_t index)
{
	struct flow_slot *slot = slab_at(&flow_slots, index);

	return atomic_load_explicit(&slot->profile, memory_order_acquire);
}

// 0, or a negative errno with the fault explained. `unwanted` as in acl_list_create().
int flow_profile_create(const char *name, const Sluice__V1__FlowProfile *spec, const atomic_bool *unwanted,
	struct flow_profile **made, struct fault *f);
void flow_profile_destroy(struct flow_profile *profile);
