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

#include "ip/rib.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && \
	!defined(__SANITIZE_THREAD__)
#define FIB_AVX512 1
#include <immintrin.h>
#endif

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

// An empty fib of a few KiB, or NULL when there is no memory. All fibs must be made and changed, and what they retire
// released, by the same thread.
struct fib *fib_create(enum fib_family family);

// Retires the fib's memory; readers that are still inside may finish.
void fib_destroy(struct fib *fib);

// Insert or replace. The address is in network order, 4 or 16 bytes; bits past `length` do not matter. -EINVAL for a
// length past the family's or a hop of 0 or above FIB_HOP_MAX, -ENOMEM (nothing is changed); what replaces needs no memory.
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

// The hops of `n` addresses in network order, at most FIB_BURST. Level by level over the burst, so that what misses the
// cache is fetched for many at once.
static inline void
fib4_lookup_bulk(const struct fib *fib, const uint32_t *addresses_be, uint32_t *hops, unsigned n)
{
	unsigned shift;
	const _Atomic uint32_t *root = fib_root(fib, &shift);
#ifdef FIB_AVX512
	const __m512i swap = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
	__m128i right = _mm_cvtsi32_si128(32 - (int)shift);
	__mmask16 children = 0;

	for (unsigned i = 0; i < n; i += 16) {
		__mmask16 lanes = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
		__m512i address = _mm512_shuffle_epi8(_mm512_maskz_loadu_epi32(lanes, addresses_be + i), swap);
		__m512i entry = _mm512_mask_i32gather_epi32(
			_mm512_setzero_si512(), lanes, _mm512_srl_epi32(address, right), (const void *)root, 4);

		_mm512_mask_storeu_epi32(hops + i, lanes, entry);
		children |= _mm512_cmplt_epi32_mask(entry, _mm512_setzero_si512());
	}
	for (; children != 0; shift += 8) {
		__m128i left = _mm_cvtsi32_si128((int)shift);

		children = 0;
		for (unsigned i = 0; i < n; i += 16) {
			__mmask16 lanes = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
			__m512i entry = _mm512_maskz_loadu_epi32(lanes, hops + i), address;
			__mmask16 child = _mm512_cmplt_epi32_mask(entry, _mm512_setzero_si512());

			if (child == 0)
				continue;
			address = _mm512_shuffle_epi8(_mm512_maskz_loadu_epi32(child, addresses_be + i), swap);
			address = _mm512_srli_epi32(_mm512_sll_epi32(address, left), 24);
			entry = _mm512_mask_i32gather_epi32(entry, child,
				_mm512_add_epi32(_mm512_slli_epi32(entry, 3), address), (const void *)fib_plies, 4);
			_mm512_mask_storeu_epi32(hops + i, child, entry);
			children |= _mm512_cmplt_epi32_mask(entry, _mm512_setzero_si512());
		}
	}
#else
	uint32_t children = 0;

	for (unsigned i = 0; i < n; i++) {
		hops[i] = fib_entry(&root[__builtin_bswap32(addresses_be[i]) >> (32 - shift)]);
		children |= hops[i];
	}
	for (; children & FIB_CHILD; shift += 8) {
		children = 0;
		for (unsigned i = 0; i < n; i++) {
			uint32_t entry = hops[i], byte = __builtin_bswap32(addresses_be[i]) << shift >> 24;

			// The first ply is nobody's: reading it instead costs less than a branch that cannot be foreseen.
			uint32_t next = fib_entry(&fib_plies[entry & FIB_CHILD ? (entry << 3) + byte : 0]);

			hops[i] = entry & FIB_CHILD ? next : entry;
			children |= hops[i];
		}
	}
#endif
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

// As fib4_lookup_bulk, of `n` pointers to addresses of 16 bytes, which may be anywhere in packets.
static inline void
fib6_lookup_bulk(const struct fib *fib, const uint8_t *const *addresses, uint32_t *hops, unsigned n)
{
	unsigned bits;
	const _Atomic uint32_t *root = fib_root(fib, &bits), *base = fib_plies;
	uint32_t children = 0;

	for (unsigned i = 0; i < n; i++) {
		uint16_t first;

		memcpy(&first, addresses[i], sizeof(first));
		hops[i] = fib_entry(&root[__builtin_bswap16(first) >> (16 - bits)]);
		children |= hops[i];
	}
	if (!(children & FIB_CHILD))
		return;
#ifdef FIB_AVX512
	// Eight addresses at a time and all of them a step further in each round: plies and skips are for different lanes of
	// one vector, so that no branch depends on which of them an address meets.
	const __m512i zero = _mm512_setzero_si512(), all = _mm512_set1_epi64(64), both = _mm512_set1_epi64(128);
	uint64_t high[FIB_BURST], low[FIB_BURST];
	uint32_t byte[FIB_BURST];

	for (unsigned i = 0; i < n; i++) {
		high[i] = fib_word(addresses[i]);
		low[i] = fib_word(addresses[i] + 8);
		byte[i] = bits / 8;
	}
	do {
		__mmask8 more = 0;

		for (unsigned i = 0; i < n; i += 8) {
			__mmask8 lanes = n - i >= 8 ? 0xff : (__mmask8)((1u << (n - i)) - 1), child, skip, ply;
			__m256i entry = _mm256_maskz_loadu_epi32(lanes, hops + i), at, position;
			__m512i a, b, wide;

			child = _mm256_movepi32_mask(entry);
			if (child == 0)
				continue;
			skip = child & _mm256_movepi32_mask(_mm256_slli_epi32(entry, 1));
			ply = child & ~skip;
			at = _mm256_slli_epi32(entry, 3);
			position = _mm256_maskz_loadu_epi32(lanes, byte + i);
			a = _mm512_maskz_loadu_epi64(lanes, high + i);
			b = _mm512_maskz_loadu_epi64(lanes, low + i);
			if (ply != 0) {
				__mmask8 later = _mm256_cmpgt_epi32_mask(position, _mm256_set1_epi32(7));

				wide = _mm512_slli_epi64(_mm512_cvtepu32_epi64(position), 3);
				wide = _mm512_rolv_epi64(_mm512_mask_mov_epi64(a, later, b),
					_mm512_add_epi64(wide, _mm512_set1_epi64(8)));
				entry = _mm256_mmask_i32gather_epi32(entry, ply,
					_mm256_add_epi32(at,
						_mm512_cvtepi64_epi32(_mm512_and_si512(wide, _mm512_set1_epi64(0xff)))),
					(const void *)base, 4);
				position = _mm256_add_epi32(position, _mm256_set1_epi32(1));
			}
			if (skip != 0) {
				__m256i length = _mm256_mmask_i32gather_epi32(_mm256_setzero_si256(), skip,
					_mm256_add_epi32(at, _mm256_set1_epi32(offsetof(struct fib_skip, length) / 4)),
					(const void *)base, 4);
				__mmask8 beyond, miss;

				length = _mm256_and_si256(length, _mm256_set1_epi32(0xff));
				beyond = _mm256_mask_cmpgt_epi32_mask(skip, length, _mm256_set1_epi32(64));
				wide = _mm512_cvtepu32_epi64(length);
				a = _mm512_xor_si512(
					a, _mm512_mask_i32gather_epi64(zero, skip, at, (const void *)base, 4));
				a = _mm512_srlv_epi64(a, _mm512_max_epi64(_mm512_sub_epi64(all, wide), zero));
				if (beyond != 0) {
					b = _mm512_xor_si512(b, _mm512_mask_i32gather_epi64(zero, beyond,
									_mm256_add_epi32(at, _mm256_set1_epi32(2)),
									(const void *)base, 4));
					a = _mm512_mask_or_epi64(
						a, beyond, a, _mm512_srlv_epi64(b, _mm512_sub_epi64(both, wide)));
				}
				miss = _mm512_test_epi64_mask(a, a);
				at = _mm256_add_epi32(at, _mm256_set1_epi32(offsetof(struct fib_skip, match) / 4));
				at = _mm256_mask_add_epi32(at, miss, at, _mm256_set1_epi32(1));
				entry = _mm256_mmask_i32gather_epi32(entry, skip, at, (const void *)base, 4);
				position = _mm256_mask_srli_epi32(position, skip, length, 3);
			}
			_mm256_mask_storeu_epi32(byte + i, lanes, position);
			_mm256_mask_storeu_epi32(hops + i, lanes, entry);
			more |= _mm256_movepi32_mask(entry);
		}
		children = more;
	} while (children != 0);
#else
	uint8_t at_ply[FIB_BURST + 1], at_skip[FIB_BURST + 1], byte[FIB_BURST];
	unsigned plies = 0, skips = 0;

	for (unsigned i = 0; i < n; i++) {
		byte[i] = (uint8_t)(bits / 8);
		at_ply[plies] = (uint8_t)i;
		at_skip[skips] = (uint8_t)i;
		plies += hops[i] >> 30 == FIB_CHILD >> 30;
		skips += hops[i] >> 30 == (FIB_CHILD | FIB_SKIP) >> 30;
	}
	while ((plies | skips) != 0) {
		unsigned again = 0;

		for (unsigned k = 0; k < plies; k++) {
			unsigned i = at_ply[k];
			uint32_t entry = fib_entry(&base[(uint32_t)(hops[i] << 3) + addresses[i][byte[i]]]);

			hops[i] = entry;
			byte[i]++;
			at_ply[again] = (uint8_t)i;
			at_skip[skips] = (uint8_t)i;
			again += entry >> 30 == FIB_CHILD >> 30;
			skips += entry >> 30 == (FIB_CHILD | FIB_SKIP) >> 30;
		}
		for (unsigned k = 0; k < skips; k++) {
			unsigned i = at_skip[k];
			const struct fib_skip *skip = fib_skip_at(hops[i]);
			uint32_t entry = fib_skip_next(skip, addresses[i]);

			hops[i] = entry;
			byte[i] = skip->length / 8;
			at_ply[again] = (uint8_t)i;
			again += entry >> 31;
		}
		plies = again;
		skips = 0;
	}
#endif
}
