// SPDX-License-Identifier: Apache-2.0
// SSE4.1 with AES-NI and PCLMULQDQ: 4 blocks of SM4, or 4 messages of SM3, in a vector.
#include <immintrin.h>

#include "crypto/ways/way.h"

typedef __m128i vec;

enum { VEC = 16, GROUPS = 4, LANES = 4 };

static inline vec
v_load(const void *at)
{
	return _mm_loadu_si128((const __m128i *)at);
}

static inline void
v_store(void *at, vec x)
{
	_mm_storeu_si128((__m128i *)at, x);
}

static inline vec
v_load_parts(const void *const parts[1])
{
	return v_load(parts[0]);
}

static inline vec
v_repeat(const uint8_t bytes[16])
{
	return v_load(bytes);
}

static inline vec
v_set8(uint8_t x)
{
	return _mm_set1_epi8((char)x);
}

static inline vec
v_set32(uint32_t x)
{
	return _mm_set1_epi32((int)x);
}

static inline vec
v_xor(vec a, vec b)
{
	return _mm_xor_si128(a, b);
}

static inline vec
v_and(vec a, vec b)
{
	return _mm_and_si128(a, b);
}

static inline vec
v_add32(vec a, vec b)
{
	return _mm_add_epi32(a, b);
}

static inline vec
v_right4(vec x)
{
	return _mm_srli_epi16(x, 4);
}

static inline vec
v_shuffle(vec table, vec index)
{
	return _mm_shuffle_epi8(table, index);
}

static inline vec
v_aes_last(vec x)
{
	return _mm_aesenclast_si128(x, _mm_setzero_si128());
}

static inline vec
v_unpack_low32(vec a, vec b)
{
	return _mm_unpacklo_epi32(a, b);
}

static inline vec
v_unpack_high32(vec a, vec b)
{
	return _mm_unpackhi_epi32(a, b);
}

static inline vec
v_unpack_low64(vec a, vec b)
{
	return _mm_unpacklo_epi64(a, b);
}

static inline vec
v_unpack_high64(vec a, vec b)
{
	return _mm_unpackhi_epi64(a, b);
}

#include "crypto/ways/sm4_lanes.h"

typedef __m128i lane;

#include "crypto/ways/vector_lanes.h"

static inline lane
lane_majority(lane a, lane b, lane c)
{
	return _mm_or_si128(_mm_and_si128(a, b), _mm_and_si128(c, _mm_or_si128(a, b)));
}

static inline lane
lane_choose(lane e, lane f, lane g)
{
	return v_xor(g, v_and(e, v_xor(f, g)));
}

static inline __attribute__((always_inline)) lane
lane_rotate(lane x, int bits)
{
	return _mm_or_si128(_mm_slli_epi32(x, bits), _mm_srli_epi32(x, 32 - bits));
}

#include "crypto/ways/sm3_lanes.h"

#include "crypto/ways/ghash_clmul.h"

const struct sm_way sm_way_aesni = {
	.name = "sm-aesni",
	.sm4_group = GROUP,
	.sm4_blocks = GROUP * GROUPS,
	.sm3_lanes = LANES,
	SM_WAY_FUNCTIONS,
};
