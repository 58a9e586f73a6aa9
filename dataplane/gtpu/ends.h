// SPDX-License-Identifier: Apache-2.0
// The ends of tunnels: addresses in a VRF, numbered. Ours make a key with a TEID; one of ours and one of a peer's are a path.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "server/object.h"

enum { ENDS_LIMIT = 1 << 16, NO_END = UINT32_MAX };

enum gtpu_side { LOCAL_ENDS, REMOTE_ENDS };

// The number of an end, from now on used once more; in `*end`. -ENOSPC, -ENOMEM.
int gtpu_end_use(
	enum gtpu_side side, uint16_t vrf, uint8_t family, const uint8_t *address, uint32_t *end, struct fault *f);
void gtpu_end_unuse(enum gtpu_side side, uint32_t end);

// The number of an end, or NO_END. Any thread.
uint32_t gtpu_end_find(enum gtpu_side side, uint16_t vrf, uint8_t family, const uint8_t *address);

int gtpu_ends_start(void);
