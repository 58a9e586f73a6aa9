// SPDX-License-Identifier: Apache-2.0
// RFC 1812 section 5.3.1, RFC 8200 section 3: a router that passes a packet on counts its TTL or hop limit down.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "inet/header.h"

// `ip`: a whole header. False: the packet may not go on.
static inline bool
ip_age(uint8_t *ip, uint8_t family)
{
	struct ip4_header *ip4 = (struct ip4_header *)ip;
	struct ip6_header *ip6 = (struct ip6_header *)ip;
	uint8_t *ttl = family == 4 ? &ip4->ttl : &ip6->hop_limit;
	uint32_t word;

	if (*ttl <= 1)
		return false;
	if (family != 4) {
		--*ttl;
		return true;
	}
	memcpy(&word, ttl, sizeof(word));
	word = ip4_age(word, 1);
	memcpy(ttl, &word, sizeof(word));
	return true;
}
