// SPDX-License-Identifier: Apache-2.0
// Exact match from a 64-bit key to a 32-bit value, for the fast path: one writer (the main thread), many readers
// without locks. A bucket is one cache line of five keys and their values. A full bucket overflows into the next and
// counts the overflowed keys, so that most misses end after one line too. Readers must be between two quiescent
// states (core/rcu.h) for as long as they use the map.
#pragma once

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__AVX2__) && !defined(__SANITIZE_THREAD__)
#include <immintrin.h>
#endif

enum { MAP64_BUCKET_KEYS = 5, MAP64_BURST = 256 };

static const uint32_t MAP64_NONE = UINT32_MAX; // no such key; cannot be stored as a value

// `state` is the count of keys that passed this bucket on their way to a later one (low half) and a generation that
// changes each time a slot is filled (high half). A reader that finds the same generation before the key and after the
// value has read a value that belongs to the key, even if keys were deleted and put meanwhile.
struct map64_bucket {
	_Atomic uint64_t keys[MAP64_BUCKET_KEYS]; // 0: a free slot
	_Atomic uint32_t values[MAP64_BUCKET_KEYS];
	_Atomic uint32_t state;
} __attribute__((aligned(64)));
static_assert(sizeof(struct map64_bucket) == 64, "a bucket is a cache line");

// All that a reader needs, replaced as a whole when the map grows.
struct map64_table {
	uint64_t secret[2]; // random by map: an attacker cannot choose keys that collide
	uint32_t mask;      // buckets - 1
	uint32_t shift;     // size class, for the writer
	size_t bytes;
	struct map64_bucket buckets[];
} __attribute__((aligned(64)));

struct map64 {
	struct map64_table *_Atomic table;
	uint32_t count;
};

// An empty map of a few hundred bytes, or NULL when there is no memory.
struct map64 *map64_create(void);

// Retires the map's memory; readers that are still inside may finish.
void map64_destroy(struct map64 *map);

// Put or replace. -EINVAL for key 0 or value MAP64_NONE, -ENOMEM when the map could not grow; it is unchanged then.
int map64_put(struct map64 *map, uint64_t key, uint32_t value);

// -ENOENT when there was no such key.
int map64_delete(struct map64 *map, uint64_t key);

// Keys in the map, for the writer.
static inline uint32_t
map64_count(const struct map64 *map)
{
	return map->count;
}

// Bytes held, for the writer.
size_t map64_memory(const struct map64 *map);

// For the writer: each entry once, in no order. Start with a position of 0; false at the end. Deleting while iterating
// is allowed, putting is not.
bool map64_next(const struct map64 *map, uint64_t *position, uint64_t *key, uint32_t *value);

static inline uint32_t
map64_home(const struct map64_table *table, uint64_t key)
{
	unsigned __int128 product = (unsigned __int128)(key ^ table->secret[0]) * table->secret[1];

	return ((uint32_t)product ^ (uint32_t)(product >> 64)) & table->mask;
}

// A bit for each slot of the bucket that holds the key. The wide loads read single keys atomically, which is all that
// the order of `state`, keys and values needs on x86.
static inline uint32_t
map64_match(const struct map64_bucket *bucket, uint64_t key)
{
#if defined(__AVX512F__) && !defined(__SANITIZE_THREAD__)
	return _mm512_mask_cmpeq_epi64_mask(0x1f, _mm512_load_si512(bucket), _mm512_set1_epi64((long long)key));
#elif defined(__AVX2__) && !defined(__SANITIZE_THREAD__)
	const __m256i *half = (const __m256i *)(const void *)bucket;
	__m256i repeated = _mm256_set1_epi64x((long long)key);
	int low = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_load_si256(half), repeated)));
	uint64_t fifth = atomic_load_explicit(&bucket->keys[4], memory_order_acquire);

	return (uint32_t)low | (uint32_t)(fifth == key) << 4;
#else
	uint32_t match = 0;

	for (unsigned i = 0; i < MAP64_BUCKET_KEYS; i++)
		match |= (uint32_t)(atomic_load_explicit(&bucket->keys[i], memory_order_acquire) == key) << i;
	return match;
#endif
}

// The whole probe sequence from a bucket on: one circle at most, since after deletes and puts every bucket may count keys
// that passed it.
static inline uint32_t
map64_probe(const struct map64_table *table, uint32_t home, uint64_t key)
{
	uint32_t passed = 0;

	for (;;) {
		const struct map64_bucket *bucket = &table->buckets[home];
		uint32_t before = atomic_load_explicit(&bucket->state, memory_order_acquire);
		uint32_t match, value = MAP64_NONE;

		atomic_signal_fence(memory_order_acquire);
		match = map64_match(bucket, key);
		atomic_signal_fence(memory_order_acquire);
		if (match != 0)
			value = atomic_load_explicit(&bucket->values[__builtin_ctz(match)], memory_order_acquire);
		if (atomic_load_explicit(&bucket->state, memory_order_acquire) >> 16 != before >> 16)
			continue;
		if (match != 0 || (uint16_t)before == 0 || passed++ == table->mask)
			return value;
		home = (home + 1) & table->mask;
	}
}

// The value of a key, or MAP64_NONE. Key 0 is never there.
static inline uint32_t
map64_get(const struct map64 *map, uint64_t key)
{
	const struct map64_table *table = atomic_load_explicit(&map->table, memory_order_acquire);

	return key == 0 ? MAP64_NONE : map64_probe(table, map64_home(table, key), key);
}

// The values of `n` keys, at most MAP64_BURST; MAP64_NONE for each that is not there. All keys' lines are on their way
// from memory before the first is compared.
static inline void
map64_get_bulk(const struct map64 *map, const uint64_t *keys, uint32_t *values, unsigned n)
{
	enum { PREFETCH_DISTANCE = 32 };
	const struct map64_table *table = atomic_load_explicit(&map->table, memory_order_acquire);
	uint32_t homes[MAP64_BURST + PREFETCH_DISTANCE];
	unsigned first = n < PREFETCH_DISTANCE ? n : PREFETCH_DISTANCE;

	for (unsigned i = 0; i < first; i++) {
		homes[i] = map64_home(table, keys[i]);
		__builtin_prefetch(&table->buckets[homes[i]]);
	}
	for (unsigned i = 0; i < n; i++) {
		uint64_t key = keys[i];
		const struct map64_bucket *bucket = &table->buckets[homes[i]];
		uint32_t before, match, value;

		if (i + PREFETCH_DISTANCE < n) {
			homes[i + PREFETCH_DISTANCE] = map64_home(table, keys[i + PREFETCH_DISTANCE]);
			__builtin_prefetch(&table->buckets[homes[i + PREFETCH_DISTANCE]]);
		}
		before = atomic_load_explicit(&bucket->state, memory_order_acquire);
		atomic_signal_fence(memory_order_acquire);
		match = map64_match(bucket, key);
		atomic_signal_fence(memory_order_acquire);
		// Without a match this reads the last value, to no effect: whether keys hit is not predictable.
		value = atomic_load_explicit(&bucket->values[__builtin_ctz(match | 1u << 4)], memory_order_acquire);
		values[i] = match != 0 && key != 0 ? value : MAP64_NONE;
		if (__builtin_expect(
			    (match == 0 && (uint16_t)before != 0) ||
				    atomic_load_explicit(&bucket->state, memory_order_acquire) >> 16 != before >> 16,
			    0))
			values[i] = key == 0 ? MAP64_NONE : map64_probe(table, homes[i], key);
	}
}
