// SPDX-License-Identifier: Apache-2.0
// ECN in tunnels (RFC 6040; RFC 9601 for tunnels with a header between the two IP headers). For tunnels of any header.
//
// Into a tunnel, normal mode copies the inner field, and compatibility mode writes Not-ECT, for a far end that does not carry a
// congestion mark into the inner header. Out of it, one table serves both (RFC 6040 section 4.2).
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>

enum { ECN_NOT_ECT = 0, ECN_ECT_1 = 1, ECN_ECT_0 = 2, ECN_CE = 3, ECN_MASK = 3, ECN_ILLEGAL = 4 };

// The DSCP and ECN of an IP header, as one byte.
static inline uint8_t
ip_traffic_class(const uint8_t *ip, uint8_t family)
{
	return family == 4 ? ip[1] : (uint8_t)(ip[0] << 4 | ip[1] >> 4);
}

// The field of the packet that leaves the tunnel; ECN_ILLEGAL: it is dropped, because a router marked a packet whose ends do not know
// ECN: they react to a drop alone.
static inline uint8_t
ecn_out_of_tunnel(uint8_t outer, uint8_t inner)
{
	static const uint8_t table[4][4] = {
		// By inner, then outer: Not-ECT, ECT(1), ECT(0), CE.
		[ECN_NOT_ECT] = {ECN_NOT_ECT, ECN_NOT_ECT, ECN_NOT_ECT, ECN_ILLEGAL},
		[ECN_ECT_1] = {ECN_ECT_1, ECN_ECT_1, ECN_ECT_1, ECN_CE},
		[ECN_ECT_0] = {ECN_ECT_0, ECN_ECT_1, ECN_ECT_0, ECN_CE},
		[ECN_CE] = {ECN_CE, ECN_CE, ECN_CE, ECN_CE},
	};

	return table[inner & ECN_MASK][outer & ECN_MASK];
}

// Whether this outer field can change or forbid any inner one: those of the others are left as they are.
static inline bool
ecn_matters(uint8_t outer)
{
	return (outer & ECN_ECT_1) != 0;
}

// Write the field into a header; of IPv4 the checksum is updated (RFC 1624), so that a wrong one stays wrong.
static inline void
ecn_write(uint8_t *ip, uint8_t family, uint8_t ecn)
{
	uint16_t before, after, checksum;
	uint32_t sum;

	if (family == 6) {
		ip[1] = (uint8_t)((ip[1] & ~(ECN_MASK << 4)) | ecn << 4);
		return;
	}
	memcpy(&before, ip, sizeof(before));
	ip[1] = (uint8_t)((ip[1] & ~ECN_MASK) | ecn);
	memcpy(&after, ip, sizeof(after));
	memcpy(&checksum, ip + 10, sizeof(checksum));
	sum = (uint16_t)~checksum + (uint32_t)(uint16_t)~before + after;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	checksum = (uint16_t)~sum;
	memcpy(ip + 10, &checksum, sizeof(checksum));
}

// Carry the outer field into the inner header, which is whole. False: the packet is dropped.
static inline bool
ecn_carry_inwards(uint8_t *inner, uint8_t family, uint8_t outer)
{
	uint8_t was = ip_traffic_class(inner, family) & ECN_MASK, ecn = ecn_out_of_tunnel(outer, was);

	if (ecn == ECN_ILLEGAL)
		return false;
	if (ecn != was)
		ecn_write(inner, family, ecn);
	return true;
}
