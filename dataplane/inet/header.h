// SPDX-License-Identifier: Apache-2.0
// The headers of IPv4 (RFC 791) and IPv6 (RFC 8200). DPDK's own change their members' types from release to release.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "core/address.h"

struct ip4_header {
	uint8_t version_ihl;
	uint8_t tos;
	uint16_t total_length;
	uint16_t id;
	uint16_t fragment; // flags and offset
	uint8_t ttl;
	uint8_t protocol;
	uint16_t checksum;
	uint32_t source;
	uint32_t destination;
} __attribute__((packed));

struct ip6_header {
	uint32_t version_class_flow;
	uint16_t payload_length;
	uint8_t next_header;
	uint8_t hop_limit;
	uint8_t source[16];
	uint8_t destination[16];
} __attribute__((packed));

enum {
	IP4_DF = 0x4000,
	IP4_MF = 0x2000,
	IP4_OFFSET = 0x1fff, // in units of 8 bytes

	PROTOCOL_HOP_BY_HOP = 0,
	PROTOCOL_ICMP = 1,
	PROTOCOL_TCP = 6,
	PROTOCOL_UDP = 17,
	PROTOCOL_ROUTING = 43,
	PROTOCOL_FRAGMENT = 44,
	PROTOCOL_ESP = 50,
	PROTOCOL_ICMP6 = 58,
	PROTOCOL_NONE = 59,
	PROTOCOL_DESTINATION_OPTIONS = 60,
};

static inline unsigned
ip4_header_length(const struct ip4_header *ip)
{
	return (ip->version_ihl & 0xfu) * 4;
}

static inline bool
ip6_is_multicast(const uint8_t *address)
{
	return address[0] == 0xff;
}

static inline bool
ip6_is_link_local(const uint8_t *address)
{
	return address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
}

static inline bool
ip6_is_unspecified(const uint8_t *address)
{
	uint64_t words[2];

	memcpy(words, address, sizeof(words));
	return (words[0] | words[1]) == 0;
}

static inline bool
ip6_is_loopback(const uint8_t *address)
{
	uint64_t words[2];

	memcpy(words, address, sizeof(words));
	return words[0] == 0 && words[1] == rte_cpu_to_be_64(1);
}

// The Internet checksum's sum of whole 16-bit words as they lie (RFC 1071), not folded. An odd last byte counts as the
// first of its word.
static inline uint64_t
checksum_add(uint64_t sum, const void *data, size_t length)
{
	const uint8_t *bytes = data;
	uint32_t word;
	uint16_t last = 0;

	for (; length >= 4; bytes += 4, length -= 4) {
		memcpy(&word, bytes, sizeof(word));
		sum += word;
	}
	if (length >= 2) {
		memcpy(&last, bytes, 2);
		sum += last;
		bytes += 2;
		length -= 2;
		last = 0;
	}
	if (length > 0)
		memcpy(&last, bytes, 1);
	return sum + last;
}

static inline uint16_t
checksum_fold(uint64_t sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

// The checksum of an IPv4 header, with any value in its checksum field.
static inline uint16_t
ip4_checksum(const struct ip4_header *ip)
{
	return (uint16_t)~checksum_fold(checksum_add(0, ip, ip4_header_length(ip)) - ip->checksum);
}

// The pseudo-header's share of an ICMPv6 or UDP checksum (RFC 8200 section 8.1).
static inline uint64_t
ip6_pseudo_sum(const uint8_t *source, const uint8_t *destination, uint32_t length, uint8_t protocol)
{
	return checksum_add(checksum_add(0, source, 16), destination, 16) + rte_cpu_to_be_32(length) +
	       rte_cpu_to_be_32(protocol);
}

// An IPv4 header's third word (TTL, protocol, checksum, as they lie) with the TTL counted down by `less`, 0 or 1 (RFC 1624).
static inline uint32_t
ip4_age(uint32_t word, uint32_t less)
{
	uint32_t checksum = (word >> 16) + rte_cpu_to_be_16(0x0100) * less;

	checksum += checksum >= 0xffff;
	return ((word & 0xffff) - less) | checksum << 16;
}

// RFC 4291 appendix A: the link-local address that an Ethernet address makes.
static inline void
link_local_of(const struct rte_ether_addr *mac, uint8_t address[16])
{
	const uint8_t *b = mac->addr_bytes;
	const uint8_t made[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, b[0] ^ 2, b[1], b[2], 0xff, 0xfe, b[3], b[4], b[5]};

	for (unsigned i = 0; i < 16; i++)
		address[i] = made[i];
}
