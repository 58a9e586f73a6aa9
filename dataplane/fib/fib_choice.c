// SPDX-License-Identifier: Apache-2.0
// Selects how bursts are looked up in a fib, for IPv4 and IPv6, at the start of the data plane (core/fastest.h).
#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

#include "core/fastest.h"
#include "fib/fib_bulk.h"

// More than the caches nearest to the core hold with their first cache lines, less than makes starting slow.
enum { ROUTES = 4096, BURSTS = 16, LOOK_UPS = BURSTS * FIB_BURST };

static struct fib *fib;
static uint32_t four[LOOK_UPS];
static uint8_t six[LOOK_UPS][16];
static const uint8_t *six_at[LOOK_UPS];
static uint32_t hops[FIB_BURST];

// A number of routes with the prefixes and lengths of `route`. The same each time.
static int
fill(enum fib_family family, uint8_t (*route)(uint32_t number, const uint8_t **prefix))
{
	fib = fib_create(family);
	if (!fib)
		return -ENOMEM;
	for (uint32_t i = 0; i < ROUTES; i++) {
		const uint8_t *prefix;
		uint8_t length = route(i, &prefix);

		if (fib_put(fib, prefix, length, i + 1))
			return -ENOMEM;
	}
	return LOOK_UPS;
}

// Of the internet's lengths, scattered by a multiplication, as are the places at which they are looked up.
static uint8_t
route4(uint32_t number, const uint8_t **prefix)
{
	static const uint8_t lengths[8] = {24, 24, 22, 24, 23, 24, 26, 21};
	uint32_t *address = &four[number * 2654435761u % LOOK_UPS];

	*address = __builtin_bswap32((1u << 24) + ((number * 0x9e3779b1u & 0xfffff) << 11));
	*prefix = (const uint8_t *)address;
	return lengths[number % 8];
}

static uint8_t
route6(uint32_t number, const uint8_t **prefix)
{
	static const uint8_t lengths[8] = {48, 48, 32, 48, 40, 44, 48, 64};
	uint32_t mixed = number * 0x9e3779b1u, at = number * 2654435761u % LOOK_UPS;
	uint8_t *address = six[at], length = lengths[number % 8];

	address[0] = (uint8_t)(0x24 + number % 8);
	address[1] = (uint8_t)(mixed >> 24);
	address[2] = (uint8_t)(mixed >> 16);
	address[3] = (uint8_t)(mixed >> 8);
	address[4] = length >= 44 ? (uint8_t)(mixed & 0xf0) : 0;
	address[5] = length >= 48 ? (uint8_t)(number >> 3) : 0;
	*prefix = six_at[at] = address;
	return length;
}

static int
prepare4(void)
{
	return fill(FIB_IP4, route4);
}

static int
prepare6(void)
{
	return fill(FIB_IP6, route6);
}

static void
run4(void)
{
	for (unsigned i = 0; i < LOOK_UPS; i += FIB_BURST)
		fib4_lookup_bulk(fib, four + i, hops, FIB_BURST);
}

static void
use4(unsigned way)
{
	fib4_lookup_bulk = fib4_ways[way].find;
}

static void
run6(void)
{
	for (unsigned i = 0; i < LOOK_UPS; i += FIB_BURST)
		fib6_lookup_bulk(fib, six_at + i, hops, FIB_BURST);
}

static void
use6(unsigned way)
{
	fib6_lookup_bulk = fib6_ways[way].find;
}

static void
finish(void)
{
	fib_destroy(fib);
	fib = NULL;
}

static_assert(ROUTES == LOOK_UPS, "each route is looked up once");

static struct fastest fastest4 = {.name = "ip4", .prepare = prepare4, .run = run4, .finish = finish, .use = use4};
static struct fastest fastest6 = {.name = "ip6", .prepare = prepare6, .run = run6, .finish = finish, .use = use6};

RTE_INIT(fib_choice_register)
{
	for (unsigned way = 0; way < FIB_WAYS; way++) {
		fastest4.ways[way] = (struct fastest_way){fib4_ways[way].name, fib4_ways[way].needs};
		fastest6.ways[way] = (struct fastest_way){fib6_ways[way].name, fib6_ways[way].needs};
	}
	fastest_register(&fastest4);
	fastest_register(&fastest6);
}
