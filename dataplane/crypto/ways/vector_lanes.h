// SPDX-License-Identifier: Apache-2.0
// The lanes of SM3 in a vector (sm3_lanes.h), for ways that define `lane` as their vector and the functions v_...() of it. Majority, choice and
// rotation are the way's own: some kinds of CPU have instructions for them.
#pragma once

static inline lane
lane_load(const uint32_t *words)
{
	return v_load(words);
}

static inline void
lane_store(uint32_t *words, lane x)
{
	v_store(words, x);
}

static inline lane
lane_set(uint32_t x)
{
	return v_set32(x);
}

static inline lane
lane_xor(lane a, lane b)
{
	return v_xor(a, b);
}

static inline lane
lane_add(lane a, lane b)
{
	return v_add32(a, b);
}

static inline lane
lane_rotate8(lane x)
{
	static const uint8_t by8[16] = {3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14};

	return v_shuffle(x, v_repeat(by8));
}

// Words of a block of each message. Messages i, i + 4 and so on are the parts of vector i, so that words come in their order.
static inline void
lane_words(lane w[16], const uint8_t *const *text, size_t at)
{
	for (unsigned quarter = 0; quarter < 4; quarter++) {
		for (unsigned i = 0; i < 4; i++) {
			const void *parts[PARTS];

			for (unsigned p = 0; p < PARTS; p++)
				parts[p] = text[i + 4 * p] + at + 16 * quarter;
			w[quarter * 4 + i] = v_shuffle(v_load_parts(parts), v_repeat(WORDS_SWAPPED));
		}
		transpose(&w[quarter * 4]);
	}
}
