// SPDX-License-Identifier: Apache-2.0
// Neighbour discovery for IPv6 (RFC 4861): the messages between neighbours.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ether.h>

#include "ip/icmp.h"

enum {
	ND_SOURCE_LINK_LAYER = 1, // options
	ND_TARGET_LINK_LAYER = 2,

	ND_FROM_ROUTER = 0x80, // flags of an advertisement
	ND_SOLICITED = 0x40,
	ND_OVERRIDE = 0x20,
};

enum nd_fault { ND_OK, ND_TRUNCATED, ND_HOP_LIMIT, ND_CHECKSUM, ND_CODE, ND_TARGET, ND_SOURCE, ND_OPTION, ND_FLAGS };

struct nd_message {
	uint8_t type;
	uint8_t flags;
	const uint8_t *target;     // of a solicitation or advertisement
	const uint8_t *link_layer; // its source's or target's Ethernet address, if there is one
};

// The fault of the IPv6 packet at `data`, whose header is followed by ICMPv6 of one of the above types; without a
// fault, the parsed message.
enum nd_fault nd_check(const uint8_t *data, size_t length, struct nd_message *message);
