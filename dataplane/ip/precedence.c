// Routes of several sources for one prefix.
#include "ip/precedence.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/huge.h"

enum { SMALLEST = 64 };

static uint32_t
home(const struct precedence *p, const struct precedence_key *key)
{
	uint64_t a, b, c = (uint64_t)key->vrf << 16 | (uint64_t)key->family << 8 | key->length;
	unsigned __int128 x;

	memcpy(&a, key->address, 8);
	memcpy(&b, key->address + 8, 8);
	x = (unsigned __int128)(a ^ 0xa0761d6478bd642fu) * (b ^ c << 24 ^ 0xe7037ed1a0b428dbu);
	x = (unsigned __int128)((uint64_t)x ^ (uint64_t)(x >> 64) ^ c) * 0x8ebc6af09c88c6e3u;
	return ((uint32_t)x ^ (uint32_t)(x >> 64)) & p->mask;
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
	unsigned found = 0;

	if (p->count == 0)
		return 0;
	for (uint32_t i = home(p, key); p->slots[i].hop != 0; i = (i + 1) & p->mask) {
		if (!same(&p->slots[i], key))
			continue;
		found |= 1u << (p->slots[i].family_source & 0xf);
		hops[p->slots[i].family_source & 0xf] = p->slots[i].hop;
	}
	return found;
}

static void
insert(struct precedence *p, const struct precedence_route *route, const struct precedence_key *key)
{
	uint32_t i = home(p, key);

	while (p->slots[i].hop != 0)
		i = (i + 1) & p->mask;
	p->slots[i] = *route;
	p->count++;
}

static int
grow(struct precedence *p)
{
	uint32_t size = p->slots ? 2 * (p->mask + 1) : SMALLEST;
	struct precedence next = {.slots = huge_zeroed(size * sizeof(p->slots[0])), .mask = size - 1};

	if (!next.slots)
		return -ENOMEM;
	for (uint32_t i = 0; p->slots && i <= p->mask; i++) {
		struct precedence_key key = key_of(&p->slots[i]);

		if (p->slots[i].hop != 0)
			insert(&next, &p->slots[i], &key);
	}
	free(p->slots);
	*p = next;
	return 0;
}

int
precedence_put(struct precedence *p, const struct precedence_key *key, unsigned source, uint32_t hop)
{
	struct precedence_route route = {.hop = hop,
		.vrf = key->vrf,
		.length = key->length,
		.family_source = (uint8_t)(key->family << 4 | source)};

	for (uint32_t i = p->count ? home(p, key) : 0; p->count && p->slots[i].hop != 0; i = (i + 1) & p->mask) {
		if (same(&p->slots[i], key) && p->slots[i].family_source == route.family_source) {
			p->slots[i].hop = hop;
			return 0;
		}
	}
	if ((!p->slots || p->count >= (p->mask + 1) / 4 * 3) && grow(p))
		return -ENOMEM;
	memcpy(route.address, key->address, sizeof(route.address));
	insert(p, &route, key);
	return 0;
}

// What follows in the run moves up, unless it already is as near to its home as it can be.
static void
take_out(struct precedence *p, uint32_t hole)
{
	for (uint32_t i = (hole + 1) & p->mask; p->slots[i].hop != 0; i = (i + 1) & p->mask) {
		struct precedence_key key = key_of(&p->slots[i]);
		uint32_t from = home(p, &key);

		if (((i - from) & p->mask) >= ((i - hole) & p->mask)) {
			p->slots[hole] = p->slots[i];
			hole = i;
		}
	}
	p->slots[hole].hop = 0;
	p->count--;
}

void
precedence_delete(struct precedence *p, const struct precedence_key *key, unsigned source)
{
	if (p->count == 0)
		return;
	for (uint32_t i = home(p, key); p->slots[i].hop != 0; i = (i + 1) & p->mask) {
		if (same(&p->slots[i], key) && (p->slots[i].family_source & 0xf) == source) {
			take_out(p, i);
			return;
		}
	}
}
