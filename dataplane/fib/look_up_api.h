// SPDX-License-Identifier: Apache-2.0
// Descriptions of hops by their concepts, for look-ups of routes by operators.
#pragma once

#include <rte_common.h>

#include "ip.pb-c.h"
#include "server/object.h"

// Storage for texts of one answer.
struct hop_texts {
	char address[64];
	char mac[24];
};

// Describe a hop of the concept; leave other hops alone. Registered (RTE_INIT) by the folder that makes such hops.
struct hop_describer {
	void (*tell)(uint32_t hop, Sluice__V1__LookedUpHop *row, struct hop_texts *texts);
	struct hop_describer *next;
};

void hop_describer_register(struct hop_describer *teller);
#define HOP_DESCRIBER_REGISTER(teller) \
	RTE_INIT(register_##teller) \
	{ \
		hop_describer_register(&teller); \
	}

// A route look-up by the rules of the fast path, for people. `rows` has room for 64 hops, and their texts. 0; -EINVAL
// or -ENOENT with the reason in `f`.
struct route_answer {
	Sluice__V1__RouteLookUp answer;
	Sluice__V1__LookedUpHop rows[64], *list[64];
	struct hop_texts texts[64];
	char prefix[64];
};
int route_look_up(const char *vrf, const char *address, struct route_answer *a, struct fault *f);
