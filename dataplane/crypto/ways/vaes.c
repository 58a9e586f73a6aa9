// SPDX-License-Identifier: Apache-2.0
// AVX2 with VAES and VPCLMULQDQ.
#include <immintrin.h>

static inline __m256i
v_aes_last(__m256i x)
{
	return _mm256_aesenclast_epi128(x, _mm256_setzero_si256());
}

#include "crypto/ways/avx2_lanes.h"

#define GHASH_256
#include "crypto/ways/ghash_clmul.h"

const struct sm_way sm_way_vaes = {
	.name = "sm-vaes",
	.sm4_group = GROUP,
	.sm4_blocks = GROUP * GROUPS,
	.sm3_lanes = LANES,
	SM_WAY_FUNCTIONS,
};
