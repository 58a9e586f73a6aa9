// SPDX-License-Identifier: Apache-2.0
// The writer's side of the exact-match map: put, delete, growth. Readers are in map64.h, which explains why they are
// correct during writes.
#include "core/map64.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/huge.h"
#include "core/rcu.h"

enum { FIRST_SHIFT = 2, LAST_SHIFT = 28, FULL_OVERFLOW = UINT16_MAX };

static struct map64_table *
table_create(uint32_t shift, const uint64_t secret[2])
{
	size_t buckets = (size_t)1 << shift;
	size_t bytes = sizeof(struct map64_table) + buckets * sizeof(struct map64_bucket);
	struct map64_table *table = huge_zeroed(bytes);

	if (table == NULL)
		return NULL;
	table->secret[0] = secret[0];
	table->secret[1] = secret[1] | 1;
	table->mask = (uint32_t)buckets - 1;
	table->shift = shift;
	table->bytes = bytes;
	return table;
}

static struct map64_table *
current(const struct map64 *map)
{
	return atomic_load_explicit(&map->table, memory_order_relaxed);
}

static uint32_t
bucket_find(const struct map64_bucket *bucket, uint64_t key)
{
	uint32_t i = 0;

	while (i < MAP64_BUCKET_KEYS && atomic_load_explicit(&bucket->keys[i], memory_order_relaxed) != key)
		i++;
	return i;
}

static uint16_t
overflow(const struct map64_bucket *bucket)
{
	return (uint16_t)atomic_load_explicit(&bucket->state, memory_order_relaxed);
}

// The bucket and slot of a key, or NULL after one circle at most.
static struct map64_bucket *
table_find(struct map64_table *table, uint64_t key, uint32_t *slot)
{
	uint32_t passed = 0;

	for (uint32_t at = map64_home(table, key);; at = (at + 1) & table->mask) {
		struct map64_bucket *bucket = &table->buckets[at];

		*slot = bucket_find(bucket, key);
		if (*slot < MAP64_BUCKET_KEYS)
			return bucket;
		if (overflow(bucket) == 0 || passed++ == table->mask)
			return NULL;
	}
}

// Put a key that is not there. False when an overflow count on the way is full or no bucket has room.
static bool
table_add(struct map64_table *table, uint64_t key, uint32_t value)
{
	uint32_t home = map64_home(table, key), at = home, slot, passed = 0;
	struct map64_bucket *bucket;

	while ((slot = bucket_find(&table->buckets[at], 0)) == MAP64_BUCKET_KEYS) {
		if (overflow(&table->buckets[at]) == FULL_OVERFLOW || passed++ == table->mask)
			return false;
		at = (at + 1) & table->mask;
	}
	for (uint32_t full = home; full != at; full = (full + 1) & table->mask)
		atomic_fetch_add_explicit(&table->buckets[full].state, 1, memory_order_release);
	bucket = &table->buckets[at];
	atomic_fetch_add_explicit(&bucket->state, 1u << 16, memory_order_release);
	atomic_store_explicit(&bucket->values[slot], value, memory_order_release);
	atomic_store_explicit(&bucket->keys[slot], key, memory_order_release);
	return true;
}

static bool
table_next(const struct map64_table *table, uint64_t *position, uint64_t *key, uint32_t *value)
{
	uint64_t end = ((uint64_t)table->mask + 1) * MAP64_BUCKET_KEYS;

	while (*position < end) {
		const struct map64_bucket *bucket = &table->buckets[*position / MAP64_BUCKET_KEYS];
		uint64_t slot = (*position)++ % MAP64_BUCKET_KEYS;

		*key = atomic_load_explicit(&bucket->keys[slot], memory_order_relaxed);
		*value = atomic_load_explicit(&bucket->values[slot], memory_order_relaxed);
		if (*key != 0)
			return true;
	}
	return false;
}

// Move to a table of another size. Readers change over when they next load the pointer.
static int
resize(struct map64 *map, uint32_t shift)
{
	struct map64_table *old = current(map), *table;
	uint64_t position, key;
	uint32_t value;
	bool fits;

	do {
		if (shift > LAST_SHIFT)
			return -ENOMEM;
		table = table_create(shift, old->secret);
		if (table == NULL)
			return -ENOMEM;
		position = 0;
		fits = true;
		while (fits && table_next(old, &position, &key, &value))
			fits = table_add(table, key, value);
		if (!fits)
			free(table);
		shift++;
	} while (!fits);
	atomic_store_explicit(&map->table, table, memory_order_release);
	rcu_retire(free, old);
	return 0;
}

struct map64 *
map64_create(void)
{
	struct map64 *map = malloc(sizeof(*map));
	struct map64_table *table;
	uint64_t secret[2];

	if (map == NULL)
		return NULL;
	if (getentropy(secret, sizeof(secret)) != 0 || (table = table_create(FIRST_SHIFT, secret)) == NULL) {
		free(map);
		return NULL;
	}
	atomic_init(&map->table, table);
	map->count = 0;
	return map;
}

void
map64_destroy(struct map64 *map)
{
	if (map == NULL)
		return;
	rcu_retire(free, current(map));
	rcu_retire(free, map);
}

int
map64_put(struct map64 *map, uint64_t key, uint32_t value)
{
	struct map64_table *table = current(map);
	uint64_t slots = ((uint64_t)table->mask + 1) * MAP64_BUCKET_KEYS;
	struct map64_bucket *bucket;
	uint32_t slot;

	if (key == 0 || value == MAP64_NONE)
		return -EINVAL;
	bucket = table_find(table, key, &slot);
	if (bucket != NULL) {
		atomic_store_explicit(&bucket->values[slot], value, memory_order_release);
		return 0;
	}
	// Fuller, so many keys live in a second line that mispredicted branches double the cost of a look-up.
	if ((uint64_t)map->count * 5 >= slots * 3) {
		int error = resize(map, table->shift + 1);

		if (error != 0)
			return error;
	}
	while (!table_add(current(map), key, value)) {
		int error = resize(map, current(map)->shift + 1);

		if (error != 0)
			return error;
	}
	map->count++;
	return 0;
}

int
map64_delete(struct map64 *map, uint64_t key)
{
	struct map64_table *table = current(map);
	struct map64_bucket *bucket;
	uint32_t slot;

	if (key == 0 || (bucket = table_find(table, key, &slot)) == NULL)
		return -ENOENT;
	atomic_store_explicit(&bucket->keys[slot], 0, memory_order_release);
	for (uint32_t at = map64_home(table, key); &table->buckets[at] != bucket; at = (at + 1) & table->mask)
		atomic_fetch_sub_explicit(&table->buckets[at].state, 1, memory_order_release);
	map->count--;
	return 0;
}

size_t
map64_memory(const struct map64 *map)
{
	return sizeof(*map) + current(map)->bytes;
}

bool
map64_next(const struct map64 *map, uint64_t *position, uint64_t *key, uint32_t *value)
{
	return table_next(current(map), position, key, value);
}
