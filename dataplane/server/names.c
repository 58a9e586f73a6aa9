// SPDX-License-Identifier: Apache-2.0
// Names of objects. Open-addressed hash tables find an entry: many of them, because the main thread does nothing else
// while one grows, and small pages, because each huge page that is zeroed takes milliseconds where memory is scarce or
// virtual. Beside them every kind has an array of its entries by serial number, which only grows at its end, so that a
// page's cursor is a serial number and finding it again is a binary search. Deleted entries leave holes until half of an
// array is holes.
#include "server/names.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct entry {
	uint64_t serial;
	void *value;
	unsigned kind;
	uint32_t bytes;
	char name[];
};

// An entry that is not the one looked for, or that moves to a larger table, is not touched: each is a cache miss.
struct slot {
	uint64_t hash;
	struct entry *entry; // NULL when free
};

struct place {
	uint64_t serial; // stays when the entry is gone, for the search
	struct entry *entry;
};

struct order {
	struct place *places;
	size_t used, room, live;
};

struct table {
	struct slot *slots; // a power of two of them
	size_t mask, count;
};

enum { TABLES_LOG = 6, TABLES = 1 << TABLES_LOG };

struct names {
	struct table tables[TABLES]; // by the first bits of the hash
	size_t entry_bytes;
	uint64_t serial;
	uint64_t secret[2];
	struct order orders[NAMES_KINDS];
};

enum { FIRST_SLOTS = 16, FIRST_PLACES = 8 };

static uint64_t
mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t
hash_of(const struct names *names, unsigned kind, const char *name, size_t length)
{
	uint64_t hash = names->secret[0] ^ kind, word;

	hash = mix(hash ^ length, names->secret[1]);
	for (; length >= sizeof(word); length -= sizeof(word), name += sizeof(word)) {
		memcpy(&word, name, sizeof(word));
		hash = mix(hash ^ word, names->secret[1]);
	}
	word = 0;
	memcpy(&word, name, length);
	return mix(hash ^ word, names->secret[1]);
}

static size_t
table_of(uint64_t hash)
{
	return hash >> (64 - TABLES_LOG);
}

// The slot that holds the name, or the free one where it would go.
static size_t
find(const struct table *table, uint64_t hash, unsigned kind, const char *name)
{
	size_t slot = hash & table->mask;
	const struct entry *entry;

	for (; (entry = table->slots[slot].entry) != NULL; slot = (slot + 1) & table->mask)
		if (table->slots[slot].hash == hash && entry->kind == kind && strcmp(entry->name, name) == 0)
			break;
	return slot;
}

static int
resize(struct table *table, size_t slots)
{
	struct slot *fresh = calloc(slots, sizeof(*fresh));

	if (fresh == NULL)
		return -ENOMEM;
	for (size_t i = 0; i <= table->mask; i++) {
		size_t slot = table->slots[i].hash & (slots - 1);

		if (table->slots[i].entry == NULL)
			continue;
		while (fresh[slot].entry != NULL)
			slot = (slot + 1) & (slots - 1);
		fresh[slot] = table->slots[i];
	}
	free(table->slots);
	table->slots = fresh;
	table->mask = slots - 1;
	return 0;
}

// Close the gap that a deletion leaves, so that no search stops short of an entry behind it.
static void
close_gap(struct table *table, size_t gap)
{
	for (size_t next = (gap + 1) & table->mask; table->slots[next].entry != NULL; next = (next + 1) & table->mask) {
		size_t home = table->slots[next].hash & table->mask;

		if (((next - home) & table->mask) >= ((next - gap) & table->mask)) {
			table->slots[gap] = table->slots[next];
			gap = next;
		}
	}
	table->slots[gap].entry = NULL;
}

static void
order_compact(struct order *order)
{
	size_t kept = 0;
	struct place *places;

	for (size_t i = 0; i < order->used; i++)
		if (order->places[i].entry != NULL)
			order->places[kept++] = order->places[i];
	order->used = kept;
	if (kept == 0) {
		free(order->places);
		*order = (struct order){0};
	} else if (kept < order->room / 4 && (places = realloc(order->places, kept * 2 * sizeof(*places))) != NULL) {
		order->places = places;
		order->room = kept * 2;
	}
}

static int
order_add(struct order *order, struct entry *entry)
{
	if (order->used == order->room) {
		size_t room = order->room == 0 ? FIRST_PLACES : order->room * 2;
		struct place *places = realloc(order->places, room * sizeof(*places));

		if (places == NULL)
			return -ENOMEM;
		order->places = places;
		order->room = room;
	}
	order->places[order->used++] = (struct place){.serial = entry->serial, .entry = entry};
	order->live++;
	return 0;
}

// The first place whose serial number is above `serial`.
static size_t
order_after(const struct order *order, uint64_t serial)
{
	size_t low = 0, high = order->used;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (order->places[middle].serial <= serial)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct names *
names_create(void)
{
	struct names *names = calloc(1, sizeof(*names));

	if (names == NULL)
		return NULL;
	for (size_t i = 0; i < TABLES; i++) {
		struct table *table = &names->tables[i];

		table->slots = calloc(FIRST_SLOTS, sizeof(table->slots[0]));
		if (table->slots == NULL) {
			names_destroy(names);
			return NULL;
		}
		table->mask = FIRST_SLOTS - 1;
	}
	if (getentropy(names->secret, sizeof(names->secret)) != 0) {
		names_destroy(names);
		return NULL;
	}
	names->secret[1] |= 1;
	return names;
}

void
names_destroy(struct names *names)
{
	if (names == NULL)
		return;
	for (size_t i = 0; i < TABLES; i++) {
		struct table *table = &names->tables[i];

		for (size_t slot = 0; table->slots != NULL && slot <= table->mask; slot++)
			free(table->slots[slot].entry);
		free(table->slots);
	}
	for (unsigned kind = 0; kind < NAMES_KINDS; kind++)
		free(names->orders[kind].places);
	free(names);
}

int
names_put(struct names *names, unsigned kind, const char *name, void *value)
{
	size_t length = strlen(name), slot;
	struct table *table;
	struct entry *entry;
	uint64_t hash;

	if (kind >= NAMES_KINDS || value == NULL || length > UINT32_MAX / 2)
		return -EINVAL;
	hash = hash_of(names, kind, name, length);
	table = &names->tables[table_of(hash)];
	slot = find(table, hash, kind, name);
	if (table->slots[slot].entry != NULL) {
		table->slots[slot].entry->value = value;
		return 0;
	}
	if ((table->count + 1) * 3 > (table->mask + 1) * 2) {
		if (resize(table, (table->mask + 1) * 2) != 0)
			return -ENOMEM;
		slot = find(table, hash, kind, name);
	}
	entry = malloc(sizeof(*entry) + length + 1);
	if (entry == NULL)
		return -ENOMEM;
	entry->serial = names->serial + 1;
	entry->value = value;
	entry->kind = kind;
	entry->bytes = (uint32_t)(sizeof(*entry) + length + 1);
	memcpy(entry->name, name, length + 1);
	if (order_add(&names->orders[kind], entry) != 0) {
		free(entry);
		return -ENOMEM;
	}
	names->serial++;
	table->slots[slot] = (struct slot){hash, entry};
	table->count++;
	names->entry_bytes += entry->bytes;
	return 0;
}

void *
names_get(const struct names *names, unsigned kind, const char *name)
{
	uint64_t hash = hash_of(names, kind, name, strlen(name));
	const struct table *table = &names->tables[table_of(hash)];
	const struct entry *entry = table->slots[find(table, hash, kind, name)].entry;

	return entry == NULL ? NULL : entry->value;
}

void *
names_delete(struct names *names, unsigned kind, const char *name)
{
	uint64_t hash = hash_of(names, kind, name, strlen(name));
	struct table *table = &names->tables[table_of(hash)];
	size_t slot = find(table, hash, kind, name);
	struct entry *entry = table->slots[slot].entry;
	struct order *order;
	void *value;

	if (entry == NULL)
		return NULL;
	close_gap(table, slot);
	table->count--;
	names->entry_bytes -= entry->bytes;
	order = &names->orders[kind];
	order->places[order_after(order, entry->serial) - 1].entry = NULL;
	order->live--;
	if (order->live < order->used / 2 || order->live == 0)
		order_compact(order);
	// A smaller table is a kindness, not a need: without memory for it the larger one stays.
	if (table->mask >= FIRST_SLOTS && table->count < table->mask / 8)
		(void)resize(table, (table->mask + 1) / 2);
	value = entry->value;
	free(entry);
	return value;
}

void *
names_next(const struct names *names, unsigned kind, uint64_t *cursor, const char **name)
{
	const struct order *order;

	if (kind >= NAMES_KINDS)
		return NULL;
	order = &names->orders[kind];
	for (size_t i = order_after(order, *cursor); i < order->used; i++) {
		const struct entry *entry = order->places[i].entry;

		if (entry == NULL)
			continue;
		*cursor = entry->serial;
		if (name != NULL)
			*name = entry->name;
		return entry->value;
	}
	return NULL;
}

size_t
names_count(const struct names *names, unsigned kind)
{
	return kind < NAMES_KINDS ? names->orders[kind].live : 0;
}

size_t
names_memory(const struct names *names)
{
	size_t bytes = sizeof(*names) + names->entry_bytes;

	for (size_t i = 0; i < TABLES; i++)
		bytes += (names->tables[i].mask + 1) * sizeof(struct slot);
	for (unsigned kind = 0; kind < NAMES_KINDS; kind++)
		bytes += names->orders[kind].room * sizeof(struct place);
	return bytes;
}
