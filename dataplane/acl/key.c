// SPDX-License-Identifier: Apache-2.0
// Keys of packets with options, extension headers (RFC 8200 section 4), fragments, or hardly any bytes.
#include <assert.h>
#include <netinet/in.h>
#include <stddef.h>

#include "acl/key.h"

enum { EXTENSIONS_MAX = 8 };

const uint8_t ip6_extension[256] = {
	[IPPROTO_HOPOPTS] = 1,
	[IPPROTO_ROUTING] = 1,
	[IPPROTO_FRAGMENT] = 1,
	[IPPROTO_AH] = 1,
	[IPPROTO_DSTOPTS] = 1,
	[135] = 1, // mobility, RFC 6275
	[139] = 1, // HIP, RFC 7401
	[140] = 1, // shim6, RFC 5533
};

// The result of the walk to the transport header: its place, or the reason why it cannot be read.
struct transport {
	uint8_t protocol;
	uint16_t fragment; // offset in 8 bytes
	unsigned start;
};

struct transport_fields {
	uint32_t class;
	uint16_t source_port, destination_port;
	uint8_t flags;
};

// The transport header's part of a key. `end` is the end of the readable bytes.
static bool
read_transport(const struct acl_protocols *protocols, const uint8_t *ip, unsigned end,
	const struct transport *transport, struct transport_fields *fields)
{
	uint8_t protocol = transport->protocol;
	// A TCP header that ends before its flags is as bad as one that ends before its ports (RFC 1858).
	unsigned needed = protocol == IPPROTO_TCP ? 14 : 4;

	fields->class = protocols->class_of[protocol];
	if (transport->fragment == 0 && transport->start + needed <= end) {
		memcpy(&fields->source_port, ip + transport->start, 2);
		memcpy(&fields->destination_port, ip + transport->start + 2, 2);
		if (protocol == IPPROTO_TCP)
			fields->flags = ip[transport->start + 13];
		return true;
	}
	fields->class = (fields->class & CLASS_NUMBER) | CLASS_UNREADABLE;
	if (!protocols->read[protocol])
		return true;
	if (transport->fragment == 0)
		return false;
	return protocol != IPPROTO_TCP || transport->fragment > 1;
}

bool
acl_key4_careful(const struct acl_protocols *protocols, const uint8_t *ip, unsigned length, struct acl_key4 *key)
{
	struct transport_fields fields = {0};
	struct transport transport;
	unsigned end;

	if (length < 20)
		return false;
	end = (unsigned)ip[2] << 8 | ip[3];
	if (end > length)
		end = length;
	transport.protocol = ip[9];
	transport.fragment = (uint16_t)((ip[6] << 8 | ip[7]) & 0x1fff);
	transport.start = (ip[0] & 0xf) * 4u;
	if (transport.start < 20 || !read_transport(protocols, ip, end, &transport, &fields))
		return false;
	*key = (struct acl_key4){.class = fields.class,
		.source_port = fields.source_port,
		.destination_port = fields.destination_port,
		.dscp = ip[1] >> 2,
		.flags = fields.flags};
	memcpy(&key->source, ip + 12, 4);
	memcpy(&key->destination, ip + 16, 4);
	return true;
}

// Follow the chain of extension headers. False: it is cut short or too long.
static bool
find_transport(const uint8_t *ip, unsigned end, struct transport *transport)
{
	*transport = (struct transport){.protocol = ip[6], .start = 40};
	for (unsigned seen = 0; ip6_extension[transport->protocol]; seen++) {
		const uint8_t *header = ip + transport->start;

		if (seen == EXTENSIONS_MAX || transport->start + 8 > end)
			return false;
		if (transport->protocol == IPPROTO_FRAGMENT) {
			transport->fragment = (uint16_t)((header[2] << 8 | header[3]) >> 3);
			transport->start += 8;
		} else if (transport->protocol == IPPROTO_AH) {
			transport->start += (header[1] + 2u) * 4;
		} else {
			transport->start += (header[1] + 1u) * 8;
		}
		transport->protocol = header[0];
		// A later fragment has no transport header.
		if (transport->fragment != 0)
			return true;
	}
	return true;
}

bool
acl_key6_careful(const struct acl_protocols *protocols, const uint8_t *ip, unsigned length, struct acl_key6 *key)
{
	struct transport_fields fields = {0};
	struct transport transport;
	unsigned end;

	if (length < 40)
		return false;
	end = 40 + ((unsigned)ip[4] << 8 | ip[5]);
	if (end > length)
		end = length;
	if (find_transport(ip, end, &transport)) {
		if (!read_transport(protocols, ip, end, &transport, &fields))
			return false;
	} else if (protocols->named) {
		return false;
	} else {
		fields.class = CLASS_UNREADABLE;
	}
	*key = (struct acl_key6){.class = fields.class,
		.source_port = fields.source_port,
		.destination_port = fields.destination_port,
		.dscp = (uint8_t)((ip[0] << 2 & 0x3c) | ip[1] >> 6),
		.flags = fields.flags,
		.label = acl_label(protocols, ip)};
	memcpy(key->source, ip + 8, 16);
	memcpy(key->destination, ip + 24, 16);
	return true;
}
