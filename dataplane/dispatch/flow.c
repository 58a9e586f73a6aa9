// A frame's flow: IEEE 802.1Q tags, PPPoE (RFC 2516), IPv4 and IPv6, GTP-U.
#include "dispatch/flow.h"

#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "ip/header.h"
#include "ip/spread.h"

enum {
	TAGS_MOST = 2,
	TPID_QINQ_OLD = 0x9100,
	PPPOE_SESSION = 0x8864,
	PPPOE_HEADER = 8, // with PPP's protocol
	PPP_IP4 = 0x0021,
	PPP_IP6 = 0x0057,
	GTPU_PORT = 2152,
	UDP_HEADER = 8,
	TEID_AT = 4, // in the GTP-U header
};

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

// The TEID of a GTP-U message whose UDP header starts at `offset`, else 0.
static inline uint64_t
teid(const uint8_t *ip, size_t offset, size_t length)
{
	uint32_t id;

	if (length < offset + UDP_HEADER + TEID_AT + sizeof(id) || read16(ip + offset + 2) != GTPU_PORT)
		return 0;
	memcpy(&id, ip + offset + UDP_HEADER + TEID_AT, sizeof(id));
	return scatter(id + UINT64_C(1));
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
		hash ^= teid(packet, ip4_header_length(ip), length);
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
		hash ^= teid(packet, sizeof(*ip), length);
	return hash;
}

uint64_t
flow_of_frame(const uint8_t *frame, size_t length)
{
	size_t at = RTE_ETHER_HDR_LEN;
	uint64_t circuit = 0, source;
	uint16_t type;

	if (length < RTE_ETHER_HDR_LEN)
		return 0;
	type = read16(frame + 12);
	for (unsigned i = 0; i < TAGS_MOST && length >= at + 4; i++) {
		if (type != RTE_ETHER_TYPE_VLAN && type != RTE_ETHER_TYPE_QINQ && type != TPID_QINQ_OLD)
			break;
		// Without the priority: packets of a flow may have several.
		circuit = circuit << 12 | (read16(frame + at) & 0xfff);
		type = read16(frame + at + 2);
		at += 4;
	}
	if (type == PPPOE_SESSION && length >= at + PPPOE_HEADER) {
		uint16_t protocol = read16(frame + at + 6);

		circuit = circuit << 16 | read16(frame + at + 2);
		type = protocol == PPP_IP4 ? RTE_ETHER_TYPE_IPV4 : protocol == PPP_IP6 ? RTE_ETHER_TYPE_IPV6 : type;
		at += PPPOE_HEADER;
	}
	if (type == RTE_ETHER_TYPE_IPV4)
		return flow_of_ip4(frame + at, length - at) ^ scatter(circuit);
	if (type == RTE_ETHER_TYPE_IPV6)
		return flow_of_ip6(frame + at, length - at) ^ scatter(circuit);
	memcpy(&source, frame + 6, sizeof(source));
	return scatter(rte_be_to_cpu_64(source) >> 16) ^ scatter(circuit << 16 | type);
}
