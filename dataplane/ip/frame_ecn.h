// SPDX-License-Identifier: Apache-2.0
// ECN of frames in tunnels: the field is in the IP header behind the frame's own.
#pragma once

#include "ether/frame.h"
#include "inet/header.h"
#include "ip/ecn.h"

// Into the IP header of a frame. One that carries no IP cannot carry a congestion mark either. False: it is dropped.
static inline bool
ecn_carry_into_frame(uint8_t *frame, size_t length, uint8_t outer)
{
	struct frame_shown shown;
	size_t at = frame_show(frame, length, &shown);
	uint8_t family = shown.type == RTE_ETHER_TYPE_IPV4 ? 4 : shown.type == RTE_ETHER_TYPE_IPV6 ? 6 : 0;
	size_t header = family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header);

	if (family == 0 || at + header > length || frame[at] >> 4 != family)
		return (outer & ECN_MASK) != ECN_CE;
	return ecn_carry_inwards(frame + at, family, outer);
}
