// SPDX-License-Identifier: Apache-2.0
// AVX2 with AES-NI, of CPUs without VAES: half a vector at a time where AES is needed, the rest as with VAES.
#include <immintrin.h>

static inline __m256i
v_aes_last(__m256i x)
{
	const __m128i zero = _mm_setzero_si128();
	__m128i low = _mm_aesenclast_si128(_mm256_castsi256_si128(x), zero),
		high = _mm_aesenclast_si128(_mm256_extracti128_si256(x, 1), zero);

	return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

#include "crypto/ways/avx2_lanes.h"

#include "crypto/ways/ghash_clmul.h"

const struct sm_way sm_way_avx2 = {
	.name = "sm-avx2",
	.sm4_group = GROUP,
	.sm4_blocks = GROUP * GROUPS,
	.sm3_lanes = LANES,
	SM_WAY_FUNCTIONS,
};
