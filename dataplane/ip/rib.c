// Exact prefixes: a hash table for each length in use. Most of a real table has a handful of lengths, so finding a cover
// is a few probes, and a /24 costs eight bytes and the slack.
#include "ip/rib.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/huge.h"

enum { FIRST_SLOTS = 4 };

// Words of address that a length reaches; the value follows them in a slot.
static unsigned
words_of(unsigned length)
{
	return (length + 31) / 32;
}

static uint32_t *
slot_at(const struct rib_length *table, unsigned words, uint32_t slot)
{
	return table->slots + (size_t)slot * (words + 1);
}

static uint32_t
home_of(const struct rib *rib, const struct rib_length *table, const uint32_t *address, unsigned words)
{
	uint64_t hash = rib->secret[0];

	for (unsigned i = 0; i < words; i++) {
		unsigned __int128 product = (unsigned __int128)(hash ^ address[i]) * rib->secret[1];

		hash = (uint64_t)product ^ (uint64_t)(product >> 64);
	}
	return (uint32_t)hash & table->mask;
}

// The slot that holds the address, or the free one where it would go.
static uint32_t *
find(const struct rib *rib, const struct rib_length *table, const uint32_t *address, unsigned words)
{
	for (uint32_t at = home_of(rib, table, address, words);; at = (at + 1) & table->mask) {
		uint32_t *slot = slot_at(table, words, at);

		if (slot[words] == 0 || memcmp(slot, address, words * sizeof(*address)) == 0)
			return slot;
	}
}

static bool
resize(const struct rib *rib, struct rib_length *table, unsigned words, uint32_t slots)
{
	struct rib_length fresh = {.count = table->count, .mask = slots - 1};
	size_t slot_bytes = (words + 1) * sizeof(uint32_t), bytes = slots * slot_bytes;

	fresh.slots = huge_zeroed(bytes);
	if (fresh.slots == NULL)
		return false;
	for (uint32_t i = 0; table->slots != NULL && i <= table->mask; i++) {
		const uint32_t *slot = slot_at(table, words, i);

		if (slot[words] != 0)
			memcpy(find(rib, &fresh, slot, words), slot, slot_bytes);
	}
	free(table->slots);
	*table = fresh;
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
	for (unsigned length = 0; length < RIB_LENGTHS; length++) {
		free(rib->lengths[length].slots);
		rib->lengths[length] = (struct rib_length){0};
	}
	rib->count = 0;
}

int
rib_put(struct rib *rib, const uint8_t *address, unsigned length, uint32_t value, uint32_t *old)
{
	struct rib_length *table = &rib->lengths[length];
	unsigned words = words_of(length);
	uint32_t key[RIB_ADDRESS / 4], *slot;

	memcpy(key, address, sizeof(key));
	if (table->slots == NULL && !resize(rib, table, words, FIRST_SLOTS))
		return -ENOMEM;
	slot = find(rib, table, key, words);
	*old = slot[words];
	if (*old == 0) {
		if (((uint64_t)table->count + 1) * 4 > ((uint64_t)table->mask + 1) * 3) {
			if (!resize(rib, table, words, (table->mask + 1) * 2))
				return -ENOMEM;
			slot = find(rib, table, key, words);
		}
		memcpy(slot, key, words * sizeof(*key));
		table->count++;
		rib->count++;
	}
	slot[words] = value;
	return 0;
}

// Close the gap that a deletion leaves, so that no search stops short of a prefix behind it.
static void
close_gap(const struct rib *rib, const struct rib_length *table, unsigned words, uint32_t gap)
{
	for (uint32_t next = (gap + 1) & table->mask; slot_at(table, words, next)[words] != 0;
		next = (next + 1) & table->mask) {
		const uint32_t *slot = slot_at(table, words, next);
		uint32_t home = home_of(rib, table, slot, words);

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
	struct rib_length *table = &rib->lengths[length];
	unsigned words = words_of(length);
	uint32_t key[RIB_ADDRESS / 4], *slot, value;

	if (table->count == 0)
		return 0;
	memcpy(key, address, sizeof(key));
	slot = find(rib, table, key, words);
	value = slot[words];
	if (value == 0)
		return 0;
	close_gap(rib, table, words, (uint32_t)((size_t)(slot - table->slots) / (words + 1)));
	table->count--;
	rib->count--;
	if (table->count == 0) {
		free(table->slots);
		*table = (struct rib_length){0};
	} else if (table->mask >= FIRST_SLOTS && table->count < (table->mask + 1) / 8) {
		// Without memory for a smaller table the larger one stays.
		(void)resize(rib, table, words, (table->mask + 1) / 4);
	}
	return value;
}

uint32_t
rib_find(const struct rib *rib, const uint8_t *address, unsigned length)
{
	const struct rib_length *table = &rib->lengths[length];
	unsigned words = words_of(length);
	uint32_t key[RIB_ADDRESS / 4];

	if (table->count == 0)
		return 0;
	memcpy(key, address, sizeof(key));
	return find(rib, table, key, words)[words];
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
		const struct rib_length *table = &rib->lengths[*length];
		unsigned words = words_of(*length);

		for (uint32_t i = (uint32_t)*position; table->slots != NULL && i <= table->mask; i++) {
			const uint32_t *slot = slot_at(table, words, i);

			if (slot[words] == 0)
				continue;
			memset(address, 0, RIB_ADDRESS);
			memcpy(address, slot, words * sizeof(*slot));
			*position = (uint64_t)*length << 32 | (i + 1);
			return slot[words];
		}
		*position = (uint64_t)(*length + 1) << 32;
	}
	return 0;
}

size_t
rib_memory(const struct rib *rib)
{
	size_t bytes = 0;

	for (unsigned length = 0; length < RIB_LENGTHS; length++)
		if (rib->lengths[length].slots != NULL)
			bytes += ((size_t)rib->lengths[length].mask + 1) * (words_of(length) + 1) * sizeof(uint32_t);
	return bytes;
}
