// SPDX-License-Identifier: Apache-2.0
// OpenSSL: every algorithm that it has, packet by packet. Each worker has a cipher context of its own for each key, made when the key
// is, since a context holds the key and the state of a packet. EVP's HMAC allocates for each packet: SHA's own contexts do not.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <errno.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/sha.h>

#include "crypto/engine.h"

enum { SM3_BLOCK = 64, DIGEST_MAX = 64 };

union sha {
	SHA_CTX sha1;
	SHA256_CTX sha256;
	SHA512_CTX sha512;
};

struct openssl_key {
	EVP_CIPHER_CTX **ciphers; // by worker; NULL: no cipher
	EVP_MD_CTX **digests;     // by worker; SM3 alone
	union {
		union sha sha[2];             // after the padded key: inner, outer
		uint8_t padded[2][SM3_BLOCK]; // SM3: the padded key
	};
	void *contexts[]; // the targets of `ciphers` and `digests`
};

static void
sha_init(enum crypto_integrity hash, union sha *c)
{
	switch (hash) {
	case CRYPTO_HMAC_SHA1:
		SHA1_Init(&c->sha1);
		break;
	case CRYPTO_HMAC_SHA256:
		SHA256_Init(&c->sha256);
		break;
	case CRYPTO_HMAC_SHA384:
		SHA384_Init(&c->sha512);
		break;
	default:
		SHA512_Init(&c->sha512);
	}
}

static void
sha_update(enum crypto_integrity hash, union sha *c, const void *text, size_t length)
{
	switch (hash) {
	case CRYPTO_HMAC_SHA1:
		SHA1_Update(&c->sha1, text, length);
		break;
	case CRYPTO_HMAC_SHA256:
		SHA256_Update(&c->sha256, text, length);
		break;
	default:
		SHA512_Update(&c->sha512, text, length);
	}
}

// The digest's length.
static unsigned
sha_final(enum crypto_integrity hash, union sha *c, uint8_t digest[DIGEST_MAX])
{
	switch (hash) {
	case CRYPTO_HMAC_SHA1:
		SHA1_Final(digest, &c->sha1);
		return 20;
	case CRYPTO_HMAC_SHA256:
		SHA256_Final(digest, &c->sha256);
		return 32;
	case CRYPTO_HMAC_SHA384:
		SHA384_Final(digest, &c->sha512);
		return 48;
	default:
		SHA512_Final(digest, &c->sha512);
		return 64;
	}
}

static bool
hmac_sha(const struct openssl_key *key, const struct crypto_op *op, uint8_t digest[DIGEST_MAX])
{
	enum crypto_integrity hash = op->key->integrity;
	union sha c = key->sha[0];
	unsigned length;

	sha_update(hash, &c, op->aad, op->aad_length + op->length);
	if (op->esn)
		sha_update(hash, &c, &op->esn_high, 4);
	length = sha_final(hash, &c, digest);
	c = key->sha[1];
	sha_update(hash, &c, digest, length);
	sha_final(hash, &c, digest);
	explicit_bzero(&c, sizeof(c));
	return true;
}

static bool
hmac_sm3(const struct openssl_key *key, EVP_MD_CTX *c, const struct crypto_op *op, uint8_t digest[DIGEST_MAX])
{
	unsigned length;

	return EVP_DigestInit_ex(c, NULL, NULL) && EVP_DigestUpdate(c, key->padded[0], SM3_BLOCK) &&
	       EVP_DigestUpdate(c, op->aad, op->aad_length + op->length) &&
	       (!op->esn || EVP_DigestUpdate(c, &op->esn_high, 4)) && EVP_DigestFinal_ex(c, digest, &length) &&
	       EVP_DigestInit_ex(c, NULL, NULL) && EVP_DigestUpdate(c, key->padded[1], SM3_BLOCK) &&
	       EVP_DigestUpdate(c, digest, length) && EVP_DigestFinal_ex(c, digest, &length);
}

static bool
cipher_data(EVP_CIPHER_CTX *c, const struct crypto_op *op)
{
	uint8_t nonce[16];
	const uint8_t *iv = op->iv;
	int n;

	if (!c || op->length == 0)
		return true;
	if (op->key->cipher == CRYPTO_AES_CTR) {
		crypto_nonce(op, nonce);
		iv = nonce;
	}
	return EVP_CipherInit_ex(c, NULL, NULL, NULL, iv, -1) &&
	       EVP_CipherUpdate(c, op->data, &n, op->data, (int)op->length);
}

static void
hmac(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct crypto_op *op = ops[i];
		const struct openssl_key *key = (const struct openssl_key *)op->key->schedule;
		EVP_CIPHER_CTX *cipher = key->ciphers ? key->ciphers[context->worker] : NULL;
		bool encrypt = op->key->direction == CRYPTO_ENCRYPT, done = !encrypt || cipher_data(cipher, op);
		uint8_t digest[DIGEST_MAX];

		done = done && (key->digests ? hmac_sm3(key, key->digests[context->worker], op, digest)
					     : hmac_sha(key, op, digest));
		if (!done) {
			op->status = CRYPTO_BAD_ENGINE;
		} else if (encrypt) {
			memcpy(op->icv, digest, op->key->icv_length);
			op->status = CRYPTO_OK;
		} else {
			crypto_judge(op, digest);
			if (op->status == CRYPTO_OK && !cipher_data(cipher, op))
				op->status = CRYPTO_BAD_ENGINE;
		}
	}
}

static enum crypto_status
aead_one(EVP_CIPHER_CTX *c, struct crypto_op *op)
{
	bool gmac = op->key->cipher == CRYPTO_AES_GMAC, decrypt = op->key->direction == CRYPTO_DECRYPT;
	uint8_t nonce[16], own[CRYPTO_AAD_MAX + 4], rest[16];
	unsigned aad_length;
	const uint8_t *aad = crypto_aad(op, own, &aad_length);
	int n;

	crypto_nonce(op, nonce);
	if (!EVP_CipherInit_ex(c, NULL, NULL, NULL, nonce, -1) ||
		(aad_length && !EVP_CipherUpdate(c, NULL, &n, aad, (int)aad_length)) ||
		(gmac && !EVP_CipherUpdate(c, NULL, &n, op->iv, 8)) ||
		(op->length && !EVP_CipherUpdate(c, gmac ? NULL : op->data, &n, op->data, (int)op->length)))
		return CRYPTO_BAD_ENGINE;
	if (decrypt) {
		if (!EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, op->key->icv_length, op->icv))
			return CRYPTO_BAD_ENGINE;
		return EVP_CipherFinal_ex(c, rest, &n) > 0 ? CRYPTO_OK : CRYPTO_BAD_ICV;
	}
	if (!EVP_CipherFinal_ex(c, rest, &n) ||
		!EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, op->key->icv_length, op->icv))
		return CRYPTO_BAD_ENGINE;
	return CRYPTO_OK;
}

static void
aead(struct crypto_context *context, struct crypto_op **ops, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		const struct openssl_key *key = (const struct openssl_key *)ops[i]->key->schedule;

		ops[i]->status = (uint8_t)aead_one(key->ciphers[context->worker], ops[i]);
	}
}

static const char *
cipher_name(enum crypto_cipher cipher, size_t key_length)
{
	bool k16 = key_length == 16, k24 = key_length == 24;

	switch (cipher) {
	case CRYPTO_AES_CBC:
		return k16 ? "AES-128-CBC" : k24 ? "AES-192-CBC" : "AES-256-CBC";
	case CRYPTO_AES_CTR:
		return k16 ? "AES-128-CTR" : k24 ? "AES-192-CTR" : "AES-256-CTR";
	case CRYPTO_AES_GCM:
	case CRYPTO_AES_GMAC:
		return k16 ? "AES-128-GCM" : k24 ? "AES-192-GCM" : "AES-256-GCM";
	case CRYPTO_CHACHA20_POLY1305:
		return "ChaCha20-Poly1305";
	case CRYPTO_SM4_CBC:
		return "SM4-CBC";
	case CRYPTO_SM4_GCM:
		return "SM4-GCM"; // since OpenSSL 3.1
	default:
		return NULL;
	}
}

static bool
serves(const struct crypto_secret *s)
{
	return s->cipher == CRYPTO_NULL || cipher_name(s->cipher, s->key_length);
}

static size_t
schedule_size(const struct crypto_secret *s)
{
	const char *name = cipher_name(s->cipher, s->key_length);
	EVP_CIPHER *cipher;

	if (name) {
		cipher = EVP_CIPHER_fetch(NULL, name, NULL);
		EVP_CIPHER_free(cipher);
		if (!cipher)
			return 0;
	}
	return sizeof(struct openssl_key) + 2 * (worker_count + 1) * sizeof(void *);
}

static void
release(struct crypto_key *key)
{
	struct openssl_key *k = (struct openssl_key *)key->schedule;

	for (unsigned w = 0; w <= worker_count; w++) {
		if (k->ciphers)
			EVP_CIPHER_CTX_free(k->ciphers[w]);
		if (k->digests)
			EVP_MD_CTX_free(k->digests[w]);
	}
}

static int
prepare_cipher(struct openssl_key *k, const struct crypto_secret *s)
{
	const char *name = cipher_name(s->cipher, s->key_length);
	EVP_CIPHER *cipher = name ? EVP_CIPHER_fetch(NULL, name, NULL) : NULL;
	int error = name && !cipher ? -ENOTSUP : 0;

	if (!cipher)
		return error;
	k->ciphers = (EVP_CIPHER_CTX **)k->contexts;
	for (unsigned w = 0; w <= worker_count && !error; w++) {
		EVP_CIPHER_CTX *c = k->ciphers[w] = EVP_CIPHER_CTX_new();

		if (!c || !EVP_CipherInit_ex(c, cipher, NULL, s->key, NULL, s->direction == CRYPTO_ENCRYPT) ||
			!EVP_CIPHER_CTX_set_padding(c, 0))
			error = -ENOMEM;
	}
	EVP_CIPHER_free(cipher);
	return error;
}

static int
prepare_sm3(struct openssl_key *k, const struct crypto_secret *s)
{
	EVP_MD *md = EVP_MD_fetch(NULL, "SM3", NULL);
	int error = md ? 0 : -ENOTSUP;

	k->digests = (EVP_MD_CTX **)&k->contexts[worker_count + 1];
	for (unsigned w = 0; w <= worker_count && !error; w++) {
		k->digests[w] = EVP_MD_CTX_new();
		if (!k->digests[w] || !EVP_DigestInit_ex(k->digests[w], md, NULL))
			error = -ENOMEM;
	}
	if (!error && s->integrity_key_length > SM3_BLOCK &&
		!EVP_Digest(s->integrity_key, s->integrity_key_length, k->padded[0], NULL, md, NULL))
		error = -ENOMEM;
	if (s->integrity_key_length <= SM3_BLOCK)
		memcpy(k->padded[0], s->integrity_key, s->integrity_key_length);
	for (unsigned i = 0; i < SM3_BLOCK; i++) {
		k->padded[1][i] = k->padded[0][i] ^ 0x5c;
		k->padded[0][i] ^= 0x36;
	}
	EVP_MD_free(md);
	return error;
}

static void
prepare_sha(struct openssl_key *k, const struct crypto_secret *s)
{
	unsigned block = s->integrity >= CRYPTO_HMAC_SHA384 ? 128 : 64;
	uint8_t padded[128] = {0};

	if (s->integrity_key_length > block) {
		sha_init(s->integrity, &k->sha[0]);
		sha_update(s->integrity, &k->sha[0], s->integrity_key, s->integrity_key_length);
		sha_final(s->integrity, &k->sha[0], padded);
	} else {
		memcpy(padded, s->integrity_key, s->integrity_key_length);
	}
	for (unsigned i = 0; i < block; i++)
		padded[i] ^= 0x36;
	sha_init(s->integrity, &k->sha[0]);
	sha_update(s->integrity, &k->sha[0], padded, block);
	for (unsigned i = 0; i < block; i++)
		padded[i] ^= 0x36 ^ 0x5c;
	sha_init(s->integrity, &k->sha[1]);
	sha_update(s->integrity, &k->sha[1], padded, block);
	explicit_bzero(padded, sizeof(padded));
}

static int
prepare(struct crypto_key *key, const struct crypto_secret *s)
{
	struct openssl_key *k = (struct openssl_key *)key->schedule;
	int error = prepare_cipher(k, s);

	key->run = s->integrity == CRYPTO_NO_INTEGRITY ? aead : hmac;
	if (!error && s->integrity == CRYPTO_HMAC_SM3)
		error = prepare_sm3(k, s);
	else if (!error && s->integrity != CRYPTO_NO_INTEGRITY)
		prepare_sha(k, s);
	if (error)
		release(key);
	return error;
}

const struct crypto_engine crypto_openssl = {
	.name = "openssl",
	.serves = serves,
	.schedule_size = schedule_size,
	.prepare = prepare,
	.release = release,
};
