// SPDX-License-Identifier: Apache-2.0
// Ethernet types whose frames have an owner that their circuit alone does not show.
#pragma once

#include <stdint.h>

struct node;

// As ether_type_register() (ether/circuit.h), and the node itself finds whose frames are: they need neither an interface nor a session on
// their circuit. Called at start.
void ether_own_type_register(uint16_t type, const struct node *node);
