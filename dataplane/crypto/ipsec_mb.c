// SPDX-License-Identifier: Apache-2.0
// libIPSec_MB called directly: AES-GCM, AES-GMAC and ChaCha20-Poly1305 packet by packet, and AES-CBC, AES-CTR and NULL with HMAC as jobs
// that its manager works on in several lanes at once (multi-buffer), across packets and SAs.
#include <errno.h>
#include <string.h>

#include <intel-ipsec-mb.h>

#include "cpu/cpu.h"
#include "crypto/engine.h"

enum { WIDEST, SSE };
enum { SHA_STATE = 64, GCM_ROUNDS = 15 * 16, GCM_POWERS = 48, GCM_FEW_POWERS = 16, PREFETCH = 5 };

// A key of CBC, CTR or NULL with HMAC. The job manager needs round keys at multiples of 16 bytes.
struct hmac_key {
	uint8_t inner[SHA_STATE], outer[SHA_STATE]; // HMAC's state after the padded key (RFC 2104)
	uint8_t rounds[15 * 16];                    // for the key's direction
	uint32_t cipher_mode, hash;
};

// The functions of this key's engine: those of a manager use one instruction set.
static inline IMB_MGR *
manager(struct crypto_context *context, const struct crypto_key *key)
{
	return context->mb[key->engine == &crypto_ipsec_mb_sse ? SSE : WIDEST];
}

// The library writes ICVs of the lengths of RFC 2404 and RFC 4868; for other lengths it writes the whole digest.
static bool
serves_hmac(const struct crypto_secret *s)
{
	switch (s->integrity) {
	case CRYPTO_HMAC_SHA1:
		return s->icv_length == 12 || s->icv_length == 20;
	case CRYPTO_HMAC_SHA256:
		return s->icv_length == 16 || s->icv_length == 32;
	case CRYPTO_HMAC_SHA384:
		return s->icv_length == 24;
	case CRYPTO_HMAC_SHA512:
		return s->icv_length == 32;
	default:
		return false;
	}
}

static bool
serves(const struct crypto_secret *s)
{
	switch (s->cipher) {
	case CRYPTO_AES_GCM:
	case CRYPTO_AES_GMAC:
	case CRYPTO_CHACHA20_POLY1305:
		return true;
	case CRYPTO_AES_CBC:
	case CRYPTO_AES_CTR:
	case CRYPTO_NULL:
		return serves_hmac(s);
	default:
		return false;
	}
}

static size_t
schedule_size(const struct crypto_secret *s)
{
	switch (s->cipher) {
	case CRYPTO_AES_GCM:
	case CRYPTO_AES_GMAC:
		return sizeof(struct gcm_key_data);
	case CRYPTO_CHACHA20_POLY1305:
		return 32;
	default:
		return sizeof(struct hmac_key);
	}
}

// Behind the round keys there are powers of the hash key. The code for AVX-512 with VAES has 48 of them, the highest first, and takes one for
// each block of a packet: those of a short packet lie at the end. Other code has eight, and their halves.
static inline bool
powers_are_many(const IMB_MGR *mb)
{
	return mb->used_arch == IMB_ARCH_AVX512 && mb->features & IMB_FEATURE_VAES;
}

// The part of the key that a packet needs, and nothing else: a whole schedule has 1,008 bytes.
static inline void
gcm_prefetch(const struct crypto_op *op, bool many)
{
	const uint8_t *schedule = op->key->schedule;
	unsigned powers = RTE_MIN(op->length / 16 + 3, (unsigned)GCM_POWERS), at = GCM_ROUNDS,
		 end = GCM_ROUNDS + 16 * (many ? GCM_POWERS : GCM_FEW_POWERS);

	for (unsigned line = 0; line < GCM_ROUNDS; line += 64)
		rte_prefetch0(schedule + line);
	if (many)
		at = end - 16 * powers;
	for (at = at / 64 * 64; at < end; at += 64)
		rte_prefetch0(schedule + at);
}

// The six functions of GCM, by key size and direction.
static inline __attribute__((always_inline)) void
gcm(struct crypto_context *context, struct crypto_op **ops, unsigned count, aes_gcm_enc_dec_t call, bool decrypt)
{
	bool many = powers_are_many(manager(context, ops[0]->key));

	for (unsigned i = 0; i < RTE_MIN(count, (unsigned)PREFETCH); i++)
		gcm_prefetch(ops[i], many);
	for (unsigned i = 0; i < count; i++) {
		struct crypto_op *op = ops[i];
		struct gcm_context_data state;
		uint8_t nonce[16], own[CRYPTO_AAD_MAX + 4], tag[16];
		const uint8_t *aad;
		unsigned aad_length;

		if (i + PREFETCH < count)
			gcm_prefetch(ops[i + PREFETCH], many);
		crypto_nonce(op, nonce);
		aad = crypto_aad(op, own, &aad_length);
		call((const struct gcm_key_data *)op->key->schedule, &state, op->data, op->data, op->length, nonce, aad,
			aad_length, decrypt ? tag : op->icv, op->key->icv_length);
		if (decrypt)
			crypto_judge(op, tag);
		else
			op->status = CRYPTO_OK;
	}
}

static void
gcm128_encrypt(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	gcm(context, ops, count, manager(context, ops[0]->key)->gcm128_enc, false);
}

static void
gcm128_decrypt(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	gcm(context, ops, count, manager(context, ops[0]->key)->gcm128_dec, true);
}

static void
gcm192_encrypt(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	gcm(context, ops, count, manager(context, ops[0]->key)->gcm192_enc, false);
}

static void
gcm192_decrypt(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	gcm(context, ops, count, manager(context, ops[0]->key)->gcm192_dec, true);
}

static void
gcm256_encrypt(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	gcm(context, ops, count, manager(context, ops[0]->key)->gcm256_enc, false);
}

static void
gcm256_decrypt(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	gcm(context, ops, count, manager(context, ops[0]->key)->gcm256_dec, true);
}

// RFC 4543 section 3.3: the ESP header, the IV and the payload are authenticated, nothing is encrypted.
static void
gmac(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	IMB_MGR *mb = manager(context, ops[0]->key);
	bool many = powers_are_many(mb);

	for (unsigned i = 0; i < RTE_MIN(count, (unsigned)PREFETCH); i++)
		gcm_prefetch(ops[i], many);
	for (unsigned i = 0; i < count; i++) {
		struct crypto_op *op = ops[i];
		const struct gcm_key_data *key = (const struct gcm_key_data *)op->key->schedule;
		bool k128 = op->key->key_length == 16, k192 = op->key->key_length == 24;
		aes_gmac_init_t init = k128 ? mb->gmac128_init : k192 ? mb->gmac192_init : mb->gmac256_init;
		aes_gmac_update_t update = k128 ? mb->gmac128_update : k192 ? mb->gmac192_update : mb->gmac256_update;
		aes_gmac_finalize_t finalize = k128   ? mb->gmac128_finalize
					       : k192 ? mb->gmac192_finalize
						      : mb->gmac256_finalize;
		uint8_t nonce[16], own[CRYPTO_AAD_MAX + 4], tag[16];
		struct gcm_context_data state;
		unsigned aad_length;
		const uint8_t *aad = crypto_aad(op, own, &aad_length);

		if (i + PREFETCH < count)
			gcm_prefetch(ops[i + PREFETCH], many);
		crypto_nonce(op, nonce);
		init(key, &state, nonce, 12);
		if (aad_length)
			update(key, &state, aad, aad_length);
		update(key, &state, op->iv, 8);
		if (op->length)
			update(key, &state, op->data, op->length);
		finalize(key, &state, tag, op->key->icv_length);
		if (op->key->direction == CRYPTO_DECRYPT) {
			crypto_judge(op, tag);
			continue;
		}
		memcpy(op->icv, tag, op->key->icv_length);
		op->status = CRYPTO_OK;
	}
}

static void
chacha20_poly1305(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	IMB_MGR *mb = manager(context, ops[0]->key);

	for (unsigned i = 0; i < count; i++) {
		struct crypto_op *op = ops[i];
		bool decrypt = op->key->direction == CRYPTO_DECRYPT;
		struct chacha20_poly1305_context_data state;
		uint8_t nonce[16], own[CRYPTO_AAD_MAX + 4], tag[16];
		unsigned aad_length;
		const uint8_t *aad = crypto_aad(op, own, &aad_length), *key = op->key->schedule;

		if (i + PREFETCH < count)
			rte_prefetch0(ops[i + PREFETCH]->key->schedule);
		crypto_nonce(op, nonce);
		IMB_CHACHA20_POLY1305_INIT(mb, key, &state, nonce, aad, aad_length);
		if (decrypt)
			IMB_CHACHA20_POLY1305_DEC_UPDATE(mb, key, &state, op->data, op->data, op->length);
		else
			IMB_CHACHA20_POLY1305_ENC_UPDATE(mb, key, &state, op->data, op->data, op->length);
		IMB_CHACHA20_POLY1305_ENC_FINALIZE(mb, &state, tag, sizeof(tag));
		if (decrypt) {
			crypto_judge(op, tag);
			continue;
		}
		memcpy(op->icv, tag, sizeof(tag));
		op->status = CRYPTO_OK;
	}
}

// In `own` of an operation while its job is under way.
struct hmac_job {
	uint8_t counter[16]; // the first counter block of CTR
	uint8_t received[CRYPTO_ICV_MAX];
};

_Static_assert(sizeof(struct hmac_job) <= sizeof(((struct crypto_op *)0)->own), "a job's part fits");

static inline void
job_finish(const IMB_JOB *job)
{
	struct crypto_op *op = job->user_data;
	const struct hmac_job *own = (const struct hmac_job *)op->own;

	if (unlikely(job->status != IMB_STATUS_COMPLETED))
		op->status = CRYPTO_BAD_ENGINE;
	else if (op->key->direction == CRYPTO_DECRYPT)
		crypto_judge(op, own->received);
	else
		op->status = CRYPTO_OK;
}

// Extended sequence numbers: their high half is written behind the data, where the ICV goes, and hashed with it.
static inline void
job_fill(IMB_JOB *job, struct crypto_op *op)
{
	const struct hmac_key *key = (const struct hmac_key *)op->key->schedule;
	struct hmac_job *own = (struct hmac_job *)op->own;
	bool decrypt = op->key->direction == CRYPTO_DECRYPT;
	unsigned ahead = op->aad_length;

	if (decrypt)
		memcpy(own->received, op->icv, op->key->icv_length);
	if (op->esn)
		memcpy(op->icv, &op->esn_high, 4);
	job->enc_keys = key->rounds;
	job->dec_keys = key->rounds;
	job->key_len_in_bytes = op->key->key_length;
	job->src = op->aad;
	job->dst = op->data;
	job->cipher_start_src_offset_in_bytes = ahead;
	job->msg_len_to_cipher_in_bytes = op->length;
	job->hash_start_src_offset_in_bytes = 0;
	job->msg_len_to_hash_in_bytes = ahead + op->length + (op->esn ? 4 : 0);
	job->iv = op->iv;
	job->iv_len_in_bytes = 16;
	if (op->key->cipher == CRYPTO_AES_CTR) {
		crypto_nonce(op, own->counter);
		job->iv = own->counter;
	}
	job->auth_tag_output = op->icv;
	job->auth_tag_output_len_in_bytes = op->key->icv_length;
	job->u.HMAC._hashed_auth_key_xor_ipad = key->inner;
	job->u.HMAC._hashed_auth_key_xor_opad = key->outer;
	// Without a cipher, and for nothing to encrypt, there is no cipher's part.
	job->cipher_mode = op->length ? (IMB_CIPHER_MODE)key->cipher_mode : IMB_CIPHER_NULL;
	job->cipher_direction = decrypt ? IMB_DIR_DECRYPT : IMB_DIR_ENCRYPT;
	job->hash_alg = (IMB_HASH_ALG)key->hash;
	job->chain_order = decrypt ? IMB_ORDER_HASH_CIPHER : IMB_ORDER_CIPHER_HASH;
	job->user_data = op;
}

static void
hmac_jobs(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	IMB_MGR *mb = manager(context, ops[0]->key);
	IMB_JOB *job;

	for (unsigned i = 0; i < count; i++) {
		if (i + 2 < count)
			crypto_prefetch(ops[i + 2]->key, sizeof(struct hmac_key));
		job_fill(IMB_GET_NEXT_JOB(mb), ops[i]);
		for (job = IMB_SUBMIT_JOB_NOCHECK(mb); job; job = IMB_GET_COMPLETED_JOB(mb))
			job_finish(job);
	}
	while ((job = IMB_FLUSH_JOB(mb)))
		job_finish(job);
}

static void
sha_block(IMB_MGR *mb, enum crypto_integrity hash, const uint8_t *block, uint8_t *state)
{
	switch (hash) {
	case CRYPTO_HMAC_SHA1:
		IMB_SHA1_ONE_BLOCK(mb, block, state);
		break;
	case CRYPTO_HMAC_SHA256:
		IMB_SHA256_ONE_BLOCK(mb, block, state);
		break;
	case CRYPTO_HMAC_SHA384:
		IMB_SHA384_ONE_BLOCK(mb, block, state);
		break;
	default:
		IMB_SHA512_ONE_BLOCK(mb, block, state);
	}
}

static void
sha_whole(IMB_MGR *mb, enum crypto_integrity hash, const uint8_t *text, size_t length, uint8_t *digest)
{
	switch (hash) {
	case CRYPTO_HMAC_SHA1:
		IMB_SHA1(mb, text, length, digest);
		break;
	case CRYPTO_HMAC_SHA256:
		IMB_SHA256(mb, text, length, digest);
		break;
	case CRYPTO_HMAC_SHA384:
		IMB_SHA384(mb, text, length, digest);
		break;
	default:
		IMB_SHA512(mb, text, length, digest);
	}
}

static int
prepare_hmac(IMB_MGR *mb, struct crypto_key *key, const struct crypto_secret *s)
{
	static const uint32_t modes[] = {
		[CRYPTO_NULL] = IMB_CIPHER_NULL, [CRYPTO_AES_CBC] = IMB_CIPHER_CBC, [CRYPTO_AES_CTR] = IMB_CIPHER_CNTR};
	static const uint32_t hashes[] = {[CRYPTO_HMAC_SHA1] = IMB_AUTH_HMAC_SHA_1,
		[CRYPTO_HMAC_SHA256] = IMB_AUTH_HMAC_SHA_256,
		[CRYPTO_HMAC_SHA384] = IMB_AUTH_HMAC_SHA_384,
		[CRYPTO_HMAC_SHA512] = IMB_AUTH_HMAC_SHA_512};
	struct hmac_key *k = (struct hmac_key *)key->schedule;
	uint8_t padded[128] = {0}, block[128], other[15 * 16] __attribute__((aligned(16)));
	size_t block_length = s->integrity >= CRYPTO_HMAC_SHA384 ? 128 : 64;
	bool inverse = s->cipher == CRYPTO_AES_CBC && s->direction == CRYPTO_DECRYPT;
	uint8_t *forward = inverse ? other : k->rounds, *backward = inverse ? k->rounds : other;

	if (s->integrity_key_length > block_length)
		sha_whole(mb, s->integrity, s->integrity_key, s->integrity_key_length, padded);
	else
		memcpy(padded, s->integrity_key, s->integrity_key_length);
	for (size_t i = 0; i < block_length; i++)
		block[i] = padded[i] ^ 0x36;
	sha_block(mb, s->integrity, block, k->inner);
	for (size_t i = 0; i < block_length; i++)
		block[i] = padded[i] ^ 0x5c;
	sha_block(mb, s->integrity, block, k->outer);
	if (s->key_length == 16)
		IMB_AES_KEYEXP_128(mb, s->key, forward, backward);
	else if (s->key_length == 24)
		IMB_AES_KEYEXP_192(mb, s->key, forward, backward);
	else if (s->key_length == 32)
		IMB_AES_KEYEXP_256(mb, s->key, forward, backward);
	k->cipher_mode = modes[s->cipher];
	k->hash = hashes[s->integrity];
	key->run = hmac_jobs;
	explicit_bzero(padded, sizeof(padded));
	explicit_bzero(block, sizeof(block));
	explicit_bzero(other, sizeof(other));
	return 0;
}

static int
prepare(struct crypto_key *key, const struct crypto_secret *s)
{
	static const crypto_run_fn runs[3][2] = {
		{gcm128_encrypt, gcm128_decrypt}, {gcm192_encrypt, gcm192_decrypt}, {gcm256_encrypt, gcm256_decrypt}};
	IMB_MGR *mb = manager(crypto_context_of(worker_count), key);
	struct gcm_key_data *gcm_key = (struct gcm_key_data *)key->schedule;

	if (s->integrity != CRYPTO_NO_INTEGRITY)
		return prepare_hmac(mb, key, s);
	if (s->cipher == CRYPTO_CHACHA20_POLY1305) {
		memcpy(key->schedule, s->key, 32);
		key->run = chacha20_poly1305;
		return 0;
	}
	if (s->key_length == 16)
		IMB_AES128_GCM_PRE(mb, s->key, gcm_key);
	else if (s->key_length == 24)
		IMB_AES192_GCM_PRE(mb, s->key, gcm_key);
	else
		IMB_AES256_GCM_PRE(mb, s->key, gcm_key);
	key->run = s->cipher == CRYPTO_AES_GMAC ? gmac : runs[s->key_length / 8 - 2][s->direction];
	return 0;
}

static void
stop_one(struct crypto_context *context, unsigned which)
{
	free_mb_mgr(context->mb[which]);
	context->mb[which] = NULL;
}

static int
start_one(struct crypto_context *context, unsigned which)
{
	IMB_MGR *mb = alloc_mb_mgr(0);
	IMB_ARCH arch;

	context->mb[which] = mb;
	if (!mb)
		return -ENOMEM;
	if (which == SSE)
		init_mb_mgr_sse(mb);
	else
		init_mb_mgr_auto(mb, &arch);
	if (imb_get_errno(mb)) {
		stop_one(context, which);
		return -ENOTSUP;
	}
	return 0;
}

static void
stop(struct crypto_context *context)
{
	stop_one(context, WIDEST);
}

static int
start(struct crypto_context *context)
{
	return start_one(context, WIDEST);
}

static void
stop_sse(struct crypto_context *context)
{
	stop_one(context, SSE);
}

static int
start_sse(struct crypto_context *context)
{
	return start_one(context, SSE);
}

#define NEEDS (UINT64_C(1) << CPU_SSE4_2 | UINT64_C(1) << CPU_AES | UINT64_C(1) << CPU_PCLMULQDQ)

const struct crypto_engine crypto_ipsec_mb = {
	.name = "ipsec-mb",
	.needs = NEEDS,
	.serves = serves,
	.schedule_size = schedule_size,
	.prepare = prepare,
	.start = start,
	.stop = stop,
};
// The library's code for AVX2 has no SHA-NI, which is faster than eight lanes of SHA-1 or SHA-256 on many CPUs.
const struct crypto_engine crypto_ipsec_mb_sse = {
	.name = "ipsec-mb-sse",
	.needs = NEEDS,
	.serves = serves,
	.schedule_size = schedule_size,
	.prepare = prepare,
	.start = start_sse,
	.stop = stop_sse,
};
