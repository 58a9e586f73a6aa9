// SPDX-License-Identifier: Apache-2.0
// Packets of one route over several next hops: by flow, so that a flow's packets keep their order (RFC 2992), in proportion to
// the next hops' weights.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SPREAD_BITS_MIN = 8, SPREAD_BITS_MAX = 12, SPREAD_NOBODY = UINT8_MAX };

// How many slots (log2) the weights need so that each gets its share to within an eighth of the least, as far as the most
// slots allow.
unsigned spread_bits(const uint8_t *weights, unsigned count);

// Assign slots to members: `owners` has a member's number or SPREAD_NOBODY for each slot. It is changed so that each member has its
// weight's share (0: none) and at least one slot, and as few slots as possible change their member. `homes` has the preferred member of
// each slot, NULL: none. At least one weight is not 0.
void spread_assign(uint8_t *owners, const uint8_t *homes, unsigned slots, const uint8_t *weights, unsigned count);

// A hash of the flow, the same for all its packets: addresses, protocol, and ports where every packet of the flow has them
// (fragments do not). `length` bytes are there from the IP header on. All its bits are good ones, and secret.
uint64_t flow_hash4(const uint8_t *packet, size_t length);
uint64_t flow_hash6(const uint8_t *packet, size_t length);
