// SPDX-License-Identifier: Apache-2.0
// IP addresses and prefixes: as people write them, and as keys.
#pragma once

#include <stdint.h>
#include <string.h>

// "192.0.2.1" or "192.0.2.0/24", "2001:db8::1" or "2001:db8::/32": 16 bytes, IPv4 in the first four and the rest zero. 0 or
// -EINVAL: not an address, a length past the family's, or (prefix) bits set past the length.
int address_parse(const char *text, uint8_t address[16], uint8_t *family);
int prefix_parse(const char *text, uint8_t address[16], uint8_t *family, uint8_t *length);

// Byte `i` of the mask that keeps the first `length` bits of an address.
static inline uint8_t
prefix_mask(unsigned length, unsigned i)
{
	unsigned bits = length > 8 * i ? length - 8 * i : 0;

	return bits >= 8 ? 0xff : (uint8_t)(0xff00 >> bits);
}

// A keyed hash of an address and where it is, never 0: an attacker cannot choose two addresses with the same one.
static inline uint64_t
address_key(const uint64_t secret[2], uint64_t place, const uint8_t address[16])
{
	uint64_t words[2];
	unsigned __int128 product;
	uint64_t key;

	memcpy(words, address, sizeof(words));
	product = (unsigned __int128)(words[0] ^ secret[0]) * (secret[1] | 1);
	key = (uint64_t)product ^ (uint64_t)(product >> 64) ^ words[1];
	product = (unsigned __int128)(key ^ secret[1]) * ((secret[0] ^ place) | 1);
	key = (uint64_t)product ^ (uint64_t)(product >> 64) ^ place << 32;
	return key ? key : 1;
}
