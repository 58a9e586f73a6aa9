// SPDX-License-Identifier: Apache-2.0
// IPv6 extension headers of packets for us (RFC 8200 section 4).
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { IP6_MORE = 1 }; // fragments follow

struct ip6_fragment {
	uint8_t next_header;
	uint8_t reserved;
	uint16_t offset; // in bytes, of 8 each, with IP6_MORE as its last bit
	uint32_t id;
} __attribute__((packed));

enum ip6_fault {
	IP6_OK,
	IP6_TRUNCATED, // they go on past the end
	IP6_DISCARD,   // to be dropped without a word
	IP6_PARAMETER, // send an ICMP error: `code` and `offset` of a parameter problem
};

// Where the headers that we have to do with ourselves end: at a fragment header, which is in the packet whole, or at a
// protocol's header.
struct ip6_chain {
	unsigned offset; // from the IPv6 header
	uint8_t next_header;
	uint8_t code;
	bool report_to_groups; // a parameter problem that is sent for multicast packets, too
};

// A first fragment holds all headers up to that of a protocol, as much of it as the protocol has at least (RFC 7112). `length` bytes
// can be read from the fragment header on.
bool ip6_first_fragment_is_whole(const uint8_t *fragment, unsigned length);
// Of a whole packet of which `length` bytes can be read: it is a neighbour discovery message (RFC 6980).
bool ip6_is_neighbor_discovery(const uint8_t *data, unsigned length);

// `length` bytes from the IPv6 header on can be read.
enum ip6_fault ip6_extensions(const uint8_t *data, unsigned length, struct ip6_chain *chain);
