// SPDX-License-Identifier: Apache-2.0
// The scheduler as one would write it with all the time in the world: everything is looked at for every packet, and rates are
// numbers of the usual kind. For tests to compare with.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { MODEL_CLASSES = 8, MODEL_SUBSCRIBERS = 64, MODEL_GROUPS = 8, MODEL_QUEUE = 64 };

// Rates in bit/s, 0: no peak or no committed rate. Bursts in bytes.
struct model_rates {
	double peak, committed;
	double burst;
	unsigned weight;
};

struct model_node {
	struct model_rates rates;
	double peak_tokens, committed_tokens; // bytes
	// Bytes sent for each unit of weight, within the committed rate and beyond it.
	double green_service, service;
};

struct model_class {
	struct model_node node;
	unsigned priority; // the lower, the earlier
	unsigned bytes[MODEL_QUEUE];
	unsigned head, count;
	double sent; // bytes
};

struct model_subscriber {
	struct model_node node;
	unsigned group;
	struct model_class classes[MODEL_CLASSES];
	double sent; // bytes
};

struct model {
	struct model_node port;
	struct model_node groups[MODEL_GROUPS];
	struct model_subscriber subscribers[MODEL_SUBSCRIBERS];
	unsigned group_count, subscriber_count;
	double now; // seconds
};

void model_start(struct model *m);
void model_advance(struct model *m, double seconds);
bool model_enqueue(struct model *m, unsigned subscriber, unsigned class, unsigned bytes);
// Send one packet, if one may be sent. Returns its bytes, or 0.
unsigned model_dequeue(struct model *m, unsigned *subscriber, unsigned *class);
