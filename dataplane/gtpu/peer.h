// SPDX-License-Identifier: Apache-2.0
// Peers (kind GtpuPeer): how the paths to an address are watched.
#pragma once

#include "gtpu/path.h"

extern struct kind gtpu_peer_kind;

// The configuration of the address, or the default.
struct path_watch gtpu_peer_watch(uint16_t vrf, uint8_t family, const uint8_t *address);

// Set the function to call when that changes.
void gtpu_peer_watcher(void (*changed)(uint16_t vrf, uint8_t family, const uint8_t *address));
