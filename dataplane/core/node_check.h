// SPDX-License-Identifier: Apache-2.0
// For unit tests, fuzzers and debug builds, which alone have it: checks where the packets of each node go against the node's declaration
// (.edges, .steps, .returns, node_edge()). A node that sends a packet elsewhere ends the program with an explanation.
#pragma once

#include "core/node.h"

// Whether the node may send packets there.
bool node_check_allows(const struct node *from, const struct node *to);
