// SPDX-License-Identifier: Apache-2.0
// The registry of punt protocols, and the protocol of a frame. Only fixed headers are read: the agent parses protocols with options.
#include "punt/protocol.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "core/punt_watch.h"
#include "punt.pb-c.h"

enum {
	IP4_HEADER = 20,
	IP6_HEADER = 40,
	ARP_LENGTH = 28, // of IPv4 on Ethernet, RFC 826
	PROTOCOL_ICMP6 = 58,
	ND_ROUTER_SOLICITATION = 133,
	ND_NEIGHBOR_SOLICITATION = 135,

	// Of all Punts together.
	A_SECOND = 10000,
	EACH = 100,
};

PUNT_EACH(punt_arp, "arp", A_SECOND, EACH, NULL)
PUNT_EACH(punt_nd, "nd", A_SECOND, EACH, NULL)
PUNT_EACH(punt_first_packet, "first-packet", A_SECOND, EACH, NULL)

static struct punt_protocol *registered;

static bool
is_solicitation(const uint8_t *icmp)
{
	return icmp[0] == ND_ROUTER_SOLICITATION || icmp[0] == ND_NEIGHBOR_SOLICITATION;
}

static struct punt_protocol arp = {.name = "arp", .ether_type = RTE_ETHER_TYPE_ARP, .length = ARP_LENGTH};
static struct punt_protocol nd = {
	.name = "nd", .ether_type = RTE_ETHER_TYPE_IPV6, .ip_protocol = PROTOCOL_ICMP6, .takes = is_solicitation};
static struct punt_protocol first_packet = {.name = "first-packet"};
PUNT_PROTOCOL_REGISTER(arp)
PUNT_PROTOCOL_REGISTER(nd)
PUNT_PROTOCOL_REGISTER(first_packet)

void
punt_protocol_register(struct punt_protocol *protocol)
{
	protocol->number = PUNT_PROTOCOLS_MAX;
	protocol->next = registered;
	registered = protocol;
}

static inline uint16_t
read16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

// The length of the IP header, or 0: it is not whole. *protocol is 0 for a fragment, which has no port of its own, or only a part of the
// message behind it.
static unsigned
ip_header(const uint8_t *ip, uint32_t length, uint16_t type, uint8_t *protocol)
{
	unsigned header = IP6_HEADER;

	if (type == RTE_ETHER_TYPE_IPV6) {
		if (length < IP6_HEADER || ip[0] >> 4 != 6)
			return 0;
		*protocol = ip[6];
		return header;
	}
	if (length < IP4_HEADER || ip[0] >> 4 != 4)
		return 0;
	header = (ip[0] & 0xfu) * 4;
	*protocol = (read16(ip + 6) & 0x3fff) == 0 ? ip[9] : 0;
	return header < IP4_HEADER || length < header ? 0 : header;
}

const struct punt_protocol *
punt_protocol_of(const uint8_t *frame, uint32_t length, unsigned header)
{
	const uint8_t *bytes = frame + header;
	uint8_t ip_protocol = 0;
	unsigned behind = 0;
	uint16_t type;
	bool ip;

	if (header < RTE_ETHER_HDR_LEN || length < header)
		return NULL;
	length -= header;
	type = read16(bytes - 2);
	ip = type == RTE_ETHER_TYPE_IPV4 || type == RTE_ETHER_TYPE_IPV6;
	if (ip) {
		behind = ip_header(bytes, length, type, &ip_protocol);
		if (behind == 0)
			return NULL;
	}
	for (const struct punt_protocol *p = registered; p; p = p->next) {
		if (p->ether_type == 0 || p->ether_type != type || p->ip_protocol != ip_protocol)
			continue;
		if (length < RTE_MAX(behind + (ip ? PUNT_TRANSPORT : 0u), (unsigned)p->length))
			return NULL;
		if (!p->takes || p->takes(bytes + behind))
			return p;
	}
	// Broadcasts are no sign of a subscriber: every host sends them without end.
	return ip && !(frame[0] & 1) ? &first_packet : NULL;
}

const char *
punt_protocol_name(unsigned number)
{
	for (const struct punt_protocol *p = registered; p; p = p->next)
		if (p->number == number)
			return p->name;
	return "?";
}

// PPPOE_DISCOVERY is pppoe-discovery.
static bool
is_value_of(const char *value, const char *name)
{
	size_t i = 0;

	while (value[i] != '\0' && (value[i] == '_' ? '-' : tolower((unsigned char)value[i])) == name[i])
		i++;
	return value[i] == '\0' && name[i] == '\0';
}

int
punt_protocols_start(void)
{
	const ProtobufCEnumDescriptor *values = &sluice__v1__punt_protocol__descriptor;

	for (unsigned i = 0; i < values->n_values; i++) {
		struct punt_protocol *p = registered;

		while (p && !is_value_of(values->values[i].name, p->name))
			p = p->next;
		if (!p || values->values[i].value >= PUNT_PROTOCOLS_MAX) {
			fprintf(stderr, "PuntProtocol %s: %s\n", values->values[i].name,
				p ? "raise PUNT_PROTOCOLS_MAX in punt/protocol.h"
				  : "no concept registers it; add PUNT_PROTOCOL_REGISTER to the concept's file");
			return p ? -ENOSPC : -ENOENT;
		}
		p->number = (uint8_t)values->values[i].value;
		p->reason = punt_by_name(p->name);
		if (!p->reason) {
			fprintf(stderr, "PuntProtocol %s: no PUNT has the name %s\n", values->values[i].name, p->name);
			return -ENOENT;
		}
	}
	return 0;
}
