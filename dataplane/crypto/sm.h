// SPDX-License-Identifier: Apache-2.0
// The engines of our own SM4 and SM3: the contents of a key, and the modes, which all ways have in common (ways/way.h).
#pragma once

#include "crypto/engine.h"
#include "crypto/ways/way.h"

// Behind struct crypto_key, whose `own` is the way.
struct sm_schedule {
	struct sm4_key sm4; // in the order of the key's direction where that matters (CBC)
	union {
		struct ghash_key ghash;
		struct {
			uint32_t inner[SM3_WORDS], outer[SM3_WORDS]; // HMAC's states after the padded key (RFC 2104)
		};
	};
};

static inline const struct sm_schedule *
sm_schedule(const struct crypto_op *op)
{
	return (const struct sm_schedule *)op->key->schedule;
}

static inline const struct sm_way *
sm_way(const struct crypto_op *op)
{
	return op->key->own;
}

// Blocks that are chained: CBC encryption (each result is written), or CBC-MAC (only the last one counts).
struct sm4_chain {
	const struct sm4_key *key;
	uint8_t state[SM4_BLOCK]; // in: the IV. Out: the last block
	struct {
		const uint8_t *from;
		uint8_t *to; // NULL: not written
		unsigned blocks;
	} parts[3]; // the first with no blocks ends it
};
// As many at once as the way takes blocks.
void sm4_chains(const struct sm_way *way, struct sm4_chain *chains, unsigned count);

// A message of HMAC-SM3; extended sequence numbers put four bytes behind it.
struct sm3_message {
	const uint8_t *text;
	size_t length;
	uint32_t esn_high;
	bool esn;
	const struct sm_schedule *key;
	uint8_t digest[32];
};
// As many at once as the way has lanes.
void sm3_hmac(const struct sm_way *way, struct sm3_message *messages, unsigned count);
// The states of HMAC for a key.
void sm3_hmac_prepare(struct sm_schedule *schedule, const uint8_t *key, size_t length);

void sm4_gcm(struct crypto_context *context, struct crypto_op **ops, unsigned count);
void sm4_ccm(struct crypto_context *context, struct crypto_op **ops, unsigned count);
void sm4_cbc_encrypt(struct crypto_context *context, struct crypto_op **ops, unsigned count);
void sm4_cbc_decrypt(struct crypto_context *context, struct crypto_op **ops, unsigned count);
void sm3_null(struct crypto_context *context, struct crypto_op **ops, unsigned count);

static inline void
sm4_xor(uint8_t *to, const uint8_t *a, const uint8_t *b)
{
	uint64_t x[2], y[2];

	memcpy(x, a, sizeof(x));
	memcpy(y, b, sizeof(y));
	x[0] ^= y[0];
	x[1] ^= y[1];
	memcpy(to, x, sizeof(x));
}
