// SPDX-License-Identifier: Apache-2.0
// The prefixes of one address family with a value each, exactly as they were put. The trie in fib/fib.h is made from
// them, and a deletion finds the covering prefix here. Main thread only.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { RIB_ADDRESS = 16, RIB_LENGTHS = 129 }; // bytes of the longest address; 0 to 128 bits

// An open-addressed hash table of the address words that a length reaches, then the value.
struct rib_table {
	uint32_t *slots;
	uint32_t count, mask;
};

// The prefixes of one length: one table, or several when they are many. Then no table is so large that its growth holds up the
// main thread.
struct rib_length {
	struct rib_table *tables;
	uint32_t count, table_bits; // 1 << table_bits tables
};

struct rib {
	uint64_t secret[2];
	size_t count;
	struct rib_length lengths[RIB_LENGTHS];
};

// An address is RIB_ADDRESS bytes in network order with every bit past `length` zero. Values are not 0.

// -ENOMEM when the secret that places prefixes cannot be had.
int rib_init(struct rib *rib);

void rib_clear(struct rib *rib);

// `*old` is the value replaced, or 0. -ENOMEM (nothing is changed).
int rib_put(struct rib *rib, const uint8_t *address, unsigned length, uint32_t value, uint32_t *old);

// The value taken out, or 0 when there was no such prefix.
uint32_t rib_delete(struct rib *rib, const uint8_t *address, unsigned length);

uint32_t rib_find(const struct rib *rib, const uint8_t *address, unsigned length);

// The value of the longest prefix shorter than `length` that covers the address, and its length; 0 and 0 without one.
uint32_t rib_cover(const struct rib *rib, const uint8_t *address, unsigned length, unsigned *cover);

// Each prefix once, by length. Start with a position of 0; the value, or 0 at the end.
uint32_t rib_next(const struct rib *rib, uint64_t *position, uint8_t *address, unsigned *length);

size_t rib_memory(const struct rib *rib);
