// SPDX-License-Identifier: Apache-2.0
// The engines of our own SM4 and SM3, one for each way.
#include "crypto/sm.h"

#include "cpu/cpu.h"

static bool
serves(const struct crypto_secret *s)
{
	return s->cipher == CRYPTO_SM4_GCM || s->cipher == CRYPTO_SM4_CCM ||
	       (s->integrity == CRYPTO_HMAC_SM3 && (s->cipher == CRYPTO_SM4_CBC || s->cipher == CRYPTO_NULL));
}

static size_t
schedule_size(const struct crypto_secret *s)
{
	return sizeof(struct sm_schedule);
}

static void
prepare_gcm(const struct sm_way *way, struct sm_schedule *schedule)
{
	uint8_t blocks[SM4_BLOCKS_MAX][SM4_BLOCK] = {0};

	way->sm4_same(&schedule->sm4, blocks, 1);
	way->ghash_prepare(&schedule->ghash, blocks[0]);
	explicit_bzero(blocks, sizeof(blocks));
}

static int
prepare(struct crypto_key *key, const struct crypto_secret *s, const struct sm_way *way)
{
	struct sm_schedule *schedule = (struct sm_schedule *)key->schedule;
	uint32_t *rounds = schedule->sm4.rounds;

	key->own = way;
	if (s->cipher != CRYPTO_NULL)
		sm4_expand(s->key, rounds);
	// Decryption is encryption with the round keys in reverse order.
	for (unsigned i = 0; s->cipher == CRYPTO_SM4_CBC && s->direction == CRYPTO_DECRYPT && i < SM4_ROUNDS / 2; i++) {
		uint32_t first = rounds[i];

		rounds[i] = rounds[SM4_ROUNDS - 1 - i];
		rounds[SM4_ROUNDS - 1 - i] = first;
	}
	way->sm4_prepare(&schedule->sm4);
	if (s->integrity == CRYPTO_HMAC_SM3)
		sm3_hmac_prepare(schedule, s->integrity_key, s->integrity_key_length);
	else if (s->cipher == CRYPTO_SM4_GCM)
		prepare_gcm(way, schedule);
	switch (s->cipher) {
	case CRYPTO_SM4_GCM:
		key->run = sm4_gcm;
		break;
	case CRYPTO_SM4_CCM:
		key->run = sm4_ccm;
		break;
	case CRYPTO_SM4_CBC:
		key->run = s->direction == CRYPTO_DECRYPT ? sm4_cbc_decrypt : sm4_cbc_encrypt;
		break;
	default:
		key->run = sm3_null;
	}
	return 0;
}

static int
prepare_c(struct crypto_key *key, const struct crypto_secret *s)
{
	return prepare(key, s, &sm_way_c);
}

static int
prepare_aesni(struct crypto_key *key, const struct crypto_secret *s)
{
	return prepare(key, s, &sm_way_aesni);
}

static int
prepare_avx2(struct crypto_key *key, const struct crypto_secret *s)
{
	return prepare(key, s, &sm_way_avx2);
}

static int
prepare_vaes(struct crypto_key *key, const struct crypto_secret *s)
{
	return prepare(key, s, &sm_way_vaes);
}

static int
prepare_gfni(struct crypto_key *key, const struct crypto_secret *s)
{
	return prepare(key, s, &sm_way_gfni);
}

#define BIT(feature) (UINT64_C(1) << (feature))

const struct crypto_engine crypto_sm_c = {
	.name = "sm-c",
	.serves = serves,
	.schedule_size = schedule_size,
	.prepare = prepare_c,
};
const struct crypto_engine crypto_sm_aesni = {
	.name = "sm-aesni",
	.needs = BIT(CPU_SSE4_1) | BIT(CPU_AES) | BIT(CPU_PCLMULQDQ),
	.serves = serves,
	.schedule_size = schedule_size,
	.prepare = prepare_aesni,
};
const struct crypto_engine crypto_sm_avx2 = {
	.name = "sm-avx2",
	.needs = BIT(CPU_AVX2) | BIT(CPU_AES) | BIT(CPU_PCLMULQDQ),
	.serves = serves,
	.schedule_size = schedule_size,
	.prepare = prepare_avx2,
};
const struct crypto_engine crypto_sm_vaes = {
	.name = "sm-vaes",
	.needs = BIT(CPU_AVX2) | BIT(CPU_VAES) | BIT(CPU_VPCLMULQDQ),
	.serves = serves,
	.schedule_size = schedule_size,
	.prepare = prepare_vaes,
};
const struct crypto_engine crypto_sm_gfni = {
	.name = "sm-gfni",
	.needs = BIT(CPU_AVX512F) | BIT(CPU_AVX512BW) | BIT(CPU_AVX512VL) | BIT(CPU_GFNI) | BIT(CPU_VPCLMULQDQ),
	.serves = serves,
	.schedule_size = schedule_size,
	.prepare = prepare_gfni,
};
