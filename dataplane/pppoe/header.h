// SPDX-License-Identifier: Apache-2.0
// PPPoE headers on the wire (RFC 2516 sections 4 to 6).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PPPOE_HEADER = 6,
	PPPOE_VERSION_TYPE = 0x11,
	PPPOE_SESSION_DATA = 0x00, // the code of session packets
	PPPOE_PADI = 0x09,
	PPPOE_PADR = 0x19,
	PPPOE_PADT = 0xa7,

	PPP_PROTOCOL = 2, // bytes of it
	PPP_IP4 = 0x0021,
	PPP_BRIDGED = 0x0031, // frames (RFC 3518)
	PPP_IP6 = 0x0057,
	PPP_VSNP = 0x005b,
	PPP_CONTROL_FIRST = 0x8000, // control protocols are from here on (RFC 1661 section 2)
	PPP_LCP = 0xc021,
	PPP_PAP = 0xc023,
	PPP_CHAP = 0xc223,
	PPP_IPCP = 0x8021,
	PPP_IPV6CP = 0x8057,
};

struct pppoe_header {
	uint16_t session; // host order
	uint16_t length;  // of the payload
	uint8_t code;
};

// `bytes` follow the Ethernet type; `available` of them can be read and `total` are there (frames may be padded). False: they
// are not a PPPoE packet of version 1, or are shorter than they say.
static inline bool
pppoe_parse(const uint8_t *bytes, size_t available, size_t total, struct pppoe_header *header)
{
	if (available < PPPOE_HEADER || bytes[0] != PPPOE_VERSION_TYPE)
		return false;
	header->code = bytes[1];
	header->session = (uint16_t)(bytes[2] << 8 | bytes[3]);
	header->length = (uint16_t)(bytes[4] << 8 | bytes[5]);
	return (size_t)header->length + PPPOE_HEADER <= total;
}

// Session packets that begin with this byte go to the node, from the byte after Ethernet type 0x8864. At start.
struct node;
void pppoe_version_register(uint8_t version_type, struct node *node);

// Whether a discovery packet is one that a host sends to us, its tags all within its length (section 5, appendix A).
bool pppoe_discovery_valid(const uint8_t *bytes, size_t available, size_t total, struct pppoe_header *header);
