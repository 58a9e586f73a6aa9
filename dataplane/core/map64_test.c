// SPDX-License-Identifier: Apache-2.0
// The exact-match map against a plain array, and against a reader that never waits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>

#include "core/map64.h"
#include "core/rcu_double.h"

static uint64_t
next_random(void)
{
	static uint64_t state = 88172645463325252;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static void
an_empty_map_has_no_key_and_costs_less_than_half_a_kilobyte(void **state)
{
	struct map64 *map = map64_create();
	uint64_t keys[] = {0, 1, UINT64_MAX};
	uint32_t values[3];

	assert_non_null(map);
	map64_get_bulk(map, keys, values, 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(map64_get(map, keys[i]), MAP64_NONE);
		assert_int_equal(values[i], MAP64_NONE);
	}
	assert_in_range(map64_memory(map), 1, 512);
	map64_destroy(map);
}

static void
key_0_and_the_value_that_means_none_are_refused(void **state)
{
	struct map64 *map = map64_create();

	assert_int_equal(map64_put(map, 0, 1), -EINVAL);
	assert_int_equal(map64_put(map, 1, MAP64_NONE), -EINVAL);
	assert_int_equal(map64_delete(map, 0), -ENOENT);
	assert_int_equal(map64_delete(map, 1), -ENOENT);
	assert_int_equal(map64_count(map), 0);
	map64_destroy(map);
}

static void
a_put_of_a_key_that_is_there_replaces_its_value(void **state)
{
	struct map64 *map = map64_create();

	assert_int_equal(map64_put(map, 7, 1), 0);
	assert_int_equal(map64_put(map, 7, 2), 0);
	assert_int_equal(map64_get(map, 7), 2);
	assert_int_equal(map64_count(map), 1);
	assert_int_equal(map64_delete(map, 7), 0);
	assert_int_equal(map64_get(map, 7), MAP64_NONE);
	map64_destroy(map);
}

static void
bulk_look_ups_of_every_size_agree_with_single_ones(void **state)
{
	struct map64 *map = map64_create();
	uint64_t keys[MAP64_BURST];
	uint32_t values[MAP64_BURST + 1];

	for (uint64_t key = 1; key <= 1000; key++)
		assert_int_equal(map64_put(map, key, (uint32_t)key * 3), 0);
	for (unsigned n = 0; n <= MAP64_BURST; n++) {
		for (unsigned i = 0; i < n; i++)
			keys[i] = next_random() % 2000;
		values[n] = 12345;
		map64_get_bulk(map, keys, values, n);
		for (unsigned i = 0; i < n; i++) {
			assert_int_equal(values[i], map64_get(map, keys[i]));
			assert_int_equal(values[i], keys[i] >= 1 && keys[i] <= 1000 ? keys[i] * 3 : MAP64_NONE);
		}
		assert_int_equal(values[n], 12345);
	}
	map64_destroy(map);
}

static void
after_random_operations_the_map_equals_an_array(void **state)
{
	enum { KEYS = 4096, OPERATIONS = 200000 };
	static uint32_t model[KEYS]; // value, or 0 when the key is not there
	struct map64 *map = map64_create();
	uint32_t count = 0;

	for (unsigned i = 0; i < OPERATIONS; i++) {
		uint32_t k = (uint32_t)(next_random() % KEYS), value = (uint32_t)(next_random() >> 34) + 1;
		uint64_t key = (uint64_t)(k + 1) << 40 | 0x64;
		bool grow = i / 20000 % 2 == 0; // mostly puts, then mostly deletes

		if ((next_random() % 4 != 0) == grow) {
			assert_int_equal(map64_put(map, key, value), 0);
			count += model[k] == 0;
			model[k] = value;
		} else {
			assert_int_equal(map64_delete(map, key), model[k] != 0 ? 0 : -ENOENT);
			count -= model[k] != 0;
			model[k] = 0;
		}
		assert_int_equal(map64_count(map), count);
		k = (uint32_t)(next_random() % KEYS);
		assert_int_equal(map64_get(map, (uint64_t)(k + 1) << 40 | 0x64), model[k] != 0 ? model[k] : MAP64_NONE);
	}
	for (uint32_t k = 0; k < KEYS; k++)
		if (model[k] != 0)
			assert_int_equal(map64_delete(map, (uint64_t)(k + 1) << 40 | 0x64), 0);
	assert_int_equal(map64_count(map), 0);
	map64_destroy(map);
}

static void
the_writer_meets_each_key_once_and_may_delete_it_meanwhile(void **state)
{
	enum { KEYS = 10000 };
	static bool seen[KEYS + 1];
	struct map64 *map = map64_create();
	uint64_t position = 0, key;
	uint32_t value;

	for (uint64_t k = 1; k <= KEYS; k++)
		assert_int_equal(map64_put(map, k, (uint32_t)k + 5), 0);
	while (map64_next(map, &position, &key, &value)) {
		assert_in_range(key, 1, KEYS);
		assert_false(seen[key]);
		assert_int_equal(value, key + 5);
		seen[key] = true;
		assert_int_equal(map64_delete(map, key), 0);
	}
	assert_int_equal(map64_count(map), 0);
	map64_destroy(map);
}

// The next key above `after` whose home is this bucket.
static uint64_t
key_at_home(const struct map64 *map, uint32_t home, uint64_t after)
{
	do
		after++;
	while (map64_home(atomic_load(&map->table), after) != home);
	return after;
}

// Every bucket counts a key that passed it: each in turn is filled, sends one key on, and is emptied but for the key that the bucket
// before sent there. The highest key used.
static uint64_t
let_a_key_pass_every_bucket(struct map64 *map)
{
	const struct map64_table *table = atomic_load(&map->table);
	uint64_t last = 0;

	for (uint32_t bucket = 0; bucket <= table->mask; bucket++) {
		uint64_t fill[MAP64_BUCKET_KEYS];
		unsigned room = MAP64_BUCKET_KEYS - (bucket > 0);

		for (unsigned i = 0; i < room; i++) {
			fill[i] = last = key_at_home(map, bucket, last);
			assert_int_equal(map64_put(map, fill[i], 1), 0);
		}
		last = key_at_home(map, bucket, last);
		assert_int_equal(map64_put(map, last, 2), 0);
		for (unsigned i = 0; i < room; i++)
			assert_int_equal(map64_delete(map, fill[i]), 0);
	}
	assert_ptr_equal(table, atomic_load(&map->table));
	for (uint32_t bucket = 0; bucket <= table->mask; bucket++)
		assert_int_not_equal((uint16_t)atomic_load(&table->buckets[bucket].state), 0);
	return last;
}

static void
a_look_up_of_an_absent_key_ends_when_keys_have_passed_every_bucket(void **state)
{
	for (uint64_t grown = 0; grown <= 1000; grown = 4 * grown + 10) {
		struct map64 *map = map64_create();
		const struct map64_table *table;
		uint64_t absent, position = 0, key;
		uint32_t value, found = 0;

		for (key = 1; key <= grown; key++)
			assert_int_equal(map64_put(map, key, 1), 0);
		for (key = 1; key <= grown; key++)
			assert_int_equal(map64_delete(map, key), 0);
		absent = let_a_key_pass_every_bucket(map) + 1;
		table = atomic_load(&map->table);
		for (unsigned i = 0; i < 100; i++, absent++) {
			assert_int_equal(map64_get(map, absent), MAP64_NONE);
			map64_get_bulk(map, &absent, &value, 1);
			assert_int_equal(value, MAP64_NONE);
			assert_int_equal(map64_delete(map, absent), -ENOENT);
		}
		assert_int_equal(map64_put(map, absent, 3), 0);
		assert_int_equal(map64_get(map, absent), 3);
		assert_int_equal(map64_delete(map, absent), 0);
		while (map64_next(map, &position, &key, &value)) {
			assert_int_equal(map64_get(map, key), 2);
			found++;
		}
		assert_int_equal(found, table->mask + 1);
		map64_destroy(map);
	}
}

static void
small_maps_under_churn_equal_an_array(void **state)
{
	enum { KEYS = 256, STEPS = 300000 };

	for (unsigned live = 12; live <= 24; live += 12) {
		uint64_t there[24] = {0};
		uint32_t values[24] = {0};
		struct map64 *map = map64_create();

		for (unsigned i = 0; i < STEPS; i++) {
			unsigned place = (unsigned)(next_random() % live);
			uint64_t key = next_random() % KEYS + 1;
			uint32_t expected = MAP64_NONE;

			if (there[place])
				assert_int_equal(map64_delete(map, there[place]), 0);
			there[place] = 0;
			for (unsigned k = 0; k < live; k++)
				if (there[k] == key)
					expected = values[k];
			assert_int_equal(map64_get(map, key), expected);
			if (expected == MAP64_NONE) {
				assert_int_equal(map64_put(map, key, i), 0);
				there[place] = key;
				values[place] = i;
			}
		}
		map64_destroy(map);
	}
}

enum { MANY = 3000 };

// Key k has only ever values whose remainder by MANY is k.
static void *
read_until_told(void *argument)
{
	struct map64 *map = argument;
	uint64_t keys[MAP64_BURST], wrong = 0;
	uint32_t values[MAP64_BURST];

	while (atomic_load(&rcu_reading)) {
		for (unsigned i = 0; i < MAP64_BURST; i++)
			keys[i] =
				(atomic_load_explicit(&rcu_round, memory_order_relaxed) * 31 + i * 17) % (MANY - 1) + 1;
		map64_get_bulk(map, keys, values, MAP64_BURST);
		for (unsigned i = 0; i < MAP64_BURST; i++) {
			// Keys below 100 are never deleted.
			if (values[i] == MAP64_NONE ? keys[i] < 100 : values[i] % MANY != keys[i])
				wrong++;
		}
		atomic_fetch_add(&rcu_round, 1);
	}
	return (void *)(uintptr_t)wrong; // NOLINT(performance-no-int-to-ptr)
}

static void
a_reader_never_sees_a_value_of_another_key_nor_misses_one_that_stays(void **state)
{
	struct map64 *map = map64_create();
	pthread_t reader;
	void *wrong;

	for (uint32_t k = 1; k < 100; k++)
		assert_int_equal(map64_put(map, k, k), 0);
	atomic_store(&rcu_reading, true);
	assert_int_equal(pthread_create(&reader, NULL, read_until_told, map), 0);
	for (unsigned i = 0; i < 300000 || atomic_load(&rcu_round) < 100; i++) {
		uint32_t k = (uint32_t)(next_random() % (MANY - 1)) + 1;

		if (k < 100 || next_random() % 2 != 0)
			(void)map64_put(map, k, (uint32_t)(next_random() % 1000) * MANY + k);
		else
			(void)map64_delete(map, k);
	}
	atomic_store(&rcu_reading, false);
	assert_int_equal(pthread_join(reader, &wrong), 0);
	assert_null(wrong);
	rcu_release(true);
	map64_destroy(map);
}

static void *
read_few_until_told(void *argument)
{
	const struct map64 *map = argument;
	uint64_t wrong = 0;

	while (atomic_load_explicit(&rcu_reading, memory_order_relaxed)) {
		for (uint64_t key = 1; key < 64; key++) {
			uint32_t value = map64_get(map, key);

			wrong += value != MAP64_NONE && value % 64 != key;
		}
		atomic_fetch_add_explicit(&rcu_round, 1, memory_order_relaxed);
	}
	return (void *)(uintptr_t)wrong; // NOLINT(performance-no-int-to-ptr)
}

static void
a_reader_never_sees_a_value_of_another_key_in_a_slot_that_changes_hands(void **state)
{
	struct map64 *map = map64_create();
	unsigned start;
	pthread_t reader;
	void *wrong;

	atomic_store(&rcu_reading, true);
	start = atomic_load(&rcu_round);
	assert_int_equal(pthread_create(&reader, NULL, read_few_until_told, map), 0);
	for (uint32_t i = 0; i < 1000000 || atomic_load(&rcu_round) - start < 100; i++) {
		uint32_t key = i % 63 + 1;

		(void)map64_put(map, key, i % 1000000 * 64 + key);
		(void)map64_delete(map, key);
	}
	atomic_store(&rcu_reading, false);
	assert_int_equal(pthread_join(reader, &wrong), 0);
	assert_null(wrong);
	rcu_release(true);
	map64_destroy(map);
}

static void
a_replaced_table_is_not_freed_while_a_reader_may_be_in_it(void **state)
{
	struct map64 *map = map64_create();
	const struct map64_table *old = atomic_load(&map->table);

	assert_int_equal(map64_put(map, 1, 11), 0);
	atomic_store(&rcu_reading, true);
	for (uint64_t k = 2; k < 1000; k++)
		assert_int_equal(map64_put(map, k, 1), 0);
	assert_ptr_not_equal(old, atomic_load(&map->table));
	assert_int_equal(map64_probe(old, map64_home(old, 1), 1), 11);
	assert_true(rcu_count > rcu_first);
	atomic_store(&rcu_reading, false);
	rcu_release(true);
	map64_destroy(map);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_map_has_no_key_and_costs_less_than_half_a_kilobyte),
		cmocka_unit_test(key_0_and_the_value_that_means_none_are_refused),
		cmocka_unit_test(a_put_of_a_key_that_is_there_replaces_its_value),
		cmocka_unit_test(bulk_look_ups_of_every_size_agree_with_single_ones),
		cmocka_unit_test(after_random_operations_the_map_equals_an_array),
		cmocka_unit_test(the_writer_meets_each_key_once_and_may_delete_it_meanwhile),
		cmocka_unit_test(a_look_up_of_an_absent_key_ends_when_keys_have_passed_every_bucket),
		cmocka_unit_test(small_maps_under_churn_equal_an_array),
		cmocka_unit_test(a_reader_never_sees_a_value_of_another_key_nor_misses_one_that_stays),
		cmocka_unit_test(a_reader_never_sees_a_value_of_another_key_in_a_slot_that_changes_hands),
		cmocka_unit_test(a_replaced_table_is_not_freed_while_a_reader_may_be_in_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
