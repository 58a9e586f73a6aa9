// SPDX-License-Identifier: Apache-2.0
// Rules of an access control list as the contract words them (api/acl.proto), parsed.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acl.pb-c.h"
#include "server/object.h"

// The fields that a rule reads behind the IP header. Such a rule cannot match a later fragment, which does not have them.
enum { RULE_READS_PORTS = 1 << 0, RULE_READS_FLAGS = 1 << 1, RULE_READS_ICMP = 1 << 2 };

struct acl_rule {
	bool permit;
	uint8_t family; // of its addresses: 4 or 6; 0: it has none and holds for both
	uint8_t source_length, destination_length;
	uint8_t source[16], destination[16]; // network order; IPv4 in the first four bytes
	int16_t protocol;                    // -1: any
	uint8_t reads;
	uint8_t dscp, dscp_mask; // mask 0: any
	uint8_t flags, flags_mask;
	uint32_t label; // of an IPv6 flow (RFC 6437), which then `has_label`
	bool has_label;
	// The first and the second two bytes of the transport header, host order, inclusive: ports, or ICMP type and code.
	uint16_t source_low, source_high;
	uint16_t destination_low, destination_high;
};

// Protocols whose header starts with a source and a destination port.
bool protocol_has_ports(uint8_t protocol);

// The place of a rule, for the text of a fault: "acl home, rule 3", or with a filter (from 1), "flow profile home,
// rule 3, filter 2", and the names of the fields there.
struct acl_place {
	const char *kind, *name;
	size_t rule, filter; // filter 0: there are none
	const char *source, *destination, *source_ports, *destination_ports;
	struct fault *f;
};

// Parse the match of an Acl's rule into a rule without one. 0 or -EINVAL.
int acl_match_parse(const struct acl_place *at, const Sluice__V1__AclRule *spec, struct acl_rule *rule);

// 0, or -EINVAL with the list, rule (from 1), field and mend in the fault.
int acl_rule_parse(
	const char *list, size_t number, const Sluice__V1__AclRule *spec, struct acl_rule *rule, struct fault *f);
