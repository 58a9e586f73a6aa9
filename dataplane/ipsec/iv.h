// SPDX-License-Identifier: Apache-2.0
// Initialization vectors. Counter modes need one that no other packet of the key has: the sequence number serves,
// exclusive or with a random number of the SA, so that an SA that is created again with the same key does not repeat
// them. CBC needs an unpredictable one (RFC 3602 section 2.1): a keyed hash of the sequence number, SipHash-2-4 with
// 128 bits of output.
#pragma once

#include <stdint.h>
#include <string.h>

extern uint64_t esp_iv_secret[2];

static inline uint64_t
iv_rotate(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static inline void
iv_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = iv_rotate(v[1], 13) ^ v[0];
	v[0] = iv_rotate(v[0], 32);
	v[2] += v[3];
	v[3] = iv_rotate(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = iv_rotate(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = iv_rotate(v[1], 17) ^ v[2];
	v[2] = iv_rotate(v[2], 32);
}

static inline void
iv_unpredictable(uint8_t iv[16], uint64_t sa, uint64_t sequence)
{
	uint64_t words[3] = {sa, sequence, UINT64_C(16) << 56}, out[2];
	uint64_t v[4] = {esp_iv_secret[0] ^ 0x736f6d6570736575, esp_iv_secret[1] ^ 0x646f72616e646f6d ^ 0xee,
		esp_iv_secret[0] ^ 0x6c7967656e657261, esp_iv_secret[1] ^ 0x7465646279746573};

	for (unsigned i = 0; i < 3; i++) {
		v[3] ^= words[i];
		iv_round(v);
		iv_round(v);
		v[0] ^= words[i];
	}
	v[2] ^= 0xee;
	for (unsigned i = 0; i < 4; i++)
		iv_round(v);
	out[0] = v[0] ^ v[1] ^ v[2] ^ v[3];
	v[1] ^= 0xdd;
	for (unsigned i = 0; i < 4; i++)
		iv_round(v);
	out[1] = v[0] ^ v[1] ^ v[2] ^ v[3];
	memcpy(iv, out, sizeof(out));
}
