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
};

extern struct node icmp_error_node;

// The edge to follow for a packet that its sender shall be told about: type and code of the packet's own family; `parameter`
// is the second word of the message (an MTU, a pointer). The packet is counted as dropped for `reason` whether or not the
// error may be sent (RFC 1812 4.3.2.7) and is within its rate.
static inline uint16_t
packet_icmp_error(struct packet *p, uint8_t type, uint8_t code, uint16_t parameter, const struct drop *reason)
{
	p->drop = reason->id;
	p->detail = (uint32_t)type << 24 | (uint32_t)code << 16 | parameter;
	return icmp_error_node.id;
}

// Whether an error of this type may be sent about a packet that starts with these bytes (RFC 1812 section 4.3.2.7, RFC 4443
// section 2.4 (e)).
bool icmp4_error_allowed(const uint8_t *packet, size_t length);
bool icmp6_error_allowed(const uint8_t *packet, size_t length, uint8_t type, uint8_t code);
