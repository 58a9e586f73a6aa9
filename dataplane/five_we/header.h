// SPDX-License-Identifier: Apache-2.0
// The 5WE header on the wire (RFC 8822 section 2): that of PPPoE with version 2, and QFI and RQI in place of the code.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pppoe/header.h"

enum {
	FIVE_WE_VERSION_TYPE = 0x21,
	FIVE_WE_HEADER = PPPOE_HEADER + PPP_PROTOCOL,
	FIVE_WE_QFI_SHIFT = 2,
	FIVE_WE_RQI = 1 << 1, // of packets to the subscriber
	// The header of a frame (RFC 3518 section 4.2): no flags, no padding, MAC type Ethernet.
	FIVE_WE_FRAME = 2,
	FIVE_WE_FRAME_HEADER = 0x0001,
	FIVE_WE_QFI_BEFORE = FIVE_WE_HEADER - 1, // from the byte of QFI and RQI to the packet
};

struct five_we_header {
	uint16_t session;  // host order
	uint16_t protocol; // of PPP: PPP_IP4, PPP_IP6
	uint8_t qfi;
};

// `bytes` follow the Ethernet type; `available` of them can be read and `total` are there (frames may be padded). False: they are not 5WE, or
// are shorter than they say.
static inline bool
five_we_parse(const uint8_t *bytes, size_t available, size_t total, struct five_we_header *header)
{
	size_t length;

	if (available < FIVE_WE_HEADER || bytes[0] != FIVE_WE_VERSION_TYPE)
		return false;
	// The length counts the protocol, too.
	length = (size_t)(bytes[4] << 8 | bytes[5]);
	*header = (struct five_we_header){.session = (uint16_t)(bytes[2] << 8 | bytes[3]),
		.protocol = (uint16_t)(bytes[6] << 8 | bytes[7]),
		.qfi = bytes[1] >> FIVE_WE_QFI_SHIFT};
	return length >= PPP_PROTOCOL && length + PPPOE_HEADER <= total;
}
