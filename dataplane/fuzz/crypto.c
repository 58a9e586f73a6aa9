// SPDX-License-Identifier: Apache-2.0
// libFuzzer over the crypto engine: an input is a batch of operations with any lengths, alignment and keys. Every engine runs the batch. All of them must
// have the same status and the same bytes for each operation, refuse a packet with a flipped bit, and change nothing beside the packet.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crypto/engine.h"
#include "machine.h"

enum {
	BYTES = 8, // of an input, for one operation
	OPS = 24,
	ENGINES = 16,
	KEYS = 2, // of an algorithm
	GUARD = 64,
	LENGTH_LIMIT = 2100, // of the data
	AAD_LIMIT = 80,      // beyond CRYPTO_AAD_MAX
	ROOM = GUARD + 64 + AAD_LIMIT + CRYPTO_IV_MAX + LENGTH_LIMIT + CRYPTO_ICV_MAX + GUARD,
};

enum {
	WITH_ESN = 1 << 0,
	FLIPPED = 1 << 1,
	ANY_LENGTH = 1 << 2, // also one that is no multiple of the cipher's block
	OTHER_KEY = 1 << 3,
};

static const struct algorithm {
	enum crypto_cipher cipher;
	uint8_t key_length;
	enum crypto_integrity integrity;
	uint8_t icv_length;
} algorithms[] = {
	{CRYPTO_AES_GCM, 16, CRYPTO_NO_INTEGRITY, 16},
	{CRYPTO_AES_GCM, 16, CRYPTO_NO_INTEGRITY, 12},
	{CRYPTO_AES_GCM, 16, CRYPTO_NO_INTEGRITY, 8},
	{CRYPTO_AES_GCM, 24, CRYPTO_NO_INTEGRITY, 16},
	{CRYPTO_AES_GCM, 32, CRYPTO_NO_INTEGRITY, 16},
	{CRYPTO_AES_GCM, 32, CRYPTO_NO_INTEGRITY, 8},
	{CRYPTO_AES_GMAC, 16, CRYPTO_NO_INTEGRITY, 16},
	{CRYPTO_AES_GMAC, 24, CRYPTO_NO_INTEGRITY, 16},
	{CRYPTO_AES_GMAC, 32, CRYPTO_NO_INTEGRITY, 16},
	{CRYPTO_CHACHA20_POLY1305, 32, CRYPTO_NO_INTEGRITY, 16},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA1, 12},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA256, 16},
	{CRYPTO_AES_CBC, 24, CRYPTO_HMAC_SHA384, 24},
	{CRYPTO_AES_CBC, 32, CRYPTO_HMAC_SHA512, 32},
	{CRYPTO_AES_CBC, 32, CRYPTO_HMAC_SHA256, 32},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA512, 32},
	{CRYPTO_AES_CTR, 16, CRYPTO_HMAC_SHA1, 12},
	{CRYPTO_AES_CTR, 24, CRYPTO_HMAC_SHA256, 16},
	{CRYPTO_AES_CTR, 32, CRYPTO_HMAC_SHA384, 24},
	{CRYPTO_AES_CTR, 32, CRYPTO_HMAC_SHA512, 32},
	{CRYPTO_NULL, 0, CRYPTO_HMAC_SHA1, 12},
	{CRYPTO_NULL, 0, CRYPTO_HMAC_SHA256, 16},
	{CRYPTO_NULL, 0, CRYPTO_HMAC_SHA384, 24},
	{CRYPTO_NULL, 0, CRYPTO_HMAC_SHA512, 32},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA512, 16},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SHA1, 10},
	{CRYPTO_NULL, 0, CRYPTO_HMAC_SM3, 16},
	{CRYPTO_SM4_CBC, 16, CRYPTO_HMAC_SM3, 16},
	{CRYPTO_SM4_CBC, 16, CRYPTO_HMAC_SM3, 32},
	{CRYPTO_SM4_CBC, 16, CRYPTO_HMAC_SHA256, 16},
	{CRYPTO_AES_CBC, 16, CRYPTO_HMAC_SM3, 16},
	{CRYPTO_SM4_GCM, 16, CRYPTO_NO_INTEGRITY, 16},
	{CRYPTO_SM4_GCM, 16, CRYPTO_NO_INTEGRITY, 8},
	{CRYPTO_SM4_CCM, 16, CRYPTO_NO_INTEGRITY, 16},
	{CRYPTO_SM4_CCM, 16, CRYPTO_NO_INTEGRITY, 12},
	{CRYPTO_SM4_CCM, 16, CRYPTO_NO_INTEGRITY, 8},
};

static struct crypto_key *keys[ENGINES][RTE_DIM(algorithms)][KEYS][2];
static const struct crypto_engine *engines[ENGINES];
static unsigned engine_count;

static struct sample {
	unsigned algorithm, key;
	unsigned start, aad, iv, length, icv; // bytes
	bool esn, flip;
	uint32_t esn_high;
	unsigned flip_at; // from the start
	// The result of the first engine: the status of the encryption and its output.
	bool has_result;
	uint8_t status;
	uint8_t plain[ROOM], sealed[ROOM], work[ROOM];
} packets[OPS];

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static uint32_t
next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33);
}

static void
fill(uint8_t *bytes, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)next_random(&seed);
}

static void
make_keys(unsigned engine, unsigned a, unsigned k)
{
	const struct algorithm *algorithm = &algorithms[a];
	uint8_t bytes[32], salt[4], integrity[CRYPTO_INTEGRITY_KEY_MAX];
	bool stream = crypto_block_length(algorithm->cipher) == 1 && algorithm->cipher != CRYPTO_NULL;
	struct crypto_secret secret = {.cipher = algorithm->cipher,
		.integrity = algorithm->integrity,
		.key = bytes,
		.key_length = algorithm->key_length,
		.salt = salt,
		.salt_length = !stream                               ? 0
			       : algorithm->cipher == CRYPTO_SM4_CCM ? 3 + k
								     : 4,
		.integrity_key = integrity,
		.integrity_key_length = !algorithm->integrity ? 0
					: k                   ? CRYPTO_INTEGRITY_KEY_MAX
							      : 20,
		.icv_length = algorithm->icv_length};

	fill(bytes, sizeof(bytes), 3 * a + k);
	fill(salt, sizeof(salt), 5 * a + k);
	fill(integrity, sizeof(integrity), 7 * a + k);
	for (unsigned d = 0; d < 2; d++) {
		secret.direction = d ? CRYPTO_DECRYPT : CRYPTO_ENCRYPT;
		if (crypto_key_new_by(engines[engine], &secret, &keys[engine][a][k][d]))
			keys[engine][a][k][d] = NULL;
	}
}

int
LLVMFuzzerInitialize(int *count, char ***arguments)
{
	machine_start();
	for (unsigned e = 0; crypto_engine_at(e) && engine_count < ENGINES; e++)
		if (crypto_engine_at(e) != &crypto_device) // it needs packets of a device
			engines[engine_count++] = crypto_engine_at(e);
	for (unsigned e = 0; e < engine_count; e++)
		for (unsigned a = 0; a < RTE_DIM(algorithms); a++)
			for (unsigned k = 0; k < KEYS; k++)
				make_keys(e, a, k);
	return 0;
}

static void
wrong(unsigned engine, unsigned number, const char *what)
{
	const struct sample *p = &packets[number];
	const struct algorithm *a = &algorithms[p->algorithm];

	fprintf(stderr,
		"engine %s, operation %u: %s (cipher %d with %d bytes of key, integrity %d, ICV %u; at %u: AAD %u, IV "
		"%u, data %u)\n",
		engines[engine]->name, number, what, (int)a->cipher, a->key_length, (int)a->integrity, p->icv, p->start,
		p->aad, p->iv, p->length);
	abort();
}

static void
read_packet(struct sample *p, const uint8_t *b)
{
	const struct algorithm *a;
	unsigned block, bytes;

	p->algorithm = b[0] % RTE_DIM(algorithms);
	a = &algorithms[p->algorithm];
	block = crypto_block_length(a->cipher);
	p->key = (b[1] & OTHER_KEY) != 0;
	p->esn = b[1] & WITH_ESN;
	p->esn_high = b[1] * 0x01010101u;
	p->start = GUARD + b[2] % 64;
	p->length = (b[3] | b[4] << 8) % LENGTH_LIMIT;
	if (!(b[1] & ANY_LENGTH))
		p->length = p->length / block * block;
	p->aad = b[5] % AAD_LIMIT;
	p->iv = crypto_iv_length(a->cipher);
	p->icv = a->icv_length;
	bytes = p->aad + p->iv + p->length + p->icv;
	p->flip = b[1] & FLIPPED;
	p->flip_at = p->start + (b[6] | b[7] << 8) % bytes;
	p->has_result = false;
	fill(p->plain, ROOM, b[6] + 256u * b[7]);
}

static void
write_op(struct sample *p, struct crypto_op *op, struct crypto_key *key)
{
	uint8_t *at = p->work + p->start;

	*op = (struct crypto_op){.key = key,
		.aad = at,
		// HMAC covers the IV as well.
		.aad_length = (uint16_t)(p->aad + (algorithms[p->algorithm].integrity ? p->iv : 0)),
		.iv = at + p->aad,
		.data = at + p->aad + p->iv,
		.length = p->length,
		.icv = at + p->aad + p->iv + p->length,
		.esn = p->esn,
		.esn_high = p->esn_high};
}

static void
check_sealed(unsigned engine, unsigned number, uint8_t status)
{
	struct sample *p = &packets[number];

	if (!p->has_result) {
		p->has_result = true;
		p->status = status;
		memcpy(p->sealed, p->work, ROOM);
		if (status != CRYPTO_OK && status != CRYPTO_BAD_LENGTH)
			wrong(engine, number, "an encryption fails");
	}
	if (status != p->status)
		wrong(engine, number, "another status than by the first engine");
	if (memcmp(p->work, status == CRYPTO_OK ? p->sealed : p->plain, ROOM) != 0)
		wrong(engine, number, "other bytes than by the first engine, or bytes beside the packet");
}

static void
check_opened(unsigned engine, unsigned number, uint8_t status)
{
	struct sample *p = &packets[number];
	unsigned data = p->start + p->aad + p->iv, end = data + p->length + p->icv;
	bool flipped = p->flip && p->status == CRYPTO_OK;

	if (status != (flipped ? CRYPTO_BAD_ICV : p->status))
		wrong(engine, number, flipped ? "a flipped bit is accepted" : "a decryption fails");
	if (status == CRYPTO_OK && memcmp(p->work + data, p->plain + data, p->length) != 0)
		wrong(engine, number, "the decryption has other bytes than the plaintext");
	if (flipped)
		p->sealed[p->flip_at] ^= 1;
	if (memcmp(p->work, p->sealed, data) != 0 || memcmp(p->work + end, p->sealed + end, ROOM - end) != 0)
		wrong(engine, number, "a decryption changes bytes beside data and ICV");
	if (flipped)
		p->sealed[p->flip_at] ^= 1;
}

// All packets that the engine serves, in one batch.
static void
run(unsigned engine, unsigned count, enum crypto_direction direction)
{
	static struct crypto_op ops[OPS];
	unsigned numbers[OPS], n = 0;

	for (unsigned i = 0; i < count; i++) {
		struct sample *p = &packets[i];
		struct crypto_key *key = keys[engine][p->algorithm][p->key][direction];

		if (!key)
			continue;
		memcpy(p->work, direction == CRYPTO_DECRYPT ? p->sealed : p->plain, ROOM);
		if (direction == CRYPTO_DECRYPT && p->flip && p->status == CRYPTO_OK)
			p->work[p->flip_at] ^= 1;
		numbers[n] = i;
		write_op(p, &ops[n++], key);
	}
	crypto_run(0, ops, n);
	for (unsigned i = 0; i < n; i++)
		if (direction == CRYPTO_ENCRYPT)
			check_sealed(engine, numbers[i], ops[i].status);
		else
			check_opened(engine, numbers[i], ops[i].status);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	unsigned count = (unsigned)RTE_MIN(length / BYTES, (size_t)OPS);

	for (unsigned i = 0; i < count; i++)
		read_packet(&packets[i], bytes + i * BYTES);
	for (unsigned e = 0; e < engine_count; e++)
		run(e, count, CRYPTO_ENCRYPT);
	for (unsigned e = 0; e < engine_count; e++)
		run(e, count, CRYPTO_DECRYPT);
	return 0;
}
