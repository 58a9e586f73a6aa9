// SPDX-License-Identifier: Apache-2.0
// Reassembly of fragments that are for us (RFC 791, RFC 8200 section 4.5; overlaps: RFC 5722; small ones: RFC 1858).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/node.h"

// The edge to follow for a fragment with its IP header at the data; of IPv6, the fragment header right behind that. The
// whole packet enters ip-local when its last fragment has come.
uint16_t reassembly_punt(struct packet *p);

enum {
	PIECES_MAX = 64,     // fragments of one packet
	PAYLOAD_MAX = 65535, // bytes
	FIRST_PIECE_MIN = 8, // bytes of the next protocol's header in a first fragment
};

// A packet's pieces, in order; bytes [start, end) of its payload. Pure.
struct pieces {
	uint32_t total; // 0: the last one has not come
	unsigned count;
	struct piece {
		uint32_t start, end;
		void *what;
	} list[PIECES_MAX];
};

enum pieces_result {
	PIECES_MORE,       // taken; others are missing
	PIECES_WHOLE,      // taken; that was all
	PIECES_AGAIN,      // exactly this one is there already: not taken
	PIECES_IMPOSSIBLE, // it contradicts the others or is none: the whole packet is to be dropped
	PIECES_TOO_MANY,   // the same
};

enum pieces_result pieces_add(struct pieces *pieces, uint32_t offset, uint32_t length, bool more, void *what);

// Once at start: 0 or -ENOMEM.
int reassembly_start(void);
