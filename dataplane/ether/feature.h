// SPDX-License-Identifier: Apache-2.0
// Features of interfaces: nodes for packets that come in or leave by an interface. A concept registers a feature and names the features
// before it. An interface has the features that its spec asks for. Main thread, except the nodes.
#pragma once

#include <rte_common.h>

#include "core/node.h"
#include "core/order.h"
#include "interface.pb-c.h"
#include "server/object.h"

enum interface_way { INTERFACE_IN, INTERFACE_OUT, INTERFACE_WAYS };

enum { INTERFACE_FEATURES = 8 };

struct interface_feature {
	struct ordered order; // by name, with the features that come before this one both ways
	// Steps: of packets that came in, before the look-up, and of packets that leave, before their frame is made. NULL: none this way.
	const struct node *node[INTERFACE_WAYS];
	// The objects that the spec names for the feature, by way; NULL: packets do not take the step. 0, or a
	// negative errno with the fault explained. `need` NULL: no spec names any, and has() reports whether packets
	// take the step (interface_features_changed()).
	int (*need)(const Sluice__V1__Interface *spec, struct object *objects[INTERFACE_WAYS], struct fault *f);
	bool (*has)(uint32_t interface, enum interface_way way);
	// Write the data of the nodes, before a chain has them. NULL with `need` NULL.
	void (*publish)(uint32_t interface, struct object *const objects[INTERFACE_WAYS]);
};

void interface_feature_register(struct interface_feature *feature);
#define INTERFACE_FEATURE_REGISTER(feature) \
	RTE_INIT(register_##feature) \
	{ \
		interface_feature_register(&feature); \
	}

// At start: the order of features. 0, -ELOOP, -ENOSPC, explained on stderr.
int interface_features_start(void);

// By feature, in their order.
typedef struct object *interface_objects[INTERFACE_FEATURES][INTERFACE_WAYS];

// Also whether chains have room for the steps.
int interface_features_need(const Sluice__V1__Interface *spec, interface_objects objects, struct fault *f);
// Write the nodes' part of the interface, and its steps.
void interface_features_publish(uint32_t interface, interface_objects objects);
// The steps of packets that go this way: how many.
unsigned interface_steps(uint32_t interface, enum interface_way way, const struct node *steps[INTERFACE_FEATURES]);
