// SPDX-License-Identifier: Apache-2.0
// The IPv4 options that a router writes into: record route and timestamp (RFC 791 section 3.1, RFC 1812 section 4.2.2.1).
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Write into the options of a header that ip4_check() accepts: `own` is our address on the packet's way out, or its
// destination if that is ours; `ours` reports whether an address is one of ours in a VRF; a timestamp is
// `milliseconds` from any start, marked as such. True: something was written, so that the checksum is another.
// `*wrong`, if not 0: where in the header a field is wrong.
bool ip4_options_record(uint8_t *header, unsigned length, const uint8_t own[4], uint32_t milliseconds,
	bool (*ours)(uint16_t vrf, const uint8_t *address), uint16_t vrf, unsigned *wrong);
