// SPDX-License-Identifier: Apache-2.0
// Routes of several sources for one prefix.
#include "fib/precedence.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST = 16 };

static uint32_t
hash_of(const struct precedence_key *key)
{
	uint64_t a, b, c = (uint64_t)key->vrf << 16 | (uint64_t)key->family << 8 | key->length;
	unsigned __int128 x;

	memcpy(&a, key->address, 8);
	memcpy(&b, key->address + 8, 8);
	x = (unsigned __int128)(a ^ 0xa0761d6478bd642fu) * (b ^ c << 24 ^ 0xe7037ed1a0b428dbu);
	x = (unsigned __int128)((uint64_t)x ^ (uint64_t)(x >> 64) ^ c) * 0x8ebc6af09c88c6e3u;
	return (uint32_t)x ^ (uint32_t)(x >> 64);
}

static uint32_t
table_of(const struct precedence_key *key)
{
	return hash_of(key) >> (32 - PRECEDENCE_TABLES_LOG);
}

static uint32_t
home(const struct precedence_table *t, const struct precedence_key *key)
{
	return hash_of(key) & t->mask;
}

static struct precedence_key
key_of(const struct precedence_route *route)
{
	struct precedence_key key = {.vrf = route->vrf, .family = route->family_source >> 4, .length = route->length};

	memcpy(key.address, route->address, sizeof(key.address));
	return key;
}

static bool
same(const struct precedence_route *route, const struct precedence_key *key)
{
	return memcmp(route->address, key->address, sizeof(key->address)) == 0 && route->vrf == key->vrf &&
	       route->length == key->length && route->family_source >> 4 == key->family;
}

unsigned
precedence_find(const struct precedence *p, const struct precedence_key *key, uint32_t hops[PRECEDENCE_SOURCES])
{
	const struct precedence_table *t = &p->tables[table_of(key)];
	unsigned found = 0;

	if (t->count == 0)
		return 0;
	for (uint32_t i = home(t, key); t->slots[i].hop != 0; i = (i + 1) & t->mask) {
		if (!same(&t->slots[i], key))
			continue;
		found |= 1u << (t->slots[i].family_source & 0xf);
		hops[t->slots[i].family_source & 0xf] = t->slots[i].hop;
	}
	return found;
}

static void
insert(struct precedence_table *t, const struct precedence_route *route, const struct precedence_key *key)
{
	uint32_t i = home(t, key);

	while (t->slots[i].hop != 0)
		i = (i + 1) & t->mask;
	t->slots[i] = *route;
	t->count++;
}

static int
grow(struct precedence_table *t)
{
	uint32_t size = t->slots ? 2 * (t->mask + 1) : SMALLEST;
	struct precedence_table next = {.slots = calloc(size, sizeof(t->slots[0])), .mask = size - 1};

	if (!next.slots)
		return -ENOMEM;
	for (uint32_t i = 0; t->slots && i <= t->mask; i++) {
		struct precedence_key key = key_of(&t->slots[i]);

		if (t->slots[i].hop != 0)
			insert(&next, &t->slots[i], &key);
	}
	free(t->slots);
	*t = next;
	return 0;
}

int
precedence_put(struct precedence *p, const struct precedence_key *key, unsigned source, uint32_t hop)
{
	struct precedence_table *t = &p->tables[table_of(key)];
	struct precedence_route route = {.hop = hop,
		.vrf = key->vrf,
		.length = key->length,
		.family_source = (uint8_t)(key->family << 4 | source)};

	for (uint32_t i = t->count ? home(t, key) : 0; t->count && t->slots[i].hop != 0; i = (i + 1) & t->mask) {
		if (same(&t->slots[i], key) && t->slots[i].family_source == route.family_source) {
			t->slots[i].hop = hop;
			return 0;
		}
	}
	if ((!t->slots || t->count >= (t->mask + 1) / 4 * 3) && grow(t))
		return -ENOMEM;
	memcpy(route.address, key->address, sizeof(route.address));
	insert(t, &route, key);
	return 0;
}

// Following entries of the run move up, unless they are already as near to their home as possible.
static void
take_out(struct precedence_table *t, uint32_t hole)
{
	for (uint32_t i = (hole + 1) & t->mask; t->slots[i].hop != 0; i = (i + 1) & t->mask) {
		struct precedence_key key = key_of(&t->slots[i]);
		uint32_t from = home(t, &key);

		if (((i - from) & t->mask) >= ((i - hole) & t->mask)) {
			t->slots[hole] = t->slots[i];
			hole = i;
		}
	}
	t->slots[hole].hop = 0;
	t->count--;
}

void
precedence_delete(struct precedence *p, const struct precedence_key *key, unsigned source)
{
	struct precedence_table *t = &p->tables[table_of(key)];

	if (t->count == 0)
		return;
	for (uint32_t i = home(t, key); t->slots[i].hop != 0; i = (i + 1) & t->mask) {
		if (same(&t->slots[i], key) && (t->slots[i].family_source & 0xf) == source) {
			take_out(t, i);
			return;
		}
	}
}
