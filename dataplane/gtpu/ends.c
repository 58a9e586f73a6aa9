// Numbering the ends of tunnels, and what the routes say of the way to the far ones.
#include "gtpu/ends.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "core/loop.h"
#include "core/map64.h"
#include "core/slab.h"
#include "ip/hop.h"
#include "ip/vrf.h"

enum { LOOK_EVERY_NS = 1000 * 1000 * 1000 };

struct end {
	uint8_t address[16]; // network order, IPv4 in the first four
	uint16_t vrf;
	uint8_t family;
	uint32_t tunnels; // that use it; 0: nobody's
};

static struct {
	struct slab slab; // struct end
	struct map64 *numbers;
} sides[2];

static const char *const fields[2] = {"gtpu.localAddress", "gtpu.remoteAddress"};
static uint64_t secret[2];

uint16_t gtpu_path_mtu[ENDS_LIMIT];

static struct end *
end_at(enum gtpu_side side, uint32_t index)
{
	return slab_at(&sides[side].slab, index);
}

// VRF and IPv4 address as they are; of an IPv6 address a digest, so that the end itself must be compared.
static uint64_t
key_of(uint16_t vrf, uint8_t family, const uint8_t *address)
{
	uint64_t words[2] = {0}, key;

	memcpy(words, address, family == 4 ? 4 : 16);
	key = words[0];
	for (unsigned i = 0; i < 2 && family == 6; i++) {
		unsigned __int128 product = (unsigned __int128)(key ^ secret[0]) * (secret[1] | 1);

		key = (uint64_t)product ^ (uint64_t)(product >> 64) ^ words[1];
	}
	return (key ^ (uint64_t)vrf << 40) | 1ull << 63;
}

static bool
is(const struct end *e, uint16_t vrf, uint8_t family, const uint8_t *address)
{
	return e->vrf == vrf && e->family == family && memcmp(e->address, address, family == 4 ? 4 : 16) == 0;
}

uint32_t
gtpu_end_find(uint16_t vrf, uint8_t family, const uint8_t *address)
{
	uint32_t index = map64_get(sides[LOCAL_ENDS].numbers, key_of(vrf, family, address));

	return index != MAP64_NONE && is(end_at(LOCAL_ENDS, index), vrf, family, address) ? index : NO_END;
}

static uint16_t
mtu_of(uint32_t index)
{
	const struct hop *hop = hop_at(index);
	uint16_t least = UINT16_MAX;

	if (hop->kind == HOP_SPREAD) {
		for (uint32_t i = 0; i < 1u << hop->spread_bits; i++) {
			const struct hop *one = hop_at(hop->spread[i]);

			if (one->mtu != 0)
				least = RTE_MIN(least, one->mtu);
		}
		return least;
	}
	return (hop->kind == HOP_ADJACENCY || hop->kind == HOP_GLEAN || hop->kind == HOP_SESSION) && hop->mtu != 0
		       ? hop->mtu
		       : least;
}

static void
look(uint32_t index)
{
	const struct end *e = end_at(REMOTE_ENDS, index);
	uint32_t address4;
	uint16_t mtu;

	memcpy(&address4, e->address, sizeof(address4));
	mtu = mtu_of(
		e->family == 4 ? fib4_lookup(vrfs[e->vrf].fib4, address4) : fib6_lookup(vrfs[e->vrf].fib6, e->address));
	__atomic_store_n(&gtpu_path_mtu[index], mtu, __ATOMIC_RELAXED);
}

static void
look_all(void *unused)
{
	for (uint32_t i = 0; i < sides[REMOTE_ENDS].slab.used; i++)
		if (end_at(REMOTE_ENDS, i)->tunnels > 0)
			look(i);
}

int
gtpu_end_use(enum gtpu_side side, uint16_t vrf, uint8_t family, const uint8_t *address, uint32_t *end, struct fault *f)
{
	uint64_t key = key_of(vrf, family, address);
	struct end *e;

	*end = map64_get(sides[side].numbers, key);
	if (*end != MAP64_NONE) {
		if (!is(end_at(side, *end), vrf, family, address))
			return fault(
				f, ENOSPC, "%s: its digest is another address's; choose another address", fields[side]);
		end_at(side, *end)->tunnels++;
		return 0;
	}
	*end = slab_take(&sides[side].slab);
	if (*end == UINT32_MAX)
		return fault(f, ENOSPC, "%s: %d addresses are the most there can be", fields[side], ENDS_LIMIT);
	e = end_at(side, *end);
	*e = (struct end){.vrf = vrf, .family = family, .tunnels = 1};
	memcpy(e->address, address, sizeof(e->address));
	if (side == REMOTE_ENDS)
		look(*end);
	if (map64_put(sides[side].numbers, key, *end)) {
		e->tunnels = 0;
		slab_give(&sides[side].slab, *end);
		return fault(f, ENOMEM, "%s: there is no memory for it", fields[side]);
	}
	return 0;
}

void
gtpu_end_unuse(enum gtpu_side side, uint32_t end)
{
	struct end *e = end_at(side, end);

	if (--e->tunnels > 0)
		return;
	map64_delete(sides[side].numbers, key_of(e->vrf, e->family, e->address));
	slab_give_later(&sides[side].slab, end);
}

int
gtpu_ends_start(void)
{
	for (unsigned side = LOCAL_ENDS; side <= REMOTE_ENDS; side++) {
		int error = slab_create(&sides[side].slab, sizeof(struct end), ENDS_LIMIT);

		if (error)
			return error;
		sides[side].numbers = map64_create();
		if (!sides[side].numbers)
			return -ENOMEM;
	}
	if (getentropy(secret, sizeof(secret)))
		return -errno;
	loop_every(LOOK_EVERY_NS, look_all, NULL);
	return 0;
}
