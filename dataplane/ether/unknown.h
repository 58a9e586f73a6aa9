// SPDX-License-Identifier: Apache-2.0
// Frames of circuits that have neither an interface nor a session.
#pragma once

#include "core/drop.h"
#include "core/node.h"

extern struct drop ether_unknown_circuit;

// The node that takes such frames, whole, instead of their being dropped; l2_length is set. Called at start.
void ether_unknown_register(const struct node *node);
