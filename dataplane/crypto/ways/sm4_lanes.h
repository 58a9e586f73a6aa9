// SPDX-License-Identifier: Apache-2.0
// SM4 in vectors: a vector has one word of each of several blocks. Included by a way, which has defined `vec`, VEC (its bytes), GROUPS and
// the functions v_*.
//
// S-boxes. SM4's is A inv(A x + C) + C in GF(2^8) modulo 0x1f5, and AES's is an affine map of the inverse modulo 0x11b. The two
// fields are isomorphic, so SM4's S-box is AES's between two affine maps. Words are held under the map before it, byte by byte
// (IN), so that a round begins with AES's S-box at once. The map behind it and SM4's linear step become two maps, A and B: for the
// S-box's byte s, the linear step L (s + s<<<2 + s<<<10 + s<<<18 + s<<<24) consists of (s + s<<2) in its place, s<<<2 as a
// rotation of the byte in the next two places, and (s + s>>6) in the last; the second is the sum of the first and the third. A and
// B are the first and the third, under IN again. The constants of the affine maps are in A's table and in the round keys.
#include <string.h>

#include "crypto/ways/way.h"

enum { PARTS = VEC / 16, GROUP = VEC / 4 };

// Bytes of each word in the other order.
static const uint8_t WORDS_SWAPPED[16] = {3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12};

#ifdef SM4_GFNI
static const uint64_t IN = 0x4c287db91a22505d, OUT = 0xb3a4f5863284728b, A = 0x040db891e9a481b7, B = 0x280fbcb4ff84c11a;
enum { A_CONSTANT = 0x63 };
// Rotations of words by whole bytes.
static const uint8_t ROTATED[3][16] = {{3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14},
	{2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13}, {1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12}};

static inline vec
map_in(vec x)
{
	return v_affine(x, IN);
}

static inline vec
map_out(vec x)
{
	return v_affine(x, OUT);
}

static inline vec
substitute(vec x)
{
	vec a = v_affine_inverse(x, A, A_CONSTANT), b = v_affine_inverse(x, B, 0), c = v_xor(a, b);

	a = v_xor(a, v_shuffle(c, v_repeat(ROTATED[0])));
	c = v_xor(v_shuffle(c, v_repeat(ROTATED[1])), v_shuffle(b, v_repeat(ROTATED[2])));
	return v_xor(a, c);
}
#else
// Each map as two tables, of the byte's low and high four bits.
static const uint8_t IN[2][16] = {
	{0x00, 0x8c, 0x30, 0xbc, 0x85, 0x09, 0xb5, 0x39, 0x9f, 0x13, 0xaf, 0x23, 0x1a, 0x96, 0x2a, 0xa6},
	{0x00, 0xdc, 0x2e, 0xf2, 0xc5, 0x19, 0xeb, 0x37, 0x08, 0xd4, 0x26, 0xfa, 0xcd, 0x11, 0xe3, 0x3f}};
static const uint8_t OUT[2][16] = {
	{0x00, 0x85, 0xd9, 0x5c, 0x2e, 0xab, 0xf7, 0x72, 0x80, 0x05, 0x59, 0xdc, 0xae, 0x2b, 0x77, 0xf2},
	{0x00, 0x55, 0x57, 0x02, 0x44, 0x11, 0x13, 0x46, 0xaf, 0xfa, 0xf8, 0xad, 0xeb, 0xbe, 0xbc, 0xe9}};
static const uint8_t A[2][16] = {
	{0x76, 0xf0, 0xa5, 0x23, 0x0e, 0x88, 0xdd, 0x5b, 0x6a, 0xec, 0xb9, 0x3f, 0x12, 0x94, 0xc1, 0x47},
	{0x00, 0xeb, 0xdc, 0x37, 0xf0, 0x1b, 0x2c, 0xc7, 0xcd, 0x26, 0x11, 0xfa, 0x3d, 0xd6, 0xe1, 0x0a}};
static const uint8_t B[2][16] = {
	{0x00, 0x55, 0xde, 0x8b, 0xd8, 0x8d, 0x06, 0x53, 0x5e, 0x0b, 0x80, 0xd5, 0x86, 0xd3, 0x58, 0x0d},
	{0x00, 0x5f, 0x95, 0xca, 0x72, 0x2d, 0xe7, 0xb8, 0x71, 0x2e, 0xe4, 0xbb, 0x03, 0x5c, 0x96, 0xc9}};
// AESENCLAST shifts rows, too. Back again, and words rotated by 0, 8, 16 and 24 bits.
static const uint8_t UNSHIFTED[4][16] = {{0, 13, 10, 7, 4, 1, 14, 11, 8, 5, 2, 15, 12, 9, 6, 3},
	{7, 0, 13, 10, 11, 4, 1, 14, 15, 8, 5, 2, 3, 12, 9, 6}, {10, 7, 0, 13, 14, 11, 4, 1, 2, 15, 8, 5, 6, 3, 12, 9},
	{13, 10, 7, 0, 1, 14, 11, 4, 5, 2, 15, 8, 9, 6, 3, 12}};

static inline vec
map(vec x, const uint8_t table[2][16])
{
	vec nibble = v_set8(0x0f);

	return v_xor(v_shuffle(v_repeat(table[0]), v_and(x, nibble)),
		v_shuffle(v_repeat(table[1]), v_and(v_right4(x), nibble)));
}

static inline vec
map_in(vec x)
{
	return map(x, IN);
}

static inline vec
map_out(vec x)
{
	return map(x, OUT);
}

static inline vec
substitute(vec x)
{
	vec nibble = v_set8(0x0f), low, high, a, b, c;

	x = v_aes_last(x);
	low = v_and(x, nibble);
	high = v_and(v_right4(x), nibble);
	a = v_xor(v_shuffle(v_repeat(A[0]), low), v_shuffle(v_repeat(A[1]), high));
	b = v_xor(v_shuffle(v_repeat(B[0]), low), v_shuffle(v_repeat(B[1]), high));
	c = v_xor(a, b);
	a = v_xor(v_shuffle(a, v_repeat(UNSHIFTED[0])), v_shuffle(c, v_repeat(UNSHIFTED[1])));
	c = v_xor(v_shuffle(c, v_repeat(UNSHIFTED[2])), v_shuffle(b, v_repeat(UNSHIFTED[3])));
	return v_xor(a, c);
}
#endif

// Under IN, with the constant of the S-box's first affine map.
static void
sm4_prepare(struct sm4_key *key)
{
	enum { CONSTANT = 0x3e };
	uint8_t all[SM4_ROUNDS * 4 + VEC];

	memcpy(all, key->rounds, sizeof(key->rounds));
	for (unsigned at = 0; at < sizeof(key->rounds); at += VEC)
		v_store(all + at, v_xor(map_in(v_load(all + at)), v_set8(CONSTANT)));
	memcpy(key->rounds, all, sizeof(key->rounds));
	explicit_bzero(all, sizeof(all));
}

// Within each 16 bytes of a vector: rows of words become columns.
static inline void
transpose(vec x[4])
{
	vec a = v_unpack_low32(x[0], x[1]), b = v_unpack_low32(x[2], x[3]);
	vec c = v_unpack_high32(x[0], x[1]), d = v_unpack_high32(x[2], x[3]);

	x[0] = v_unpack_low64(a, b);
	x[1] = v_unpack_high64(a, b);
	x[2] = v_unpack_low64(c, d);
	x[3] = v_unpack_high64(c, d);
}

// Vector i of a group holds blocks i * PARTS and those behind it, so after transpose() the blocks' words are in that order, too.
static void
sm4_table(struct sm4_table *table, unsigned group, const struct sm4_key *const *keys)
{
	uint8_t *to = (uint8_t *)table->rounds + group * VEC;

	for (unsigned round = 0; round < SM4_ROUNDS; round += 4) {
		vec x[4];

		for (unsigned i = 0; i < 4; i++) {
			const void *parts[PARTS];

			for (unsigned p = 0; p < PARTS; p++)
				parts[p] = &keys[i * PARTS + p]->rounds[round];
			x[i] = v_load_parts(parts);
		}
		transpose(x);
		for (unsigned i = 0; i < 4; i++)
			v_store(to + (round + i) * GROUPS * VEC, x[i]);
	}
}

// A round key of a group of blocks: of one key for all, or from the table.
static inline __attribute__((always_inline)) vec
round_key(const struct sm4_key *key, const struct sm4_table *table, unsigned round, unsigned group)
{
	if (key)
		return v_set32(key->rounds[round]);
	return v_load((const uint8_t *)table->rounds + (round * GROUPS + group) * VEC);
}

// x[group][word]; `groups` is a constant where it is called, at most 8, so all is unrolled. A table has GROUPS at most.
static inline __attribute__((always_inline)) void
rounds(const struct sm4_key *key, const struct sm4_table *table, vec x[][4], unsigned groups)
{
	for (unsigned round = 0; round < SM4_ROUNDS; round += 4) {
#pragma GCC unroll 4
		for (unsigned step = 0; step < 4; step++) {
#pragma GCC unroll 8
			for (unsigned g = 0; g < groups; g++) {
				vec t = v_xor(x[g][(step + 2) % 4], x[g][(step + 3) % 4]);

				t = v_xor(v_xor(t, x[g][(step + 1) % 4]), round_key(key, table, round + step, g));
				x[g][step] = v_xor(x[g][step], substitute(t));
			}
		}
	}
}

// The last four words in reverse order are the result.
static inline __attribute__((always_inline)) void
finish(vec x[4])
{
	vec swapped = v_repeat(WORDS_SWAPPED), y[4];

	for (unsigned i = 0; i < 4; i++)
		y[i] = v_shuffle(map_out(x[3 - i]), swapped);
	transpose(y);
	memcpy(x, y, sizeof(y));
}

static inline __attribute__((always_inline)) void
some(const struct sm4_key *key, const struct sm4_table *table, uint8_t (*blocks)[SM4_BLOCK], unsigned groups)
{
	vec swapped = v_repeat(WORDS_SWAPPED), x[GROUPS][4];

#pragma GCC unroll 4
	for (unsigned g = 0; g < groups; g++) {
		for (unsigned i = 0; i < 4; i++)
			x[g][i] = map_in(v_shuffle(v_load(blocks[g * GROUP + i * PARTS]), swapped));
		transpose(x[g]);
	}
	rounds(key, table, x, groups);
#pragma GCC unroll 4
	for (unsigned g = 0; g < groups; g++) {
		finish(x[g]);
		for (unsigned i = 0; i < 4; i++)
			v_store(blocks[g * GROUP + i * PARTS], x[g][i]);
	}
}

static void
sm4(const struct sm4_table *table, uint8_t (*blocks)[SM4_BLOCK], unsigned groups)
{
	switch (groups) {
	case 0:
		return;
	case 1:
		return some(NULL, table, blocks, 1);
	case 2:
		return some(NULL, table, blocks, 2);
	case 3:
		return some(NULL, table, blocks, 3);
	default:
		return some(NULL, table, blocks, 4);
	}
}

static void
sm4_same(const struct sm4_key *key, uint8_t (*blocks)[SM4_BLOCK], unsigned groups)
{
	switch (groups) {
	case 0:
		return;
	case 1:
		return some(key, NULL, blocks, 1);
	case 2:
		return some(key, NULL, blocks, 2);
	case 3:
		return some(key, NULL, blocks, 3);
	default:
		return some(key, NULL, blocks, 4);
	}
}

static inline uint32_t
word_of(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

// The common part of counter blocks, and the place of each block in a vector.
struct counters {
	vec fixed[3], order;
	uint32_t next;
};

static inline __attribute__((always_inline)) uint8_t *
count(const struct sm4_key *key, struct counters *c, uint8_t *data, unsigned groups)
{
	vec x[GROUPS][4];

#pragma GCC unroll 4
	for (unsigned g = 0; g < groups; g++) {
		for (unsigned i = 0; i < 3; i++)
			x[g][i] = c->fixed[i];
		x[g][3] = map_in(v_add32(c->order, v_set32(c->next)));
		c->next += GROUP;
	}
	rounds(key, NULL, x, groups);
#pragma GCC unroll 4
	for (unsigned g = 0; g < groups; g++) {
		finish(x[g]);
		for (unsigned i = 0; i < 4; i++, data += VEC)
			v_store(data, v_xor(v_load(data), x[g][i]));
	}
	return data;
}

static inline struct counters
counters_from(const uint8_t nonce[12], uint32_t counter)
{
	struct counters c = {.next = counter};
	uint32_t numbers[GROUP];

	for (unsigned i = 0; i < 3; i++)
		c.fixed[i] = map_in(v_set32(word_of(nonce + 4 * i)));
	// As transpose() puts them.
	for (unsigned i = 0; i < GROUP; i++)
		numbers[i] = i % 4 * PARTS + i / 4;
	c.order = v_load((const uint8_t *)numbers);
	return c;
}

static void
sm4_counter(const struct sm4_key *key, const uint8_t nonce[12], uint32_t counter, uint8_t *data, size_t groups)
{
	struct counters c = counters_from(nonce, counter);

	for (; groups >= GROUPS; groups -= GROUPS)
		data = count(key, &c, data, GROUPS);
	if (groups == 3)
		count(key, &c, data, 3);
	else if (groups == 2)
		count(key, &c, data, 2);
	else if (groups == 1)
		count(key, &c, data, 1);
}
