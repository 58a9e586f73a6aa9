// SPDX-License-Identifier: Apache-2.0
// Plain C, for any CPU, without tables: SM4's S-box is a circuit over bits of 64 bytes at once, carry-less multiplication is made of
// integer multiplications of numbers with holes.
#include <string.h>

#include "crypto/ways/way.h"

enum { BLOCKS = 16, WORDS = 4, PLANES = 8, LANES = 1 };

// GF(2^4) modulo x^4 + x + 1, an element a[0] + a[1] x + ..., for 64 elements.
struct gf16 {
	uint64_t a[4];
};

static inline struct gf16
gf16_add(struct gf16 x, struct gf16 y)
{
	return (struct gf16){{x.a[0] ^ y.a[0], x.a[1] ^ y.a[1], x.a[2] ^ y.a[2], x.a[3] ^ y.a[3]}};
}

static inline struct gf16
gf16_multiply(struct gf16 x, struct gf16 y)
{
	uint64_t r[7] = {0};

	for (unsigned i = 0; i < 4; i++)
		for (unsigned j = 0; j < 4; j++)
			r[i + j] ^= x.a[i] & y.a[j];
	// x^4 = x + 1.
	return (struct gf16){{r[0] ^ r[4], r[1] ^ r[4] ^ r[5], r[2] ^ r[5] ^ r[6], r[3] ^ r[6]}};
}

static inline struct gf16
gf16_square(struct gf16 x)
{
	return (struct gf16){{x.a[0] ^ x.a[2], x.a[2], x.a[1] ^ x.a[3], x.a[3]}};
}

// LAMBDA is x^3.
static inline struct gf16
gf16_times_lambda(struct gf16 x)
{
	return (struct gf16){{x.a[1], x.a[1] ^ x.a[2], x.a[2] ^ x.a[3], x.a[3] ^ x.a[0]}};
}

// x^14 = x^2 x^4 x^8.
static inline struct gf16
gf16_inverse(struct gf16 x)
{
	struct gf16 x2 = gf16_square(x), x4 = gf16_square(x2), x8 = gf16_square(x4);

	return gf16_multiply(gf16_multiply(x2, x4), x8);
}

// Bit i of the result is the sum of the bits of row i.
static inline void
gf2_map(uint64_t planes[PLANES], const uint8_t rows[PLANES], uint8_t constant)
{
	uint64_t in[PLANES];

	memcpy(in, planes, sizeof(in));
#pragma GCC unroll 8
	for (unsigned i = 0; i < PLANES; i++) {
		planes[i] = constant >> i & 1 ? UINT64_MAX : 0;
#pragma GCC unroll 8
		for (unsigned j = 0; j < PLANES; j++)
			planes[i] ^= rows[i] >> j & 1 ? in[j] : 0;
	}
}

// SM4's S-box is A inv(A x + C) + C in GF(2^8) modulo 0x1f5. That field is isomorphic to GF(2^4)[w] modulo w^2 + w + LAMBDA, where an
// inverse is cheap. BEFORE is A, then into that field; BEHIND is back, then A.
static inline void
substitute(uint64_t planes[PLANES])
{
	static const uint8_t BEFORE[PLANES] = {0xd8, 0x65, 0xbe, 0xe3, 0x93, 0x40, 0xc4, 0x7f};
	static const uint8_t BEHIND[PLANES] = {0x93, 0x45, 0xe4, 0x95, 0x1a, 0xba, 0x57, 0x19};
	struct gf16 low, high, norm;

	gf2_map(planes, BEFORE, 0xac);
	memcpy(&low, planes, sizeof(low));
	memcpy(&high, planes + 4, sizeof(high));
	norm = gf16_add(gf16_times_lambda(gf16_square(high)), gf16_multiply(low, gf16_add(low, high)));
	norm = gf16_inverse(norm);
	low = gf16_multiply(gf16_add(low, high), norm);
	high = gf16_multiply(high, norm);
	memcpy(planes, &low, sizeof(low));
	memcpy(planes + 4, &high, sizeof(high));
	gf2_map(planes, BEHIND, 0xd3);
}

static inline void
swap_bits(uint64_t *a, uint64_t *b, uint64_t mask, unsigned by)
{
	uint64_t t = (*a >> by ^ *b) & mask;

	*b ^= t;
	*a ^= t << by;
}

// For each place of a byte, bits of eight words become words of eight bits; and back.
static inline void
slice(uint64_t w[PLANES])
{
	for (unsigned i = 0; i < 8; i += 2)
		swap_bits(&w[i], &w[i + 1], 0x5555555555555555, 1);
	for (unsigned i = 0; i < 8; i += i % 2 ? 3 : 1)
		swap_bits(&w[i], &w[i + 2], 0x3333333333333333, 2);
	for (unsigned i = 0; i < 4; i++)
		swap_bits(&w[i], &w[i + 4], 0x0f0f0f0f0f0f0f0f, 4);
}

static void
substitute_words(uint32_t words[BLOCKS])
{
	uint64_t planes[PLANES];

	memcpy(planes, words, sizeof(planes));
	slice(planes);
	substitute(planes);
	slice(planes);
	memcpy(words, planes, sizeof(planes));
}

static inline uint32_t
left(uint32_t x, unsigned bits)
{
	return x << bits | x >> (32 - bits);
}

static inline uint32_t
word_of(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static inline void
word_to(uint8_t *bytes, uint32_t word)
{
	for (unsigned i = 0; i < 4; i++)
		bytes[i] = (uint8_t)(word >> (24 - 8 * i));
}

void
sm4_expand(const uint8_t key[16], uint32_t rounds[SM4_ROUNDS])
{
	static const uint32_t FK[4] = {0xa3b1bac6, 0x56aa3350, 0x677d9197, 0xb27022dc};
	uint32_t k[4], words[BLOCKS];

	for (unsigned i = 0; i < 4; i++)
		k[i] = word_of(key + 4 * i) ^ FK[i];
	for (unsigned r = 0; r < SM4_ROUNDS; r++) {
		uint32_t constant = 0;

		for (unsigned j = 0; j < 4; j++)
			constant = constant << 8 | ((4 * r + j) * 7 & 0xff);
		memset(words, 0, sizeof(words));
		words[0] = k[(r + 1) % 4] ^ k[(r + 2) % 4] ^ k[(r + 3) % 4] ^ constant;
		substitute_words(words);
		k[r % 4] ^= words[0] ^ left(words[0], 13) ^ left(words[0], 23);
		rounds[r] = k[r % 4];
	}
	explicit_bzero(k, sizeof(k));
	explicit_bzero(words, sizeof(words));
}

static void
sm4_prepare(struct sm4_key *key)
{
}

static void
sm4_table(struct sm4_table *table, unsigned group, const struct sm4_key *const *keys)
{
	for (unsigned r = 0; r < SM4_ROUNDS; r++)
		for (unsigned i = 0; i < BLOCKS; i++)
			table->rounds[r * BLOCKS + i] = keys[i]->rounds[r];
}

// Round keys of each round `step` words further, those of each block `lane_step` words.
static void
sm4_sixteen(const uint32_t *rounds, unsigned step, unsigned lane_step, uint8_t (*blocks)[SM4_BLOCK])
{
	uint32_t x[WORDS][BLOCKS], t[BLOCKS];

	for (unsigned i = 0; i < BLOCKS; i++)
		for (unsigned j = 0; j < WORDS; j++)
			x[j][i] = word_of(blocks[i] + 4 * j);
	for (unsigned r = 0; r < SM4_ROUNDS; r++) {
		for (unsigned i = 0; i < BLOCKS; i++)
			t[i] = x[(r + 1) % 4][i] ^ x[(r + 2) % 4][i] ^ x[(r + 3) % 4][i] ^
			       rounds[r * step + i * lane_step];
		substitute_words(t);
		for (unsigned i = 0; i < BLOCKS; i++)
			x[r % 4][i] ^= t[i] ^ left(t[i], 2) ^ left(t[i], 10) ^ left(t[i], 18) ^ left(t[i], 24);
	}
	for (unsigned i = 0; i < BLOCKS; i++)
		for (unsigned j = 0; j < WORDS; j++)
			word_to(blocks[i] + 4 * j, x[WORDS - 1 - j][i]);
}

static void
sm4(const struct sm4_table *table, uint8_t (*blocks)[SM4_BLOCK], unsigned groups)
{
	if (groups > 0)
		sm4_sixteen(table->rounds, BLOCKS, 1, blocks);
}

static void
sm4_same(const struct sm4_key *key, uint8_t (*blocks)[SM4_BLOCK], unsigned groups)
{
	if (groups > 0)
		sm4_sixteen(key->rounds, 1, 0, blocks);
}

static void
sm4_counter(const struct sm4_key *key, const uint8_t nonce[12], uint32_t counter, uint8_t *data, size_t groups)
{
	uint8_t blocks[BLOCKS][SM4_BLOCK];

	for (; groups > 0; groups--, data += sizeof(blocks)) {
		for (unsigned i = 0; i < BLOCKS; i++) {
			memcpy(blocks[i], nonce, 12);
			word_to(blocks[i] + 12, counter++);
		}
		sm4_sixteen(key->rounds, 1, 0, blocks);
		for (unsigned i = 0; i < sizeof(blocks); i++)
			data[i] ^= blocks[i / SM4_BLOCK][i % SM4_BLOCK];
	}
}

typedef uint32_t lane;

static inline lane
lane_load(const uint32_t *words)
{
	return *words;
}

static inline void
lane_store(uint32_t *words, lane x)
{
	*words = x;
}

static inline lane
lane_set(uint32_t x)
{
	return x;
}

static inline lane
lane_xor(lane a, lane b)
{
	return a ^ b;
}

static inline lane
lane_add(lane a, lane b)
{
	return a + b;
}

static inline lane
lane_majority(lane a, lane b, lane c)
{
	return (a & b) | (c & (a | b));
}

static inline lane
lane_choose(lane e, lane f, lane g)
{
	return g ^ (e & (f ^ g));
}

static inline lane
lane_rotate(lane x, unsigned bits)
{
	return left(x, bits);
}

static inline lane
lane_rotate8(lane x)
{
	return left(x, 8);
}

static inline void
lane_words(lane w[16], const uint8_t *const *text, size_t at)
{
	for (unsigned i = 0; i < 16; i++)
		w[i] = word_of(text[0] + at + 4 * i);
}

#include "crypto/ways/sm3_lanes.h"

// A polynomial of degree below 128, x^0 lowest.
struct gf128 {
	uint64_t low, high;
};

// The low half of a carry-less product. Three of four bits are zero in each factor, so sums of up to 16 ones stay below the next one.
static inline uint64_t
multiply_low(uint64_t x, uint64_t y)
{
	static const uint64_t one_of_four = 0x1111111111111111;
	uint64_t r = 0;

	for (unsigned i = 0; i < 4; i++) {
		uint64_t sum = 0;

		for (unsigned j = 0; j < 4; j++)
			sum ^= (x & one_of_four << j) * (y & one_of_four << (i + 4 - j) % 4);
		r |= sum & one_of_four << i;
	}
	return r;
}

static inline uint64_t
reversed(uint64_t x)
{
	x = (x & 0x5555555555555555) << 1 | (x >> 1 & 0x5555555555555555);
	x = (x & 0x3333333333333333) << 2 | (x >> 2 & 0x3333333333333333);
	x = (x & 0x0f0f0f0f0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f0f0f0f0f);
	return __builtin_bswap64(x);
}

static inline struct gf128
multiply_64(uint64_t x, uint64_t y)
{
	return (struct gf128){multiply_low(x, y), reversed(multiply_low(reversed(x), reversed(y))) >> 1};
}

// RFC 8452 section 3: the product divided by x^128, modulo x^128 + x^127 + x^126 + x^121 + 1.
static struct gf128
multiply_128(struct gf128 a, struct gf128 b)
{
	struct gf128 low = multiply_64(a.low, b.low), high = multiply_64(a.high, b.high);
	struct gf128 middle = multiply_64(a.low ^ a.high, b.low ^ b.high);

	middle.low ^= low.low ^ high.low;
	middle.high ^= low.high ^ high.high;
	low.high ^= middle.low;
	high.low ^= middle.high;
	for (unsigned fold = 0; fold < 2; fold++) {
		// The lowest 64 bits times x^127 + x^126 + x^121 (x^63 + x^62 + x^57 after the division by x^64).
		uint64_t t = low.low;

		low = (struct gf128){low.high ^ t << 63 ^ t << 62 ^ t << 57, t ^ t >> 1 ^ t >> 2 ^ t >> 7};
	}
	return (struct gf128){high.low ^ low.low, high.high ^ low.high};
}

static struct gf128
ghash_block(const uint8_t block[16])
{
	uint64_t high, low;

	memcpy(&high, block, 8);
	memcpy(&low, block + 8, 8);
	return (struct gf128){__builtin_bswap64(low), __builtin_bswap64(high)};
}

// By RFC 8452 appendix A, GHASH is POLYVAL of blocks with their bytes in the other order, under a hash key multiplied by x.
static void
ghash_prepare(struct ghash_key *key, const uint8_t hash_key[16])
{
	struct gf128 h = ghash_block(hash_key);
	uint64_t out = 0 - (h.high >> 63);

	h = (struct gf128){h.low << 1 ^ (out & 1), (h.high << 1 | h.low >> 63) ^ (out & 0xc200000000000000)};
	memcpy(key->powers[0], &h, sizeof(h));
}

static void
ghash(const struct ghash_key *key, uint8_t y[16], const uint8_t *data, size_t blocks)
{
	struct gf128 h, hash;

	memcpy(&h, key->powers[0], sizeof(h));
	memcpy(&hash, y, sizeof(hash));
	for (; blocks > 0; blocks--, data += 16) {
		struct gf128 block = ghash_block(data);

		hash = multiply_128((struct gf128){hash.low ^ block.low, hash.high ^ block.high}, h);
	}
	memcpy(y, &hash, sizeof(hash));
}

static void
ghash_finish(const uint8_t y[16], uint8_t hash[16])
{
	struct gf128 h = ghash_block(y);

	memcpy(hash, &h, sizeof(h));
}

const struct sm_way sm_way_c = {
	.name = "sm-c",
	.sm4_group = BLOCKS,
	.sm4_blocks = BLOCKS,
	.sm3_lanes = LANES,
	SM_WAY_FUNCTIONS,
};
