// SPDX-License-Identifier: Apache-2.0
// Exact match of 5-tuples to the rules that name them. A long list of exact rules uses it instead of a tree, which
// takes long to build and is slow in memory. Made once, then only read.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct tuples;

// Room for `count` keys of `key_size` bytes, a multiple of 8. NULL: no memory.
struct tuples *tuples_create(size_t count, size_t key_size);
void tuples_destroy(struct tuples *tuples);

// Of equal keys, the first one added counts. `value` is not 0.
void tuples_add(struct tuples *tuples, const void *key, uint32_t value);

// The values of up to 256 keys that lie `stride` bytes apart; 0 for a key that is not there.
void tuples_find(const struct tuples *tuples, const void *keys, size_t stride, unsigned count, uint32_t *values);
