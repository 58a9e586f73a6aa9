// SPDX-License-Identifier: Apache-2.0
// ICMP and ICMPv6 errors (RFC 792, RFC 1812 section 4.3.2, RFC 4443 section 2.4). In: a packet that cannot go on, with type
// and code in its `detail`. Out: the packet to drop, and where the rules and the rate allow, an error to the look-up.
#include "ip/icmp.h"

#include <string.h>

#include "core/fair.h"
#include "fib/connected.h"
#include "fib/hop.h"
#include "fib/local_address_source.h"
#include "fib/vrf.h"
#include "inet/describe.h"
#include "inet/header.h"
#include "ip/subscriber.h"
#include "port/port.h"

enum {
	// Of all workers, and of a source on each of them; as many at once.
	ERRORS_A_SECOND = 10000,
	ERRORS_EACH = 100,
	TTL = 64,
	ICMP_HEADER = 8,
	IP4_MAX_LENGTH = 576, // bytes of an ICMP error (RFC 1812 section 4.3.2.3)
	IP6_MAX_LENGTH = 1280,

	ICMP6_ERRORS_END = 128, // types below are errors
	ICMP6_REDIRECT = 137,
	ICMP6_BAD_OPTION = 2, // code of ICMP6_PARAMETER
	EXTENSIONS_MAX = 8,
};

// The class selector that control traffic gets (RFC 1812 section 4.3.2.5: precedence 6).
static const uint8_t CS6 = 0xc0;

bool
icmp4_error_allowed(const uint8_t *packet, size_t length)
{
	const struct ip4_header *ip = (const struct ip4_header *)packet;
	uint32_t source, destination;
	size_t header;

	if (length < sizeof(*ip))
		return false;
	header = ip4_header_length(ip);
	source = rte_be_to_cpu_32(ip->source);
	destination = rte_be_to_cpu_32(ip->destination);
	if (ip->fragment & RTE_BE16(IP4_OFFSET))
		return false;
	// To a broadcast or multicast address; from one that is no single host's.
	if (destination >> 28 >= 0xe)
		return false;
	if (source >> 24 == 0 || source >> 24 == 127 || source >> 28 >= 0xe)
		return false;
	if (ip->protocol != PROTOCOL_ICMP)
		return true;
	// Of ICMP, only queries: echo, router solicitation, timestamp, information, address mask.
	if (length <= header)
		return false;
	switch (packet[header]) {
	case 0:
	case 8:
	case 9:
	case 10:
	case 13:
	case 14:
	case 15:
	case 16:
	case 17:
	case 18:
		return true;
	default:
		return false;
	}
}

static bool
is_extension(uint8_t protocol)
{
	return protocol == PROTOCOL_HOP_BY_HOP || protocol == PROTOCOL_ROUTING ||
	       protocol == PROTOCOL_DESTINATION_OPTIONS || protocol == PROTOCOL_FRAGMENT;
}

// Whether the payload is an ICMPv6 error or redirect, or a fragment without the first header.
static bool
is_icmp6_error(const uint8_t *packet, size_t length)
{
	uint8_t protocol = ((const struct ip6_header *)packet)->next_header;
	size_t at = sizeof(struct ip6_header);

	for (unsigned i = 0; i < EXTENSIONS_MAX; i++) {
		switch (protocol) {
		case PROTOCOL_ICMP6:
			return at >= length || packet[at] < ICMP6_ERRORS_END || packet[at] == ICMP6_REDIRECT;
		case PROTOCOL_HOP_BY_HOP:
		case PROTOCOL_ROUTING:
		case PROTOCOL_DESTINATION_OPTIONS:
			if (at + 8 > length)
				return true;
			protocol = packet[at];
			at += 8 * (packet[at + 1] + 1u);
			break;
		case PROTOCOL_FRAGMENT:
			if (at + 8 > length)
				return true;
			protocol = packet[at];
			// Only the first fragment shows the type of the payload.
			if (packet[at + 2] != 0 || packet[at + 3] & 0xf8)
				return protocol == PROTOCOL_ICMP6 || is_extension(protocol);
			at += 8;
			break;
		default:
			return false;
		}
	}
	return true;
}

// For multicasts, only the errors of path MTU discovery and unknown options (RFC 4443 section 2.4 (e.3)).
static bool
is_for_groups(uint8_t type, uint8_t code)
{
	return type == ICMP6_TOO_BIG || (type == ICMP6_PARAMETER && code == ICMP6_BAD_OPTION);
}

bool
icmp6_error_allowed(const uint8_t *packet, size_t length, uint8_t type, uint8_t code)
{
	const struct ip6_header *ip = (const struct ip6_header *)packet;

	if (length < sizeof(*ip))
		return false;
	if (ip6_is_multicast(ip->source) || ip6_is_unspecified(ip->source) || ip6_is_loopback(ip->source))
		return false;
	if (ip6_is_multicast(ip->destination) && !is_for_groups(type, code))
		return false;
	return !is_icmp6_error(packet, length);
}

// The broadcast address or the own address of a network of ours: not one host.
static bool
is_network_s(uint16_t vrf, uint32_t address)
{
	const struct fib *fib = vrf_fib(vrf, 4);
	const struct hop *hop;

	if (!local_address_source_maybe(local_address_source_hash4(address)) || !fib)
		return false;
	hop = hop_at(fib4_lookup(fib, address));
	return hop->flags & HOP_BROADCAST || connected_is_network_address(hop);
}

// Whether an error of this type may be sent about a packet, whose IP header is at `data`: not about packets in broadcast or multicast
// frames, and not about packets to or from more than one host.
static bool
is_allowed(const struct packet *p, const uint8_t *data, size_t length, uint8_t type, uint8_t code)
{
	bool to_group = p->l2_length >= RTE_ETHER_HDR_LEN && *(data - p->l2_length) & 1;
	const struct ip4_header *ip4 = (const struct ip4_header *)data;
	const struct ip6_header *ip6 = (const struct ip6_header *)data;

	if (p->family == 4)
		return !to_group && icmp4_error_allowed(data, length) && !is_network_s(p->vrf, ip4->destination) &&
		       !(local_address_source_maybe(local_address_source_hash4(ip4->source)) &&
			       local_address_source_is(p->vrf, 4, (const uint8_t *)&ip4->source));
	return (!to_group || is_for_groups(type, code)) && icmp6_error_allowed(data, length, type, code) &&
	       !(local_address_source_maybe(local_address_source_hash6(ip6->source)) &&
		       local_address_source_is(p->vrf, 6, ip6->source));
}

// The quoted packet, and the places of the message's parts.
struct error {
	const struct packet *about;
	struct rte_mbuf *m;
	uint8_t *icmp;
	unsigned icmp_length;
	uint8_t type, code;
	uint16_t parameter;
};

// Copy as much of the packet as `most` bytes allow behind `before` bytes of header.
static bool
quote(struct error *e, struct rte_mbuf *about, unsigned before, unsigned most)
{
	unsigned length = RTE_MIN(about->pkt_len, most - before - ICMP_HEADER);
	uint8_t *data = (uint8_t *)rte_pktmbuf_append(e->m, (uint16_t)(before + ICMP_HEADER + length));
	const void *from;

	if (!data)
		return false;
	e->icmp = data + before;
	e->icmp_length = ICMP_HEADER + length;
	memset(data, 0, before + ICMP_HEADER);
	from = rte_pktmbuf_read(about, 0, length, e->icmp + ICMP_HEADER);
	if (!from)
		return false;
	if (from != e->icmp + ICMP_HEADER)
		memcpy(e->icmp + ICMP_HEADER, from, length);
	e->icmp[0] = e->type;
	e->icmp[1] = e->code;
	return true;
}

static bool
build4(struct error *e, struct rte_mbuf *about)
{
	const struct ip4_header *old = rte_pktmbuf_mtod(about, const struct ip4_header *);
	struct ip4_header *ip;
	uint8_t near[16] = {0}, own[16];
	uint16_t word = rte_cpu_to_be_16(e->parameter);

	memcpy(near, &old->source, sizeof(old->source));
	if (vrf_local_address_at(e->about->vrf, 4, e->about->interface, near, own) ||
		!quote(e, about, sizeof(*ip), IP4_MAX_LENGTH))
		return false;
	// A pointer is the second word's first byte, an MTU its second half.
	if (e->type == ICMP4_PARAMETER)
		e->icmp[4] = (uint8_t)e->parameter;
	else
		memcpy(e->icmp + 6, &word, sizeof(word));
	word = (uint16_t)~checksum_fold(checksum_add(0, e->icmp, e->icmp_length));
	memcpy(e->icmp + 2, &word, sizeof(word));

	ip = rte_pktmbuf_mtod(e->m, struct ip4_header *);
	*ip = (struct ip4_header){.version_ihl = 0x45,
		.tos = CS6,
		.total_length = rte_cpu_to_be_16((uint16_t)e->m->pkt_len),
		.ttl = TTL,
		.protocol = PROTOCOL_ICMP,
		.destination = old->source};
	memcpy(&ip->source, own, sizeof(ip->source));
	ip->checksum = ip4_checksum(ip);
	return true;
}

static bool
build6(struct error *e, struct rte_mbuf *about)
{
	const struct ip6_header *old = rte_pktmbuf_mtod(about, const struct ip6_header *);
	struct ip6_header *ip;
	uint8_t own[16];
	uint32_t word = rte_cpu_to_be_32(e->parameter);
	uint16_t sum;

	if (ip6_is_link_local(old->source) && e->about->port < PORT_MAX)
		link_local_of(&ports[e->about->port].mac, own);
	else if (vrf_local_address_at(e->about->vrf, 6, e->about->interface, old->source, own))
		return false;
	if (!quote(e, about, sizeof(*ip), IP6_MAX_LENGTH))
		return false;
	memcpy(e->icmp + 4, &word, sizeof(word));
	sum = (uint16_t)~checksum_fold(checksum_add(
		ip6_pseudo_sum(own, old->source, e->icmp_length, PROTOCOL_ICMP6), e->icmp, e->icmp_length));
	memcpy(e->icmp + 2, &sum, sizeof(sum));

	ip = rte_pktmbuf_mtod(e->m, struct ip6_header *);
	ip->version_class_flow = rte_cpu_to_be_32(UINT32_C(6) << 28 | (uint32_t)CS6 << 20);
	ip->payload_length = rte_cpu_to_be_16((uint16_t)e->icmp_length);
	ip->next_header = PROTOCOL_ICMP6;
	ip->hop_limit = TTL;
	memcpy(ip->source, own, sizeof(own));
	memcpy(ip->destination, old->source, sizeof(ip->destination));
	return true;
}

// The way back. About a subscriber's own packet: down its session, without a look-up of its source. About a packet from a tunnel of
// a session: up the session again. About all others: by the routes of the VRF.
static uint16_t
way_back(const struct packet *about, struct packet *p)
{
	bool of_session = about->session != NO_SESSION;

	if (of_session && about->direction == UP) {
		p->session = about->session;
		return packet_to_subscriber(p);
	}
	if (of_session && !(about->flags & PACKET_ROUTED)) {
		p->session = about->session;
		p->direction = UP;
		p->chain = subscribers->chain_up(p->session, p->family);
		return packet_step(p);
	}
	return p->family == 4 ? ip4_lookup_node.id : ip6_lookup_node.id;
}

// An error about the packet, or NULL.
static struct rte_mbuf *
answer(struct rte_mbuf *about, uint16_t *next)
{
	const struct packet *old = packet_of(about);
	const uint8_t *data = rte_pktmbuf_mtod(about, const uint8_t *);
	struct error e = {.about = old,
		.type = (uint8_t)(old->detail >> 24),
		.code = (uint8_t)(old->detail >> 16),
		.parameter = (uint16_t)old->detail};
	static struct fair_rates errors;
	struct packet *p;

	if (old->flags & PACKET_OURS)
		return NULL;
	if (!is_allowed(old, data, about->data_len, e.type, e.code))
		return NULL;
	if (!fair_spend(&errors, ERRORS_A_SECOND, ERRORS_EACH, about))
		return NULL;
	e.m = rte_pktmbuf_alloc(about->pool);
	if (!e.m)
		return NULL;
	if (old->family == 4 ? !build4(&e, about) : !build6(&e, about)) {
		rte_pktmbuf_free(e.m);
		return NULL;
	}
	packet_reset(e.m);
	p = packet_of(e.m);
	p->vrf = old->vrf;
	p->interface = old->interface;
	p->port = old->port;
	p->family = old->family;
	p->flags = PACKET_OURS;
	p->queue = QUEUE_OF_REPLIES;
	e.m->port = about->port;
	*next = way_back(old, p);
	return e.m;
}

static uint16_t
icmp_error(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count)
{
	uint16_t next;

	for (uint16_t i = 0; i < count; i++) {
		struct rte_mbuf *m = answer(packets[i], &next);

		if (m)
			rte_node_enqueue_x1(graph, node, next, m);
	}
	rte_node_enqueue(graph, node, drop_node.id, packets, count);
	return count;
}

static void
icmp_error_describe(char *text, size_t size, const struct packet *p, const uint8_t *data, size_t length)
{
	const struct drop *reason = drop_by_id(p->drop);

	snprintf(text, size, "%s: tells the sender by ICMP type %u code %u", reason ? reason->name : "?",
		p->detail >> 24, p->detail >> 16 & 0xff);
}

struct node icmp_error_node = {.name = "icmp-error",
	.process = icmp_error,
	.describe = icmp_error_describe,
	.edges = NODE_EDGES(&ip4_lookup_node, &ip6_lookup_node),
	.steps = true};
NODE_REGISTER(icmp_error_node)
