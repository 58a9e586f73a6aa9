// SPDX-License-Identifier: Apache-2.0
// Sources that no packet from outside may have: local addresses, and the broadcast and network addresses of our networks
// (RFC 1812 section 5.3.7). Workers look every source up in a small table of hashes, those that are in it in a large one, and ask
// the routing table about the rest.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LOCAL_ADDRESS_SOURCE_HASH_BITS = 18, LOCAL_ADDRESS_SOURCE_SMALL_BITS = 13 };

// Written by the main thread: not 0 at the hash of such a source, and at the hash's upper bits.
extern uint8_t local_address_source_large[1 << LOCAL_ADDRESS_SOURCE_HASH_BITS],
	local_address_source_small[1 << LOCAL_ADDRESS_SOURCE_SMALL_BITS];
// How many of our addresses are IPv4 link-local ones.
extern uint32_t local_address_link_local4;

// `address` as it lies.
static inline uint32_t
local_address_source_hash4(uint32_t address)
{
	return address * 0x9e3779b1u >> (32 - LOCAL_ADDRESS_SOURCE_HASH_BITS);
}

static inline uint32_t
local_address_source_hash6(const uint8_t *address)
{
	uint64_t words[2];

	memcpy(words, address, sizeof(words));
	return (uint32_t)((words[0] ^ (words[1] << 23 | words[1] >> 41)) * 0x9e3779b97f4a7c15u >>
			  (64 - LOCAL_ADDRESS_SOURCE_HASH_BITS));
}

// 0: it is no such source. Cheap.
static inline uint32_t
local_address_source_near(uint32_t hash)
{
	return local_address_source_small[hash >> (LOCAL_ADDRESS_SOURCE_HASH_BITS - LOCAL_ADDRESS_SOURCE_SMALL_BITS)];
}

// False: it is no such source. Else local_address_source_is() knows.
static inline bool
local_address_source_maybe(uint32_t hash)
{
	return local_address_source_near(hash) != 0 && local_address_source_large[hash] != 0;
}

bool local_address_source_is(uint16_t vrf, uint8_t family, const uint8_t *address);

// Main thread: an address of ours in a network of `length` bits comes or goes.
void local_address_source_add(uint8_t family, const uint8_t *address, uint8_t length);
void local_address_source_remove(uint8_t family, const uint8_t *address, uint8_t length);
