// SPDX-License-Identifier: Apache-2.0
// GHASH with carry-less multiplication. By RFC 8452 appendix A it is POLYVAL of blocks with their bytes in the other order, under a hash key
// that was multiplied by x. Included by a way, which has the instructions.
#include <immintrin.h>

#include "crypto/ways/way.h"

static inline __m128i
ghash_block(const uint8_t *block)
{
	return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)block),
		_mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

// The 256 bits of a product: low, high, and the middle part over both.
struct ghash_product {
	__m128i low, middle, high;
};

static inline void
ghash_add(struct ghash_product *p, __m128i a, __m128i b)
{
	p->low = _mm_xor_si128(p->low, _mm_clmulepi64_si128(a, b, 0x00));
	p->high = _mm_xor_si128(p->high, _mm_clmulepi64_si128(a, b, 0x11));
	p->middle = _mm_xor_si128(
		p->middle, _mm_xor_si128(_mm_clmulepi64_si128(a, b, 0x01), _mm_clmulepi64_si128(a, b, 0x10)));
}

// Divided by x^128, modulo x^128 + x^127 + x^126 + x^121 + 1: two folds of 64 bits.
static inline __m128i
ghash_reduce(struct ghash_product p)
{
	const __m128i polynomial = _mm_set_epi64x(0, (long long)0xc200000000000000);

	p.low = _mm_xor_si128(p.low, _mm_slli_si128(p.middle, 8));
	p.high = _mm_xor_si128(p.high, _mm_srli_si128(p.middle, 8));
	for (unsigned fold = 0; fold < 2; fold++)
		p.low = _mm_xor_si128(_mm_shuffle_epi32(p.low, 0x4e), _mm_clmulepi64_si128(p.low, polynomial, 0x00));
	return _mm_xor_si128(p.low, p.high);
}

static void
ghash_prepare(struct ghash_key *key, const uint8_t hash_key[16])
{
	struct ghash_product none = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
	__m128i h = ghash_block(hash_key), power;
	// Multiplied by x: a bit that is shifted out comes back as x^127 + x^126 + x^121 + 1.
	__m128i out = _mm_shuffle_epi32(_mm_srai_epi32(h, 31), 0xff);
	__m128i carry = _mm_slli_si128(_mm_srli_epi64(h, 63), 8);

	h = _mm_or_si128(_mm_slli_epi64(h, 1), carry);
	h = _mm_xor_si128(h, _mm_and_si128(out, _mm_set_epi64x((long long)0xc200000000000000, 1)));
	power = h;
	for (unsigned i = 0; i < GHASH_POWERS; i++) {
		struct ghash_product p = none;

		_mm_store_si128((__m128i *)key->powers[GHASH_POWERS - 1 - i], power);
		ghash_add(&p, power, h);
		power = ghash_reduce(p);
	}
}

static void
ghash_finish(const uint8_t y[16], uint8_t hash[16])
{
	_mm_storeu_si128((__m128i *)hash, ghash_block(y));
}

// The sum of the first `blocks` products, with one reduction in the end. `done` of them are in `p` already.
static inline __m128i
ghash_rest(
	const uint8_t (*powers)[16], __m128i y, const uint8_t *data, size_t blocks, size_t done, struct ghash_product p)
{
	for (size_t i = done; i < blocks; i++) {
		__m128i a = ghash_block(data + 16 * i);

		if (i == 0)
			a = _mm_xor_si128(a, y);
		ghash_add(&p, a, _mm_load_si128((const __m128i *)powers[i]));
	}
	return ghash_reduce(p);
}

#if defined(GHASH_512)
#define GHASH_VECTOR 4
typedef __m512i ghash_vec;

static inline ghash_vec
ghash_blocks(const uint8_t *blocks)
{
	return _mm512_shuffle_epi8(_mm512_loadu_si512((const __m512i *)blocks),
		_mm512_broadcast_i32x4(_mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
}

static inline __m128i
ghash_fold(ghash_vec x)
{
	__m256i half = _mm256_xor_si256(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));

	return _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

#define ghash_zero() _mm512_setzero_si512()
#define ghash_load(at) _mm512_loadu_si512((const __m512i *)(at))
#define ghash_first(y) _mm512_zextsi128_si512(y)
#define ghash_xor(a, b) _mm512_xor_si512(a, b)
#define ghash_multiply(a, b, halves) _mm512_clmulepi64_epi128(a, b, halves)
#elif defined(GHASH_256)
#define GHASH_VECTOR 2
typedef __m256i ghash_vec;

static inline ghash_vec
ghash_blocks(const uint8_t *blocks)
{
	return _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)blocks),
		_mm256_broadcastsi128_si256(_mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)));
}

static inline __m128i
ghash_fold(ghash_vec x)
{
	return _mm_xor_si128(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
}

#define ghash_zero() _mm256_setzero_si256()
#define ghash_load(at) _mm256_loadu_si256((const __m256i *)(at))
#define ghash_first(y) _mm256_inserti128_si256(_mm256_setzero_si256(), y, 0)
#define ghash_xor(a, b) _mm256_xor_si256(a, b)
#define ghash_multiply(a, b, halves) _mm256_clmulepi64_epi128(a, b, halves)
#endif

// At most GHASH_POWERS blocks with one reduction.
static inline __attribute__((always_inline)) __m128i
ghash_some(const struct ghash_key *key, __m128i y, const uint8_t *data, size_t blocks)
{
	const uint8_t(*powers)[16] = key->powers + (GHASH_POWERS - blocks);
	struct ghash_product p = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128()};
	size_t done = 0;

#ifdef GHASH_VECTOR
	// Folding costs more than a vector saves.
	if (blocks >= 2 * GHASH_VECTOR) {
		ghash_vec low = ghash_zero(), middle = low, high = low, first = ghash_first(y);

		for (; done + GHASH_VECTOR <= blocks; done += GHASH_VECTOR) {
			ghash_vec a = ghash_xor(ghash_blocks(data + 16 * done), first), b = ghash_load(powers[done]);

			first = ghash_zero();
			low = ghash_xor(low, ghash_multiply(a, b, 0x00));
			high = ghash_xor(high, ghash_multiply(a, b, 0x11));
			middle = ghash_xor(middle, ghash_xor(ghash_multiply(a, b, 0x01), ghash_multiply(a, b, 0x10)));
		}
		p = (struct ghash_product){ghash_fold(low), ghash_fold(middle), ghash_fold(high)};
	}
#endif
	return ghash_rest(powers, y, data, blocks, done, p);
}

static void
ghash(const struct ghash_key *key, uint8_t y[16], const uint8_t *data, size_t blocks)
{
	__m128i hash = _mm_loadu_si128((const __m128i *)y);

	for (; blocks >= GHASH_POWERS; blocks -= GHASH_POWERS, data += GHASH_POWERS * 16)
		hash = ghash_some(key, hash, data, GHASH_POWERS);
	if (blocks > 0)
		hash = ghash_some(key, hash, data, blocks);
	_mm_storeu_si128((__m128i *)y, hash);
}
