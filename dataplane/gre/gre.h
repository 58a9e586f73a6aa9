// SPDX-License-Identifier: Apache-2.0
// GRE on the wire as in TS 24.502 section 9.3.3 (RFC 2784, RFC 2890), and the workers' record of a GreTunnel.
#pragma once

#include <stdint.h>

#include "core/node.h"
#include "core/slab.h"
#include "server/object.h"
#include "session/session.h"

enum {
	PROTOCOL_GRE = 47,
	GRE_HEADER = 8, // flags, version and protocol type; key
	GRE_TUNNEL_LIMIT = 1 << 16,
	GRE_CHILDREN = 16,
	GRE_QFIS = 64,
	GRE_NO_CHILD = UINT8_MAX,

	// Of the first byte: the key is present, and neither checksum nor sequence number nor reserved bits that RFC
	// 2784 section 2.3 requires to be 0.
	GRE_KEY = 0x20,
	GRE_MUST_MATCH = 0xfc,
	GRE_VERSION = 0x07, // of the second
	GRE_RQI = 0x80,     // of the last byte of the key
	GRE_QFI = 0x3f,     // of its first
};

// Which IPsec tunnel gets a packet to the UE. Never changed: another one takes its place.
struct gre_ways {
	uint8_t of_qfi[GRE_QFIS]; // the number of a child, or GRE_NO_CHILD
	uint32_t hops[GRE_CHILDREN];
};

struct gre_tunnel {
	uint8_t local[16], remote[16]; // IPv4 in the first four
	const struct gre_ways *ways;
	uint32_t session; // or NO_SESSION
	uint32_t hop;     // of all packets to the UE, 0: see `ways`
	uint16_t sum;     // of the words of an IPv4 header to the UE that are the same in all of them
	uint8_t family;   // 4 or 6
	uint8_t frames;   // the session is of type Ethernet
} __rte_cache_aligned;

static_assert(sizeof(struct gre_tunnel) == RTE_CACHE_LINE_SIZE, "a tunnel is one cache line");

extern struct slab gre_tunnels;
extern struct kind gre_kind;
// By session.
extern uint32_t *gre_of_session;

static inline struct gre_tunnel *
gre_tunnel_at(uint32_t index)
{
	return (struct gre_tunnel *)gre_tunnels.records + index;
}

// In: payload of an IPsec tunnel of a GreTunnel, packet->detail, unchecked, of at least one byte. Out: the user's
// packet.
extern struct node gre_input_node;
// In: a packet for the user, packet->session, packet->qfi. Out: the same in GRE, to be encrypted.
extern struct node gre_output_node;

// Main thread: its name, "?" if it is gone.
const char *gre_name(uint32_t index);
