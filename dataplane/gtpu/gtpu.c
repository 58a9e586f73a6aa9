// SPDX-License-Identifier: Apache-2.0
// GTP-U on the wire (TS 29.281, TS 38.415): reading and writing.
#include "gtpu/gtpu.h"

#include <string.h>

#include <rte_ether.h>

#include "core/encapsulation.h"
#include "inet/field.h"
#include "inet/header.h"

enum { TTL = 64, DEFAULT_IP6_EXTENSIONS = 8 };

// TS 38.415 sections 5.5.2.1 and 5.5.2.2. `length` is that of the container's content, at least 2.
static bool
parse_container(const uint8_t *content, size_t length, struct gtpu_packet *packet)
{
	uint8_t type = content[0] >> 4;

	if (type != PDU_DOWNLINK && type != PDU_UPLINK)
		return true; // of a later release: there is no QFI that we know of
	// The paging policy indicator is a byte of its own.
	if (type == PDU_DOWNLINK && (content[1] & 0x80) && length < 3)
		return false;
	packet->container = true;
	packet->qfi = content[1] & QFI_MAX;
	packet->reflect = type == PDU_DOWNLINK && (content[1] & 0x40);
	return true;
}

// Section 5.2: each extension header has the type of the next. `end` is the end of the message.
static enum gtpu_verdict
parse_extensions(const uint8_t *bytes, size_t available, size_t end, struct gtpu_packet *packet)
{
	uint8_t type = bytes[GTPU_HEADER + GTPU_OPTIONAL - 1];
	enum gtpu_verdict verdict = GTPU_FINE;
	size_t at = GTPU_HEADER + GTPU_OPTIONAL;

	for (unsigned i = 0; type != EXTENSION_NONE; i++) {
		size_t length;

		if (i == EXTENSIONS_MAX)
			return GTPU_BAD_EXTENSION;
		if (at >= end || at >= available)
			return GTPU_SHORT;
		length = (size_t)bytes[at] * 4;
		if (length == 0)
			return GTPU_BAD_EXTENSION;
		if (at + length > end || at + length > available)
			return GTPU_SHORT;
		if (type == EXTENSION_PDU_SESSION_CONTAINER) {
			if (!parse_container(bytes + at + 1, length - 2, packet))
				return GTPU_BAD_EXTENSION;
		} else if (type & EXTENSION_REQUIRED) {
			verdict = GTPU_UNKNOWN_EXTENSION;
		}
		type = bytes[at + length - 1];
		at += length;
	}
	packet->offset = (uint16_t)at;
	return verdict;
}

enum gtpu_verdict
gtpu_parse(const uint8_t *bytes, size_t available, size_t total, struct gtpu_packet *packet)
{
	enum gtpu_verdict verdict = GTPU_FINE;
	size_t end;

	memset(packet, 0, sizeof(*packet));
	if (available > total)
		available = total;
	if (available < GTPU_HEADER)
		return GTPU_SHORT;
	if ((bytes[0] & 0xf0) != GTPU_VERSION_1)
		return GTPU_OTHER_VERSION;
	end = GTPU_HEADER + (size_t)get16(bytes + 2);
	if (end > total)
		return GTPU_SHORT;
	packet->type = bytes[1];
	packet->teid = (uint32_t)get16(bytes + 4) << 16 | get16(bytes + 6);
	packet->offset = GTPU_HEADER;
	if (bytes[0] & (GTPU_E | GTPU_S | GTPU_PN)) {
		if (end < GTPU_HEADER + GTPU_OPTIONAL || available < GTPU_HEADER + GTPU_OPTIONAL)
			return GTPU_SHORT;
		packet->offset = GTPU_HEADER + GTPU_OPTIONAL;
		packet->sequence = bytes[0] & GTPU_S ? get16(bytes + GTPU_HEADER) : 0;
		if (bytes[0] & GTPU_E)
			verdict = parse_extensions(bytes, available, end, packet);
	}
	packet->length = (uint16_t)(end - packet->offset);
	return verdict;
}

// The offset of UDP behind an IPv6 header and its extension headers, or 0.
static size_t
find_udp6(const uint8_t *ip, size_t available)
{
	size_t at = sizeof(struct ip6_header);
	uint8_t next;

	if (available < at)
		return 0;
	next = ((const struct ip6_header *)ip)->next_header;
	for (unsigned i = 0; next != PROTOCOL_UDP; i++) {
		if (i == DEFAULT_IP6_EXTENSIONS || available < at + 8)
			return 0;
		if (next != PROTOCOL_HOP_BY_HOP && next != PROTOCOL_ROUTING && next != PROTOCOL_DESTINATION_OPTIONS)
			return 0;
		next = ip[at];
		at += ((size_t)ip[at + 1] + 1) * 8;
	}
	return at;
}

unsigned
gtpu_find_udp(const uint8_t *ip, size_t available, size_t total, uint16_t *length)
{
	const struct ip4_header *ip4 = (const struct ip4_header *)ip;
	size_t udp = 0;
	uint16_t bytes;

	if (available > total)
		available = total;
	if (available < sizeof(*ip4))
		return 0;
	if (ip[0] >> 4 == 6)
		udp = find_udp6(ip, available);
	else if (ip[0] >> 4 == 4 && ip4->protocol == PROTOCOL_UDP && ip4_header_length(ip4) >= sizeof(*ip4))
		udp = ip4_header_length(ip4);
	if (udp == 0 || available < udp + UDP_HEADER)
		return 0;
	bytes = get16(ip + udp + 4);
	if (bytes < UDP_HEADER || udp + bytes > total)
		return 0;
	*length = (uint16_t)(bytes - UDP_HEADER);
	return (unsigned)udp;
}

// An IP header without lengths and checksum. Its end.
static uint8_t *
put_ip(uint8_t *at, const struct gtpu_ends *ends)
{
	if (ends->family == 4) {
		struct ip4_header *ip = (struct ip4_header *)at;

		*ip = (struct ip4_header){.version_ihl = 0x45, .ttl = TTL, .protocol = PROTOCOL_UDP};
		memcpy(&ip->source, ends->local, sizeof(ip->source));
		memcpy(&ip->destination, ends->remote, sizeof(ip->destination));
		return at + sizeof(*ip);
	}
	struct ip6_header *ip = (struct ip6_header *)at;

	*ip = (struct ip6_header){
		.version_class_flow = RTE_BE32(6u << 28), .next_header = PROTOCOL_UDP, .hop_limit = TTL};
	memcpy(ip->source, ends->local, sizeof(ip->source));
	memcpy(ip->destination, ends->remote, sizeof(ip->destination));
	return at + sizeof(*ip);
}

unsigned
gtpu_write_header(uint8_t *room, const struct gtpu_ends *ends, uint32_t teid, bool container, uint8_t qfi)
{
	size_t size = ends->family == 4 ? GTPU_ENCAP4 : GTPU_ENCAP6;
	uint8_t bytes[GTPU_ENCAP6] = {0}, *at = put_ip(bytes, ends);
	size_t length;

	at = put16(put16(at, 0), GTPU_PORT);
	at = put32(at, 0);
	*at++ = container ? GTPU_VERSION_1 | GTPU_E : GTPU_VERSION_1;
	*at++ = GTPU_G_PDU;
	at = put32(put16(at, 0), teid);
	if (container) {
		at = put16(at, 0);
		*at++ = 0;
		*at++ = EXTENSION_PDU_SESSION_CONTAINER;
		*at++ = GTPU_CONTAINER / 4;
		*at++ = PDU_UPLINK << 4;
		*at++ = qfi;
		*at++ = EXTENSION_NONE;
	}
	length = (size_t)(at - bytes);
	memset(room, 0, size - length);
	memcpy(room + size - length, bytes, length);
	return (unsigned)length;
}

static void
close_message(uint8_t *room, size_t length, const struct gtpu_ends *ends)
{
	size_t ip_length = ends->family == 4 ? sizeof(struct ip4_header) : sizeof(struct ip6_header);
	size_t address = ends->family == 4 ? 4 : 16;
	uint16_t udp_length = (uint16_t)(length - ip_length), checksum;
	uint8_t *udp = room + ip_length;
	uint64_t sum;

	put16(udp + 4, udp_length);
	sum = checksum_add(checksum_add(0, ends->local, address), ends->remote, address);
	sum += rte_cpu_to_be_16(udp_length) + (uint64_t)RTE_BE16(PROTOCOL_UDP);
	checksum = (uint16_t)~checksum_fold(checksum_add(sum, udp, udp_length));
	checksum = checksum ? checksum : UINT16_MAX;
	memcpy(udp + 6, &checksum, sizeof(checksum));
	if (ends->family == 4) {
		struct ip4_header *ip = (struct ip4_header *)room;

		ip->total_length = rte_cpu_to_be_16((uint16_t)length);
		// Never cut, so that it needs no identification (RFC 6864 section 4.1).
		ip->fragment = RTE_BE16(IP4_DF);
		ip->checksum = ip4_checksum(ip);
	} else {
		((struct ip6_header *)room)->payload_length = rte_cpu_to_be_16(udp_length);
	}
}

unsigned
gtpu_write_message(uint8_t room[GTPU_MESSAGE_MAX], const struct gtpu_ends *ends, uint16_t destination_port,
	uint8_t type, uint16_t sequence, const uint8_t *elements, size_t length)
{
	uint8_t *at = put_ip(room, ends);

	at = put16(put16(at, GTPU_PORT), destination_port);
	at = put32(at, 0);
	*at++ = GTPU_VERSION_1 | GTPU_S; // section 5.1: these messages have a sequence number
	*at++ = type;
	at = put16(at, (uint16_t)(GTPU_OPTIONAL + length));
	at = put32(at, 0);
	at = put16(put16(at, sequence), 0);
	if (length > 0)
		memcpy(at, elements, length);
	at += length;
	close_message(room, (size_t)(at - room), ends);
	return (unsigned)(at - room);
}

unsigned
gtpu_echo_response(uint8_t *elements)
{
	// Section 8.2: the restart counter has no use in GTP-U and is 0.
	elements[0] = IE_RECOVERY;
	elements[1] = 0;
	return 2;
}

unsigned
gtpu_error_indication(uint8_t *elements, uint32_t teid, const struct gtpu_ends *ends)
{
	uint16_t length = ends->family == 4 ? 4 : 16;
	uint8_t *at = elements;

	*at++ = IE_TEID_DATA;
	at = put32(at, teid);
	*at++ = IE_PEER_ADDRESS;
	at = put16(at, length);
	memcpy(at, ends->local, length);
	return (unsigned)(at + length - elements);
}

unsigned
gtpu_supported_extensions(uint8_t *elements)
{
	// Section 8.5: a list with a length of one byte.
	elements[0] = IE_EXTENSION_TYPES;
	elements[1] = 1;
	elements[2] = EXTENSION_PDU_SESSION_CONTAINER;
	return 3;
}

// A frame where the first bits are no version of IP: of a PDU session of type Ethernet.
static uint16_t
type_of(uint8_t first)
{
	return first >> 4 == 4 ? RTE_ETHER_TYPE_IPV4 : first >> 4 == 6 ? RTE_ETHER_TYPE_IPV6 : 0;
}

static bool
read_header(const uint8_t *bytes, size_t available, size_t total, struct encapsulated *found)
{
	enum gtpu_verdict verdict = GTPU_FINE;
	struct gtpu_packet packet;

	if (available < GTPU_HEADER)
		return false;
	*found = (struct encapsulated){.id = gtpu_read_32(bytes + 4)};
	if (!gtpu_parse_usual(bytes, available, total, &packet))
		verdict = gtpu_parse(bytes, available, total, &packet);
	// Filters see packets that the gateway refuses because of an unknown extension header.
	if ((verdict != GTPU_FINE && verdict != GTPU_UNKNOWN_EXTENSION) || packet.type != GTPU_G_PDU)
		return true;
	if (packet.offset >= available)
		return true;
	found->length = packet.offset;
	found->type = type_of(bytes[packet.offset]);
	return true;
}

static struct encapsulation gtpu = {.udp_port = GTPU_PORT, .read = read_header};
ENCAPSULATION_REGISTER(gtpu)
