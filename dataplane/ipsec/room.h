// SPDX-License-Identifier: Apache-2.0
// Operations for the crypto engine, for the IPsec nodes of each worker.
#pragma once

#include "core/worker.h"
#include "crypto/crypto.h"

// Packets that are worked on at once: enough for the lanes of every engine, and few enough that they stay in the cache.
enum { ESP_PART = 64 };

struct esp_room {
	struct crypto_op ops[ESP_PART];
};

extern struct esp_room esp_rooms[WORKER_MAX + 1];
