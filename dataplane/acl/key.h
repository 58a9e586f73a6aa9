// SPDX-License-Identifier: Apache-2.0
// The fields that rules compare, copied from a packet into a record of fixed layout.
//
// The protocol is compared as a class, one byte: the number that the list gave this protocol (0: no rule names it)
// and two bits. One says that the protocol has ports, so that a rule with ports and no protocol needs no copy for
// each; the other that the packet has no readable transport header, so that rules with its fields cannot match.
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_byteorder.h>

enum { CLASS_NUMBER = 0x3f, CLASS_HAS_PORTS = 0x40, CLASS_UNREADABLE = 0x80, CLASS_BITS = 6 };

// The protocols of a list.
struct acl_protocols {
	uint8_t class_of[256];
	bool read[256]; // some rule reads the transport header of this protocol
	bool named;     // some rule names a protocol
	// Flow labels that rules name, with the numbers that the list gave them: NULL if there is none. Placed by their low bits, the
	// next place if that is taken, each with its number in the lowest byte; 0: free.
	uint32_t *labels;
};

enum { LABELS_MAX = 255, LABEL_PLACES = 512, LABEL_MASK = 0xfffff };

// The number of a flow label, or 0: no rule names it.
static inline uint16_t
label_number(const uint32_t *labels, uint32_t label)
{
	for (unsigned place = label % LABEL_PLACES; labels[place] != 0; place = (place + 1) % LABEL_PLACES)
		if (labels[place] >> 8 == label)
			return (uint8_t)labels[place];
	return 0;
}

// All in network order. The first four words of a key4, the first eleven of a key6 are the fields of an exact rule;
// other rules also have dscp and flags. For ICMP, type and code are in the place of the source port.
struct acl_key4 {
	uint32_t class;
	uint32_t source, destination;
	uint16_t source_port, destination_port;
	uint8_t dscp, flags;
	uint16_t zero;
};

struct acl_key6 {
	uint32_t class;
	uint8_t source[16], destination[16];
	uint16_t source_port, destination_port;
	uint8_t dscp, flags;
	uint16_t label; // its number
};

static_assert(sizeof(struct acl_key4) == 20 && sizeof(struct acl_key6) == 44, "keys have no holes");

enum { EXACT_KEY4 = 16, EXACT_KEY6 = 40 }; // bytes that identify a 5-tuple

// The number of an IPv6 packet's flow label, in network order as all of a key is.
static inline uint16_t
acl_label(const struct acl_protocols *protocols, const uint8_t *ip)
{
	uint32_t first;

	if (likely(protocols->labels == NULL))
		return 0;
	memcpy(&first, ip, sizeof(first));
	return rte_cpu_to_be_16(label_number(protocols->labels, rte_be_to_cpu_32(first) & LABEL_MASK));
}

// Headers of any shape. False: a field that the list reads is cut short, behind too many extension headers, or
// could be overwritten by an overlapping fragment (RFC 3128). Such a packet must not pass.
bool acl_key4_careful(const struct acl_protocols *protocols, const uint8_t *ip, unsigned length, struct acl_key4 *key);
bool acl_key6_careful(const struct acl_protocols *protocols, const uint8_t *ip, unsigned length, struct acl_key6 *key);

// Extension headers of IPv6, which lead on to another header.
extern const uint8_t ip6_extension[256];

// `length` bytes may be read at `ip`. A plain header with 20 bytes behind it is taken as it lies there: addresses and ports
// are next to each other.
static inline bool
acl_key4(const struct acl_protocols *protocols, const uint8_t *ip, unsigned length, struct acl_key4 *key)
{
	uint16_t total, fragment;

	if (likely(length >= 40)) {
		memcpy(&total, ip + 2, 2);
		memcpy(&fragment, ip + 6, 2);
		if (likely(ip[0] == 0x45 && rte_be_to_cpu_16(total) >= 40 &&
			    (fragment & rte_cpu_to_be_16(0x1fff)) == 0)) {
			key->class = protocols->class_of[ip[9]];
			memcpy(&key->source, ip + 12, 12);
			key->dscp = ip[1] >> 2;
			key->flags = ip[33];
			key->zero = 0;
			return true;
		}
	}
	return acl_key4_careful(protocols, ip, length, key);
}

static inline bool
acl_key6(const struct acl_protocols *protocols, const uint8_t *ip, unsigned length, struct acl_key6 *key)
{
	uint16_t payload;

	if (likely(length >= 60)) {
		memcpy(&payload, ip + 4, 2);
		if (likely(!ip6_extension[ip[6]] && rte_be_to_cpu_16(payload) >= 20)) {
			key->class = protocols->class_of[ip[6]];
			memcpy(key->source, ip + 8, 36);
			key->dscp = (uint8_t)((ip[0] << 2 & 0x3c) | ip[1] >> 6);
			key->flags = ip[53];
			key->label = acl_label(protocols, ip);
			return true;
		}
	}
	return acl_key6_careful(protocols, ip, length, key);
}
