// SPDX-License-Identifier: Apache-2.0
// The flow of a frame that no node has seen yet.
#pragma once

#include <stddef.h>
#include <stdint.h>

// A hash that all frames of a flow share: VLANs, the id of an encapsulation (core/encapsulation.h: PPPoE session, TEID), and of IP addresses,
// protocol and ports. Of any other frame its source address and type. `length` bytes are there from the Ethernet header
// on, as few as they may be.
uint64_t flow_of_frame(const uint8_t *frame, size_t length);
