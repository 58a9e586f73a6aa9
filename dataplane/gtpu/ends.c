// SPDX-License-Identifier: Apache-2.0
// Numbering the ends of tunnels.
#include "gtpu/ends.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "core/map64.h"
#include "core/slab.h"

struct end {
	uint8_t address[16]; // network order, IPv4 in the first four
	uint16_t vrf;
	uint8_t family;
	uint32_t tunnels; // that use it; 0: free
};

static struct {
	struct slab slab; // struct end
	struct map64 *numbers;
} sides[2];

static const char *const fields[2] = {"gtpu.localAddress", "gtpu.remoteAddress"};
static uint64_t secret[2];

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
gtpu_end_find(enum gtpu_side side, uint16_t vrf, uint8_t family, const uint8_t *address)
{
	uint32_t index = map64_get(sides[side].numbers, key_of(vrf, family, address));

	return index != MAP64_NONE && is(end_at(side, index), vrf, family, address) ? index : NO_END;
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
	return 0;
}
