// SPDX-License-Identifier: Apache-2.0
// AVX-512 with GFNI, and VPCLMULQDQ: 16 blocks of SM4, or 16 messages of SM3, in a vector.
#include <immintrin.h>

#include "crypto/ways/way.h"

typedef __m512i vec;

enum { VEC = 64, GROUPS = 4, LANES = 16 };

static inline vec
v_load(const void *at)
{
	return _mm512_loadu_si512((const __m512i *)at);
}

static inline void
v_store(void *at, vec x)
{
	_mm512_storeu_si512((__m512i *)at, x);
}

static inline vec
v_load_parts(const void *const parts[4])
{
	__m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)parts[0]));

	x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)parts[1]), 1);
	x = _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)parts[2]), 2);
	return _mm512_inserti32x4(x, _mm_loadu_si128((const __m128i *)parts[3]), 3);
}

static inline vec
v_repeat(const uint8_t bytes[16])
{
	return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)bytes));
}

static inline vec
v_set8(uint8_t x)
{
	return _mm512_set1_epi8((char)x);
}

static inline vec
v_set32(uint32_t x)
{
	return _mm512_set1_epi32((int)x);
}

static inline vec
v_xor(vec a, vec b)
{
	return _mm512_xor_si512(a, b);
}

static inline vec
v_add32(vec a, vec b)
{
	return _mm512_add_epi32(a, b);
}

static inline vec
v_shuffle(vec table, vec index)
{
	return _mm512_shuffle_epi8(table, index);
}

static inline vec
v_affine(vec x, uint64_t matrix)
{
	return _mm512_gf2p8affine_epi64_epi8(x, _mm512_set1_epi64((long long)matrix), 0);
}

static inline __attribute__((always_inline)) vec
v_affine_inverse(vec x, uint64_t matrix, int constant)
{
	return constant ? _mm512_gf2p8affineinv_epi64_epi8(x, _mm512_set1_epi64((long long)matrix), 0x63)
			: _mm512_gf2p8affineinv_epi64_epi8(x, _mm512_set1_epi64((long long)matrix), 0);
}

static inline vec
v_unpack_low32(vec a, vec b)
{
	return _mm512_unpacklo_epi32(a, b);
}

static inline vec
v_unpack_high32(vec a, vec b)
{
	return _mm512_unpackhi_epi32(a, b);
}

static inline vec
v_unpack_low64(vec a, vec b)
{
	return _mm512_unpacklo_epi64(a, b);
}

static inline vec
v_unpack_high64(vec a, vec b)
{
	return _mm512_unpackhi_epi64(a, b);
}

#define SM4_GFNI
#include "crypto/ways/sm4_lanes.h"

_Static_assert(A_CONSTANT == 0x63, "the constant of v_affine_inverse()");

// So many groups at once, where more than GROUPS have one key: their rounds fill the time in which one round waits for the last one.
enum { STREAM_GROUPS = 6 };

// The key stream of some groups, over what is at `to` and is `left` bytes long. `mask`: the first block of it is no data, but goes there.
static inline __attribute__((always_inline)) void
stream_part(const struct sm4_key *key, struct counters *c, uint8_t *to, size_t left, uint8_t *mask, unsigned groups)
{
	vec x[STREAM_GROUPS][4];

#pragma GCC unroll 8
	for (unsigned g = 0; g < groups; g++) {
		for (unsigned i = 0; i < 3; i++)
			x[g][i] = c->fixed[i];
		x[g][3] = map_in(v_add32(c->order, v_set32(c->next)));
		c->next += GROUP;
	}
	rounds(key, NULL, x, groups);
#pragma GCC unroll 8
	for (unsigned g = 0; g < groups; g++) {
		finish(x[g]);
#pragma GCC unroll 4
		for (unsigned i = 0; i < 4; i++) {
			size_t at = (g * 4 + i) * VEC;
			__mmask64 bytes;

			if (__builtin_expect(at + VEC <= left && !(mask && at == 0), 1)) {
				v_store(to + at, v_xor(v_load(to + at), x[g][i]));
				continue;
			}
			if (at >= left)
				return;
			bytes = left - at < VEC ? ((__mmask64)1 << (left - at)) - 1 : ~(__mmask64)0;
			if (mask && at == 0) {
				_mm_storeu_si128((__m128i *)mask, _mm512_castsi512_si128(x[g][i]));
				bytes &= ~(__mmask64)0xffff;
			}
			_mm512_mask_storeu_epi8(
				to + at, bytes, v_xor(_mm512_maskz_loadu_epi8(bytes, to + at), x[g][i]));
		}
	}
}

static void
sm4_stream(const struct sm4_key *key, const uint8_t nonce[12], uint32_t counter, uint8_t *data, size_t length,
	uint8_t mask[SM4_BLOCK])
{
	enum { BYTES = GROUP * SM4_BLOCK };
	struct counters c = counters_from(nonce, counter);
	uint8_t *to = data - SM4_BLOCK;

	length += SM4_BLOCK;
	for (size_t groups = (length + BYTES - 1) / BYTES, now; groups > 0; groups -= now) {
		// Nothing is left over that is too small to fill its time.
		now = groups <= STREAM_GROUPS ? groups : groups < 2 * STREAM_GROUPS ? (groups + 1) / 2 : STREAM_GROUPS;
		switch (now) {
		case 1:
			stream_part(key, &c, to, length, mask, 1);
			break;
		case 2:
			stream_part(key, &c, to, length, mask, 2);
			break;
		case 3:
			stream_part(key, &c, to, length, mask, 3);
			break;
		case 4:
			stream_part(key, &c, to, length, mask, 4);
			break;
		case 5:
			stream_part(key, &c, to, length, mask, 5);
			break;
		default:
			stream_part(key, &c, to, length, mask, 6);
		}
		mask = NULL;
		to += now * BYTES;
		length -= length < now * BYTES ? length : now * BYTES;
	}
}

typedef __m512i lane;

#include "crypto/ways/vector_lanes.h"

static inline lane
lane_majority(lane a, lane b, lane c)
{
	return _mm512_ternarylogic_epi32(a, b, c, 0xe8);
}

static inline lane
lane_choose(lane e, lane f, lane g)
{
	return _mm512_ternarylogic_epi32(e, f, g, 0xca);
}

// The compiler unrolls the callers, so the bits are a constant; otherwise the instruction for a variable number is as
// fast.
static inline __attribute__((always_inline)) lane
lane_rotate(lane x, int bits)
{
	return _mm512_rolv_epi32(x, v_set32((uint32_t)bits));
}

#include "crypto/ways/sm3_lanes.h"

#define GHASH_512
#include "crypto/ways/ghash_clmul.h"

const struct sm_way sm_way_gfni = {
	.name = "sm-gfni",
	.sm4_group = GROUP,
	.sm4_blocks = GROUP * GROUPS,
	.sm3_lanes = LANES,
	SM_WAY_FUNCTIONS,
	.sm4_stream = sm4_stream,
};
