// SPDX-License-Identifier: Apache-2.0
// A frame's flow: IEEE 802.1Q tags, encapsulations, IPv4 and IPv6.
#include "dispatch/flow.h"

#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "core/encapsulation.h"
#include "fib/spread.h"
#include "inet/header.h"

enum { TAGS_MAX = 2, TPID_QINQ_OLD = 0x9100, UDP_HEADER = 8 };

static inline uint16_t
read16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint64_t
scatter(uint64_t value)
{
	return value * UINT64_C(0xd6e8feb86659fd93);
}

// The id of an encapsulation whose UDP header starts at `offset`, else 0.
static inline uint64_t
tunnel(const uint8_t *ip, size_t offset, size_t length)
{
	struct encapsulated found;

	if (length < offset + UDP_HEADER || !encapsulation_read_udp(read16(ip + offset + 2), ip + offset + UDP_HEADER,
						    length - offset - UDP_HEADER, UINT32_MAX, &found))
		return 0;
	return scatter(found.id + UINT64_C(1));
}

static uint64_t
flow_of_ip4(const uint8_t *packet, size_t length)
{
	const struct ip4_header *ip = (const struct ip4_header *)packet;
	uint64_t hash;

	if (length < sizeof(*ip))
		return 0;
	hash = flow_hash4(packet, length);
	if (ip->protocol == PROTOCOL_UDP && (ip->fragment & RTE_BE16(IP4_MF | IP4_OFFSET)) == 0)
		hash ^= tunnel(packet, ip4_header_length(ip), length);
	return hash;
}

static uint64_t
flow_of_ip6(const uint8_t *packet, size_t length)
{
	const struct ip6_header *ip = (const struct ip6_header *)packet;
	uint64_t hash;

	if (length < sizeof(*ip))
		return 0;
	hash = flow_hash6(packet, length);
	if (ip->next_header == PROTOCOL_UDP)
		hash ^= tunnel(packet, sizeof(*ip), length);
	return hash;
}

uint64_t
flow_of_frame(const uint8_t *frame, size_t length)
{
	size_t at = RTE_ETHER_HDR_LEN;
	struct encapsulated found;
	uint64_t circuit = 0, source;
	uint16_t type;

	if (length < RTE_ETHER_HDR_LEN)
		return 0;
	type = read16(frame + 12);
	for (unsigned i = 0; i < TAGS_MAX && length >= at + 4; i++) {
		if (type != RTE_ETHER_TYPE_VLAN && type != RTE_ETHER_TYPE_QINQ && type != TPID_QINQ_OLD)
			break;
		// Without the priority: packets of a flow may have several.
		circuit = circuit << 12 | (read16(frame + at) & 0xfff);
		type = read16(frame + at + 2);
		at += 4;
	}
	if (type != RTE_ETHER_TYPE_IPV4 && type != RTE_ETHER_TYPE_IPV6 &&
		encapsulation_read_ether(type, frame + at, length - at, UINT32_MAX, &found)) {
		circuit = circuit << 16 ^ found.id;
		type = found.length ? found.type : type;
		at += found.length;
	}
	if (type == RTE_ETHER_TYPE_IPV4)
		return flow_of_ip4(frame + at, length - at) ^ scatter(circuit);
	if (type == RTE_ETHER_TYPE_IPV6)
		return flow_of_ip6(frame + at, length - at) ^ scatter(circuit);
	memcpy(&source, frame + 6, sizeof(source));
	return scatter(rte_be_to_cpu_64(source) >> 16) ^ scatter(circuit << 16 | type);
}
