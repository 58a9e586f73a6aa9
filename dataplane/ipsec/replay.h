// SPDX-License-Identifier: Apache-2.0
// Anti-replay windows (RFC 4303 section 3.4.3, RFC 6479), for several workers at once without a lock.
//
// The window is a ring of words. A word has 32 bits, one for each sequence number of a block, and above them the number of the block, so
// that a word need not be cleared when the window moves on: a word of an older block counts as empty. The ring has one block more than
// the window, so that no two blocks of a window share a word.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { REPLAY_WINDOW_MIN = 64, REPLAY_WINDOW_MAX = 4096, REPLAY_BLOCK = 32 };
// No other worker gets further ahead while a packet is checked.
static const uint64_t REPLAY_JUMP = UINT64_C(1) << 32;

// Words that a window needs: a power of two.
static inline unsigned
replay_words(unsigned window)
{
	unsigned words = 4;

	while (words < window / REPLAY_BLOCK + 1)
		words *= 2;
	return words;
}

// RFC 4303 appendix A2.2: the whole sequence number of which a packet has the low 32 bits. 0: it is older than the first one.
static inline uint64_t
replay_extend(uint64_t top, uint32_t low, unsigned window)
{
	uint32_t top_low = (uint32_t)top, high = (uint32_t)(top >> 32), bottom = top_low - window + 1;

	if (top_low >= window - 1)
		high += low < bottom; // the next subspace
	else if (low >= bottom) {
		if (high == 0)
			return 0;
		high--; // the window reaches into the subspace before
	}
	return (uint64_t)high << 32 | low;
}

// Before the ICV is checked: false if the packet is too old or was received.
static inline bool
replay_may_be_new(const uint64_t *words, unsigned mask, unsigned window, uint64_t top, uint64_t sequence)
{
	uint64_t block = sequence / REPLAY_BLOCK, word;

	if (__builtin_expect(sequence > top, 1))
		return true;
	if (sequence == 0 || top - sequence >= window)
		return false;
	word = __atomic_load_n(&words[block & mask], __ATOMIC_RELAXED);
	return word >> 32 != (uint32_t)block || !(word & UINT64_C(1) << sequence % REPLAY_BLOCK);
}

// After the ICV was found right: note the packet; false if it is too old or was received. `shared`: other workers do the same.
static inline bool
replay_take(uint64_t *words, unsigned mask, unsigned window, uint64_t *top, uint64_t sequence, bool shared)
{
	uint64_t block = sequence / REPLAY_BLOCK, bit = UINT64_C(1) << sequence % REPLAY_BLOCK,
		 *word = &words[block & mask];
	uint64_t highest = __atomic_load_n(top, __ATOMIC_RELAXED), was = __atomic_load_n(word, __ATOMIC_RELAXED), now;

	do {
		uint32_t difference = (uint32_t)block - (uint32_t)(was >> 32);

		if (sequence <= highest && highest - sequence >= window)
			return false;
		if (difference == 0 && was & bit)
			return false;
		// The window has moved past it: another worker may have written the word, and not yet the top.
		if ((int32_t)difference < 0 && (sequence <= highest || sequence - highest < REPLAY_JUMP))
			return false;
		now = difference == 0 ? was | bit : (uint64_t)(uint32_t)block << 32 | bit;
		if (!shared) {
			*word = now;
			break;
		}
	} while (!__atomic_compare_exchange_n(word, &was, now, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	if (!shared) {
		if (sequence > highest)
			__atomic_store_n(top, sequence, __ATOMIC_RELAXED);
		return true;
	}
	while (sequence > highest &&
		!__atomic_compare_exchange_n(top, &highest, sequence, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return true;
}

// All up to `top` counts as received.
static inline void
replay_start(uint64_t *words, unsigned mask, uint64_t top)
{
	uint64_t block = top / REPLAY_BLOCK;

	for (uint64_t i = 0; i <= mask && i <= block; i++) {
		uint64_t bits = i > 0 ? UINT32_MAX : (UINT64_C(2) << top % REPLAY_BLOCK) - 1;

		words[(block - i) & mask] = (uint64_t)(uint32_t)(block - i) << 32 | bits;
	}
}
