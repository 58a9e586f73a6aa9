// SPDX-License-Identifier: Apache-2.0
// Punts as the API uses them.
#pragma once

#include "core/punt.h"

const struct punt *punt_by_name(const char *name);
const struct punt *punt_by_id(unsigned id);
// Where packets without a handler go. The watcher owns them.
void punt_watch(void (*watch)(struct rte_mbuf *m, const struct punt *reason));
