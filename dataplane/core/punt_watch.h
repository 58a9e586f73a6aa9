// SPDX-License-Identifier: Apache-2.0
// Punts as the API uses them. Main thread.
#pragma once

#include "core/punt.h"

const struct punt *punt_by_name(const char *name);
const struct punt *punt_by_id(unsigned id);
// Where packets without a handler go. The watcher owns them.
void punt_watch(void (*watch)(struct rte_mbuf *m, const struct punt *reason));

// Set the limits of a reason; a member that is 0, and all of NULL, is the reason's own.
void punt_limit(unsigned id, const struct punt_limits *limits);

// Packets of a reason, all workers together: those that the main thread received, and those above the limits, which were dropped.
struct punt_counts {
	uint64_t punted, limited;
};
struct punt_counts punt_counts(unsigned id);
