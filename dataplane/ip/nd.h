// Neighbour discovery for IPv6 (RFC 4861): the messages between neighbours.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ether.h>

#include "core/node.h"

enum {
	ND_ROUTER_SOLICITATION = 133,
	ND_ROUTER_ADVERTISEMENT = 134,
	ND_SOLICITATION = 135,
	ND_ADVERTISEMENT = 136,
	ND_REDIRECT = 137,

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
	const uint8_t *link_layer; // its source's or target's Ethernet address, if it tells
};

// What is wrong with the IPv6 packet at `data`, whose header says that ICMPv6 follows at once and whose type is one of the
// above; if nothing, what it says.
enum nd_fault nd_check(const uint8_t *data, size_t length, struct nd_message *message);

// In: such a packet for us, or for a group that we are in.
extern struct node nd_node;
