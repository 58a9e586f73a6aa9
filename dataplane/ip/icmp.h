// SPDX-License-Identifier: Apache-2.0
// ICMP and ICMPv6 errors about packets that cannot go on (RFC 792, RFC 1812 section 4.3.2, RFC 4443).
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/drop.h"

enum {
	ICMP4_UNREACHABLE = 3,
	ICMP4_TIME_EXCEEDED = 11,
	ICMP4_PARAMETER = 12,

	ICMP4_NET = 0,
	ICMP4_HOST = 1,
	ICMP4_PROTOCOL = 2,
	ICMP4_PORT = 3,
	ICMP4_FRAGMENTATION_NEEDED = 4,
	ICMP4_PROHIBITED = 13,

	ICMP6_UNREACHABLE = 1,
	ICMP6_TOO_BIG = 2,
	ICMP6_TIME_EXCEEDED = 3,
	ICMP6_PARAMETER = 4,

	ICMP6_NO_ROUTE = 0,
	ICMP6_PROHIBITED = 1,
	ICMP6_BEYOND_SCOPE = 2,
	ICMP6_ADDRESS = 3,
	ICMP6_PORT = 4,

	ND_ROUTER_SOLICITATION = 133, // RFC 4861
	ND_ROUTER_ADVERTISEMENT = 134,
	ND_SOLICITATION = 135,
	ND_ADVERTISEMENT = 136,
	ND_REDIRECT = 137,

	ICMP6_FIRST_FRAGMENT = 3, // of ICMP6_PARAMETER: it does not hold all headers (RFC 7112)
};

extern struct node icmp_error_node;

// The edge for a packet about which its sender gets an ICMP error: type and code of the packet's own family; `parameter`
// is the second word of the message (an MTU, a pointer). The packet is counted as dropped for `reason` whether or not the
// error may be sent (RFC 1812 4.3.2.7) and is within its rate.
static inline uint16_t
packet_icmp_error(struct packet *p, uint8_t type, uint8_t code, uint16_t parameter, const struct drop *reason)
{
	p->drop = reason->id;
	p->detail = (uint32_t)type << 24 | (uint32_t)code << 16 | parameter;
	return icmp_error_node.id;
}

// ICMPv6 messages of this type that are for us, or for a group that we are in, go to `node`, with the data at the IPv6 header. The
// first 8 bytes behind it are in the first segment. Called before any worker runs.
void icmp6_register(uint8_t type, const struct node *node);

// A watcher of ICMPv6 Packet Too Big (RFC 4443 section 3.2), and of "fragmentation needed" of ICMP (RFC 1191), about packets of our own: a tunnel learns the path MTU of its peers by it. A worker calls it
// with the part of the packet that the message quotes, the IP header and 8 bytes of IPv4 whole, and the message's MTU. The message's checksum is right, its
// destination is the quoted source, and it came from no subscriber; the watcher checks everything else. True: it is about a packet of the watcher's.
struct icmp_too_big {
	bool (*tell)(uint16_t vrf, const uint8_t *packet, size_t length, uint32_t mtu);
	struct icmp_too_big *next;
};
// At start.
void icmp_too_big_watch(struct icmp_too_big *watcher);
// A worker: a packet of our own is larger than the MTU of its way out here. If it is a tunnel's, the watchers hear of it as if a router had sent
// the message: no other host gets it.
void icmp_too_big_here(const struct packet *p, uint32_t mtu);

// Once at start: ICMP for our addresses. (icmp_echo.c)
void icmp_start(void);

// Whether an error of this type may be sent about a packet that starts with these bytes (RFC 1812 section 4.3.2.7, RFC 4443
// section 2.4 (e)).
bool icmp4_error_allowed(const uint8_t *packet, size_t length);
bool icmp6_error_allowed(const uint8_t *packet, size_t length, uint8_t type, uint8_t code);
