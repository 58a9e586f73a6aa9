// SPDX-License-Identifier: Apache-2.0
// Our interfaces' addresses and networks as routes, and as sources of packets of our own.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct hop;
struct node;

// The hop of packets for a destination that is itself on the interface's link; 0 if there is none: a loopback.
uint32_t connected_glean(uint32_t interface, uint8_t family);

// The hop is that of networks' own addresses ({network, 0}), which are no host's.
bool connected_is_network_address(const struct hop *hop);

// The step of packets that leave by an interface with one far end (INTERFACE_POINT), before its type's output: TTL, MTU, counters.
// Registered (RTE_INIT) by the folder that has the node.
void connected_point_register(const struct node *node);

// Watch interfaces from now on. Called once at start.
void connected_start(void);
