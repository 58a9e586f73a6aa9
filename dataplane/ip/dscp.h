// SPDX-License-Identifier: Apache-2.0
// Differentiated services code points by name (RFC 2474, 2597, 3246, 5865).
#pragma once

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <rte_byteorder.h>

// The code point that a name ("ef", "af41", "cs6") or a number below 64 means, or -EINVAL.
static inline int
dscp_parse(const char *text)
{
	static const struct {
		const char *name;
		uint8_t dscp;
	} names[] = {{"default", 0}, {"be", 0}, {"cs0", 0}, {"cs1", 8}, {"cs2", 16}, {"cs3", 24}, {"cs4", 32},
		{"cs5", 40}, {"cs6", 48}, {"cs7", 56}, {"af11", 10}, {"af12", 12}, {"af13", 14}, {"af21", 18},
		{"af22", 20}, {"af23", 22}, {"af31", 26}, {"af32", 28}, {"af33", 30}, {"af41", 34}, {"af42", 36},
		{"af43", 38}, {"ef", 46}, {"va", 44}, {"voice-admit", 44}, {"le", 1}};
	char *end;
	unsigned long number;

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcasecmp(text, names[i].name) == 0)
			return names[i].dscp;
	}
	if (text[0] < '0' || text[0] > '9')
		return -EINVAL;
	number = strtoul(text, &end, 10);
	return *end == '\0' && number < 64 ? (int)number : -EINVAL;
}

static inline uint8_t
dscp_of(const uint8_t *ip, uint8_t family)
{
	return (uint8_t)(family == 4 ? ip[1] >> 2 : (ip[0] << 2 & 0x3c) | ip[1] >> 6);
}

// Write a code point into a header; the ECN bits stay, and the IPv4 checksum is mended as RFC 1624 has it.
static inline void
dscp_write(uint8_t *ip, uint8_t family, uint8_t dscp)
{
	uint16_t before, after, checksum;
	uint32_t sum;

	memcpy(&before, ip, 2);
	if (family == 6) {
		after = rte_cpu_to_be_16((uint16_t)((rte_be_to_cpu_16(before) & 0xf03f) | dscp << 6));
		memcpy(ip, &after, 2);
		return;
	}
	after = rte_cpu_to_be_16((uint16_t)((rte_be_to_cpu_16(before) & 0xff03) | dscp << 2));
	memcpy(&checksum, ip + 10, 2);
	sum = (uint16_t)~checksum + (uint32_t)(uint16_t)~before + after;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	checksum = (uint16_t)~sum;
	memcpy(ip, &after, 2);
	memcpy(ip + 10, &checksum, 2);
}
