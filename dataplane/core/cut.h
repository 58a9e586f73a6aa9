// SPDX-License-Identifier: Apache-2.0
// For tests of parsers.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// A packet's first bytes in memory that ends where they do, so that a sanitizer sees each byte too far. To be freed.
static inline uint8_t *
cut(const uint8_t *packet, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);

	if (!copy)
		abort();
	return memcpy(copy, packet, length);
}
