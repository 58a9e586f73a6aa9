// Walks IPv6 extension headers (RFC 8200 section 4), with bounds (RFC 8504 section 5.3).
#include "ip/extensions.h"

#include "ip/header.h"

enum { HEADERS_MOST = 8, OPTIONS_MOST = 32, BYTES_MOST = 512, ROUTER_ALERT = 5 };

enum { PAD_1, PAD_N };

static enum ip6_fault
problem(struct ip6_chain *chain, uint8_t code, unsigned offset)
{
	chain->code = code;
	chain->offset = offset;
	return IP6_PARAMETER;
}

// RFC 8200 section 4.2: an option's two highest bits say what to do if it is not known.
static enum ip6_fault
check_options(const uint8_t *data, unsigned at, unsigned end, struct ip6_chain *chain)
{
	for (unsigned options = 0; at < end; options++) {
		uint8_t type = data[at];

		if (type == PAD_1) {
			at++;
			continue;
		}
		if (options == OPTIONS_MOST)
			return IP6_DISCARD;
		if (end - at < 2 || end - at - 2 < data[at + 1])
			return problem(chain, 0, at);
		if (type != PAD_N && type != ROUTER_ALERT && type >> 6 != 0) {
			chain->tell_groups = type >> 6 == 2;
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
	for (unsigned headers = 0; headers <= HEADERS_MOST; headers++) {
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
		if (at + size > BYTES_MOST)
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
