// Peers (kind GtpuPeer): how the paths to an address are watched.
#pragma once

#include "gtpu/path.h"

extern struct kind gtpu_peer_kind;

// What is configured for the address, or what holds for those that nothing is configured for.
struct path_watch gtpu_peer_watch(uint16_t vrf, uint8_t family, const uint8_t *address);

// Who wants to know when that changes.
void gtpu_peer_watcher(void (*changed)(uint16_t vrf, uint8_t family, const uint8_t *address));
