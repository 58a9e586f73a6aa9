// SPDX-License-Identifier: Apache-2.0
// Longest prefix match for IPv4 and IPv6: a trie that takes 16 bits at the root (8 while it has few routes) and 8 a step.
// One writer (the main thread), many readers without locks: a reader sees a prefix's old hop or its new one, never a
// third. Readers must be between two quiescent states (core/rcu.h) for as long as they use a fib.
//
// An entry is a hop index of 31 bits (0: no route), or FIB_CHILD and where the search goes on: a ply of 256 entries or,
// for IPv6, a skip. A skip stands for bytes of the address on which nothing branches: it compares them all at once.
#pragma once

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "fib/rib.h"

enum fib_family { FIB_IP4, FIB_IP6 };

enum { FIB_BURST = 256 };

static const uint32_t FIB_CHILD = UINT32_C(1) << 31;
static const uint32_t FIB_SKIP = UINT32_C(1) << 30;
static const uint32_t FIB_HOP_MAX = INT32_MAX;

// Where the addresses of a slot go on below `length` bits, or to which hop if a single prefix is all that is there.
struct fib_skip {
	uint64_t high, low;     // the address, in host order
	_Atomic uint32_t match; // for addresses that agree in the first `length` bits
	_Atomic uint32_t miss;  // for all others
	uint8_t length;
	uint8_t miss_depth; // length of the prefix that `miss` comes from
} __attribute__((aligned(32)));
static_assert(sizeof(struct fib_skip) == 32, "two skips to a cache line, none across two");

struct fib_tree;

struct fib {
	_Atomic uintptr_t root; // of `tree`: where its entries are, plus how many bits they take (8 or 16)
	struct fib_tree *tree;
	enum fib_family family;
	struct rib rib;
};

// All plies and skips of all fibs lie behind this address, which never changes once there is a fib. A child entry's low
// 28 bits count units of 32 bytes, so that `entry << 3` is the index of a ply's first entry.
extern _Atomic uint32_t *fib_plies;

// An empty fib of a few KiB, or NULL when there is no memory. The same thread must make and change all fibs, and release the memory
// that they retire.
struct fib *fib_create(enum fib_family family);

// Retires the fib's memory; readers that are still inside may finish.
void fib_destroy(struct fib *fib);

// Insert or replace. The address is in network order, 4 or 16 bytes; bits past `length` do not matter. -EINVAL for a
// length past the family's or a hop of 0 or above FIB_HOP_MAX, -ENOMEM (nothing is changed); a replacement needs no
// memory.
int fib_put(struct fib *fib, const uint8_t *address, uint8_t length, uint32_t hop);

// -ENOENT when there was no such prefix. Its addresses fall to the next shorter prefix that covers them.
int fib_delete(struct fib *fib, const uint8_t *address, uint8_t length);

// The hop of exactly this prefix, or 0.
uint32_t fib_find(const struct fib *fib, const uint8_t *address, uint8_t length);

// Bytes that this fib holds, the writer's own included.
size_t fib_memory(const struct fib *fib);

static inline uint32_t
fib_entry(const _Atomic uint32_t *entry)
{
	return atomic_load_explicit(entry, memory_order_acquire);
}

static inline const _Atomic uint32_t *
fib_root(const struct fib *fib, unsigned *bits)
{
	uintptr_t root = atomic_load_explicit(&fib->root, memory_order_acquire);

	*bits = root & 31;
	return (const _Atomic uint32_t *)(root - *bits);
}

static inline const struct fib_skip *
fib_skip_at(uint32_t entry)
{
	return (const struct fib_skip *)(const void *)(fib_plies + (uint32_t)(entry << 3));
}

static inline uint64_t
fib_word(const uint8_t *address)
{
	uint64_t word;

	memcpy(&word, address, sizeof(word));
	return __builtin_bswap64(word);
}

static inline uint32_t
fib_skip_next(const struct fib_skip *skip, const uint8_t *address)
{
	unsigned length = skip->length;
	uint64_t high = fib_word(address) ^ skip->high, low = fib_word(address + 8) ^ skip->low;
	uint32_t match = fib_entry(&skip->match), miss = fib_entry(&skip->miss);

	// Only the first `length` bits, never 0 of them, count.
	high >>= length < 64 ? 64 - length : 0;
	low = length > 64 ? low >> (128 - length) : 0;
	return (high | low) == 0 ? match : miss;
}

static inline uint32_t
fib4_lookup(const struct fib *fib, uint32_t address_be)
{
	uint32_t address = __builtin_bswap32(address_be), entry;
	unsigned bits;
	const _Atomic uint32_t *root = fib_root(fib, &bits);

	entry = fib_entry(&root[address >> (32 - bits)]);
	for (address <<= bits; entry & FIB_CHILD; address <<= 8)
		entry = fib_entry(&fib_plies[(uint32_t)(entry << 3) + (address >> 24)]);
	return entry;
}

static inline uint32_t
fib6_lookup(const struct fib *fib, const uint8_t *address)
{
	unsigned bits;
	const _Atomic uint32_t *root = fib_root(fib, &bits);
	uint32_t entry = fib_entry(&root[((uint32_t)address[0] << 8 | address[1]) >> (16 - bits)]);

	for (unsigned byte = bits / 8; entry & FIB_CHILD; byte++) {
		if (entry & FIB_SKIP) {
			const struct fib_skip *skip = fib_skip_at(entry);

			entry = fib_skip_next(skip, address);
			byte = skip->length / 8;
			if (!(entry & FIB_CHILD))
				break;
		}
		entry = fib_entry(&fib_plies[(uint32_t)(entry << 3) + address[byte]]);
	}
	return entry;
}

// The hops of `n` addresses in network order, at most FIB_BURST.
typedef void fib4_bulk(const struct fib *fib, const uint32_t *addresses_be, uint32_t *hops, unsigned n);
// Of `n` pointers to addresses of 16 bytes, which may be anywhere in packets.
typedef void fib6_bulk(const struct fib *fib, const uint8_t *const *addresses, uint32_t *hops, unsigned n);

// In the way that is in use (fib_bulk.h): the first, until one is chosen.
extern fib4_bulk *fib4_lookup_bulk;
extern fib6_bulk *fib6_lookup_bulk;
