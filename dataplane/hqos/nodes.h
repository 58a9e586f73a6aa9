// SPDX-License-Identifier: Apache-2.0
// Nodes of this folder that its other files name, and their drop reasons.
#pragma once

#include "core/drop.h"
#include "core/node.h"

// Whole frames for ports with a scheduler.
extern struct node hqos_enqueue_node;

extern struct drop drop_qos_flushed;
