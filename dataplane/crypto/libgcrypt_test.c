// SPDX-License-Identifier: Apache-2.0
// The reference of the other tests, which is OpenSSL's, against libgcrypt: every algorithm, with random keys, lengths and places.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gcrypt.h>

#include "crypto/crypto.h"
#include "crypto/reference.h"

enum { HEADER = 8, IV_MOST = 16, LENGTH_MOST = 2048, ROUNDS = 200, ROOM = 64 + HEADER + IV_MOST + LENGTH_MOST + 64 };

static const struct algorithm {
	enum crypto_cipher cipher;
	int number, mode;
	uint8_t key_length, salt_length, iv_length, block;
} ciphers[] = {
	{CRYPTO_AES_GCM, GCRY_CIPHER_AES128, GCRY_CIPHER_MODE_GCM, 16, 4, 8, 1},
	{CRYPTO_AES_GCM, GCRY_CIPHER_AES192, GCRY_CIPHER_MODE_GCM, 24, 4, 8, 1},
	{CRYPTO_AES_GCM, GCRY_CIPHER_AES256, GCRY_CIPHER_MODE_GCM, 32, 4, 8, 1},
	{CRYPTO_AES_GMAC, GCRY_CIPHER_AES128, GCRY_CIPHER_MODE_GCM, 16, 4, 8, 1},
	{CRYPTO_AES_GMAC, GCRY_CIPHER_AES256, GCRY_CIPHER_MODE_GCM, 32, 4, 8, 1},
	{CRYPTO_CHACHA20_POLY1305, GCRY_CIPHER_CHACHA20, GCRY_CIPHER_MODE_POLY1305, 32, 4, 8, 1},
	{CRYPTO_SM4_GCM, GCRY_CIPHER_SM4, GCRY_CIPHER_MODE_GCM, 16, 4, 8, 1},
	{CRYPTO_SM4_CCM, GCRY_CIPHER_SM4, GCRY_CIPHER_MODE_CCM, 16, 3, 8, 1},
	{CRYPTO_AES_CBC, GCRY_CIPHER_AES128, GCRY_CIPHER_MODE_CBC, 16, 0, 16, 16},
	{CRYPTO_AES_CBC, GCRY_CIPHER_AES192, GCRY_CIPHER_MODE_CBC, 24, 0, 16, 16},
	{CRYPTO_AES_CBC, GCRY_CIPHER_AES256, GCRY_CIPHER_MODE_CBC, 32, 0, 16, 16},
	{CRYPTO_SM4_CBC, GCRY_CIPHER_SM4, GCRY_CIPHER_MODE_CBC, 16, 0, 16, 16},
	{CRYPTO_AES_CTR, GCRY_CIPHER_AES128, GCRY_CIPHER_MODE_CTR, 16, 4, 8, 1},
	{CRYPTO_AES_CTR, GCRY_CIPHER_AES256, GCRY_CIPHER_MODE_CTR, 32, 4, 8, 1},
	{CRYPTO_NULL, GCRY_CIPHER_NONE, 0, 0, 0, 0, 1},
};

static const struct {
	enum crypto_integrity integrity;
	int number;
	uint8_t icv_length;
} hashes[] = {
	{CRYPTO_HMAC_SHA1, GCRY_MAC_HMAC_SHA1, 12},
	{CRYPTO_HMAC_SHA256, GCRY_MAC_HMAC_SHA256, 16},
	{CRYPTO_HMAC_SHA384, GCRY_MAC_HMAC_SHA384, 24},
	{CRYPTO_HMAC_SHA512, GCRY_MAC_HMAC_SHA512, 32},
	{CRYPTO_HMAC_SM3, GCRY_MAC_HMAC_SM3, 16},
};

static void
ok(gcry_error_t error)
{
	if (error)
		fail_msg("%s", gcry_strerror(error));
}

// The parts of a packet that AEAD and HMAC cover (RFC 4303): header, high half of the number, header again.
static void
seal(const struct crypto_secret *s, const struct algorithm *a, int mac, uint8_t *packet, unsigned length, bool esn,
	uint32_t esn_high)
{
	uint8_t *iv = packet + HEADER, *data = iv + a->iv_length, nonce[16] = {0}, tag[64];
	bool aead = s->integrity == CRYPTO_NO_INTEGRITY, gmac = a->cipher == CRYPTO_AES_GMAC;
	size_t tag_length = sizeof(tag);
	gcry_cipher_hd_t c;
	gcry_mac_hd_t m;

	memcpy(nonce, s->salt, s->salt_length);
	memcpy(nonce + s->salt_length, iv, a->iv_length);
	if (a->cipher != CRYPTO_NULL) {
		uint64_t lengths[3] = {length, (uint64_t)HEADER + (esn ? 4 : 0), s->icv_length};

		ok(gcry_cipher_open(&c, a->number, a->mode, 0));
		ok(gcry_cipher_setkey(c, s->key, s->key_length));
		if (a->mode == GCRY_CIPHER_MODE_CTR) {
			nonce[15] = 1;
			ok(gcry_cipher_setctr(c, nonce, 16));
		} else {
			ok(gcry_cipher_setiv(c, nonce, (size_t)s->salt_length + a->iv_length));
		}
		if (a->mode == GCRY_CIPHER_MODE_CCM)
			ok(gcry_cipher_ctl(c, GCRYCTL_SET_CCM_LENGTHS, lengths, sizeof(lengths)));
		if (aead) {
			uint8_t aad[HEADER + 4];

			memcpy(aad, packet, 4);
			memcpy(aad + 4, &esn_high, 4);
			memcpy(aad + (esn ? 8 : 4), packet + 4, 4);
			ok(gcry_cipher_authenticate(c, aad, HEADER + (esn ? 4 : 0)));
		}
		if (gmac)
			ok(gcry_cipher_authenticate(c, iv, a->iv_length + length));
		else if (length)
			ok(gcry_cipher_encrypt(c, data, length, NULL, 0));
		if (gmac)
			ok(gcry_cipher_final(c));
		if (aead)
			ok(gcry_cipher_gettag(c, tag, a->mode == GCRY_CIPHER_MODE_CCM ? s->icv_length : 16));
		gcry_cipher_close(c);
	}
	if (!aead) {
		ok(gcry_mac_open(&m, mac, 0, NULL));
		ok(gcry_mac_setkey(m, s->integrity_key, s->integrity_key_length));
		ok(gcry_mac_write(m, packet, HEADER + a->iv_length + length));
		if (esn)
			ok(gcry_mac_write(m, &esn_high, 4));
		ok(gcry_mac_read(m, tag, &tag_length));
		gcry_mac_close(m);
	}
	memcpy(data + length, tag, s->icv_length);
}

static unsigned
chance(unsigned limit)
{
	return (unsigned)rand() % limit;
}

static void
fill(uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)rand();
}

static void
compare(const struct algorithm *a, enum crypto_integrity integrity, int mac, uint8_t icv_length)
{
	static uint8_t one[ROOM], other[ROOM];
	unsigned length = chance(LENGTH_MOST) / a->block * a->block, start = chance(64);
	uint8_t key[32], salt[4], integrity_key[64];
	uint32_t esn_high = (uint32_t)rand();
	struct crypto_secret s = {.cipher = a->cipher,
		.integrity = integrity,
		.key = key,
		.key_length = a->key_length,
		.salt = salt,
		.salt_length = a->salt_length,
		.integrity_key = integrity_key,
		.integrity_key_length = integrity ? 1 + chance(sizeof(integrity_key)) : 0,
		.icv_length = icv_length};
	bool esn = chance(2);

	fill(key, sizeof(key));
	fill(salt, sizeof(salt));
	fill(integrity_key, sizeof(integrity_key));
	fill(one, sizeof(one));
	memcpy(other, one, sizeof(one));
	reference_seal(&s, one + start, HEADER, a->iv_length, length, esn, esn_high);
	seal(&s, a, mac, other + start, length, esn, esn_high);
	assert_memory_equal(one, other, sizeof(one));
}

static void
openssl_and_libgcrypt_agree_about_every_algorithm(void **state)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < sizeof(ciphers) / sizeof(ciphers[0]); i++) {
			if (ciphers[i].mode && ciphers[i].block == 1 && ciphers[i].mode != GCRY_CIPHER_MODE_CTR) {
				compare(&ciphers[i], CRYPTO_NO_INTEGRITY, 0, 16);
				continue;
			}
			for (unsigned j = 0; j < sizeof(hashes) / sizeof(hashes[0]); j++)
				compare(&ciphers[i], hashes[j].integrity, hashes[j].number, hashes[j].icv_length);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(openssl_and_libgcrypt_agree_about_every_algorithm)};

	gcry_check_version(NULL);
	gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
	gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
	srand(1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
