// SPDX-License-Identifier: Apache-2.0
// Reads filters of frames, and holds frames against them.
#include "flow/frames.h"

#include <errno.h>
#include <string.h>

#include <rte_ether.h>

#include "inet/header.h"
#include "ip/dscp.h"

enum {
	PRIORITY_LAST = 7,
};

bool
frame_filter_is(const Sluice__V1__PacketFilter *f)
{
	return f->remote_mac[0] || f->local_mac[0] || f->ether_type || f->c_vlan || f->s_vlan || f->n_c_priorities ||
	       f->n_s_priorities || f->c_drop_eligible || f->s_drop_eligible;
}

static int
parse_mac(const char *text, const char *field, const char *where, uint8_t to[6], uint8_t mask[6], struct fault *f)
{
	struct rte_ether_addr address;

	if (!text[0])
		return 0;
	if (rte_ether_unformat_addr(text, &address))
		return fault(f, EINVAL, "%s, %s: an Ethernet address like 02:00:00:00:00:01 is accepted, not %.40s",
			where, field, text);
	memcpy(to, address.addr_bytes, 6);
	memset(mask, 0xff, 6);
	return 0;
}

// One of the two tags.
struct tag {
	const char *vlan_field, *priorities_field, *dei_field;
	uint32_t vlan;
	size_t n_priorities;
	const uint32_t *priorities;
	Sluice__V1__DropEligible dei;
	uint8_t there, drop_eligible;
};

static int
parse_tag(const struct tag *tag, const char *where, struct frame_shown *value, struct frame_shown *mask, uint16_t *vlan,
	uint16_t *vlan_mask, uint8_t *priorities, struct fault *f)
{
	for (size_t i = 0; i < tag->n_priorities; i++) {
		if (tag->priorities[i] > PRIORITY_LAST)
			return fault(f, EINVAL, "%s, %s: %u is not from 0 to %d", where, tag->priorities_field,
				tag->priorities[i], PRIORITY_LAST);
		*priorities |= (uint8_t)(1u << tag->priorities[i]);
	}
	if (!tag->vlan && !tag->n_priorities && !tag->dei)
		return 0;
	value->tags |= tag->there;
	mask->tags |= tag->there;
	*vlan = (uint16_t)tag->vlan;
	*vlan_mask = tag->vlan ? UINT16_MAX : 0;
	if (tag->dei != SLUICE__V1__DROP_ELIGIBLE__EITHER) {
		value->tags |= tag->dei == SLUICE__V1__DROP_ELIGIBLE__SET ? tag->drop_eligible : 0;
		mask->tags |= tag->drop_eligible;
	}
	return 0;
}

int
frame_filter_parse(const Sluice__V1__PacketFilter *filter, enum direction direction, const char *where,
	struct frame_filter *to, struct fault *f)
{
	const struct tag c = {"cVlan", "cPriorities", "cDropEligible", filter->c_vlan, filter->n_c_priorities,
				 filter->c_priorities, filter->c_drop_eligible, FRAME_C_TAG, FRAME_C_DEI},
			 s = {"sVlan", "sPriorities", "sDropEligible", filter->s_vlan, filter->n_s_priorities,
				 filter->s_priorities, filter->s_drop_eligible, FRAME_S_TAG, FRAME_S_DEI};
	struct frame_shown value = {0}, mask = {0};
	bool up = direction == UP;
	int error;

	value.type = (uint16_t)filter->ether_type;
	mask.type = filter->ether_type ? UINT16_MAX : 0;
	error = parse_mac(filter->remote_mac, "remoteMac", where, up ? value.destination : value.source,
		up ? mask.destination : mask.source, f);
	if (!error)
		error = parse_mac(filter->local_mac, "localMac", where, up ? value.source : value.destination,
			up ? mask.source : mask.destination, f);
	if (!error)
		error = parse_tag(&c, where, &value, &mask, &value.c_vlan, &mask.c_vlan, &to->c_priorities, f);
	if (!error)
		error = parse_tag(&s, where, &value, &mask, &value.s_vlan, &mask.s_vlan, &to->s_priorities, f);
	memcpy(&to->value, &value, sizeof(value));
	memcpy(&to->mask, &mask, sizeof(mask));
	return error;
}

// ---- The packet in it.

struct packet_shown {
	uint8_t family, protocol, dscp;
	bool has_ports;
	uint16_t first, second; // ports, or the bytes of a transport header in their place
	uint32_t label;
	const uint8_t *source, *destination;
};

static void
show_packet(const uint8_t *ip, size_t length, uint16_t type, struct packet_shown *to)
{
	size_t header;

	to->family = 0;
	if (type == RTE_ETHER_TYPE_IPV4 && length >= sizeof(struct ip4_header) && ip[0] >> 4 == 4) {
		const struct ip4_header *ip4 = (const struct ip4_header *)ip;

		header = ip4_header_length(ip4);
		*to = (struct packet_shown){.family = 4,
			.protocol = ip4->protocol,
			.source = (const uint8_t *)&ip4->source,
			.destination = (const uint8_t *)&ip4->destination,
			.has_ports = (ip4->fragment & RTE_BE16(IP4_OFFSET)) == 0 && header >= sizeof(*ip4)};
	} else if (type == RTE_ETHER_TYPE_IPV6 && length >= sizeof(struct ip6_header) && ip[0] >> 4 == 6) {
		const struct ip6_header *ip6 = (const struct ip6_header *)ip;

		header = sizeof(*ip6);
		*to = (struct packet_shown){.family = 6,
			.protocol = ip6->next_header,
			.source = ip6->source,
			.destination = ip6->destination,
			.has_ports = true,
			.label = (uint32_t)(ip[1] & 0xf) << 16 | frame_word(ip + 2)};
	} else {
		return;
	}
	to->dscp = dscp_of(ip, to->family);
	to->has_ports = to->has_ports && length >= header + 4;
	if (to->has_ports) {
		to->first = frame_word(ip + header);
		to->second = frame_word(ip + header + 2);
	}
}

static bool
is_in(const uint8_t *address, const uint8_t *network, unsigned length, uint8_t family)
{
	uint8_t differs = 0;

	for (unsigned i = 0; i < (family == 4 ? 4 : 16); i++)
		differs |= (address[i] ^ network[i]) & prefix_mask(length, i);
	return differs == 0;
}

static bool
packet_matches(const struct acl_rule *r, const struct packet_shown *p)
{
	if (p->family == 0 || (r->family != 0 && r->family != p->family) ||
		(r->protocol >= 0 && r->protocol != p->protocol) || ((p->dscp ^ r->dscp) & r->dscp_mask) ||
		(r->has_label && (p->family != 6 || p->label != r->label)))
		return false;
	if (r->family != 0 && (!is_in(p->source, r->source, r->source_length, r->family) ||
				      !is_in(p->destination, r->destination, r->destination_length, r->family)))
		return false;
	if (!(r->reads & RULE_READS_PORTS))
		return true;
	return p->has_ports && (r->protocol >= 0 || protocol_has_ports(p->protocol)) && p->first >= r->source_low &&
	       p->first <= r->source_high && p->second >= r->destination_low && p->second <= r->destination_high;
}

static inline bool
frame_matches(const struct frame_filter *f, const struct frame_key *key, const struct frame_shown *shown)
{
	if (((key->words[0] ^ f->value.words[0]) & f->mask.words[0]) |
		((key->words[1] ^ f->value.words[1]) & f->mask.words[1]) |
		((key->words[2] ^ f->value.words[2]) & f->mask.words[2]))
		return false;
	return (f->c_priorities == 0 || f->c_priorities >> shown->c_priority & 1) &&
	       (f->s_priorities == 0 || f->s_priorities >> shown->s_priority & 1);
}

int
frame_filters_find(const struct frame_filter *filters, unsigned count, const uint8_t *frame, size_t length)
{
	struct packet_shown packet;
	struct frame_shown shown;
	struct frame_key key;
	size_t at;
	bool looked = false;

	if (length < RTE_ETHER_HDR_LEN)
		return -1;
	at = frame_show(frame, length, &shown);
	memcpy(&key, &shown, sizeof(key));
	for (unsigned i = 0; i < count; i++) {
		if (!frame_matches(&filters[i], &key, &shown))
			continue;
		if (!filters[i].reads_packet)
			return filters[i].rule;
		if (!looked)
			show_packet(frame + at, length - at, shown.type, &packet);
		looked = true;
		if (packet_matches(&filters[i].packet, &packet))
			return filters[i].rule;
	}
	return -1;
}
