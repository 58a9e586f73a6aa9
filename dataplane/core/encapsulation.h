// SPDX-License-Identifier: Apache-2.0
// Headers of encapsulations as code beside the graph reads them: dispatch to workers needs the flow of a frame, filters of traces and captures
// need the packet in it. A concept registers its header (RTE_INIT).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_common.h>

struct encapsulated {
	uint32_t id;     // the same in all packets of a flow: a session id, a TEID
	uint32_t length; // of the header; 0: there is no packet behind it
	uint16_t type;   // Ethernet type of the packet behind it, host order; 0: a whole frame
};

struct encapsulation {
	uint16_t ether_type; // the header is behind this Ethernet type, host order; or
	uint16_t udp_port;   // behind UDP with this destination port, host order
	// `available` bytes from the header on can be read, `total` are in the packet. False: they are not this header.
	bool (*read)(const uint8_t *bytes, size_t available, size_t total, struct encapsulated *found);
	// The words of pcap-filter(7) that name the header, up to NULL. NULL: there are none.
	const char *const *words;
	struct encapsulation *next;
};

void encapsulation_register(struct encapsulation *encapsulation);
#define ENCAPSULATION_REGISTER(encapsulation) \
	RTE_INIT(register_##encapsulation) \
	{ \
		encapsulation_register(&encapsulation); \
	}

// Read the header behind an Ethernet type or a UDP port. False: no concept knows it.
bool encapsulation_read_ether(
	uint16_t ether_type, const uint8_t *bytes, size_t available, size_t total, struct encapsulated *found);
bool encapsulation_read_udp(
	uint16_t port, const uint8_t *bytes, size_t available, size_t total, struct encapsulated *found);
// Whether `has` is true for a word that names one of the headers.
bool encapsulation_named(bool (*has)(const char *filter, const char *word), const char *filter);
