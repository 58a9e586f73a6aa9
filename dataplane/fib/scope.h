// SPDX-License-Identifier: Apache-2.0
// Addresses that a router does not forward to or from (RFC 6890, RFC 1812 section 5.3.7, RFC 3927, RFC 4291 section 2.5).
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_common.h>

#include "core/drop.h"

extern struct drop scope_link_local4;

// 169.254.0.0/16 (RFC 3927); the address as it lies.
static inline uint32_t
ip4_is_link_local(uint32_t address)
{
	return (address & RTE_BE32(0xffff0000)) == RTE_BE32(0xa9fe0000);
}

// ::ffff:0:0/96 (RFC 4291 section 2.5.5.2).
static inline bool
ip6_is_mapped(const uint8_t *address)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(address, prefix, sizeof(prefix)) == 0;
}

// The description of a prefix whose packets are never forwarded: "loopback (RFC 1122)"; else NULL.
const char *scope_not_forwarded(uint8_t family, const uint8_t *address, uint8_t length);
// The same of one address that shall be ours.
const char *scope_not_a_host(uint8_t family, const uint8_t *address);
