// SPDX-License-Identifier: Apache-2.0
// Hash table of 5-tuples. A bucket is a cache line of eight hashes and the entries they stand for; a full bucket goes on in the
// next. At most half of the places are taken, so that most keys are found with one bucket and one entry.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <rte_bitops.h>
#include <rte_common.h>
#include <rte_hash_crc.h>
#include <rte_prefetch.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "acl/tuples.h"

enum { PLACES = 8, KEYS_MAX = 256 };

struct bucket {
	uint32_t hashes[PLACES]; // 0: free
	uint32_t entries[PLACES];
} __attribute__((aligned(64)));

struct tuples {
	uint32_t mask; // buckets - 1
	uint32_t used;
	uint32_t key_size, entry_size; // an entry is a key and then its value
	uint8_t *entries;
	struct bucket buckets[];
} __attribute__((aligned(64)));

static inline uint32_t
hash_of(const void *key, uint32_t size)
{
	uint32_t hash = 0x9e3779b9;

	for (uint32_t at = 0; at < size; at += 8) {
		uint64_t word;

		memcpy(&word, (const uint8_t *)key + at, 8);
		hash = rte_hash_crc_8byte(word, hash);
	}
	return hash != 0 ? hash : 1;
}

// A bit for each place that holds the hash.
static inline uint32_t
places_of(const struct bucket *bucket, uint32_t hash)
{
#if defined(__AVX2__)
	__m256i equal = _mm256_cmpeq_epi32(
		_mm256_load_si256((const __m256i *)(const void *)bucket->hashes), _mm256_set1_epi32((int)hash));

	return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(equal));
#else
	uint32_t match = 0;

	for (unsigned i = 0; i < PLACES; i++)
		match |= (uint32_t)(bucket->hashes[i] == hash) << i;
	return match;
#endif
}

static inline uint32_t
find(const struct tuples *tuples, const void *key, uint32_t hash, uint32_t key_size)
{
	for (uint32_t at = hash & tuples->mask;; at = (at + 1) & tuples->mask) {
		const struct bucket *bucket = &tuples->buckets[at];

		for (uint32_t match = places_of(bucket, hash); match != 0; match &= match - 1) {
			const uint8_t *entry =
				tuples->entries + (size_t)bucket->entries[__builtin_ctz(match)] * tuples->entry_size;
			uint32_t value;

			if (memcmp(entry, key, key_size) == 0) {
				memcpy(&value, entry + key_size, 4);
				return value;
			}
		}
		if (bucket->hashes[PLACES - 1] == 0)
			return 0;
	}
}

struct tuples *
tuples_create(size_t count, size_t key_size)
{
	uint32_t buckets = rte_align32pow2((uint32_t)(count / (PLACES / 2)) + 1);
	size_t size = sizeof(struct tuples) + buckets * sizeof(struct bucket);
	size_t entry_size = key_size <= 16 ? 32 : 64; // none crosses a cache line
	struct tuples *tuples = aligned_alloc(64, size);
	uint8_t *entries = aligned_alloc(64, RTE_ALIGN_CEIL(count * entry_size, 64));

	if (!tuples || !entries) {
		free(tuples);
		free(entries);
		return NULL;
	}
	memset(tuples, 0, size);
	tuples->mask = buckets - 1;
	tuples->key_size = (uint32_t)key_size;
	tuples->entry_size = (uint32_t)entry_size;
	tuples->entries = entries;
	return tuples;
}

void
tuples_destroy(struct tuples *tuples)
{
	if (tuples)
		free(tuples->entries);
	free(tuples);
}

void
tuples_add(struct tuples *tuples, const void *key, uint32_t value)
{
	uint32_t hash = hash_of(key, tuples->key_size), at = hash & tuples->mask;
	uint8_t *entry = tuples->entries + (size_t)tuples->used * tuples->entry_size;

	if (find(tuples, key, hash, tuples->key_size) != 0)
		return;
	memcpy(entry, key, tuples->key_size);
	memcpy(entry + tuples->key_size, &value, 4);
	for (;; at = (at + 1) & tuples->mask) {
		struct bucket *bucket = &tuples->buckets[at];

		for (unsigned i = 0; i < PLACES; i++) {
			if (bucket->hashes[i] != 0)
				continue;
			bucket->hashes[i] = hash;
			bucket->entries[i] = tuples->used++;
			return;
		}
	}
}

// With the size of the keys known to the compiler.
static inline void
find_all(const struct tuples *tuples, const uint8_t *keys, size_t stride, unsigned count, uint32_t *values,
	uint32_t size)
{
	uint32_t hashes[KEYS_MAX];

	for (unsigned i = 0; i < count; i++) {
		hashes[i] = hash_of(keys + i * stride, size);
		rte_prefetch0(&tuples->buckets[hashes[i] & tuples->mask]);
	}
	for (unsigned i = 0; i < count; i++) {
		const struct bucket *bucket = &tuples->buckets[hashes[i] & tuples->mask];
		uint32_t match = places_of(bucket, hashes[i]) | 1u << (PLACES - 1);

		rte_prefetch0(tuples->entries + (size_t)bucket->entries[__builtin_ctz(match)] * tuples->entry_size);
	}
	for (unsigned i = 0; i < count; i++)
		values[i] = find(tuples, keys + i * stride, hashes[i], size);
}

void
tuples_find(const struct tuples *tuples, const void *keys, size_t stride, unsigned count, uint32_t *values)
{
	if (tuples->key_size == 16)
		find_all(tuples, keys, stride, count, values, 16);
	else
		find_all(tuples, keys, stride, count, values, tuples->key_size);
}
