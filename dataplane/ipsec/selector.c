// SPDX-License-Identifier: Apache-2.0
// Traffic selectors: parsed, and held against packets.
#include "ipsec/selector.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/address.h"
#include "core/number.h"
#include "inet/header.h"
#include "ip/extensions.h"

enum { PROTOCOL_DCCP = 33, PROTOCOL_SCTP = 132 };

static bool
has_ports(uint8_t protocol)
{
	return protocol == PROTOCOL_TCP || protocol == PROTOCOL_UDP || protocol == PROTOCOL_DCCP ||
	       protocol == PROTOCOL_SCTP;
}

static int
parse_addresses(const char *text, const char *last, size_t i, const char *field, struct ipsec_selector *s, uint8_t *low,
	uint8_t *high, struct fault *f)
{
	uint8_t family, length;
	unsigned bits;

	memset(high, 0xff, 16);
	if (text[0] == '\0')
		return last[0] == '\0' ? 0
				       : fault(f, EINVAL, "selectors[%zu].%sLast: it needs the first address in %s", i,
						 field, field);
	if (prefix_parse(text, low, &family, &length))
		return fault(
			f, EINVAL, "selectors[%zu].%s: \"%.64s\" is not a prefix; \"10.1.0.0/16\" is", i, field, text);
	if (s->family && s->family != family)
		return fault(f, EINVAL, "selectors[%zu].%s: \"%.64s\" is not of the family of the other prefix", i,
			field, text);
	s->family = family;
	bits = family == 4 ? 32 : 128;
	for (unsigned at = 0; at < bits / 8; at++) {
		low[at] &= prefix_mask(length, at);
		high[at] = (uint8_t)(low[at] | (uint8_t)~prefix_mask(length, at));
	}
	if (last[0] == '\0')
		return 0;
	if (length != bits)
		return fault(f, EINVAL,
			"selectors[%zu].%s: a range begins with a prefix of one address, not with \"%.64s\"", i, field,
			text);
	if (address_parse(last, high, &family) || family != s->family || memcmp(low, high, bits / 8) > 0)
		return fault(f, EINVAL, "selectors[%zu].%sLast: \"%.64s\" is not an address behind \"%.48s\"", i, field,
			last, text);
	return 0;
}

static int
parse_protocol(const char *text, size_t i, struct ipsec_selector *s, struct fault *f)
{
	static const struct {
		const char *name;
		uint8_t protocol;
	} names[] = {{"tcp", PROTOCOL_TCP}, {"udp", PROTOCOL_UDP}, {"icmp", PROTOCOL_ICMP}, {"icmp6", PROTOCOL_ICMP6}};
	const char *end;
	long value;

	s->any_protocol = text[0] == '\0';
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		if (strcasecmp(text, names[k].name) == 0) {
			s->protocol = names[k].protocol;
			return 0;
		}
	}
	value = s->any_protocol ? 0 : number_parse(text, UINT8_MAX, &end);
	if (value < 0 || (!s->any_protocol && *end != '\0'))
		return fault(f, EINVAL,
			"selectors[%zu].protocol: \"%.32s\" is not a protocol; tcp, udp, icmp, icmp6 or a number below "
			"256 is",
			i, text);
	s->protocol = (uint8_t)value;
	return 0;
}

static int
parse_ports(const char *text, size_t i, const char *field, struct ipsec_selector *s, uint16_t *low, uint16_t *high,
	struct fault *f)
{
	long first, last;

	*low = 0;
	*high = UINT16_MAX;
	if (text[0] == '\0')
		return 0;
	if (!range_parse(text, UINT16_MAX, &first, &last))
		return fault(f, EINVAL, "selectors[%zu].%s: \"%.32s\" is not a port or a range such as 1024-65535", i,
			field, text);
	if (s->any_protocol || !has_ports(s->protocol))
		return fault(f, EINVAL, "selectors[%zu].%s: only tcp, udp, 132 and 33 have ports; name one in protocol",
			i, field);
	*low = (uint16_t)first;
	*high = (uint16_t)last;
	s->ports = true;
	return 0;
}

static int
parse_one(const Sluice__V1__TrafficSelector *spec, size_t i, struct ipsec_selector *s, struct fault *f)
{
	int error = parse_addresses(spec->local, spec->local_last, i, "local", s, s->local_first, s->local_last, f);

	if (!error)
		error = parse_addresses(
			spec->remote, spec->remote_last, i, "remote", s, s->remote_first, s->remote_last, f);
	if (!error)
		error = parse_protocol(spec->protocol, i, s, f);
	if (!error)
		error = parse_ports(spec->local_ports, i, "localPorts", s, &s->local_low, &s->local_high, f);
	if (!error)
		error = parse_ports(spec->remote_ports, i, "remotePorts", s, &s->remote_low, &s->remote_high, f);
	return error;
}

int
ipsec_selectors_parse(
	Sluice__V1__TrafficSelector *const *specs, size_t count, struct ipsec_selectors **made, struct fault *f)
{
	int error = 0;

	*made = NULL;
	if (count == 0)
		return 0;
	if (count > SELECTORS_MAX)
		return fault(f, EINVAL, "selectors: %zu are too many; %d are accepted", count, SELECTORS_MAX);
	*made = calloc(1, sizeof(**made) + count * sizeof((*made)->list[0]));
	if (!*made)
		return fault(f, ENOMEM, "selectors: there is no memory for them");
	(*made)->count = count;
	for (size_t i = 0; i < count && !error; i++)
		error = parse_one(specs[i], i, &(*made)->list[i], f);
	for (size_t i = 0; i < count; i++)
		(*made)->ports |= (*made)->list[i].ports;
	if (error) {
		free(*made);
		*made = NULL;
	}
	return error;
}

static void
flow_of_4(const uint8_t *at, size_t length, struct ipsec_flow *flow, size_t *header)
{
	const struct ip4_header *ip = (const struct ip4_header *)at;

	memcpy(flow->source, &ip->source, 4);
	memcpy(flow->destination, &ip->destination, 4);
	flow->protocol = ip->protocol;
	flow->later_fragment = ip->fragment & RTE_BE16(IP4_OFFSET);
	*header = flow->later_fragment ? length : ip4_header_length(ip);
}

static void
flow_of_6(const uint8_t *at, size_t length, struct ipsec_flow *flow, size_t *header)
{
	const struct ip6_header *ip = (const struct ip6_header *)at;
	uint8_t next = ip->next_header;
	size_t offset = sizeof(*ip);

	memcpy(flow->source, ip->source, 16);
	memcpy(flow->destination, ip->destination, 16);
	// A bounded walk: a header chain longer than this has no ports here.
	for (unsigned i = 0; i < 8 && offset + 8 <= length; i++) {
		if (next == PROTOCOL_FRAGMENT) {
			if (at[offset + 2] != 0 || (at[offset + 3] & 0xf8) != 0) {
				flow->later_fragment = true;
				next = at[offset];
				offset = length;
				break;
			}
			next = at[offset];
			offset += 8;
		} else if (next == PROTOCOL_HOP_BY_HOP || next == PROTOCOL_ROUTING ||
			   next == PROTOCOL_DESTINATION_OPTIONS) {
			next = at[offset];
			offset += ((size_t)at[offset + 1] + 1) * 8;
		} else {
			break;
		}
	}
	flow->protocol = next;
	*header = offset;
}

void
ipsec_flow_of(const uint8_t *ip, size_t length, uint8_t family, struct ipsec_flow *flow)
{
	size_t header;

	memset(flow, 0, sizeof(*flow));
	flow->family = family;
	if (family == 4)
		flow_of_4(ip, length, flow, &header);
	else
		flow_of_6(ip, length, flow, &header);
	flow->has_ports = has_ports(flow->protocol) && header + 4 <= length;
	if (flow->has_ports) {
		flow->source_port = (uint16_t)(ip[header] << 8 | ip[header + 1]);
		flow->destination_port = (uint16_t)(ip[header + 2] << 8 | ip[header + 3]);
	}
}

static bool
within(const uint8_t *address, const uint8_t *low, const uint8_t *high, size_t length)
{
	return memcmp(address, low, length) >= 0 && memcmp(address, high, length) <= 0;
}

static bool
matches(const struct ipsec_selector *s, const struct ipsec_flow *flow, bool outbound, bool any_ports)
{
	const uint8_t *local = outbound ? flow->source : flow->destination;
	const uint8_t *remote = outbound ? flow->destination : flow->source;
	size_t length = flow->family == 4 ? 4 : 16;
	uint16_t local_port = outbound ? flow->source_port : flow->destination_port;
	uint16_t remote_port = outbound ? flow->destination_port : flow->source_port;

	if (s->family && s->family != flow->family)
		return false;
	if (!within(local, s->local_first, s->local_last, length) ||
		!within(remote, s->remote_first, s->remote_last, length))
		return false;
	if (!s->any_protocol && s->protocol != flow->protocol)
		return false;
	return !s->ports || any_ports ||
	       (flow->has_ports && local_port >= s->local_low && local_port <= s->local_high &&
		       remote_port >= s->remote_low && remote_port <= s->remote_high);
}

static bool
match_any(const struct ipsec_selectors *selectors, const struct ipsec_flow *flow, bool outbound, bool any_ports)
{
	if (!selectors)
		return true;
	for (size_t i = 0; i < selectors->count; i++)
		if (matches(&selectors->list[i], flow, outbound, any_ports))
			return true;
	return false;
}

bool
ipsec_selectors_match(const struct ipsec_selectors *selectors, const struct ipsec_flow *flow, bool outbound)
{
	return match_any(selectors, flow, outbound, false);
}

bool
ipsec_selectors_match_fragment(const struct ipsec_selectors *selectors, const struct ipsec_flow *flow, bool outbound)
{
	return match_any(selectors, flow, outbound, true);
}
