// SPDX-License-Identifier: Apache-2.0
// 8 blocks of SM4, or 8 messages of SM3, in a vector of AVX2. Included by a way, which defines v_aes_last(): AESENCLAST with a key of zeros, of both
// halves.
#pragma once

#include <immintrin.h>

#include "crypto/ways/way.h"

typedef __m256i vec;

enum { VEC = 32, GROUPS = 4, LANES = 8 };

static inline vec
v_load(const void *at)
{
	return _mm256_loadu_si256((const __m256i *)at);
}

static inline void
v_store(void *at, vec x)
{
	_mm256_storeu_si256((__m256i *)at, x);
}

static inline vec
v_load_parts(const void *const parts[2])
{
	return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)parts[0])),
		_mm_loadu_si128((const __m128i *)parts[1]), 1);
}

static inline vec
v_repeat(const uint8_t bytes[16])
{
	return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)bytes));
}

static inline vec
v_set8(uint8_t x)
{
	return _mm256_set1_epi8((char)x);
}

static inline vec
v_set32(uint32_t x)
{
	return _mm256_set1_epi32((int)x);
}

static inline vec
v_xor(vec a, vec b)
{
	return _mm256_xor_si256(a, b);
}

static inline vec
v_and(vec a, vec b)
{
	return _mm256_and_si256(a, b);
}

static inline vec
v_add32(vec a, vec b)
{
	return _mm256_add_epi32(a, b);
}

static inline vec
v_right4(vec x)
{
	return _mm256_srli_epi16(x, 4);
}

static inline vec
v_shuffle(vec table, vec index)
{
	return _mm256_shuffle_epi8(table, index);
}

static inline vec
v_unpack_low32(vec a, vec b)
{
	return _mm256_unpacklo_epi32(a, b);
}

static inline vec
v_unpack_high32(vec a, vec b)
{
	return _mm256_unpackhi_epi32(a, b);
}

static inline vec
v_unpack_low64(vec a, vec b)
{
	return _mm256_unpacklo_epi64(a, b);
}

static inline vec
v_unpack_high64(vec a, vec b)
{
	return _mm256_unpackhi_epi64(a, b);
}

#include "crypto/ways/sm4_lanes.h"

typedef __m256i lane;

#include "crypto/ways/vector_lanes.h"

static inline lane
lane_majority(lane a, lane b, lane c)
{
	return _mm256_or_si256(_mm256_and_si256(a, b), _mm256_and_si256(c, _mm256_or_si256(a, b)));
}

static inline lane
lane_choose(lane e, lane f, lane g)
{
	return v_xor(g, v_and(e, v_xor(f, g)));
}

static inline __attribute__((always_inline)) lane
lane_rotate(lane x, int bits)
{
	return _mm256_or_si256(_mm256_slli_epi32(x, bits), _mm256_srli_epi32(x, 32 - bits));
}

#include "crypto/ways/sm3_lanes.h"
