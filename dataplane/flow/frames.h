// SPDX-License-Identifier: Apache-2.0
// Packet filters of PDU sessions of type Ethernet (TS 24.501 section 9.11.4.13): fields of a frame without the tags of its access.
#pragma once

#include "acl/rule.h"
#include "core/node.h"
#include "ether/frame.h"
#include "flow.pb-c.h"

// Few enough to be gone through for each frame.
enum { FRAME_FILTERS = 256 };

// The fields of a frame (ether/frame.h), and the bits of them that a filter reads.
struct frame_key {
	uint64_t words[3];
};

static_assert(sizeof(struct frame_shown) == sizeof(struct frame_key), "what a frame shows fills its key");

struct frame_filter {
	struct frame_key value, mask;
	uint8_t c_priorities, s_priorities; // by bit; 0: any
	uint8_t rule;
	bool reads_packet;
	struct acl_rule packet; // of the IP packet in the frame
};

// Whether it has a field of frames, so that it is no filter of packets.
bool frame_filter_is(const Sluice__V1__PacketFilter *filter);

// Parse the filter's fields of frames in this direction; `packet` and `reads_packet` are the caller's. 0 or -EINVAL, with a fault that
// begins with `where`.
int frame_filter_parse(const Sluice__V1__PacketFilter *filter, enum direction direction, const char *where,
	struct frame_filter *to, struct fault *f);

// The rule of the first that matches, or -1. `frame`: as it is in the tunnel, `length` bytes of it can be read.
int frame_filters_find(const struct frame_filter *filters, unsigned count, const uint8_t *frame, size_t length);
