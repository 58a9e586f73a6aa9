// SPDX-License-Identifier: Apache-2.0
// Protocols whose packets a Punt takes from circuits without an interface or a session. A concept registers its protocol; the enum
// PuntProtocol of api/punt.proto has its name.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/punt.h"

// Of all protocols: a Punt has a bit for each.
enum { PUNT_PROTOCOLS_MAX = 32, PUNT_TRANSPORT = 8 };

struct punt_protocol {
	const char
		*name; // of its value of PuntProtocol in small letters, with hyphens, and of its reason (PUNT): "dhcp4"
	// Frames of this Ethernet type, 0: none, as the concept itself calls punt_from_circuit().
	uint16_t ether_type;
	uint16_t length; // as many bytes behind the Ethernet type at least; no Punt takes shorter frames
	// Of IPv4 or IPv6: packets of this protocol that are no fragments and have PUNT_TRANSPORT bytes behind the IP header; 0: the
	// Ethernet type is not IP.
	uint8_t ip_protocol;
	// Whether the frame is of this protocol, by the bytes behind the IP header, or behind the Ethernet type. NULL: all are.
	bool (*takes)(const uint8_t *bytes);

	// Set at start.
	uint8_t number; // of PuntProtocol; PUNT_PROTOCOLS_MAX: it has no such value
	const struct punt *reason;
	struct punt_protocol *next;
};

void punt_protocol_register(struct punt_protocol *protocol);
#define PUNT_PROTOCOL_REGISTER(protocol) \
	RTE_INIT(register_##protocol) \
	{ \
		punt_protocol_register(&protocol); \
	}

// The registered protocol of a frame whose Ethernet header has `header` bytes, or NULL. IP packets of no such protocol to the port's MAC are
// first packets.
const struct punt_protocol *punt_protocol_of(const uint8_t *frame, uint32_t length, unsigned header);
// "?" if no protocol has the number.
const char *punt_protocol_name(unsigned number);
// Numbers the protocols. 0; -ENOENT: a value of PuntProtocol has no protocol, or a protocol no reason, explained on stderr.
int punt_protocols_start(void);
