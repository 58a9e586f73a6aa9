// SPDX-License-Identifier: Apache-2.0
// Exact prefixes: a hash table for each length in use. Most of a real table has a handful of lengths, so finding a cover
// is a few probes, and a /24 costs eight bytes and the slack.
#include "fib/rib.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
	FIRST_SLOTS = 4,
	ALONE_SLOTS = 65536,           // in one table; of more prefixes there are several tables
	TABLE_BITS = 6,                // of the hash, which choose one of several tables
	TABLE_SHIFT = 32 - TABLE_BITS, // of a position: the slot in a table is below
};

// Words of address that a length reaches; the value follows them in a slot.
static unsigned
words_of(unsigned length)
{
	return (length + 31) / 32;
}

static uint32_t
tables_of(const struct rib_length *of)
{
	return of->tables == NULL ? 0 : UINT32_C(1) << of->table_bits;
}

static uint32_t *
slot_at(const struct rib_table *table, unsigned words, uint32_t slot)
{
	return table->slots + (size_t)slot * (words + 1);
}

static uint64_t
hash_of(const struct rib *rib, const uint32_t *address, unsigned words)
{
	uint64_t hash = rib->secret[0];

	for (unsigned i = 0; i < words; i++) {
		unsigned __int128 product = (unsigned __int128)(hash ^ address[i]) * rib->secret[1];

		hash = (uint64_t)product ^ (uint64_t)(product >> 64);
	}
	return hash;
}

// There has to be a table.
static struct rib_table *
table_for(const struct rib_length *of, uint64_t hash)
{
	return &of->tables[hash >> 32 >> (32 - of->table_bits)];
}

// The slot that holds the address, or the free one where it would go.
static uint32_t *
find(const struct rib_table *table, uint64_t hash, const uint32_t *address, unsigned words)
{
	for (uint32_t at = (uint32_t)hash & table->mask;; at = (at + 1) & table->mask) {
		uint32_t *slot = slot_at(table, words, at);

		if (slot[words] == 0 || memcmp(slot, address, words * sizeof(*address)) == 0)
			return slot;
	}
}

static bool
make_table(struct rib_table *table, unsigned words, uint32_t slots)
{
	*table = (struct rib_table){.slots = calloc(slots, (words + 1) * sizeof(uint32_t)), .mask = slots - 1};
	return table->slots != NULL;
}

static bool
resize(const struct rib *rib, struct rib_table *table, unsigned words, uint32_t slots)
{
	struct rib_table fresh;

	if (!make_table(&fresh, words, slots))
		return false;
	for (uint32_t i = 0; i <= table->mask; i++) {
		const uint32_t *slot = slot_at(table, words, i);

		if (slot[words] != 0)
			memcpy(find(&fresh, hash_of(rib, slot, words), slot, words), slot, (words + 1) * sizeof(*slot));
	}
	fresh.count = table->count;
	free(table->slots);
	*table = fresh;
	return true;
}

static void
free_tables(struct rib_length *of)
{
	for (uint32_t i = 0; i < tables_of(of); i++)
		free(of->tables[i].slots);
	free(of->tables);
	*of = (struct rib_length){0};
}

// Make the tables of a length, of so many slots together.
static bool
make_tables(struct rib_length *of, unsigned words, uint32_t table_bits, uint32_t slots)
{
	*of = (struct rib_length){
		.tables = calloc((size_t)1 << table_bits, sizeof(of->tables[0])), .table_bits = table_bits};
	for (uint32_t i = 0; i < tables_of(of); i++) {
		if (!make_table(&of->tables[i], words, slots >> table_bits)) {
			free_tables(of);
			return false;
		}
	}
	return of->tables != NULL;
}

// Several tables in place of one. They stay until the last prefix of the length goes.
static bool
divide(const struct rib *rib, struct rib_length *of, unsigned words)
{
	const struct rib_table *one = of->tables;
	struct rib_length fresh;

	if (!make_tables(&fresh, words, TABLE_BITS, 2 * (one->mask + 1)))
		return false;
	for (uint32_t i = 0; i <= one->mask; i++) {
		const uint32_t *slot = slot_at(one, words, i);
		struct rib_table *table;
		uint64_t hash;

		if (slot[words] == 0)
			continue;
		hash = hash_of(rib, slot, words);
		table = table_for(&fresh, hash);
		memcpy(find(table, hash, slot, words), slot, (words + 1) * sizeof(*slot));
		table->count++;
	}
	fresh.count = of->count;
	free_tables(of);
	*of = fresh;
	return true;
}

int
rib_init(struct rib *rib)
{
	memset(rib, 0, sizeof(*rib));
	if (getentropy(rib->secret, sizeof(rib->secret)) != 0)
		return -ENOMEM;
	rib->secret[1] |= 1;
	return 0;
}

void
rib_clear(struct rib *rib)
{
	for (unsigned length = 0; length < RIB_LENGTHS; length++)
		free_tables(&rib->lengths[length]);
	rib->count = 0;
}

static bool
is_full(const struct rib_table *table)
{
	return ((uint64_t)table->count + 1) * 4 > ((uint64_t)table->mask + 1) * 3;
}

int
rib_put(struct rib *rib, const uint8_t *address, unsigned length, uint32_t value, uint32_t *old)
{
	struct rib_length *of = &rib->lengths[length];
	unsigned words = words_of(length);
	uint32_t key[RIB_ADDRESS / 4], *slot;
	struct rib_table *table;
	uint64_t hash;

	memcpy(key, address, sizeof(key));
	if (of->tables == NULL && !make_tables(of, words, 0, FIRST_SLOTS))
		return -ENOMEM;
	hash = hash_of(rib, key, words);
	table = table_for(of, hash);
	slot = find(table, hash, key, words);
	*old = slot[words];
	if (*old == 0) {
		if (is_full(table)) {
			bool larger = of->table_bits == 0 && table->mask + 1 == ALONE_SLOTS
					      ? divide(rib, of, words)
					      : resize(rib, table, words, (table->mask + 1) * 2);

			if (!larger)
				return -ENOMEM;
			table = table_for(of, hash);
			slot = find(table, hash, key, words);
		}
		memcpy(slot, key, words * sizeof(*key));
		table->count++;
		of->count++;
		rib->count++;
	}
	slot[words] = value;
	return 0;
}

// Close the gap that a deletion leaves, so that no search stops short of a prefix behind it.
static void
close_gap(const struct rib *rib, const struct rib_table *table, unsigned words, uint32_t gap)
{
	for (uint32_t next = (gap + 1) & table->mask; slot_at(table, words, next)[words] != 0;
		next = (next + 1) & table->mask) {
		const uint32_t *slot = slot_at(table, words, next);
		uint32_t home = (uint32_t)hash_of(rib, slot, words) & table->mask;

		if (((next - home) & table->mask) >= ((next - gap) & table->mask)) {
			memcpy(slot_at(table, words, gap), slot, (words + 1) * sizeof(*slot));
			gap = next;
		}
	}
	slot_at(table, words, gap)[words] = 0;
}

uint32_t
rib_delete(struct rib *rib, const uint8_t *address, unsigned length)
{
	struct rib_length *of = &rib->lengths[length];
	unsigned words = words_of(length);
	uint32_t key[RIB_ADDRESS / 4], *slot, value;
	struct rib_table *table;
	uint64_t hash;

	if (of->count == 0)
		return 0;
	memcpy(key, address, sizeof(key));
	hash = hash_of(rib, key, words);
	table = table_for(of, hash);
	slot = find(table, hash, key, words);
	value = slot[words];
	if (value == 0)
		return 0;
	close_gap(rib, table, words, (uint32_t)((size_t)(slot - table->slots) / (words + 1)));
	table->count--;
	of->count--;
	rib->count--;
	if (of->count == 0)
		free_tables(of);
	else if (table->mask + 1 >= 4 * FIRST_SLOTS && table->count < (table->mask + 1) / 8)
		// Without memory for a smaller table the larger one stays.
		(void)resize(rib, table, words, (table->mask + 1) / 4);
	return value;
}

uint32_t
rib_find(const struct rib *rib, const uint8_t *address, unsigned length)
{
	const struct rib_length *of = &rib->lengths[length];
	unsigned words = words_of(length);
	uint32_t key[RIB_ADDRESS / 4];
	uint64_t hash;

	if (of->count == 0)
		return 0;
	memcpy(key, address, sizeof(key));
	hash = hash_of(rib, key, words);
	return find(table_for(of, hash), hash, key, words)[words];
}

uint32_t
rib_cover(const struct rib *rib, const uint8_t *address, unsigned length, unsigned *cover)
{
	uint8_t prefix[RIB_ADDRESS];

	memcpy(prefix, address, sizeof(prefix));
	while (length-- > 0) {
		uint32_t value;

		prefix[length / 8] &= (uint8_t) ~(0x80 >> length % 8);
		value = rib_find(rib, prefix, length);
		if (value != 0) {
			*cover = length;
			return value;
		}
	}
	*cover = 0;
	return 0;
}

uint32_t
rib_next(const struct rib *rib, uint64_t *position, uint8_t *address, unsigned *length)
{
	for (*length = (unsigned)(*position >> 32); *length < RIB_LENGTHS; (*length)++) {
		const struct rib_length *of = &rib->lengths[*length];
		unsigned words = words_of(*length);
		uint32_t first = (uint32_t)*position & ((UINT32_C(1) << TABLE_SHIFT) - 1);

		for (uint32_t t = (uint32_t)*position >> TABLE_SHIFT; t < tables_of(of); t++, first = 0) {
			const struct rib_table *table = &of->tables[t];

			for (uint32_t i = first; i <= table->mask; i++) {
				const uint32_t *slot = slot_at(table, words, i);

				if (slot[words] == 0)
					continue;
				memset(address, 0, RIB_ADDRESS);
				memcpy(address, slot, words * sizeof(*slot));
				*position = (uint64_t)*length << 32 | (((uint64_t)t << TABLE_SHIFT) + i + 1);
				return slot[words];
			}
		}
		*position = (uint64_t)(*length + 1) << 32;
	}
	return 0;
}

size_t
rib_memory(const struct rib *rib)
{
	size_t bytes = 0;

	for (unsigned length = 0; length < RIB_LENGTHS; length++) {
		const struct rib_length *of = &rib->lengths[length];

		bytes += tables_of(of) * sizeof(of->tables[0]);
		for (uint32_t i = 0; i < tables_of(of); i++)
			bytes += ((size_t)of->tables[i].mask + 1) * (words_of(length) + 1) * sizeof(uint32_t);
	}
	return bytes;
}
