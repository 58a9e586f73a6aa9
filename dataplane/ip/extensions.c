// SPDX-License-Identifier: Apache-2.0
// Walks IPv6 extension headers (RFC 8200 section 4), with bounds (RFC 8504 section 5.3).
#include "ip/extensions.h"

#include "inet/header.h"
#include "ip/icmp.h"

enum { HEADERS_MAX = 8, OPTIONS_MAX = 32, BYTES_MAX = 512, ROUTER_ALERT = 5 };

enum { PAD_1, PAD_N };

// RFC 3971 sections 6.4.1 and 6.4.2.
enum { CERTIFICATION_PATH_SOLICITATION = 148, CERTIFICATION_PATH_ADVERTISEMENT = 149 };

static enum ip6_fault
problem(struct ip6_chain *chain, uint8_t code, unsigned offset)
{
	chain->code = code;
	chain->offset = offset;
	return IP6_PARAMETER;
}

// RFC 8200 section 4.2: an option's two highest bits are the action if it is unknown.
static enum ip6_fault
check_options(const uint8_t *data, unsigned at, unsigned end, struct ip6_chain *chain)
{
	for (unsigned options = 0; at < end; options++) {
		uint8_t type = data[at];

		if (type == PAD_1) {
			at++;
			continue;
		}
		if (options == OPTIONS_MAX)
			return IP6_DISCARD;
		if (end - at < 2 || end - at - 2 < data[at + 1])
			return problem(chain, 0, at);
		if (type != PAD_N && type != ROUTER_ALERT && type >> 6 != 0) {
			chain->report_to_groups = type >> 6 == 2;
			return type >> 6 == 1 ? IP6_DISCARD : problem(chain, 2, at);
		}
		at += 2u + data[at + 1];
	}
	return IP6_OK;
}

enum ip6_fault
ip6_extensions(const uint8_t *data, unsigned length, struct ip6_chain *chain)
{
	unsigned at = sizeof(struct ip6_header), field = offsetof(struct ip6_header, next_header);

	*chain = (struct ip6_chain){0};
	if (length < at)
		return IP6_TRUNCATED;
	for (unsigned headers = 0; headers <= HEADERS_MAX; headers++) {
		uint8_t next = data[field];
		enum ip6_fault wrong;
		unsigned size;

		chain->next_header = next;
		chain->offset = at;
		switch (next) {
		case PROTOCOL_HOP_BY_HOP:
			// Nowhere but first.
			if (headers > 0)
				return problem(chain, 1, field);
			break;
		case PROTOCOL_ROUTING:
		case PROTOCOL_DESTINATION_OPTIONS:
			break;
		case PROTOCOL_FRAGMENT:
			return length < at + sizeof(struct ip6_fragment) ? IP6_TRUNCATED : IP6_OK;
		default:
			return IP6_OK;
		}
		if (length < at + 8)
			return IP6_TRUNCATED;
		size = (data[at + 1] + 1u) * 8;
		if (length < at + size)
			return IP6_TRUNCATED;
		if (at + size > BYTES_MAX)
			return IP6_DISCARD;
		if (next == PROTOCOL_ROUTING) {
			// We are no waypoint; with no segments left it is done with.
			if (data[at + 3] != 0)
				return problem(chain, 0, at + 2);
		} else {
			wrong = check_options(data, at + 2, at + size, chain);
			if (wrong != IP6_OK)
				return wrong;
		}
		field = at;
		at += size;
	}
	return IP6_DISCARD;
}

// Bytes of the smallest header of a protocol above IPv6.
static unsigned
least_header(uint8_t protocol)
{
	switch (protocol) {
	case PROTOCOL_NONE:
		return 0;
	case PROTOCOL_TCP:
		return 20;
	case PROTOCOL_ICMP6:
		return 4;
	default:
		return 8;
	}
}

bool
ip6_first_fragment_is_whole(const uint8_t *fragment, unsigned length)
{
	unsigned at = sizeof(struct ip6_fragment);
	uint8_t next;

	if (length < at)
		return false;
	next = fragment[0];
	for (unsigned headers = 0; headers <= HEADERS_MAX; headers++) {
		unsigned size;

		switch (next) {
		case PROTOCOL_HOP_BY_HOP:
		case PROTOCOL_ROUTING:
		case PROTOCOL_DESTINATION_OPTIONS:
			break;
		case PROTOCOL_FRAGMENT:
			return false;
		default:
			return length >= at + least_header(next);
		}
		if (length < at + 8)
			return false;
		size = (fragment[at + 1] + 1u) * 8;
		if (length < at + size)
			return false;
		next = fragment[at];
		at += size;
	}
	return false;
}

bool
ip6_is_neighbor_discovery(const uint8_t *data, unsigned length)
{
	struct ip6_chain chain;

	if (ip6_extensions(data, length, &chain) != IP6_OK || chain.next_header != PROTOCOL_ICMP6 ||
		chain.offset >= length)
		return false;
	switch (data[chain.offset]) {
	case ND_ROUTER_SOLICITATION ... ND_REDIRECT:
	case CERTIFICATION_PATH_SOLICITATION:
	case CERTIFICATION_PATH_ADVERTISEMENT:
		return true;
	default:
		return false;
	}
}
