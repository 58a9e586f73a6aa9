// SPDX-License-Identifier: Apache-2.0
// The crypto engine: encrypts and decrypts batches of packets of many security associations (RFC 4303 sections 2.8, 3.2.2, 3.3.2).
//
// One key belongs to one direction of one SA. A worker fills an array of operations, of any mix of keys, and calls crypto_run(): all
// work is done when it returns. crypto_enqueue() and crypto_dequeue() are the same for engines that work beside the CPU (cryptodev):
// every engine takes both forms.
//
//	static const struct crypto_secret secret = {.cipher = CRYPTO_AES_GCM, .direction = CRYPTO_ENCRYPT, .icv_length = 16, ...};
//	struct crypto_key *key = NULL;
//	int error = crypto_key_new(&secret, &key);                        // main thread, once per SA
//	...
//	ops[i] = (struct crypto_op){.key = key, .data = payload, .length = n, .iv = payload - 8, .aad = esp, .aad_length = 8,
//		.icv = payload + n};                                      // worker
//	crypto_run(worker_self()->index, ops, count);
//	if (ops[i].status != CRYPTO_OK) ...
//	...
//	crypto_key_free(key);                                             // main thread, after a grace period of the workers (core/rcu.h)
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rte_mbuf;

enum crypto_cipher {
	CRYPTO_NULL, // RFC 2410: integrity alone
	CRYPTO_AES_CBC,
	CRYPTO_AES_CTR,           // RFC 3686
	CRYPTO_AES_GCM,           // RFC 4106
	CRYPTO_AES_GMAC,          // RFC 4543: integrity alone
	CRYPTO_CHACHA20_POLY1305, // RFC 7634
	CRYPTO_SM4_CBC,           // GB/T 32907
	CRYPTO_SM4_GCM,           // RFC 8998 section 2.1, with a nonce as in RFC 4106
	CRYPTO_SM4_CCM,           // the same, with a nonce as in RFC 4309
	CRYPTO_CIPHERS,
};

enum crypto_integrity {
	CRYPTO_NO_INTEGRITY, // the cipher has its own: GCM, GMAC, CCM, ChaCha20-Poly1305
	CRYPTO_HMAC_SHA1,
	CRYPTO_HMAC_SHA256,
	CRYPTO_HMAC_SHA384,
	CRYPTO_HMAC_SHA512,
	CRYPTO_HMAC_SM3, // GB/T 32905
	CRYPTO_INTEGRITIES,
};

enum crypto_direction { CRYPTO_ENCRYPT, CRYPTO_DECRYPT };

enum {
	CRYPTO_SALT_MAX = 4,
	CRYPTO_IV_MAX = 16,
	CRYPTO_ICV_MAX = 32,
	CRYPTO_INTEGRITY_KEY_MAX = 128,
	CRYPTO_AAD_MAX = 64,       // of ciphers with integrity of their own
	CRYPTO_LENGTH_MAX = 65535, // of `data`
	CRYPTO_BATCH = 256,        // operations that engines work on at once; longer arrays are cut
};

// The input of crypto_key_new(), which copies it: clear it afterwards (explicit_bzero).
struct crypto_secret {
	enum crypto_cipher cipher;
	enum crypto_integrity integrity;
	enum crypto_direction direction;
	const uint8_t *key; // of the cipher, without salt: AES 16, 24 or 32 bytes, SM4 16, ChaCha20 32, NULL 0
	size_t key_length;
	const uint8_t *salt; // GCM, GMAC, AES-CTR, ChaCha20-Poly1305: 4 bytes; SM4-CCM: 3 or 4; else 0
	size_t salt_length;
	const uint8_t *integrity_key; // of HMAC, 1 to 128 bytes
	size_t integrity_key_length;
	uint8_t icv_length; // bytes: GCM, GMAC, CCM 8, 12 or 16; ChaCha20-Poly1305 16; HMAC from 10 (RFC 2104) to the digest's length, at most 32
};

// Opaque: a key schedule ready for the engine that serves its algorithm, on cache lines of its own. Its first line is all that
// crypto_run() reads of a key before the engine does.
struct crypto_key;

enum crypto_status {
	CRYPTO_OK,
	CRYPTO_BAD_ICV, // decryption: the packet is forged or damaged; `data` is undefined and must not be used
	CRYPTO_BAD_LENGTH, // `length` is no multiple of the cipher's block, or a length exceeds its limit; nothing was touched
	CRYPTO_BAD_ENGINE, // the engine failed; `data` is undefined
	// A device did not answer in time and may still write into the packet. Free it and do nothing else: its buffer is used again when the
	// device has returned it. The memory of an operation without a packet must stay.
	CRYPTO_BAD_TIMEOUT,
	CRYPTO_BAD_PENDING, // never seen by the caller
};

// One packet. 64 bytes to fill in, and 64 bytes of the engine's.
struct crypto_op {
	const struct crypto_key *key;
	// Encrypted or decrypted in place. `length` includes ESP's padding and trailer. CBC: a multiple of 16. GMAC and NULL only
	// authenticate it.
	uint8_t *data;
	// Encryption writes the key's icv_length bytes, decryption compares with them (in constant time). With HMAC it must lie
	// directly behind `data`, and decryption may change it. In the other modes it may lie anywhere outside of `data`.
	uint8_t *icv;
	// As on the wire: GCM, GMAC, CTR, CCM, ChaCha20-Poly1305: 8 bytes, which the engine puts behind the salt; CBC: 16 bytes,
	// which the caller made unpredictable. NULL: not read.
	const uint8_t *iv;
	// Authenticated, not encrypted. Integrity of the cipher's own: the ESP header (SPI and sequence number, 8 bytes). GMAC: the
	// same, and the engine authenticates `iv` behind it (RFC 4543 section 3.3). HMAC: from the ESP header to `data`, IV included:
	// it must end where `data` begins, and not both may be empty.
	const uint8_t *aad;
	// The packet that holds all of this in its first segment. Engines of cryptodev need it, others do not read it. It may serve the
	// caller to find its packet again.
	struct rte_mbuf *packet;
	uint32_t length;
	uint16_t aad_length;
	// Extended sequence numbers: the high 32 bits, in network order, are authenticated where RFC 4303 section 2.2.1 and RFC 4106
	// section 5 put them: behind the first 4 bytes of `aad`, or with HMAC behind `data`.
	bool esn;
	uint8_t status; // enum crypto_status: written by the engine
	uint32_t esn_high;
	uint32_t spare;

	uint8_t own[64];
} __attribute__((aligned(64)));

_Static_assert(offsetof(struct crypto_op, own) == 64, "one cache line is the caller's");

// Before crypto_start(): a device of cryptodev, such as "crypto_aesni_mb0", or a card's PCI address. Of several the last one is used; the
// others are for a scheduler that names them. The text stays where it is. 0 or -ENOSPC.
int crypto_use_device(const char *name);
// Engines start before workers and stop after them, by core/start.h; unit tests call these themselves. 0 or a negative errno.
int crypto_start(void);
void crypto_stop(void);

// Main thread. 0, or -EINVAL (a length does not fit the algorithm), -ENOTSUP (no engine serves it), -ENOMEM.
int crypto_key_new(const struct crypto_secret *secret, struct crypto_key **key);
// Main thread, when no worker can hold it any more. Its memory is overwritten with zeros. NULL is well.
void crypto_key_free(struct crypto_key *key);
// For messages: the engine that serves it, such as "ipsec-mb"; of a device that is given up, "ipsec-mb (cryptodev given up)".
const char *crypto_key_engine(const struct crypto_key *key);

// Bytes of the IV on the wire, and the block that padding fills up: 0 and 1 for NULL.
unsigned crypto_iv_length(enum crypto_cipher cipher);
unsigned crypto_block_length(enum crypto_cipher cipher);

// `worker`: worker_self()->index, the main thread's included. Operations are independent of each other: their order does not matter,
// and no two may share bytes. Each has its status afterwards.
void crypto_run(unsigned worker, struct crypto_op *ops, unsigned count);

// Asynchronous form. An operation that was taken belongs to the engine until crypto_dequeue() returns it, so it lies in the packet's
// private area or in a pool. Operations of one key come back in the order in which they went in. Returns how many were taken or
// came back.
unsigned crypto_enqueue(unsigned worker, struct crypto_op **ops, unsigned count);
unsigned crypto_dequeue(unsigned worker, struct crypto_op **ops, unsigned max);
