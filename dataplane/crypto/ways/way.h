// SPDX-License-Identifier: Apache-2.0
// SM4 (GB/T 32907), SM3 (GB/T 32905) and GHASH (NIST SP 800-38D) in several ways, one for each kind of CPU. Each way does many blocks of
// SM4 and many messages of SM3 at once, and none of them has a branch or an address that depends on a secret.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
	SM4_BLOCK = 16,
	SM4_ROUNDS = 32,
	SM4_BLOCKS_MAX = 64, // at once, in any way
	SM3_BLOCK = 64,
	SM3_WORDS = 8,
	SM3_LANES_MAX = 16,
	GHASH_POWERS = 16,
};

// Round keys, in the order in which the rounds take them, in the form of one way.
struct sm4_key {
	uint32_t rounds[SM4_ROUNDS];
} __attribute__((aligned(16)));

// Powers of the hash key, the highest first.
struct ghash_key {
	uint8_t powers[GHASH_POWERS][16];
} __attribute__((aligned(16)));

// Round keys of blocks with different keys.
struct sm4_table {
	uint32_t rounds[SM4_ROUNDS * SM4_BLOCKS_MAX];
} __attribute__((aligned(64)));

struct sm_way {
	const char *name;    // of the engine
	unsigned sm4_group;  // blocks whose round keys sm4_table() writes together
	unsigned sm4_blocks; // blocks that sm4() takes at most, a multiple of sm4_group
	unsigned sm3_lanes;
	// From the round keys of GB/T 32907 to this way's.
	void (*sm4_prepare)(struct sm4_key *key);
	// The round keys of blocks group * sm4_group and those behind it.
	void (*sm4_table)(struct sm4_table *table, unsigned group, const struct sm4_key *const *keys);
	// The first `groups` groups of blocks, in place.
	void (*sm4)(const struct sm4_table *table, uint8_t (*blocks)[SM4_BLOCK], unsigned groups);
	void (*sm4_same)(const struct sm4_key *key, uint8_t (*blocks)[SM4_BLOCK], unsigned groups);
	// XOR whole groups of blocks with the key stream from `counter` on.
	void (*sm4_counter)(
		const struct sm4_key *key, const uint8_t nonce[12], uint32_t counter, uint8_t *data, size_t groups);
	// XOR `length` bytes, which need not be whole blocks, with the key stream behind the block `counter`, which is `mask`. NULL: the way has
	// no such function.
	void (*sm4_stream)(const struct sm4_key *key, const uint8_t nonce[12], uint32_t counter, uint8_t *data,
		size_t length, uint8_t mask[SM4_BLOCK]);
	// One step of SM3 for each lane: `state` is words by lanes; `text` of each lane has `blocks` blocks.
	void (*sm3)(uint32_t *state, const uint8_t *const *text, size_t blocks);
	void (*ghash_prepare)(struct ghash_key *key, const uint8_t hash_key[16]);
	// Over whole blocks. `y` is the hash so far, in the form of the way; all zeros at the start.
	void (*ghash)(const struct ghash_key *key, uint8_t y[16], const uint8_t *data, size_t blocks);
	void (*ghash_finish)(const uint8_t y[16], uint8_t hash[16]);
};

// The functions of the way whose file has them by these names.
#define SM_WAY_FUNCTIONS \
	.sm4_prepare = sm4_prepare, .sm4_table = sm4_table, .sm4 = sm4, .sm4_same = sm4_same, \
	.sm4_counter = sm4_counter, .sm3 = sm3, .ghash_prepare = ghash_prepare, .ghash = ghash, \
	.ghash_finish = ghash_finish

extern const struct sm_way sm_way_c, sm_way_aesni, sm_way_avx2, sm_way_vaes, sm_way_gfni;

// GB/T 32907 section 7.3, in the order of encryption, in constant time.
void sm4_expand(const uint8_t key[16], uint32_t rounds[SM4_ROUNDS]);
