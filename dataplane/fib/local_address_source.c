// SPDX-License-Identifier: Apache-2.0
// The tables of sources that no packet from outside may have, with how many addresses are in each of their places.
#include "fib/local_address_source.h"

#include "core/address.h"
#include "fib/connected.h"
#include "fib/hop.h"
#include "fib/vrf.h"

uint8_t local_address_source_large[1 << LOCAL_ADDRESS_SOURCE_HASH_BITS],
	local_address_source_small[1 << LOCAL_ADDRESS_SOURCE_SMALL_BITS];
uint32_t local_address_link_local4;
// How many addresses have each hash.
static uint32_t large_counts[1 << LOCAL_ADDRESS_SOURCE_HASH_BITS], small_counts[1 << LOCAL_ADDRESS_SOURCE_SMALL_BITS];

static void
count_at(uint8_t *there, uint32_t *how_many, int more)
{
	*how_many += (uint32_t)more;
	__atomic_store_n(there, *how_many > 0, __ATOMIC_RELAXED);
}

static void
count(uint8_t family, const uint8_t *address, bool there)
{
	uint32_t ip4, hash, small;

	memcpy(&ip4, address, sizeof(ip4));
	hash = family == 4 ? local_address_source_hash4(ip4) : local_address_source_hash6(address);
	small = hash >> (LOCAL_ADDRESS_SOURCE_HASH_BITS - LOCAL_ADDRESS_SOURCE_SMALL_BITS);
	count_at(&local_address_source_large[hash], &large_counts[hash], there ? 1 : -1);
	count_at(&local_address_source_small[small], &small_counts[small], there ? 1 : -1);
}

// The address, and its network's own and broadcast addresses if it has such (RFC 3021, RFC 6164).
static void
count_all(uint8_t family, const uint8_t *address, uint8_t length, bool there)
{
	unsigned bytes = family == 4 ? 4 : 16;
	uint8_t network[16] = {0}, broadcast[16] = {0};

	count(family, address, there);
	if (family == 4 && address[0] == 169 && address[1] == 254)
		__atomic_store_n(
			&local_address_link_local4, local_address_link_local4 + (there ? 1 : -1u), __ATOMIC_RELAXED);
	if (length + 2u > 8 * bytes)
		return;
	for (unsigned i = 0; i < bytes; i++) {
		network[i] = address[i] & prefix_mask(length, i);
		broadcast[i] = (uint8_t)(address[i] | ~prefix_mask(length, i));
	}
	count(family, network, there);
	if (family == 4)
		count(family, broadcast, there);
}

void
local_address_source_add(uint8_t family, const uint8_t *address, uint8_t length)
{
	count_all(family, address, length, true);
}

void
local_address_source_remove(uint8_t family, const uint8_t *address, uint8_t length)
{
	count_all(family, address, length, false);
}

bool
local_address_source_is(uint16_t vrf, uint8_t family, const uint8_t *address)
{
	const struct fib *fib = vrf_fib(vrf, family);
	const struct hop *hop;
	uint32_t ip4;

	if (!fib)
		return false;
	memcpy(&ip4, address, sizeof(ip4));
	hop = hop_at(family == 4 ? fib4_lookup(fib, ip4) : fib6_lookup(fib, address));
	if (hop->kind == HOP_LOCAL)
		return (hop->flags & (HOP_MULTICAST | HOP_LINK_LOCAL)) == 0;
	return connected_is_network_address(hop);
}
