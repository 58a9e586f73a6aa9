// SPDX-License-Identifier: Apache-2.0
// SM3's compression (GB/T 32905 section 5.3) of several messages at once: a vector has one word of each. Included by a way, which has
// defined `lane`, LANES, lane_rotate8() and the functions lane_*.
#include <string.h>

#include "crypto/ways/way.h"

// X + X<<<9 + X<<<17, X + X<<<15 + X<<<23.
static inline lane
p0(lane x)
{
	return lane_xor(x, lane_rotate(lane_xor(x, lane_rotate8(x)), 9));
}

static inline lane
p1(lane x)
{
	return lane_xor(x, lane_rotate(lane_xor(x, lane_rotate8(x)), 15));
}

static inline uint32_t
constant(unsigned j)
{
	uint32_t t = j < 16 ? 0x79cc4519 : 0x7a879d8a;

	return j % 32 == 0 ? t : t << j % 32 | t >> (32 - j % 32);
}

// s: A to H at the places (at + 0) % 8 and so on.
static inline __attribute__((always_inline)) void
sm3_round(lane s[8], unsigned j, lane w, lane w4)
{
	unsigned at = (64 - j) % 8;
	lane *a = &s[at], *b = &s[(at + 1) % 8], *c = &s[(at + 2) % 8], *d = &s[(at + 3) % 8];
	lane *e = &s[(at + 4) % 8], *f = &s[(at + 5) % 8], *g = &s[(at + 6) % 8], *h = &s[(at + 7) % 8];
	lane a12 = lane_rotate(*a, 12), ss1 = lane_rotate(lane_add(lane_add(a12, *e), lane_set(constant(j))), 7), ff,
	     gg;

	if (j < 16) {
		ff = lane_xor(lane_xor(*a, *b), *c);
		gg = lane_xor(lane_xor(*e, *f), *g);
	} else {
		ff = lane_majority(*a, *b, *c);
		gg = lane_choose(*e, *f, *g);
	}
	// The next round's A is at H's place, its E at D's.
	gg = lane_add(lane_add(gg, *h), lane_add(ss1, w));
	*h = lane_add(lane_add(ff, *d), lane_add(lane_xor(ss1, a12), lane_xor(w, w4)));
	*d = p0(gg);
	*b = lane_rotate(*b, 9);
	*f = lane_rotate(*f, 19);
}

static void
sm3(uint32_t *state, const uint8_t *const *text, size_t blocks)
{
	lane s[8];

	for (unsigned i = 0; i < 8; i++)
		s[i] = lane_load(state + i * LANES);
	for (size_t block = 0; block < blocks; block++) {
		lane w[16], before[8];

		lane_words(w, text, block * SM3_BLOCK);
		memcpy(before, s, sizeof(s));
#pragma GCC unroll 64
		for (unsigned j = 0; j < 64; j++) {
			// Computes the word that is needed four rounds later.
			if (j >= 12) {
				unsigned k = (j + 4) % 16;
				lane x = lane_xor(lane_xor(w[k], w[(k + 7) % 16]), lane_rotate(w[(k + 13) % 16], 15));

				w[k] = lane_xor(lane_xor(p1(x), lane_rotate(w[(k + 3) % 16], 7)), w[(k + 10) % 16]);
			}
			sm3_round(s, j, w[j % 16], w[(j + 4) % 16]);
		}
		for (unsigned i = 0; i < 8; i++)
			s[i] = lane_xor(s[i], before[i]);
	}
	for (unsigned i = 0; i < 8; i++)
		lane_store(state + i * LANES, s[i]);
}
