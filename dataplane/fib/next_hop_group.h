// SPDX-License-Identifier: Apache-2.0
// Next hops that routes share (kind NextHopGroup). Main thread.
#pragma once

#include <stdint.h>

#include "server/object.h"

extern struct kind next_hop_group_kind;

// The group's path for routes of this family in this VRF. It stays, and its hop, as long as the group is there and the path has users
// beside the group.
int next_hop_group_path(const struct object *group, uint16_t vrf, uint8_t family, uint32_t *path, struct fault *f);
