// SPDX-License-Identifier: Apache-2.0
// Fragmentation (RFC 791 section 3.2; RFC 8200 section 4.5 for packets of our own).
#pragma once

#include "core/node.h"

// In: a checked IP packet, larger than the MTU in packet->detail. Out: its fragments, each with the packet's state, one more
// step into the chain.
extern struct node ip_fragment_node;

// The edge to follow for a packet that `node` finds too large for `mtu` but may be fragmented (IPv4 without DF, or our own):
// each fragment comes back to `node`, as the packet came.
static inline uint16_t
packet_fragment(struct packet *p, uint16_t mtu, const struct node *node)
{
	p->detail = mtu;
	packet_push(p, node);
	return ip_fragment_node.id;
}

enum { FRAGMENTS_MAX = 256, IP4_HEADER_MAX = 60 };

// Where one fragment's bytes are in the payload, in bytes.
struct fragment {
	uint16_t offset;
	uint16_t length;
};

// How a payload is cut: as many as are needed, each but the last a multiple of 8 bytes; the first with a header of
// `first_header` bytes and the others of `header` in at most `mtu`. The count, or 0 if it cannot be done in `room`.
unsigned fragment_plan(
	unsigned payload, unsigned mtu, unsigned first_header, unsigned header, struct fragment *plan, unsigned room);

// The IPv4 header of the fragments behind the first: of the options only those whose copied flag is set, padded. Its length.
unsigned fragment_header(const uint8_t *header, unsigned length, uint8_t copy[IP4_HEADER_MAX]);
