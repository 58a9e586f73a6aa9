// Which way a burst is looked up in a fib, IPv4 and IPv6: what core/fastest.h tries when the data plane starts.
#include <errno.h>
#include <stdlib.h>

#include <rte_common.h>

#include "core/fastest.h"
#include "ip/fib_bulk.h"

// More than the caches nearest to the core hold with their first cache lines, less than makes starting slow.
enum { ROUTES = 4096, BURSTS = 16, LOOK_UPS = BURSTS * FIB_BURST };

static struct fib *fib;
static uint32_t four[LOOK_UPS];
static uint8_t six[LOOK_UPS][16];
static const uint8_t *six_at[LOOK_UPS];
static uint32_t hops[FIB_BURST];

// Prefixes of the internet's lengths, scattered by a multiplication; the same each time.
static int
prepare4(void)
{
	static const uint8_t lengths[8] = {24, 24, 22, 24, 23, 24, 26, 21};

	fib = fib_create(FIB_IP4);
	if (!fib)
		return -ENOMEM;
	for (uint32_t i = 0; i < ROUTES; i++) {
		uint32_t prefix = __builtin_bswap32((1u << 24) + ((i * 0x9e3779b1u & 0xfffff) << 11));

		if (fib_put(fib, (const uint8_t *)&prefix, lengths[i % 8], i + 1))
			return -ENOMEM;
		four[i * 2654435761u % LOOK_UPS] = prefix;
	}
	return LOOK_UPS;
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

static int
prepare6(void)
{
	static const uint8_t lengths[8] = {48, 48, 32, 48, 40, 44, 48, 64};

	fib = fib_create(FIB_IP6);
	if (!fib)
		return -ENOMEM;
	for (uint32_t i = 0; i < ROUTES; i++) {
		uint32_t mixed = i * 0x9e3779b1u, at = i * 2654435761u % LOOK_UPS;
		uint8_t *prefix = six[at];

		prefix[0] = (uint8_t)(0x24 + i % 8);
		prefix[1] = (uint8_t)(mixed >> 24);
		prefix[2] = (uint8_t)(mixed >> 16);
		prefix[3] = (uint8_t)(mixed >> 8);
		prefix[4] = lengths[i % 8] >= 44 ? (uint8_t)(mixed & 0xf0) : 0;
		prefix[5] = lengths[i % 8] >= 48 ? (uint8_t)(i >> 3) : 0;
		six_at[at] = prefix;
		if (fib_put(fib, prefix, lengths[i % 8], i + 1))
			return -ENOMEM;
	}
	return LOOK_UPS;
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
