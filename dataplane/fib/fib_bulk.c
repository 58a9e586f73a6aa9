// SPDX-License-Identifier: Apache-2.0
// Bursts of look-ups, level by level over the burst, so that cache misses overlap: one address after the other, or
// several in a vector.
#include "fib/fib_bulk.h"

#include <stdbool.h>
#include <stddef.h>

#include "cpu/cpu.h"

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define VECTORS 1
#include <immintrin.h>
#endif

static void
scalar4(const struct fib *fib, const uint32_t *addresses_be, uint32_t *hops, unsigned n)
{
	unsigned shift;
	const _Atomic uint32_t *root = fib_root(fib, &shift);
	uint32_t children = 0;

	for (unsigned i = 0; i < n; i++) {
		hops[i] = fib_entry(&root[__builtin_bswap32(addresses_be[i]) >> (32 - shift)]);
		children |= hops[i];
	}
	for (; children & FIB_CHILD; shift += 8) {
		children = 0;
		for (unsigned i = 0; i < n; i++) {
			uint32_t entry = hops[i], byte = __builtin_bswap32(addresses_be[i]) << shift >> 24;

			// The first ply is unused: to read it costs less than a branch that cannot be predicted.
			uint32_t next = fib_entry(&fib_plies[entry & FIB_CHILD ? (entry << 3) + byte : 0]);

			hops[i] = entry & FIB_CHILD ? next : entry;
			children |= hops[i];
		}
	}
}

// The entries of the root, the first step of every search. Whether any of them is a child.
static inline bool
six_roots(const struct fib *fib, const uint8_t *const *addresses, uint32_t *hops, unsigned n, unsigned *bits)
{
	const _Atomic uint32_t *root = fib_root(fib, bits);
	uint32_t children = 0;

	for (unsigned i = 0; i < n; i++) {
		uint16_t first;

		memcpy(&first, addresses[i], sizeof(first));
		hops[i] = fib_entry(&root[__builtin_bswap16(first) >> (16 - *bits)]);
		children |= hops[i];
	}
	return (children & FIB_CHILD) != 0;
}

static void
scalar6(const struct fib *fib, const uint8_t *const *addresses, uint32_t *hops, unsigned n)
{
	const _Atomic uint32_t *base = fib_plies;
	uint8_t at_ply[FIB_BURST + 1], at_skip[FIB_BURST + 1], byte[FIB_BURST];
	unsigned bits, plies = 0, skips = 0;

	if (!six_roots(fib, addresses, hops, n, &bits))
		return;
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
}

#ifdef VECTORS
// Readers see each entry whole, as x86 loads each of a vector's aligned words whole.

__attribute__((target("avx2"))) static void
avx2_4(const struct fib *fib, const uint32_t *addresses_be, uint32_t *hops, unsigned n)
{
	unsigned shift, whole = n & ~7u;
	const _Atomic uint32_t *root = fib_root(fib, &shift);
	const __m256i swap =
		_mm256_broadcastsi128_si256(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
	__m128i right = _mm_cvtsi32_si128(32 - (int)shift);
	int children = 0;

	for (unsigned i = 0; i < whole; i += 8) {
		__m256i address = _mm256_shuffle_epi8(_mm256_loadu_si256((const void *)(addresses_be + i)), swap);
		__m256i entry = _mm256_i32gather_epi32((const void *)root, _mm256_srl_epi32(address, right), 4);

		_mm256_storeu_si256((void *)(hops + i), entry);
		children |= _mm256_movemask_ps(_mm256_castsi256_ps(entry));
	}
	for (; children != 0; shift += 8) {
		__m128i left = _mm_cvtsi32_si128((int)shift);

		children = 0;
		for (unsigned i = 0; i < whole; i += 8) {
			__m256i entry = _mm256_loadu_si256((const void *)(hops + i)), address;

			if (_mm256_testz_si256(entry, _mm256_set1_epi32(INT32_MIN)))
				continue;
			address = _mm256_shuffle_epi8(_mm256_loadu_si256((const void *)(addresses_be + i)), swap);
			address = _mm256_srli_epi32(_mm256_sll_epi32(address, left), 24);
			entry = _mm256_mask_i32gather_epi32(entry, (const void *)fib_plies,
				_mm256_add_epi32(_mm256_slli_epi32(entry, 3), address), entry, 4);
			_mm256_storeu_si256((void *)(hops + i), entry);
			children |= _mm256_movemask_ps(_mm256_castsi256_ps(entry));
		}
	}
	if (whole < n)
		scalar4(fib, addresses_be + whole, hops + whole, n - whole);
}

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

AVX512 static void
avx512_4(const struct fib *fib, const uint32_t *addresses_be, uint32_t *hops, unsigned n)
{
	unsigned shift;
	const _Atomic uint32_t *root = fib_root(fib, &shift);
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
}

// Eight addresses at a time and all of them a step further in each round: plies and skips are for different lanes of
// one vector, so that no branch depends on which of them an address meets.
AVX512 static void
avx512_6(const struct fib *fib, const uint8_t *const *addresses, uint32_t *hops, unsigned n)
{
	const _Atomic uint32_t *base = fib_plies;
	unsigned bits;
	__mmask8 children;
	const __m512i zero = _mm512_setzero_si512(), all = _mm512_set1_epi64(64), both = _mm512_set1_epi64(128);
	uint64_t high[FIB_BURST], low[FIB_BURST];
	uint32_t byte[FIB_BURST];

	if (!six_roots(fib, addresses, hops, n, &bits))
		return;
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
}
#endif

enum {
	NEEDS_AVX2 = 1 << CPU_AVX2,
	NEEDS_AVX512 = 1 << CPU_AVX512F | 1 << CPU_AVX512BW | 1 << CPU_AVX512VL | 1 << CPU_AVX512DQ,
};

const struct fib4_way fib4_ways[FIB_WAYS] = {
	{"scalar", 0, scalar4},
#ifdef VECTORS
	{"avx2", NEEDS_AVX2, avx2_4},
	{"avx512", NEEDS_AVX512, avx512_4},
#endif
};
const struct fib6_way fib6_ways[FIB_WAYS] = {
	{"scalar", 0, scalar6},
#ifdef VECTORS
	{"avx512", NEEDS_AVX512, avx512_6},
#endif
};

fib4_bulk *fib4_lookup_bulk = scalar4;
fib6_bulk *fib6_lookup_bulk = scalar6;
