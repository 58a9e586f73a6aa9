// SPDX-License-Identifier: Apache-2.0
// GTP-U on the wire: TS 29.281 section 5 (header, extension headers), 7 (messages), 8 (information elements), and the PDU
// session container of TS 38.415 section 5.5. Reading and writing bytes, no tables.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>

enum {
	GTPU_PORT = 2152,
	GTPU_HEADER = 8,
	GTPU_OPTIONAL = 4,  // sequence number, N-PDU number, next extension header type: all there if one is
	GTPU_CONTAINER = 4, // the PDU session container that we send
	UDP_HEADER = 8,

	GTPU_VERSION_1 = 0x30, // version 1, protocol type GTP
	GTPU_E = 0x04,
	GTPU_S = 0x02,
	GTPU_PN = 0x01,

	GTPU_ECHO_REQUEST = 1,
	GTPU_ECHO_RESPONSE = 2,
	GTPU_ERROR_INDICATION = 26,
	GTPU_SUPPORTED_EXTENSIONS = 31,
	GTPU_END_MARKER = 254,
	GTPU_G_PDU = 255,

	IE_RECOVERY = 14,
	IE_TEID_DATA = 16,
	IE_PEER_ADDRESS = 133,
	IE_EXTENSION_TYPES = 141,

	EXTENSION_NONE = 0,
	EXTENSION_PDU_SESSION_CONTAINER = 0x85,
	EXTENSION_REQUIRED = 0x80, // section 5.2.1: the endpoint that receives it must understand it
	EXTENSIONS_MAX = 16,

	PDU_DOWNLINK = 0, // PDU type of the container
	PDU_UPLINK = 1,
	QFI_MAX = 63,
};

enum gtpu_verdict {
	GTPU_FINE,
	GTPU_SHORT,             // less than its lengths say
	GTPU_OTHER_VERSION,     // not version 1, or GTP'
	GTPU_BAD_EXTENSION,     // an extension header of no length, too many, or a container that is not one
	GTPU_UNKNOWN_EXTENSION, // one that must be understood
};

struct gtpu_packet {
	uint32_t teid;     // host order
	uint16_t offset;   // of the payload behind the header and its extensions
	uint16_t length;   // of that
	uint16_t sequence; // host order; 0 if there is none
	uint8_t type;
	uint8_t qfi;
	bool container;
	bool reflect; // RQI
};

// `bytes` are UDP's payload: `available` can be read, `total` are there.
enum gtpu_verdict gtpu_parse(const uint8_t *bytes, size_t available, size_t total, struct gtpu_packet *packet);

static inline uint32_t
gtpu_read_32(const uint8_t *bytes)
{
	uint32_t value;

	memcpy(&value, bytes, sizeof(value));
	return rte_be_to_cpu_32(value);
}

// The form of nearly every packet: a G-PDU without optional fields, or with one container of QFI and RQI alone.
// False: call gtpu_parse().
static inline bool
gtpu_parse_usual(const uint8_t *bytes, size_t available, size_t total, struct gtpu_packet *packet)
{
	const uint32_t usual = (GTPU_VERSION_1 << 8 | GTPU_G_PDU), first = gtpu_read_32(bytes);
	const uint16_t length = (uint16_t)first;
	bool container = first >> 16 == (usual | GTPU_E << 8);
	unsigned offset = container ? GTPU_HEADER + GTPU_OPTIONAL + GTPU_CONTAINER : GTPU_HEADER;

	if ((first >> 16 != usual && !container) || available < offset || (unsigned)length + GTPU_HEADER > total ||
		(unsigned)length + GTPU_HEADER < offset)
		return false;
	packet->qfi = 0;
	packet->reflect = false;
	if (container) {
		// From byte 11 on: type, length 1, PDU type 0, none of the flags that make it longer, no further one.
		const uint64_t plain =
			(uint64_t)EXTENSION_PDU_SESSION_CONTAINER << 32 | 1 << 24 | PDU_DOWNLINK << 20 | EXTENSION_NONE;
		const uint64_t optional = (uint64_t)gtpu_read_32(bytes + 8) << 32 | gtpu_read_32(bytes + 12);

		if ((optional & 0xfffff080ff) != plain)
			return false;
		packet->qfi = (uint8_t)(optional >> 8) & QFI_MAX;
		packet->reflect = (optional & 0x4000) != 0;
	}
	packet->container = container;
	packet->type = GTPU_G_PDU;
	packet->teid = gtpu_read_32(bytes + 4);
	packet->offset = (uint16_t)offset;
	packet->length = (uint16_t)(length + GTPU_HEADER - offset);
	packet->sequence = 0;
	return true;
}

// Where UDP is in an IP packet for us, its lengths checked: the offset of its header, or 0. `*length` is that of its payload.
// `available` bytes can be read, `total` are there.
unsigned gtpu_find_udp(const uint8_t *ip, size_t available, size_t total, uint16_t *length);

enum {
	GTPU_ENCAP4 = 20 + UDP_HEADER + GTPU_HEADER + GTPU_OPTIONAL + GTPU_CONTAINER, // 44
	GTPU_ENCAP6 = 40 + UDP_HEADER + GTPU_HEADER + GTPU_OPTIONAL + GTPU_CONTAINER, // 64
	GTPU_MESSAGE_MAX = 128,
};

struct gtpu_ends {
	uint8_t family;
	uint8_t local[16], remote[16]; // network order, IPv4 in the first four
};

// The header in front of a G-PDU: IP, UDP, GTP-U and, with `container`, the uplink PDU session container with `qfi`. Lengths,
// DSCP, IPv4's identification and checksum, UDP's source port and checksum are 0. Right-aligned at the end of `room`
// (GTPU_ENCAP4 or GTPU_ENCAP6 bytes); its length.
unsigned gtpu_write_header(uint8_t *room, const struct gtpu_ends *ends, uint32_t teid, bool container, uint8_t qfi);

// A whole signalling packet from us: IP, UDP, GTP-U with sequence number, TEID 0, and the elements. Its length.
unsigned gtpu_write_message(uint8_t room[GTPU_MESSAGE_MAX], const struct gtpu_ends *ends, uint16_t destination_port,
	uint8_t type, uint16_t sequence, const uint8_t *elements, size_t length);
// The elements of these messages. Their length.
unsigned gtpu_echo_response(uint8_t *elements);
unsigned gtpu_error_indication(uint8_t *elements, uint32_t teid, const struct gtpu_ends *ends);
unsigned gtpu_supported_extensions(uint8_t *elements);
