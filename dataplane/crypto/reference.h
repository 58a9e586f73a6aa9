// SPDX-License-Identifier: Apache-2.0
// For unit tests: the expected packet, by OpenSSL's ciphers and digests, written close to the documents and not for
// speed.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "crypto/crypto.h"

static inline void
reference_check(bool ok)
{
	if (!ok)
		abort();
}

// A stream or CBC without padding, in place.
static inline void
reference_cipher(const EVP_CIPHER *cipher, const uint8_t *key, const uint8_t *iv, uint8_t *data, unsigned length)
{
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	int n;

	reference_check(EVP_EncryptInit_ex(c, cipher, NULL, key, iv) == 1);
	EVP_CIPHER_CTX_set_padding(c, 0);
	reference_check(length == 0 || EVP_EncryptUpdate(c, data, &n, data, (int)length) == 1);
	EVP_CIPHER_CTX_free(c);
}

static inline const EVP_CIPHER *
reference_aes(const struct crypto_secret *s)
{
	bool k16 = s->key_length == 16, k24 = s->key_length == 24;

	switch (s->cipher) {
	case CRYPTO_AES_CBC:
		return k16 ? EVP_aes_128_cbc() : k24 ? EVP_aes_192_cbc() : EVP_aes_256_cbc();
	case CRYPTO_AES_CTR:
		return k16 ? EVP_aes_128_ctr() : k24 ? EVP_aes_192_ctr() : EVP_aes_256_ctr();
	case CRYPTO_CHACHA20_POLY1305:
		return EVP_chacha20_poly1305();
	case CRYPTO_SM4_CBC:
		return EVP_sm4_cbc();
	default:
		return k16 ? EVP_aes_128_gcm() : k24 ? EVP_aes_192_gcm() : EVP_aes_256_gcm();
	}
}

static inline void
reference_aead(const EVP_CIPHER *cipher, const uint8_t *key, const uint8_t nonce[12], const uint8_t *aad,
	unsigned aad_length, uint8_t *data, unsigned length, uint8_t tag[16])
{
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	uint8_t rest[16];
	int n;

	reference_check(EVP_EncryptInit_ex(c, cipher, NULL, key, nonce) == 1);
	reference_check(aad_length == 0 || EVP_EncryptUpdate(c, NULL, &n, aad, (int)aad_length) == 1);
	reference_check(length == 0 || EVP_EncryptUpdate(c, data, &n, data, (int)length) == 1);
	reference_check(EVP_EncryptFinal_ex(c, rest, &n) == 1);
	reference_check(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, 16, tag) == 1);
	EVP_CIPHER_CTX_free(c);
}

static inline void
reference_sm4(const uint8_t *key, uint8_t block[16])
{
	reference_cipher(EVP_sm4_ecb(), key, NULL, block, 16);
}

// NIST SP 800-38D section 6.3, algorithm 1, bit by bit.
static inline void
reference_multiply(uint8_t x[16], const uint8_t h[16])
{
	uint8_t z[16] = {0}, v[16];

	memcpy(v, h, 16);
	for (unsigned bit = 0; bit < 128; bit++) {
		bool last = v[15] & 1;

		for (unsigned i = 0; x[bit / 8] >> (7 - bit % 8) & 1 && i < 16; i++)
			z[i] ^= v[i];
		for (unsigned i = 15; i > 0; i--)
			v[i] = (uint8_t)(v[i] >> 1 | v[i - 1] << 7);
		v[0] >>= 1;
		v[0] ^= last ? 0xe1 : 0;
	}
	memcpy(x, z, 16);
}

static inline void
reference_hash(uint8_t y[16], const uint8_t h[16], const uint8_t *text, unsigned length)
{
	for (unsigned i = 0; i < length; i++) {
		y[i % 16] ^= text[i];
		if (i % 16 == 15 || i + 1 == length)
			reference_multiply(y, h);
	}
}

// OpenSSL 3.0 has no SM4-GCM: algorithm 4 of the same document, over its SM4.
static inline void
reference_sm4_gcm(const uint8_t *key, const uint8_t nonce[12], const uint8_t *aad, unsigned aad_length, uint8_t *data,
	unsigned length, uint8_t tag[16])
{
	uint8_t h[16] = {0}, counter[16] = {0}, bits[16] = {0};

	reference_sm4(key, h);
	memcpy(counter, nonce, 12);
	counter[15] = 2;
	reference_cipher(EVP_sm4_ctr(), key, counter, data, length);
	memset(tag, 0, 16);
	reference_hash(tag, h, aad, aad_length);
	reference_hash(tag, h, data, length);
	for (unsigned i = 0; i < 4; i++) {
		bits[7 - i] = (uint8_t)(aad_length * 8 >> 8 * i);
		bits[15 - i] = (uint8_t)(length * 8 >> 8 * i);
	}
	reference_hash(tag, h, bits, 16);
	counter[15] = 1;
	reference_sm4(key, counter);
	for (unsigned i = 0; i < 16; i++)
		tag[i] ^= counter[i];
}

// RFC 3610.
static inline void
reference_sm4_ccm(const uint8_t *key, const uint8_t *nonce, unsigned nonce_length, const uint8_t *aad,
	unsigned aad_length, uint8_t *data, unsigned length, uint8_t *tag, unsigned tag_length)
{
	uint8_t mac[16] = {0}, block[16] = {0};
	unsigned l = 15 - nonce_length;

	mac[0] = (uint8_t)((aad_length > 0) << 6 | (tag_length - 2) / 2 << 3 | (l - 1));
	memcpy(mac + 1, nonce, nonce_length);
	for (unsigned i = 0; i < l; i++)
		mac[15 - i] = (uint8_t)(length >> 8 * i);
	reference_sm4(key, mac);
	for (unsigned i = 0; aad_length > 0 && i < aad_length + 2; i++) {
		mac[i % 16] ^= i == 0 ? (uint8_t)(aad_length >> 8) : i == 1 ? (uint8_t)aad_length : aad[i - 2];
		if (i % 16 == 15 || i + 1 == aad_length + 2)
			reference_sm4(key, mac);
	}
	for (unsigned i = 0; i < length; i++) {
		mac[i % 16] ^= data[i];
		if (i % 16 == 15 || i + 1 == length)
			reference_sm4(key, mac);
	}
	block[0] = (uint8_t)(l - 1);
	memcpy(block + 1, nonce, nonce_length);
	reference_cipher(EVP_sm4_ctr(), key, block, mac, 16);
	memcpy(tag, mac, tag_length);
	block[15] = 1;
	reference_cipher(EVP_sm4_ctr(), key, block, data, length);
}

static inline const EVP_MD *
reference_digest(enum crypto_integrity integrity)
{
	switch (integrity) {
	case CRYPTO_HMAC_SHA1:
		return EVP_sha1();
	case CRYPTO_HMAC_SHA256:
		return EVP_sha256();
	case CRYPTO_HMAC_SHA384:
		return EVP_sha384();
	case CRYPTO_HMAC_SHA512:
		return EVP_sha512();
	default:
		return EVP_sm3();
	}
}

// RFC 4303 section 3.3.2: header, IV and data in a row, in place; the ICV behind them.
static inline void
reference_seal(const struct crypto_secret *s, uint8_t *packet, unsigned header, unsigned iv_length, unsigned length,
	bool esn, uint32_t esn_high)
{
	static uint8_t text[1 << 17];
	uint8_t *iv = packet + header, *data = iv + iv_length, nonce[16] = {0}, tag[EVP_MAX_MD_SIZE];
	unsigned n = 0, tag_length;

	if (s->integrity == CRYPTO_NO_INTEGRITY) {
		memcpy(nonce, s->salt, s->salt_length);
		memcpy(nonce + s->salt_length, iv, 8);
		memcpy(text, packet, header < 4 ? header : 4);
		n = header < 4 ? header : 4;
		if (esn) {
			memcpy(text + n, &esn_high, 4);
			n += 4;
		}
		if (header > 4) {
			memcpy(text + n, packet + 4, header - 4);
			n += header - 4;
		}
		if (s->cipher == CRYPTO_AES_GMAC) {
			memcpy(text + n, iv, iv_length + length);
			reference_aead(reference_aes(s), s->key, nonce, text, n + iv_length + length, NULL, 0, tag);
		} else if (s->cipher == CRYPTO_SM4_GCM) {
			reference_sm4_gcm(s->key, nonce, text, n, data, length, tag);
		} else if (s->cipher == CRYPTO_SM4_CCM) {
			reference_sm4_ccm(
				s->key, nonce, (unsigned)s->salt_length + 8, text, n, data, length, tag, s->icv_length);
		} else {
			reference_aead(reference_aes(s), s->key, nonce, text, n, data, length, tag);
		}
		memcpy(data + length, tag, s->icv_length);
		return;
	}
	if (s->cipher == CRYPTO_AES_CTR) {
		memcpy(nonce, s->salt, 4);
		memcpy(nonce + 4, iv, 8);
		nonce[15] = 1;
		reference_cipher(reference_aes(s), s->key, nonce, data, length);
	} else if (s->cipher != CRYPTO_NULL) {
		reference_cipher(reference_aes(s), s->key, iv, data, length);
	}
	n = header + iv_length + length;
	memcpy(text, packet, n);
	if (esn) {
		memcpy(text + n, &esn_high, 4);
		n += 4;
	}
	reference_check(HMAC(reference_digest(s->integrity), s->integrity_key, (int)s->integrity_key_length, text, n,
				tag, &tag_length) != NULL);
	memcpy(data + length, tag, s->icv_length);
}
